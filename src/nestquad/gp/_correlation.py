"""Correlation functions of surrogates, with their derivatives in the lengthscales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nestquad._clock import tick
from nestquad._typing import Array

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
        # One exponential for all coordinates: it is what a product of Matérn functions costs.
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
