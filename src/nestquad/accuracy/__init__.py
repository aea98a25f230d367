"""Accuracy: error propagation, calibration of bars, smoothness of f, sample sizes."""

from __future__ import annotations

from nestquad.accuracy._allocation import Allocation, Level, allocate
from nestquad.accuracy._errors import (
    calibration_factor,
    harmonic_averages,
    linearized_covariance,
    propagated,
    replicate_errors,
    size_of,
)
from nestquad.accuracy._smoothness import characteristics, order_of_smoothness, step_size, takes

__all__ = [
    "Allocation",
    "Level",
    "allocate",
    "calibration_factor",
    "characteristics",
    "harmonic_averages",
    "linearized_covariance",
    "order_of_smoothness",
    "propagated",
    "replicate_errors",
    "size_of",
    "step_size",
    "takes",
]
