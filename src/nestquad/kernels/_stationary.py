"""Gaussian and Matérn kernels: products of functions of x_j - y_j."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._checks import number
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.kernels._kernel import (
    Lengthscale,
    ProductKernel,
    accumulate,
    accumulated,
    differences,
)


class _StationaryKernel(ProductKernel):
    """A product of functions of x_j - y_j that are 1 at zero."""

    def univariate_diagonal(self, x: Array) -> Array:
        return np.ones(np.broadcast_shapes(x.shape, np.shape(self.scale(1))))


@dataclass(frozen=True, eq=False)
class Gaussian(_StationaryKernel):
    """exp(-½ Σ_j (x_j - y_j)² / ℓ_j²).

    Parameters
    ----------
    lengthscale
        A number, (d,) for one per coordinate, or (T, d) for a batch of kernels.

    Cost
    ----
    One exponential a pair for all d; 8 n m bytes twice.

    Examples
    --------
    >>> import numpy as np
    >>> Gaussian(lengthscale=[1.0, 2.0])(np.zeros((1, 2)), np.array([[1.0, 2.0]])).round(6)
    array([[0.367879]])
    """

    lengthscale: Lengthscale = 1.0

    def smoothness(self, dim: int) -> float:
        return float("inf")

    def evaluate(self, x: Array, y: Array) -> Array:
        dim = x.shape[-1]
        parts = (self.coordinate(j, dim)._exponent(x[..., j], y[..., j]) for j in range(dim))
        exponent = accumulated(np.add, parts)
        return np.exp(exponent, out=exponent)

    def univariate(self, x: Array, y: Array) -> Array:
        exponent = self._exponent(x, y)
        return np.exp(exponent, out=exponent)

    def _exponent(self, x: Array, y: Array) -> Array:
        r = accumulate(np.divide, differences(x, y), self.scale(2))
        np.square(r, out=r)
        return np.multiply(r, -0.5, out=r)


_POLYNOMIALS: dict[float, tuple[float, ...]] = {
    0.5: (1.0,),
    1.5: (1.0, 1.0),
    2.5: (1.0, 1.0, 1.0 / 3.0),
    3.5: (1.0, 1.0, 2.0 / 5.0, 1.0 / 15.0),
}


@dataclass(frozen=True, eq=False)
class Matern(_StationaryKernel):
    r"""Product over coordinates of the Matérn function of smoothness `nu`.

    With :math:`z = \sqrt{2\nu}\,|x - y| / \ell` the factor of a coordinate is a polynomial in z of
    degree ν - 1/2 times :math:`e^{-z}` (Rasmussen and Williams 2006, Gaussian processes for machine
    learning, equation 4.16); a function in its space has ν + 1/2 square-integrable
    derivatives.

    Parameters
    ----------
    nu
        0.5, 1.5, 2.5 or 3.5.
    lengthscale
        A number, (d,) for one per coordinate, or (T, d) for a batch of kernels.

    Cost
    ----
    One exponential a pair and coordinate; 8 n m bytes twice.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = Matern(1.5, lengthscale=0.5)
    >>> kernel(np.array([[0.0], [0.5]]), np.array([[0.0]])).round(6)
    array([[1.      ],
           [0.483358]])
    """

    nu: float
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        nu = number("nu", self.nu, "0.5, 1.5, 2.5 or 3.5")
        if nu not in _POLYNOMIALS:
            raise InputError("nu", repr(self.nu), "0.5, 1.5, 2.5 or 3.5")
        object.__setattr__(self, "nu", nu)
        super().__post_init__()

    @property
    def polynomial(self) -> tuple[float, ...]:
        """Coefficients of the polynomial in z, constant first."""
        return _POLYNOMIALS[self.nu]

    def rate(self, n_axes: int) -> Array | float:
        """The factor from |x - y| to z, shaped like the lengthscale followed by `n_axes` ones."""
        rate: Array | float = (2.0 * self.nu) ** 0.5 / self.scale(n_axes)
        return rate

    def smoothness(self, dim: int) -> float:
        return self.nu + 0.5 * dim

    def univariate(self, x: Array, y: Array) -> Array:
        r = differences(x, y)
        z = accumulate(np.multiply, np.abs(r, out=r), self.rate(2))
        return _times_decay(z, self.polynomial)


def _times_decay(z: Array, coefficients: tuple[float, ...]) -> Array:
    """Polynomial(z) e^{-z}; overwrites z."""
    if len(coefficients) == 1:
        return np.exp(np.negative(z, out=z), out=z)
    polynomial = z * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        polynomial += c
        polynomial *= z
    polynomial += coefficients[0]
    np.exp(np.negative(z, out=z), out=z)
    return np.multiply(z, polynomial, out=z)
