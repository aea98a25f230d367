"""NMC, NQMC and NKQ: one composition of an inner and an outer rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from nestquad._typing import Array
from nestquad.accuracy import ErrorParts
from nestquad.errors import EvaluationError, InputError
from nestquad.evaluate import Design, Evaluations, Grid, InnerRule, call_f
from nestquad.methods._method import Goal, Method
from nestquad.methods._shared import float_or_array
from nestquad.points import Given, Sequence, as_sequence
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, OuterSample

__all__ = ["InnerFit", "NestedRule", "OuterFit", "Sharing"]

Sharing = Literal["auto", "independent", "shared"] | int

_MOST_SAMPLE_ROWS = 4096


@dataclass(frozen=True)
class InnerFit:
    """A rule for the inner stage and what is worth telling about it."""

    rule: InnerRule
    diagnostics: dict[str, Any]


@dataclass(frozen=True)
class OuterFit:
    """Weights (T, q) for all θ, and directions (k, m) of the final answers' outer error."""

    weights: Array
    directions: Array
    diagnostics: dict[str, Any]


@dataclass(frozen=True)
class NestedRule(Method):
    """Base of the methods that evaluate g on T outer times N inner points.

    Parameters
    ----------
    n_outer, n_inner
        T and N; where None, the budget or the tolerance decides.
    outer_points, inner_points
        ``"iid"``, ``"sobol"``, ``"halton"``, ``"lattice"`` or a sequence such as `Given`.
    sharing
        Whether inner points are ``"independent"`` from θ to θ, ``"shared"`` by all θ, or taken in
        turn from a pool of so many sets (a number).
    """

    most_points: ClassVar[int | None] = None
    """The most points to which a tolerance lets a stage grow; None for no limit."""

    n_outer: int | None = None
    n_inner: int | None = None
    outer_points: str | Sequence = "sobol"
    inner_points: str | Sequence = "sobol"
    sharing: Sharing = "auto"

    def __post_init__(self) -> None:
        for argument in ("n_outer", "n_inner"):
            size = getattr(self, argument)
            if size is not None and (not isinstance(size, int | np.integer) or size < 2):
                raise InputError(
                    argument,
                    repr(size),
                    "an integer of at least 2",
                    "With a single point there is nothing to estimate an error from.",
                )
        as_sequence(self.outer_points)
        as_sequence(self.inner_points)
        sharing = self.sharing
        if isinstance(sharing, str):
            if sharing not in ("auto", "independent", "shared"):
                raise InputError(
                    "sharing", repr(sharing), "'auto', 'independent', 'shared' or a pool size"
                )
        elif not isinstance(sharing, int | np.integer) or sharing < 1:
            raise InputError("sharing", repr(sharing), "a pool size of at least 1")

    # What the three methods differ in.

    @abstractmethod
    def split(self, budget: int) -> tuple[int, int]:
        """(T, N) for a budget when the user fixed neither."""

    @abstractmethod
    def sets(self, problem: NestedExpectation, n_outer: int, n_inner: int) -> int | None:
        """How many inner point sets ``sharing="auto"`` means; None is one for each θ."""

    @abstractmethod
    def fit_inner(self, evaluations: Evaluations, theta: Array) -> InnerFit:
        """The inner rule, tuned on a few rows of values where it needs to be."""

    @abstractmethod
    def fit_outer(self, evaluations: Evaluations, f_values: Array) -> OuterFit:
        """Outer weights for f(J) (T, q), and what they leave uncertain."""

    @property
    def start(self) -> tuple[int, int]:
        """(T, N) to start from when a tolerance decides."""
        return 32, 32

    # What they have in common.

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None = None,
    ) -> Design | None:
        if so_far is not None:
            return self._grown(goal, *so_far)
        n_outer, n_inner = self._sizes(goal)
        outer, inner = as_sequence(self.outer_points), as_sequence(self.inner_points)
        n_sets: int | None
        if self.sharing == "auto":
            n_sets = self.sets(problem, n_outer, n_inner)
        elif self.sharing == "independent":
            n_sets = None
        else:
            n_sets = 1 if self.sharing == "shared" else int(self.sharing)
        if n_sets is not None:
            n_sets = min(n_sets, n_outer)
        return Design((Grid(int(n_outer), int(n_inner), outer, inner, n_sets, goal.stream),))

    def _fixed(self, side: Literal["outer", "inner"]) -> int | None:
        """The size that the user fixed, by a number or by bringing points; None if free."""
        size: int | None = getattr(self, f"n_{side}")
        points = as_sequence(getattr(self, f"{side}_points"))
        if size is not None or not isinstance(points, Given):
            return size
        if points.max_points < 2:
            raise InputError(f"{side}_points", "a single point", "at least 2 points")
        return points.max_points

    def _sizes(self, goal: Goal) -> tuple[int, int]:
        fixed_outer, fixed_inner = n_outer, n_inner = self._fixed("outer"), self._fixed("inner")
        if n_outer is None or n_inner is None:
            if goal.adaptive or goal.budget is None:
                first = self.start if goal.pilot is None else self.split(goal.pilot)
                n_outer, n_inner = n_outer or first[0], n_inner or first[1]
                if goal.budget is not None and n_outer * n_inner > goal.budget:
                    n_outer, n_inner = self._sizes(replace(goal, adaptive=False))
            elif n_outer is None and n_inner is None:
                n_outer, n_inner = self.split(goal.budget)
            elif n_outer is None:
                assert n_inner is not None
                n_outer = goal.budget // n_inner
            else:
                n_inner = goal.budget // n_outer
        assert n_outer is not None
        assert n_inner is not None
        if goal.budget is not None and (
            n_outer * n_inner > goal.budget or min(n_outer, n_inner) < 2
        ):
            raise InputError(
                "budget",
                f"{goal.budget} evaluations",
                f"at least {(fixed_outer or 2) * (fixed_inner or 2)} for method {self.name!r} with "
                f"n_outer={fixed_outer} and n_inner={fixed_inner}",
            )
        return n_outer, n_inner

    def _grown(self, goal: Goal, design: Design, estimate: Estimate) -> Design | None:
        """Double the side that the larger error comes from, if the budget allows."""
        (grid,) = design.grids
        if not goal.adaptive:
            return self._spent(goal, grid)
        inner, outer = estimate.diagnostics["error_inner"], estimate.diagnostics["error_outer"]
        more_outer = replace(grid, n_outer=2 * grid.n_outer)
        more_inner = replace(grid, n_inner=2 * grid.n_inner)
        candidates = [more_inner, more_outer] if inner > outer else [more_outer, more_inner]
        for candidate in candidates:
            side: Literal["outer", "inner"] = "outer" if candidate is more_outer else "inner"
            size, points = getattr(candidate, f"n_{side}"), getattr(grid, f"{side}_points")
            most = min(points.max_points or size, self.most_points or size)
            if self._fixed(side) is not None or size > most:
                continue
            if goal.budget is None or candidate.span.size <= goal.budget:
                return Design((candidate,))
        return None

    def _spent(self, goal: Goal, grid: Grid) -> Design | None:
        """All of the budget, for a grid that was the pilot of it."""
        n_outer, n_inner = self._sizes(replace(goal, pilot=None))
        if n_outer < grid.n_outer or n_inner < grid.n_inner:
            return None
        return Design((replace(grid, n_outer=n_outer, n_inner=n_inner),))

    def analyze(self, evaluations: Evaluations) -> Estimate:
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        theta = evaluations.outer().theta
        inner = self.fit_inner(evaluations, theta)
        j = evaluations.fold(inner.rule)
        theta = theta[: j.shape[0]]
        views = dict(zip(inner.rule.views, np.moveaxis(j, 1, 0), strict=True))
        f_full = call_f(problem, views.pop("full"), theta)
        twins = [call_f(problem, twin, theta, require_finite=False) for twin in views.values()]
        outer = self.fit_outer(evaluations, f_full)

        def final(f_values: Array) -> Array:
            return np.atleast_1d(problem.finish((outer.weights * f_values).sum(axis=0)))

        value = final(f_full)
        shared = grid.n_sets is not None
        errors = ErrorParts(_inner_directions(final, f_full, twins, shared), outer.directions)
        covariance = errors.covariance
        std_error = np.sqrt(np.diagonal(covariance))
        answers = (outer.weights * f_full).sum(axis=0)
        scalar = problem.finish(answers).ndim == 0
        if not np.isfinite(value).all():
            raise EvaluationError(f"combine returned {value} for I = {answers}")
        step = -(-theta.shape[0] // _MOST_SAMPLE_ROWS)
        return Estimate(
            value=float(value[0]) if scalar else value,
            std_error=float(std_error[0]) if scalar else std_error,
            n_evaluations=theta.shape[0] * grid.n_inner,
            n_outer=theta.shape[0],
            n_inner=grid.n_inner,
            method=self.name,
            diagnostics={
                "answers": answers,
                "error_inner": errors.inner_size,
                "error_outer": errors.outer_size,
                "n_sets": "one for each theta" if grid.n_sets is None else grid.n_sets,
                "inner": inner.diagnostics,
                "outer": outer.diagnostics,
                "notes": [*inner.diagnostics.get("notes", []), *outer.diagnostics.get("notes", [])],
            },
            covariance=None if scalar else covariance,
            problem=problem.label,
            exact=float_or_array(problem.exact),
            sample=OuterSample(theta[::step], j[::step, 0], f_full[::step], outer.weights[::step]),
        )


def _inner_directions(
    final: Callable[[Array], Array], f_full: Array, twins: list[Array], shared: bool
) -> Array:
    """What halving the inner points changes in the final answers, (k, m).

    With both halves at hand their average has twice the bias of the whole and little noise of its
    own, so the difference is the bias. With one half it is the error of the half-sized rule: an
    upper estimate for a rule that converges.

    Points that several θ share err for all of them alike, which no spread over θ tells; half the
    difference of the two halves does.
    """
    if not twins:
        return np.zeros((final(f_full).size, 1))
    with np.errstate(invalid="ignore"):
        changes = [np.mean(twins, axis=0) - f_full]
        if shared and len(twins) == 2:
            changes.append((twins[0] - twins[1]) / 2.0)
    directions = []
    for change in changes:
        # A half-sized rule may leave the domain of f (a logarithm); then its error is at least as
        # large as the largest that is seen elsewhere, or as f itself if none is seen.
        usable = np.isfinite(change)
        largest = np.max(np.abs(change), axis=0, where=usable, initial=0.0)
        largest = np.where(usable.any(axis=0), largest, np.abs(f_full).max(axis=0))
        directions.append(final(f_full) - final(f_full + np.where(usable, change, largest)))
    return np.stack(directions, axis=1)
