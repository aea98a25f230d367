"""Correlation functions of surrogates, with their derivatives in the lengthscales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nestquad._typing import Array

__all__ = ["Correlation", "Shape"]

Shape = Literal["gaussian", "matern52"]

_ROOT5 = np.sqrt(5.0)


@dataclass(frozen=True)
class Correlation:
    """A stationary correlation with one lengthscale for each coordinate.

    `additive` takes the mean over coordinates instead of the product: what is left of J in many
    coordinates when each acts by itself.
    """

    shape: Shape
    additive: bool = False

    def __call__(self, x: Array, y: Array, lengthscale: Array) -> Array:
        """(n, d), (m, d), (d,) → (n, m)."""
        if self.additive:
            total = np.zeros((x.shape[0], y.shape[0]))
            for j, scale in enumerate(lengthscale):
                total += self._factor((x[:, None, j] - y[None, :, j]) / scale)
            return np.asarray(total / x.shape[1])
        if self.shape == "gaussian":
            a, b = x / lengthscale, y / lengthscale
            squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2.0 * a @ b.T
            return np.asarray(np.exp(-0.5 * np.maximum(squared, 0.0)))
        total = np.ones((x.shape[0], y.shape[0]))
        for j, scale in enumerate(lengthscale):
            total *= self._factor((x[:, None, j] - y[None, :, j]) / scale)
        return total

    def derivatives(self, x: Array, lengthscale: Array) -> tuple[Array, Array]:
        """The matrix (n, n) at x and its derivatives in the log lengthscales, (d, n, n)."""
        scaled = [(x[:, None, j] - x[None, :, j]) / s for j, s in enumerate(lengthscale)]
        factors = [self._factor(r) for r in scaled]
        slopes = [self._slope(r) for r in scaled]  # derivative of the factor in log lengthscale
        if self.additive:
            dim = len(factors)
            return np.sum(factors, axis=0) / dim, np.stack(slopes) / dim
        matrix = np.prod(factors, axis=0)
        tiny = np.finfo(float).tiny
        relative = [s / np.maximum(f, tiny) for s, f in zip(slopes, factors, strict=True)]
        return matrix, np.stack([matrix * r for r in relative])

    def _factor(self, r: Array) -> Array:
        if self.shape == "gaussian":
            return np.asarray(np.exp(-0.5 * r * r))
        a = _ROOT5 * np.abs(r)
        return np.asarray((1.0 + a + a * a / 3.0) * np.exp(-a))

    def _slope(self, r: Array) -> Array:
        if self.shape == "gaussian":
            return np.asarray(r * r * np.exp(-0.5 * r * r))
        a = _ROOT5 * np.abs(r)
        return np.asarray(a * a * (1.0 + a) / 3.0 * np.exp(-a))
