"""Quadrature rules: nodes, kernel and law → weights, with diagnostics."""

from nestquad.rules._cholesky import Factor as Factor
from nestquad.rules._cholesky import factorize as factorize
from nestquad.rules._regularization import Jitter as Jitter
from nestquad.rules._regularization import Regularization as Regularization
from nestquad.rules._regularization import Schedule as Schedule
from nestquad.rules._regularization import best_lambda0 as best_lambda0
from nestquad.rules._regularization import scheduled_lambda as scheduled_lambda
from nestquad.rules._rule import Exactness as Exactness
from nestquad.rules._rule import Rule as Rule
from nestquad.rules._rule import equal_weights as equal_weights
from nestquad.rules._weights import kernel_rule as kernel_rule
from nestquad.rules._weights import prefix_rules as prefix_rules
