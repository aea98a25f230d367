"""How fast differences between levels decrease."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array

__all__ = ["Decay", "fit_decay"]

# Even exact differences follow a power law no better than this (in powers of two).
_MODEL_NOISE = 0.1


@dataclass(frozen=True)
class Decay:
    """Corrections behave like 2^(-rate l).

    `rate` is the best guess and `slow` one standard deviation slower; `measured` and `std_error`
    are what the data alone say.
    """

    rate: float
    slow: float
    measured: float
    std_error: float


def fit_decay(sizes: Array, noise: Array, expected: float, trust: float, *, last: int = 4) -> Decay:
    """The rate at which positive `sizes` of consecutive levels decrease.

    A regression of log2(size) on the level. Each point counts by its own noise, and theory's
    `expected` rate like one more observation with standard deviation `trust`: where corrections
    drown in noise it is all there is, and where they do not it is outvoted. Only the `last` few
    sizes count: coarser ones are not asymptotic yet.

    Examples
    --------
    >>> sizes = np.array([0.8, 0.2, 0.05, 0.0125])
    >>> round(fit_decay(sizes, 0.01 * sizes, expected=1.0, trust=0.25).rate, 2)
    1.97
    """
    sizes, noise = sizes[-last:], noise[-last:]
    usable = (sizes > 0) & np.isfinite(sizes) & np.isfinite(noise)
    level, size, noise = np.flatnonzero(usable), sizes[usable], noise[usable]
    if level.size < 2:
        return Decay(expected, expected - trust, float("nan"), float("inf"))
    spread = noise / (size * np.log(2.0))
    weight = 1.0 / (_MODEL_NOISE**2 + spread**2)
    x = level - np.average(level, weights=weight)
    information = float(weight @ x**2)
    measured = -float(weight @ (x * np.log2(size))) / information
    prior = trust**-2.0
    rate = (information * measured + prior * expected) / (information + prior)
    return Decay(rate, rate - (information + prior) ** -0.5, measured, information**-0.5)
