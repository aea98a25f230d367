"""Multilevel methods: a telescoping sum over numbers of inner points."""

from nestquad.methods.multilevel.mlkq import MLKQ
from nestquad.methods.multilevel.mlmc import MLMC

__all__ = ["MLKQ", "MLMC"]
