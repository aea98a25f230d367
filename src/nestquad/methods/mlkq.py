"""Multilevel kernel quadrature."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from nestquad.accuracy import Allocation, allocate
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid
from nestquad.methods._level_terms import assemble, shared_terms
from nestquad.methods._level_terms_published import independent_terms
from nestquad.methods._method import Goal, Method
from nestquad.methods._shared import float_or_array, require_transports
from nestquad.methods._staircase import Staircase, smallest_staircase, staircase_for
from nestquad.methods.nkq import NKQ
from nestquad.points import Sequence, as_sequence
from nestquad.problem import NestedExpectation
from nestquad.quadrature import KernelQuadrature
from nestquad.result import Estimate

__all__ = ["MLKQ"]

# The first turn towards a tolerance.
_PILOT_BUDGET = 768
_NORMAL_95 = 1.959964
# Kernel weights do not care where θ come from. In one dimension this much more spread sees the
# tails, which are otherwise missed by a bias that no subset reveals; in many it loses the middle.
_TAIL_INFLATION = 0.25


@dataclass(frozen=True)
class MLKQ(Method):
    """Multilevel kernel quadrature: few inner points for many θ, many for few.

    The telescoping sum of multilevel Monte Carlo with kernel weights in both stages. All θ share
    one nested sequence of inner points, and all levels share one nested sequence of θ, so what a
    level changes is smooth in θ, errors of the two stages multiply, and levels share evaluations:
    θ_t is evaluated at N(t) inner points, a staircase. Where g is smooth this needs far fewer
    evaluations than a full grid.

    Parameters
    ----------
    n_coarsest
        Inner points on the coarsest level, and θ on the finest; sizes double in between.
    outer_points, inner_points
        ``"sobol"``, ``"lattice"``, …: sequences whose beginnings are good point sets.
    inner, outer
        Recipes for the two stages.
    shared
        False: the form of the paper, with θ of its own for each level and inner points of its own
        for each θ; see `as_published`.

    Notes
    -----
    *Error bar.* Outer: what halving the θ of each level changes. Inner: what the last doublings of
    N changed. Both continued at the rate at which they decrease.

    *Turns.* From a small balanced staircase on, each turn grows it where that removes most error
    for each evaluation: more θ on one level, or a new level.

    *Cost* beyond g: one factorisation for each stage and turn, of at most 2,048 points; a budget
    of more than 4 million evaluations is not used up.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad.methods.mlkq import MLKQ
    >>> problem = nq.problems.synthetic()
    >>> est = nq.estimate(problem, budget=4096, method=MLKQ(), rng=1)
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
        size = self.n_coarsest
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 2:
            raise InputError("n_coarsest", repr(size), "an integer of at least 2")
        as_sequence(self.outer_points)
        as_sequence(self.inner_points)
        if self.shared and self.inner.space == "native":
            raise InputError(
                "inner",
                "a recipe on the native space",
                "one on 'uniform', 'normal' or 'auto', where weights do not depend on theta",
                "Use MLKQ.as_published(inner_space='native'), or NKQ.",
            )

    @classmethod
    def as_published(cls, problem: NestedExpectation | None = None, **spaces: Any) -> MLKQ:
        """The paper's multilevel form: its allocation, independent points for each θ and level.

        Kernels and inner regularisation are those of `NKQ.as_published`, which also says what
        `inner_space` and `outer_space` mean; the outer λ is T^(-2s/(2s + d)), as the theorem asks.
        """
        nkq = NKQ.as_published(problem, **spaces)
        outer = nkq.outer if isinstance(nkq.outer, KernelQuadrature) else _roughest(nkq.outer)
        return cls(
            outer_points="iid", inner_points="iid", inner=nkq.inner, outer=outer, shared=False
        )

    # Planning.

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None = None,
    ) -> Design | None:
        require_transports(problem, self.name)
        if not self.shared:
            return self._published(problem, goal, so_far)
        if so_far is not None:
            return self._grown(problem, goal, *so_far)
        pilot = goal.pilot or _PILOT_BUDGET
        if goal.budget is not None:
            pilot = min(pilot, goal.budget // 3)
            if not goal.adaptive:
                pilot = max(pilot, goal.budget // 12)
            pilot = max(pilot, smallest_staircase(self.n_coarsest).n_evaluations)
            pilot = min(pilot, goal.budget)
        return self._staircase(problem, goal, staircase_for(pilot, self.n_coarsest))

    def _staircase(self, problem: NestedExpectation, goal: Goal, stairs: Staircase) -> Design:
        outer, inner = as_sequence(self.outer_points), as_sequence(self.inner_points)
        scale = 1.0 + _TAIL_INFLATION / problem.outer_law.base_dim**2
        # One number for all levels: they are parts of one table on the same points.
        return Design(
            tuple(
                Grid(n_outer, n_inner, outer, inner, 1, goal.stream, 0, scale)
                for n_outer, n_inner in zip(stairs.n_outer, stairs.n_inner, strict=True)
            )
        )

    def _grown(
        self, problem: NestedExpectation, goal: Goal, design: Design, estimate: Estimate
    ) -> Design | None:
        found = estimate.diagnostics
        stairs = Staircase(
            tuple(grid.n_outer for grid in design.grids),
            tuple(grid.n_inner for grid in design.grids),
        )
        target = None if goal.half_width is None else 0.9 * goal.half_width / _NORMAL_95
        outer = [level["error_outer"].max() for level in found["levels"]]
        # Coarse levels that were left out have to grow all the same for the others to follow.
        outer = [outer[0]] * (len(stairs.n_inner) - len(outer)) + outer
        grown = stairs.grown(
            np.array(outer),
            float(found["inner"]["error"].max()),
            (2.0 ** -found["outer"]["rate"], 2.0 ** -found["inner"]["rate"]),
            target,
            goal.budget,
        )
        return None if grown is None else self._staircase(problem, goal, grown)

    def _published(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None,
    ) -> Design | None:
        """All at once for a budget; twice as many evaluations each turn towards a tolerance."""
        most = goal.budget or _PILOT_BUDGET
        if goal.adaptive:
            had = 0 if so_far is None else so_far[0].n_evaluations
            most = min(most, max(_PILOT_BUDGET, 2 * had))
        sizes = self._allocation(problem, most)
        if so_far is not None and sizes.n_evaluations <= so_far[0].n_evaluations:
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
        assert self.inner.kernel is not None
        assert self.outer.kernel is not None
        theory = partial(
            allocate,
            method="mlkq",
            dim_x=problem.inner_base_dim,
            dim_theta=problem.outer_law.base_dim,
            s_x=self.inner.kernel.smoothness(problem.inner_base_dim),
            s_theta=self.outer.kernel.smoothness(problem.outer_law.base_dim),
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

    def analyze(self, evaluations: Evaluations) -> Estimate:
        problem = evaluations.problem
        make = shared_terms if self.shared else independent_terms
        terms = make(evaluations, self.inner, self.outer)
        found = assemble(terms.levels, problem.finish)
        covariance = found.errors.covariance
        std_error = np.sqrt(np.diagonal(covariance))
        scalar = problem.finish(found.answers).ndim == 0
        return Estimate(
            value=float(found.value[0]) if scalar else found.value,
            std_error=float(std_error[0]) if scalar else std_error,
            n_evaluations=evaluations.evaluator.n_evaluations,
            n_outer=max(level.n_outer for level in terms.levels),
            n_inner=terms.levels[-1].n_inner,
            method=self.name,
            diagnostics={
                "answers": found.answers,
                "error_inner": found.errors.inner_size,
                "error_outer": found.errors.outer_size,
                "inner": {**terms.inner, "error": found.inner, "rate": found.inner_rate},
                "outer": {**terms.outer, "rate": found.outer_rate},
                "levels": [
                    {
                        "n_inner": level.n_inner,
                        "n_outer": level.n_outer,
                        "change": change,
                        "error_outer": error,
                    }
                    for level, change, error in zip(
                        terms.levels, found.change, found.outer, strict=True
                    )
                ],
                "notes": [
                    *terms.notes,
                    *terms.inner.get("notes", []),
                    *terms.outer.get("notes", []),
                ],
            },
            covariance=None if scalar else covariance,
            problem=problem.label,
            exact=float_or_array(problem.exact),
            sample=terms.sample,
        )


def _roughest(recipes: tuple[KernelQuadrature, ...]) -> KernelQuadrature:
    """One recipe for all answers: the one that asks for the least smoothness."""
    return min(recipes, key=lambda recipe: recipe.kernel.smoothness(1) if recipe.kernel else 0.0)
