"""Surrogates of J over θ: Gaussian processes that know their uncertainty."""

from nestquad.surrogate._correlation import Correlation
from nestquad.surrogate._gp import GP, fit_gp
from nestquad.surrogate._likelihood import Hyperparameters
from nestquad.surrogate._select import (
    Surrogate,
    SurrogateKind,
    first_kinds,
    fit_surrogate,
    near_kinds,
)
from nestquad.surrogate._trend import Trend, trends

__all__ = [
    "GP",
    "Correlation",
    "Hyperparameters",
    "Surrogate",
    "SurrogateKind",
    "Trend",
    "first_kinds",
    "fit_gp",
    "fit_surrogate",
    "near_kinds",
    "trends",
]
