"""Lengthscales and amplitudes, from nodes and values."""

from nestquad.tuning._likelihood import amplitude, fit_lengthscale, restricted_likelihood
from nestquad.tuning._median import median_lengthscale

__all__ = [
    "amplitude",
    "fit_lengthscale",
    "median_lengthscale",
    "restricted_likelihood",
]
