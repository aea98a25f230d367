"""Lengthscales, amplitudes and regularisation, from nodes and values."""

from nestquad.tuning._likelihood import amplitude, fit_lengthscale, restricted_likelihood
from nestquad.tuning._median import median_lengthscale
from nestquad.tuning._regularization import best_lambda0

__all__ = [
    "amplitude",
    "best_lambda0",
    "fit_lengthscale",
    "median_lengthscale",
    "restricted_likelihood",
]
