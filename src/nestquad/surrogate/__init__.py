"""Surrogates of J over θ: Gaussian processes that know their uncertainty."""

from nestquad.surrogate._correlation import Correlation
from nestquad.surrogate._gp import GP, Hyperparameters, fit_gp
from nestquad.surrogate._select import Surrogate, SurrogateKind, candidate_kinds, fit_surrogate
from nestquad.surrogate._trend import Trend, trend_matrix, trend_size

__all__ = [
    "GP",
    "Correlation",
    "Hyperparameters",
    "Surrogate",
    "SurrogateKind",
    "Trend",
    "candidate_kinds",
    "fit_gp",
    "fit_surrogate",
    "trend_matrix",
    "trend_size",
]
