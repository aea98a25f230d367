"""Priors of dense Gaussian processes: polynomial trends and correlation functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb
from typing import Literal

import numpy as np

from nestquad._typing import Array
from nestquad.clock import tick

# Degrees worth telling apart, by dimension: each has a third to a half more functions.
_DEGREES = {1: (0, 1, 2, 3, 4, 6, 8, 11, 15, 20), 2: (0, 1, 2, 3, 4, 6), 3: (0, 1, 2, 3)}
_NAMES = {0: "constant", 1: "linear", 2: "quadratic", 3: "cubic"}


@dataclass(frozen=True)
class PolynomialTrend:
    """Polynomials up to a total degree; with `additive`, sums of polynomials in one coordinate.

    Powers are Chebyshev polynomials, so that high degrees stay well conditioned where the
    coordinates reach from -1 to 1.
    """

    degree: int
    additive: bool = False

    def __str__(self) -> str:
        name = _NAMES.get(self.degree, f"degree-{self.degree}")
        return f"additive {name}" if self.additive else name

    def size(self, dim: int) -> int:
        """Number of functions."""
        return 1 + dim * self.degree if self.additive else comb(dim + self.degree, dim)

    def matrix(self, z: Array) -> Array:
        """The functions at z (n, d), as (n, size)."""
        n, dim = z.shape
        powers = np.polynomial.chebyshev.chebvander(z, self.degree)  # (n, d, degree + 1)
        columns = [np.ones(n)]
        for degree in range(1, self.degree + 1):
            for factors in self._factors(dim, degree):
                column = np.ones(n)
                for j, power in factors:
                    column = column * powers[:, j, power]
                columns.append(column)
        return np.stack(columns, axis=1)

    def _factors(self, dim: int, degree: int) -> Iterator[list[tuple[int, int]]]:
        """Pairs (coordinate, power) of each function of exactly this degree."""
        if self.additive:
            for j in range(dim):
                yield [(j, degree)]
            return
        for chosen in combinations_with_replacement(range(dim), degree):
            yield [(j, chosen.count(j)) for j in sorted(set(chosen))]


def trends(dim: int, n_points: int) -> list[PolynomialTrend]:
    """Trends that n points can determine, from the smallest to the largest."""
    every = [PolynomialTrend(degree) for degree in _DEGREES.get(dim, (0, 1, 2))]
    if dim > 1:
        every += [PolynomialTrend(2, additive=True), PolynomialTrend(3, additive=True)]
    affordable = [t for t in every if 1.6 * t.size(dim) + 2 <= n_points]
    return sorted(affordable or [PolynomialTrend(0)], key=lambda t: t.size(dim))


Shape = Literal["gaussian", "matern52"]

_ROOT5 = np.sqrt(5.0)
# Numbers that are worked on together: they stay in a cache.
_BLOCK = 1 << 13


@dataclass(frozen=True)
class Correlation:
    """A stationary correlation with one lengthscale for each coordinate.

    `additive` takes the mean over coordinates instead of the product, for a J in many coordinates
    that hardly interact.
    """

    shape: Shape
    additive: bool = False

    def __call__(self, x: Array, y: Array, lengthscale: Array) -> Array:
        """(n, d), (m, d), (d,) → (n, m)."""
        a, b = x / lengthscale, y / lengthscale
        if self.shape == "gaussian" and not self.additive:
            squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2.0 * a @ b.T
            return np.asarray(np.exp(-0.5 * np.maximum(squared, 0.0)))
        out = np.empty((len(a), len(b)))
        rows = max(1, _BLOCK // len(b))
        r, factor, exponent = np.empty((3, min(rows, len(a)), len(b)))
        for start in range(0, len(a), rows):
            part = out[start : start + rows]
            n = len(part)
            self._fill(part, a[start : start + n], b, r[:n], factor[:n], exponent[:n])
        return out

    def _fill(
        self, out: Array, a: Array, b: Array, r: Array, factor: Array, exponent: Array
    ) -> None:
        """Correlations of a (n, d) and b (m, d) of unit lengthscales, in memory that is given."""
        # One exponential for all coordinates: they dominate the cost of Matérn functions.
        out[:] = 0.0 if self.additive else 1.0
        exponent[:] = 0.0
        for x, y in zip(a.T, b.T, strict=True):
            np.subtract(x[:, None], y, out=r)
            if self.shape == "gaussian":
                r *= r
                r *= -0.5
                out += np.exp(r, out=r)
                continue
            np.abs(r, out=r)
            r *= _ROOT5
            np.divide(r, 3.0, out=factor)
            factor += 1.0
            factor *= r
            factor += 1.0
            if self.additive:
                np.negative(r, out=r)
                factor *= np.exp(r, out=r)
                out += factor
            else:
                out *= factor
                exponent -= r
        if self.additive:
            out /= a.shape[1]
        else:
            out *= np.exp(exponent, out=exponent)

    def derivatives(self, apart: Array, lengthscale: Array) -> tuple[Array, Array]:
        """Correlations (m,) and their derivatives in the log lengthscales, (d, m).

        `apart` (d, m) are the distances |x_j − y_j| of m pairs of points.
        """
        r = apart / lengthscale[:, None]
        if self.additive:
            values, step = np.zeros(r.shape[1]), max(1, _BLOCK // max(r.shape[1], 1))
            for rows in (r[i : i + step] for i in range(0, len(r), step)):
                tick()
                factor, rows[:] = self._factor_and_slope(rows)
                values += factor.sum(axis=0)
            r /= len(r)
            return values / len(r), r
        if self.shape == "gaussian":
            r *= r
            values = np.exp(-0.5 * r.sum(axis=0))
            r *= values
            return values, r
        r *= _ROOT5
        values = np.exp(-r.sum(axis=0))
        slope = r * r
        slope /= 3.0
        r += 1.0
        polynomial = r + slope
        slope *= r
        slope /= polynomial
        values *= polynomial.prod(axis=0)
        slope *= values
        return values, slope

    def _factor_and_slope(self, r: Array) -> tuple[Array, Array]:
        """The factor of each coordinate and its derivative in the logarithm of the lengthscale."""
        if self.shape == "gaussian":
            squared = r * r
            factor = np.exp(-0.5 * squared)
            return factor, squared * factor
        a = _ROOT5 * r
        decay = np.exp(-a)
        third = a * a * decay
        third /= 3.0
        return (1.0 + a) * decay + third, (1.0 + a) * third
