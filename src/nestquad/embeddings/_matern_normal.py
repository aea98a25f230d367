"""Matérn kernels under a normal law.

With t = x ± s r each side of x gives integrals of r^k e^{-zr - r²/2} over r > 0, the functions
U_k(z), which are polynomials in z times erfcx up to cancellation; the two branches below never
cancel and never overflow, whatever the lengthscale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import erfcx, ndtr

from nestquad._typing import Array
from nestquad.distributions import Normal
from nestquad.embeddings._blocks import standard_deviation
from nestquad.embeddings._registry import ClosedForm, register
from nestquad.kernels import Matern

__all__ = ["half_line_mean"]

_SWITCH = 2.0
# Depth of the continued fraction: exact to rounding from z = _SWITCH on.
_DEPTH = 72


def half_line_mean(coefficients: Sequence[float], rate: Array, shift: Array) -> Array:
    """E[P(rate r) e^{-rate r}; r > 0] for r normal with mean `shift` and unit variance.

    Equal to Σ_k c_k rate^k e^{-shift²/2} U_k(z) / √(2π) with z = rate - shift.

    Shapes
    ------
    rate and shift broadcast; the answer has their common shape.
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


def _mean(kernel: Matern, law: Normal, x: Array) -> Array:
    rate, shift = kernel.rate(1) * standard_deviation(law), (law.loc - x) / standard_deviation(law)
    right = half_line_mean(kernel.polynomial, rate, shift)
    return np.asarray(right + half_line_mean(kernel.polynomial, rate, -shift))


def _double(kernel: Matern, law: Normal) -> Array:
    # The difference of two draws is normal with mean 0 and √2 times the standard deviation.
    rate = np.asarray(kernel.rate(0) * np.sqrt(2.0) * standard_deviation(law)[..., 0])
    return 2.0 * half_line_mean(kernel.polynomial, rate, np.zeros(()))


register(Matern, Normal, ClosedForm(_mean, _double))
