"""Model of g on a joint lattice in (θ, x): sparse polynomials plus a periodic kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestquad import limits
from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.gp import (
    LatticeProcess,
    PeriodicKernel,
    fit_periodic,
    in_lattice_order,
    in_sequence_order,
    interpolate,
    lattice_steps,
    refine_kernel,
)
from nestquad.methods.learned._model import (
    DenseSet,
    ModelOfJ,
    Paths,
    mean_range,
    n_expected,
)
from nestquad.points import Periodization, Stream, density, moved, periodic
from nestquad.regression import (
    PolynomialFit,
    Score,
    ScoreTable,
    Term,
    choose_scores,
    evaluate_all,
    fit_terms,
    grow_polynomial,
)


@dataclass(frozen=True)
class JointSettings:
    """Tuning numbers of models on joint lattices.

    Attributes
    ----------
    small_density
        Density of θ below which errors of the process exceed the variance over x that it explains.
        Without this limit, few θ at the ends of the cube made one of six certified intervals of
        insurance ten times as wide.
    branch
        Binary digit that chooses a branch of the tent: scores hardly depend on it, and half of the
        digits of a double are beyond.
    most_terms, points_per_term
        Most terms, and fewest points for each: with fewer points, selection by leave-one-out errors
        would overfit.
    floor
        Least Ĵ in its standard deviations, where f needs J > 0.
    choice_points, choice_numbers
        Points that choose terms, and their coordinates, at the most.
    fitted_points
        Points that determine coefficients and refine kernels.
    sketched
        θ of a lattice among which the posterior of J is drawn.
    """

    small_density: float = 0.2
    branch: float = 2.0**30
    most_terms: int = 500
    points_per_term: int = 5
    floor: float = 0.01
    choice_points: int = 1 << 13
    choice_numbers: int = 1 << 17
    fitted_points: int = 1 << 15
    sketched: int = 1 << 14


JOINT = JointSettings()


@dataclass(frozen=True, eq=False)
class Data:
    """Values (N, p) at the first N points of interleaved shifts of a lattice in (θ, x).

    Attributes
    ----------
    vector, shifts
        Generating vector (d,) and shifts (R, d), whose leading `dim` coordinates belong to θ.
    periodic
        Points (N, d) of the lattices, from which `periodization` makes uniforms.
    positive
        Whether f cannot take zero. Where g is never negative, Ĵ ≤ 0 is then an error of the model.
    signed
        Whether f takes J below the values of g, see `mean_range`.
    """

    vector: NDArray[np.int64]
    shifts: Array
    dim: int
    periodization: Periodization
    periodic: Array
    values: Array
    positive: bool = False
    signed: bool = False

    @property
    def n_shifts(self) -> int:
        return len(self.shifts)

    def first(self, n: int) -> Data:
        return replace(self, periodic=self.periodic[:n], values=self.values[:n])

    def without(self, shift: int) -> Data:
        """The points of the other shifts."""
        kept = np.arange(self.n_shifts) != shift
        rows = np.resize(kept, len(self.values))
        return replace(
            self, shifts=self.shifts[kept], periodic=self.periodic[rows], values=self.values[rows]
        )

    @cached_property
    def uniform(self) -> Array:
        return moved(self.periodization, self.periodic)

    @cached_property
    def weights(self) -> Array:
        return density(self.periodization, self.periodic)

    @cached_property
    def range(self) -> tuple[Array, Array]:
        """Least and largest J (p,) that is allowed."""
        return mean_range(self.values, signed=self.signed)


@dataclass(frozen=True, eq=False)
class _Output:
    """One output of g: a polynomial, and the process of its residuals times the density.

    Both are of the values divided by `scale`, since squares of values may be out of range.
    """

    scale: float
    fit: PolynomialFit
    kernel: PeriodicKernel | None
    process: LatticeProcess | None
    positive: bool


@dataclass(frozen=True, eq=False)
class JointModel(ModelOfJ):
    """A model of g from the first points of the lattice.

    With the tent both v and 1 − v belong to a uniform, and the process differs there. With
    `branches` a far binary digit of the uniform chooses, at points of replicates the one of their
    own, so that `mean` has the law that replicates show; without, the smaller is taken.

    The sketch has at most `most_sketched` θ; levels above are learned at all of them.
    """

    data: Data
    table: ScoreTable
    outputs: tuple[_Output, ...]
    branches: bool = True
    most_sketched: int = JOINT.sketched

    @property
    def dim(self) -> int:
        return self.data.dim

    @property
    def n_points(self) -> int:
        return len(self.data.values)

    @property
    def size(self) -> int:
        """Number of points of each shifted lattice."""
        return self.n_points // self.data.n_shifts

    @property
    def cost(self) -> int:
        in_theta = [
            term
            for output in self.outputs
            for term in output.fit.terms
            if all(coordinate < self.dim for coordinate, _ in term)
        ]
        return len(in_theta) + self.dim

    @cached_property
    def _lattices(self) -> DenseSet:
        """Ĵ at the θ of all shifted lattices, by FFT."""
        return self._bounded(self._unbounded(self.data.shifts[:, : self.dim]))

    @property
    def _sketched(self) -> slice:
        """Every 2^k-th θ of the lattices, which are lattices themselves."""
        return slice(
            None, None, 1 << max((self.n_points - 1) // self.most_sketched, 0).bit_length()
        )

    @cached_property
    def sketch(self) -> DenseSet:
        rows, every = self._sketched, self._lattices
        return DenseSet(every.uniform[rows], every.weights[rows], every.j[rows])

    @cached_property
    def design(self) -> DenseSet:
        rows = np.arange(self.n_points, dtype=float).reshape(self.data.n_shifts, -1)
        order = in_sequence_order(rows).astype(np.intp)
        every = self._lattices
        # One θ and one x: both weigh.
        return DenseSet(every.uniform[order], self.data.weights, every.j[order])

    def as_function(self) -> JointModel:
        return replace(self, branches=False)

    def mean(self, uniform: Array) -> Array:
        return self.bounded(self._at(uniform, self._circle(uniform)), uniform)

    def sd(self, uniform: Array) -> Array:
        """Standard deviation of the process and of the coefficients of the polynomial."""
        v = periodic(self.data.periodization, uniform)
        of_process = self._deviations(density(self.data.periodization, v))
        table, of_trend = self._theta_table(uniform), np.zeros_like(of_process)
        for c, output in enumerate(self.outputs):
            if output.process is not None:
                _, drawn = output.process.draws(16, np.random.default_rng(0))
                values = in_sequence_order(drawn)
                found = output.fit.response(self.table, (values / self.data.weights).T)
                trend = output.fit.with_coefficients(found).evaluate(table)
                of_trend[:, c] = output.scale * trend.std(axis=1)
        return np.hypot(of_process, of_trend)

    def at(self, uniform: Array, inner: Array, *, cautious: bool = False) -> Array:
        both, kind = np.concatenate([uniform, inner], axis=1), self.data.periodization
        v = periodic(kind, both)
        if kind == "tent":
            # The mean over x is that over all of the circle.
            v = np.concatenate([self._circle(uniform), _branched(v[:, self.dim :], inner)], axis=1)
        # Rows of the same θ follow each other.
        new = np.append(True, (uniform[1:] != uniform[:-1]).any(axis=1))
        rows, theta = np.cumsum(new) - 1, v[new, : self.dim]
        outer = density(kind, theta)
        # Errors of the process count over the density of θ. Where that is small, caution keeps only
        # its mean over x.
        kept = (outer**2 / (outer**2 + (JOINT.small_density * cautious) ** 2))[rows]
        base, found = self._polynomials(uniform[new]), self._polynomials(both)
        for c, output in enumerate(self.outputs):
            if output.process is not None:
                mean = output.process.at(theta)
                whole = output.process.at(v)
                base[:, c] += mean / outer
                found[:, c] += kept * whole / density(kind, v) + (1.0 - kept) * (mean / outer)[rows]
        # Bounds and tails move Ĵ, and ĝ with it.
        base, found = base * self._scales, found * self._scales
        return np.asarray(found + (self.bounded(base, uniform[new]) - base)[rows])

    @property
    def periodization(self) -> Periodization:
        return self.data.periodization

    def bounded(self, j: Array, uniform: Array) -> Array:
        weights = np.ones(len(j))
        if any(output.positive for output in self.outputs):
            weights = density(self.data.periodization, periodic(self.data.periodization, uniform))
        return self._bounded(DenseSet(uniform, weights, j)).j

    def paths(self, n_paths: int, rng: np.random.Generator) -> Paths:
        """Posterior errors by simulation: sample, observe, refit.

        A function is drawn from the prior, observed where the values are, fitted as they are by
        polynomial and process, and compared with itself: its error has the law of ours (Matheron's
        rule; Papandreou and Yuille 2010, Gaussian sampling by local perturbations). Deleted groups
        are the shifts of the lattice.
        """
        base, rows, n_shifts = self.sketch, self._sketched, self.data.n_shifts
        deleted = [self.without(group) for group in range(n_shifts)] if n_shifts > 1 else []
        drawn = [
            (None, None) if o.process is None else o.process.draws(n_paths, rng)
            for o in self.outputs
        ]
        errors = np.zeros((n_paths, *base.j.shape))
        few = n_expected(n_paths)
        expected = np.zeros((len(deleted), few, *base.j.shape))
        shift = np.arange(self.n_points) % n_shifts
        for c, (marginal, values) in enumerate(drawn):
            if marginal is None or values is None:
                continue
            observed = in_sequence_order(values)
            truth = marginal.reshape(n_paths, -1)[:, rows] / base.weights
            own = self.refit(c, observed) - truth
            errors[:, :, c] = -self.outputs[c].scale * own
            for group, model in enumerate(deleted):
                refit = model.refit(c, observed[:few, shift != group], self)
                change = refit - truth[:few] - own[:few]
                expected[group, :, :, c] = self.outputs[c].scale * change
        shape, offsets = (n_shifts, *base.j.shape), self.data.shifts[:, : self.dim]
        observed, held_out = np.empty(shape)[: len(deleted)], np.zeros(shape)
        for group, model in enumerate(deleted):
            free = model._unbounded(offsets)
            bounded = model._bounded(free).j
            observed[group] = bounded[rows] - base.j
            place = slice(group * self.size, (group + 1) * self.size)
            rest = np.zeros_like(free.j)
            rest[place] = n_shifts * self._held_out(group, model, (bounded - free.j)[place])
            held_out[group] = rest[rows]
        return Paths(errors, observed, expected, held_out=held_out if deleted else None)

    def _held_out(self, group: int, others: JointModel, moved_by: Array) -> Array:
        """Residuals (m, p) of a group of points, itself a lattice, by a model without it.

        They weigh by the density of x: each stands for the mean over x at its θ. Bounds have moved
        Ĵ there by `moved_by` (m, p), and predictions with it.
        """
        data, kind = self.data, self.data.periodization
        numbers = in_lattice_order(np.arange(self.n_points, dtype=float), data.n_shifts)
        points = numbers[group].astype(np.intp)
        found = others._polynomials(data.uniform[points])
        for c, output in enumerate(others.outputs):
            if output.process is not None:
                mean = output.process.marginal(data.shifts[group : group + 1])[0]
                found[:, c] += mean / data.weights[points]
        rest = data.values[points] - found * self._scales - moved_by
        return np.asarray(rest * density(kind, data.periodic[points, self.dim :])[:, None])

    def refit(self, c: int, values: Array, sketched: JointModel | None = None) -> Array:
        """Means (K, M) over x of output c at the θ of a sketch, from other values (K, n).

        The values are multiplied by the density of the points, and in units of the scale.
        """
        whole, output = sketched or self, self.outputs[c]
        base, rows, weights = whole.sketch, whole._sketched, self.data.weights
        trend = output.fit.with_coefficients(output.fit.response(self.table, (values / weights).T))
        polynomial = trend.evaluate(whole._theta_table(base.uniform)).T
        if output.process is None:
            return np.asarray(polynomial)
        rest = values - trend.evaluate(self.table).T * weights
        by_shift = np.stack([in_lattice_order(row, self.data.n_shifts) for row in rest])
        offsets = whole.data.shifts[:, : self.dim]
        mean = output.process.predicted(by_shift, offsets).reshape(len(values), -1)[:, rows]
        return np.asarray(mean / base.weights + polynomial)

    def without(self, group: int) -> JointModel:
        return self.of_data(self.data.without(group))

    def of_data(self, data: Data) -> JointModel:
        """Model with the same terms and kernels for other data."""
        table = ScoreTable(data.uniform, self.table.scores)
        outputs = [
            _completed(
                data, table, column / output.scale, output.scale, output.fit.terms, output.kernel
            )
            for column, output in zip(data.values.T, self.outputs, strict=True)
        ]
        return replace(self, data=data, table=table, outputs=tuple(outputs))

    def residuals(self) -> Array:
        columns = [
            np.zeros(self.n_points)
            if output.process is None
            else output.scale * in_sequence_order(output.process.leave_one_out) / self.data.weights
            for output in self.outputs
        ]
        return np.stack(columns, axis=1)

    def replicates(self, n: int, log2_size: int, stream: Stream) -> Iterator[DenseSet]:
        """Lattices made of copies of that of g, on each of which Ĵ is one FFT.

        A polynomial alone is as cheap anywhere, and lattices in θ alone are better for it.
        """
        if all(output.process is None for output in self.outputs):
            yield from super().replicates(n, log2_size, stream)
            return
        # On a line their steps differ, as in the base.
        copies = np.full(n, max(1, (1 << log2_size) // self.size))
        copies += np.arange(n) if self.dim == 1 else 0
        owner = np.repeat(np.arange(n), copies)
        shifts = stream.generator().random((n, self.dim))[owner]
        number = np.concatenate([np.arange(count) for count in copies])[:, None]
        steps = number * self.data.vector[: self.dim] / (copies[owner, None] * self.size)
        offsets, together = (steps + shifts) % 1.0, max(1, limits.LATTICE_POINTS // self.size)
        for start in range(0, len(offsets), together):
            some = slice(start, start + together)
            found = self._bounded(self._unbounded(offsets[some]))
            yield replace(found, owner=np.repeat(owner[some], self.size))

    def describe(self) -> dict[str, Any]:
        notes = [
            f"{self.n_points:,} points of a lattice in {self.data.vector.size} coordinates, "
            f"{self.data.periodization} periodization"
        ]
        outputs = []
        for c, output in enumerate(self.outputs):
            terms, kernel = len(output.fit.terms), output.kernel
            found: dict[str, Any] = {
                "polynomial_terms": terms,
                "leave_one_out": output.scale * float(np.sqrt(output.fit.loo)),
            }
            trend = f"{terms} polynomial terms" if terms > 1 else "a constant"
            if kernel is None:
                notes.append(f"output {c + 1}: {trend}, without residuals for a kernel")
            else:
                notes.append(
                    f"output {c + 1}: {trend} and a kernel of order {kernel.order}, "
                    f"nugget {kernel.nugget:.1g}"
                )
                found |= {"order": kernel.order, "scales": kernel.scales, "nugget": kernel.nugget}
            outputs.append(found)
        return {"outputs": outputs, "notes": notes}

    def on_lattices(self, offsets: Array) -> DenseSet:
        """Ĵ at the lattice θ shifted by offsets (C, d_θ), by FFT: (C m, …) in lattice order."""
        return self._bounded(self._unbounded(offsets))

    # Means over x, first without bounds, then with them.

    def _unbounded(self, offsets: Array) -> DenseSet:
        """Ĵ at the lattice θ shifted by offsets (C, d_θ): (C m, …), without bounds."""
        # Coordinate by coordinate in memory, as all that follows.
        v = lattice_steps(self.data.vector[: self.dim], self.size)[:, None] + offsets.T[:, :, None]
        v -= np.floor(v)
        v = v.reshape(self.dim, -1).T
        uniform = moved(self.data.periodization, v)
        if self.branches and self.data.periodization == "tent":
            digits = (uniform * JOINT.branch).astype(np.int64)
            uniform = np.asarray(((digits & ~1) + (v > 0.5) + 0.5) / JOINT.branch)
        weights = density(self.data.periodization, v)
        j = self._polynomials(uniform)
        for c, output in enumerate(self.outputs):
            if output.process is not None:
                j[:, c] += output.process.marginal(offsets).reshape(-1) / weights
        return DenseSet(uniform, weights, j * self._scales)

    def _circle(self, uniform: Array) -> Array:
        v = periodic(self.data.periodization, uniform)
        branched = self.branches and self.data.periodization == "tent"
        return _branched(v, uniform) if branched else v

    def _at(self, uniform: Array, v: Array) -> Array:
        """At any θ (T, d_θ), or at any θ and x (T, d): (T, p), without bounds."""
        j = self._polynomials(uniform)
        weights = density(self.data.periodization, v)
        for c, output in enumerate(self.outputs):
            if output.process is not None:
                j[:, c] += output.process.at(v) / weights
        return np.asarray(j * self._scales)

    @property
    def _scales(self) -> Array:
        return np.array([output.scale for output in self.outputs])

    def _polynomials(self, uniform: Array) -> Array:
        """The polynomials of all outputs, (T, p), less their scales."""
        return evaluate_all([output.fit for output in self.outputs], uniform, self.table.scores)

    def _bounded(self, points: DenseSet) -> DenseSet:
        """Ĵ kept where a mean of g can be, and positive where f needs that."""
        j, (low, high) = points.j.copy(), self.data.range
        for c, output in enumerate(self.outputs):
            if output.process is not None:
                # Where the density is small, noise over it is large.
                j[:, c] = np.clip(j[:, c], low[c], high[c])
                if output.positive:
                    floor = JOINT.floor * self._deviations(points.weights)[:, c]
                    j[:, c] = np.maximum(j[:, c], floor)
        return replace(points, j=j)

    def _deviations(self, weights: Array) -> Array:
        """Standard deviations of J at θ that weigh (M,): (M, p)."""
        spreads = [0.0 if o.process is None else o.scale * o.process.spread for o in self.outputs]
        return np.asarray(np.array(spreads) / np.maximum(weights, 1e-300)[:, None])

    def _theta_table(self, uniform: Array) -> ScoreTable:
        return ScoreTable(uniform, self.table.scores[: self.dim])


def _branched(v: Array, uniform: Array) -> Array:
    """v or 1 − v, by a far binary digit of uniforms."""
    return np.where((uniform * JOINT.branch).astype(np.int64) & 1, 1.0 - v, v)


def fit_joint(
    data: Data, written: tuple[Score, Score], *, trend: bool, orders: tuple[int, ...]
) -> JointModel:
    """Learn g from data; the laws of θ and x are written in the scores that are named.

    For each output the polynomial of least leave-one-out error competes with none at all; the
    likelihood of the process that completes them decides.
    """
    n, dim = data.periodic.shape
    most = min(n, JOINT.choice_points, JOINT.choice_numbers // dim) // data.n_shifts
    some = data.n_shifts << (most.bit_length() - 1)
    few = data.first(some)
    groups = [(data.dim, written[0]), (dim - data.dim, written[1])]
    scales = scale_of(data.values)
    scores = choose_scores(few.values / scales, few.uniform, groups, few.weights)
    table, sparse = ScoreTable(data.uniform, scores), ScoreTable(few.uniform, scores)
    most = min(some // JOINT.points_per_term, JOINT.most_terms) if trend else 1
    outputs = []
    for column, scale in zip((data.values / scales).T, scales, strict=True):
        path = grow_polynomial(column[:some], sparse, few.weights, max_terms=most)
        best: tuple[float, PolynomialFit, PeriodicKernel | None] | None = None
        for fit in path if len(path) < 2 else (path[0], path[-1]):
            # Residuals are rounding errors.
            if np.mean(fit.residuals**2) <= 1e-24 * np.mean(column[:some] ** 2):
                best = -np.inf, fit, None
                break
            kernel, loss = _kernel(data, fit.residuals * few.weights, orders)
            loss += 0.5 * len(fit.terms) * np.log(some)
            if best is None or loss < best[0]:
                best = loss, fit, kernel
        assert best is not None
        outputs.append(_completed(data, table, column, float(scale), best[1].terms, best[2]))
    return JointModel(data, table, tuple(outputs))


def _kernel(data: Data, rest: Array, orders: tuple[int, ...]) -> tuple[PeriodicKernel, float]:
    """The likeliest kernel for the values of a process at the first points, all orders compared."""
    lattices = in_lattice_order(rest, data.n_shifts)
    steps = lattice_steps(data.vector, lattices.shape[1])
    found = []
    for order in orders:
        kernel, _ = fit_periodic(lattices, steps, (order,))
        found.append(refine_kernel(interpolate(kernel, data.vector, data.shifts, data.dim, rest)))
    return min(found, key=lambda fitted: fitted[1])


def _completed(
    data: Data,
    table: ScoreTable,
    values: Array,
    scale: float,
    terms: Sequence[Term],
    kernel: PeriodicKernel | None,
) -> _Output:
    """Coefficients of the terms, and the process conditioned on the residuals, of scaled values."""
    enough = min(values.size, JOINT.fitted_points)
    fit = fit_terms(values[:enough], table.first(enough), terms, data.weights[:enough])
    positive = bool(values.min() >= 0) and data.positive
    if kernel is None:
        return _Output(scale, fit, None, None, positive)
    rest = (values - fit.evaluate(table)) * data.weights
    process = interpolate(kernel, data.vector, data.shifts, data.dim, rest)
    return _Output(scale, fit, kernel, process, positive)
