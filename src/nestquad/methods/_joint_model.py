"""A model of g on a joint lattice in (θ, x): sparse polynomials plus a periodic kernel."""

from __future__ import annotations

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
from nestquad.methods._periodize import Periodization, density, moved
from nestquad.methods._polynomials import (
    PolynomialFit,
    Score,
    ScoreTable,
    choose_scores,
    fit_terms,
    grow_polynomial,
)

__all__ = ["FLOOR", "ConditionalMeans", "Geometry", "JointModel", "fit_joint"]

# Hyperparameters and the choice of terms need no more points than this.
_LOG2_TUNING = 13
_MOST_TERMS = 500
# Where g is positive, Ĵ is kept above this fraction of its standard deviation.
FLOOR = 0.01
# Draws for comparing what was expected with what happened, and the most that is made of it.
_CHECK_PATHS = 16
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
class _Output:
    """One output of g: polynomial, and the process of what it leaves times the density."""

    fit: PolynomialFit
    kernel: PeriodicKernel | None
    process: LatticeProcess | None
    positive: bool

    def raised(self, j: Array, weights: Array, floor: float) -> Array:
        """A positive g has a positive mean, however small: Ĵ is kept above zero."""
        if not self.positive or self.process is None:
            return j
        return np.maximum(j, floor * self.process.spread / weights)


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
            columns.append(output.raised(j, weights, floor))
        return ConditionalMeans(uniform, weights, np.stack(columns, axis=1))

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
                drawn[:, :, c] = output.raised(drawn[:, :, c], base.weights, FLOOR)
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

    def refitted(self, values: Array, uniform: Array, weights: Array) -> JointModel:
        """The same terms and kernels, with coefficients from other values (N, p)."""
        table = ScoreTable(uniform, self.scores)
        outputs = []
        for column, output in zip(values.T, self.outputs, strict=True):
            fit = fit_terms(column, table, output.fit.terms, weights)
            outputs.append(_completed(self.geometry, fit, weights, output.kernel, output.positive))
        size = 1 << (values.shape[0] - 1).bit_length()
        return replace(self, size=size, outputs=tuple(outputs))


def fit_joint(
    geometry: Geometry,
    values: Array,
    uniform: Array,
    weights: Array,
    written: tuple[Score, Score],
    *,
    trend: bool,
    orders: tuple[int, ...],
) -> JointModel:
    """Learn g from values (N, p) at uniforms (N, d), each of which weighs `weights` (N,).

    For each output the polynomial of least leave-one-out error competes with none at all; the
    likelihood of the process that completes them decides.
    """
    n, dim = uniform.shape
    many = min(n, 1 << _LOG2_TUNING)  # points that choose terms
    few = 1 << (many.bit_length() - 1)  # points that choose kernels: a whole lattice
    groups = [(geometry.n_theta, written[0]), (dim - geometry.n_theta, written[1])]
    scores = choose_scores(values[:many], uniform[:many], groups, weights[:many])
    table = ScoreTable(uniform[:many], scores)
    steps = lattice_steps(geometry.vector, few)
    order = reversed_bits(few, few.bit_length() - 1)
    most = min(many // 10, _MOST_TERMS) if trend else 1
    outputs = []
    for column in values.T:
        path = grow_polynomial(column[:many], table, weights[:many], max_terms=most)
        best: tuple[float, PolynomialFit, PeriodicKernel | None] | None = None
        for fit in path if len(path) < 2 else (path[0], path[-1]):
            if _explains_all(fit, column[:many]):
                best = -np.inf, fit, None
                break
            rest = (fit.residuals * weights[:many])[order]
            kernel, loss = fit_kernel(rest, steps, orders)
            loss += 0.5 * len(fit.terms) * np.log(few)
            if best is None or loss < best[0]:
                best = loss, fit, kernel
        assert best is not None
        _, fit, found = best
        if many < n:
            fit = fit_terms(column, ScoreTable(uniform, scores), fit.terms, weights)
        outputs.append(_completed(geometry, fit, weights, found, bool(column.min() > 0)))
    return JointModel(geometry, scores, 1 << (n - 1).bit_length(), tuple(outputs))


def _completed(
    geometry: Geometry,
    fit: PolynomialFit,
    weights: Array,
    kernel: PeriodicKernel | None,
    positive: bool,
) -> _Output:
    if kernel is None:
        return _Output(fit, None, None, positive)
    rest = fit.residuals * weights
    process = interpolate(kernel, geometry.vector, geometry.n_theta, rest)
    return _Output(fit, kernel, process, positive)


def _explains_all(fit: PolynomialFit, values: Array) -> bool:
    scale = float(np.mean(values**2))
    return float(np.mean(fit.residuals**2)) <= _ROUNDING * scale
