"""Positive definite kernels on points with d coordinates."""

from nestquad.kernels._combinations import Additive, Anova, Tensor
from nestquad.kernels._kernel import Coordinatewise, Kernel, ProductKernel, Scaled, Sum
from nestquad.kernels._sobolev import PeriodicSobolev, Sobolev
from nestquad.kernels._stationary import Gaussian, Matern
from nestquad.kernels._stein import Stein

__all__ = [
    "Additive",
    "Anova",
    "Coordinatewise",
    "Gaussian",
    "Kernel",
    "Matern",
    "PeriodicSobolev",
    "ProductKernel",
    "Scaled",
    "Sobolev",
    "Stein",
    "Sum",
    "Tensor",
]
