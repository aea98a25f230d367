"""A model of g on a joint lattice in (θ, x): sparse polynomials plus a periodic kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nestquad._typing import Array
from nestquad.methods._circulant import (
    LatticeProcess,
    PeriodicKernel,
    fit_kernel,
    interpolate,
    lattice_steps,
    reversed_bits,
)
from nestquad.methods._periodize import Periodization, density, moved, periodic
from nestquad.methods._polynomials import Score, ScoreTable, Term, higher_terms
from nestquad.methods._sparse_fit import PolynomialFit, choose_scores, fit_terms, grow_polynomial

__all__ = ["FLOOR", "ConditionalMeans", "Data", "Geometry", "JointModel", "fit_joint"]

# Points that choose terms and orders, that determine coefficients, and that refine kernels (less
# where there are many coordinates): more would cost time and change little.
_CHOICE, _COEFFICIENTS, _REFINEMENT = 2**13, 2**15, 2**15
_REFINEMENT_NUMBERS = 2**18
_MOST_TERMS = 500
# Where g is positive, Ĵ is kept above this fraction of its standard deviation.
FLOOR = 0.01
# How far beyond the values of g (in ranges) Ĵ may be. Where the density is small, noise over it
# is large.
_MARGIN = 0.5
# Draws for comparing what was expected with what happened, and the most that is made of it.
_CHECK_PATHS = 16
_TREND_DRAWS = 16
_MOST_DOUBT = 3.0
# Mean squared residual relative to the values' that is rounding and nothing else.
_ROUNDING = 1e-24


@dataclass(frozen=True, eq=False)
class Geometry:
    """A shifted lattice with generating vector and shift (d,), of which θ leads."""

    vector: NDArray[np.int64]
    shift: Array
    n_theta: int
    periodization: Periodization

    def points(self, size: int, offset: Array | float = 0.0) -> Array:
        """Periodic coordinates of θ at the lattice of that size, moved by an offset: (M, d_θ)."""
        steps = lattice_steps(self.vector[: self.n_theta], size).T
        return np.asarray((steps + self.shift[: self.n_theta] + offset) % 1.0)


@dataclass(frozen=True, eq=False)
class Data:
    """Values (N, p) at uniforms (N, d) of a lattice, and what each point weighs (N,)."""

    geometry: Geometry
    values: Array
    uniform: Array
    weights: Array

    def first(self, n: int) -> Data:
        return Data(self.geometry, self.values[:n], self.uniform[:n], self.weights[:n])


@dataclass(frozen=True, eq=False)
class _Output:
    """One output of g: polynomial, and the process of what it leaves times the density."""

    fit: PolynomialFit
    kernel: PeriodicKernel | None
    process: LatticeProcess | None
    low: float
    high: float

    def bounded(self, j: Array, weights: Array, floor: float) -> Array:
        """Ĵ kept where a mean of g can be: near the values of g, and above zero if they are."""
        if self.process is None:
            return j
        margin = _MARGIN * (self.high - self.low)
        j = np.clip(j, self.low - margin, self.high + margin)
        if self.low > 0:
            j = np.maximum(j, floor * self.process.spread / weights)
        return j


@dataclass(frozen=True, eq=False)
class ConditionalMeans:
    """Ĵ (M, p) at some θ, the uniforms (M, d_θ) behind them and what each θ weighs (M,)."""

    uniform: Array
    weights: Array
    j: Array


@dataclass(frozen=True, eq=False)
class JointModel:
    """What was learned of g from the first points of the lattice."""

    geometry: Geometry
    scores: tuple[Score, ...]
    size: int
    outputs: tuple[_Output, ...]

    def conditional(self, offset: Array | None = None, *, floor: float = FLOOR) -> ConditionalMeans:
        """E[g | θ] at the lattice θ, or at those of a copy moved by `offset` (d_θ,)."""
        geometry = self.geometry
        v = geometry.points(self.size, 0.0 if offset is None else offset)
        uniform = moved(geometry.periodization, v)
        weights = density(geometry.periodization, v)
        table = ScoreTable(uniform, self.scores[: geometry.n_theta])
        columns = []
        for output in self.outputs:
            j = output.fit.evaluate(table)
            if output.process is not None:
                j += output.process.marginal(offset) / weights
            columns.append(output.bounded(j, weights, floor))
        return ConditionalMeans(uniform, weights, np.stack(columns, axis=1))

    def conditional_at(self, uniform: Array) -> Array:
        """E[g | θ] at any uniforms (T, d_θ) of θ: (T, p)."""
        geometry = self.geometry
        v = periodic(geometry.periodization, uniform)
        weights = density(geometry.periodization, v)
        table = ScoreTable(uniform, self.scores[: geometry.n_theta])
        columns = []
        for output in self.outputs:
            j = output.fit.evaluate(table)
            if output.process is not None:
                j += output.process.marginal_at(v - geometry.shift[: geometry.n_theta]) / weights
            columns.append(output.bounded(j, weights, FLOOR))
        return np.stack(columns, axis=1)

    def paths(
        self, base: ConditionalMeans, n_paths: int, rng: np.random.Generator, factors: Array
    ) -> Array:
        """Draws of J at the lattice θ, (n_paths, M, p), from its posterior about `base`.

        Deviations of output c are multiplied by factors[c].
        """
        drawn = np.repeat(base.j[None], n_paths, axis=0)
        for c, output in enumerate(self.outputs):
            if output.process is not None:
                errors = output.process.errors(n_paths, rng)
                drawn[:, :, c] += factors[c] * errors / base.weights
                drawn[:, :, c] = output.bounded(drawn[:, :, c], base.weights, FLOOR)
        return drawn

    def reality(self, smaller: JointModel, rng: np.random.Generator) -> Array:
        """By what the posterior deviations of each output are too large or too small, (p,).

        `smaller` is fitted to fewer of the values. What the others changed in Ĵ is compared with
        what the posterior expected them to change: posterior variances of nested data differ by
        exactly that.
        """
        before, after = smaller.conditional(), self.conditional()
        step = self.size // smaller.size
        change = (after.j[::step] - before.j) * before.weights[:, None]
        factors = np.zeros(len(self.outputs))
        for c, (now, then) in enumerate(zip(self.outputs, smaller.outputs, strict=True)):
            if now.process is None or then.process is None:
                continue
            left = float(np.mean(now.process.errors(_CHECK_PATHS, rng) ** 2))
            was = float(np.mean(then.process.errors(_CHECK_PATHS, rng) ** 2))
            expected = max(was - left, 0.25 * was)
            if expected > 0:
                factors[c] = np.sqrt(np.mean(change[:, c] ** 2) / expected)
        return np.minimum(factors, _MOST_DOUBT)

    def trend_doubts(self, base: ConditionalMeans, data: Data, rng: np.random.Generator) -> Array:
        """J at the lattice θ, (m + 1, M, p), if the polynomials had come out otherwise.

        First with what terms of one and two more degrees in θ find in the values less what all
        others predict for them; then with coefficients that these residuals, multiplied by random
        numbers, would have given.
        """
        drawn = np.repeat(base.j[None], _TREND_DRAWS + 1, axis=0)
        n_theta = self.geometry.n_theta
        scores = self.scores[:n_theta]
        at_lattice = ScoreTable(base.uniform, scores)
        n = min(data.weights.size, _COEFFICIENTS)
        table, weights = ScoreTable(data.uniform[:n], self.scores), data.weights[:n]
        order = reversed_bits(n, (self.size - 1).bit_length())
        multipliers = rng.standard_normal((n, _TREND_DRAWS))
        for c, output in enumerate(self.outputs):
            if output.process is None or len(output.fit.terms) < 2:
                continue
            left = output.process.leave_one_out[order] / weights
            few = min(n, _CHOICE)
            more = higher_terms(output.fit.terms, n_theta, max(1, few // 10))
            found = fit_terms(left[:few], table.first(few).leading(n_theta), more, weights[:few])
            drawn[0, :, c] += found.evaluate(at_lattice)
            change = output.fit.response(table, left[:, None] * multipliers)
            for draw, coefficients in zip(drawn[1:, :, c], change.T, strict=True):
                draw += replace(output.fit, coefficients=coefficients).evaluate(at_lattice)
            drawn[:, :, c] = output.bounded(drawn[:, :, c], base.weights, FLOOR)
        return drawn

    def refitted(self, data: Data) -> JointModel:
        """The same terms and kernels, with coefficients from other data."""
        points = _Points(self.geometry, ScoreTable(data.uniform, self.scores), data.weights)
        outputs = [
            points.completed(column, output.fit.terms, output.kernel)
            for column, output in zip(data.values.T, self.outputs, strict=True)
        ]
        return replace(self, size=points.size, outputs=tuple(outputs))


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
    some = min(n, _CHOICE)
    groups = [(geometry.n_theta, written[0]), (dim - geometry.n_theta, written[1])]
    scores = choose_scores(data.values[:some], uniform[:some], groups, weights[:some])
    few = ScoreTable(uniform[:some], scores)
    points = _Points(geometry, ScoreTable(uniform, scores), weights)
    most = min(some // 10, _MOST_TERMS) if trend else 1
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
    return JointModel(geometry, scores, points.size, tuple(outputs))


@dataclass(frozen=True, eq=False)
class _Points:
    """The points of g, with their polynomials and what each weighs."""

    geometry: Geometry
    table: ScoreTable
    weights: Array

    @property
    def size(self) -> int:
        """Of the smallest lattice that contains them."""
        return 1 << (self.weights.size - 1).bit_length()

    def kernel(
        self, rest: Array, orders: tuple[int, ...], start: PeriodicKernel | None = None
    ) -> tuple[PeriodicKernel, float]:
        """The likeliest kernel for the values of a process at as many of the points."""
        log2_size = rest.size.bit_length() - 1
        lattice = rest[reversed_bits(1 << log2_size, log2_size)]
        steps = lattice_steps(self.geometry.vector, 1 << log2_size)
        return fit_kernel(lattice, steps, orders, start)

    def completed(
        self, values: Array, terms: Sequence[Term], kernel: PeriodicKernel | None
    ) -> _Output:
        """Coefficients of the terms, and the process conditioned on what they leave."""
        enough = min(values.size, _COEFFICIENTS)
        fit = fit_terms(values[:enough], self.table.first(enough), terms, self.weights[:enough])
        low, high = float(values.min()), float(values.max())
        if kernel is None:
            return _Output(fit, None, None, low, high)
        rest = (values - fit.evaluate(self.table)) * self.weights
        process = interpolate(kernel, self.geometry.vector, self.geometry.n_theta, rest)
        return _Output(fit, kernel, process, low, high)


def _explains_all(fit: PolynomialFit, values: Array) -> bool:
    scale = float(np.mean(values**2))
    return float(np.mean(fit.residuals**2)) <= _ROUNDING * scale
