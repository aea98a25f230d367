"""A model of g on a joint lattice in (θ, x): sparse polynomials plus a periodic kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nestquad._typing import Array
from nestquad.gp import (
    LatticeProcess,
    PeriodicKernel,
    fit_periodic,
    interpolate,
    lattice_steps,
    reversed_bits,
)
from nestquad.methods._tail import KnownMeans, Tail
from nestquad.points import Periodization, density, moved, periodic
from nestquad.regression import (
    PolynomialFit,
    Score,
    ScoreTable,
    Term,
    choose_scores,
    fit_terms,
    grow_polynomial,
)

__all__ = ["ConditionalMeans", "Data", "Geometry", "JointModel", "fit_joint"]

# Points that choose terms and orders, that determine coefficients, and that refine kernels (the
# first and the last less where there are many coordinates): more would cost time, change little.
_CHOICE, _COEFFICIENTS, _REFINEMENT = 2**13, 2**15, 2**15
_CHOICE_NUMBERS, _REFINEMENT_NUMBERS = 2**17, 2**18
# Terms of a polynomial: at most so many, and so many points for each of them. Fewer would leave
# the choice to leave-one-out errors that were looked at too often.
_MOST_TERMS, _POINTS_PER_TERM = 500, 5
# Logarithms of nothing smaller are asked for.
_LOWEST = 1e-300
# How far beyond the values of g (in ranges) Ĵ may be. Where the density is small, noise over it
# is large.
_MARGIN = 0.5
# Mean squared residual relative to the values' that is rounding and nothing else.
_ROUNDING = 1e-24


@dataclass(frozen=True, eq=False)
class Geometry:
    """A shifted lattice with generating vector and shift (d,), of which θ leads."""

    vector: NDArray[np.int64]
    shift: Array
    n_theta: int
    periodization: Periodization

    def points(self, size: int, offsets: Array | None = None) -> Array:
        """Periodic coordinates of θ on the lattice of that size, and on copies of it.

        Copies are moved by each of C offsets (C, d_θ), and follow each other in (C M, d_θ).
        """
        steps = lattice_steps(self.vector[: self.n_theta], size).T
        moves = np.zeros((1, self.n_theta)) if offsets is None else offsets
        points = (steps + self.shift[: self.n_theta] + moves[:, None, :]) % 1.0
        return np.asarray(points.reshape(-1, self.n_theta))


@dataclass(frozen=True, eq=False)
class Data:
    """Values (N, p) at uniforms (N, d) of a lattice, and what each point weighs (N,).

    `positive` if f cannot take zeros: where g has none below, those among its values are rounding.
    """

    geometry: Geometry
    values: Array
    uniform: Array
    weights: Array
    positive: bool = False

    def first(self, n: int) -> Data:
        return replace(
            self, values=self.values[:n], uniform=self.uniform[:n], weights=self.weights[:n]
        )


@dataclass(frozen=True, eq=False)
class _Output:
    """One output of g: polynomial, and the process of what it leaves times the density."""

    fit: PolynomialFit
    kernel: PeriodicKernel | None
    process: LatticeProcess | None
    low: float
    high: float
    positive: bool

    def near_values(self, j: Array) -> Array:
        """Ĵ kept where a mean of g can be: near the values of g."""
        if self.process is None:
            return j
        margin = _MARGIN * (self.high - self.low)
        low = self.low - margin if self.low < 0 else max(self.low - margin, 0.0)
        return np.clip(j, low, self.high + margin)


@dataclass(frozen=True, eq=False)
class ConditionalMeans:
    """Ĵ (M, p) at some θ, and what each θ weighs (M,).

    The θ stem from uniforms (M, d_θ), and these from periodic coordinates (M, d_θ).
    """

    periodic: Array
    uniform: Array
    weights: Array
    j: Array


@dataclass(frozen=True, eq=False)
class JointModel:
    """What was learned of g from the first points of the lattice.

    Its tails have the form of those of the model that it is a smaller copy of, if it is one.
    """

    points: _Points
    outputs: tuple[_Output, ...]
    original: JointModel | None = None

    @property
    def geometry(self) -> Geometry:
        return self.points.geometry

    @property
    def size(self) -> int:
        """Of the smallest lattice that contains the points."""
        return self.points.size

    @property
    def n_theta(self) -> int:
        return self.geometry.n_theta

    @property
    def order(self) -> NDArray[np.int64]:
        """Lattice indices of the points."""
        return self.points.order

    @property
    def n_chosen_terms(self) -> int:
        """How many polynomials the values have chosen: all but the constants."""
        return sum(len(output.fit.terms) - 1 for output in self.outputs)

    @property
    def n_theta_terms(self) -> int:
        """How many polynomials in θ alone there are."""
        return sum(
            all(coordinate < self.n_theta for coordinate, _ in term)
            for output in self.outputs
            for term in output.fit.terms
        )

    @property
    def continues_tails(self) -> bool:
        """Whether some Ĵ is continued to where it is lost."""
        return any(tail is not None and tail.quadratic is not None for tail in self._tails)

    def conditional(self, offsets: Array | None = None) -> ConditionalMeans:
        """E[g | θ] at the lattice θ, or at those of copies moved by offsets (C, d_θ)."""
        return self._with_tails(self._unbounded(offsets), self._tails)

    def with_other_tails(self) -> list[ConditionalMeans]:
        """The same at the lattice θ, with tails of J that are nearly as good a guess."""
        base = self._unbounded(None)
        pairs = [
            (None, None) if tail is None else tail.others(self._known(base, c))
            for c, tail in enumerate(self._tails)
        ]
        return [self._with_tails(base, tails) for tails in zip(*pairs, strict=True)]

    def bounded(self, j: Array, means: ConditionalMeans, c: int) -> Array:
        """Other J (…, M) of output c at the same θ, kept where a mean of g can be."""
        return self._bounded(j, means, c, self._tails[c])

    def _with_tails(
        self, means: ConditionalMeans, tails: Sequence[Tail | None]
    ) -> ConditionalMeans:
        columns = [self._bounded(means.j[:, c], means, c, tail) for c, tail in enumerate(tails)]
        return replace(means, j=np.stack(columns, axis=1))

    def _bounded(self, j: Array, means: ConditionalMeans, c: int, tail: Tail | None) -> Array:
        output = self.outputs[c]
        j = output.near_values(j)
        if tail is None:
            return j
        table = self._theta_table(means.uniform)
        return tail.mended(j, self._deviations(means, c), table, max(output.low, _LOWEST))

    @cached_property
    def _tails(self) -> list[Tail | None]:
        """One for each output that has to be positive."""
        if not any(output.positive for output in self.outputs):
            return [None] * len(self.outputs)
        base = self._unbounded(None)
        tails: list[Tail | None] = []
        for c, output in enumerate(self.outputs):
            form = None if self.original is None else self.original._tails[c]
            if not output.positive or output.process is None:
                tails.append(None)
            elif form is not None:
                tails.append(Tail.like(form, self._known(base, c)))
            else:
                tails.append(Tail.learned(self._known(base, c)))
        return tails

    def _known(self, means: ConditionalMeans, c: int) -> KnownMeans:
        table = self._theta_table(means.uniform)
        return KnownMeans(means.j[:, c], self._deviations(means, c), means.weights, table)

    def _deviations(self, means: ConditionalMeans, c: int) -> Array:
        return np.asarray(self.spreads(means.weights)[:, c])

    def conditional_at(self, uniform: Array) -> Array:
        """E[g | θ] at any uniforms (T, d_θ) of θ: (T, p)."""
        v = periodic(self.geometry.periodization, uniform)
        away = v - self.geometry.shift[: self.n_theta]
        means = self._means(v, uniform, lambda process: process.at(away))
        return self._with_tails(means, self._tails).j

    def _unbounded(self, offsets: Array | None) -> ConditionalMeans:
        v = self.geometry.points(self.size, offsets)
        uniform = moved(self.geometry.periodization, v)
        return self._means(v, uniform, lambda process: process.marginal(offsets).reshape(-1))

    def _means(
        self, v: Array, uniform: Array, of: Callable[[LatticeProcess], Array]
    ) -> ConditionalMeans:
        """Polynomials and what is taken `of` the processes, without bounds."""
        weights = density(self.geometry.periodization, v)
        table = self._theta_table(uniform)
        columns = []
        for output in self.outputs:
            j = output.fit.evaluate(table)
            if output.process is not None:
                j += of(output.process) / weights
            columns.append(j)
        return ConditionalMeans(v, uniform, weights, np.stack(columns, axis=1))

    def at(self, v: Array) -> Array:
        """g at any periodic coordinates (T, d): (T, p)."""
        geometry = self.geometry
        weights = density(geometry.periodization, v)
        table = ScoreTable(moved(geometry.periodization, v), self.points.table.scores)
        columns = []
        for output in self.outputs:
            g = output.fit.evaluate(table)
            if output.process is not None:
                g += output.process.at(v - geometry.shift) / weights
            columns.append(g)
        return np.stack(columns, axis=1)

    def weights(self, v: Array) -> Array:
        """What periodic coordinates (T, …) weigh, (T,)."""
        return density(self.geometry.periodization, v)

    def paths(self, base: ConditionalMeans, n_paths: int, rng: np.random.Generator) -> Array:
        """Draws of J at the lattice θ, (n_paths, M, p), from its posterior about `base`.

        A function is drawn from the prior, observed where the values are, fitted as they are by
        polynomial and process, and compared with itself: its error has the law of ours.
        """
        drawn = np.repeat(base.j[None], n_paths, axis=0)
        table = self._theta_table(base.uniform)
        for c, output in enumerate(self.outputs):
            if output.process is None:
                continue
            marginal, values = output.process.draws(n_paths, rng)
            weights = self.points.weights
            found = output.fit.response(self.points.table, (values / weights).T)
            trend = output.fit.with_coefficients(found)
            values -= trend.evaluate(self.points.table).T * weights
            drawn[:, :, c] += (marginal - output.process.predicted(values)) / base.weights
            drawn[:, :, c] -= trend.evaluate(table).T
            drawn[:, :, c] = self.bounded(drawn[:, :, c], base, c)
        return drawn

    def residuals(self) -> Array:
        """Values less what the others predict for them, (n, p)."""
        n = self.points.weights.size
        columns = [
            np.zeros(n)
            if output.process is None
            else output.process.leave_one_out / self.points.weights
            for output in self.outputs
        ]
        return np.stack(columns, axis=1)

    def spreads(self, weights: Array) -> Array:
        """Standard deviations of J at θ that weigh (M,): (M, p)."""
        spreads = [0.0 if o.process is None else o.process.spread for o in self.outputs]
        return np.asarray(np.array(spreads) / weights[:, None])

    def refitted(self, data: Data) -> JointModel:
        """The same terms and kernels, with coefficients from other data."""
        table = ScoreTable(data.uniform, self.points.table.scores)
        points = _Points(self.geometry, table, data.weights, data.positive)
        outputs = [
            points.completed(column, output.fit.terms, output.kernel)
            for column, output in zip(data.values.T, self.outputs, strict=True)
        ]
        return JointModel(points, tuple(outputs), original=self)

    def _theta_table(self, uniform: Array) -> ScoreTable:
        return ScoreTable(uniform, self.points.table.scores[: self.geometry.n_theta])


def fit_joint(
    data: Data,
    written: tuple[Score, Score],
    *,
    trend: bool,
    orders: tuple[int, ...],
) -> JointModel:
    """Learn g from data; the laws of θ and x are written in the scores that are named.

    For each output the polynomial of least leave-one-out error competes with none at all; the
    likelihood of the process that completes them decides.
    """
    geometry, uniform, weights = data.geometry, data.uniform, data.weights
    n, dim = uniform.shape
    some = min(n, _CHOICE, 1 << ((_CHOICE_NUMBERS // dim).bit_length() - 1))
    groups = [(geometry.n_theta, written[0]), (dim - geometry.n_theta, written[1])]
    scores = choose_scores(data.values[:some], uniform[:some], groups, weights[:some])
    few = ScoreTable(uniform[:some], scores)
    points = _Points(geometry, ScoreTable(uniform, scores), weights, data.positive)
    most = min(some // _POINTS_PER_TERM, _MOST_TERMS) if trend else 1
    outputs = []
    for column in data.values.T:
        path = grow_polynomial(column[:some], few, weights[:some], max_terms=most)
        best: tuple[float, PolynomialFit, PeriodicKernel | None] | None = None
        for fit in path if len(path) < 2 else (path[0], path[-1]):
            if _explains_all(fit, column[:some]):
                best = -np.inf, fit, None
                break
            rest = fit.residuals * weights[:some]
            kernel, loss = points.kernel(rest, orders)
            loss += 0.5 * len(fit.terms) * np.log(some)
            if best is None or loss < best[0]:
                best = loss, fit, kernel
        assert best is not None
        _, fit, found = best
        if found is not None and (more := min(n, _REFINEMENT, _REFINEMENT_NUMBERS // dim)) > some:
            rest = column[:more] - fit.evaluate(ScoreTable(uniform[:more], scores))
            found, _ = points.kernel(rest * weights[:more], (found.order,), found)
        outputs.append(points.completed(column, fit.terms, found))
    return JointModel(points, tuple(outputs))


@dataclass(frozen=True, eq=False)
class _Points:
    """The points of g, with their polynomials and what each weighs."""

    geometry: Geometry
    table: ScoreTable
    weights: Array
    positive: bool

    @property
    def size(self) -> int:
        """Of the smallest lattice that contains them."""
        return 1 << (self.weights.size - 1).bit_length()

    @property
    def order(self) -> NDArray[np.int64]:
        return reversed_bits(self.weights.size, self.size.bit_length() - 1)

    def kernel(
        self, rest: Array, orders: tuple[int, ...], start: PeriodicKernel | None = None
    ) -> tuple[PeriodicKernel, float]:
        """The likeliest kernel for the values of a process at as many of the points."""
        log2_size = rest.size.bit_length() - 1
        lattice = rest[reversed_bits(1 << log2_size, log2_size)]
        steps = lattice_steps(self.geometry.vector, 1 << log2_size)
        return fit_periodic(lattice, steps, orders, start)

    def completed(
        self, values: Array, terms: Sequence[Term], kernel: PeriodicKernel | None
    ) -> _Output:
        """Coefficients of the terms, and the process conditioned on what they leave."""
        enough = min(values.size, _COEFFICIENTS)
        fit = fit_terms(values[:enough], self.table.first(enough), terms, self.weights[:enough])
        low, high = float(values.min()), float(values.max())
        positive = low >= 0 and self.positive
        if kernel is None:
            return _Output(fit, None, None, low, high, positive)
        rest = (values - fit.evaluate(self.table)) * self.weights
        process = interpolate(kernel, self.geometry.vector, self.geometry.n_theta, rest)
        return _Output(fit, kernel, process, low, high, positive)


def _explains_all(fit: PolynomialFit, values: Array) -> bool:
    scale = float(np.mean(values**2))
    return float(np.mean(fit.residuals**2)) <= _ROUNDING * scale
