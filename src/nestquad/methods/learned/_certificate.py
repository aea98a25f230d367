"""Certificate of an answer: an interval from fresh independent draws, whatever the model is worth.

I = E f(Ĵ) + E[f(J) − f(Ĵ)]. The first term is a dense average, free of g. The second is the mean of
independent draws: θ from a mixture of its law and of where f(Ĵ) is sensitive, with known weights,
fresh x given θ, and residuals r = g − ĝ, so that J = Ĵ + E[r | θ]. A mean r̄ of N residuals makes
f(Ĵ + r̄) biased, so a few θ have ever more of them: level l has N₀ 4^l, and its draws are the
differences between f(all) and the mean of f over the four quarters, which telescope to f(J).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.accuracy import order_of_smoothness, propagated, size_of, takes
from nestquad.clock import tick
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid
from nestquad.methods._method import Turn, assembled
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._base import Learned
from nestquad.methods.learned._model import DenseSet, ModelOfJ
from nestquad.methods.learned._sensitive import pool_size, sensitive_set
from nestquad.methods.nested import rare_event_errors
from nestquad.points import IID, Given, Stream, density, moved, periodic
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate

# Residuals at one θ: by which factor they grow from level to level, and the most. Beyond, what
# levels leave out is bounded. Four parts as in multilevel methods, where 4 … 8 are best.
_PARTS, _MOST = 4, 512
# Fewest θ of a level: below, their variance is not known to a factor of two.
_FEWEST = 16
# θ at which levels are tried out with residuals of the pilot, from as many neighbours on either
# side, since residuals often grow with J; and the most rows of ĝ at a time.
_TRIED, _NEAR, _ROWS = 1024, 4, 4096
# Slowest power of 1/N at which bias may fall. Measured for the logarithm of a narrow peak: what a
# doubling removes halves in three doublings, a power of a third.
_SLOWEST = 0.25
# Where J has to be positive, Ĵ + r̄ is no less than this share of the plain mean of g.
_LEAST = 0.1


def model_of(turn: Turn[Any]) -> Learned[Any] | None:
    """The learned model behind an answer; of several candidates', that of the smallest bar."""
    if isinstance(turn.state, Learned):
        return turn.state
    candidates = getattr(turn.state, "candidates", ())
    learned = [one for one in candidates if one.turn and isinstance(one.turn.state, Learned)]
    best = min(learned, key=lambda one: one.half_width, default=None)
    return None if best is None else best.turn.state


@dataclass(frozen=True)
class Levels:
    """Residuals N_l at each θ, and numbers n_l of θ, of all levels.

    `loss` is the mean square error to expect in units of the `spread` of f, and `beyond` (q,) the
    bias that more levels would remove.
    """

    n_inner: tuple[int, ...]
    n_outer: tuple[int, ...]
    loss: float = np.inf
    beyond: Array | float = 0.0
    spread: float = 1.0

    @property
    def half_width(self) -> float:
        """To expect, of the 95 % interval."""
        return NORMAL_95 * float(np.sqrt(self.loss)) * self.spread


@dataclass(frozen=True, eq=False)
class Draws:
    """Independent draws of one level: weighted differences of f, Ĵ + r̄, and residuals.

    `steps` are the sizes of weighted changes of f by the last two doublings of N, whose ratio shows
    how fast bias falls.

    Shapes: (n, q), (n, p), (n N, p), (n, 2, q).
    """

    values: Array
    j: Array
    residuals: Array
    steps: Array

    @classmethod
    def together(cls, batches: Sequence[Draws]) -> Draws:
        names = [one.name for one in fields(cls)]
        return cls(*(np.concatenate([getattr(d, name) for d in batches]) for name in names))


@dataclass(eq=False)
class Certificate:
    """An interval for I from fresh draws; `learned` is the model of J, None for none.

    Draws come in batches, each with a stream of its own. The sizes of the levels are planned with
    a pilot that does not count, so that they do not depend on the draws.
    """

    evaluator: Evaluator
    stream: Stream
    learned: Learned[Any] | None
    batches: list[list[Draws]] = field(default_factory=list)
    n_batches: int = 0
    sizes: tuple[int, ...] = ()
    n_evaluations: int = 0
    beyond: Array | float = 0.0

    @property
    def problem(self) -> NestedExpectation:
        return self.evaluator.problem

    @property
    def model(self) -> ModelOfJ | None:
        return None if self.learned is None else self.learned.model

    @cached_property
    def average(self) -> DenseAverage:
        scalar = self.learned.scalar if self.learned else self.pilot.ndim == 2
        return DenseAverage(self.problem, scalar, self.stream.child(0))

    fewest: ClassVar[int] = 512
    """Evaluations below which there is too little to see."""

    # The pilot: residuals that say how many draws each level needs.

    @cached_property
    def _pilot(self) -> Evaluations:
        rows, columns = (64, 2) if self.model else (32, 16)
        grid = Grid(rows, columns, IID(), IID(), None, self.stream.child(1))
        return Evaluations(self.evaluator, Design((self._with_edges(grid),)))

    @cached_property
    def pilot(self) -> Array:
        """Values of g (T, N[, p])."""
        return self._pilot.values(self._pilot.design.grids[0].n_outer)

    @cached_property
    def _known(self) -> tuple[DenseSet, Array]:
        """Tried θ with Ĵ, and residuals (T, N, p) of the pilot in the order of Ĵ."""
        values = self.pilot.reshape(*self.pilot.shape[:2], -1)
        if self.model is None:
            center = values.mean(axis=1)
            # Centered values vary too little, by (N − 1)/N.
            rest = (values - center[:, None]) * np.sqrt(values.shape[1] / (values.shape[1] - 1))
            order = np.argsort(center[:, 0])
            copies = np.repeat(center, _TRIED // len(center), axis=0)
            return DenseSet(copies[:, :0], np.ones(len(copies)), copies), rest[order]
        uniform = self._pilot.outer().uniform
        assert uniform is not None
        j = self.model.mean(uniform[: len(values)])
        rest, _ = self._residuals(self._pilot, 0, uniform[: len(values)], j, values)
        noise = np.sqrt(np.mean(rest**2, axis=(0, 1)))
        # Left-out residuals of the fit are many and show tails, unless they are means over x.
        left_out = self.model.residuals()
        if (np.sqrt(np.mean(left_out**2, axis=0)) >= 0.5 * noise).all():
            design = self.model.design
            total = np.cumsum(design.weights)
            picked = np.searchsorted(total, total[-1] * (np.arange(_TRIED) + 0.5) / _TRIED)
            j, rest = design.j[picked], left_out[picked, None]
        tried = sensitive_set(self.average, self.model, _TRIED, self.stream.child(2), noise)
        return tried, rest[np.argsort(j[:, 0], kind="stable")]

    @cached_property
    def _positive(self) -> Array:
        """Outputs (p,) of J that f needs positive: f refuses −J, and g is never negative."""
        j = self._known[0].j
        values = self.pilot.reshape(-1, j.shape[1])
        refused = not takes(self.problem, self.average._argument(-np.abs(j) - 1e-300))
        return np.asarray((values.min(axis=0) >= 0) & refused)

    def _tried(self, log2_most: int) -> Array:
        """Residuals (S, 2^most, p) at tried θ, resampled from the pilot's at θ of similar Ĵ."""
        points, rest = self._known
        rng = self.stream.child(3).generator()
        rows, columns = rest.shape[:2]
        rank = np.argsort(np.argsort(points.j[:, 0])) * rows // len(points.j)
        shape = (len(rank), 1 << log2_most)
        reach = max(_NEAR, rows // 16)
        near = np.clip(rank[:, None] + rng.integers(-reach, reach + 1, size=shape), 0, rows - 1)
        return np.asarray(rest[near, rng.integers(columns, size=shape)])

    def levels(self, n_evaluations: int) -> Levels:
        """Sizes of levels for about that many evaluations, by what residuals of the pilot do."""
        points, weights = self._known[0], self._known[0].weights[:, None]
        most = int(np.log2(np.clip(n_evaluations / (2 * _FEWEST), 16, _MOST)))
        drawn = self._tried(most)
        base = self.average.f(points.j) if self.model else 0.0
        floor = _LEAST * np.maximum(points.j, 0.0)[:, None]
        finer: list[Array] = []
        for power in range(most + 1):
            means = drawn.reshape(len(drawn), -1, 1 << power, drawn.shape[2]).mean(axis=2)
            j = points.j[:, None] + means[:, :_PARTS]
            finer.append(self.average.f(np.where(self._positive, np.maximum(j, floor), j)))
        with np.errstate(invalid="ignore"):
            spread = np.nanstd(np.where(np.isfinite(finer[-1]), finer[-1], np.nan), axis=(0, 1))
        spread = np.where(spread > 0, spread, 1.0)
        own = [weights * (f[:, 0] - base) / spread for f in finer]
        average = [(weights * f.mean(axis=1)).mean(axis=0) / spread for f in finer]
        # Near the end of the domain of f, two levels may agree by accident.
        least = 3 if self._positive.any() else 2
        best, loss = Levels((_PARTS,), (n_evaluations // _PARTS,)), np.inf
        for first in range(most - 1):
            terms, sizes = [own[first]], [1 << first]
            for last in range(first + 2, most + 1, 2):
                terms.append(weights * (finer[last][:, 0] - finer[last - 2].mean(axis=1)) / spread)
                sizes.append(1 << last)
                left = n_evaluations - _FEWEST * sum(sizes)
                if len(terms) < least:
                    continue
                deviations = np.sqrt([term.var(axis=0).sum() for term in terms])
                if not np.isfinite(deviations).all() or left <= 0:
                    continue
                total = float((deviations * np.sqrt(sizes)).sum())
                shares = deviations / np.sqrt(sizes) / max(total, 1e-300)
                # Bias that larger sizes would remove: as far as seen, and as `_rest` bounds it.
                inside = finer[last - 1][:, :2] - finer[last - 2].reshape(
                    len(drawn), 2, 2, -1
                ).mean(axis=2)
                after = finer[last][:, 0] - finer[last - 1][:, :2].mean(axis=1)
                sizes_of = [
                    (weights * change).mean(axis=0)
                    for change in (np.abs(inside).mean(axis=1), np.abs(after))
                ]
                slowness = 1.0 / (_PARTS ** self._rate(*sizes_of) - 1.0)
                beyond = np.abs(average[-1] - average[last])
                removed = np.abs(terms[-1].mean(axis=0))
                noise = deviations[-1] / np.sqrt(_FEWEST + left * shares[-1])
                bound = np.maximum(beyond, slowness * (removed + noise))
                if self._order == 0:
                    bound = np.maximum(bound, np.abs(terms[-1]).mean(axis=0))
                expected = total**2 / left + float((bound**2).sum())
                if expected < loss:
                    loss = expected
                    if total == 0:
                        shares[0] = 1.0 / sizes[0]
                    count = _FEWEST + np.floor(left * shares).astype(int)
                    outer = tuple(map(int, count))
                    size = float(spread.max())
                    best = Levels(tuple(sizes), outer, loss, beyond * spread, size)
        return best

    # Draws.

    def draw(self, n_evaluations: int) -> None:
        """One more batch of about that many evaluations.

        Levels telescope only if all batches have the same N_l. Other sizes begin anew, and only
        for more evaluations than were drawn with these.
        """
        levels = self.levels(n_evaluations)
        if self.batches and levels.n_inner != self.sizes:
            counts = [
                sum(len(batch[k].j) for batch in self.batches) for k in range(len(self.sizes))
            ]
            drawn = int(np.dot(counts, self.sizes))
            if n_evaluations > drawn:
                self.batches.clear()
            else:
                share = n_evaluations / drawn
                outer = tuple(max(int(share * count), 2) for count in counts)
                levels = replace(levels, n_inner=self.sizes, n_outer=outer, beyond=self.beyond)
        self.sizes, self.n_batches = levels.n_inner, self.n_batches + 1
        stream = self.stream.child(4, self.n_batches - 1)
        grids, chosen = [], []
        for level, (n, m) in enumerate(zip(levels.n_outer, levels.n_inner, strict=True)):
            grid = Grid(n, m, IID(), IID(), None, stream, level)
            if self.model is not None:
                own, noise = stream.child(level, 2), self._noise
                points = sensitive_set(self.average, self.model, n, own, noise)
                chosen.append(points)
                grid = self._with_edges(replace(grid, outer_points=Given(points.uniform)))
            grids.append(grid)
        evaluations = Evaluations(self.evaluator, Design(tuple(grids)))
        before = self.evaluator.n_evaluations
        batch = [
            self._drawn(evaluations, level, chosen[level] if chosen else None)
            for level in range(len(grids))
        ]
        self.n_evaluations += self.evaluator.n_evaluations - before
        self.batches.append(batch)
        self.beyond = levels.beyond

    @property
    def _noise(self) -> Array:
        return np.asarray(np.sqrt(np.mean(self._known[1] ** 2, axis=(0, 1))))

    def _with_edges(self, grid: Grid) -> Grid:
        """Half of the x from the density of the model's periodization, which prefers the ends."""
        if self.model is None or self.model.periodization == "tent":
            return grid
        rng = grid.inner_stream.generator()
        v = rng.random((grid.n_outer, grid.n_inner, self.problem.inner_base_dim))
        u = np.where(
            rng.random(v.shape[:2])[:, :, None] < 0.5, moved(self.model.periodization, v), v
        )
        return replace(grid, inner_points=Given(np.maximum(u, np.finfo(float).tiny)))

    def _weights(self, inner: Array) -> Array:
        """Weights (n, N, 1) that make such x a sample of their law, at most 2."""
        assert self.model is not None
        kind = self.model.periodization
        if kind == "tent":
            return np.ones((*inner.shape[:2], 1))
        w = density(kind, periodic(kind, inner))[:, :, None]
        return np.asarray(2.0 * w / (1.0 + w))

    def _drawn(self, evaluations: Evaluations, level: int, points: DenseSet | None) -> Draws:
        grid = evaluations.design.grids[level]
        raw = evaluations.values(grid.n_outer, level)
        values = raw.reshape(*raw.shape[:2], -1)
        n = len(values)
        if points is None:
            weights, center, residuals = np.ones((n, 1)), np.zeros((n, values.shape[2])), values
        else:
            weights, center = points.weights[:n, None], points.j[:n]
            residuals, values = self._residuals(
                evaluations, level, points.uniform[:n], center, values
            )

        def f(first: int, step: int) -> Array:
            """f at the mean of every so many residuals."""
            some = slice(first, None, step)
            return self.average.f(self._j(center, residuals[:, some], values[:, some]))

        j, found = self._j(center, residuals, values), f(0, 1)
        steps = np.zeros((n, 2, found.shape[1]))
        if level > 0:
            quarters = np.stack([f(k, _PARTS) for k in range(_PARTS)])
            halves = np.stack([f(k, 2) for k in range(2)])
            # The quarters k and k + 2 make up the half k.
            inside = halves - 0.5 * (quarters[:2] + quarters[2:])
            steps[:, 0] = np.abs(inside).mean(axis=0)
            steps[:, 1] = np.abs(found - halves.mean(axis=0))
            found = found - quarters.mean(axis=0)
        elif points is not None:
            found = found - self.average.f(center)
        rest = residuals.reshape(-1, residuals.shape[2])
        return Draws(np.asarray(weights * found), j, rest, weights[:, None] * steps)

    def _j(self, center: Array, residuals: Array, values: Array) -> Array:
        """Ĵ + r̄ (n, p), kept positive where f needs it.

        The bound tends to a share of J itself as residuals become many, so that the limit of the
        levels is f(J) whatever Ĵ is.
        """
        n = residuals.shape[1]
        j = center + residuals.mean(axis=1)
        least = _LEAST * (values.sum(axis=1) + np.maximum(center, 0.0)) / (n + 1.0)
        return np.asarray(np.where(self._positive, np.maximum(j, least), j))

    def _residuals(
        self, evaluations: Evaluations, level: int, uniform: Array, j: Array, values: Array
    ) -> tuple[Array, Array]:
        """g − ĝ (n, N, p), for a ĝ whose mean over x is J (n, p), and g; both weighted."""
        assert self.model is not None
        n, m, p = values.shape
        theta = self.problem.outer_law.from_uniform(uniform)
        inner = evaluations.inner(theta, (0, n), level).uniform
        assert inner is not None
        rows, x = np.repeat(uniform, m, axis=0), inner.reshape(n * m, -1)
        control = []
        for i in range(0, n * m, _ROWS):
            tick()
            control.append(self.model.at(rows[i : i + _ROWS], x[i : i + _ROWS], cautious=True))
        shift = (self.model.mean(uniform) - j)[:, None]
        weights = self._weights(inner)
        residuals = weights * (values - np.concatenate(control).reshape(n, m, p)) + shift
        return residuals, weights * values

    # The answer.

    def estimate(self) -> Estimate:
        """The interval from all batches."""
        draws = [Draws.together(level) for level in zip(*self.batches, strict=True)]
        means = [d.values.mean(axis=0) for d in draws]
        answers = np.sum(means, axis=0)
        parts: dict[str, Array] = {}
        notes: list[str] = []
        diagnostics: dict[str, Any] = {"n_by_level": [len(d.j) for d in draws], "notes": notes}
        shared = 0.0
        if self.model is not None:
            noise = max(float(d.values.std(axis=0).max() / np.sqrt(len(d.j))) for d in draws)
            dense = self.average.of(self.model, noise)
            answers = answers + dense.mean(axis=0)
            parts["average"] = self.average.errors(dense)
            diagnostics["model_answers"] = dense.mean(axis=0)
            shared = 1.0 / pool_size(self.model)
        if not all(np.isfinite(d.values).all() for d in draws):
            notes.append(
                "f is not finite at means of few values of g: no certificate; another "
                "parametrization, or a g that keeps J in the domain of f, would help"
            )
            answers = np.nan_to_num(answers, posinf=0.0, neginf=0.0)
            size = np.atleast_1d(self.problem.finish(answers)).size
            parts["domain"] = np.full((size, 1), np.inf)
            return self._assembled(answers, parts, diagnostics, np.inf)
        # Draws of a level share a pool of θ, whose own variance is that of a draw over its size.
        influence = [
            np.sqrt(1.0 + shared * len(d.j))
            * propagated(self.problem, answers, (d.values - mean) / len(d.j)).T
            for d, mean in zip(draws, means, strict=True)
        ]
        dof = degrees_of_freedom(influence)
        student = float(stdtrit(dof, 0.975)) / NORMAL_95
        # As for rare events there may be three more as large as the largest, or one beyond it: the
        # mean of a tail of index α beyond a bound is α/(α − 1) times the bound.
        alpha = max(tail_index(np.concatenate([d.residuals for d in draws])), 1.1)
        largest = np.max([np.abs(one).max(axis=1) for one in influence], axis=0)
        unseen = max(np.sqrt(3.0), alpha / (alpha - 1.0)) * largest[:, None]
        parts["draws"] = student * np.concatenate([*influence, unseen], axis=1)
        parts["levels"] = np.diag(self._rest(draws[-1], alpha))
        parts["levels"] = np.abs(propagated(self.problem, answers, parts["levels"])).T
        floor = propagated(self.problem, answers, np.diag(self._unseen(draws[0]))).T
        if size_of(floor) > size_of(parts["draws"]):
            notes.append("few or no draws changed f: the interval bounds what was not seen")
            parts["events"] = floor
        # Values of g are rounded, and sums of them.
        j = self._known[0].j
        shifted = self.average.f(j * (1.0 + 32.0 * np.finfo(float).eps)) - self.average.f(j)
        rounding = np.diag(np.nan_to_num(np.abs(shifted).mean(axis=0)))
        parts["rounding"] = propagated(self.problem, answers, rounding).T
        return self._assembled(answers, parts, diagnostics, dof)

    def _rest(self, last: Draws, alpha: float) -> Array:
        """Bounds (q,) for the bias that levels beyond the last would remove.

        It falls like 1/N if residuals have a variance and f is smooth on the scale of r̄, like
        N^(1 − α) if they have moments of orders below α < 2 only, like 1/√N at worst where f jumps,
        and otherwise as changes of f by the last two doublings do. So what the last level removed
        is continued as a geometric series. The pilot may see more, but no more than the last level
        and its noise. Where f jumps and J is close to the jump at many θ, f is undecided there, and
        its bias may be as large.
        """
        values = last.values
        removed, noise = np.abs(values.mean(axis=0)), values.std(axis=0) / np.sqrt(len(values))
        rate = np.minimum(self._rate(*last.steps.mean(axis=0)), max(alpha - 1.0, _SLOWEST))
        rest = (removed + noise) / (_PARTS**rate - 1.0)
        if self._order == 0:
            rest = np.maximum(rest, np.abs(values).mean(axis=0))
        return np.asarray(np.maximum(rest, np.minimum(self.beyond, removed + 2.0 * noise)))

    def _rate(self, before: Array, after: Array) -> Array:
        """Power of 1/N at which bias falls (q,), by sizes of changes of f by two doublings."""
        with np.errstate(divide="ignore", invalid="ignore"):
            seen = np.where(after > 0, np.log2(before / after), 1.0)
        return np.asarray(np.clip(seen, _SLOWEST, 1.0 if self._order else 0.5))

    @cached_property
    def _order(self) -> int:
        """The smoothness of f where J can be: 0 with jumps, 1 with kinks."""
        j = self._known[0].j
        positive = bool(self._positive.any())
        if positive:
            j = j[(j > 0).all(axis=1)]
        if len(j) < 2:
            return 0
        return order_of_smoothness(self.problem, self.average._argument(j), logarithmic=positive)

    def _unseen(self, draws: Draws) -> Array:
        """Standard errors (q,) for changes of f that the draws may have missed.

        A continuous f changes as little as J does, unless it was the same at all of them.
        """
        j = self.average._argument(draws.j)
        if self._order > 0 and np.ptp(self.average.f(draws.j), axis=0).all():
            return np.zeros(draws.values.shape[1])
        equal = np.full(draws.values.shape, 1.0 / len(j))
        usual = np.median(self.average.f(draws.j), axis=0)
        changes = np.where(draws.values.any(axis=0), draws.values, usual)
        errors = rare_event_errors(self.problem, j, changes, equal)
        # Beside sensitive ones, θ from the law are half of the draws.
        share = 1.0 if self.model is None else 0.5
        return errors if draws.values.any() else errors / share

    def _assembled(
        self, answers: Array, parts: dict[str, Array], diagnostics: dict[str, Any], dof: float
    ) -> Estimate:
        n_outer = sum(diagnostics["n_by_level"])
        diagnostics["notes"].insert(
            0, f"{self.n_evaluations:,} fresh evaluations of g at {n_outer:,} theta"
        )
        found = assembled(
            self.problem,
            answers,
            parts,
            diagnostics,
            n_evaluations=self.n_evaluations,
            n_outer=n_outer,
            n_inner=max(1, round(self.n_evaluations / n_outer)),
            method="certificate",
        )
        # Degrees of freedom of a sum of independent errors (Welch–Satterthwaite).
        variances = {name: size_of(part) ** 2 for name, part in parts.items()}
        total, drawn = sum(variances.values()), variances.get("draws", 0.0)
        return replace(found, dof=dof * (total / drawn) ** 2 if 0 < drawn < np.inf else np.inf)


def tail_index(residuals: Array) -> float:
    """Order below which moments of residuals (n, p) exist: Hill's estimator on the largest 1 %.

    The least over outputs; at least 16 residuals count.
    """
    sizes = np.sort(np.abs(residuals), axis=0)[::-1]
    count = min(max(16, len(sizes) // 100), len(sizes) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.log(sizes[:count] / sizes[count]).mean(axis=0)
    excess = np.where(sizes[count] > 0, excess, np.where(sizes[0] > 0, np.inf, 0.0))
    return float(1.0 / max(float(excess.max()), 1e-9))


def degrees_of_freedom(influence: Sequence[Array]) -> float:
    """Of a sum of means of independent draws, from their influences (k, n) on the answers.

    The variance estimate of n draws with kurtosis κ has a relative variance of (κ − 1)/n, a χ²
    variable with ν degrees of freedom one of 2/ν. Few draws, and few that carry all the variance,
    both mean few degrees of freedom. The least over the answers.
    """
    total = sum((one**2).sum(axis=1) for one in influence)
    doubt = sum(
        np.maximum((one**4).sum(axis=1) - (one**2).sum(axis=1) ** 2 / one.shape[1], 0.0)
        for one in influence
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(doubt > 0, 2.0 * total**2 / doubt, np.inf)
    return float(np.clip(np.min(found), 2.0, 1e9))
