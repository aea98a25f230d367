"""Matérn kernels on an interval and under a normal law.

In z = rate × distance the kernel is P(z) e^{-z} with a polynomial P of positive coefficients. On an
interval all integrals are differences of upper tails, which are again a polynomial times e^{-z}.
Under a normal law, with t = x ± s r, each side of x gives integrals of r^k e^{-zr - r²/2} over
r > 0, the functions U_k(z), which are polynomials in z times erfcx up to cancellation; the two
branches below never cancel and never overflow, whatever the lengthscale.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial

import numpy as np
from scipy.special import erfcx, ndtr

from nestquad._typing import Array
from nestquad.distributions import Normal, Uniform, standard_deviation
from nestquad.embeddings._closed_forms import ClosedForm, register, short_mean
from nestquad.kernels import Matern

__all__: list[str] = []

# Above this width the tails at both ends differ by a factor of at least e, so that their
# difference is as exact as they are; below it Gauss-Legendre is exact to rounding.
_SHORT = 2.0


def _decay_integral(coefficients: Sequence[float], start: Array, width: Array) -> Array:
    """∫ P(z) e^{-z} dz over [start, start + width], start ≥ 0, to full relative precision."""
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


def _uniform_mean(kernel: Matern, law: Uniform, x: Array) -> Array:
    rate = kernel.rate(1)
    below, above = rate * (x - law.low), rate * (law.high - x)
    width = rate * (law.high - law.low)
    # Each side of x separately; for x outside the interval one of them has width 0.
    right = _decay_integral(kernel.polynomial, np.maximum(-below, 0.0), np.clip(above, 0.0, width))
    left = _decay_integral(kernel.polynomial, np.maximum(-above, 0.0), np.clip(below, 0.0, width))
    return np.asarray((left + right) / width)


def _uniform_double(kernel: Matern, law: Uniform) -> Array:
    width = np.asarray(kernel.rate(0) * (law.high - law.low)[..., 0])
    zero = np.zeros(())
    # The distance of two points has density 2 (width - z) / width².
    whole = width * _decay_integral(kernel.polynomial, zero, width)
    return np.asarray(
        2.0 * (whole - _decay_integral((0.0, *kernel.polynomial), zero, width)) / width**2
    )


register(Matern, Uniform, ClosedForm(_uniform_mean, _uniform_double))


_SWITCH = 2.0
# Depth of the continued fraction: exact to rounding from z = _SWITCH on.
_DEPTH = 72


def _half_line_mean(coefficients: Sequence[float], rate: Array, shift: Array) -> Array:
    """E[P(rate r) e^{-rate r}; r > 0] for r normal with mean `shift` and unit variance.

    Equal to Σ_k c_k rate^k e^{-shift²/2} U_k(z) / √(2π) with z = rate - shift.
    """
    rate, shift = np.broadcast_arrays(rate, shift)
    value = np.empty(rate.shape)
    decaying = rate - shift > _SWITCH
    for moments, where in ((_decaying_moments, decaying), (_other_moments, ~decaying)):
        if where.any():
            a, b = rate[where], shift[where]
            powers = [c * a**k for k, c in enumerate(coefficients)]
            value[where] = sum(
                p * u for p, u in zip(powers, moments(a, b, len(powers)), strict=True)
            )
    return value


def _decaying_moments(rate: Array, shift: Array, count: int) -> list[Array]:
    """e^{-shift²/2} U_k(z) / √(2π) for z > 2: ratios of neighbours, by continued fraction.

    The recurrence U_{k+1} = k U_{k-1} - z U_k loses all digits upwards for such z. Downwards it
    reads U_k / U_{k-1} = k / (z + U_{k+1} / U_k), all of it positive.
    """
    z = rate - shift
    ratios = []
    # Far down neighbouring ratios are nearly equal, r = k / (z + r): a start that saves many terms.
    ratio = 0.5 * (np.sqrt(z * z + 4.0 * _DEPTH + 2.0) - z)
    for k in range(_DEPTH, 0, -1):
        ratio = k / (z + ratio)
        if k < count:
            ratios.append(ratio)
    moment = 0.5 * np.exp(-0.5 * shift**2) * erfcx(z / np.sqrt(2.0))
    moments = [moment]
    for ratio in reversed(ratios):
        moment = moment * ratio
        moments.append(moment)
    return moments


def _other_moments(rate: Array, shift: Array, count: int) -> list[Array]:
    """The same for z ≤ 2, upwards, from e^{-z²/2} U_k, which is bounded where U_k overflows.

    The remaining factor e^{(z² - shift²)/2} has exponent rate (rate/2 - shift) ≤ 2.
    """
    z = rate - shift
    factor = np.exp(rate * (0.5 * rate - shift))
    moments = [factor * ndtr(-z)]
    if count > 1:
        moments.append(factor * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) - z * moments[0])
    for k in range(1, count - 1):
        moments.append(k * moments[k - 1] - z * moments[k])
    return moments


def _normal_mean(kernel: Matern, law: Normal, x: Array) -> Array:
    rate, shift = kernel.rate(1) * standard_deviation(law), (law.loc - x) / standard_deviation(law)
    right = _half_line_mean(kernel.polynomial, rate, shift)
    return np.asarray(right + _half_line_mean(kernel.polynomial, rate, -shift))


def _normal_double(kernel: Matern, law: Normal) -> Array:
    # The difference of two draws is normal with mean 0 and √2 times the standard deviation.
    rate = np.asarray(kernel.rate(0) * np.sqrt(2.0) * standard_deviation(law)[..., 0])
    return 2.0 * _half_line_mean(kernel.polynomial, rate, np.zeros(()))


register(Matern, Normal, ClosedForm(_normal_mean, _normal_double))
