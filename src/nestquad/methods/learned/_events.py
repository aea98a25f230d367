"""Events that no point has shown: bounds for learned models."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._evidence import Check
from nestquad.methods.learned._model import ModelOfJ
from nestquad.methods.nested import (
    floor_directions,
    rule_of_three,
    spread_factor,
    unseen_value_errors,
)
from nestquad.result import NORMAL_95

# Share of the spread of g beyond which a residual may be an event.
_STANDS_OUT = 0.1


def unseen_errors(
    model: ModelOfJ, check: Check | None, average: DenseAverage, answers: Array
) -> Array:
    """Directions (k, m) of the error from values of g that no point has shown."""
    base, f = model.sketch, average.f(model.sketch.j)
    rest, known = [model.unexplained()], [base.j]
    if check is not None:
        known.append(check.values.reshape(-1, base.j.shape[1]))
        rest.append((check.residuals(model), check.weights))
    values = [left.reshape(-1, left.shape[-1]) for left, _ in rest]
    shares = [np.repeat(w / w.mean(), left[..., 0].size // len(w)) for left, w in rest]
    j = base.j[:, 0] if average.scalar else base.j
    # Rare events stand out. Small residuals are errors of interpolation, however uneven.
    limit = _STANDS_OUT * np.hypot(base.j.std(axis=0), values[0].std(axis=0))
    values = [
        np.where(share[:, None] * np.abs(left) > limit, left, 0.0)
        for share, left in zip(shares, values, strict=True)
    ]
    # Where few of all these carry a variance, nobody knows how large an event may be.
    seen = base.j, np.concatenate(known), np.concatenate(values)
    if not np.ptp(f, axis=0).any() and max(map(spread_factor, seen)) == np.inf:
        bound = rule_of_three(average.problem, j, f[0], min(model.n_points, len(j)))
        return floor_directions(average.problem, answers, bound / NORMAL_95)
    if not any(left.any() for left in values) and np.ptp(base.j, axis=0).any():
        return np.zeros((average.final(answers).size, 1))
    weights = np.repeat(base.weights[:, None] / base.weights.sum(), f.shape[1], axis=1)
    errors = unseen_value_errors(
        average.problem,
        np.concatenate(values),
        j,
        f,
        weights,
        value_weights=np.concatenate(shares) / sum(map(len, values)),
    )
    return floor_directions(average.problem, answers, errors)


def unreached_errors(
    model: ModelOfJ, check: Check | None, average: DenseAverage, answers: Array
) -> Array:
    """Directions (k, q) for events of f that no θ of the sketch reaches.

    Where f(Ĵ) is the same everywhere, an event takes a deviation of k standard deviations: by
    Cantelli's inequality its probability is at most 1/(1 + k²), and by the rule of three (Hanley
    and Lippman-Hand 1983, If nothing goes wrong, is everything all right?) it is below 3/n if none
    of n points had one.
    """
    base = model.sketch
    f = average.f(base.j)
    same = np.ptp(f, axis=0) == 0
    bound = np.zeros(f.shape[1])
    if same.any():
        # Not even a model that is right shows how far J reaches.
        deviation = np.hypot(model.sd(base.uniform[:256]).max(axis=0), base.j.std(axis=0))
        n = model.n_points + (0 if check is None else len(check.weights))
        for step in 2.0 ** np.arange(14.0):
            chance = min(3.0 / n, 1.0 / (1.0 + step**2))
            for sign in (step, -step):
                moved = model.bounded(base.j + sign * deviation, base.uniform)
                change = np.nan_to_num(np.abs(average.f(moved) - f)).mean(axis=0)
                bound = np.maximum(bound, chance * change)
    return floor_directions(average.problem, answers, np.where(same, bound, 0.0) / NORMAL_95)
