"""Multilevel kernel quadrature."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from nestquad import limits
from nestquad._checks import whole
from nestquad._typing import Array
from nestquad.accuracy import Allocation, allocate, size_of
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid
from nestquad.methods._events import (
    floor_directions,
    rare_event_errors,
    unseen_value_errors,
    without_variation,
)
from nestquad.methods._method import Goal, Method, Turn, assembled, require_transports
from nestquad.methods.multilevel._terms import (
    STAIRS,
    Assembled,
    assemble,
    independent_terms,
    shared_terms,
)
from nestquad.methods.nested import NKQ, cancellation
from nestquad.points import Sequence, as_sequence
from nestquad.problem import NestedExpectation
from nestquad.quadrature import KernelQuadrature
from nestquad.result import NORMAL_95


@dataclass(frozen=True)
class Staircase:
    """The first T_l of the θ have at least N_l inner points, on each level l.

    Inner sizes double from level to level, and outer sizes decrease. Points are nested, so a level
    adds only points that the coarser levels lack.

    Examples
    --------
    >>> Staircase((16, 8, 4), (4, 8, 16)).n_evaluations
    128
    """

    n_outer: tuple[int, ...]
    n_inner: tuple[int, ...]

    @property
    def n_evaluations(self) -> int:
        return int(np.diff(self.n_inner, prepend=0) @ np.array(self.n_outer))

    def steps(self) -> list[StaircaseStep]:
        """Every way to grow by one step: twice the θ of a level, or one more level.

        Coarser levels never have fewer θ, so they grow as well where needed.
        """
        steps: list[StaircaseStep] = []
        for level, size in enumerate(self.n_outer):
            if 2 * size <= limits.STAIRCASE_POINTS:
                sizes = tuple(max(n, 2 * size) for n in self.n_outer[: level + 1])
                levels = [i for i, n in enumerate(sizes) if n > self.n_outer[i]]
                stairs = Staircase((*sizes, *self.n_outer[level + 1 :]), self.n_inner)
                cost = stairs.n_evaluations - self.n_evaluations
                steps.append(StaircaseStep(stairs, levels, cost))
        if 2 * self.n_inner[-1] <= limits.STAIRCASE_POINTS:
            sizes = (*self.n_outer, min(self.n_outer[-1], 8))  # a level starts with 8 θ
            taller = Staircase(sizes, (*self.n_inner, 2 * self.n_inner[-1]))
            steps.append(StaircaseStep(taller, [len(self.n_inner)], sizes[-1] * self.n_inner[-1]))
        return steps

    def grown(
        self,
        outer: Array,
        inner: float,
        target: float | None,
        budget: int | None,
    ) -> Staircase | None:
        """Take the steps that remove most error for each evaluation, until the target is met.

        `outer` is the outer error of each level, `inner` the inner error: a step halves them. A
        target of None is as small as the budget allows.
        """
        capped = outer[2 * np.array(self.n_outer) > limits.STAIRCASE_POINTS]
        if target is not None and np.linalg.norm(capped) > target:
            return None  # levels that cannot grow exceed the target alone
        # At most three times the evaluations in a turn: measured errors are better than guesses.
        limit = 3.0 * self.n_evaluations
        limit = limit if budget is None else min(limit, budget)
        stairs, errors = self, [float(e) for e in outer]
        while stairs == self or np.hypot(np.linalg.norm(errors), inner) > (target or 0.0):
            steps = [step for step in stairs.steps() if step.stairs.n_evaluations <= limit]
            if not steps:
                break
            left = np.array([*errors, inner])
            best = max(steps, key=lambda step: float((left[step.levels] ** 2).sum()) / step.cost)
            stairs = best.stairs
            if best.levels == [len(errors)]:  # a new one: its correction is known from a few θ only
                errors.append(inner)
                inner /= 2.0
            else:
                errors = [e / 2.0 if i in best.levels else e for i, e in enumerate(errors)]
        return None if stairs == self else stairs


class StaircaseStep(NamedTuple):
    """A larger staircase, the levels that grew, and its extra evaluations."""

    stairs: Staircase
    levels: list[int]
    cost: int


def staircase_for(budget: int, smallest: int) -> Staircase:
    """The balanced staircase of a budget: T_l N_l is the same on all levels.

    It has all levels that fit, with `smallest` inner points on the coarsest and `smallest` θ on
    the finest, until weights become too expensive; then fewer and broader levels.
    """
    best = _balanced(smallest, smallest, 1)  # two levels, the fewest that show an inner error
    if best.n_evaluations > budget:
        raise InputError(
            "budget",
            f"{budget} evaluations",
            f"at least {best.n_evaluations} for method 'mlkq' with n_coarsest={smallest}",
        )
    size = smallest
    while 2 * size <= limits.STAIRCASE_POINTS:
        top = int(np.log2(limits.STAIRCASE_POINTS / size))
        fitting = [
            stairs
            for stairs in (_balanced(size, size, level) for level in range(1, top + 1))
            if stairs.n_evaluations <= budget
        ]
        best = max([best, *fitting], key=lambda stairs: stairs.n_evaluations)
        if len(fitting) < top:
            break
        size *= 2
    # The rest goes to more θ on all levels: the outer error is the larger one as a rule.
    top, size = len(best.n_inner) - 1, best.n_inner[0]
    wide = min(budget * size // best.n_evaluations, limits.STAIRCASE_POINTS // 2**top)
    return _balanced(size, max(wide, size), top)


def _balanced(n_inner: int, n_outer: int, top: int) -> Staircase:
    return Staircase(
        tuple(n_outer * 2 ** (top - level) for level in range(top + 1)),
        tuple(n_inner * 2**level for level in range(top + 1)),
    )


@dataclass(frozen=True)
class MLKQ(Method[Assembled]):
    """Multilevel kernel quadrature: few inner points for many θ, many for few.

    The telescoping sum of multilevel Monte Carlo with kernel weights in both stages. All θ share
    one nested sequence of inner points, and all levels share one nested sequence of θ, so the
    correction of a level is smooth in θ, errors of the two stages multiply, and levels share
    evaluations: θ_t is evaluated at N(t) inner points, a staircase. Where g is smooth this needs
    far fewer evaluations than a full grid.

    Parameters
    ----------
    n_coarsest
        Inner points on the coarsest level, and θ on the finest; sizes double in between.
    outer_points, inner_points
        ``"sobol"``, ``"lattice"``, …: sequences whose beginnings are good point sets.
    inner, outer
        Recipes for the two stages.
    shared
        False: the form of the paper, with independent θ for each level and independent inner points
        for each θ; see `as_published`.

    Notes
    -----
    *Error bar.* Outer: the effect of halving the θ of each level. Inner: the effect of the last
    doublings of N, and a floor for values of g that no inner point has shown. Errors are taken to
    halve when points double.

    *Turns.* From a small balanced staircase on, each turn grows it where that removes most error
    for each evaluation: more θ on one level, or a new level.

    *Cost* beyond g: one factorisation for each stage and turn, of at most 2,048 points; a budget
    of more than 4 million evaluations is not used up.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.synthetic()
    >>> est = nq.estimate(problem, budget=4096, method=nq.MLKQ(), rng=1)
    >>> est.n_evaluations <= 4096, bool(abs(est.value - problem.exact) < 1e-7)
    (True, True)
    """

    name: ClassVar[str] = "mlkq"
    sequential: ClassVar[bool] = True
    n_coarsest: int = 4
    outer_points: str | Sequence = "sobol"
    inner_points: str | Sequence = "sobol"
    inner: KernelQuadrature = field(default_factory=KernelQuadrature)
    outer: KernelQuadrature = field(default_factory=KernelQuadrature)
    shared: bool = True

    def __post_init__(self) -> None:
        whole("n_coarsest", self.n_coarsest, "an integer of at least 2", least=2, below=np.inf)
        as_sequence(self.outer_points)
        as_sequence(self.inner_points)
        if self.shared is True and getattr(self.inner, "space", None) == "native":
            raise InputError(
                "inner",
                "a recipe on the native space",
                "one on 'uniform', 'normal' or 'auto', where weights do not depend on theta",
                "Use MLKQ.as_published(inner_space='native'), or NKQ.",
            )

    @classmethod
    def as_published(cls, problem: NestedExpectation | None = None, **spaces: Any) -> MLKQ:
        """The paper's multilevel form: its allocation, independent points for each θ and level.

        Kernels, inner regularization and the options `inner_space` and `outer_space` are as in
        `NKQ.as_published`; the outer λ is T^(-2s/(2s + d)), as the theorem asks.
        """
        nkq = NKQ.as_published(problem, **spaces)
        recipes = nkq.outer if isinstance(nkq.outer, tuple) else (nkq.outer,)
        # One recipe for all answers: the least smooth.
        outer = min(
            recipes, key=lambda recipe: recipe.kernel.smoothness(1) if recipe.kernel else 0.0
        )
        return cls(
            outer_points="iid", inner_points="iid", inner=nkq.inner, outer=outer, shared=False
        )

    # Planning.

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Assembled] | None = None
    ) -> Design | None:
        require_transports(problem, self.name)
        if not self.shared:
            return self._published(problem, goal, None if last is None else last.design)
        if last is not None:
            return self._grown(problem, goal, last)
        pilot = goal.pilot or STAIRS.pilot
        if goal.budget is not None:
            pilot = min(pilot, goal.budget // 3)
            if not goal.adaptive:
                pilot = max(pilot, goal.budget // 12)
            elif goal.pilot is None:
                pilot = max(pilot, STAIRS.fewest)
            least = _balanced(self.n_coarsest, self.n_coarsest, 1)
            pilot = min(max(pilot, least.n_evaluations), goal.budget)
        return self._staircase(problem, goal, staircase_for(pilot, self.n_coarsest))

    def _staircase(self, problem: NestedExpectation, goal: Goal, stairs: Staircase) -> Design:
        outer, inner = as_sequence(self.outer_points), as_sequence(self.inner_points)
        # Kernel weights allow any θ; in high dimension more spread loses the middle.
        scale = 1.0 + STAIRS.stretch / problem.outer_law.base_dim**2
        # One number for all levels: they are parts of one table on the same points.
        return Design(
            tuple(
                Grid(n_outer, n_inner, outer, inner, 1, goal.stream, 0, scale)
                for n_outer, n_inner in zip(stairs.n_outer, stairs.n_inner, strict=True)
            )
        )

    def _grown(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Assembled]
    ) -> Design | None:
        if goal.adaptive and goal.pilot is None and last.design.n_evaluations < STAIRS.fewest:
            return None  # the budget was spent at once
        state, grids = last.state, last.design.grids
        stairs = Staircase(tuple(g.n_outer for g in grids), tuple(g.n_inner for g in grids))
        target = None if goal.half_width is None else STAIRS.aim * goal.half_width / NORMAL_95
        outer = np.abs(state.outer).max(axis=0)
        inner = np.concatenate([state.inner, *[state.missed] * goal.adaptive], axis=1)
        # Coarse levels that were left out have to grow too, for the others to follow.
        outer = np.concatenate([np.full(len(stairs.n_inner) - outer.size, outer[0]), outer])
        grown = stairs.grown(outer, size_of(inner), target, goal.budget)
        return None if grown is None else self._staircase(problem, goal, grown)

    def _published(
        self, problem: NestedExpectation, goal: Goal, before: Design | None
    ) -> Design | None:
        """All at once for a budget; twice the evaluations each turn towards a tolerance."""
        most = goal.budget or STAIRS.pilot
        if goal.adaptive:
            most = min(most, max(STAIRS.pilot, 2 * before.n_evaluations if before else 0))
        sizes = self._allocation(problem, most)
        if before is not None and sizes.n_evaluations <= before.n_evaluations:
            return None
        outer, inner = as_sequence(self.outer_points), as_sequence(self.inner_points)
        return Design(
            tuple(
                Grid(level.n_outer, level.n_inner, outer, inner, None, goal.stream, number)
                for number, level in enumerate(sizes.levels)
            )
        )

    def _allocation(self, problem: NestedExpectation, budget: int) -> Allocation:
        """The paper's sizes for the smallest error that the budget allows."""
        if self.inner.kernel is None or self.outer.kernel is None:
            raise InputError(
                "shared",
                "False, with recipes that choose their kernels",
                "inner and outer recipes with kernels, on whose smoothness the sizes depend",
                "Use MLKQ.as_published(), or shared=True.",
            )
        d_x, d_theta = problem.inner_base_dim, problem.outer_law.base_dim
        theory = partial(
            allocate,
            method="mlkq",
            dim_x=d_x,
            dim_theta=d_theta,
            s_x=self.inner.kernel.smoothness(d_x),
            s_theta=self.outer.kernel.smoothness(d_theta),
        )
        low, high = -30.0, -1e-3  # of log Δ, the error relative to the scale of f(J)
        best = theory(float(np.exp(high)))
        if best.n_evaluations > budget:
            raise InputError(
                "budget",
                f"{budget} evaluations",
                f"at least {best.n_evaluations} for the published form of 'mlkq'",
            )
        for _ in range(50):
            middle = (low + high) / 2
            sizes = theory(float(np.exp(middle)))
            if sizes.n_evaluations <= budget:
                best, high = sizes, middle
            else:
                low = middle
        return best

    # Analysis.

    def analyze(
        self, evaluations: Evaluations, last: Turn[Assembled] | None = None
    ) -> Turn[Assembled]:
        problem = evaluations.problem
        make = shared_terms if self.shared else independent_terms
        terms = make(evaluations, self.inner, self.outer)
        rate = STAIRS.rate if self.shared else STAIRS.rate_independent
        state = assemble(terms.levels, problem.finish, rate)
        sample = terms.sample
        seen = (sample.j, sample.f, sample.weights)
        errors = unseen_value_errors(problem, terms.values, *seen)
        missed = floor_directions(problem, state.answers, errors)
        errors = rare_event_errors(problem, *seen, interpolated=True)
        rare = floor_directions(problem, state.answers, errors)
        state = replace(state, missed=missed)
        parts = {
            "inner": np.concatenate([state.inner, missed], axis=1),
            "outer": np.concatenate([state.outer, rare], axis=1),
        }
        estimate = assembled(
            problem,
            state.answers,
            parts,
            {
                "error_inner": size_of(parts["inner"]),
                "error_outer": size_of(parts["outer"]),
                "inner": terms.inner,
                "outer": terms.outer,
                "levels": [
                    {
                        "n_inner": level.n_inner,
                        "n_outer": level.n_outer,
                        "change": change,
                        "error_outer": np.abs(error),
                    }
                    for level, change, error in zip(
                        terms.levels, state.change, state.outer.T, strict=True
                    )
                ],
                "notes": [*terms.notes, *without_variation(missed, rare)],
            },
            n_evaluations=min(
                evaluations.design.n_evaluations, evaluations.evaluator.n_evaluations
            ),
            n_outer=max(level.n_outer for level in terms.levels),
            n_inner=terms.levels[-1].n_inner,
            method=self.name,
            sample=terms.sample,
            warnings=cancellation(self.name, **terms.sum_abs_weights),
        )
        return Turn(evaluations.design, estimate, state)
