"""Levels above the innermost one: conditional means of a model, at no evaluation of g.

Given J_{k+1} at the points of lattices in (y_0, …, y_k), the next level is
J_k = E[f_k(J_{k+1}) | y_0 … y_{k−1}]. It is learned as g is by a joint lattice: a polynomial and a
periodic kernel in all coordinates, whose mean over y_k is exact. Leading coordinates of a rank-1
lattice are a rank-1 lattice, so that J_k is known at the leading coordinates of the same points,
and so on up to y_0. With fixed terms and kernels each level is linear in its values: draws of the
innermost J go through all levels by a few matrix products and FFTs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nestquad._typing import Array, Indices
from nestquad.accuracy import finite_average, replicate_errors, size_of
from nestquad.gp import in_sequence_order, lattice_steps
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._joint_model import Data, JointModel, fit_joint
from nestquad.methods.learned._model import DenseSet
from nestquad.points import Periodization, density, moved
from nestquad.regression import Score
from nestquad.repeated import RepeatedExpectation
from nestquad.result import OuterSample


@dataclass(frozen=True)
class LevelSettings:
    """Tuning numbers of the levels above the innermost one.

    Attributes
    ----------
    n_replicates
        Independently shifted lattices, whose spread is the random part of the error. Half as many
        as of a dense average, since each is learned.
    log2_sizes
        Base-2 logarithms of the fewest and the most points of a lattice. 2¹⁴ points of four
        coordinates are learned in about a second.
    log2_step
        Base-2 logarithm of the growth. The difference to a lattice that is four times as small
        bounds the error of any rate above n^(-1/2).
    log2_nested
        Base-2 logarithm of the points (y_0, …, y_k) at which f_k is averaged without a model, to
        correct the learned mean of its level.
    block
        Points of a block of these.
    trust
        Ratio of the error of learned levels to that of corrected ones, below which they are not
        corrected: common errors of kinked levels are up to five times what two sizes show.
    share
        Error of the upper levels beside that of the innermost one, below which they do not grow.
    enough
        Relative error of the upper levels below which they do not grow either.
    unlearned
        Share of the variance of J_k that two sizes of lattices disagree about, beyond which a
        note says that the level is hardly learned.
    local
        Share of the standard deviation of J_k over which an f without an event in reach is flat.
    """

    n_replicates: int = 8
    log2_sizes: tuple[int, int] = (10, 14)
    log2_step: int = 2
    log2_nested: int = 17
    block: int = 1 << 14
    trust: float = 0.1
    share: float = 0.2
    enough: float = 1e-8
    unlearned: float = 0.05
    local: float = 0.01


DEFAULT = LevelSettings()

# Share of an error of a level for its effect: the skewness of its noise counts at kinks of f.
_NUDGE = 0.05


@dataclass(frozen=True, eq=False)
class Lattices:
    """R shifts (R, d) of a rank-1 lattice of m points; rows are in lattice order, shift by shift.

    `vector` (d,) generates it, and `periodization` makes uniforms of its points.
    """

    vector: NDArray[np.int64]
    shifts: Array
    size: int
    periodization: Periodization

    @property
    def dim(self) -> int:
        return int(self.shifts.shape[1])

    def leading(self, dim: int) -> Lattices:
        """Project the points on their leading coordinates."""
        return replace(self, vector=self.vector[:dim], shifts=self.shifts[:, :dim])

    @cached_property
    def periodic(self) -> Array:
        steps = lattice_steps(self.vector, self.size).T
        return np.asarray((steps + self.shifts[:, None]) % 1.0).reshape(-1, self.dim)

    @cached_property
    def uniform(self) -> Array:
        return moved(self.periodization, self.periodic)

    @cached_property
    def weights(self) -> Array:
        return density(self.periodization, self.periodic)

    def data(self, dim: int, values: Array) -> Data:
        """Values (M, q) at the points, for a mean given the first `dim` coordinates."""
        order = self.sequence_order
        both = self.periodic[order], values[order]
        return Data(self.vector, self.shifts, dim, self.periodization, *both)

    @cached_property
    def sequence_order(self) -> Indices:
        """Rows in van der Corput order, shifts interleaved."""
        rows = np.arange(float(len(self.shifts) * self.size)).reshape(len(self.shifts), -1)
        return in_sequence_order(rows).astype(np.intp)


@dataclass(frozen=True, eq=False)
class LevelMean:
    """Conditional mean of a level given the leading coordinates, linear in its values.

    Attributes
    ----------
    lattices
        Points in all coordinates of the level.
    model
        Terms and kernel of each output at these points; its θ are the coordinates that remain.
    """

    lattices: Lattices
    model: JointModel

    @classmethod
    def fit(cls, lattices: Lattices, dim: int, values: Array, written: Score) -> LevelMean:
        """Choose terms and kernels for values (M, q) at lattices."""
        orders = (1, 2) if lattices.periodization == "tent" else (1, 2, 3)
        data = lattices.data(dim, values)
        model = fit_joint(data, (written, written), trend=True, orders=orders)
        return cls(lattices, replace(model, most_sketched=len(values)))

    def at(self, lattices: Lattices) -> LevelMean:
        """Level with the same terms and kernels at other points."""
        points = lattices.leading(self.lattices.dim)
        none = np.zeros((points.shifts.shape[0] * points.size, len(self.model.outputs)))
        return LevelMean(points, self.model.of_data(points.data(self.model.dim, none)))

    def shifted(self, values: Array) -> Callable[[Array], Array]:
        """Means (R M, q) of values (M, q) as a function of shifts (R, ·) of the points."""
        dim = self.model.dim
        model = self.model.of_data(self.lattices.data(dim, values))
        return lambda shift: model.on_lattices(shift[:, :dim]).j

    def __call__(self, values: Array) -> Array:
        """Means (M, q) at the leading coordinates of the points, from values (M, q).

        Kept within the range of the values, as every mean is.
        """
        weighed = values[self.lattices.sequence_order] * self.model.data.weights[:, None]
        means = [self.model.refit(c, one[None])[0] for c, one in enumerate(weighed.T)]
        low, high = values.min(axis=0), values.max(axis=0)
        return np.asarray(np.clip(np.stack(means, axis=1), low, high))


@dataclass(frozen=True, eq=False)
class Cascade:
    """All levels above the innermost one, on given lattices in (y_0, …, y_{D−2}).

    Attributes
    ----------
    levels
        The problem.
    scalar
        Whether g has a single output.
    lattices
        Points.
    means
        Conditional means J_1, …, J_{D−2} from values of f_1, …, f_{D−2}.
    """

    levels: RepeatedExpectation
    scalar: bool
    lattices: Lattices
    means: tuple[LevelMean, ...] = ()

    @cached_property
    def y(self) -> list[Array]:
        """y_0 … y_{D−2} at the points."""
        law = self.levels.innermost.outer_law
        return self.levels.split(law.from_uniform(np.clip(self.lattices.uniform, 1e-15, 1 - 1e-15)))

    def fitted(self, j: Array) -> Cascade:
        """With terms and kernels chosen for J_{D−1} (M, p) at the points."""
        written: Score = self.levels.innermost.outer_law.base
        ends, means, scalar = np.cumsum(self.levels.base_dims), list[LevelMean](), self.scalar
        for k in reversed(range(1, self.levels.depth - 1)):
            values, scalar = self.f(k, j, scalar)
            points = self.lattices.leading(int(ends[k]))
            means.insert(0, LevelMean.fit(points, int(ends[k - 1]), values, written))
            j = means[0](values)
        return replace(self, means=tuple(means))

    def at(self, lattices: Lattices) -> Cascade:
        """Refit the terms and kernels at other points."""
        means = tuple(mean.at(lattices) for mean in self.means)
        return replace(self, lattices=lattices, means=means)

    def arguments(
        self, j: Array, scalar: bool | None = None, k: int | None = None, *, finite: bool = False
    ) -> list[tuple[Array, bool]]:
        """J_1, …, J_{k+1} at the points from the last, and whether each is a single output.

        The last is the innermost one without k. `finite` raises where some f is not.
        """
        arguments = [(j, self.scalar if scalar is None else scalar)]
        for level in reversed(range(1, self.levels.depth - 1 if k is None else k + 1)):
            values, single = self.f(level, *arguments[0], finite=finite)
            arguments.insert(0, (self.means[level - 1](values), single))
        return arguments

    def f(self, k: int, j: Array, scalar: bool, *, finite: bool = False) -> tuple[Array, bool]:
        """f_k (M, q) at J_{k+1} (M, p) and the points, and whether it is a single output.

        Values that are not finite, but need not be, become the nearest that are.
        """
        raw = self.levels.apply_f(k, j[:, 0] if scalar else j, self.y, finite=finite)
        values = raw.reshape(len(raw), -1)
        usable = np.isfinite(values)
        if not usable.all():
            low = np.where(usable, values, np.inf).min(axis=0)
            high = np.where(usable, values, -np.inf).max(axis=0)
            values = np.clip(np.nan_to_num(values, nan=0.0), low, high)
        return values, raw.ndim == 1

    def corrections(
        self, arguments: list[tuple[Array, bool]], innermost: Callable[[Array], Array], n: int
    ) -> Array:
        """Changes (q,) of the average of f_0 by the errors of the learned J_1, …, J_{D−2}.

        At each point, f_k is averaged over a lattice of y_k, with n values in all: a mean without
        a model, whose distance d to the learned J_k is its error and noise. Its effect is
        d f'(J_k), which, unlike f(J_k + d), is linear in that noise. So errors
        of J_k count by their squares (Chernozhukov and others 2018, Double/debiased machine
        learning). `innermost` has J_{D−1} at points with other shifts (R, d).
        """
        points, bases = self.lattices, self.levels.base_dims
        n, total = max(n // points.size, 2), np.zeros(1)
        for k in range(1, self.levels.depth - 1):
            start, end = sum(bases[:k]), sum(bases[: k + 1])
            below, scalar = innermost, arguments[k][1]
            if k < self.levels.depth - 2:
                below = self.means[k].shifted(self.f(k + 1, *arguments[k + 1])[0])
            move: Array = -arguments[k - 1][0]
            steps = np.pad(
                lattice_steps(points.vector[start:end], n).T, ((0, 0), (start, points.dim - end))
            )
            for block in np.array_split(steps, -(-n * points.size // DEFAULT.block)):
                shifts = points.shifts + block
                there = replace(self, lattices=replace(points, shifts=shifts))
                values, _ = there.f(k, below(shifts), scalar)
                ratio = density(points.periodization, there.lattices.periodic[:, start:end])
                summands = (ratio[:, None] * values).reshape(len(block), points.size, -1)
                move = move + summands.sum(axis=0) / n
            for level in reversed(range(k)):
                j, scalar = arguments[level]
                sides = (j + sign * _NUDGE * move for sign in (1.0, -1.0))
                up, down = (self.f(level, side, scalar)[0] for side in sides)
                move = (up - down) / (2.0 * _NUDGE)
            weights = points.leading(start).weights
            total = total + weights @ move / weights.sum()
        return total

    def top(self, j: Array, scalar: bool | None = None, k: int | None = None) -> Array:
        """f_0 (M, q) at the points, from J_{k+1} (M, p): from the innermost one without k."""
        return self.f(0, *self.arguments(j, scalar, k)[0])[0]

    @property
    def theta(self) -> Lattices:
        """The points in the coordinates of y_0."""
        return self.lattices.leading(self.levels.base_dims[0])


@dataclass(frozen=True)
class LevelAverage(DenseAverage):
    """Averages over all levels above the innermost one, at no evaluation of g.

    `problem` has the two innermost levels, with the identity for f. An average over replicates has
    their spread as its random error, and its difference to lattices of a quarter of the points as
    the error that they have in common. `replicated` keeps averages by size, which no check changes.
    """

    levels: RepeatedExpectation = field(kw_only=True)
    settings: LevelSettings = DEFAULT
    cascade: Cascade | None = None
    replicated: dict[int, Replicates] = field(default_factory=dict)

    def f(self, j: Array, uniform: Array | None = None) -> Array:
        """Values (M, q) of the innermost f at J (M, p) and uniforms of θ; J itself without them."""
        if uniform is None:
            return super().f(j)
        law = self.levels.innermost.outer_law
        y = self.levels.split(law.from_uniform(np.clip(uniform, 1e-15, 1.0 - 1e-15)))
        values = self.levels.apply_f(self.levels.depth - 2, self.argument(j), y)
        return values.reshape(len(j), -1)

    def at_sketch(self, model: JointModel) -> LevelAverage:
        """With the levels at the points of the model's own sketch."""
        data = model.data
        points = Lattices(
            data.vector[: model.dim], data.shifts[:, : model.dim], model.size, data.periodization
        )
        cascade = Cascade(self.levels, self.scalar, points)
        return replace(self, cascade=cascade.fitted(model.sketch.j))

    def averages(self, top: Array) -> Array:
        """Averages (q,) of f_0 (M, q) at the sketch."""
        assert self.cascade is not None
        points = self.cascade.theta
        return finite_average(top, points.weights)

    def of_levels(self, model: JointModel, limit: float) -> DenseLevels:
        """Averages of the points that the accuracy requires, `limit` of the innermost level."""
        settings, (first, most) = self.settings, self.settings.log2_sizes
        first = max(first, model.size.bit_length() - 1)
        most = max(most, first + settings.log2_step)
        coarse = self._replicates(model, first)
        for log2_size in range(first + settings.log2_step, most + 1, settings.log2_step):
            fine = self._replicates(model, log2_size)
            dense = DenseLevels.of(coarse, fine, 1 << settings.log2_step, settings.trust)
            enough = settings.enough * float(np.abs(dense.answers).max())
            if size_of(dense.errors) <= max(settings.share * limit, enough):
                break
            coarse = fine
        return dense

    def _replicates(self, model: JointModel, log2_size: int) -> Replicates:
        """Averages by each of the shifted lattices of that size, with terms of the first."""
        if log2_size in self.replicated:
            return self.replicated[log2_size]
        vector, size = model.data.vector[: model.dim], 1 << log2_size
        shifts = self.stream.generator().random((self.settings.n_replicates, model.dim))
        copies = size // model.size
        steps = np.arange(copies)[:, None] * vector / size
        cascade, answers, corrections, first = None, [], [], None
        for shift in shifts:
            points = Lattices(vector, shift[None], size, model.periodization)

            def spread(shifts: Array) -> Array:
                """J_{D−1} at the points of shifted lattices of that size, one after the other."""
                parts = model.on_lattices((steps + shifts[:, None]).reshape(-1, model.dim) % 1.0).j
                # Copy b of point a is the point a · copies + b of the whole lattice.
                blocks = parts.reshape(len(shifts), copies, model.size, -1).swapaxes(1, 2)
                return blocks.reshape(len(shifts) * size, -1)

            j = spread(shift[None])
            if cascade is None:
                cascade = Cascade(self.levels, self.scalar, points).fitted(j)
            cascade = cascade.at(points)
            arguments = cascade.arguments(j, finite=True)
            first = first or (points, [mean for mean, _ in arguments])
            weights = cascade.theta.weights
            top, _ = cascade.f(0, *arguments[0], finite=True)
            moves = cascade.corrections(arguments, spread, 1 << self.settings.log2_nested)
            answers.append(weights @ top / weights.sum())
            corrections.append(moves)
        assert first is not None
        self.replicated[log2_size] = Replicates(np.stack(answers), np.stack(corrections), *first)
        return self.replicated[log2_size]

    def sample(self, points: DenseSet) -> OuterSample:
        """A few thousand y_0 with J_1 and f_0, for plots."""
        assert self.cascade is not None
        j, scalar = self.cascade.arguments(points.j)[0]
        f, _ = self.cascade.f(0, j, scalar)
        weights = self.cascade.theta.weights / self.cascade.theta.weights.sum()
        rows = slice(None, None, -(-len(j) // 4096))
        spread = np.repeat(weights[rows, None], f.shape[1], axis=1)
        return OuterSample(
            self.cascade.y[0][rows], (j[:, 0] if scalar else j)[rows], f[rows], spread
        )


@dataclass(frozen=True, eq=False)
class Replicates:
    """Averages (R, q) of f_0 by shifted lattices, and their corrections for errors of the levels.

    `means` are J_1, …, J_{D−1} at the points of the first.
    """

    answers: Array
    corrections: Array
    points: Lattices
    means: list[Array]


@dataclass(frozen=True, eq=False)
class DenseLevels:
    """Answers (q,), directions (q, R + 1) of their error, and shares that sizes disagree about.

    `shares` has, for each of the levels 1, …, D−2, the variance of the change of J_k from the
    smaller to the larger lattices over that of J_k, the largest over outputs.
    """

    answers: Array
    errors: Array
    shares: tuple[float, ...]

    @classmethod
    def of(cls, coarse: Replicates, fine: Replicates, step: int, trust: float) -> DenseLevels:
        learned = _with_errors(coarse.answers, fine.answers)
        corrected = _with_errors(
            coarse.answers + coarse.corrections, fine.answers + fine.corrections
        )
        # Smooth levels are learned to many digits, which no correction has.
        trusted = size_of(learned[1]) <= trust * size_of(corrected[1])
        answers, errors = learned if trusted else corrected
        # Variation of J_k below this square is rounding of the levels beneath it.
        rounding = 1e-20 * max(float(np.mean(mean**2)) for mean in fine.means) + 1e-300
        # A quarter of the points of a larger lattice are points of the smaller one.
        weights, shares = coarse.points.weights / coarse.points.weights.sum(), []
        for small, large in zip(coarse.means[:-1], fine.means[:-1], strict=True):
            away = large[::step] - weights @ large[::step]
            noise = weights @ (small - large[::step]) ** 2
            shares.append(float(np.max(noise / (weights @ away**2 + noise + rounding))))
        return cls(answers, errors, tuple(shares))


def _with_errors(coarse: Array, fine: Array) -> tuple[Array, Array]:
    """Mean (q,) of replicates (R, q), and directions of its random and its common error."""
    common = (fine - coarse).mean(axis=0)
    errors = np.concatenate([replicate_errors(fine.T), common[:, None]], axis=1)
    return fine.mean(axis=0), errors
