"""Unseen events: error bounds for averages that saw few events, or none.

An event is a value of g or f(J) that differs from the usual one. The number of events among n
independent points is a Poisson variable. With h of them the variance is multiplied by 1 + 3/h;
with none, an event has a probability of at most 3/n at 95 % confidence (rule of three: Hanley and
Lippman-Hand 1983, If nothing goes wrong, is everything all right?). Cantelli's inequality bounds
the probability of a value k standard deviations from the mean by 1/(1 + k²).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._typing import Array, Mask
from nestquad.accuracy import linearized_covariance, tail_shape
from nestquad.evaluate import f_or_nan
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95

if TYPE_CHECKING:
    from nestquad.methods.learned._average import DenseAverage
    from nestquad.methods.learned._evidence import Check
    from nestquad.methods.learned._model import ModelOfJ

NO_VARIATION = (
    "g or f(J) has the same value at all points: either the problem is degenerate, or the answer "
    "depends on a rare event that no point has shown; more evaluations or another proposal would "
    "tell"
)


HEAVY_TAIL = (
    "few values of g far out decide the answer (a heavy tail): its error is not known, as none of "
    "the points may have met what counts most; another parametrization of theta, in which g varies "
    "less, or a proposal further out would help"
)


def without_variation(*errors: Array) -> list[str]:
    """The note for errors of which one is infinite, or no note."""
    return [] if all(np.isfinite(error).all() for error in errors) else [NO_VARIATION]


@dataclass(frozen=True)
class EventSettings:
    """Limits of the bounds for unseen events.

    Attributes
    ----------
    expected
        Expected number of events at which none is seen in 5 % of samples, −log 0.05; also the
        distance of h to its upper confidence limit for small h.
    most, one_in
        Events are few if there are at most `most`, and at most one in `one_in` points. With more
        than 20 the central limit theorem holds well enough: a Poisson variance is known to 22 %.
    carriers
        Number of values that carry a variance up to which it is taken as unknown: the relative
        standard error of an estimated variance is 1/√h, and twice that is 1 at h = 4.
    residual
        Share of the spread of g beyond which a residual of a learned model counts as an event;
        smaller ones are errors of interpolation.
    fewest_tail, material
        Parts of an average that it takes to see a heavy tail, and the size of the largest part,
        relative to the spread, below which a tail does not matter.
    some
        θ of a sketch at which f is looked at far away: a bound needs no more.
    """

    expected: float = 3.0
    most: int = 20
    one_in: int = 20
    carriers: float = 4.0
    residual: float = 0.1
    some: int = 512
    fewest_tail: int = 40
    material: float = 0.1

    def are_few(self, count: Array, n: int) -> Mask:
        """Whether `count` events among n points are few, or none."""
        return np.asarray(count <= min(self.most, n / self.one_in))

    def probability(self, n: int, k: Any) -> Array:
        """Bound for an event k standard deviations away that none of n points had."""
        return np.asarray(np.minimum(self.expected / n, 1.0 / (1.0 + np.square(k))))

    def widen(self, count: Array, variance: Array) -> Array:
        """Standard error from a variance that `count` events carry, with the Poisson margin."""
        return np.asarray(np.sqrt((1.0 + self.expected / np.maximum(count, 1.0)) * variance))


_SETTINGS = EventSettings()


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


def spread_factor(values: Array) -> float:
    """Upper confidence limit of a standard deviation over its estimate from values (n[, p]).

    The maximum over outputs that are not constant; infinite where few values carry the variance.
    """
    rows = values.reshape(len(values), -1)
    number = effective_number(rows - np.median(rows, axis=0))
    least = float(np.where(number > 0, number, np.inf).min())
    return float("inf") if least <= _SETTINGS.carriers else (1.0 - 2.0 / np.sqrt(least)) ** -0.5


def floor_directions(problem: NestedExpectation, answers: Array, errors: Array) -> Array:
    """Directions (k, q) of the final answers from standard errors (q,), infinite ones included."""
    if not np.isfinite(errors).all():
        return np.full((np.size(problem.finish(answers)), 1), np.inf)
    return linearized_covariance(problem.finish, answers, np.diag(errors**2))


# Events in x: values of g that the points may have missed.


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

    A loss with a small probability in x shows in few of the values: the mean of an output is then
    uncertain by `few_event_errors` for all θ at once, and the error is the change of the average
    by J moved up or down by this standard error. Where it shows in none: `constant_value_errors`.

    Shapes: values (n[, p]) independent evaluations of g, or means of several, with weights (n,)
    of sum one if they differ; j (T[, p]); f_values and weights (T, q).
    """
    rows = values.reshape(len(values), -1)
    if _is_constant(rows):  # these may be a part of all points, and J is from all
        rows, value_weights = j.reshape(len(j), -1), None
    if _is_constant(rows):
        return constant_value_errors(problem, j, f_values)
    shares = np.full(len(rows), 1.0 / len(rows)) if value_weights is None else value_weights
    shifts = few_event_errors(rows, shares[:, None])
    errors = np.zeros(f_values.shape[1])
    for output in np.flatnonzero(shifts):
        step = shifts * (np.arange(shifts.size) == output)
        sides = [_shifted(problem, j, sign * step) - f_values for sign in (1.0, -1.0)]
        # No change is counted where J leaves the domain of f.
        changes = [np.abs((weights * np.where(np.isfinite(d), d, 0.0)).sum(axis=0)) for d in sides]
        errors += np.max(changes, axis=0) ** 2
    return np.asarray(np.sqrt(errors))


def constant_value_errors(problem: NestedExpectation, j: Array, f_values: Array) -> Array:
    """Infinite errors (q,) if J is constant, since the size of an unseen event is unknown then.

    They are zero where f is constant for all J. A single constant output among others that vary is
    taken to be constant by definition, as the net benefit of a reference option is.
    """
    if not _is_constant(j.reshape(len(j), -1)):
        return np.zeros(f_values.shape[1])
    scale = np.abs(f_values).max(axis=0)
    same = (_far_changes(problem, j, f_values[0]) <= 1e-12 * scale).all(axis=(0, 1))
    return np.where(same, 0.0, np.inf)


def few_event_errors(values: Array, weights: Array) -> Array:
    """Standard errors (q,) of Σ w v where few of n values v (n, q) carry their variance, or zero.

    Deviations d from the median, the usual value, give (1 + 3/h) Σ w² d² with the Poisson margin.
    """
    d = weights * (values - np.median(values, axis=0))
    number = effective_number(d)
    few = (number > 0) & _SETTINGS.are_few(number, len(d))
    return np.where(few, _SETTINGS.widen(number, (d**2).sum(axis=0)), 0.0)


def heavy_tail_errors(parts: Array, spread: Array | float, least: float) -> Array:
    """Standard errors (p,) of a sum of parts (n, p): infinite for a heavy tail, or zero.

    A tail is heavy where few parts carry all of the variance and their sizes follow a Pareto law of
    shape `least` or more, unless they are negligible beside the spread (p,) of what is averaged.
    From a shape of 0.7 on means of realistic samples are not reliable, from 1 on there is none.
    """
    n, largest = len(parts), np.abs(parts).max(axis=0, initial=0.0)
    size = n * largest / np.maximum(spread, np.finfo(float).tiny)
    few = (effective_number(parts) <= _SETTINGS.carriers) & (size > _SETTINGS.material)
    heavy = [
        n >= _SETTINGS.fewest_tail and one and tail_shape(parts[:, [c]]) >= least
        for c, one in enumerate(few)
    ]
    return np.where(heavy, np.inf, 0.0)


def _is_constant(values: Array) -> bool:
    """Whether all values (n, p) of each output are equal, but for rounding."""
    return bool((np.ptp(values, axis=0) <= 1e-13 * np.abs(values).max(axis=0)).all())


def _shifted(problem: NestedExpectation, j: Array, shift: Array) -> Array:
    """f at J + shift, NaN if it refuses that."""
    at = j + shift
    return f_or_nan(problem, at if j.ndim > 1 else at.reshape(-1))


# Events in θ: values of f(J) that the points may have missed.


def rare_event_errors(
    problem: NestedExpectation,
    j: Array,
    f_values: Array,
    weights: Array,
    *,
    interpolated: bool = False,
) -> Array:
    """Standard errors (q,) of Σ w f(J) from events in θ that the T points may have missed.

    An event is a θ at which f(J) differs from its usual value c, the median. With few of them:
    `few_event_errors` of f(J). A rule that has `interpolated` f(J) follows it where it is
    continuous; the smallest event, the jump at their border, then stands for all. With none, the
    half-width of a 95 % interval is the `unreached_change`, by the rule of three and Cantelli's
    inequality; zero where f or J is constant, and `rule_of_three` where few θ carry the variance
    of J, so that its standard deviation is unknown.

    Shapes: j (T[, p]), f_values and weights (T, q).
    """
    usual = np.median(f_values, axis=0)
    size = np.abs(f_values - usual)
    events = size > 1e-6 * size.max(axis=0)
    count = events.sum(axis=0)
    border = np.where(events, size, np.inf).min(axis=0, initial=np.inf)
    border = np.where(count > 0, border, 0.0)
    if interpolated:
        few = (count > 0) & _SETTINGS.are_few(count, len(size))
        size = np.where(few, border, 0.0) * events
        errors = _SETTINGS.widen(count, ((weights * size) ** 2).sum(axis=0))
    else:
        errors = few_event_errors(f_values, weights)
    # An average of an indicator is a whole number of events, uncertain by at least one.
    errors = np.maximum(errors, border * np.abs(weights).max(axis=0) / NORMAL_95)
    if (count == 0).any():
        errors = np.where(count == 0, _out_of_sight(problem, j, usual) / NORMAL_95, errors)
    return np.asarray(errors)


def unreached_change(
    f: Callable[[Array], Array], j: Array, usual: Array, deviation: Array, n: int
) -> Array:
    """max_k min(3/n, 1/(1 + k²)) · mean |f(J ± k s) − c| (q,): a change that none of n points had.

    Each output of J moves by k of its standard deviations s, and all at once; k are half-octaves.
    Changes that are not finite do not count.

    Shapes: j (M, p), usual values c (M or 1, q), deviation s (p,); f takes (M, p).
    """
    outputs = deviation[None] if deviation.size == 1 else np.vstack([np.diag(deviation), deviation])
    bound = np.zeros(usual.shape[1])
    for k in 2.0 ** (0.5 * np.arange(28)):
        for step in k * outputs:
            sides = [np.abs(f(j + step) - usual), np.abs(f(j - step) - usual)]
            finite = [np.where(np.isfinite(side), side, 0.0) for side in sides]
            change = np.maximum(*finite).mean(axis=0)
            bound = np.maximum(bound, _SETTINGS.probability(n, k) * change)
    return bound


def _out_of_sight(problem: NestedExpectation, j: Array, usual: Array) -> Array:
    """`unreached_change` (q,) of f at the mean of J (T[, p]) with an upper limit of its spread."""
    factor = spread_factor(j)
    if factor == np.inf:
        return rule_of_three(problem, j, usual, len(j))
    rows = j.reshape(len(j), -1)
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    spread = factor * np.where(spread > 1e-12 * np.abs(mean), spread, 0.0)

    def f(at: Array) -> Array:
        return f_or_nan(problem, at if j.ndim > 1 else at[:, 0])

    return unreached_change(f, mean[None], usual[None], spread, len(j))


def rule_of_three(problem: NestedExpectation, j: Array, usual: Array, n: int) -> Array:
    """Half-widths (q,) of 95 % if none of n θ had an event, whose size is unknown.

    At most 3/n of all θ have an event. Where f has no bound, neither has the error.
    """
    changes = _far_changes(problem, j, usual)
    with np.errstate(invalid="ignore"):
        bounded = (np.diff(changes[:, -2:], axis=1) <= 1e-9 * changes[:, -1:]).all(axis=(0, 1))
    largest = np.max(np.nan_to_num(changes, posinf=np.inf), axis=(0, 1))
    share = min(_SETTINGS.expected / n, 1.0)
    return np.where(bounded, share * largest, np.where(largest > 0, np.inf, 0.0))


def _far_changes(problem: NestedExpectation, j: Array, usual: Array) -> Array:
    """|f - c| (2, k, q) at J above and below its mean by powers of four, to the largest numbers.

    Values of g that were seen may be tiny compared with values to which f is sensitive.
    """
    mean = j.mean(axis=0)
    start = np.clip(np.log2(max(1.0, float(np.abs(mean).max()))), 0.0, 900.0)
    sizes = 2.0 ** np.arange(start - 20.0, 1000.0, 2.0)
    steps = np.concatenate([sizes, -sizes]).reshape(-1, *[1] * mean.ndim)
    values = _shifted(problem, np.broadcast_to(mean, (len(steps), *mean.shape)), steps)
    changes = np.abs(np.broadcast_to(values, (len(steps), usual.size)) - usual)
    return np.asarray(changes.reshape(2, len(sizes), -1))


# The same for learned models of J.


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
    limit = _SETTINGS.residual * np.hypot(base.j.std(axis=0), values[0].std(axis=0))
    values = [
        np.where(share[:, None] * np.abs(left) > limit, left, 0.0)
        for share, left in zip(shares, values, strict=True)
    ]
    # If few of all these values carry a variance, the size of an event is unknown.
    seen = base.j, np.concatenate(known), np.concatenate(values)
    away = np.abs(f - np.median(f, axis=0))
    count = (away > 1e-6 * away.max(axis=0)).sum(axis=0)
    few = bool(_SETTINGS.are_few(count, len(f)).all())
    if few and max(map(spread_factor, seen)) == np.inf:
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


def heavy_errors(model: ModelOfJ, n_answers: int) -> Array:
    """Directions (k, 1) for a heavy tail of residuals: infinite, or zero."""
    left, weights = model.unexplained()
    rest = weights[:, None] * left.reshape(len(left), -1, left.shape[-1]).mean(axis=1)
    base, share = model.sketch, model.sketch.weights / model.sketch.weights.sum()
    # f compares the outputs: one that is constant has the spread of the others.
    spread = np.sqrt(share @ (base.j - share @ base.j) ** 2).max()
    error = heavy_tail_errors(rest / weights.sum(), spread, 0.7).max()
    return np.full((n_answers, 1), error)


def unreached_errors(
    model: ModelOfJ,
    check: Check | None,
    average: DenseAverage,
    answers: Array,
    *,
    has_jumps: bool = False,
) -> Array:
    """Directions (k, q) for events of f that few θ of the sketch reach, or none.

    Few events: three more in all points, each of the largest size that was seen, are possible by
    the rule of three; a sketch with few events shows no smaller change. No event: it takes a
    deviation of k standard deviations, whose probability Cantelli's inequality bounds as well.
    Many events of an f that jumps: a sketch has a whole number of them, so that an average is
    rounded to multiples of one of the smallest size; the error of that is uniform.
    """
    base = model.sketch
    f = average.f(base.j)
    away = np.abs(f - np.median(f, axis=0))
    events = away > 1e-6 * away.max(axis=0)
    count = events.sum(axis=0)
    n = model.n_points + (0 if check is None else len(check.weights))
    few = _SETTINGS.are_few(count, len(f))
    bound = np.where(few, _SETTINGS.probability(n, 0.0) * away.max(axis=0), 0.0)
    if (count == 0).any():
        error = model.sd(base.uniform[:256]).max(axis=0)
        if check is not None:
            products = np.prod(check.residuals(model) / check.scale, axis=1)
            upper = products.mean(axis=0) + 2.0 * products.std(axis=0) / np.sqrt(len(products))
            error = check.scale * np.sqrt(np.maximum(upper, 0.0))
        # Even an exact model does not show how far J reaches.
        deviation = np.hypot(error, base.j.std(axis=0))
        some = slice(None, None, max(len(f) // _SETTINGS.some, 1))
        far = unreached_change(
            lambda j: average.f(model.bounded(j, base.uniform[some])),
            base.j[some],
            f[some],
            deviation,
            n,
        )
        bound = np.where(count == 0, np.maximum(bound, far), bound)
    errors = bound / NORMAL_95
    if has_jumps:
        border = np.where(count > 0, np.where(events, away, np.inf).min(axis=0), 0.0)
        share = (base.weights @ base.weights) / base.weights.sum() ** 2
        errors = np.maximum(errors, border * share / np.sqrt(12.0))
    return floor_directions(average.problem, answers, errors)
