"""Base of NMC, NQMC and NKQ: composition of an inner and an outer rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log2
from typing import ClassVar, Literal

import numpy as np

from nestquad import limits
from nestquad._checks import choice, whole
from nestquad._typing import Array
from nestquad.accuracy import size_of
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid, call_f
from nestquad.methods._events import (
    HEAVY_TAIL,
    constant_value_errors,
    floor_directions,
    heavy_tail_errors,
    rare_event_errors,
    unseen_value_errors,
    without_variation,
)
from nestquad.methods._method import Goal, Method, Turn, assembled
from nestquad.methods.nested._stages import (
    InnerFit,
    MeanRule,
    OuterFit,
    cancellation,
    mean_outer,
    noise_changes,
)
from nestquad.points import Given, Sequence, as_sequence
from nestquad.problem import NestedExpectation
from nestquad.result import OuterSample

Sharing = Literal["auto", "independent", "shared"] | int


@dataclass(frozen=True)
class NestedSettings:
    """Numbers of the nested rules towards a tolerance.

    Attributes
    ----------
    fewest_outer, fewest_evaluations
        Fewer θ or evaluations do not show whether a tolerance is met. Intervals of 4 to 16 θ cover
        in 76–94 % of runs on families of random problems, even with Student's t; two halves of 8 x
        that were scrambled alike may agree by accident.
    quarter
        Factor of the change from a quarter to a half of the inner points, as an estimate of the
        error of all: rules with Matérn-3/2 kernels converge like N^-2.
    tuning_rows
        θ whose values tune the inner kernel, for each point set.
    """

    fewest_outer: int = 32
    fewest_evaluations: int = 192
    quarter: float = 0.25
    tuning_rows: int = 8


SETTINGS = NestedSettings()


@dataclass(frozen=True)
class NestedState:
    """Standard errors by stage: J estimated at each θ, and the finite set of θ.

    Without values of g that no point has shown, as more of either are as likely to show them.
    """

    error_inner: float
    error_outer: float


@dataclass(frozen=True)
class NestedRule(Method[NestedState]):
    """Base of the methods that evaluate g on T outer times N inner points.

    Parameters
    ----------
    n_outer, n_inner
        T and N; where None, the budget or the tolerance decides.
    outer_points, inner_points
        ``"iid"``, ``"sobol"``, ``"lattice"`` or a sequence such as `Given`.
    sharing
        Inner points are ``"independent"`` from θ to θ, ``"shared"`` by all θ, or taken in turn
        from a pool of this many sets (a number).
    jackknife
        Remove the bias of order 1/N that a smooth f has at a noisy J, by the means of both halves
        of the inner points (Quenouille 1956, Notes on bias in estimation). They have to be
        independent from θ to θ. Kinks of f are better left alone: their bias falls at another rate.
    """

    most_points: ClassVar[int | None] = None
    """The largest T or N towards a tolerance; None for no limit."""
    blocks: ClassVar[int | None] = None
    """Blocks of θ whose means show the outer error; None where θ are independent."""

    n_outer: int | None = None
    n_inner: int | None = None
    outer_points: str | Sequence = "sobol"
    inner_points: str | Sequence = "sobol"
    sharing: Sharing = "auto"
    jackknife: bool = False

    def __post_init__(self) -> None:
        for argument in ("n_outer", "n_inner"):
            if (size := getattr(self, argument)) is not None:
                whole(argument, size, "an integer of at least 2", least=2, below=np.inf)
        as_sequence(self.outer_points)
        as_sequence(self.inner_points)
        sharing = self.sharing
        if isinstance(sharing, str):
            choice("sharing", sharing, ("auto", "independent", "shared"))
        else:
            whole("sharing", sharing, "a name, or a pool size of at least 1", below=np.inf)
        if self.jackknife and sharing != "independent":
            raise InputError(
                "jackknife",
                f"True with sharing={sharing!r}",
                "sharing='independent'",
                "Use nq.NMC(jackknife=True) or nq.NQMC(jackknife=True).",
            )

    # Hooks of the three methods: by default means of low-discrepancy points.

    def split(self, budget: int) -> tuple[int, int]:
        """(T, N) for a budget when the user fixed neither.

        N is the power of two nearest to √budget: Sobol points are best in such numbers.
        """
        exponent = max(1, round(0.5 * log2(max(budget, 1))))
        return budget // 2**exponent, 2**exponent

    def sets(self, problem: NestedExpectation, n_outer: int, n_inner: int) -> int | None:
        """Number of inner point sets of ``sharing="auto"``; None is one for each θ."""
        return None

    def fit_inner(self, evaluations: Evaluations, theta: Array) -> InnerFit:
        """The inner rule, tuned on a few rows of values where it needs to be."""
        (grid,) = evaluations.design.grids
        return InnerFit(MeanRule(grid.n_inner), {"rule": "mean"})

    def fit_outer(self, evaluations: Evaluations, f_values: Array) -> OuterFit:
        """Outer weights for f(J) (T, q), and directions of their error."""
        return mean_outer(evaluations.problem.finish, f_values, self.blocks)

    @property
    def start(self) -> tuple[int, int]:
        """(T, N) of the first turn towards a tolerance."""
        return 32, 32

    # Planning.

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[NestedState] | None = None
    ) -> Design | None:
        if last is not None:
            return self._grown(goal, last)
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
        """The size that the user fixed, by a number or by given points; None if free."""
        size: int | None = getattr(self, f"n_{side}")
        points = as_sequence(getattr(self, f"{side}_points"))
        if size is not None or not isinstance(points, Given):
            return size
        if points.max_points < 2:
            raise InputError(f"{side}_points", "a single point", "at least 2 points")
        return points.max_points

    def _sizes(self, goal: Goal) -> tuple[int, int]:
        """(T, N) of the first turn towards a tolerance, or of a budget."""
        outer, inner, least = self._fixed("outer"), self._fixed("inner"), SETTINGS.fewest_outer
        if goal.adaptive and inner is None and outer is not None and outer < least:
            raise InputError(
                "n_outer",
                f"{outer} with a tolerance",
                f"at least {least}, or None to let it grow",
                "So few theta do not show whether a tolerance is met. A budget is fine.",
            )
        n_outer, n_inner = (outer, inner) if outer and inner else self._first(goal, outer, inner)
        budget = goal.budget
        if budget is None:
            return n_outer, n_inner
        if not (outer or inner) and (not goal.adaptive or n_outer * n_inner > budget):
            n_outer, n_inner = self.split(budget)
        elif not (outer and inner) and (not goal.adaptive or n_outer * n_inner > budget):
            n_outer, n_inner = outer or budget // (inner or 1), inner or budget // (outer or 1)
        if n_outer * n_inner > budget or min(n_outer, n_inner) < 2:
            raise InputError(
                "budget",
                f"{budget} evaluations",
                f"at least {(outer or 2) * (inner or 2)} for method {self.name!r} with "
                f"n_outer={outer} and n_inner={inner}",
            )
        return n_outer, n_inner

    def _first(self, goal: Goal, outer: int | None, inner: int | None) -> tuple[int, int]:
        """(T, N) of the first turn towards a tolerance."""
        start = self.start if goal.pilot is None else self.split(goal.pilot)
        n_inner = inner or start[1]
        least = -(-SETTINGS.fewest_evaluations // n_inner) if goal.pilot is None else 0
        return outer or max(start[0], least), n_inner

    def _grown(self, goal: Goal, last: Turn[NestedState]) -> Design | None:
        """Double the stage with the larger error, if the budget allows."""
        (grid,) = last.design.grids
        if not goal.adaptive:  # the rest of the budget, after a pilot
            n_outer, n_inner = self._sizes(replace(goal, pilot=None))
            if n_outer < grid.n_outer or n_inner < grid.n_inner:
                return None
            return Design((replace(grid, n_outer=n_outer, n_inner=n_inner),))
        sides: list[Literal["outer", "inner"]] = ["outer", "inner"]
        if last.state.error_inner > last.state.error_outer:
            sides.reverse()
        # A side with too few points goes first.
        sides.sort(key=lambda side: side not in self._short(grid))
        for side in sides:
            size, points = 2 * getattr(grid, f"n_{side}"), getattr(grid, f"{side}_points")
            most = min(points.max_points or size, self.most_points or size)
            grown = replace(grid, n_outer=size) if side == "outer" else replace(grid, n_inner=size)
            if self._fixed(side) is not None or size > most:
                continue
            if goal.budget is None or grown.span.size <= goal.budget:
                return Design((grown,))
        return None

    def _short(self, grid: Grid) -> list[str]:
        """Free sides with fewer points than in the first turn towards a tolerance: a pilot's."""
        outer, inner = self.start
        short = {
            "outer": grid.n_outer < outer and self._fixed("outer") is None,
            "inner": grid.n_inner < inner and self._fixed("inner") is None,
        }
        return [side for side, few in short.items() if few]

    # Analysis.

    def analyze(
        self, evaluations: Evaluations, last: Turn[NestedState] | None = None
    ) -> Turn[NestedState]:
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        theta = evaluations.outer().theta
        inner = self.fit_inner(evaluations, theta)
        # Before the fold, which keeps no values: read later, they would be evaluated again.
        few = None if grid.n_sets is None else _by_inner_point(evaluations, grid.n_sets)
        j = evaluations.fold(inner.rule)
        theta = theta[: j.shape[0]]
        full, *fewer = np.moveaxis(j, 1, 0)
        f_full = call_f(problem, full, theta)
        f_fewer = [call_f(problem, part, theta, require_finite=False) for part in fewer]
        halves = "other half" in inner.rule.views
        corrected = self.jackknife and halves and grid.n_sets is None
        if corrected:
            f_full, f_fewer = _without_bias(f_full, f_fewer), [f_full]
        outer = self.fit_outer(evaluations, f_full)

        def final(f_values: Array) -> Array:
            return np.atleast_1d(problem.finish((outer.weights * f_values).sum(axis=0)))

        answers = (outer.weights * f_full).sum(axis=0)
        rare = rare_event_errors(
            problem, full, f_full, outer.weights, interpolated=outer.interpolated
        )
        changes = _inner_directions(
            final, f_full, f_fewer, halves and not corrected, grid.n_sets is not None
        )
        if corrected:
            # Inner points of each θ are its own, so that rare values of g show as rare values of a
            # smooth f, which have their floor; a constant g has none.
            missed = constant_value_errors(problem, full, f_full)
            # A half-width of the whole correction: 1.96 standard errors of half of it.
            changes *= 0.5
        else:
            values = full if few is None else few
            missed = unseen_value_errors(problem, values, full, f_full, outer.weights)
            if halves and grid.n_sets is None:
                shrunk = f_full + noise_changes(problem, fewer, full, f_full, theta)
                # Fewer points double the bias and a J without noise removes it: two estimates of
                # it. The second direction is by how much they differ.
                shift = final(f_full) - final(shrunk) + changes[:, 0]
                changes = np.column_stack([changes, shift])
        # Noise of J gives logarithms tails without a variance that J itself does not have, and
        # weights of a kernel are large at the outermost of few points whatever f is there.
        rest = (f_full - answers) / len(f_full)
        heavy = heavy_tail_errors(rest, f_full.std(axis=0), 1.0)
        floors = [
            floor_directions(problem, answers, errors)
            for errors in (missed, np.maximum(rare, heavy))
        ]
        parts = {
            "inner": np.concatenate([changes, floors[0]], axis=1),
            "outer": np.concatenate([outer.directions, floors[1]], axis=1),
        }
        state = NestedState(size_of(changes), size_of(parts["outer"]))
        step = -(-theta.shape[0] // limits.PLOT_ROWS)
        notes = [note for fit in (inner, outer) for note in fit.diagnostics.get("notes", [])]
        estimate = assembled(
            problem,
            answers,
            parts,
            {
                "error_inner": size_of(parts["inner"]),
                "error_outer": state.error_outer,
                "n_sets": "one for each theta" if grid.n_sets is None else grid.n_sets,
                "inner": inner.diagnostics,
                "outer": outer.diagnostics,
                "notes": notes + without_variation(missed, rare) + [HEAVY_TAIL] * bool(heavy.any()),
            },
            n_evaluations=theta.shape[0] * grid.n_inner,
            n_outer=theta.shape[0],
            n_inner=grid.n_inner,
            method=self.name,
            sample=OuterSample(theta[::step], j[::step, 0], f_full[::step], outer.weights[::step]),
            warnings=cancellation(
                self.name, inner=inner.sum_abs_weights, outer=outer.sum_abs_weights
            ),
        )
        return Turn(evaluations.design, estimate, state, tentative=bool(self._short(grid)))


def _inner_directions(
    final: Callable[[Array], Array],
    f_full: Array,
    f_fewer: list[Array],
    halves: bool,
    shared: bool,
) -> Array:
    """Changes of the final answers with fewer inner points, (k, m).

    With both `halves` at hand their average has twice the bias of the whole and little noise of
    its own, so the difference is the bias, if it falls like 1/N. (Where f jumps or losses in x are
    rare it falls more slowly: see `noise_changes`.) Points `shared` by several θ have a common
    error, which the spread over θ does not show; half the difference of the two halves does.

    With the first half only, its difference is the error of the half-sized rule: an upper estimate
    for a rule that converges. It may vanish by accident, so that of the quarter from the half
    counts as well, by the factor `NestedSettings.quarter`.
    """
    if not f_fewer:
        return np.zeros((final(f_full).size, 1))
    with np.errstate(invalid="ignore"):
        if halves:
            changes = [np.mean(f_fewer, axis=0) - f_full]
            if shared:
                changes.append((f_fewer[0] - f_fewer[1]) / 2.0)
        else:
            steps = pairwise([f_full, *f_fewer])
            changes = [SETTINGS.quarter**i * (less - more) for i, (more, less) in enumerate(steps)]
    directions = []
    for change in changes:
        # Fewer points may leave the domain of f (a logarithm); their error is then taken to be the
        # largest that is seen elsewhere, or f itself if none is seen.
        usable = np.isfinite(change)
        largest = np.max(np.abs(change), axis=0, where=usable, initial=0.0)
        largest = np.where(usable.any(axis=0), largest, np.abs(f_full).max(axis=0))
        directions.append(final(f_full) - final(f_full + np.where(usable, change, largest)))
    return np.stack(directions, axis=1)


def _without_bias(f_full: Array, f_halves: list[Array]) -> Array:
    """2 f(J) − mean f(J of a half), (T, q): a bias of order 1/N cancels."""
    with np.errstate(invalid="ignore"):
        corrected = 2.0 * f_full - np.mean(f_halves, axis=0)
    # A half may leave the domain of f (a logarithm): no correction there.
    return np.where(np.isfinite(corrected), corrected, f_full)


def _by_inner_point(evaluations: Evaluations, n_sets: int) -> Array:
    """Values of g at the inner points of S shared sets, (S N[, p]): means over a few θ each."""
    values = evaluations.values(SETTINGS.tuning_rows * n_sets)
    return np.concatenate([values[s::n_sets].mean(axis=0) for s in range(min(n_sets, len(values)))])
