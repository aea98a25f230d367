"""Draws of f(J) − f(Ĵ) by a multilevel correction: antithetic differences, and their sizes.

Residuals r = g − ĝ at a θ have mean J − Ĵ, and f(Ĵ + r̄) is biased. Differences between f at all
residuals of a θ and its mean over their quarters telescope to f(J) (Giles 2015, Multilevel Monte
Carlo methods; Bujok, Hambly and Reisinger 2015, Multilevel simulation of functionals of Bernoulli
random variables). The number of levels is fixed, and the rest of the series bounded: a random
number of levels (Blanchet and Glynn 2015, Unbiased Monte Carlo for optimization and functions of
expectations) has no finite variance where f jumps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from nestquad._typing import Array
from nestquad.accuracy import order_of_smoothness, takes
from nestquad.clock import tick
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._model import DenseSet, ModelOfJ
from nestquad.methods.learned._sensitive import sensitive_set
from nestquad.points import IID, Given, Stream, density, moved, periodic
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95


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
        θ of a level at least, so that its variance is known to a factor of two.
    pilot, plain_pilot
        θ and x of the pilot with a model, and without: it shows the noise to a tenth.
    n_tried, reach
        θ at which levels are simulated, and neighbors in Ĵ on each side (at least) whose residuals
        they take: residuals grow with J.
    slowest
        Least power of 1/N of the bias. For the logarithm of a narrow peak it is a third.
    least_share
        Least Ĵ + r̄ where f needs J > 0, as a share of the plain mean of g.
    rows
        Rows of ĝ at a time: a limit of memory.
    """

    parts: int = 4
    least_inner: int = 1
    most_inner: int = 512
    fewest_outer: int = 16
    pilot: tuple[int, int] = (64, 2)
    plain_pilot: tuple[int, int] = (32, 16)
    n_tried: int = 1024
    reach: int = 4
    slowest: float = 0.25
    least_share: float = 0.1
    rows: int = 4096


@dataclass(frozen=True)
class Levels:
    """Residuals N_l at each θ and numbers n_l of θ by level, and the half-width to expect.

    `beyond` (q,) is the bias that more levels would remove.
    """

    n_inner: tuple[int, ...]
    n_outer: tuple[int, ...]
    half_width: float = np.inf
    beyond: Array | float = 0.0


@dataclass(frozen=True, eq=False)
class Residuals:
    """θ as uniforms (n, d) with weights (n, 1), Ĵ (n, p), and g − ĝ and g at N x, (n, N, p)."""

    uniform: Array
    weights: Array
    center: Array
    rest: Array
    values: Array

    def first(self, n: int) -> Residuals:
        """The first n residuals at each θ."""
        return replace(self, rest=self.rest[:, :n], values=self.values[:, :n])

    def with_others(self, other: Residuals) -> Residuals:
        return Residuals(
            *(
                np.concatenate([getattr(self, part.name), getattr(other, part.name)])
                for part in fields(self)
            )
        )


@dataclass(frozen=True, eq=False)
class Differences:
    """Sampler of differences of f at J and at Ĵ; `model` is the model of J, None for Ĵ = 0.

    Sizes of levels are planned by a pilot that does not count: they do not depend on the draws.
    """

    evaluator: Evaluator
    stream: Stream
    model: ModelOfJ | None
    settings: CertificateSettings

    @property
    def problem(self) -> NestedExpectation:
        return self.evaluator.problem

    @cached_property
    def average(self) -> DenseAverage:
        return DenseAverage(self.problem, self.pilot.ndim == 2, self.stream.child(0))

    @cached_property
    def _pilot(self) -> Evaluations:
        sizes = self.settings.pilot if self.model else self.settings.plain_pilot
        grid = Grid(*sizes, IID(), IID(), None, self.stream.child(1))
        return Evaluations(self.evaluator, Design((self._with_edges(grid),)))

    @cached_property
    def pilot(self) -> Array:
        """Values of g (T, N[, p])."""
        return self._pilot.values(self._pilot.design.grids[0].n_outer)

    @cached_property
    def tried(self) -> tuple[DenseSet, Array]:
        """θ at which levels are simulated, with Ĵ, and residuals (T, N, p) in the order of Ĵ."""
        values, n = self.pilot.reshape(*self.pilot.shape[:2], -1), self.settings.n_tried
        if self.model is None:
            j = values.mean(axis=1)
            # Centered values vary too little, by (N − 1)/N.
            rest = (values - j[:, None]) * np.sqrt(values.shape[1] / (values.shape[1] - 1))
            copies = np.repeat(j, n // len(j), axis=0)
            return DenseSet(copies[:, :0], np.ones(n), copies), rest[np.argsort(j[:, 0])]
        uniform = self._pilot.outer().uniform
        assert uniform is not None
        j = self.model.mean(uniform[: len(values)])
        rest = self._residuals(self._pilot, 0, DenseSet(uniform, np.ones(len(j)), j)).rest
        noise = np.sqrt(np.mean(rest**2, axis=(0, 1)))
        # Left-out residuals of the fit are many and show tails, unless they are means over x.
        left_out = self.model.residuals()
        if (np.sqrt(np.mean(left_out**2, axis=0)) >= 0.5 * noise).all():
            total = np.cumsum(self.model.design.weights)
            picked = np.searchsorted(total, total[-1] * (np.arange(n) + 0.5) / n)
            j, rest = self.model.design.j[picked], left_out[picked, None]
        tried = sensitive_set(self.average, self.model, n, self.stream.child(2), noise)
        return tried, rest[np.argsort(j[:, 0], kind="stable")]

    @cached_property
    def _positive(self) -> Array:
        """Outputs (p,) of J that f needs positive: f refuses −J, and g is never negative."""
        j = self.tried[0].j
        refused = not takes(self.problem, self.average.argument(-np.abs(j) - 1e-300))
        return np.asarray((self.pilot.reshape(-1, j.shape[1]).min(axis=0) >= 0) & refused)

    @cached_property
    def order(self) -> int:
        """Smoothness of f where J can be: 0 with jumps, 1 with kinks."""
        j, positive = self.tried[0].j, bool(self._positive.any())
        j = j[(j > 0).all(axis=1)] if positive else j
        argument = self.average.argument(j)
        return (
            order_of_smoothness(self.problem, argument, logarithmic=positive) if len(j) > 1 else 0
        )

    def _simulated(self, n: int) -> Residuals:
        """n residuals at each tried θ, resampled from those at θ of similar Ĵ."""
        points, rest = self.tried
        rng, rows, shape = self.stream.child(3).generator(), len(rest), (len(points.j), n)
        rank = np.argsort(np.argsort(points.j[:, 0])) * rows // len(points.j)
        reach = max(self.settings.reach, rows // 16)
        near = np.clip(rank[:, None] + rng.integers(-reach, reach + 1, size=shape), 0, rows - 1)
        drawn = rest[near, rng.integers(rest.shape[1], size=shape)]
        usual = np.broadcast_to(np.maximum(points.j, 0.0)[:, None], drawn.shape)
        return Residuals(points.uniform, points.weights[:, None], points.j, drawn, usual)

    def levels(self, n_evaluations: int) -> Levels:
        """Sizes of levels for about that many evaluations: the least expected square error.

        For each first and last size, numbers of θ follow Neyman's allocation by simulated
        differences; the square error is their variance and the squared bound of the bias.
        """
        own = self.settings
        most = int(np.log2(np.clip(n_evaluations / (2 * own.fewest_outer), 16, own.most_inner)))
        drawn, start = self._simulated(1 << most), own.least_inner.bit_length() - 1
        first = [self.of(drawn.first(1 << k), True) for k in range(most + 1)]
        later = {k: self.of(drawn.first(1 << k), False) for k in range(2, most + 1)}
        f = self.average.f(drawn.center + drawn.rest.mean(axis=1))
        with np.errstate(invalid="ignore"):
            spread = np.nanstd(np.where(np.isfinite(f), f, np.nan), axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        # Near the end of the domain of f, two levels may agree by accident.
        least = 3 if self._positive.any() else 2
        best = Levels((own.parts,), (n_evaluations // own.parts,))
        ends = [(k, last) for k in range(start, most - 1) for last in range(k + 2, most + 1, 2)]
        for k, last in ends:
            powers = list(range(k, last + 1, 2))
            terms = [first[k][0], *(later[i][0] for i in powers[1:])]
            sizes = 2 ** np.array(powers)
            left = n_evaluations - own.fewest_outer * int(sizes.sum())
            deviations = np.sqrt([((term / spread).var(axis=0)).sum() for term in terms])
            if len(powers) < least or left <= 0 or not np.isfinite(deviations).all():
                continue
            total = float(deviations @ np.sqrt(sizes))
            shares = deviations / np.sqrt(sizes) / max(total, 1e-300)
            shares[0] = shares[0] if total > 0 else 1.0 / sizes[0]
            count = own.fewest_outer + np.floor(left * shares).astype(int)
            beyond = np.abs(sum(later[i][0].mean(axis=0) for i in range(last + 2, most + 1, 2)))
            bound = np.maximum(beyond, self.rest(*later[last], int(count[-1]))) / spread
            half = np.sqrt(total**2 / left + (bound**2).sum()) * NORMAL_95 * float(spread.max())
            if half < best.half_width:
                outer, inner = (tuple(map(int, counts)) for counts in (count, sizes))
                best = Levels(inner, outer, float(half), beyond)
        return best

    # Draws.

    def sample(self, levels: Levels, stream: Stream) -> list[Residuals]:
        """Residuals of each level, at θ from the law and from where f(Ĵ) is sensitive."""
        grids: list[Grid] = []
        chosen: list[DenseSet | None] = []
        for level, (n, m) in enumerate(zip(levels.n_outer, levels.n_inner, strict=True)):
            grids.append(Grid(n, m, IID(), IID(), None, stream, level))
            chosen.append(None)
            if self.model is not None:
                noise = np.sqrt(np.mean(self.tried[1] ** 2, axis=(0, 1)))
                own = stream.child(level, 2)
                chosen[-1] = points = sensitive_set(self.average, self.model, n, own, noise)
                grids[-1] = self._with_edges(replace(grids[-1], outer_points=Given(points.uniform)))
        evaluations = Evaluations(self.evaluator, Design(tuple(grids)))
        return [self._residuals(evaluations, level, points) for level, points in enumerate(chosen)]

    def _with_edges(self, grid: Grid) -> Grid:
        """Half of the x from the density of the model's periodization, which prefers the ends.

        Defensive importance sampling: Hesterberg 1995, Weighted average importance sampling.
        """
        if self.model is None or self.model.periodization == "tent":
            return grid
        rng = grid.inner_stream.generator()
        v = rng.random((grid.n_outer, grid.n_inner, self.problem.inner_base_dim))
        at_ends = rng.random(v.shape[:2])[:, :, None] < 0.5
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
        x = np.empty((n * m, 0)) if inner is None else inner.reshape(n * m, -1)
        rows, control = np.repeat(uniform, m, axis=0), np.empty((n * m, p))
        for start in range(0, n * m, self.settings.rows):
            tick()
            some = slice(start, start + self.settings.rows)
            control[some] = self.model.at(rows[some], x[some], cautious=True)
        if kind != "tent" and inner is not None:
            ratio = density(kind, periodic(kind, inner))[:, :, None]
            weights = 2.0 * ratio / (1.0 + ratio)
        rest = weights * (values - control.reshape(n, m, p))
        rest += (self.model.mean(uniform) - points.j[:n])[:, None]
        return Residuals(uniform, points.weights[:n, None], points.j[:n], rest, weights * values)

    def of(self, seen: Residuals, is_first: bool) -> tuple[Array, Array]:
        """Weighted draws (n, q): f(Ĵ + r̄) − f(Ĵ) of the first level, antithetic ones of later.

        Also sizes (n, 2, q) of their changes by the last two doublings of N, whose ratio shows how
        fast the bias falls.
        """

        def f(first: int = 0, step: int = 1) -> Array:
            """f at Ĵ + r̄ by every so many residuals, kept positive where f needs it.

            The bound tends to a share of J as residuals become many, so that the limit of the
            levels is f(J) whatever Ĵ is.
            """
            rest, values = seen.rest[:, first::step], seen.values[:, first::step]
            mean = seen.center + rest.mean(axis=1)
            total = values.sum(axis=1) + np.maximum(seen.center, 0.0)
            least = self.settings.least_share * total / (rest.shape[1] + 1.0)
            return self.average.f(np.where(self._positive, np.maximum(mean, least), mean))

        whole, parts = f(), self.settings.parts
        if is_first:
            base = self.average.f(seen.center) if self.model is not None else 0.0
            return seen.weights * (whole - base), np.zeros((len(whole), 2, whole.shape[1]))
        quarters = np.stack([f(k, parts) for k in range(parts)])
        halves = np.stack([f(k, 2) for k in range(2)])
        # The quarters k and k + 2 make up the half k.
        inside = np.abs(halves - 0.5 * (quarters[:2] + quarters[2:])).mean(axis=0)
        steps = np.stack([inside, np.abs(whole - halves.mean(axis=0))], axis=1)
        return seen.weights * (whole - quarters.mean(axis=0)), seen.weights[:, None] * steps

    def rest(self, values: Array, steps: Array, n: int, alpha: float = np.inf) -> Array:
        """Bounds (q,) for the bias that levels beyond the last would remove.

        Differences of the last level are continued as a geometric series. Bias falls like 1/N if
        residuals have a variance and f is smooth on the scale of r̄, like N^(1 − α) for a tail of
        index α < 2, like 1/√N at worst where f jumps, and otherwise as changes of f by the last two
        doublings do. Where f jumps close to J at many θ, the bias may be as large as differences.
        """
        removed, noise = np.abs(values.mean(axis=0)), values.std(axis=0) / np.sqrt(n)
        before, after = steps.mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.where(after > 0, np.log2(before / after), 1.0)
        slowest = self.settings.slowest
        rate = np.clip(rate, slowest, min(1.0 if self.order else 0.5, max(alpha - 1.0, slowest)))
        rest = (removed + noise) / (self.settings.parts**rate - 1.0)
        rest = rest if self.order else np.maximum(rest, np.abs(values).mean(axis=0))
        return np.asarray(rest)
