"""What levels say: how fast corrections decrease, what is left of the bias, how to go on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array

__all__ = ["Decay", "Sizes", "best_sizes", "decay", "remaining_bias", "steady_variances"]

# Levels on which rates and bias are judged: coarser ones are not asymptotic yet.
_RATE_LEVELS = 4
_BIAS_LEVELS = 3
# Even exact corrections follow a power law no better than this (in powers of two).
_MODEL_NOISE = 0.1


@dataclass(frozen=True)
class Decay:
    """Corrections behave like 2^(-rate l): the rate, and what the data alone say about it."""

    rate: float
    measured: float
    std_error: float


def decay(sizes: Array, noise: Array, expected: float, trust: float) -> Decay:
    """The rate at which positive `sizes` of consecutive levels decrease.

    A regression of log2(size) on the level. Each point counts by its own noise, and theory's
    `expected` rate like one more observation with standard deviation `trust`: where corrections
    drown in noise it is all there is, and where they do not it is outvoted.
    """
    sizes, noise = sizes[-_RATE_LEVELS:], noise[-_RATE_LEVELS:]
    usable = (sizes > 0) & np.isfinite(sizes) & np.isfinite(noise)
    level, size, noise = np.flatnonzero(usable), sizes[usable], noise[usable]
    if level.size < 2:
        return Decay(expected, float("nan"), float("inf"))
    spread = noise / (size * np.log(2.0))
    weight = 1.0 / (_MODEL_NOISE**2 + spread**2)
    x = level - np.average(level, weights=weight)
    information = float(weight @ x**2)
    measured = -float(weight @ (x * np.log2(size))) / information
    prior = trust**-2.0
    rate = (information * measured + prior * expected) / (information + prior)
    return Decay(rate, measured, information**-0.5)


def steady_variances(variances: Array, rate: float) -> Array:
    """Variances by level that never fall faster than theory makes plausible.

    At fine levels a correction is zero most of the time and a small sample may see nothing but
    zeros; half the decrease that is expected is what such a level is believed.
    """
    steady = variances.copy()
    for level in range(2, steady.shape[0]):
        steady[level] = np.maximum(steady[level], 0.5 * steady[level - 1] * 2.0**-rate)
    return steady


def remaining_bias(corrections: Array, noise: Array, rate: float) -> float:
    """Root mean square of the bias that the levels beyond the last would remove.

    The last corrections are fitted by c 2^(-rate l), weighted by their noise; the bias is the sum
    of that series beyond the last level. Its square has the uncertainty of c added, which grows
    when the corrections do not follow the series.
    """
    corrections, noise = corrections[-_BIAS_LEVELS:], noise[-_BIAS_LEVELS:]
    if corrections.size == 0:
        return float("inf")
    shape = 2.0 ** (-rate * np.arange(1 - corrections.size, 1))  # 1 at the last level
    # Noise of exactly zero would give a level all the weight.
    floor = 1e-3 * np.abs(corrections).max() + np.finfo(float).tiny
    weight = 1.0 / (noise**2 + floor**2)
    information = float(weight @ shape**2)
    last = float(weight @ (shape * corrections)) / information
    misfit = float(weight @ (corrections - last * shape) ** 2) / max(corrections.size - 1, 1)
    uncertainty = max(misfit, 1.0) / information
    return float(np.sqrt(last**2 + uncertainty) / (2.0**rate - 1.0))


@dataclass(frozen=True)
class Sizes:
    """The level to start from, and T for each level."""

    base: int
    n_outer: Array


def best_sizes(
    own: Array, corrections: Array, costs: Array, bias: Array, fewest_levels: int
) -> Sizes:
    """The cheapest sizes whose variance and squared bias add up to at most one.

    With variances V_l and costs C_l, T_l ∝ √(V_l/C_l) is optimal, at the total cost
    (Σ√(V_l C_l))² / (1 - bias²). The coarsest and the finest level are those that make it least.

    Parameters
    ----------
    own, corrections
        Variances of f(J) on each level and of its correction to the level before, in units of
        the squared error that is allowed.
    costs
        Evaluations for one θ on each level.
    bias
        What is left when a level is the last, in units of the error that is allowed.
    fewest_levels
        Take at least so many levels.

    Shapes: all (L,).
    """
    root = np.sqrt(corrections * costs)
    best: tuple[float, int, int, float] | None = None
    for last in range(fewest_levels - 1, costs.size):
        room = 1.0 - float(bias[last]) ** 2
        if last == costs.size - 1:
            room = max(room, 0.5)  # the finest we may take has to do for now
        if room <= 0.0:
            continue
        for base in range(fewest_levels):
            total = np.sqrt(own[base] * costs[base]) + float(root[base + 1 : last + 1].sum())
            price = total**2 / room
            if np.isfinite(price) and (best is None or price < best[0]):
                best = price, base, last, total / room
    assert best is not None
    _, base, last, factor = best
    wanted = factor * np.sqrt(corrections / costs)
    wanted[base] = factor * np.sqrt(own[base] / costs[base])
    wanted[:base] = 0.0
    return Sizes(base, np.ceil(wanted[: last + 1]))
