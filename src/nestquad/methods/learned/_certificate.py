"""Certificate: a model-assisted difference estimator with a multilevel correction.

I = E f(Ĵ) + E[f(J) − f(Ĵ)] (Särndal, Swensson and Wretman 1992, Model assisted survey sampling).
The first term is a dense average, free of g. The second is a mean of fresh independent draws, at θ
from a mixture of their law and of the region where f(Ĵ) is sensitive, with known weights. The
interval rests on the draws alone, however good or bad the model is.

Residuals r = g − ĝ at a θ have mean J − Ĵ, and f(Ĵ + r̄) is biased. Differences between f at all
residuals of a θ and its mean over their quarters telescope to f(J) (Giles 2015, Multilevel Monte
Carlo methods; Bujok, Hambly and Reisinger 2015, Multilevel simulation of functionals of Bernoulli
random variables). The number of levels is fixed, and the rest of the series bounded: a random
number of levels (Blanchet and Glynn 2015, Unbiased Monte Carlo for optimization and functions of
expectations) has no finite variance where f jumps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.accuracy import (
    degrees_of_freedom,
    is_discontinuous,
    propagated,
    size_of,
    tail_shape,
    takes,
)
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid
from nestquad.methods._events import unreached_change
from nestquad.methods._method import Turn, assembled
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._base import Learned
from nestquad.methods.learned._evidence import pool_size, sensitive_set, spread_of
from nestquad.methods.learned._model import DenseSet, ModelOfJ, control_at
from nestquad.points import IID, Given, Stream, density, moved, periodic
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate


@dataclass(frozen=True)
class CertificateSettings:
    """Tuning numbers of a certificate.

    Attributes
    ----------
    parts
        Factor by which residuals at a θ grow from level to level: 4 … 8 are best (Giles 2015, §6).
    least_inner, most_inner
        Residuals at a θ of the first level at least, and of the last at most.
    fewest_outer
        θ of a level at least: the relative error of a variance is √(2/32), a quarter. Fewer where
        they would be more than one in 32 evaluations.
    pilot, plain_pilot
        θ and x of the pilot with a model, and without: it shows the noise to a tenth.
    n_simulated, reach
        θ at which levels are simulated, and neighbors in Ĵ on each side whose residuals they take:
        residuals grow with J, and a logarithm sees them relative to J.
    slowest
        Least power of 1/N of the bias, for residuals with heavy tails.
    least_share
        Least Ĵ + r̄ where f needs J > 0, as a share of the plain mean of g.
    """

    parts: int = 4
    least_inner: int = 1
    most_inner: int = 512
    fewest_outer: int = 32
    pilot: tuple[int, int] = (64, 2)
    plain_pilot: tuple[int, int] = (32, 16)
    n_simulated: int = 1024
    reach: int = 4
    slowest: float = 0.25
    least_share: float = 0.1


def mean_products(rest: Array) -> Array:
    """Mean products (n[, p]) of two different of N residuals (n, N[, p])."""
    n = rest.shape[1]
    return np.asarray((rest.sum(axis=1) ** 2 - (rest**2).sum(axis=1)) / (n * (n - 1.0)))


@dataclass(frozen=True)
class LevelSizes:
    """Residuals N_l at each θ and numbers n_l of θ by level, and the half-width to expect."""

    n_inner: tuple[int, ...]
    n_outer: tuple[int, ...]
    half_width: float = np.inf


class Residuals(NamedTuple):
    """θ as uniforms (n, d) with weights (n, 1), Ĵ (n, p), and g − ĝ and g at N x, (n, N, p)."""

    uniform: Array
    weights: Array
    center: Array
    rest: Array
    values: Array


@dataclass(eq=False)
class Certificate:
    """Interval for I from fresh draws; `model` is the model of J, None for Ĵ = 0.

    Draws come in batches with separate streams; `seen` are the residuals of all batches by
    level, `planned` the levels of the last. Levels are planned by a pilot that does not count, so
    that they do not depend on the draws.
    """

    evaluator: Evaluator
    stream: Stream
    model: ModelOfJ | None
    settings: CertificateSettings = field(default_factory=CertificateSettings)
    seen: list[Residuals] = field(default_factory=list)
    planned: LevelSizes = field(default_factory=lambda: LevelSizes((), ()))
    n_batches: int = 0
    n_evaluations: int = 0
    met: Array | float = 0.0
    """Standard errors (q,) for events that evaluations outside of the certificate have met."""

    fewest: ClassVar[int] = 512
    """Evaluations below which there is too little to see."""

    @property
    def problem(self) -> NestedExpectation:
        return self.evaluator.problem

    @cached_property
    def average(self) -> DenseAverage:
        return DenseAverage(self.problem, self.pilot.ndim == 2, self.stream.child(0))

    @cached_property
    def _pilot(self) -> Evaluations:
        sizes = self.settings.pilot if self.model else self.settings.plain_pilot
        grid = self._grid(*sizes, IID(), self.stream.child(1))
        return Evaluations(self.evaluator, Design((grid,)))

    @cached_property
    def pilot(self) -> Array:
        """Values of g (T, N[, p])."""
        return self._pilot.values(self._pilot.design.grids[0].n_outer)

    def draw(self, n_evaluations: int) -> None:
        """One more batch of about `n_evaluations`.

        Levels telescope only if all batches have the same N_l. Other sizes begin anew, and only
        for more evaluations than were drawn with these.
        """
        levels, last = self.levels(n_evaluations), self.planned
        if self.seen and levels.n_inner != last.n_inner:
            counts = np.array([len(level.center) for level in self.seen])
            share = n_evaluations / float(counts @ last.n_inner)
            if share <= 1:
                fewer = np.maximum(share * counts, 2).astype(int)
                levels = replace(last, n_outer=tuple(fewer.tolist()))
        before = self.evaluator.n_evaluations
        drawn = self._sample(levels, self.stream.child(4, self.n_batches))
        if self.seen and levels.n_inner == last.n_inner:
            pairs = zip(self.seen, drawn, strict=True)
            drawn = [Residuals(*map(np.concatenate, zip(*pair, strict=True))) for pair in pairs]
        self.seen, self.planned, self.n_batches = drawn, levels, self.n_batches + 1
        self.n_evaluations += self.evaluator.n_evaluations - before

    def estimate(self) -> Estimate:
        """Interval from all batches."""
        values = [self._draws_of(level, k == 0) for k, level in enumerate(self.seen)]
        counts = [len(v) for v in values]
        answers = np.sum([v.mean(axis=0) for v in values], axis=0)
        notes = [f"{self.n_evaluations:,} fresh evaluations of g at {sum(counts):,} theta"]
        diagnostics: dict[str, Any] = {"n_by_level": counts, "notes": notes}
        parts: dict[str, Array] = {}
        if self.model is not None:
            error = max(float((v.std(axis=0) / np.sqrt(len(v))).max()) for v in values)
            dense = self.average.of(self.model, error)
            answers = answers + dense.mean(axis=0)
            parts["average"] = self.average.errors(dense)
            diagnostics["model_answers"] = dense.mean(axis=0)
        dof = np.inf
        if np.isfinite(answers).all():
            dof = self._add_errors(parts, answers, values)
            if size_of(parts["events"]) > size_of(parts["draws"]):
                notes.append("few or no draws changed f: the interval bounds what was not seen")
        else:
            notes.append(
                "f is not finite at means of few values of g: no certificate; another "
                "parametrization, or a g that keeps J in the domain of f, would help"
            )
            answers = np.nan_to_num(answers, posinf=0.0, neginf=0.0)
            parts["domain"] = np.full((np.size(self.problem.finish(answers)), 1), np.inf)
        n_outer = sum(counts)
        return assembled(
            self.problem,
            answers,
            parts,
            diagnostics,
            n_evaluations=self.n_evaluations,
            n_outer=n_outer,
            n_inner=max(1, round(self.n_evaluations / n_outer)),
            method="certificate",
            dof=dof,
        )

    def _add_errors(self, parts: dict[str, Array], answers: Array, values: list[Array]) -> float:
        """Add directions (k, m) of errors to the parts, by draws (n_l, q); degrees of freedom."""

        def directions(sizes: Array) -> Array:
            return np.asarray(propagated(self.problem, answers, np.diag(sizes)).T)

        # Draws of a level share a pool of θ, whose own variance is that of a draw over its size.
        shared = 1.0 / pool_size(self.model) if self.model is not None else 0.0
        influence = [
            np.sqrt(1.0 + shared * len(v))
            * propagated(self.problem, answers, (v - v.mean(axis=0)) / len(v)).T
            for v in values
        ]
        # As for rare events there may be three more as large as the largest, or one beyond it: the
        # mean of a tail of shape k beyond a bound is 1/(1 − k) times the bound.
        residuals = [level.rest.reshape(-1, level.rest.shape[2]) for level in self.seen]
        alpha = max(1.0 / max(tail_shape(np.concatenate(residuals)), 1e-9), 1.1)
        largest = np.max([np.abs(part).max(axis=1) for part in influence], axis=0)
        unseen = max(np.sqrt(3.0), alpha / (alpha - 1.0)) * largest[:, None]
        dof = degrees_of_freedom(influence)
        student = float(stdtrit(dof, 0.975)) / NORMAL_95
        parts["draws"] = student * np.concatenate([*influence, unseen], axis=1)
        parts["levels"] = np.abs(directions(self._bias_bound(values[-1], len(values[-1]), alpha)))
        parts["events"] = directions(self._event_errors())
        # Values of g are rounded, and sums of them.
        j = self._points.j
        shifted = self.average.f(j * (1.0 + 32.0 * np.finfo(float).eps)) - self.average.f(j)
        parts["rounding"] = directions(np.nan_to_num(np.abs(shifted).mean(axis=0)))
        # Degrees of freedom of a sum of independent errors (Welch 1947, Satterthwaite 1946).
        drawn, total = size_of(parts["draws"]) ** 2, sum(size_of(p) ** 2 for p in parts.values())
        return dof * (total / drawn) ** 2 if 0 < drawn < np.inf else np.inf

    def _event_errors(self) -> Array:
        """Standard errors (q,) for changes of f that no draw of full weight has shown.

        Draws where f(Ĵ) is sensitive have small weights, and do not show events elsewhere. If
        none of n draws of weight one or more has shown a change, it has a probability of 3/n at
        most (rule of three), and at most 1/(1 + k²) where it takes an error of Ĵ of k standard
        deviations (Cantelli's inequality). If no draw at all has shown one, even an exact model
        does not tell how far J reaches, and its spread counts as an error.
        """
        every, f = self.seen[0], self.average.f
        first = Residuals(*(part[every.weights[:, 0] >= 1.0] for part in every))
        changed, elsewhere = (
            (f(seen.center + seen.rest.mean(axis=1)) != f(seen.center)).any(axis=0)
            for seen in (first, every)
        )
        j = first.center + first.rest.mean(axis=1)
        known, deviation = np.broadcast_to(j.mean(axis=0), j.shape), j.std(axis=0)
        if self.model is not None:
            known = self.model.best.mean(first.uniform)
            spread = 0.0 if elsewhere.all() else deviation
            deviation = np.hypot(self._deviation(first, known), spread)
        weights = first.weights * len(first.weights) / len(every.weights)
        bound = unreached_change(
            lambda moved: weights * f(moved), known, weights * f(known), deviation, len(j)
        )
        return np.hypot(np.where(changed, 0.0, bound / NORMAL_95), self.met)

    def _deviation(self, seen: Residuals, known: Array) -> Array:
        """Upper limits (p,) of the root mean square of J less a model of it, `known` (n, p)."""
        rest = [seen.rest + (seen.center - known)[:, None]]
        if self.model is not None and self.model.best is self.model:
            rest.append(self._pilot_residuals[1])
        products = np.concatenate([mean_products(part) for part in rest if part.shape[1] > 1])
        upper = products.mean(axis=0) + 2.0 * products.std(axis=0) / np.sqrt(len(products))
        return np.asarray(np.sqrt(np.maximum(upper, 0.0)))

    # Planning.

    @cached_property
    def _pilot_residuals(self) -> tuple[Array, Array]:
        """Ĵ (T, p) at the θ of the pilot in increasing order, and residuals (T, N, p) there."""
        values = self.pilot.reshape(*self.pilot.shape[:2], -1)
        if self.model is None:
            j = values.mean(axis=1)
            # Centered values vary too little, by (N − 1)/N.
            rest = (values - j[:, None]) * np.sqrt(values.shape[1] / (values.shape[1] - 1))
        else:
            uniform = self._pilot.outer().uniform
            assert uniform is not None
            j = self.model.mean(uniform[: len(values)])
            rest = self._residuals(self._pilot, 0, DenseSet(uniform, np.ones(len(j)), j)).rest
        order = np.argsort(j[:, 0], kind="stable")
        return j[order], rest[order]

    def _sensitive(self, model: ModelOfJ, n: int, stream: Stream) -> DenseSet:
        """n θ, half of them where noise of a residual changes f(Ĵ)."""
        noise = np.sqrt(np.mean(self._pilot_residuals[1] ** 2, axis=(0, 1)))
        return sensitive_set(self.average, model, n, stream, noise)

    @cached_property
    def _points(self) -> DenseSet:
        """θ at which levels are simulated, with Ĵ; means of the pilot without a model."""
        n = self.settings.n_simulated
        if self.model is not None:
            return self._sensitive(self.model, n, self.stream.child(2))
        means = self._pilot_residuals[0]
        j = np.repeat(means, n // len(means), axis=0)
        return DenseSet(j[:, :0], np.ones(n), j)

    @cached_property
    def _positive(self) -> Array:
        """Outputs (p,) of J that f needs positive: f refuses −J, and g is never negative."""
        j = self._points.j
        refused = not takes(self.problem, self.average.argument(-np.abs(j) - 1e-300))
        return np.asarray((self.pilot.reshape(-1, j.shape[1]).min(axis=0) >= 0) & refused)

    @cached_property
    def _has_jumps(self) -> bool:
        return is_discontinuous(self.problem, self.average.argument(self._points.j))

    def _simulated(self, n: int) -> Residuals:
        """n residuals at each of the points, resampled from the pilot at θ of similar Ĵ."""
        points, rest, reach = self._points, self._pilot_residuals[1], self.settings.reach
        rng, rows, shape = self.stream.child(3).generator(), len(rest), (len(points.j), n)
        rank = np.argsort(np.argsort(points.j[:, 0])) * rows // len(points.j)
        near = np.clip(rank[:, None] + rng.integers(-reach, reach + 1, size=shape), 0, rows - 1)
        drawn = rest[near, rng.integers(rest.shape[1], size=shape)]
        usual = np.broadcast_to(np.maximum(points.j, 0.0)[:, None], drawn.shape)
        return Residuals(points.uniform, points.weights[:, None], points.j, drawn, usual)

    def levels(self, n_evaluations: int) -> LevelSizes:
        """Sizes of levels for about `n_evaluations`: the least expected square error.

        For each first and last N, numbers of θ follow Neyman's allocation (Neyman 1934, On the two
        different aspects of the representative method) by simulated draws; the square error is
        their variance and the squared bound of the bias.
        """
        own = self.settings
        fewest = min(own.fewest_outer, n_evaluations // own.fewest_outer)
        most = int(np.log2(np.clip(n_evaluations / (2 * fewest), 16, own.most_inner)))
        simulated = self._simulated(1 << most)
        spread = spread_of(self.average.f(simulated.center + simulated.rest.mean(axis=1)))
        drawn = [
            simulated._replace(
                rest=simulated.rest[:, : 1 << k], values=simulated.values[:, : 1 << k]
            )
            for k in range(most + 1)
        ]
        first = [self._draws_of(part, True) / spread for part in drawn]
        later = {k: self._draws_of(drawn[k], False) / spread for k in range(2, most + 1)}
        best = LevelSizes((own.parts,), (n_evaluations // own.parts,))
        # Near the end of the domain of f, two levels may agree by accident.
        least = 4 if self._positive.any() else 2
        start = own.least_inner.bit_length() - 1
        ends = [(k, i) for k in range(start, most + 1) for i in range(k + least, most + 1, 2)]
        for k, last in ends:
            powers = np.arange(k, last + 1, 2)
            sizes, terms = 2**powers, [first[k], *(later[i] for i in powers[1:])]
            deviations = np.sqrt([term.var(axis=0).sum() for term in terms])
            left = n_evaluations - fewest * int(sizes.sum())
            if left <= 0 or not np.isfinite(deviations).all():
                continue
            total = float(deviations @ np.sqrt(sizes))
            # All draws belong to the first level if g does not vary.
            shares = deviations * np.sqrt(sizes) / total if total > 0 else 1.0 * (powers == k)
            counts = fewest + np.floor(left * shares / sizes).astype(int)
            bias = self._bias_bound(terms[-1], int(counts[-1]))
            error = np.sqrt(total**2 / left + (bias**2).sum())
            half = float(NORMAL_95 * spread.max() * error)
            if half < best.half_width:
                best = LevelSizes(tuple(sizes.tolist()), tuple(counts.tolist()), half)
        return best

    # Draws.

    def _sample(self, levels: LevelSizes, stream: Stream) -> list[Residuals]:
        """Residuals of each level, at θ from the law and from where f(Ĵ) is sensitive."""
        chosen = [
            self._sensitive(self.model, n, stream.child(k, 2)) if self.model is not None else None
            for k, n in enumerate(levels.n_outer)
        ]
        outer = [IID() if points is None else Given(points.uniform) for points in chosen]
        sizes = zip(levels.n_outer, levels.n_inner, outer, strict=True)
        grids = tuple(self._grid(*size, stream, k) for k, size in enumerate(sizes))
        evaluations = Evaluations(self.evaluator, Design(grids))
        return [self._residuals(evaluations, k, points) for k, points in enumerate(chosen)]

    def _grid(self, n: int, m: int, outer: IID | Given, stream: Stream, level: int = 0) -> Grid:
        """m independent x at n θ, half of them from the density of the model's periodization.

        ĝ has a finite variance under that density, which prefers the ends. Defensive importance
        sampling: Hesterberg 1995, Weighted average importance sampling.
        """
        grid = Grid(n, m, outer, IID(), None, stream, level)
        if self.model is None or self.model.periodization == "tent":
            return grid
        rng = grid.inner_stream.generator()
        v = rng.random((n, m, self.problem.inner_base_dim))
        at_ends = rng.random((n, m, 1)) < 0.5
        u = np.where(at_ends, moved(self.model.periodization, v), v)
        return replace(grid, inner_points=Given(np.maximum(u, np.finfo(float).tiny)))

    def _residuals(
        self, evaluations: Evaluations, level: int, points: DenseSet | None
    ) -> Residuals:
        """Weighted g − ĝ and g at the points of a level, for a ĝ whose mean over x is their Ĵ."""
        raw = evaluations.values(evaluations.design.grids[level].n_outer, level)
        values = raw.reshape(*raw.shape[:2], -1)
        n, m, p = values.shape
        if points is None or self.model is None:
            zeros = np.zeros((n, p))
            return Residuals(zeros[:, :0], np.ones((n, 1)), zeros, values, values)
        uniform, weights, kind = points.uniform[:n], np.ones((n, m, 1)), self.model.periodization
        theta = self.problem.outer_law.from_uniform(uniform)
        inner = evaluations.inner(theta, (0, n), level).uniform
        if kind != "tent" and inner is not None:
            ratio = density(kind, periodic(kind, inner))[:, :, None]
            weights = 2.0 * ratio / (1.0 + ratio)
        x = np.empty((n, m, 0)) if inner is None else inner
        rest = weights * (values - control_at(self.model, uniform, x, cautious=True))
        rest += (self.model.mean(uniform) - points.j[:n])[:, None]
        return Residuals(uniform, points.weights[:n, None], points.j[:n], rest, weights * values)

    def _draws_of(self, seen: Residuals, is_first: bool) -> Array:
        """Weighted draws (n, q): f(Ĵ + r̄) − f(Ĵ) of the first level, antithetic ones of later.

        Where f needs J > 0, Ĵ + r̄ has a lower bound that tends to a share of J as residuals become
        many, so that the limit of the levels is f(J) for any Ĵ.
        """

        def f(start: int = 0, step: int = 1) -> Array:
            rest, values = seen.rest[:, start::step], seen.values[:, start::step]
            mean = seen.center + rest.mean(axis=1)
            total = values.sum(axis=1) + np.maximum(seen.center, 0.0)
            least = self.settings.least_share * total / (rest.shape[1] + 1.0)
            return self.average.f(np.where(self._positive, np.maximum(mean, least), mean))

        if not is_first:
            base = np.mean([f(k, self.settings.parts) for k in range(self.settings.parts)], axis=0)
        else:
            base = self.average.f(seen.center) if self.model is not None else 0.0
        return np.asarray(seen.weights * (f() - base))

    def _bias_bound(self, values: Array, n: int, alpha: float = np.inf) -> Array:
        """Bounds (q,) for the bias that levels beyond the last would remove.

        The mean difference of the last level, (n, q), with its standard error is continued as a
        geometric series. Bias is taken to fall like 1/√N, or like N^(1 − α) for residuals of tail
        index α < 3/2: slower than the 1/N of smooth f (Giles 2015). Where f jumps close to J
        at many θ, the bias may be as large as differences.
        """
        rate = max(min(0.5, alpha - 1.0), self.settings.slowest)
        removed = np.abs(values.mean(axis=0)) + values.std(axis=0) / np.sqrt(n)
        bound = removed / (self.settings.parts**rate - 1.0)
        least = np.abs(values).mean(axis=0) if self._has_jumps else 0.0
        return np.asarray(np.maximum(bound, least))


def model_of(turn: Turn[Any]) -> ModelOfJ | None:
    """Learned model behind an answer; of several candidates', that of the smallest bar."""
    if isinstance(turn.state, Learned):
        model: ModelOfJ = turn.state.model
        return model
    candidates = getattr(turn.state, "candidates", ())
    learned = [c for c in candidates if c.turn and isinstance(c.turn.state, Learned)]
    learned.sort(key=lambda candidate: candidate.half_width)
    return model_of(learned[0].turn) if learned else None
