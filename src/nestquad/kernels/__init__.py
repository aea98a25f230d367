"""Positive definite kernels on points with d coordinates."""

from nestquad.kernels._anova import Anova
from nestquad.kernels._kernel import Coordinatewise, Kernel, ProductKernel
from nestquad.kernels._stationary import Gaussian, Matern

__all__ = [
    "Anova",
    "Coordinatewise",
    "Gaussian",
    "Kernel",
    "Matern",
    "ProductKernel",
]
