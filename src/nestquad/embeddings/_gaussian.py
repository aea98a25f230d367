"""The Gaussian kernel on an interval and under a normal law of one coordinate."""

from __future__ import annotations

import numpy as np
from scipy.special import erf, erfc

from nestquad._typing import Array
from nestquad.distributions import Normal, Uniform
from nestquad.embeddings._blocks import standard_deviation
from nestquad.embeddings._quadrature import short_mean
from nestquad.embeddings._registry import ClosedForm, register
from nestquad.kernels import Gaussian

__all__: list[str] = []


def _uniform_mean(kernel: Gaussian, law: Uniform, x: Array) -> Array:
    scale = np.sqrt(2.0) * kernel.scale(1)
    below, above = (x - law.low) / scale, (law.high - x) / scale
    # Distance of x from the interval, 0 inside, and the width, broadcast for the masks below.
    away, width = np.broadcast_arrays(
        np.maximum(np.maximum(-below, -above), 0.0), (law.high - law.low) / scale
    )
    inside = away == 0.0
    difference = np.where(inside, erf(below) + erf(above), erfc(away) - erfc(away + width))
    value = 0.5 * np.sqrt(np.pi) * difference / width
    # There the kernel changes by less than a factor e over the interval, and erfc would cancel.
    flat = ~inside & (width * (2.0 * away + width) < 1.0)
    if flat.any():
        value[flat] = short_mean(lambda z: np.exp(-(z**2)), away[flat], width[flat])
    return np.asarray(value)


def _uniform_double(kernel: Gaussian, law: Uniform) -> Array:
    width = np.asarray((law.high - law.low)[..., 0] / (np.sqrt(2.0) * kernel.scale(0)))
    value = np.sqrt(np.pi) * width * erf(width) + np.expm1(-(width**2))
    return np.asarray(value / width**2)


def _normal_mean(kernel: Gaussian, law: Normal, x: Array) -> Array:
    spread = standard_deviation(law) / kernel.scale(1)
    r = (x - law.loc) / kernel.scale(1)
    return np.asarray(np.exp(-0.5 * (r / np.hypot(1.0, spread)) ** 2) / np.hypot(1.0, spread))


def _normal_double(kernel: Gaussian, law: Normal) -> Array:
    return np.asarray(
        1.0 / np.hypot(1.0, np.sqrt(2.0) * standard_deviation(law)[..., 0] / kernel.scale(0))
    )


register(Gaussian, Uniform, ClosedForm(_uniform_mean, _uniform_double))
register(Gaussian, Normal, ClosedForm(_normal_mean, _normal_double))
