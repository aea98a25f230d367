"""Check of learned models by fresh draws: evidence that no model was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nestquad._scale import scale_of
from nestquad._typing import Array, Indices
from nestquad.accuracy import propagated
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid, OutOfTimeError
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._model import DenseSet, ModelOfJ
from nestquad.methods.learned._sensitive import pool_size, sensitive_set
from nestquad.methods.nested import (
    floor_directions,
    rule_of_three,
    spread_factor,
    unseen_value_errors,
)
from nestquad.points import IID, Given, PeriodicLattice, Stream, density, periodic
from nestquad.result import NORMAL_95

# θ on which the effect of errors of Ĵ is felt, and bootstrap samples of the draws.
_FELT, _BOOTSTRAP = 2048, 32
# Most θ among which those where f is sensitive are sought.
_POOL = 1 << 14
# Rows at which ĝ is computed at a time.
_ROWS = 4096
# Share of the spread of g beyond which a residual may be an event.
_STANDS_OUT = 0.1
# A score that is worse by this many standard errors refutes a model.
_REFUTED = 2.0


class FreshPoints(Given):
    """θ of a check, as uniforms (m, d), with weights (m,) that make them a sample of their law."""

    weights: Array

    def __init__(self, points: DenseSet) -> None:
        super().__init__(np.clip(points.uniform, 1e-15, 1.0 - 1e-15))
        object.__setattr__(self, "weights", points.weights)


@dataclass(frozen=True)
class LearnedDesign(Design):
    """Grids from which a model is learned, and after them those by which it is checked.

    Witnesses are lattices in (θ, x) that another method was learned from. Their values are there
    already, and may show events that this method's points have missed.
    """

    n_checks: int = 0
    witnesses: tuple[Grid, ...] = ()

    @property
    def learning(self) -> Design:
        return Design(self.grids[: len(self.grids) - self.n_checks])

    @property
    def checks(self) -> tuple[Grid, ...]:
        return self.grids[len(self.grids) - self.n_checks :]

    @classmethod
    def of(
        cls, learning: Design, checks: tuple[Grid, ...], witnesses: tuple[Grid, ...] = ()
    ) -> LearnedDesign:
        return cls((*learning.grids, *checks), len(checks), witnesses)


def check_grid(average: DenseAverage, model: ModelOfJ, n: int, stream: Stream) -> Grid:
    """n evaluations at θ of which half are where f(Ĵ) is sensitive, two independent x at each."""
    points = sensitive_set(average, model, n // 2, stream.child(2), size=_pool(model))
    return Grid(n // 2, 2, FreshPoints(points), IID(), None, stream)


@dataclass(frozen=True, eq=False)
class Witness:
    """Points (n, d_θ) and (n, d_x) of another method, weights (n,), and g there (n, p)."""

    uniform: Array
    inner: Array
    weights: Array
    values: Array

    @classmethod
    def of(cls, evaluator: Evaluator, grid: Grid) -> Witness:
        evaluations = Evaluations(evaluator, Design((grid,)))
        values = evaluations.values(grid.n_outer)[:, 0]
        outer = evaluations.outer()
        inner = evaluations.inner(outer.theta[: len(values)], (0, len(values))).uniform
        assert outer.uniform is not None
        assert inner is not None
        both = np.concatenate([outer.uniform[: len(values)], inner[:, 0]], axis=1)
        weights = np.ones(len(values))
        if isinstance(grid.outer_points, PeriodicLattice):
            kind = grid.outer_points.periodization
            weights = density(kind, periodic(kind, both))
        uniform = both[:, : outer.uniform.shape[1]]
        return cls(uniform, inner[:, 0], weights, values.reshape(len(values), -1))

    def residuals(self, model: ModelOfJ) -> Array:
        return np.asarray(self.values - model.at(self.uniform, self.inner))


@dataclass(frozen=True, eq=False)
class Check:
    """Fresh draws: θ (m, d_θ) and x (m, 2, d_x) as uniforms, weights (m,), g (m, 2, p)."""

    uniform: Array
    weights: Array
    inner: Array
    values: Array
    witnesses: tuple[Witness, ...] = field(default=(), kw_only=True)
    _residuals: dict[ModelOfJ, Array] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, evaluations: Evaluations, design: LearnedDesign) -> Check | None:
        """The draws of a design that are complete; None if there are none."""
        parts: list[tuple[Array, ...]] = []
        for level in range(len(design.grids) - design.n_checks, len(design.grids)):
            grid = design.grids[level]
            assert isinstance(grid.outer_points, FreshPoints)
            try:
                values = evaluations.values(grid.n_outer, level)
            except OutOfTimeError:
                break
            rows = len(values)
            outer = evaluations.outer(level)
            inner = evaluations.inner(outer.theta[:rows], (0, rows), level).uniform
            assert outer.uniform is not None
            assert inner is not None
            weights = grid.outer_points.weights[:rows]
            parts.append((outer.uniform[:rows], weights, inner, values.reshape(rows, 2, -1)))
        if not parts:
            return None
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        others = tuple(Witness.of(evaluations.evaluator, grid) for grid in design.witnesses)
        return cls(*columns, witnesses=others)

    @cached_property
    def scale(self) -> Array:
        """The size (p,) of the values, whose squares may be out of range."""
        return scale_of(self.values.reshape(-1, self.values.shape[2]))

    @property
    def n_draws(self) -> int:
        return int(self.values.shape[0] * self.values.shape[1])

    def residuals(self, model: ModelOfJ) -> Array:
        """g − ĝ (m, 2, p), whose mean over x is J − Ĵ: independent for the two x at a θ."""
        if model not in self._residuals:
            found = np.empty_like(self.values)
            for start in range(0, len(found), _ROWS):
                some = slice(start, start + _ROWS)
                for view in (0, 1):
                    g = model.at(self.uniform[some], self.inner[some, view])
                    found[some, view] = self.values[some, view] - g
            self._residuals[model] = found
        return self._residuals[model]

    def unrefuted(self, models: Sequence[ModelOfJ]) -> list[int]:
        """Positions of the models whose held-out score is not clearly worse than the best.

        The score is the mean square error of Ĵ at the draws. Compared with a reference Ĵ_0 it is
        the mean of (Ĵ − Ĵ_0)(Ĵ + Ĵ_0 − 2 ȳ), with the noise of ȳ reduced by the control variate
        of the model that explains g best. Draws count equally: most are where f is sensitive.
        """
        if len(models) < 2:
            return list(range(len(models)))
        spread = (self.values / self.scale).std(axis=(0, 1))
        scale = self.scale * np.where(spread > 0, spread, 1.0)
        rests = [self.residuals(model) / scale for model in models]
        best = int(np.argmin([(rest**2).mean() for rest in rests]))
        means = [model.mean(self.uniform) / scale for model in models]
        observed = means[best] + rests[best].mean(axis=1)
        losses = [((mean - observed) ** 2).sum(axis=1) for mean in means]
        first = int(np.argmin([loss.mean() for loss in losses]))
        count = np.sqrt(len(observed))
        excess = [loss - losses[first] for loss in losses]
        return [k for k, e in enumerate(excess) if e.mean() <= _REFUTED * e.std() / count]


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a check says of a model's answers.

    Attributes
    ----------
    ratio
        Mean square of g − ĝ at the draws, over what the model expects; the largest of the outputs.
    factor
        That by which errors of Ĵ are larger than the model expects, at least one.
    share
        Share of the variance of J that the model surely leaves unexplained.
    parts
        Directions (k, m) of the error by cause, for the bar.
    """

    ratio: float
    factor: float
    share: float
    parts: dict[str, Array]


@dataclass(frozen=True, eq=False)
class Examination:
    """Confrontation of a model with a check."""

    check: Check
    model: ModelOfJ
    average: DenseAverage
    answers: Array

    def verdict(self) -> Verdict:
        weights, scale = self.check.weights / self.check.weights.sum(), self.check.scale
        rest = self._residuals / scale
        # What rounding leaves of values is no error.
        least = 1e-24 * ((self.check.values / scale) ** 2).mean(axis=(0, 1)) + np.finfo(float).tiny
        # Draws count equally where a model is judged: half of them are where f is sensitive. A
        # ratio that chance explains is no evidence, so its lower limit counts (one standard error).
        equal = np.full(len(weights), 1.0 / len(weights))
        square, doubt = _mean((rest**2).mean(axis=1), equal)
        expected = (self.model.expected_rms() / scale) ** 2
        ratio = float(np.max((square - doubt) / np.maximum(expected, least)))
        # Two independent x at a θ: the mean product of their residuals is that of (J − Ĵ)².
        products = rest[:, 0] * rest[:, 1]
        error, doubt = _mean(products, equal)
        claimed = ((self.model.sd(self.check.uniform) / scale) ** 2).mean(axis=0)
        excess = float(np.max((error - doubt) / np.maximum(claimed, least)))
        error, doubt = _mean(products, weights)
        lower, upper = (np.maximum(error + k * doubt, 0.0) for k in (-1.0, 2.0))
        variance = (self.model.sketch.j / scale).var(axis=0)
        share = float(np.max(lower / np.maximum(lower + variance, least)))
        # Doubt is full where the ratio is two or the share 10 %, and more for a model that explains
        # little. Where the ratio is one it is three tenths: nothing is believed that is much finer
        # than what the draws can tell, unless the model expects far more than they show.
        doubt_of = 0.3 * max(ratio, 0.0) ** np.log2(1.0 / 0.3), 2.0 + np.log10(max(share, 1e-3))
        doubted = float(np.clip(max(doubt_of), 0.0, 1.0)) * (1.0 + share)
        # The bar of a model that predicts g worse than a constant would is an opinion.
        if (square > (self.check.values / scale).var(axis=(0, 1))).any():
            doubted = 1.0 + share
        effect, spread = self._effects()
        # An effect of three standard errors is a fact, whatever is thought of the model.
        known = np.where(np.abs(effect) > 3.0 * spread, max(doubted, 1.0), doubted)
        parts = {
            "check": np.stack([known * effect, doubted * spread], axis=1),
            "events": self._out_of_sight(scale * np.sqrt(upper)),
        }
        return Verdict(ratio, max(1.0, ratio, excess) ** 0.5, share, parts)

    def _out_of_sight(self, error: Array) -> Array:
        """A bound for events of f that neither Ĵ nor the draws have reached, (k, q).

        Where f(Ĵ) is the same for nearly all θ, an event takes an error of k standard deviations:
        by Cantelli's inequality its probability is at most 1/(1 + k²), and at a confidence of 95 %
        it is below 3/m if none of m draws had one.
        """
        base = self.model.sketch
        weights = base.weights / base.weights.sum()
        f = self.average.f(base.j)
        away = np.abs(f - np.median(f, axis=0))
        events = away > 1e-6 * away.max(axis=0)
        count = events.sum(axis=0)
        rare = (count <= 20) & (count <= len(f) / 20)
        if (count == 0).any():  # not even a model that is right shows how far J reaches
            error = np.hypot(error, base.j.std(axis=0))
        bound = np.zeros(f.shape[1])
        if rare.any():
            k = 2.0 ** np.arange(0.0, 14.0)
            for sign in (1.0, -1.0):
                for step, chance in zip(
                    k, np.minimum(3.0 / len(self._residuals), 1.0 / (1.0 + k**2)), strict=True
                ):
                    moved = self.model.bounded(base.j + sign * step * error, base.uniform)
                    change = weights @ np.nan_to_num(np.abs(self.average.f(moved) - f))
                    bound = np.maximum(bound, chance * change)
        return (
            propagated(self.average.problem, self.answers, np.diag(np.where(rare, bound, 0.0))).T
            / NORMAL_95
        )

    @property
    def _residuals(self) -> Array:
        return self.check.residuals(self.model)

    def _effects(self) -> tuple[Array, Array]:
        """Change (k,) of the final answers that the residuals call for, and its standard error.

        J given Ĵ = s has the mean s + m(s), a line for each output, and a covariance V, both of
        which the pairs of residuals estimate without bias. Draws are resampled for the error.
        """
        stream = self.average.stream.child(8)
        felt = sensitive_set(
            self.average, self.model, _FELT, stream.child(0), size=_pool(self.model)
        )
        rng = stream.child(1).generator()
        noise = rng.standard_normal(felt.j.shape)
        center, spread = felt.j.mean(axis=0), felt.j.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        # A line is not trusted beyond four standard deviations.
        known = np.clip((self.model.mean(self.check.uniform) - center) / spread, -4.0, 4.0)
        places = np.clip((felt.j - center) / spread, -4.0, 4.0)
        base = self.average.f(felt.j)
        # A mean of g is within the range of its values.
        seen = np.concatenate([felt.j, *self.check.values.swapaxes(0, 1)])
        low, high = seen.min(axis=0), seen.max(axis=0)

        def change(rows: Indices) -> Array:
            rest, at = self._residuals[rows], known[rows]
            mean, left = np.empty_like(felt.j), np.empty_like(rest)
            for c in range(rest.shape[2]):
                start, slope = _line(at[:, c], rest[:, :, c].mean(axis=1))
                mean[:, c] = start + slope * places[:, c]
                left[:, :, c] = rest[:, :, c] - (start + slope * at[:, c])[:, None]
            both = left[:, 0].T @ left[:, 1] / len(left)
            values, vectors = np.linalg.eigh(0.5 * (both + both.T))
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            moved = np.clip(felt.j + mean + noise @ root.T, low, high)
            moved = self.model.bounded(moved, felt.uniform)
            f = self.average.f(moved)
            f = np.where(np.isfinite(f), f, base)
            changes = felt.weights @ np.nan_to_num(f - base) / felt.weights.sum()
            return propagated(self.average.problem, self.answers, changes)

        m = len(known)
        found = change(np.arange(m))
        resampled = [change(rng.integers(m, size=m)) for _ in range(_BOOTSTRAP)]
        scale = scale_of(np.array(resampled))
        return found, scale * np.std(resampled / scale, axis=0)


def unseen_errors(
    model: ModelOfJ, check: Check | None, average: DenseAverage, answers: Array
) -> Array:
    """Directions (k, m) of the error from values of g that no point has shown."""
    base, f = model.sketch, average.f(model.sketch.j)
    rest, known = [model.unexplained()], [base.j]
    if check is not None:
        known.append(check.values.reshape(-1, base.j.shape[1]))
        known += [one.values for one in check.witnesses]
        rest.append((check.residuals(model), check.weights))
        rest += [(one.residuals(model), one.weights) for one in check.witnesses]
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


def _mean(values: Array, weights: Array) -> tuple[Array, Array]:
    """Weighted mean of independent draws (m, p), and its standard error."""
    mean = weights @ values
    return mean, np.sqrt(weights**2 @ (values - mean) ** 2)


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Intercept and slope of least squares."""
    away = x - x.mean()
    square = float(away @ away)
    slope = float(away @ y) / square if square > 0 else 0.0
    return float(y.mean()) - slope * float(x.mean()), slope


def _pool(model: ModelOfJ) -> int:
    return min(pool_size(model), _POOL)
