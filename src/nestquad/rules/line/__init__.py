"""Weights of Matérn kernels on a line in O(N log N): state-space form, one banded system."""

from nestquad.rules.line._rules import line_rules

__all__ = ["line_rules"]
