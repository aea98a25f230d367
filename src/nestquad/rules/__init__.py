"""Quadrature rules: nodes, kernel and law → weights, with diagnostics."""

from nestquad.rules._cholesky import Factor, factorize
from nestquad.rules._line import line_laws, line_solutions
from nestquad.rules._regularization import (
    Jitter,
    Regularization,
    Schedule,
    best_lambda0,
    scheduled_lambda,
)
from nestquad.rules._rule import Exactness, Rule, equal_weights
from nestquad.rules._weights import kernel_rule, prefix_rules

__all__ = [
    "Exactness",
    "Factor",
    "Jitter",
    "Regularization",
    "Rule",
    "Schedule",
    "best_lambda0",
    "equal_weights",
    "factorize",
    "kernel_rule",
    "line_laws",
    "line_solutions",
    "prefix_rules",
    "scheduled_lambda",
]
