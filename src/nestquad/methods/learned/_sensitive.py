"""Sampling of θ where f(Ĵ) is sensitive to errors of Ĵ: near kinks and jumps of f."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._model import DenseSet, ModelOfJ
from nestquad.points import Stream

# Errors of Ĵ come in several sizes, in units of the standard deviation that is expected.
_SHIFTS = (0.03, 0.1, 0.3, 1.0)
# Limits of time: numbers that may be computed for the pool, and base-2 logarithms of its size.
_NUMBERS, _FEWEST, _MOST = 1 << 23, 13, 16
# A model that claims no error is doubted by this share of the spread of J: where it is right
# nothing is lost, since there are no errors to sample.
_DOUBT = 0.01


def sensitive_set(
    average: DenseAverage,
    model: ModelOfJ,
    n: int,
    stream: Stream,
    noise: Array | float | None = None,
    size: int | None = None,
) -> DenseSet:
    """θ with Ĵ and weights, half from their law and half where f(Ĵ) is sensitive.

    A pool of K θ, a lattice with a random shift on which Ĵ is cheap, is a sample of the law. Point
    i has the sensitivity s_i, the root mean square change of f for shifts of Ĵ by 0.03, 0.1, 0.3
    and 1 standard deviations, and is selected with probability q_i = ½/K + ½ s_i/Σs, with
    replacement (times the weight of the lattice where that is periodized). The weight 1/(K q_i)
    ≤ 2 makes a weighted mean unbiased for the expectation under the law, whatever the model is
    worth.

    The draws share the pool: beside Var(w y)/n, the variance of a weighted mean of y has a part of
    the pool's own, of the order of Var(y)/K.

    Parameters
    ----------
    average
        Supplies f and the problem.
    model
        Supplies Ĵ, its standard deviation, and the range of J.
    n
        Number of points.
    stream
        Randomness. More points from the same stream begin with the same.
    noise
        Standard deviation (p,) of the mean residual g − ĝ that will be used at a θ: shifts are
        then by that and by the error that the model expects. None doubts the model: shifts are by
        the standard deviation of J over θ.
    size
        K; None takes as many as time allows.

    Returns
    -------
    DenseSet
        n independent draws given the pool, with Ĵ as dense averages see it.
    """
    log2_size = (size or pool_size(model)).bit_length() - 1
    parts = list(model.replicates(1, log2_size, stream.child(0)))
    pool = DenseSet(
        np.concatenate([part.uniform for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.j for part in parts]),
    )
    mass = pool.weights / pool.weights.sum()
    share = mass * _sensitivity(average, model, pool, noise)
    chance = 0.5 * mass + 0.5 * share / share.sum() if share.any() else mass
    # One uniform a draw, so that more draws begin with the same.
    upper = np.cumsum(chance)
    picked = np.searchsorted(upper[:-1], upper[-1] * stream.child(1).generator().random(n), "right")
    return DenseSet(pool.uniform[picked], mass[picked] / chance[picked], pool.j[picked])


def pool_size(model: ModelOfJ) -> int:
    """K, or less, of the pool of `sensitive_set`."""
    affordable = (_NUMBERS // max(model.cost, 1)).bit_length() - 1
    return 1 << max(min(affordable, _MOST), _FEWEST)


def spread_of(f: Array) -> Array:
    """Standard deviations (q,) of finite values of f (M, q); 1 where f is constant."""
    with np.errstate(invalid="ignore"):
        spread = np.nanstd(np.where(np.isfinite(f), f, np.nan), axis=0)
    return np.where(spread > 0, spread, 1.0)


def _sensitivity(
    average: DenseAverage, model: ModelOfJ, points: DenseSet, noise: Array | float | None
) -> Array:
    """Root mean square change (M,) of f(Ĵ) for errors of Ĵ.

    Outputs of J are shifted one at a time. The change of each answer counts in units of the spread
    of that answer. Outside the domain of f, the largest change elsewhere stands for it.
    """
    j, f = points.j, average.f(points.j, points.uniform)
    # Errors of a model of log J are relative, and its J may be out of range.
    relative = model.logarithmic and noise is None
    sd = np.ones(j.shape[1]) if relative else j.std(axis=0)
    if noise is not None:
        blocks = np.array_split(points.uniform, -(-len(j) // (1 << 13)))
        known = np.concatenate([model.sd(block) for block in blocks])
        sd = np.hypot(np.maximum(known, _DOUBT * sd), noise)
    spread = spread_of(f)
    squares = np.zeros(len(j))
    for c in range(j.shape[1]):
        for shift in (*_SHIFTS, *(-shift for shift in _SHIFTS)):
            step = shift * sd * (np.arange(j.shape[1]) == c)
            moved = j * np.exp(step) if relative else j + step
            shifted = average.f(model.bounded(moved, points.uniform), points.uniform)
            change = (shifted - f) / spread
            squares += (change**2).sum(axis=1)
    found = np.sqrt(squares)
    finite = np.isfinite(found)
    return np.where(finite, found, found[finite].max(initial=0.0))
