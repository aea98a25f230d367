"""Rare events: lower bounds for the error of an average that saw few of them, or none."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.errors import EvaluationError
from nestquad.evaluate import call_f
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95


def rare_event_errors(
    problem: NestedExpectation,
    j: Array,
    f_values: Array,
    weights: Array,
    *,
    interpolated: bool = False,
) -> Array:
    """Standard errors (q,) of Σ w f(J) from events that the T points may have missed.

    An event is a θ at which f(J) differs from its usual value c, the median. Zero is returned
    where events are no exception: more than 20, or more than one in 20 θ.

    *Few events.* Their number h is a Poisson variable, and h + 3 is its upper confidence limit for
    small h: the variance is (1 + 3/h) Σ w² (f(J) - c)² over the events. A rule that has
    `interpolated` f(J) between the θ follows it where it is continuous; the smallest event then
    stands for all, the jump at their border.

    *No event.* At a confidence of 95 % fewer than 3/T of all θ have one: (1 - 3/T)^T ≈ 0.05. J has
    mean m and standard deviation s, so by Cantelli's inequality it exceeds m + k s with probability
    1/(1 + k²) at most. The half-width of a 95 % interval is max_k min(3/T, 1/(1 + k²))
    |f(m ± k s) - c|: 3/T for an indicator within reach of J. It is zero where f is constant, and
    where J is: nothing depends on θ then.

    Shapes: j (T[, p]), f_values and weights (T, q).
    """
    n = f_values.shape[0]
    usual = np.median(f_values, axis=0)
    size = np.abs(f_values - usual)
    events = size > 1e-6 * size.max(axis=0)
    count = events.sum(axis=0)
    if interpolated:
        size = np.where(count > 0, np.where(events, size, np.inf).min(axis=0), 0.0)
    variance = ((weights * size) ** 2 * events).sum(axis=0)
    errors = np.sqrt((1.0 + 3.0 / np.maximum(count, 1)) * variance)
    if (count == 0).any():
        errors = np.where(count == 0, _out_of_sight(problem, j, usual) / NORMAL_95, errors)
    return np.where((count <= 20) & (count <= n / 20), errors, 0.0)


def _out_of_sight(problem: NestedExpectation, j: Array, usual: Array) -> Array:
    """max_k min(3/T, 1/(1 + k²)) |f(m ± k s) - c| (q,) over each output of J, and all at once."""
    rows = j.reshape(j.shape[0], -1)
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    spread = np.where(spread > 1e-12 * np.abs(mean), spread, 0.0)
    outputs = spread if spread.size == 1 else np.vstack([np.diag(spread), spread])
    outputs = outputs.reshape(-1, spread.size)
    k = 2.0 ** (0.5 * np.arange(41))  # half-octaves, to a million standard deviations
    at = (mean + np.concatenate([k, -k])[:, None, None] * outputs).reshape(-1, spread.size)
    try:
        values = call_f(problem, at if j.ndim > 1 else at[:, 0], at, require_finite=False)
    except EvaluationError:  # f refuses values that J never has
        return np.zeros(usual.shape)
    chance = np.repeat(np.tile(np.minimum(3.0 / len(j), 1.0 / (1.0 + k**2)), 2), len(outputs))
    with np.errstate(invalid="ignore"):
        bound = chance[:, None] * np.abs(values - usual)
    return np.asarray(np.max(np.where(np.isfinite(bound), bound, 0.0), axis=0))
