"""Automatic choice of a method: run pilots, continue the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from nestquad import clock
from nestquad._checks import shown
from nestquad.accuracy import characteristics, needs_positive
from nestquad.clock import LEARNING, TimePlan
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
from nestquad.methods._time import budget_in_time, correct_plan, start_plan
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
    """Candidates, and the forecast of turns that learn."""

    candidates: tuple[Candidate, ...]
    time: TimePlan

    def standing(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.turn is not None]


@dataclass(frozen=True)
class Auto(Method[Race]):
    """Try several methods on a part of the budget; continue the most promising.

    The promise of a candidate is its half-width, extrapolated to the remaining evaluations at the
    rate 1/n, or up to 1/n^1.5 if a model shows it. Candidates are compared again after each turn. A
    model that fresh draws refute is no candidate any more.

    Without a budget, time counts instead of evaluations: `NQMC` goes first, a pilot of a model
    follows, and the promises of both are compared, in seconds or in half-widths at their end.
    They stand in the notes.

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
        by_time = goal.hurried and self.candidates is None and has_transports(problem)
        if last is not None:
            kind = _TimedContest if by_time else _Contest
            return kind(problem, goal, last, self.candidates).next()
        if by_time:  # a plain rule shows what g costs, in the fewest evaluations
            plain = NQMC()
            first = plain.plan(problem, replace(goal, pilot=_TIMING.first))
            return None if first is None else Portfolio.of(((plain, first),))
        methods = self.candidates or _candidates(problem, goal.budget, None)
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
        plan = _timed(evaluations, found_by, known, last.state.time if last else None)
        state = Race(tuple(found_by), plan)
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
        notes = [*_notes(portfolio, state, best), *characteristics(evaluations.problem, found)]
        notes += found.diagnostics.get("notes", [])
        estimate = replace(
            found,
            n_evaluations=portfolio.n_evaluations,
            candidates=candidates,
            diagnostics={**found.diagnostics, "chosen": best.method.name, "notes": notes},
        )
        return Turn(portfolio, estimate, state, best.turn.final, best.turn.tentative)


def _notes(portfolio: Portfolio, race: Race, best: Candidate) -> Iterator[str]:
    """The choice in words: bars of all candidates, promises, and failures."""
    opinions = [f"{c.method.name} {c.turn.estimate.summary}" for c in race.candidates if c.turn]
    yield (
        f"auto chose {best.method.name}, the smallest error bar that is believed: "
        f"{', '.join(opinions)}"
    )
    if portfolio.reason:
        yield portfolio.reason
    yield from (f"{c.method.name} dropped out: {c.failure}" for c in race.candidates if c.failure)


def _candidates(
    problem: NestedExpectation, budget: float | None, last: Turn[Race] | None
) -> Methods:
    if not has_transports(problem):
        return (NMC(), MLMC())
    failed = last is not None and not last.state.standing()
    if budget is not None and JointProcess.suits(problem, int(budget)):
        # Too few evaluations for a comparison, unless the process has failed.
        others = _candidates(problem, None, None) if failed else ()
        return (JointProcess(), *others)
    # A model of g at single points cannot tell noise from detail: with noise as large as J varies,
    # intervals of auto held in 52 of 60 runs with joint lattices and in 60 of 60 without, at half
    # the error. That is one problem (tests/methods/test_noisy.py), and the seeds that decided.
    if problem.noisy:
        return (CKQ(), NQMC())
    # CKQ can learn log J, whose errors are relative, where f needs J > 0; a lattice is asked if CKQ
    # fails (tests/methods/test_learned_rare.py).
    return (CKQ(),) if needs_positive(problem) and not failed else (JointLattice(), NQMC())


@dataclass(frozen=True)
class _Contest:
    """The candidates after a turn, and the next design: pilots, then the most promising."""

    problem: NestedExpectation
    goal: Goal
    last: Turn[Race]
    own: Methods | None

    @property
    def race(self) -> Race:
        return self.last.state

    @property
    def portfolio(self) -> Portfolio:
        assert isinstance(self.last.design, Portfolio)
        return self.last.design

    @property
    def left(self) -> float:
        """Evaluations that budget and seconds still allow."""
        budget, seconds = self.goal.budget, self.goal.seconds
        left = np.inf if budget is None else budget - self.portfolio.n_evaluations
        return left if seconds is None else min(left, self.race.time.affordable(seconds))

    def next(self) -> Portfolio | None:
        return self.pilots() or self.continued()

    def pilots(self) -> Portfolio | None:
        """Pilots of the other candidates beside the first, unless that convinces."""
        if len(self.race.candidates) != 1:
            return None
        (first,) = self.race.candidates
        methods = self.own or _candidates(self.problem, self.goal.budget, self.last)
        pilots = _pilots(self.problem, self.goal, methods, first)
        if not pilots:
            return None
        return Portfolio.of(_checked(self.problem, self.goal, first, self.portfolio.parts, pilots))

    def hopeful(self) -> list[Candidate]:
        """Candidates that may still give the answer: believed, or too small to be judged."""
        standing = self.race.standing()
        if not standing and self.race.candidates[0].failure:
            raise self.race.candidates[0].failure
        if self.goal.adaptive and self.last.final:
            # More θ of the dense average, of the candidate that needs no more evaluations.
            standing = [one for one in standing if one.turn is not None and one.turn.final]
        standing = [candidate.informed(standing) for candidate in standing]
        believed = credible(standing)
        return [one for one in standing if one in believed or is_pilot(one, standing)]

    def continued(self) -> Portfolio | None:
        """The most promising candidate with a larger design; None if none can or needs to go on."""
        ranked = sorted(self.hopeful(), key=self.cost)
        for candidate in ranked:
            larger = self.grown(candidate, ranked)
            if larger is not None:
                return self.extended(candidate, larger, ranked)
        return None

    def cost(self, candidate: Candidate) -> float:
        """Evaluations until the tolerance, or the half-width to expect after all of the budget."""
        if self.goal.adaptive:
            return candidate.needs(self.goal.half_width or 0.0, 1.0)
        return candidate.promise(self.left)

    def grown(self, candidate: Candidate, ranked: Sequence[Candidate]) -> Design | None:
        """A larger design of a candidate, if that promises to pay."""
        if not self.goal.adaptive and self.cost(candidate) > ranked[0].half_width:
            return None
        return _continued(self.problem, self.goal, candidate, self.left)

    def extended(
        self, candidate: Candidate, design: Design, ranked: Sequence[Candidate]
    ) -> Portfolio:
        """The portfolio with a larger design of a candidate."""
        grown = {candidate.method.name: design}
        return Portfolio.of(tuple((m, grown.get(m.name, d)) for m, d in self.portfolio.parts))


@dataclass(frozen=True)
class Timing:
    """Numbers of a request in seconds: choices of this package, not fitted.

    Attributes
    ----------
    first
        Evaluations of the first pilot, which shows what g costs.
    plain
        Share of the time left that the plain rule may use before a model is tried: its rate, and
        so its promise, show in a long pilot only.
    pilot
        Share of the time left, or of the plain rule's forecast, that a pilot of a model may take.
    caution
        Factor of the forecast of a model's analysis: a turn that does not end in time is lost,
        and terms may grow faster than points.
    """

    first: int = 16
    plain: float = 0.05
    pilot: float = 0.3
    caution: float = 1.4


_TIMING = Timing()


@dataclass(frozen=True)
class _TimedContest(_Contest):
    """A contest in seconds: a plain rule, a pilot of a model, then whatever promises more.

    Towards a tolerance the promise is the seconds that it takes, else the half-width at the end of
    the time. Both follow from turns: half-widths and rates of the candidates, and their seconds.
    """

    @property
    def seconds(self) -> float:
        """Seconds left."""
        return np.inf if self.goal.seconds is None else self.goal.seconds

    def next(self) -> Portfolio | None:
        plain = self.race.candidates[0]
        if len(self.race.candidates) > 1 or plain.turn is None:
            return self.continued()
        pilot = self._pilot()
        n = 0 if pilot is None else pilot[1].n_evaluations
        takes = self.race.time.seconds(n, 0, n)
        if self.goal.half_width is not None:
            # A tenth of the least time of learning is cheap; predictions from few points are poor.
            early = plain.half_width < np.inf and (
                plain.seconds < 0.1 * self.race.time.seconds(0, 0, 0)
            )
            room = self.cost(plain)
        else:
            early = 2.0 * plain.n * plain.seconds_of_g < _TIMING.plain * self.seconds
            room = self.seconds
        due = pilot is not None and not early and takes < _TIMING.pilot * room
        larger = None if due else self.grown(plain, [plain])
        if larger is not None:
            return self.extended(plain, larger, [plain])
        if pilot is None or takes > self.seconds:
            return None
        return Portfolio.of((*self.portfolio.parts, pilot), self.reason([plain]), takes)

    def _pilot(self) -> tuple[Method[Any], Design] | None:
        """The first model and its pilot; None where there is no time for one."""
        goal = self.goal if self.goal.half_width is not None else self.budgeted(None)
        each = max(self.race.time.seconds_of_g, 1e-12)
        affordable = min(self.seconds / each, self.goal.budget or np.inf)
        methods = _candidates(self.problem, affordable, None)
        found = _planned(self.problem, goal, methods, first=True) if goal.budget else iter(())
        return next(found, None)

    def budgeted(self, candidate: Candidate | None) -> Goal:
        """The request as a budget: the evaluations that a model can use in the time left.

        A fixed budget is learned in one large step. It is planned anew after each turn, by what
        turns have taken so far: the correction.
        """
        turn = None if candidate is None else candidate.turn
        most = float(self.goal.budget or np.inf) - self.portfolio.n_evaluations
        cautious = replace(self.race.time, factor=_TIMING.caution * self.race.time.factor)
        n = budget_in_time(cautious, self.problem, turn, self.seconds, most)
        return replace(self.goal, budget=n, adaptive=False)

    def cost(self, candidate: Candidate) -> float:
        if self.goal.half_width is not None:
            return self._takes(candidate, candidate.needs(self.goal.half_width, candidate.rate))
        if candidate.method.plain:  # it doubles
            fit = self.race.time.share * self.seconds / max(self._takes(candidate, 1), 1e-300)
            return candidate.promise(
                (2.0 ** int(np.log2(1.0 + fit / candidate.n)) - 1) * candidate.n
            )
        known = candidate.turn.design.n_evaluations if candidate.turn else 0
        return candidate.promise(max((self.budgeted(candidate).budget or 0) - known, 0))

    def _takes(self, candidate: Candidate, new: float) -> float:
        """Predicted seconds of more evaluations, with their analysis."""
        if isinstance(candidate.method, LearnedMethod):
            return self.race.time.seconds(candidate.n + new, 0, new)
        return new * candidate.seconds_of_g

    def takes(self, candidate: Candidate, design: Design) -> float:
        """Predicted seconds of a larger design of a candidate."""
        assert candidate.turn is not None
        new = design.n_evaluations - candidate.turn.design.n_evaluations
        if not isinstance(design, LearnedDesign):
            return self._takes(candidate, new)
        n = design.learning.n_evaluations
        checks = design.n_evaluations - n
        return self.race.time.seconds(n, checks, new, fitted=n > candidate.n)

    def grown(self, candidate: Candidate, ranked: Sequence[Candidate]) -> Design | None:
        goal = self.goal
        if goal.half_width is None:
            if self.cost(candidate) > min(one.half_width for one in ranked):
                return None
            goal = goal if candidate.method.plain else self.budgeted(candidate)
        known = 0 if candidate.turn is None else candidate.turn.design.n_evaluations
        left = np.inf if goal.budget is None else goal.budget - known
        design = _continued(self.problem, goal, candidate, left)
        return design if design and self.takes(candidate, design) <= self.seconds else None

    def extended(
        self, candidate: Candidate, design: Design, ranked: Sequence[Candidate]
    ) -> Portfolio:
        parts = super().extended(candidate, design, ranked).parts
        return Portfolio.of(parts, self.reason(ranked), self.takes(candidate, design))

    def reason(self, candidates: Sequence[Candidate]) -> str:
        """The promises in words."""
        each = self.race.candidates[0].seconds_of_g
        within, sign, unit = f"in {self.seconds:.2g} s ", "± ", ""
        if self.goal.half_width is not None:
            within, sign, unit = "", "", " s"
        promises = [
            f"{one.method.name} promises {sign}{self.cost(one):.2g}{unit}" for one in candidates
        ]
        return f"an evaluation takes {each:.2g} s: {within}{', '.join(promises)}"


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
    left = _room_for_pilots(problem, goal, first)
    parts: list[tuple[Method[Any], Design]] = []
    for method, design in _planned(problem, goal, methods, first=False):
        if method != first.method and design.n_evaluations <= left:
            parts.append((method, design))
            left -= design.n_evaluations
    halve = bounded and parts and first.is_within(0.1) and _halves(problem, goal, first, parts)
    return () if halve else tuple(parts)


def _room_for_pilots(problem: NestedExpectation, goal: Goal, first: Candidate) -> float:
    """Evaluations that pilots of the others may take."""
    if goal.budget is None:
        return np.inf
    spent = 0 if first.turn is None else first.turn.design.n_evaluations
    reserved = n_draws(problem, goal.budget) if isinstance(first.method, LearnedMethod) else 0
    return min(0.4 * goal.budget, goal.budget - spent - reserved)


def _halves(
    problem: NestedExpectation, goal: Goal, first: Candidate, pilots: Sequence[Any]
) -> bool:
    """Whether pilots would cost half of the points of a lattice, which doubles."""
    rest = (goal.budget or 0) - first.n
    cost = sum(design.n_evaluations for _, design in pilots)
    alone, beside = (_continued(problem, goal, first, left) for left in (rest, rest - cost))
    largest = beside.n_evaluations if beside else first.n
    return alone is not None and alone.n_evaluations > 1.5 * largest


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
    each = evaluations.evaluator.seconds_per_evaluation
    plan = replace(
        plan or start_plan(evaluations.problem, analyzed[0].turn, each), seconds_of_g=each
    )
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
    except (NumericalError, UnsupportedError, OutsideDomainError, OutOfTimeError) as error:
        late = last if isinstance(error, OutOfTimeError) else None
        return Candidate(method, late, None if late else error)
    past = () if known is None else (*known.past, (known.n, known.half_width))
    found = Candidate(method, turn, seconds=clock.now() - started, past=past)
    # Cut off by time, a larger set may be less even than the last, which was complete.
    cut = evaluations.evaluator.stopped is not None
    return known if known and cut and found.half_width > known.half_width else found
