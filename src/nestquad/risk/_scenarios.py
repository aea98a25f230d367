"""Scenarios θ and models of J on them: a lattice in (θ, x), or a ridge on coordinates of θ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from scipy.stats import rankdata

from nestquad._scale import scale_of
from nestquad._typing import Array, Indices
from nestquad.distributions import Empirical
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid, OutOfTimeError
from nestquad.methods import Goal, JointLattice, ModelOfJ, Turn, has_transports
from nestquad.methods.learned import Check, DenseSet, JointModel, RegressionModel
from nestquad.points import IID, Given, PeriodicLattice, Sobol, Stream, density, periodic
from nestquad.problem import NestedExpectation
from nestquad.regression import Regression, ridge
from nestquad.result import Estimate
from nestquad.risk._stacking import StackedModel

# Independently shifted sets of dense θ, whose spread is the error of their average.
REPLICATES = 16
# Limits of time and memory: numbers that are computed for all dense θ (a second), base-2 logarithms
# of the number of θ of a replicate, scenarios drawn from a law that can only be sampled.
_NUMBERS, _FEWEST, _MOST, _CLOUD = 1 << 26, 10, 14, 1 << 16
# Given scenarios that are told apart.
_ATOMS = 4096
# Points and terms of a ridge: its Gram matrix takes a second. More are not asked for where there is
# no lattice.
RIDGE_POINTS, _RIDGE_TERMS = 1 << 14, 500
# Outputs for which a lattice model is fitted, which takes a second for each; a ridge takes more.
_JOINT_OUTPUTS = 6

Lines = Callable[[Array], Array]
"""The losses (…, L) to analyze from the outputs (…, p) of g: their sum, or each."""


class Scenarios(ABC):
    """Where θ comes from, and how J is learned over it.

    A model sees θ by coordinates in the unit cube: the uniforms behind θ, or ranks.
    """

    def __init__(self, problem: NestedExpectation, stream: Stream) -> None:
        self.problem, self.stream = problem, stream

    def which(self, coordinates: Array) -> Indices | None:
        """The given scenarios (m,) at coordinates, if they are few enough to be told apart."""
        return None

    def theta_of(self, coordinates: Array) -> Array:
        """θ (n, d_θ) at coordinates (n, d)."""
        return self.problem.outer_law.from_uniform(coordinates)

    @abstractmethod
    def design(self, n: int, goal: Goal, last: Design | None) -> Design | None:
        """A design of about n evaluations to learn from that contains the last one."""

    @abstractmethod
    def fit(self, evaluations: Evaluations, lines: Lines) -> list[ModelOfJ]:
        """Models of the losses, from the evaluations of a design; draws will choose."""

    @abstractmethod
    def dense(self, model: StackedModel, n: int, stream: Stream) -> DenseSet:
        """θ as coordinates with Ĵ, in n replicates."""

    @abstractmethod
    def given(self, points: DenseSet) -> Given:
        """Scenarios at coordinates, as points of a design."""

    def parts(self, evaluations: Evaluations) -> ModelOfJ:
        """A ridge of each output of g."""
        return self._ridge(evaluations, lambda values: values)

    def pairs(self, evaluations: Evaluations, levels: Iterable[int]) -> Check:
        """Pairs of x at the same θ, as far as they are evaluated."""
        none = np.empty((0, 2, 0))
        found: list[tuple[Array, ...]] = []
        for level in levels:
            grid = evaluations.design.grids[level]
            try:
                values = evaluations.values(grid.n_outer, level)
            except OutOfTimeError:
                break
            points, n = grid.outer_points, len(values) // 2
            assert isinstance(points, PairPoints)
            inner = self._inner(evaluations, 2 * n, level)
            known = (points.coordinates[:n], points.weights[:n])
            both = (inner, values[: 2 * n])
            found.append((*known, *(one.reshape(n, 2, one[0].size) for one in both)))
        if not found:
            return Check(np.empty((0, 0)), np.empty(0), none, none)
        return Check(*(np.concatenate(one) for one in zip(*found, strict=True)))

    def _inner(self, evaluations: Evaluations, rows: int, level: int) -> Array:
        theta = evaluations.outer(level).theta[:rows]
        n_inner = evaluations.design.grids[level].n_inner
        if not self.problem.inner_law(theta[:1]).has_transport:
            return np.empty((rows, n_inner, 0))
        uniform = evaluations.inner(theta, (0, rows), level).uniform
        assert uniform is not None
        return uniform

    def _ridge(self, evaluations: Evaluations, lines: Lines) -> ModelOfJ:
        grid = evaluations.design.grids[0]
        raw = evaluations.values(grid.n_outer)[:RIDGE_POINTS]
        values = lines(raw[:, 0].reshape(len(raw), -1))
        theta = self._learned(evaluations)[: len(raw)]
        points = np.concatenate([theta, self._inner(evaluations, len(raw), 0)[:, 0]], axis=1)
        weights = None
        if isinstance(grid.outer_points, PeriodicLattice):
            kind = grid.outer_points.periodization
            weights = density(kind, periodic(kind, points))
        return self.ridge(points, values, theta.shape[1], weights)

    def ridge(self, points: Array, values: Array, dim: int, weights: Array | None) -> ModelOfJ:
        """Polynomials of low degree in scores of θ, and of x as control variates.

        Points (n, d) are uniforms, the first `dim` coordinates drive θ. A ridge shrinks all
        terms alike: the fewer degrees, the less noise, if they explain g as well.
        """
        scales, d = scale_of(values), points.shape[1]
        tried = [
            ridge(values / scales, points, weights, max_points=len(values), max_terms=most)
            for most in sorted({min(comb(d + k, k), _RIDGE_TERMS) for k in range(1, 5)})
        ]
        if len(quadratic := _quadratic(d, dim)) <= min(_RIDGE_TERMS, len(values) // 8):
            tried.append(
                ridge(values / scales, points, weights, max_points=len(values), terms=quadratic)
            )
        found = min(tried, key=lambda one: sum(fit.loo for fit in one.fits))
        n = found.table.n_points
        return RegressionModel(
            tuple(
                Regression(one, one.coefficients, "identity", dim, float(scale))
                for one, scale in zip(found.fits, scales, strict=True)
            ),
            points[:n],
            values[:n],
            found.table,
            dim,
            self.stream.child(4),
            None if weights is None else weights[:n],
        )

    @abstractmethod
    def _learned(self, evaluations: Evaluations) -> Array:
        """Coordinates of the θ that are learned from."""


class PairPoints(Given):
    """θ at which pairs of x are drawn, each twice; their coordinates (m, d) and weights (m,)."""

    coordinates: Array
    weights: Array

    def __init__(self, theta: Array, space: str, points: DenseSet) -> None:
        super().__init__(np.repeat(theta, 2, axis=0), space)
        object.__setattr__(self, "coordinates", points.uniform)
        object.__setattr__(self, "weights", points.weights)


_NOTHING = Estimate(np.nan, np.inf, 0, 0, 0, "none")  # a lattice grows by its design alone


class LawScenarios(Scenarios):
    """θ from a transport of uniforms, which are its coordinates."""

    def design(self, n: int, goal: Goal, last: Design | None) -> Design | None:
        if has_transports(self.problem):
            before: Turn[Any] | None = None if last is None else Turn(last, _NOTHING, None)
            own = goal if goal.adaptive else replace(goal, budget=n)
            return JointLattice().sized(self.problem, own, n, before)
        return Design((Grid(min(n, RIDGE_POINTS), 1, Sobol(), IID(), None, goal.stream),))

    def fit(self, evaluations: Evaluations, lines: Lines) -> list[ModelOfJ]:
        found = [self._ridge(evaluations, lines)]
        outputs = found[0].sketch.j.shape[1]
        if has_transports(self.problem) and outputs <= _JOINT_OUTPUTS:
            raw = evaluations.values(evaluations.design.grids[0].n_outer)
            summed = lines(raw.reshape(len(raw), 1, -1))
            known = KnownValues(evaluations.evaluator, evaluations.design, summed)
            joint = JointLattice().fit(known, None).model
            assert isinstance(joint, JointModel)
            found = [joint, self._trend(joint), *found]
        return found

    def _trend(self, joint: JointModel) -> ModelOfJ:
        """The sparse polynomials of a joint model, without the processes of their residuals."""
        data, fits = joint.data, [one.fit for one in joint.outputs]
        n = len(fits[0].residuals)
        return RegressionModel(
            tuple(
                Regression(one.fit, one.fit.coefficients, "identity", joint.dim, one.scale)
                for one in joint.outputs
            ),
            data.uniform[:n],
            data.values[:n],
            joint.table.first(n),
            joint.dim,
            self.stream.child(4),
            data.weights[:n],
        )

    def dense(self, model: StackedModel, n: int, stream: Stream) -> DenseSet:
        affordable = (_NUMBERS // (n * max(model.cost, 1))).bit_length() - 1
        parts = list(model.replicates(n, int(np.clip(affordable, _FEWEST, _MOST)), stream))
        columns = zip(*((p.uniform, p.weights, p.j, p.owner) for p in parts), strict=True)
        return DenseSet(*(np.concatenate(column) for column in columns))

    def given(self, points: DenseSet) -> Given:
        clipped = np.clip(points.uniform, 1e-15, 1.0 - 1e-15)
        return PairPoints(clipped, "uniform", replace(points, uniform=clipped))

    def _learned(self, evaluations: Evaluations) -> Array:
        uniform = evaluations.outer().uniform
        assert uniform is not None
        return uniform


class KnownValues(Evaluations):
    """Values (N, 1, ·) that are known, as evaluations of a design of one grid."""

    def __init__(self, evaluator: Evaluator, design: Design, raw: Array) -> None:
        super().__init__(evaluator, design)
        self.raw = raw

    def values(self, rows: int, level: int = 0) -> Array:
        return self.raw[:rows]


class GivenScenarios(Scenarios):
    """Weighted scenarios, given or sampled once; their coordinates are ranks."""

    @cached_property
    def cloud(self) -> tuple[Array, Array, Array]:
        """Different θ (K, d), their probabilities (K,), and the points (K, ·) of a design."""
        law = self.problem.outer_law
        if not isinstance(law, Empirical):
            theta = law.sample(_CLOUD, self.stream.child(3).generator())
            return theta, np.full(_CLOUD, 1.0 / _CLOUD), theta
        # By the only uniform that drives the law.
        middle, there = np.cumsum(law.weights) - 0.5 * law.weights, law.weights > 0
        theta, first, which = np.unique(
            law.samples[there], axis=0, return_index=True, return_inverse=True
        )
        total = np.bincount(which.ravel(), law.weights[there])
        return theta, np.asarray(total, dtype=float), middle[there][first, None]

    @cached_property
    def coordinates(self) -> Array:
        ranks = rankdata(self.cloud[0], axis=0)
        return np.asarray((ranks - 0.5) / len(ranks))

    def which(self, coordinates: Array) -> Indices | None:
        told_apart = self._listed and len(self.coordinates) <= _ATOMS
        return self._position(coordinates) if told_apart else None

    def theta_of(self, coordinates: Array) -> Array:
        return np.asarray(self.cloud[0][self._position(coordinates)])

    def _position(self, coordinates: Array) -> Indices:
        own = self.coordinates
        both = np.concatenate([own, coordinates.reshape(-1, own.shape[1])])
        _, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
        return np.asarray(first[which.ravel()[len(own) :]])

    @property
    def _listed(self) -> bool:
        return isinstance(self.problem.outer_law, Empirical)

    @cached_property
    def _order(self) -> Indices:
        """Scenarios to learn from, evenly by weight, for any number of them."""
        steps = Sobol().uniforms(self.stream.child(5), 1, (0, 1), (0, RIDGE_POINTS))[0, :, 0]
        total = np.cumsum(self.cloud[1])
        return np.asarray(np.searchsorted(total[:-1], steps * total[-1], "right"))

    def design(self, n: int, goal: Goal, last: Design | None) -> Design | None:
        points = Given(self.cloud[2][self._order], self._space)
        return Design((Grid(min(n, RIDGE_POINTS), 1, points, IID(), None, goal.stream),))

    @property
    def _space(self) -> str:
        return "uniform" if self._listed else "native"

    def fit(self, evaluations: Evaluations, lines: Lines) -> list[ModelOfJ]:
        return [self._ridge(evaluations, lines)]

    def dense(self, model: StackedModel, n: int, stream: Stream) -> DenseSet:
        j = np.concatenate([model.mean(block) for block in _blocks(self.coordinates)])
        owner = np.zeros(len(j), dtype=np.intp)
        if not self._listed:  # a sample has an error, given θ not
            owner = np.arange(len(j)) % n
        return DenseSet(self.coordinates, self.cloud[1], j, owner)

    def given(self, points: DenseSet) -> Given:
        assert points.owner is not None
        return PairPoints(self.cloud[2][points.owner], self._space, points)

    def _learned(self, evaluations: Evaluations) -> Array:
        return np.asarray(self.coordinates[self._order])


def scenarios_of(problem: NestedExpectation, stream: Stream) -> Scenarios:
    law = problem.outer_law
    if law.has_transport and not isinstance(law, Empirical):
        return LawScenarios(problem, stream)
    found = GivenScenarios(problem, stream)
    if len(found.cloud[0]) < 2:
        raise InputError(
            "problem",
            "a single scenario θ",
            "at least two different ones",
            "Its loss is one number, which nq.expectation estimates.",
        )
    return found


def _quadratic(d: int, dim: int) -> list[tuple[tuple[int, int], ...]]:
    """Terms of degree two: all of the first `dim` of d coordinates, none that mix the others.

    Options on correlated assets need products of drivers of θ, more than of x.
    """
    alone = [((k, degree),) for degree in (1, 2) for k in range(d)]
    products = [((k, 1), (m, 1)) for k in range(dim) for m in range(k + 1, dim)]
    return [(), *alone, *products]


def _blocks(points: Array) -> list[Array]:
    return np.array_split(points, -(-len(points) // (1 << 13)))
