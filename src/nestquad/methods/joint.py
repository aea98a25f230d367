"""One lattice in θ and x jointly: no nesting, no split of the budget, O(M log M)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError
from nestquad.methods._character import takes
from nestquad.methods._crossed import CrossedLattice, unexplained_variance
from nestquad.methods._joint_errors import JointErrors
from nestquad.methods._joint_model import Data, Geometry, JointModel, fit_joint
from nestquad.methods._lattice_average import LatticeAverage
from nestquad.methods._method import Goal, Method
from nestquad.methods._shared import assembled, require_transports, size_of
from nestquad.points import (
    PERIODIZATIONS,
    PeriodicLattice,
    Periodization,
    density,
    lattice_vector,
    moved,
)
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, OuterSample

__all__ = ["JointLattice"]

# Numbers of points below this need not be a power of two: a Cholesky factorisation is affordable.
_DENSE_BELOW = 2048
_FEWEST, _START = 16, 512
# Crossed points, and how many others there are at least where they are used.
_CROSSED, _CROSSED_FROM = 64, 512
# f(Ĵ) is averaged over so many independently shifted lattices of at least 2**13 points.
_SHIFTS, _LOG2_AVERAGE = 16, 13
# Models are compared on one lattice of at least so many.
_LOG2_SKETCH = 12
# Where the average limits the answer, this many numbers may be looked at instead.
_AVERAGE_NUMBERS = 1 << 22
# Vectors are made for at least so many points, and for no more, as finding one for more takes
# longer than a few seconds.
_LOG2_LEAST, _LOG2_MOST, _LOG2_MOST_IN_MANY, _MANY = 16, 20, 18, 10
_MOST_SAMPLE_ROWS = 4096
# Towards a tolerance, fewer new points than this would agree with the old ones whatever the truth.
_LEAST_GROWTH = 1.6


@dataclass(frozen=True)
class JointLattice(Method):
    """Interpolate g on one lattice in (θ, x), integrate x out exactly, average f over θ.

    Each point of a rank-1 lattice gives one θ and one x. g as a function of both is learned by a
    sparse polynomial plus a shift-invariant kernel, whose Gram matrix on the lattice is circulant,
    so scales, interpolant and error bars cost a few FFTs. Averaging over x is exact for this
    model, and f(Ĵ) is averaged over a finer lattice of θ, free of g.

    Parameters
    ----------
    n_outer
        M, the number of points; where None, the budget or the tolerance decides. From 2,048 on it
        is a power of two.
    periodization
        How g becomes periodic. ``"cubic"`` and ``"quintic"`` slow down at the ends of each
        coordinate, so that g times the density vanishes there: best in few coordinates, as the
        density of many is all peak. ``"tent"`` goes back and forth. ``"auto"``: quintic up to two
        coordinates of (θ, x), cubic up to four.
    trend
        Whether a polynomial may take part.
    orders
        Smoothness of the kernel, a choice among 1, 2, 3; None leaves 3 out where the tent makes
        g kinked anyway.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.synthetic()
    >>> est = nq.estimate(problem, method=nq.JointLattice(), budget=1024, rng=0)
    >>> bool(abs(est.value - problem.exact) < 1e-8)
    True
    """

    name: ClassVar[str] = "joint"
    n_inner: ClassVar[int] = 1

    n_outer: int | None = None
    periodization: Periodization | Literal["auto"] = "auto"
    trend: bool = True
    orders: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        size = self.n_outer
        if size is not None and (
            not isinstance(size, int | np.integer)
            or size < _FEWEST
            or (size >= _DENSE_BELOW and size & (size - 1))
        ):
            raise InputError(
                "n_outer",
                repr(size),
                f"an integer of at least {_FEWEST}, and a power of two from {_DENSE_BELOW} on",
            )
        if self.periodization not in ("auto", *PERIODIZATIONS):
            raise InputError(
                "periodization", repr(self.periodization), "'auto', 'tent', 'cubic' or 'quintic'"
            )
        if self.orders is not None and not (self.orders and set(self.orders) <= {1, 2, 3}):
            raise InputError("orders", repr(self.orders), "some of 1, 2 and 3, or None")

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None = None,
    ) -> Design | None:
        if so_far is not None:
            return self._grown(problem, goal, *so_far)
        require_transports(problem, self.name)
        dim = problem.outer_law.base_dim + problem.inner_base_dim
        size = self._size(goal)
        most = size if goal.budget is None or not goal.adaptive else goal.budget
        limit = _LOG2_MOST if dim <= _MANY else _LOG2_MOST_IN_MANY
        log2_max = min(max(most.bit_length(), _LOG2_LEAST), limit)
        lattice = PeriodicLattice(max(log2_max, size.bit_length()), self._periodization(dim))
        grid = Grid(size, 1, lattice, lattice, None, goal.stream, joint=True)
        return self._crossed(goal, grid, problem.outer_law.base_dim)

    def _periodization(self, dim: int) -> Periodization:
        if self.periodization != "auto":
            return self.periodization
        return "quintic" if dim <= 2 else "cubic" if dim <= 4 else "tent"

    def _size(self, goal: Goal) -> int:
        if self.n_outer is not None:
            size = int(self.n_outer)
        elif goal.adaptive or goal.budget is None:
            start = goal.pilot or _START
            size = _usable(min(start, goal.budget or start))
        else:
            size = self._within(goal.budget)
        if size < _FEWEST or (goal.budget is not None and size > goal.budget):
            raise InputError(
                "budget",
                f"{goal.budget} evaluations",
                f"at least {self.n_outer or _FEWEST} for method {self.name!r}",
            )
        return size

    def _grown(
        self, problem: NestedExpectation, goal: Goal, design: Design, found: Estimate
    ) -> Design | None:
        grid = design.grids[0]
        lattice = grid.outer_points
        assert isinstance(lattice, PeriodicLattice)
        if self.n_outer is not None:
            return None
        most = lattice.max_points
        if goal.budget is not None:
            # Crossed points that are there already stay as many as they are.
            crossed = len(design.grids) > 1
            most = min(
                most, _usable(goal.budget - _CROSSED) if crossed else self._within(goal.budget)
            )
        step = goal.adaptive or goal.budget is None
        larger = min(most, _next_size(grid.n_outer, _growth(goal, found)) if step else most)
        if larger <= grid.n_outer:
            return None
        grown = replace(grid, n_outer=larger)
        if len(design.grids) > 1:
            return Design((grown, design.grids[1]))
        return self._crossed(goal, grown, problem.outer_law.base_dim)

    def _within(self, budget: int) -> int:
        """How many points of the lattice a budget is for."""
        size = _usable(budget)
        # Crossed points are worth a few of many others, but not half of them.
        if _CROSSED_FROM + _CROSSED <= size < _DENSE_BELOW:
            size -= _CROSSED
        return size

    def _crossed(self, goal: Goal, grid: Grid, n_theta: int) -> Design:
        """With a few crossed points, where there are evaluations left for them."""
        # A budget that a lattice will take up to a few points has no room for them.
        last = grid.n_outer if goal.budget is None else max(grid.n_outer, self._within(goal.budget))
        room = goal.budget is None or goal.budget - last >= _CROSSED
        if self.n_outer is not None or grid.n_outer < _CROSSED_FROM or not room:
            return Design((grid,))
        lattice = grid.outer_points
        assert isinstance(lattice, PeriodicLattice)
        points = CrossedLattice(lattice, grid.outer_stream, n_theta, _CROSSED)
        check = Grid(_CROSSED, 1, points, points, None, grid.stream, level=1, joint=True)
        return Design((grid, check))

    def analyze(self, evaluations: Evaluations) -> Estimate:
        problem = evaluations.problem
        grid, *check = evaluations.design.grids
        lattice = grid.outer_points
        assert isinstance(lattice, PeriodicLattice)
        raw = evaluations.values(grid.n_outer)
        n = _usable(raw.shape[0])  # time may have run out before all rows were there
        if n < _FEWEST:
            raise OutOfTimeError(f"time ran out after {n} evaluations", advice="Raise max_seconds.")
        scalar = raw.ndim == 2
        data = _data(problem, grid, lattice, raw[:n, 0])
        model = self._fitted(problem, data)
        evaluations.evaluator.memo(grid.stream)["j"] = model.conditional_at
        unexplained = _unexplained(evaluations, model) if check else None
        average, by_shift, parts, rate = self._answered(
            problem, scalar, model, data, grid, unexplained
        )
        sizes = {name: size_of(part) for name, part in parts.items()}
        return assembled(
            problem,
            by_shift.mean(axis=0),
            parts,
            {
                "error_inner": float(np.hypot(sizes["paths"], sizes["misfit"])),
                "error_outer": sizes["average"],
                "rate": rate,
                "outputs": [_described(model, c) for c in range(len(model.outputs))],
                "notes": _notes(
                    model, n, raw.shape[0], None if unexplained is None else unexplained[0]
                ),
            },
            n_evaluations=evaluations.evaluator.n_evaluations,
            n_outer=n,
            n_inner=1,
            method=self.name,
            sample=_sample(average, model),
        )

    def _answered(
        self,
        problem: NestedExpectation,
        scalar: bool,
        model: JointModel,
        data: Data,
        grid: Grid,
        unexplained: tuple[Array, Array] | None,
    ) -> tuple[LatticeAverage, Array, dict[str, Array], float]:
        """How f(Ĵ) was averaged, the expectations by shift, their error and its rate."""
        lattice = grid.outer_points
        assert isinstance(lattice, PeriodicLattice)
        log2_size = model.size.bit_length() - 1
        shifts = grid.stream.child(grid.level, 6).generator().random((_SHIFTS, model.n_theta))
        average = LatticeAverage(problem, scalar, max(_LOG2_AVERAGE, log2_size), shifts)
        by_shift = average.by_shift(model)
        sketch = replace(average, log2_size=max(_LOG2_SKETCH, log2_size))
        doubts = JointErrors(sketch, model, data, by_shift.mean(axis=0), unexplained)
        parts, rate = doubts.parts(grid.stream.child(grid.level, 5).generator())
        # θ are free of g: where their number limits the answer, take as many as time allows.
        affordable = int(
            np.log2(_AVERAGE_NUMBERS / (_SHIFTS * (model.n_theta_terms + model.n_theta)))
        )
        affordable = min(affordable, lattice.log2_max)
        by_theta = size_of(average.errors(by_shift))
        if affordable > average.log2_size and by_theta > 0.5 * max(map(size_of, parts.values())):
            average = replace(average, log2_size=affordable)
            by_shift = average.by_shift(model)
        return average, by_shift, parts | {"average": average.errors(by_shift)}, rate

    def _fitted(self, problem: NestedExpectation, data: Data) -> JointModel:
        periodization = data.geometry.periodization
        theta = problem.outer_law.from_uniform(data.uniform[:1, : data.geometry.n_theta])
        return fit_joint(
            data,
            (problem.outer_law.base, problem.inner_law(theta).base),
            trend=self.trend,
            orders=self.orders or ((1, 2) if periodization == "tent" else (1, 2, 3)),
        )


def _growth(goal: Goal, found: Estimate) -> float:
    """By what the number of points has to grow, as far as the last answer can tell."""
    half_width = 1.959964 * float(np.max(found.std_error))
    if not goal.half_width or not half_width > 0:
        return 2.0
    rate = float(found.diagnostics["rate"])
    return float(np.clip(1.1 * (half_width / goal.half_width) ** (1.0 / rate), _LEAST_GROWTH, 4.0))


def _next_size(n: int, factor: float) -> int:
    """About so many times more points, and a power of two where it has to be one."""
    larger = int(n * factor)
    if larger < _DENSE_BELOW:
        return larger
    return max(1 << round(float(np.log2(larger))), 1 << n.bit_length(), _DENSE_BELOW)


def _data(problem: NestedExpectation, grid: Grid, lattice: PeriodicLattice, values: Array) -> Data:
    n_theta = problem.outer_law.base_dim
    dim = n_theta + problem.inner_base_dim
    v = lattice.periodic(grid.outer_stream, dim, values.shape[0])
    vector = lattice_vector(dim, lattice.log2_max)
    # The first point of a shifted lattice is the shift.
    geometry = Geometry(vector, v[0], n_theta, lattice.periodization)
    return Data(
        geometry,
        values.reshape(len(values), -1),
        moved(lattice.periodization, v),
        density(lattice.periodization, v),
        positive=not takes(problem, np.zeros((1, *values.shape[1:]))),
    )


def _unexplained(evaluations: Evaluations, model: JointModel) -> tuple[Array, Array] | None:
    """What the crossed points say, if there was time for them."""
    grid = evaluations.design.grids[1]
    assert isinstance(grid.outer_points, CrossedLattice)
    try:
        values = evaluations.values(grid.n_outer, level=1)
    except OutOfTimeError:
        return None
    values = values[:, 0].reshape(values.shape[0], -1)
    return unexplained_variance(model, grid.outer_points, values)


def _sample(average: LatticeAverage, model: JointModel) -> OuterSample:
    means = model.conditional()
    step = -(-model.size // _MOST_SAMPLE_ROWS)
    rows = slice(None, None, step)
    f = average.f(means, require_finite=False)[rows]
    theta = average.problem.outer_law.from_uniform(means.uniform[rows])
    weights = np.repeat(means.weights[rows, None] / means.weights.sum(), f.shape[1], axis=1)
    return OuterSample(theta, means.j[rows, 0] if average.scalar else means.j[rows], f, weights)


def _usable(n: int) -> int:
    """How many of n points are used: all, or from some number on a power of two."""
    return n if n < _DENSE_BELOW else 1 << (n.bit_length() - 1)


def _described(model: JointModel, c: int) -> dict[str, Any]:
    output = model.outputs[c]
    described: dict[str, Any] = {
        "polynomial_terms": len(output.fit.terms),
        "leave_one_out": float(np.sqrt(output.fit.loo)),
    }
    if output.kernel is not None:
        described |= {
            "order": output.kernel.order,
            "scales": output.kernel.scales,
            "nugget": output.kernel.nugget,
        }
    return described


def _notes(model: JointModel, n: int, n_given: int, unexplained: Array | None) -> list[str]:
    geometry = model.geometry
    notes = [
        f"{n:,} points of a lattice in {geometry.vector.size} coordinates, "
        f"{geometry.periodization} periodization"
    ]
    for c, output in enumerate(model.outputs):
        terms = len(output.fit.terms)
        trend = f"{terms} polynomial terms" if terms > 1 else "a constant"
        rest = (
            ", which leave nothing to a kernel"
            if output.kernel is None
            else f" and a kernel of order {output.kernel.order}, nugget {output.kernel.nugget:.1g}"
        )
        notes.append(f"output {c + 1}: {trend}{rest}")
    if model.continues_tails:
        notes.append("where J is tiny, its logarithm is continued as a quadratic in theta")
    if unexplained is not None and unexplained.any():
        size = float(np.sqrt(unexplained.max()))
        notes.append(f"J varies by {size:.2g} about its model, which the error bar allows for")
    if n < n_given:
        notes.append(f"{n_given - n:,} evaluations beyond the last power of two were not used")
    return notes
