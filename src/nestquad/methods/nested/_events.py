"""Unseen events: lower bounds for the error of averages that saw few events, or none."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.accuracy import linearized_covariance
from nestquad.errors import EvaluationError
from nestquad.evaluate import call_f
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95

NO_VARIATION = (
    "g or f(J) has the same value at all points: either the problem is degenerate, or what matters "
    "is a rare event that no point has shown; more evaluations or another proposal would tell"
)


def effective_number(deviations: Array) -> Array:
    """Number (q,) of n deviations that carry their variance: (Σ d²)² / Σ d⁴.

    It is n over the kurtosis, and the number of events where d is an indicator.

    Examples
    --------
    >>> effective_number(np.array([[0.0], [5.0], [0.0], [5.0]]))
    array([2.])
    """
    largest = np.abs(deviations).max(axis=0)
    d = deviations / np.where(largest > 0, largest, 1.0)
    fourth = (d**4).sum(axis=0)
    return np.asarray((d**2).sum(axis=0) ** 2 / np.where(fourth > 0, fourth, 1.0))


def few_event_errors(values: Array, weights: Array) -> Array:
    """Standard errors (q,) of Σ w v if few of the n values v (n, q) carry their variance.

    Deviations d are those from the median, the usual value. The number h of events is a Poisson
    variable, and h + 3 is its upper confidence limit for small h, so that the variance is
    (1 + 3/h) Σ w² d². Zero is returned where events are no exception: more than 20, or more than
    one in 20, or none at all.
    """
    d = weights * (values - np.median(values, axis=0))
    number = effective_number(d)
    few = (number > 0) & (number <= min(20.0, len(d) / 20.0))
    return np.where(few, _with_margin(number, (d**2).sum(axis=0)), 0.0)


def _with_margin(number: Array, variance: Array) -> Array:
    return np.asarray(np.sqrt((1.0 + 3.0 / np.maximum(number, 1.0)) * variance))


def unseen_value_errors(
    problem: NestedExpectation,
    values: Array,
    j: Array,
    f_values: Array,
    weights: Array,
    *,
    value_weights: Array | None = None,
) -> Array:
    """Standard errors (q,) of Σ w f(J) from values of g that the points may have missed.

    A loss with a small probability in x shows in few of the values, or in none.

    *Few events.* The mean of an output is uncertain by `few_event_errors`, for all θ at once. The
    error is the change of the average by J moved up or down by as much.

    *No event.* `constant_value_errors`.

    Shapes: values (n[, p]) independent evaluations of g, or means of several, with weights (n,)
    of sum one if not all count the same; j (T[, p]); f_values and weights (T, q).
    """
    rows = values.reshape(len(values), -1)
    if _constant(rows):  # of a part of all points, perhaps: J has seen them all
        rows, value_weights = j.reshape(len(j), -1), None
    if _constant(rows):
        return constant_value_errors(problem, j, f_values)
    shares = np.full(len(rows), 1.0 / len(rows)) if value_weights is None else value_weights
    shifts = few_event_errors(rows, shares[:, None])
    errors = np.zeros(f_values.shape[1])
    for output in np.flatnonzero(shifts):
        step = shifts * (np.arange(shifts.size) == output)
        sides = [_shifted(problem, j, sign * step) - f_values for sign in (1.0, -1.0)]
        # Where J leaves the domain of f nothing is said.
        changes = [np.abs((weights * np.where(np.isfinite(d), d, 0.0)).sum(axis=0)) for d in sides]
        errors += np.max(changes, axis=0) ** 2
    return np.asarray(np.sqrt(errors))


def constant_value_errors(problem: NestedExpectation, j: Array, f_values: Array) -> Array:
    """Infinite errors (q,) if J is constant, since the size of an unseen event is unknown then.

    They are zero where f is constant whatever J is. An output that is constant beside others that
    are not is taken to be so by definition, as the net benefit of a reference option is.
    """
    if not _constant(j.reshape(len(j), -1)):
        return np.zeros(f_values.shape[1])
    scale = np.abs(f_values).max(axis=0)
    same = (_far_changes(problem, j, f_values[0]) <= 1e-12 * scale).all(axis=(0, 1))
    return np.where(same, 0.0, np.inf)


def _constant(values: Array) -> bool:
    """Whether all values (n, p) of each output are equal, but for rounding."""
    return bool((np.ptp(values, axis=0) <= 1e-13 * np.abs(values).max(axis=0)).all())


def _far_changes(problem: NestedExpectation, j: Array, usual: Array) -> Array:
    """|f - c| (2, k, q) at J above and below its mean by powers of four, to the largest numbers.

    Values of g that were seen may be tiny beside those that f is sensitive to.
    """
    mean = j.mean(axis=0)
    start = np.clip(np.log2(max(1.0, float(np.abs(mean).max()))), 0.0, 900.0)
    sizes = 2.0 ** np.arange(start - 20.0, 1000.0, 2.0)
    steps = np.concatenate([sizes, -sizes]).reshape(-1, *[1] * mean.ndim)
    found = _shifted(problem, np.broadcast_to(mean, (len(steps), *mean.shape)), steps)
    changes = np.abs(np.broadcast_to(found, (len(steps), usual.size)) - usual)
    return np.asarray(changes.reshape(2, len(sizes), -1))


def _shifted(problem: NestedExpectation, j: Array, shift: Array) -> Array:
    """f at J + shift, NaN if it refuses that."""
    at = j + shift
    theta = at.reshape(len(at), -1)
    try:
        return call_f(problem, at if j.ndim > 1 else at.reshape(-1), theta, require_finite=False)
    except EvaluationError:
        return np.full((1, 1), np.nan)


def floor_directions(problem: NestedExpectation, answers: Array, errors: Array) -> Array:
    """Directions (k, q) of the final answers from standard errors (q,), infinite ones included."""
    if not np.isfinite(errors).all():
        return np.full((np.size(problem.finish(answers)), 1), np.inf)
    return linearized_covariance(problem.finish, answers, np.diag(errors**2))


def rare_event_errors(
    problem: NestedExpectation,
    j: Array,
    f_values: Array,
    weights: Array,
    *,
    interpolated: bool = False,
) -> Array:
    """Standard errors (q,) of Σ w f(J) from events in θ that the T points may have missed.

    An event is a θ at which f(J) differs from its usual value c, the median.

    *Few events.* `few_event_errors` of f(J). A rule that has `interpolated` f(J) between the θ
    follows it where it is continuous; the smallest event then stands for all, the jump at their
    border.

    *No event.* At a confidence of 95 % fewer than 3/T of all θ have one: (1 - 3/T)^T ≈ 0.05. J has
    mean m and standard deviation s, so by Cantelli's inequality it exceeds m + k s with probability
    1/(1 + k²) at most. The half-width of a 95 % interval is max_k min(3/T, 1/(1 + k²))
    |f(m ± k s) - c|: 3/T for an indicator within reach of J. It is zero where f is constant, and
    where J is: nothing depends on θ then. Where few θ carry the variance of J, as in the tail of a
    narrow peak, s is unknown: `rule_of_three`.

    Shapes: j (T[, p]), f_values and weights (T, q).
    """
    usual = np.median(f_values, axis=0)
    size = np.abs(f_values - usual)
    events = size > 1e-6 * size.max(axis=0)
    count = events.sum(axis=0)
    border = np.where(events, size, np.inf).min(axis=0, initial=np.inf)
    border = np.where(count > 0, border, 0.0)
    if interpolated:
        few = (count > 0) & (count <= min(20, len(size) / 20))
        size = np.where(few, border, 0.0) * events
        errors = _with_margin(count, ((weights * size) ** 2).sum(axis=0))
    else:
        errors = few_event_errors(f_values, weights)
    # An average of an indicator is a whole number of events: one more or less is never excluded.
    errors = np.maximum(errors, border * np.abs(weights).max(axis=0) / NORMAL_95)
    if (count == 0).any():
        errors = np.where(count == 0, _out_of_sight(problem, j, usual) / NORMAL_95, errors)
    return np.asarray(errors)


def _out_of_sight(problem: NestedExpectation, j: Array, usual: Array) -> Array:
    """max_k min(3/T, 1/(1 + k²)) |f(m ± k s) - c| (q,) over each output of J, and all at once."""
    if spread_factor(j) == np.inf:
        return rule_of_three(problem, j, usual, len(j))
    rows = j.reshape(j.shape[0], -1)
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    spread = spread_factor(j) * np.where(spread > 1e-12 * np.abs(mean), spread, 0.0)
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


def spread_factor(values: Array) -> float:
    """Upper confidence limit of a standard deviation over its estimate from values (n[, p]).

    The relative standard error of an estimated variance is 1/√h, if h values carry it: with four
    or fewer, nothing is known. The largest over outputs that are not constant.
    """
    rows = values.reshape(len(values), -1)
    number = effective_number(rows - np.median(rows, axis=0))
    least = float(np.where(number > 0, number, np.inf).min())
    return float("inf") if least <= 4.0 else (1.0 - 2.0 / np.sqrt(least)) ** -0.5


def rule_of_three(problem: NestedExpectation, j: Array, usual: Array, n: int) -> Array:
    """Half-widths (q,) of 95 % if none of n θ had an event, whose size is unknown.

    At most 3/n of all θ have one. Where f has no bound, neither has the error.
    """
    changes = _far_changes(problem, j, usual)
    with np.errstate(invalid="ignore"):
        bounded = (np.diff(changes[:, -2:], axis=1) <= 1e-9 * changes[:, -1:]).all(axis=(0, 1))
    largest = np.max(np.nan_to_num(changes, posinf=np.inf), axis=(0, 1))
    return np.where(bounded, min(3.0 / n, 1.0) * largest, np.where(largest > 0, np.inf, 0.0))
