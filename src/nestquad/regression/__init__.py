"""Regression on orthonormal polynomials: least squares, models of J, control variates."""

from nestquad.regression._control_variates import ControlSettings, ControlVariates, fit_controls
from nestquad.regression._growth import GrowthSettings, choose_scores, grow_polynomial
from nestquad.regression._least_squares import LeastSquares, PolynomialFit, evaluate_all, fit_terms
from nestquad.regression._polynomials import (
    Score,
    ScoreTable,
    Term,
    higher_terms,
    total_degree_terms,
)
from nestquad.regression._regression import (
    Link,
    PolynomialSettings,
    Regression,
    Ridge,
    regress,
    regress_log,
    ridge,
    ridge_terms,
)

__all__ = [
    "ControlSettings",
    "ControlVariates",
    "GrowthSettings",
    "LeastSquares",
    "Link",
    "PolynomialFit",
    "Regression",
    "PolynomialSettings",
    "Ridge",
    "Score",
    "ScoreTable",
    "Term",
    "choose_scores",
    "evaluate_all",
    "fit_controls",
    "fit_terms",
    "grow_polynomial",
    "higher_terms",
    "regress",
    "regress_log",
    "ridge",
    "ridge_terms",
    "total_degree_terms",
]
