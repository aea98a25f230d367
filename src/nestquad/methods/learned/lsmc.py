"""Least-squares Monte Carlo: regression of g on θ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nestquad._checks import choice
from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError
from nestquad.methods._method import Goal, Turn
from nestquad.methods.learned._base import Fit, Learned, LearnedMethod
from nestquad.methods.learned._model import (
    DenseSet,
    ModelOfJ,
    Paths,
    mean_range,
    n_expected,
    sketch_points,
)
from nestquad.points import Given, Stream, as_sequence
from nestquad.points import Sequence as PointSequence
from nestquad.problem import NestedExpectation
from nestquad.regression import (
    Link,
    Regression,
    Score,
    ScoreTable,
    choose_scores,
    regress,
    regress_log,
)

__all__ = ["LSMC", "RegressionModel"]


@dataclass(frozen=True, eq=False)
class RegressionModel(ModelOfJ):
    """J as a polynomial in θ, or the exponential of one, for each output.

    Attributes
    ----------
    regressions
        One for each output, with control variates in (θ, x).
    uniform, values, table
        Points (n, d) in (θ, x), values (n, p) of g, and the polynomials there.
    outer
        The number of coordinates of θ.
    stream
        Randomness for standard deviations.
    weights
        Weights (n,) that make the points a sample of their law; None if all are one.
    interleaved
        Whether points i, i + R, … are one randomization each, as with shifts of a lattice; if not,
        groups are blocks of consecutive points.
    signed
        Whether f takes J below the values of g, see `mean_range`.
    """

    groups: ClassVar[int] = 4
    """Number of groups that are deleted in turn; a lattice has at least that number of shifts."""

    regressions: tuple[Regression, ...]
    uniform: Array
    values: Array
    table: ScoreTable
    outer: int
    stream: Stream
    weights: Array | None = None
    interleaved: int = 0
    signed: bool = False

    @property
    def dim(self) -> int:
        return self.outer

    @property
    def n_points(self) -> int:
        return len(self.values)

    @property
    def cost(self) -> int:
        return self.outer + sum(len(one.theta_terms) for one in self.regressions)

    @property
    def logarithmic(self) -> bool:
        return all(one.link == "log" for one in self.regressions)

    @cached_property
    def sketch(self) -> DenseSet:
        uniform = sketch_points(self.dim, 4096)
        return DenseSet(uniform, np.ones(len(uniform)), self.mean(uniform))

    @cached_property
    def design(self) -> DenseSet:
        j = self._j(self.table.leading(self.dim))
        weights = np.ones(self.n_points) if self.weights is None else self.weights
        return DenseSet(self.uniform[:, : self.dim], weights, j)

    def mean(self, uniform: Array) -> Array:
        return self._j(self._table(uniform))

    def sd(self, uniform: Array) -> Array:
        """Coefficient error and truncation error, as in `paths`."""
        multipliers = self.stream.generator().standard_normal((self.n_points, 16))
        scales = np.array([one.scale for one in self.regressions])
        drawn = self._drawn(self._table(uniform), multipliers) / scales
        more = self._raised.mean(uniform) - self.mean(uniform)
        return np.asarray(np.hypot(scales * drawn.std(axis=0), more))

    def at(self, uniform: Array, inner: Array, *, cautious: bool = False) -> Array:
        full = ScoreTable(np.concatenate([uniform, inner], axis=1), self.table.scores)
        j, columns = self.mean(uniform), []
        for c, one in enumerate(self.regressions):
            controls = one.fit.evaluate(full) - one.fit.evaluate(full.leading(self.dim))
            # With the log link the values were divided by Ĵ before.
            columns.append(j[:, c] + controls * (j[:, c] if one.link == "log" else one.scale))
        return np.stack(columns, axis=1)

    def paths(self, n_paths: int, rng: np.random.Generator) -> Paths:
        """Errors by the wild bootstrap, and by terms of higher degree.

        Coefficients are drawn under other noise (Wu 1986, Jackknife, bootstrap and other resampling
        methods in regression analysis). The terms of one and two more degrees that residuals ask
        for count with a random sign and size: truncation error.
        """
        table, base = self._table(self.sketch.uniform), self.sketch.j
        multipliers = rng.standard_normal((self.n_points, n_paths))
        errors = self._drawn(table, multipliers) - self._unbounded(table)
        deleted = [self._without(rows) for rows in self._groups]
        observed = np.array([model.mean(self.sketch.uniform) - base for model in deleted])
        few = n_expected(n_paths)
        expected = [
            model._drawn(table, multipliers[~rows, :few]) - model._unbounded(table) - errors[:few]
            for model, rows in zip(deleted, self._groups, strict=True)
        ]
        more = self._raised.mean(self.sketch.uniform) - base
        shared = rng.standard_normal((n_paths, 1, 1)) * more
        return Paths(errors, observed.reshape(-1, *base.shape), np.array(expected), shared)

    @property
    def _groups(self) -> list[NDArray[np.bool_]]:
        """Rows (n,) of each group."""
        index = np.arange(self.n_points)
        n = self.interleaved or self.groups
        number = index % n if self.interleaved else index * n // self.n_points
        return [number == group for group in range(n)]

    def _drawn(self, table: ScoreTable, multipliers: Array) -> Array:
        """J (K, M, p) with coefficients under the noise of multipliers (n, K)."""
        coefficients = (one.perturbed(self.table, multipliers) for one in self.regressions)
        columns = [
            regression.j(table, drawn).T
            for regression, drawn in zip(self.regressions, coefficients, strict=True)
        ]
        return np.stack(columns, axis=2)

    def _unbounded(self, table: ScoreTable) -> Array:
        return np.stack([one.j(table) for one in self.regressions], axis=1)

    def _without(self, rows: NDArray[np.bool_]) -> RegressionModel:
        """Refit the terms to the points of the other groups."""
        kept = np.flatnonzero(~rows)
        table, values = self.table.rows(kept), self.values[kept]
        weights = None if self.weights is None else self.weights[kept]
        fewer = [
            one.refitted(y, table, weights)
            for one, y in zip(self.regressions, values.T, strict=True)
        ]
        return replace(
            self,
            regressions=tuple(fewer),
            uniform=self.uniform[kept],
            values=values,
            table=table,
            weights=weights,
        )

    def residuals(self) -> Array:
        columns = []
        for c, one in enumerate(self.regressions):
            left_out = one.fit.residuals / (1.0 - one.fit.leverage)
            columns.append(left_out * (self.design.j[:, c] if one.link == "log" else one.scale))
        return np.stack(columns, axis=1)

    def describe(self) -> dict[str, Any]:
        notes, outputs = [], []
        for c, one in enumerate(self.regressions):
            terms = len(one.theta_terms)
            controls = len(one.fit.terms) - terms
            what = "log J" if one.link == "log" else "J"
            notes.append(
                f"output {c + 1}: {what} by {terms} polynomials of degree {one.degree} in theta, "
                f"with {controls} control variates"
            )
            outputs.append(
                {
                    "link": one.link,
                    "degree": one.degree,
                    "terms": terms,
                    "control_variates": controls,
                    "leave_one_out": float(np.sqrt(one.fit.loo))
                    * (one.scale if one.link == "identity" else 1.0),
                }
            )
        return {"outputs": outputs, "notes": notes}

    @cached_property
    def _raised(self) -> RegressionModel:
        raised = tuple(one.raised(self.table) for one in self.regressions)
        return replace(self, regressions=raised)

    def _table(self, uniform: Array) -> ScoreTable:
        return ScoreTable(uniform, self.table.scores[: self.dim])

    def bounded(self, j: Array, uniform: Array) -> Array:
        """Exponentials and polynomials of high degree run away in the tails.

        A regression that chose its terms is only kept positive if g is.
        """
        low, high = self._range
        return np.clip(j, low, high) if np.isfinite([low, high]).any() else j

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        """Least and largest J (p,) that is allowed, infinite where it has no bound."""
        wild = [one.link == "log" or one.fit.penalty > 0 for one in self.regressions]
        low, (least, highest) = (
            self.values.min(axis=0),
            mean_range(self.values, signed=self.signed),
        )
        least = np.where(wild, least, -np.inf)
        positive = np.where(low > 0, 1e-3 * low, -np.inf)
        return np.maximum(least, positive), np.where(wild, highest, np.inf)

    def _j(self, table: ScoreTable) -> Array:
        j = np.stack([one.j(table) for one in self.regressions], axis=1)
        return self.bounded(j, self.uniform)


@dataclass(frozen=True)
class LSMC(LearnedMethod[RegressionModel]):
    """Least-squares Monte Carlo, the practitioners' choice.

    Each θ has a single x, both from one low-discrepancy point. g is regressed on polynomials in
    θ, which estimates J, and at the same time on polynomials in x and θ that have mean zero given
    θ (control variates), which takes out most of the noise. f(Ĵ) is averaged over a dense set of
    θ, free of g.

    The regression has a bias that more points do not cure unless the degree grows: an f with
    kinks or a logarithm, or a J that no polynomial follows, are better left to other methods. The
    error bar contains an estimate of that bias, but not of functions that are orthogonal to all
    terms of the basis.

    Parameters
    ----------
    n_outer
        M, the number of points; where None, the budget or the tolerance decides.
    degree
        Total degree of the polynomials; None grows them term by term while the leave-one-out
        error falls.
    control_variates
        Whether terms in x take part.
    link
        ``"log"`` regresses log J, for g > 0. ``"auto"`` does so if g > 0 and the plain regression
        is not positive wherever f is to be averaged.
    outer_points
        The sequence in (θ, x).

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.health()
    >>> est = nq.estimate(problem, method=nq.LSMC(), budget=2048, rng=0)
    >>> bool(abs(est.value - problem.exact) < 2)
    True
    """

    name: ClassVar[str] = "lsmc"
    fewest: ClassVar[int] = 32
    n_inner: ClassVar[int] = 1

    n_outer: int | None = None
    degree: int | None = None
    control_variates: bool = True
    link: Link | Literal["auto"] = "auto"
    outer_points: str | PointSequence = "sobol"

    def __post_init__(self) -> None:
        for argument, least in (("n_outer", self.fewest), ("degree", 1)):
            number = getattr(self, argument)
            if number is not None and (not isinstance(number, int | np.integer) or number < least):
                raise InputError(argument, repr(number), f"an integer of at least {least}, or None")
        choice("link", self.link, ("auto", "identity", "log"))
        if isinstance(as_sequence(self.outer_points), Given):
            raise InputError("outer_points", "given points", "a sequence such as 'sobol' or 'iid'")

    def sized(
        self,
        problem: NestedExpectation,
        goal: Goal,
        n: int,
        last: Turn[Learned[RegressionModel]] | None,
    ) -> Design | None:
        size = int(self.n_outer or min(n, 1 << 20))  # beyond, seconds become minutes
        if size < self.fewest:
            return None
        points = as_sequence(self.outer_points)
        return Design((Grid(size, 1, points, points, None, goal.stream, joint=True),))

    def fit(
        self, evaluations: Evaluations, last: Turn[Learned[RegressionModel]] | None
    ) -> Fit[RegressionModel]:
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        raw = evaluations.values(grid.n_outer)
        n, outer = raw.shape[0], problem.outer_law
        if n < self.fewest:  # time may have ended before all rows were there
            raise OutOfTimeError(f"time ran out after {n} evaluations", advice="Raise max_seconds.")
        values = raw[:, 0].reshape(n, -1)
        dim = outer.base_dim + problem.inner_base_dim
        uniform = grid.outer_points.uniforms(grid.outer_stream, dim, (0, 1), (0, n))[0]
        inner = problem.inner_law(outer.from_uniform(uniform[:1, : outer.base_dim]))
        groups: list[tuple[int, Score]] = [
            (outer.base_dim, outer.base),
            (inner.base_dim, inner.base),
        ]
        some = slice(0, 1 << 13)
        scores = choose_scores(values[some] / scale_of(values), uniform[some], groups)
        table = ScoreTable(uniform, scores)
        regressions = tuple(
            self._regressed(column, table, outer.base_dim, f"output {c + 1}")
            for c, column in enumerate(values.T)
        )
        stream = grid.stream.child(grid.level, 4)
        model = RegressionModel(regressions, uniform, values, table, outer.base_dim, stream)
        return Fit(model, raw.ndim == 2, n, 1)

    def _regressed(self, values: Array, table: ScoreTable, dim: int, output: str) -> Regression:
        options: dict[str, Any] = {
            "degree": self.degree,
            "control_variates": self.control_variates,
        }
        positive = bool(values.min() > 0)
        if self.link == "log" and not positive:
            raise InputError(
                "link",
                f"'log', but {output} of g has the value {values.min():g}",
                "values above zero",
                "Use link='identity'.",
            )
        if self.link != "log":
            plain = regress(values, table, dim, **options)
            dense = ScoreTable(sketch_points(dim, 1 << 15), table.scores[:dim])
            if self.link == "identity" or not positive or plain.j(dense).min() > 0:
                return plain
        return regress_log(values, table, dim, **options)
