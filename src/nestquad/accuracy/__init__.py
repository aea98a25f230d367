"""Accuracy: error propagation, calibration of bars, smoothness of f, sample sizes."""

from __future__ import annotations

from nestquad.accuracy._allocation import Allocation, Level, allocate
from nestquad.accuracy._errors import (
    degrees_of_freedom,
    finite_average,
    linearized_covariance,
    propagated,
    replicate_errors,
    size_of,
    tail_index,
)
from nestquad.accuracy._smoothness import (
    characteristics,
    is_discontinuous,
    order_near,
    order_of_smoothness,
    takes,
)

__all__ = [
    "Allocation",
    "Level",
    "allocate",
    "characteristics",
    "degrees_of_freedom",
    "finite_average",
    "is_discontinuous",
    "linearized_covariance",
    "order_near",
    "order_of_smoothness",
    "propagated",
    "replicate_errors",
    "size_of",
    "tail_index",
    "takes",
]
