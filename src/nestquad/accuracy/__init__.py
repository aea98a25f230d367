"""Accuracy: error propagation, calibration of bars, smoothness of f, sample sizes."""

from __future__ import annotations

from nestquad.accuracy._allocation import Allocation, Level, allocate
from nestquad.accuracy._errors import (
    harmonic_averages,
    linearized_covariance,
    propagated,
    replicate_errors,
    size_of,
)
from nestquad.accuracy._smoothness import (
    characteristics,
    is_discontinuous,
    order_of_smoothness,
    takes,
)

__all__ = [
    "Allocation",
    "Level",
    "allocate",
    "characteristics",
    "harmonic_averages",
    "is_discontinuous",
    "linearized_covariance",
    "order_of_smoothness",
    "propagated",
    "replicate_errors",
    "size_of",
    "takes",
]
