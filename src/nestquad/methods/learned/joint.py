"""Joint lattice: one rank-1 lattice in θ and x, and a model of g on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from nestquad._checks import choice
from nestquad.accuracy import takes
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError
from nestquad.methods._method import Goal, Turn
from nestquad.methods.learned._base import Fit, Learned, LearnedMethod
from nestquad.methods.learned._joint_model import Data, fit_joint
from nestquad.methods.learned._model import ModelOfJ, lowest_mean, periodization_for
from nestquad.points import PERIODIZATIONS, PeriodicLattice, Periodization, lattice_vector
from nestquad.problem import NestedExpectation

__all__ = ["JointLattice"]


@dataclass(frozen=True)
class JointLattice(LearnedMethod[ModelOfJ]):
    """Interpolate g on one lattice in (θ, x), integrate x out exactly, average f over θ.

    Each point of a rank-1 lattice gives one θ and one x. g as a function of both is learned by a
    sparse polynomial plus a shift-invariant kernel, whose Gram matrix on the lattice is circulant,
    so scales, interpolant and error bars cost a few FFTs. Averaging over x is exact for this
    model, and f(Ĵ) is averaged over a finer lattice of θ, free of g.

    Parameters
    ----------
    n_outer
        M, the number of points; where None, the budget or the tolerance decides. It is 4 to 7
        times a power of two: this number of random shifts of a lattice.
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
    fewest: ClassVar[int] = 16
    n_inner: ClassVar[int] = 1
    shifts: ClassVar[int] = 4
    """Fewest random shifts, by whose deletion errors are calibrated; one less than twice that
    number where the number of points comes closer to the request."""

    n_outer: int | None = None
    periodization: Periodization | Literal["auto"] = "auto"
    trend: bool = True
    orders: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        size = self.n_outer
        if size is not None and (
            not isinstance(size, int | np.integer)
            or size < self.fewest
            or _points(*_split(int(size))) != size
        ):
            raise InputError(
                "n_outer",
                repr(size),
                f"an integer of at least {self.fewest}: 4, 5, 6 or 7 times a power of two",
            )
        choice("periodization", self.periodization, ("auto", *PERIODIZATIONS))
        if self.orders is not None and not (
            isinstance(self.orders, tuple) and self.orders and set(self.orders) <= {1, 2, 3}
        ):
            raise InputError("orders", repr(self.orders), "some of 1, 2 and 3, or None")

    def sized(
        self,
        problem: NestedExpectation,
        goal: Goal,
        n: int,
        last: Turn[Learned[ModelOfJ]] | None,
    ) -> Design | None:
        if last is not None:
            (grid,) = last.design.grids
            assert isinstance(grid.outer_points, PeriodicLattice)
            n_shifts, largest = grid.outer_points.n_shifts, grid.outer_points.max_points
            # The nearest size, at least twice the present one, and within the budget.
            wanted = max(n_shifts << round(float(np.log2(n / n_shifts))), 2 * grid.n_outer)
            most = min(wanted, goal.budget or wanted, largest)
            larger = n_shifts << max((most // n_shifts).bit_length() - 1, 0)
            if self.n_outer is not None:
                return None
            rest = (goal.budget or 0) - grid.n_outer
            if goal.hurried and not goal.adaptive and _points(*_split(rest)) > 1.2 * larger:
                # Where time counts, another number of shifts may be worth the points of a pilot.
                return self.sized(problem, replace(goal, pilot=None), rest, None)
            return Design((replace(grid, n_outer=larger),))
        expected = n if goal.budget is None or not goal.adaptive else goal.budget
        n_shifts, _ = _split(self.n_outer or (goal.budget if goal.pilot else n) or n)
        size = n_shifts << max(((self.n_outer or n) // n_shifts).bit_length() - 1, 0)
        if size < self.fewest:
            return None
        # A generating vector is made for its largest lattice, which takes seconds beyond these.
        dim = problem.outer_law.base_dim + problem.inner_base_dim
        log2_max = min(max((expected // n_shifts).bit_length(), 14), 18 if dim <= 10 else 16)
        periodization = (
            periodization_for(dim) if self.periodization == "auto" else self.periodization
        )
        log2_max = max(log2_max, (size // n_shifts).bit_length())
        # Shifts are stratified at the size that a budget allows, which later turns reach.
        final = max(size, 0 if self.n_outer is not None else goal.budget or 0)
        known = self.n_outer is not None or goal.budget is not None
        strata = (final // n_shifts).bit_length() - 1 if known else None
        lattice = PeriodicLattice(log2_max, periodization, n_shifts, strata)
        return Design((Grid(size, 1, lattice, lattice, None, goal.stream, joint=True),))

    def fit(self, evaluations: Evaluations, last: Turn[Learned[ModelOfJ]] | None) -> Fit[ModelOfJ]:
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        lattice = grid.outer_points
        assert isinstance(lattice, PeriodicLattice)
        raw = evaluations.values(grid.n_outer)
        # Time may have ended before all rows were there.
        n = lattice.n_shifts << max((raw.shape[0] // lattice.n_shifts).bit_length() - 1, 0)
        n = min(n, raw.shape[0])
        if n < self.fewest:
            raise OutOfTimeError(f"time ran out after {n} evaluations", advice="Raise max_seconds.")
        dim = problem.outer_law.base_dim + problem.inner_base_dim
        points = lattice.periodic(grid.outer_stream, dim, n)
        values = raw[:n, 0].reshape(n, -1)
        least = lowest_mean(values, signed=True).reshape(1, *raw.shape[2:])
        data = Data(
            lattice_vector(dim, lattice.log2_max),
            points[: lattice.n_shifts],  # the first point of a shifted lattice is the shift
            problem.outer_law.base_dim,
            lattice.periodization,
            points,
            values,
            positive=not takes(problem, np.zeros((1, *raw.shape[2:]))),
            signed=takes(problem, least),
        )
        theta = problem.outer_law.from_uniform(data.uniform[:1, : data.dim])
        model = fit_joint(
            data,
            (problem.outer_law.base, problem.inner_law(theta).base),
            trend=self.trend,
            orders=self.orders or ((1, 2) if lattice.periodization == "tent" else (1, 2, 3)),
        )
        return Fit(model, raw.ndim == 2, n, 1)


def _split(n: int) -> tuple[int, int]:
    """Numbers of shifts and of points of each, a power of two, whose product is at most n."""
    size = 1 << max((n // JointLattice.shifts).bit_length() - 1, 0)
    return max(n // size, JointLattice.shifts), size


def _points(n_shifts: int, size: int) -> int:
    return n_shifts * size
