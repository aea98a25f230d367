"""Sums and multiples of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, UnsupportedError
from nestquad.kernels._coordinates import accumulate
from nestquad.kernels._kernel import Kernel, Lengthscale

if TYPE_CHECKING:
    from nestquad.distributions import Law

__all__ = ["Scaled", "Sum", "checked_kernels", "common_lengthscale"]


@dataclass(frozen=True, eq=False, init=False)
class Sum(Kernel):
    """k_1 + k_2 + ...; ``k1 + k2`` makes one.

    Shapes
    ------
    x (..., n, d), y (..., m, d) -> (..., n, m).

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.kernels import Gaussian, Matern
    >>> (Gaussian() + 2.0 * Matern(0.5)).diagonal(np.zeros((2, 3)))
    array([3., 3.])
    """

    kernels: tuple[Kernel, ...]

    def __init__(self, *kernels: Kernel) -> None:
        object.__setattr__(self, "kernels", checked_kernels(kernels, "kernels"))

    @property
    def lengthscale(self) -> Lengthscale:
        return common_lengthscale(self.kernels)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(kernel.batch_shape for kernel in self.kernels))

    def with_lengthscale(self, lengthscale: Lengthscale) -> Sum:
        """Every term with that lengthscale."""
        return Sum(*(kernel.with_lengthscale(lengthscale) for kernel in self.kernels))

    def smoothness(self, dim: int) -> float:
        return min(kernel.smoothness(dim) for kernel in self.kernels)

    def for_law(self, law: Law) -> Sum:
        return Sum(*(kernel.for_law(law) for kernel in self.kernels))

    def evaluate(self, x: Array, y: Array) -> Array:
        total = self.kernels[0].evaluate(x, y)
        for kernel in self.kernels[1:]:
            total = accumulate(np.add, total, kernel.evaluate(x, y))
        return total

    def evaluate_diagonal(self, x: Array) -> Array:
        return np.asarray(sum(kernel.evaluate_diagonal(x) for kernel in self.kernels))


@dataclass(frozen=True, eq=False)
class Scaled(Kernel):
    """``amplitude * kernel``; ``2.0 * k`` makes one. The amplitude is a variance, not its root.

    Shapes
    ------
    x (..., n, d), y (..., m, d) -> (..., n, m).

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.kernels import Gaussian
    >>> (2.0 * Gaussian(0.5))(np.zeros((1, 1)), np.array([[0.5]])).round(6)
    array([[1.213061]])
    """

    kernel: Kernel
    amplitude: float

    def __post_init__(self) -> None:
        checked_kernels((self.kernel,), "kernel")
        if not (np.isfinite(self.amplitude) and self.amplitude > 0):
            raise InputError("amplitude", repr(self.amplitude), "a positive number")
        object.__setattr__(self, "amplitude", float(self.amplitude))

    @property
    def lengthscale(self) -> Lengthscale:
        return self.kernel.lengthscale

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.kernel.batch_shape

    def with_lengthscale(self, lengthscale: Lengthscale) -> Scaled:
        return Scaled(self.kernel.with_lengthscale(lengthscale), self.amplitude)

    def smoothness(self, dim: int) -> float:
        return self.kernel.smoothness(dim)

    def for_law(self, law: Law) -> Scaled:
        return Scaled(self.kernel.for_law(law), self.amplitude)

    def evaluate(self, x: Array, y: Array) -> Array:
        return accumulate(np.multiply, self.kernel.evaluate(x, y), self.amplitude)

    def evaluate_diagonal(self, x: Array) -> Array:
        return accumulate(np.multiply, self.kernel.evaluate_diagonal(x), self.amplitude)


def checked_kernels(kernels: Sequence[object], argument: str) -> tuple[Kernel, ...]:
    """The kernels as a tuple, or an error that names what is not one."""
    if not kernels:
        raise InputError(argument, "none", "at least one kernel")
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise InputError(argument, type(kernel).__name__, "kernels of nestquad")
    return tuple(kernel for kernel in kernels if isinstance(kernel, Kernel))


def common_lengthscale(kernels: Sequence[Kernel]) -> Lengthscale:
    """The lengthscale that all of them share; an error where they do not."""
    first = kernels[0].lengthscale
    if any(not np.array_equal(kernel.lengthscale, first) for kernel in kernels[1:]):
        raise UnsupportedError(
            "The terms of this sum have different lengthscales, so it has no single one. "
            "Ask each of `.kernels`, or set one for all by with_lengthscale."
        )
    return first
