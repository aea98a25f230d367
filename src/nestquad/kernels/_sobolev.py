"""Sobolev kernels on the unit cube, by Bernoulli polynomials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import factorial

import numpy as np

from nestquad._checks import number
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.kernels._kernel import Lengthscale, ProductKernel, accumulate, differences

# B_1, B_2, B_3 in x, constant first.
_BERNOULLI = ((-1 / 2, 1.0), (1 / 6, -1.0, 1.0), (0.0, 1 / 2, -3 / 2, 1.0))
# (-1)^(s+1) B_2s(x) for s = 1, 2, 3 as polynomials in t = x(1 - x): shorter, and symmetric in
# x <-> 1 - x to the last bit.
_EVEN = ((1 / 6, -1.0), (1 / 30, 0.0, -1.0), (1 / 42, 0.0, -1 / 2, -1.0))


@dataclass(frozen=True, eq=False)
class _Bernoulli(ProductKernel):
    order: int
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        order = number("order", self.order, "1, 2 or 3")
        if order not in (1, 2, 3):
            raise InputError("order", repr(self.order), "1, 2 or 3")
        object.__setattr__(self, "order", int(order))
        super().__post_init__()

    def smoothness(self, dim: int) -> float:
        return float(self.order)

    def _finish(self, varying: Array, n_axes: int) -> Array:
        """1 + varying / ℓ²."""
        varying = accumulate(np.divide, varying, self.scale(n_axes) ** 2)
        varying += 1.0
        return varying


class Sobolev(_Bernoulli):
    r"""Product over coordinates of the Sobolev kernel of order s on [0, 1].

    The factor of a coordinate is

    .. math:: 1 + \ell^{-2} \Big[ \sum_{r=1}^{s} \frac{B_r(x) B_r(y)}{(r!)^2}
              + (-1)^{s+1} \frac{B_{2s}(|x - y|)}{(2s)!} \Big]

    with Bernoulli polynomials B (Wahba 1990, Spline models for observational data, section 2.1):
    functions with s square-integrable derivatives, not necessarily
    periodic. A long lengthscale means nearly constant functions. Its integral over [0, 1] is 1.

    Parameters
    ----------
    order
        s = 1, 2 or 3.
    lengthscale
        A number, (d,) for one per coordinate, or (T, d) for a batch of kernels.

    Shapes
    ------
    x (..., n, d), y (..., m, d), inside the unit cube -> (..., n, m).

    Cost
    ----
    O(n m d), without exponentials; 8 n m bytes twice.

    Examples
    --------
    >>> import numpy as np
    >>> Sobolev(1)(np.array([[0.25]]), np.array([[0.75]])).round(6)
    array([[0.895833]])
    """

    def univariate(self, x: Array, y: Array) -> Array:
        check_unit_interval(x)
        check_unit_interval(y)
        r = differences(x, y)
        varying = _even_bernoulli(np.abs(r, out=r), self.order)
        for r_factorial, left, right in self._polynomials(x, y):
            varying += (left / r_factorial**2)[..., :, None] * right[..., None, :]
        return self._finish(varying, 2)

    def univariate_diagonal(self, x: Array) -> Array:
        check_unit_interval(x)
        varying = _even_bernoulli(np.zeros_like(x), self.order)
        for r_factorial, left, right in self._polynomials(x, x):
            varying += left * right / r_factorial**2
        return self._finish(varying, 1)

    def _polynomials(self, x: Array, y: Array) -> list[tuple[int, Array, Array]]:
        return [
            (factorial(r), _horner(_BERNOULLI[r - 1], x), _horner(_BERNOULLI[r - 1], y))
            for r in range(1, self.order + 1)
        ]


class PeriodicSobolev(_Bernoulli):
    r"""Product over coordinates of the shift-invariant Sobolev kernel of order s.

    The factor of a coordinate is :math:`1 + \ell^{-2} c_s (-1)^{s+1} B_{2s}(\{x - y\})` with the
    Bernoulli polynomial :math:`B_{2s}` of the fractional part of x - y: periodic functions with s
    square-integrable derivatives. The constant c_s makes its diagonal the average diagonal of
    `Sobolev` of the same order and lengthscale, so that a lengthscale means the same in both. Its
    integral over a period is 1. On a lattice its Gram matrix is circulant.

    Parameters
    ----------
    order
        s = 1, 2 or 3.
    lengthscale
        A number, (d,) for one per coordinate, or (T, d) for a batch of kernels.

    Shapes
    ------
    x (..., n, d), y (..., m, d), anywhere -> (..., n, m).

    Cost
    ----
    O(n m d), without exponentials; 8 n m bytes twice.

    Examples
    --------
    >>> import numpy as np
    >>> PeriodicSobolev(1)(np.array([[0.25]]), np.array([[0.75], [1.25]])).round(6)
    array([[0.916667, 1.166667]])
    """

    def univariate(self, x: Array, y: Array) -> Array:
        r = differences(x, y)
        np.abs(r, out=r)
        r -= np.floor(r)
        return self._finish(self._amplify(_even_bernoulli(r, self.order)), 2)

    def univariate_diagonal(self, x: Array) -> Array:
        return self._finish(self._amplify(_even_bernoulli(np.zeros_like(x), self.order)), 1)

    def _amplify(self, varying: Array) -> Array:
        # ∫ (B_r / r!)² = |B_2r| / (2r)!, so this is the mean of Sobolev's diagonal over ours.
        s = self.order
        sizes = [_EVEN[r - 1][0] / factorial(2 * r) for r in range(1, s + 1)]
        varying *= (sum(sizes) + sizes[-1]) / sizes[-1]
        return varying


def check_unit_interval(x: Array) -> None:
    """Refuse nodes outside [0, 1], where the kernel is not defined."""
    outside = (x < 0.0) | (x > 1.0)
    if outside.any():
        raise InputError(
            "nodes",
            f"a coordinate outside [0, 1], {x[outside].flat[0]:.6g}",
            "nodes in the unit cube, where Sobolev kernels live",
            "Work in the transported space (u instead of x), or use a Matern kernel.",
        )


def _even_bernoulli(r: Array, order: int) -> Array:
    """(-1)^(s+1) B_2s(r) / (2s)! for r in [0, 1]; overwrites r."""
    t = np.subtract(1.0, r)
    t *= r
    coefficients = [c / factorial(2 * order) for c in _EVEN[order - 1]]
    np.multiply(t, coefficients[-1], out=r)
    for c in coefficients[-2:0:-1]:
        r += c
        r *= t
    r += coefficients[0]
    return r


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    return reduce(lambda value, c: value * x + c, coefficients[-2::-1], coefficients[-1] + 0.0 * x)
