"""Nodes + kernel + law → weights, with diagnostics."""

from nestquad.rules._cholesky import Factor, factorize
from nestquad.rules._exactness import Exactness
from nestquad.rules._guard import Jitter, Regularization, Schedule, scheduled_lambda
from nestquad.rules._kernel import kernel_rule, kernel_rules, prefix_rules
from nestquad.rules._rule import Rule, equal_weights

__all__ = [
    "Exactness",
    "Factor",
    "Jitter",
    "Regularization",
    "Rule",
    "Schedule",
    "equal_weights",
    "factorize",
    "kernel_rule",
    "kernel_rules",
    "prefix_rules",
    "scheduled_lambda",
]
