"""Automatic choice of a method: run pilots, continue the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from nestquad import clock
from nestquad._checks import shown
from nestquad.accuracy import characteristics, needs_positive
from nestquad.clock import LEARNING, LearningCurve, TimePlan
from nestquad.errors import (
    InputError,
    NestquadError,
    NumericalError,
    OutsideDomainError,
    UnsupportedError,
)
from nestquad.evaluate import Design, Evaluations, OutOfTimeError
from nestquad.methods._candidate import Candidate, credible, is_pilot
from nestquad.methods._method import Goal, Method, Turn, has_transports
from nestquad.methods._time import budget_in_time, correct_plan, learning_seconds, start_plan
from nestquad.methods.learned import (
    CKQ,
    JointLattice,
    JointProcess,
    LearnedDesign,
    LearnedMethod,
    n_draws,
)
from nestquad.methods.multilevel import MLMC
from nestquad.methods.nested import NKQ, NMC, NQMC
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["Auto"]

# The first candidate goes on alone, with no fresh draws that check it, if its half-width is this
# small beside the spread of f(J).
_CONVINCING = 0.001
Parts: TypeAlias = tuple[tuple[Method[Any], Design], ...]
Methods: TypeAlias = tuple[Method[Any], ...]


@dataclass(frozen=True)
class Portfolio(Design):
    """The designs of several methods, each with a stream of its own, and the reason in words."""

    parts: Parts = field(default=())
    reason: str = field(default="", compare=False)

    @classmethod
    def of(cls, parts: Parts, reason: str = "", seconds: float | None = None) -> Portfolio:
        grids = tuple(grid for _, design in parts for grid in design.grids)
        return cls(grids, parts, reason, seconds=seconds)


@dataclass(frozen=True)
class Race:
    """Candidates, the seconds that an evaluation takes, the first turn of all, and a forecast."""

    candidates: tuple[Candidate, ...]
    seconds: float
    start: Candidate
    time: TimePlan

    def standing(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.turn is not None]


@dataclass(frozen=True)
class Auto(Method[Race]):
    """Try several methods on a part of the budget; continue the most promising.

    The promise of a candidate is its half-width, extrapolated to the remaining evaluations at the
    rate 1/n, or up to 1/n^1.5 if a model shows it. Candidates are compared again after each turn. A
    model that fresh draws refute is no candidate any more.

    Without a budget, time counts instead of evaluations. `NQMC` goes first, and learning begins
    when it promises to be faster, which depends on the time that g takes. Both promises stand in
    the notes. With a limit on seconds alone, `NQMC` also has the time that learning cannot use.

    Parameters
    ----------
    candidates
        The methods to choose from, the likeliest first; None takes `JointProcess` alone for a
        budget of at most 256 evaluations, and for a larger one `JointLattice` and `NQMC`, `CKQ`
        alone where f needs J > 0, `CKQ` and `NQMC` where g is noisy, or `NMC` and `MLMC` where a
        law can only be sampled.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.finance()
    >>> est = nq.estimate(problem, budget=5000, rng=0)
    >>> bool(abs(est.value - problem.exact) < 0.01), len(est.candidates)
    (True, 2)
    """

    name: ClassVar[str] = "auto"
    sequential: ClassVar[bool] = True

    candidates: tuple[Method[Any], ...] | None = None

    def __post_init__(self) -> None:
        some = self.candidates
        if some is not None and not (
            isinstance(some, tuple | list) and all(isinstance(one, Method) for one in some)
        ):
            raise InputError("candidates", shown(some), "configured methods of different kinds")
        names = [getattr(method, "name", self.name) for method in self.candidates or ("none",)]
        if self.candidates is not None and (self.name in names or len({*names}) < len(names)):
            raise InputError(
                "candidates", repr(self.candidates), "configured methods of different kinds"
            )

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Race] | None = None
    ) -> Design | None:
        methods = self.candidates or _candidates(problem, goal, last)
        # Without a budget, time counts: a plain rule first, as long as it promises more.
        by_time = goal.hurried and self.candidates is None and has_transports(problem)
        if last is None:
            return self._first(problem, goal, methods, by_time)
        contest = _Contest(problem, goal, last, methods, by_time)
        plain = contest.plain_turn()
        if plain is None and contest.seconds_alone:
            contest = replace(contest, goal=contest.budgeted())
        return plain or contest.pilots() or contest.continued()

    def _first(
        self, problem: NestedExpectation, goal: Goal, methods: Methods, by_time: bool
    ) -> Design | None:
        """Pilot of the first candidate, or of a plain rule where time counts."""
        if by_time:
            plain = NQMC().plan(problem, replace(goal, stream=goal.stream.child(41), pilot=64))
            assert plain is not None
            return Portfolio.of(((NQMC(), plain),))
        pilot = next(_planned(problem, goal, methods, first=True), None)
        if pilot is not None:
            return Portfolio.of((pilot,))
        # Too small a budget for a choice; a candidate of the user's says why it refuses.
        only = (self.candidates or (NKQ() if has_transports(problem) else NMC(),))[0]
        design = only.plan(problem, goal)
        return None if design is None else Portfolio.of(((only, design),))

    def analyze(self, evaluations: Evaluations, last: Turn[Race] | None = None) -> Turn[Race]:
        portfolio = evaluations.design
        assert isinstance(portfolio, Portfolio)
        known = {one.method.name: one for one in last.state.candidates} if last else {}
        found_by = [
            _analyzed(evaluations, method, design, known.get(method.name))
            for method, design in portfolio.parts
        ]
        start = last.state.start if last else found_by[0]
        # Making and adding up a point takes a tenth of a microsecond, whatever g is.
        seconds = evaluations.evaluator.seconds_per_evaluation + 1e-7
        plan = _timed(evaluations, found_by, known, last.state.time if last else None)
        state = Race(tuple(found_by), seconds, start, replace(plan, seconds_of_g=seconds))
        standing = state.standing()
        if not standing:
            failure = state.candidates[0].failure
            if failure and (isinstance(failure, OutOfTimeError) or len(state.candidates) > 1):
                raise failure
            # The other candidates have not been asked yet; if that is too late, `plan` raises.
            return Turn(portfolio, Estimate(np.nan, np.inf, 0, 0, 0, self.name), state)
        informed = [one.informed(standing) for one in standing]
        best = min(credible(informed), key=lambda candidate: candidate.half_width)
        assert best.turn is not None
        found = best.turn.estimate
        candidates = {one.method.name: one.turn.estimate for one in standing if one.turn}
        opinions = [f"{name} {one.summary}" for name, one in candidates.items()]
        notes = [
            f"auto chose {best.method.name}, the smallest error bar that is believed: "
            f"{', '.join(opinions)}"
        ]
        notes += [portfolio.reason] if portfolio.reason else []
        failed = [one for one in state.candidates if one.failure]
        notes += [f"{one.method.name} dropped out: {one.failure}" for one in failed]
        notes += characteristics(evaluations.problem, found) + found.diagnostics.get("notes", [])
        estimate = replace(
            found,
            n_evaluations=portfolio.n_evaluations,
            candidates=candidates,
            diagnostics={**found.diagnostics, "chosen": best.method.name, "notes": notes},
        )
        return Turn(portfolio, estimate, state, best.turn.final, best.turn.tentative)


def _candidates(problem: NestedExpectation, goal: Goal, last: Turn[Race] | None) -> Methods:
    if not has_transports(problem):
        return (NMC(), MLMC())
    if goal.budget is not None and JointProcess.suits(problem, goal.budget):
        if last is None or last.state.standing():
            return (JointProcess(),)
        # Too few evaluations for a comparison, unless the process has failed.
        return (JointProcess(), *_candidates(problem, replace(goal, budget=None), None))
    # A model of g at single points cannot tell noise from detail: with noise as large as J varies,
    # intervals of auto held in 52 of 60 runs with joint lattices and in 60 of 60 without, at half
    # the error. That is one problem (tests/methods/test_noisy.py), and the seeds that decided.
    if problem.noisy:
        return (CKQ(), NQMC())
    # CKQ can learn log J, whose errors are relative, where f needs J > 0; a lattice is asked if CKQ
    # fails (tests/methods/test_learned_rare.py).
    learns_log = needs_positive(problem) and (last is None or bool(last.state.standing()))
    return (CKQ(),) if learns_log else (JointLattice(), NQMC())


@dataclass(frozen=True)
class _Contest:
    """The candidates after a turn, and the next design."""

    problem: NestedExpectation
    goal: Goal
    last: Turn[Race]
    methods: Methods
    by_time: bool

    @property
    def race(self) -> Race:
        return self.last.state

    @property
    def portfolio(self) -> Portfolio:
        assert isinstance(self.last.design, Portfolio)
        return self.last.design

    @property
    def present(self) -> list[Candidate]:
        """Candidates that have been tried, without a plain rule that only fills the time."""
        first = self.race.candidates[0]
        filler = first.method if self.by_time and first.method.plain else None
        wanted = [method for method in self.methods if method != filler]
        return [candidate for candidate in self.race.candidates if candidate.method in wanted]

    @property
    def seconds_alone(self) -> bool:
        """Whether a limit of seconds is the only goal."""
        return self.by_time and not self.goal.half_width

    @property
    def rest(self) -> float:
        """Seconds for a turn: with time alone, nothing is begun that does not end in time."""
        return (self.goal.seconds or 0.0) if self.seconds_alone else np.inf

    def plain_turn(self) -> Portfolio | None:
        """The next design of the plain rule, or the first pilot once learning promises more."""
        if not self.by_time or self.present:
            return None
        larger, reason = self._plain_design()
        if larger is not None:
            return Portfolio.of(((NQMC(), larger),), reason)
        goal = self.budgeted() if self.seconds_alone else self.goal
        pilot = next(_planned(self.problem, goal, self.methods, first=True), None)
        if pilot is None:
            return None
        n = pilot[1].n_evaluations
        takes = self.race.time.seconds(n, 0, n) if self.seconds_alone else None
        return Portfolio.of((*self.portfolio.parts, pilot), reason, takes)

    def budgeted(self) -> Goal:
        """The request as a budget: the evaluations that learning can use in the time left.

        A fixed budget is learned in one large step. It is planned anew after each turn, by what
        turns have taken so far: the correction.
        """
        learned = max(self.present, key=lambda c: c.n_draws + c.n, default=None)
        turn = None if learned is None else learned.turn
        left, known = self.goal.seconds or 0.0, 0 if turn is None else turn.design.n_evaluations
        # Plain rules fill the time and not the budget.
        others = self.portfolio.n_evaluations - known
        total = others + budget_in_time(self.race.time, self.problem, turn, left, self._left)
        return replace(self.goal, budget=total, adaptive=False)

    def _plain_design(self) -> tuple[Design | None, str]:
        """The next design of the plain rule, None if learning promises more; and both promises."""
        (plain,), goal, seconds = self.race.candidates, self.goal, self.race.seconds
        if plain.turn is None or not plain.spread:
            return None, ""
        rate, curve, plan = self._plain_rate(plain), LearningCurve(), self.race.time
        each = f"an evaluation takes {seconds:.2g} s: "
        if goal.half_width:
            own = seconds * plain.needs(goal.half_width, rate)
            n = curve.evaluations_for(plain.spread / goal.half_width)
            other = learning_seconds(plan, n)
            reason = f"{each}plain rules promise {own:.2g} s, learning {other:.2g} s"
        else:
            left = goal.seconds or 0.0
            more = left / max(seconds, 1e-12)
            own = plain.half_width * (plain.n / (plain.n + more)) ** rate
            n = plan.largest(lambda size: learning_seconds(plan, size), left, 1e12)
            other = plain.spread / curve.accuracy(n) if n else np.inf
            reason = (
                f"{each}in {left:.2g} s plain rules promise ± {own:.2g}, learning ± {other:.2g}"
            )
        # A plain rule that is fast at first slows down, and models do not: ample time goes to them.
        enough = curve.evaluations_for(100.0)
        takes = learning_seconds(plan, enough)
        ample = not goal.half_width and plan.fits(takes, goal.seconds or 0.0)
        # Predictions from few points are poor, and a tenth of the least time of learning is cheap.
        early = seconds * plain.n < 0.1 * plan.seconds(0, 0, 0)
        if not early and (ample or own > other):
            return None, reason
        own_goal = replace(goal, stream=plain.stream)
        return plain.method.plan(self.problem, own_goal, plain.turn), reason

    def _plain_rate(self, plain: Candidate) -> float:
        """Observed power of n at which the half-width of the plain rule falls."""
        start = self.race.start
        if not (plain.n > start.n and 0 < plain.half_width < np.inf):
            return 0.8
        gain = np.log(start.half_width / plain.half_width)
        return float(np.clip(gain / np.log(plain.n / start.n), 0.4, 1.0))

    def pilots(self) -> Portfolio | None:
        """Pilots of the other candidates beside the first, unless that convinces."""
        if len(self.present) != 1:
            return None
        (first,) = self.present
        filler = [c.method for c in self.race.candidates if c not in self.present]
        others = tuple(method for method in self.methods if method not in filler)
        pilots = _pilots(self.problem, self.goal, others, first)
        if not pilots or first.seconds * len(pilots) > self.rest:
            return None
        parts = _checked(self.problem, self.goal, first, self.portfolio.parts, pilots)
        seconds = self.rest if self.seconds_alone else None
        return Portfolio.of(parts, self.portfolio.reason, seconds)

    def continued(self) -> Portfolio | None:
        """The most promising candidate with a larger design; None if none can or needs to go on."""
        standing = self.race.standing()
        if not standing and self.race.candidates[0].failure:
            raise self.race.candidates[0].failure
        if self.goal.adaptive and self.last.final:
            # More θ of the dense average, of the candidate that needs no more evaluations.
            standing = [one for one in standing if one.turn is not None and one.turn.final]
        standing = [candidate.informed(standing) for candidate in standing]
        believed = credible(standing)
        standing = [one for one in standing if one in believed or is_pilot(one, standing)]
        target = self.goal.half_width or 0.0
        standing.sort(
            key=lambda one: one.needs(target) if self.goal.adaptive else self._promise(one)
        )
        best = standing[0].half_width
        if self.seconds_alone:
            best = min(one.half_width for one in believed)
        for candidate in standing:
            grown = self._grown(candidate, best)
            if grown is not None:
                return grown
        return None

    @property
    def _left(self) -> float:
        """Evaluations that budget and seconds still allow."""
        budget = self.goal.budget
        left = np.inf if budget is None else budget - self.portfolio.n_evaluations
        if self.goal.seconds is None:
            return left
        if self.seconds_alone and not self.goal.adaptive:
            return left
        return min(left, self.race.time.affordable(self.goal.seconds))

    def _more(self, candidate: Candidate) -> float:
        """Evaluations that a candidate can still have: a plain rule has all of the seconds."""
        fills = self.seconds_alone and candidate.method.plain
        return self.rest / self.race.seconds if fills else self._left

    def _promise(self, candidate: Candidate) -> float:
        """Half-width to expect of a candidate at the end."""
        rate = self._plain_rate(candidate) if candidate.method.plain else candidate.rate
        return candidate.promise(self._more(candidate), rate)

    def _grown(self, candidate: Candidate, best: float) -> Portfolio | None:
        """The portfolio with a larger design of a candidate, if that promises to pay."""
        if (self.seconds_alone or not self.goal.adaptive) and self._promise(candidate) > best:
            return None
        design = _continued(self.problem, self.goal, candidate, self._more(candidate))
        if design is None:
            return None
        seconds = self._takes(candidate, design)
        if seconds > self.rest:
            return None
        grown = {candidate.method.name: design}
        parts = tuple((m, grown.get(m.name, d)) for m, d in self.portfolio.parts)
        return Portfolio.of(parts, self.portfolio.reason, seconds if self.seconds_alone else None)

    def _takes(self, candidate: Candidate, design: Design) -> float:
        """Predicted seconds of a larger design of a candidate."""
        assert candidate.turn is not None
        new = design.n_evaluations - candidate.turn.design.n_evaluations
        if isinstance(design, LearnedDesign):
            n = design.learning.n_evaluations
            checks = design.n_evaluations - n
            return self.race.time.seconds(n, checks, new, fitted=n > candidate.n)
        if candidate.method.plain:
            return new * self.race.seconds
        return new * candidate.seconds / candidate.n


def _pilot_size(goal: Goal, *, first: bool) -> int:
    """4 % of a budget, and more of a small one for the first, the likeliest to go on."""
    if goal.budget is None or goal.adaptive:
        return 96 if first else 128
    least = min(512, 0.4 * goal.budget) if first else min(128, 0.13 * goal.budget)
    # Of the seconds, if they are limited, a pilot may take a tenth.
    most = np.inf if goal.seconds is None else 0.1 * goal.seconds / (LEARNING.point * 20.0)
    return int(max(min(0.04 * goal.budget, most), least))


def _planned(
    problem: NestedExpectation, goal: Goal, methods: tuple[Method[Any], ...], *, first: bool
) -> Iterator[tuple[Method[Any], Design]]:
    """Pilots of the methods that apply."""
    size, budget = _pilot_size(goal, first=first), goal.budget
    if first and budget is not None and not goal.adaptive:
        # Sizes that are powers of two times a number that is chosen now leave room for the others.
        budget -= (len(methods) - 1) * _pilot_size(goal, first=False)
    for i, method in enumerate(methods):
        own = Goal(goal.stream.child(40, i), budget, adaptive=True, pilot=size)
        try:
            design = method.plan(problem, own)
        except (InputError, UnsupportedError):
            continue
        if design is not None:
            yield method, design


def _pilots(
    problem: NestedExpectation, goal: Goal, methods: tuple[Method[Any], ...], first: Candidate
) -> Parts:
    """Pilots of the other candidates, unless the first convinces."""
    bounded = goal.budget is not None and not goal.adaptive
    # A budget is compared once, after the pilot; towards a tolerance the first may be there before
    # a comparison pays.
    other = first.n > _pilot_size(goal, first=True) if bounded else first.n < 512
    if first.turn is not None and (other or first.is_within(_CONVINCING)):
        return ()
    left = np.inf
    if goal.budget is not None:
        spent = 0 if first.turn is None else first.turn.design.n_evaluations
        reserved = n_draws(problem, goal.budget) if isinstance(first.method, LearnedMethod) else 0
        left = min(0.4 * goal.budget, goal.budget - spent - reserved)
    parts: list[tuple[Method[Any], Design]] = []
    for method, design in _planned(problem, goal, methods, first=False):
        if method != first.method and design.n_evaluations <= left:
            parts.append((method, design))
            left -= design.n_evaluations
    if not parts:
        return ()
    # Lattices double: just short of a power of two, pilots would cost half of the points.
    if bounded and first.is_within(0.1):
        rest = (goal.budget or 0) - first.n
        cost = sum(design.n_evaluations for _, design in parts)
        alone, beside = (_continued(problem, goal, first, left) for left in (rest, rest - cost))
        if alone and alone.n_evaluations > 1.5 * (beside.n_evaluations if beside else first.n):
            return ()
    return tuple(parts)


def _checked(
    problem: NestedExpectation, goal: Goal, first: Candidate, present: Parts, pilots: Parts
) -> Parts:
    """All pilots, and fresh draws for all that learn, where f is sensitive as the first sees it."""
    if first.turn is None or not isinstance(first.method, LearnedMethod) or first.n_draws:
        return (*present, *pilots)
    # As many as the first candidate has left room for.
    others = sum(design.n_evaluations for _, design in pilots)
    bounded = goal.budget is not None and not goal.adaptive
    n = n_draws(problem, (goal.budget or 0) - others if bounded else 2 * first.n)
    if not n:
        return (*present, *pilots)
    checks = first.method.checked(problem, first.turn, n).checks
    return tuple(
        (m, LearnedDesign.of(d.learning, checks) if isinstance(d, LearnedDesign) else d)
        for m, d in (*present, *pilots)
    )


def _continued(
    problem: NestedExpectation, goal: Goal, candidate: Candidate, left: float
) -> Design | None:
    """The next design of a candidate, within the rest of the budget."""
    assert candidate.turn is not None
    budget = None if goal.budget is None else int(candidate.turn.design.n_evaluations + left)
    own = replace(goal, stream=candidate.stream, budget=budget)
    try:
        design = candidate.method.plan(problem, own, candidate.turn)
    except NestquadError:  # it says why it cannot go on when it is asked for by name
        return None
    present = candidate.turn.design
    is_larger = design is not None and (
        design.n_evaluations > present.n_evaluations or (candidate.turn.final and design != present)
    )
    return design if is_larger else None


def _timed(
    evaluations: Evaluations,
    analyzed: Sequence[Candidate],
    known: Mapping[str, Candidate],
    plan: TimePlan | None,
) -> TimePlan:
    """The forecast of turns that learn, corrected by the seconds of the last of them."""
    if plan is None:
        each = evaluations.evaluator.seconds_per_evaluation
        plan = start_plan(evaluations.problem, each)
    for candidate in analyzed:
        before = known.get(candidate.method.name)
        if candidate is not before and candidate.turn is not None:
            turn = None if before is None else before.turn
            plan = correct_plan(plan, candidate.turn, turn, candidate.seconds)
    return plan


def _analyzed(
    evaluations: Evaluations, method: Method[Any], design: Design, known: Candidate | None
) -> Candidate:
    """The candidate's turn; only the one whose design has grown is analysed again."""
    last = None if known is None else known.turn
    if known is not None and (last is None or last.design == design):
        return known
    started = clock.now()
    try:
        turn = method.analyze(Evaluations(evaluations.evaluator, design), last)
        return Candidate(method, turn, seconds=clock.now() - started)
    except (NumericalError, UnsupportedError, OutsideDomainError, OutOfTimeError) as error:
        late = last if isinstance(error, OutOfTimeError) else None
        return Candidate(method, late, None if late else error)
