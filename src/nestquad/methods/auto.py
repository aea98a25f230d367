"""Choose by itself: pilots of several methods, and the rest of the budget for the best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from nestquad.errors import (
    InputError,
    NestquadError,
    NumericalError,
    OutsideDomainError,
    UnsupportedError,
)
from nestquad.evaluate import Design, Evaluations, OutOfTimeError
from nestquad.methods._audit import audited, unexplained
from nestquad.methods._character import describe
from nestquad.methods._method import Goal, Method
from nestquad.methods._portfolio import Portfolio, Race, Standing, leader, scaled, touching
from nestquad.methods.ckq import CKQ
from nestquad.methods.joint import JointLattice
from nestquad.methods.lsmc import LSMC
from nestquad.methods.multilevel import MLKQ, MLMC
from nestquad.methods.nested import NKQ, NMC, NQMC
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, Step

__all__ = ["Auto"]

# The pilot of each candidate takes this share of a budget, and at least so many evaluations; that
# of the first, which is the likeliest to be continued, may take a larger share of a small budget.
_PILOT_SHARE, _FEWEST, _FIRST, _FIRST_SHARE = 0.04, 128, 512, 0.4
# Towards a tolerance there is no budget yet to take a share of: the first candidate starts with
# few, and the others join when it has come to so many and is not there yet.
_START, _JOIN = 96, 512
# The first candidate goes on alone if its half-width is this small beside the spread of f(J).
_CONVINCING = 0.01
# What comparing may cost of a budget: little, unless the first candidate is in trouble.
_COMPARING, _COMPARING_IN_TROUBLE, _TROUBLE = 0.16, 0.4, 0.1
# A tolerance ends at a turn whose error bar came out small. Such a bar is not a fair one, least of
# all one that rests on few evaluations n, so all bars on the way are multiplied by a + b / √n.
# Nor is the smallest of several bars where little was learned: it belongs to the luckiest.
_SELECTED, _SELECTED_FEW = 1.3, 10.0
# Regressions take long to fit and seldom win where lattices do well.
_RESERVE = (LSMC(),)
# A comparison that lowers what the first candidate can evaluate by more than this is not worth it.
_HALVED = 1.5

_FAILURES = (NumericalError, UnsupportedError, OutsideDomainError)


@dataclass(frozen=True)
class Auto(Method):
    """Try several methods on a part of the budget; continue the one with the smallest error bar.

    Candidates are judged by their own error bars, extrapolated to the evaluations that are left.
    The losers' pilots are not wasted: they are second opinions, and the interval of the winner is
    widened where a plain average contradicts it.

    Parameters
    ----------
    candidates
        The methods to choose from, the likeliest first; None takes `JointLattice`, `CKQ`, `MLKQ`
        and `NQMC`, and `LSMC` where the first is in trouble, or `NMC` and `MLMC` where a law can
        only be sampled.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.finance()
    >>> est = nq.estimate(problem, budget=5000, rng=0)
    >>> bool(abs(est.value - problem.exact) < 0.01), len(est.candidates)
    (True, 4)
    """

    name: ClassVar[str] = "auto"
    sequential: ClassVar[bool] = True

    candidates: tuple[Method, ...] | None = None

    def __post_init__(self) -> None:
        if self.candidates is None:
            return
        names = [getattr(method, "name", None) for method in self.candidates]
        if not names or None in names or len(set(names)) < len(names) or self.name in names:
            raise InputError(
                "candidates", repr(self.candidates), "configured methods of different kinds"
            )

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None = None,
    ) -> Design | None:
        methods = self.candidates or _candidates(problem)
        if so_far is None:
            return self._first(problem, goal, methods)
        portfolio, estimate = so_far
        assert isinstance(portfolio, Portfolio)
        if goal.half_width is not None:
            goal = replace(goal, half_width=goal.half_width / _allowance(portfolio))
        standings = [
            Standing(method, design, estimate.candidates[method.name])
            for method, design in portfolio.parts
            if method.name in estimate.candidates
        ]
        if len(portfolio.parts) == 1 and portfolio.parts[0][0] == methods[0]:
            first = standings[0] if standings else None
            pilots = _pilots(problem, goal, methods[1:], first, portfolio.n_evaluations)
            if pilots:
                return Portfolio.of((*portfolio.parts, *pilots), goal.adaptive)
        if not standings:
            raise estimate.diagnostics["failure"]
        race = Race(problem, goal, standings, portfolio.n_evaluations, _pilot(goal), _COMPARING)
        step = race.toward_tolerance() if goal.adaptive else race.toward_budget()
        return None if step is None else portfolio.grown(*step)

    def _first(
        self, problem: NestedExpectation, goal: Goal, methods: tuple[Method, ...]
    ) -> Portfolio:
        """The pilot of the first candidate that applies."""
        refusal: NestquadError | None = None
        for i, method in enumerate(methods):
            try:
                design = method.plan(problem, _own_goal(goal, i, goal.budget))
            except (InputError, UnsupportedError) as error:
                refusal = refusal or error
                continue
            if design is not None and design.n_evaluations <= (goal.budget or np.inf):
                return Portfolio.of(((method, design),), goal.adaptive)
        if self.candidates is not None and refusal is not None:
            raise refusal
        # Too small a budget for a choice.
        last = NKQ() if is_transported(problem) else NMC()
        design = last.plan(problem, goal)
        assert design is not None
        return Portfolio.of(((last, design),), goal.adaptive)

    def analyze(self, evaluations: Evaluations) -> Estimate:
        portfolio = evaluations.design
        assert isinstance(portfolio, Portfolio)
        standings, dropped = [], []
        failure: NestquadError | None = None
        for method, design in portfolio.parts:
            try:
                estimate = _analyzed(evaluations, method, design)
            except (*_FAILURES, OutOfTimeError) as error:
                failure = error
                dropped.append(f"{method.name} dropped out: {error}")
                continue
            standings.append(Standing(method, design, estimate))
        if failure is not None and not standings:
            if isinstance(failure, OutOfTimeError) or len(portfolio.parts) > 1:
                raise failure
            # The others have not been asked yet; if that is too late, `plan` raises this.
            return Estimate(np.nan, np.inf, 0, 0, 0, self.name, diagnostics={"failure": failure})
        standings = _audited(evaluations, standings)
        best = leader(standings)
        others = [s for s in standings if s is not best]
        touched = touching(best, others)
        doubtful = portfolio.selected or not best.steady
        found = scaled(touched, _allowance(portfolio)) if doubtful else touched
        notes = [_reason(best, others), *dropped, *describe(evaluations.problem, found)]
        if "unexplained_sd" in found.diagnostics:
            notes.append("the interval was widened: J varies with theta more than its model knows")
        if touched is not best.estimate:
            notes.append("the interval was widened, since a plain average disagrees")
        return replace(
            found,
            n_evaluations=portfolio.n_evaluations,
            candidates={s.method.name: s.estimate for s in standings},
            diagnostics={
                **found.diagnostics,
                "chosen": best.method.name,
                "notes": [*notes, *found.diagnostics.get("notes", [])],
            },
        )


def _allowance(portfolio: Portfolio) -> float:
    """What bars that were selected are multiplied by."""
    return _SELECTED + _SELECTED_FEW / float(np.sqrt(portfolio.n_evaluations))


def _candidates(problem: NestedExpectation) -> tuple[Method, ...]:
    if is_transported(problem):
        return (JointLattice(), CKQ(), MLKQ(), NQMC(), LSMC())
    return (NMC(), MLMC())


def is_transported(problem: NestedExpectation) -> bool:
    """Whether points can be placed: low-discrepancy points and kernels need that."""
    law = problem.outer_law
    if not law.has_transport:
        return False
    theta = law.from_uniform(np.full((1, law.base_dim), 0.5))
    return problem.inner_law(theta).has_transport


def _pilot(goal: Goal, *, first: bool = False) -> int:
    if goal.adaptive or goal.budget is None:
        start = _START if first else _FEWEST
        return min(start, goal.budget or start)
    share = max(_FEWEST, int(_PILOT_SHARE * goal.budget))
    if first:
        share = max(share, min(_FIRST, int(_FIRST_SHARE * goal.budget)))
    return min(share, goal.budget)


def _own_goal(goal: Goal, i: int, budget: int | None) -> Goal:
    return replace(
        goal,
        stream=goal.stream.child(40, i),
        adaptive=True,
        budget=budget,
        half_width=None,
        pilot=_pilot(goal, first=i == 0),
    )


def _pilots(
    problem: NestedExpectation,
    goal: Goal,
    methods: tuple[Method, ...],
    first: Standing | None,
    spent: int,
) -> tuple[tuple[Method, Design], ...]:
    """First designs of the other candidates, as far as they apply and are worth it."""
    if goal.adaptive and first is not None and first.n < _JOIN:
        return ()
    relative = np.inf if first is None else first.half_width / max(first.spread, 1e-300)
    share = _COMPARING_IN_TROUBLE
    if relative < _TROUBLE:
        share, methods = _COMPARING, tuple(m for m in methods if m not in _RESERVE)
    left = np.inf if goal.budget is None else goal.budget - spent
    if goal.budget is not None and not goal.adaptive:
        left = min(left, share * goal.budget)
    parts: list[tuple[Method, Design]] = []
    for i, method in enumerate(methods, start=1):
        try:
            design = method.plan(problem, _own_goal(goal, i, goal.budget and int(left)))
        except (InputError, UnsupportedError):
            continue
        if design is not None and design.n_evaluations <= left:
            parts.append((method, design))
            left -= design.n_evaluations
    cost = sum(design.n_evaluations for _, design in parts)
    if relative <= _CONVINCING and cost > _cheap(goal):
        return ()
    if first is not None and relative < _TROUBLE and _spoils(problem, goal, first, cost):
        return ()
    return tuple(parts)


def _spoils(problem: NestedExpectation, goal: Goal, first: Standing, cost: int) -> bool:
    """Whether a comparison costs the first candidate far more points than it evaluates.

    Lattices double: just short of a power of two, half of the budget is of no use to them.
    """
    if goal.adaptive or goal.budget is None:
        return False
    alone, beside = (
        first.next_design(problem, goal, most, in_one_go=True)
        for most in (goal.budget, goal.budget - cost)
    )
    if alone is None:
        return False
    return alone.n_evaluations > _HALVED * (first.n if beside is None else beside.n_evaluations)


def _cheap(goal: Goal) -> float:
    """What second opinions may cost where they are hardly needed."""
    return 0.0 if goal.adaptive or goal.budget is None else 3.1 * _PILOT_SHARE * goal.budget


def _analyzed(evaluations: Evaluations, method: Method, design: Design) -> Estimate:
    """The candidate's answer; only the one whose design has grown is analysed again."""
    memo = evaluations.evaluator.memo(design.grids[0].stream)
    known: tuple[Design, Estimate] | None = memo.get("analyzed")
    if known is not None and known[0] == design:
        return known[1]
    try:
        found = method.analyze(Evaluations(evaluations.evaluator, design))
    except OutOfTimeError:
        if known is None:
            raise
        return known[1]
    before = () if known is None else known[1].trace
    found = replace(
        found, trace=(*before, Step(design.n_evaluations, found.value, found.std_error))
    )
    memo["analyzed"] = (design, found)
    return found


def _audited(evaluations: Evaluations, standings: list[Standing]) -> list[Standing]:
    """Models of J held against the grid of the plain average, which none of them has seen."""
    plain = next((s for s in standings if isinstance(s.method, NQMC)), None)
    if plain is None:
        return standings
    grid = Evaluations(evaluations.evaluator, plain.design)
    checked = []
    for standing in standings:
        predict = evaluations.evaluator.memo(standing.design.grids[0].stream).get("j")
        if predict is not None:
            variance = unexplained(grid, predict)
            found = audited(evaluations.problem, standing.estimate, variance)
            standing = replace(standing, estimate=found)
        checked.append(standing)
    return checked


def _reason(best: Standing, others: list[Standing]) -> str:
    """Why the best is the best, in words."""
    text = f"auto chose {best.method.name}: "
    if not others:
        return text + (
            "its error bar was small enough for comparisons to be a waste"
            if best.half_width <= _CONVINCING * best.spread
            else "no other candidate applies or fits into the budget"
        )
    opinions = "; ".join(
        f"{s.method.name} {s.estimate.summary} with {s.n:,} evaluations"
        for s in sorted([best, *others], key=lambda s: s.half_width)
    )
    text += f"the smallest error bar to be expected ({opinions})"
    if isinstance(best.method, NQMC | NMC):
        text += (
            "; neither kernels nor levels gain on plain averages here: to them g looks like noise"
        )
    return text
