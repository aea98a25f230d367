"""Matérn kernels on an interval.

In z = rate × distance the kernel is P(z) e^{-z} with a polynomial P of positive coefficients, so
all integrals are differences of upper tails, which are again a polynomial times e^{-z}.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Uniform
from nestquad.embeddings._quadrature import short_mean
from nestquad.embeddings._registry import ClosedForm, register
from nestquad.kernels import Matern

__all__ = ["decay_integral"]

# Above this width the tails at both ends differ by a factor of at least e, so that their
# difference is as exact as they are; below it Gauss-Legendre is exact to rounding.
_SHORT = 2.0


def decay_integral(coefficients: Sequence[float], start: Array, width: Array) -> Array:
    """∫ P(z) e^{-z} dz over [start, start + width], start ≥ 0, to full relative precision.

    Shapes
    ------
    start and width broadcast; the answer has their common shape.
    """
    if len(coefficients) == 1:
        return np.asarray(-coefficients[0] * np.exp(-start) * np.expm1(-width))
    start, width = np.broadcast_arrays(start, width)
    tails = _tail_coefficients(coefficients)
    value = np.asarray(_times_decay(tails, start) - _times_decay(tails, start + width))
    short = width < _SHORT
    if short.any():
        near, length = start[short], width[short]
        value[short] = length * short_mean(lambda z: _times_decay(coefficients, z), near, length)
    return value


def _tail_coefficients(coefficients: Sequence[float]) -> list[float]:
    """Q with ∫_z^∞ P e^{-t} dt = Q(z) e^{-z}: q_i = Σ_{k ≥ i} p_k k!/i!."""
    moments = [c * factorial(k) for k, c in enumerate(coefficients)]
    return [sum(moments[i:]) / factorial(i) for i in range(len(moments))]


def _times_decay(coefficients: Sequence[float], z: Array) -> Array:
    return np.asarray(np.polynomial.polynomial.polyval(z, coefficients) * np.exp(-z))


def _mean(kernel: Matern, law: Uniform, x: Array) -> Array:
    rate = kernel.rate(1)
    below, above = rate * (x - law.low), rate * (law.high - x)
    width = rate * (law.high - law.low)
    # Each side of x separately; for x outside the interval one of them has width 0.
    right = decay_integral(kernel.polynomial, np.maximum(-below, 0.0), np.clip(above, 0.0, width))
    left = decay_integral(kernel.polynomial, np.maximum(-above, 0.0), np.clip(below, 0.0, width))
    return np.asarray((left + right) / width)


def _double(kernel: Matern, law: Uniform) -> Array:
    width = np.asarray(kernel.rate(0) * (law.high - law.low)[..., 0])
    zero = np.zeros(())
    # The distance of two points has density 2 (width - z) / width².
    whole = width * decay_integral(kernel.polynomial, zero, width)
    return np.asarray(
        2.0 * (whole - decay_integral((0.0, *kernel.polynomial), zero, width)) / width**2
    )


register(Matern, Uniform, ClosedForm(_mean, _double))
