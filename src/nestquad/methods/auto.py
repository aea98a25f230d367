"""Automatic choice of a method: run pilots, continue the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np

from nestquad import clock
from nestquad._checks import shown
from nestquad.accuracy import characteristics, needs_positive
from nestquad.clock import LEARNING, TimePlan
from nestquad.errors import (
    InputError,
    NumericalError,
    OutsideDomainError,
    UnsupportedError,
)
from nestquad.evaluate import Design, Evaluations, OutOfTimeError
from nestquad.methods._candidate import Candidate, credible, is_pilot, start_plan
from nestquad.methods._method import Goal, Method, Turn, has_transports
from nestquad.methods.learned import (
    CKQ,
    LSMC,
    JointLattice,
    JointProcess,
    LearnedMethod,
    n_draws,
)
from nestquad.methods.multilevel import MLMC
from nestquad.methods.nested import NKQ, NMC, NQMC
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["Auto"]

# The first candidate goes on alone if its half-width is this small beside the spread of f(J).
_CONVINCING = 0.001
Part: TypeAlias = tuple[Method[Any], Design]
Methods: TypeAlias = tuple[Method[Any], ...]


@dataclass(frozen=True)
class Portfolio(Design):
    """The designs of several methods, each with a stream of its own, and the reason in words.

    `patience` is the number of seconds after which an analysis that learns is given up.
    """

    parts: tuple[Part, ...] = field(default=())
    reason: str = field(default="", compare=False)
    patience: float = field(default=np.inf, compare=False)

    @classmethod
    def of(cls, parts: Sequence[Part], **forecast: Any) -> Portfolio:
        grids = tuple(grid for _, design in parts for grid in design.grids)
        return cls(grids, tuple(parts), **forecast)


@dataclass(frozen=True)
class Race:
    """Candidates, the first pilot first."""

    candidates: tuple[Candidate, ...]

    def standing(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.turn is not None]


@dataclass(frozen=True)
class Auto(Method[Race]):
    """Try several methods on a part of the budget; continue the most promising.

    The promise of a candidate is its half-width, extrapolated to the remaining evaluations at the
    rate 1/n, or up to 1/n^1.5 if a model shows it. Candidates are compared again after each turn. A
    model that fresh draws refute is no candidate any more.

    Without a budget, time counts instead of evaluations: `NQMC` goes first, pilots of
    `JointLattice` and `LSMC` follow if they are short. Promises are compared in seconds, or in
    half-widths at the end of the time; they stand in the notes.

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
        given = self.candidates
        if given is None:
            return
        names = {m.name for m in given if isinstance(m, Method)} if np.iterable(given) else set()
        if not names or self.name in names or len(names) < len(given):
            raise InputError("candidates", shown(given), "configured methods of different kinds")

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Race] | None = None
    ) -> Design | None:
        by_time = goal.hurried and self.candidates is None and has_transports(problem)
        contest = (_TimedContest if by_time else _Contest)(problem, goal, self.candidates)
        return contest.first() if last is None else contest.after(last)

    def analyze(self, evaluations: Evaluations, last: Turn[Race] | None = None) -> Turn[Race]:
        portfolio = evaluations.design
        assert isinstance(portfolio, Portfolio)
        known = {one.method.name: one for one in last.state.candidates} if last else {}
        race = Race(
            tuple(
                _analyzed(evaluations, known.get(method.name, Candidate(method)), design)
                for method, design in portfolio.parts
            )
        )
        standing = race.standing()
        if not standing:
            failure = race.candidates[0].failure
            if failure and (isinstance(failure, OutOfTimeError) or len(race.candidates) > 1):
                raise failure
            # The other candidates have not been asked yet; if that is too late, `plan` raises.
            return Turn(portfolio, Estimate(np.nan, np.inf, 0, 0, 0, self.name), race)
        informed = [one.informed(standing) for one in standing]
        best = min(credible(informed), key=lambda candidate: candidate.half_width)
        assert best.turn is not None
        answer = best.turn.estimate
        candidates = {one.method.name: one.turn.estimate for one in standing if one.turn}
        notes = [*_notes(portfolio, race, best), *characteristics(evaluations.problem, answer)]
        notes += answer.diagnostics.get("notes", [])
        estimate = replace(
            answer,
            n_evaluations=portfolio.n_evaluations,
            candidates=candidates,
            diagnostics={**answer.diagnostics, "chosen": best.method.name, "notes": notes},
        )
        return Turn(portfolio, estimate, race, best.turn.final, best.turn.tentative)


def _analyzed(evaluations: Evaluations, known: Candidate, design: Design) -> Candidate:
    """The candidate's turn; only the one whose design has grown is analysed again."""
    last, portfolio, evaluator = known.turn, evaluations.design, evaluations.evaluator
    assert isinstance(portfolio, Portfolio)
    if known.failure or (last is not None and last.design == design):
        return known
    started = clock.now()
    try:
        with clock.time_limit(np.inf if known.method.plain else started + portfolio.patience):
            turn = known.method.analyze(Evaluations(evaluator, design), last)
    except (NumericalError, UnsupportedError, OutsideDomainError, OutOfTimeError) as error:
        if last is None or not isinstance(error, OutOfTimeError):
            return replace(known, turn=None, failure=error)
        return known.delayed(clock.now() - started)
    each = evaluator.seconds_per_evaluation
    now = known.after(evaluations.problem, turn, clock.now() - started, each)
    # Cut off by time, a larger set may be less even than the last, which was complete.
    cut = evaluator.stopped is not None
    return known if last and cut and now.half_width > known.half_width else now


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


@dataclass(frozen=True)
class _Contest:
    """A choice by evaluations: a pilot, pilots of the others unless it convinces, then the best."""

    problem: NestedExpectation
    goal: Goal
    own: Methods | None
    last: Turn[Race] | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return () if self.last is None else self.last.state.candidates

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.last.design.parts if self.last else ()  # type: ignore[attr-defined]

    @property
    def spent(self) -> int:
        return 0 if self.last is None else self.last.design.n_evaluations

    @property
    def bounded(self) -> bool:
        """Whether a budget is spent, and no tolerance ends it."""
        return self.goal.budget is not None and not self.goal.adaptive

    def methods(self, budget: float | None) -> Methods:
        """Candidates for so many evaluations, the likeliest first."""
        if self.own is not None:
            return self.own
        if not has_transports(self.problem):
            return (NMC(), MLMC())
        failed = bool(self.candidates) and not any(c.turn for c in self.candidates)
        if budget is not None and JointProcess.suits(self.problem, int(budget)):
            # Too few evaluations for a comparison, unless the process has failed.
            return (JointProcess(), *(self.methods(None) if failed else ()))
        # A model of g at single points cannot tell noise from detail: with noise as large as J
        # varies, intervals of auto held in 52 of 60 runs with joint lattices and in 60 of 60
        # without, at half the error. That is one problem (tests/methods/test_noisy.py), and the
        # seeds that decided.
        if self.problem.noisy:
            return (CKQ(), NQMC())
        # CKQ can learn log J, whose errors are relative, where f needs J > 0; a lattice is asked
        # if CKQ fails (tests/methods/test_learned_rare.py).
        return (CKQ(),) if needs_positive(self.problem) and not failed else (JointLattice(), NQMC())

    def first(self) -> Design | None:
        """A pilot of the likeliest method that applies."""
        pilot = next(self._planned(self.methods(self.goal.budget), first=True), None)
        if pilot is not None:
            return Portfolio.of((pilot,))
        # Too small a budget for a choice; a candidate of the user's says why it refuses.
        only = (self.own or (NKQ() if has_transports(self.problem) else NMC(),))[0]
        design = only.plan(self.problem, self.goal)
        return None if design is None else Portfolio.of(((only, design),))

    def after(self, last: Turn[Race]) -> Portfolio | None:
        contest = replace(self, last=last)
        return contest.pilots() or contest.continued()

    def pilots(self) -> Portfolio | None:
        """Pilots of the other candidates beside the first, unless that convinces."""
        if len(self.candidates) != 1:
            return None
        (first,) = self.candidates
        # A budget is compared once, after the pilot; towards a tolerance the first may be there
        # before a comparison pays.
        other = first.n > self._size(first=True) if self.bounded else first.n < 512
        if first.turn is not None and (other or first.is_within(_CONVINCING)):
            return None
        left = self._room(first)
        pilots: list[Part] = []
        for method, design in self._planned(self.methods(self.goal.budget), first=False):
            if method != first.method and design.n_evaluations <= left:
                pilots.append((method, design))
                left -= design.n_evaluations
        return Portfolio.of((*self.parts, *pilots)) if pilots else None

    def hopeful(self) -> list[Candidate]:
        """Candidates that may still give the answer: believed, or too small to be judged."""
        assert self.last is not None
        standing = self.last.state.standing()
        if not standing and self.candidates[0].failure:
            raise self.candidates[0].failure
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
        return candidate.promise(self._left(candidate))

    def grown(self, candidate: Candidate, ranked: Sequence[Candidate]) -> Design | None:
        """A larger design of a candidate, if that promises to pay."""
        if not self.goal.adaptive and self.cost(candidate) > ranked[0].half_width:
            return None
        return candidate.grown(self.problem, self.goal, self._left(candidate))

    def extended(
        self, candidate: Candidate, design: Design, ranked: Sequence[Candidate]
    ) -> Portfolio:
        """The portfolio with a larger design of a candidate."""
        return Portfolio.of(self._replaced(candidate, design))

    def _replaced(self, candidate: Candidate, design: Design) -> list[Part]:
        return [(m, design if m.name == candidate.method.name else d) for m, d in self.parts]

    def _left(self, candidate: Candidate) -> float:
        """Evaluations that budget and seconds still allow."""
        budget, seconds = self.goal.budget, self.goal.seconds
        left = np.inf if budget is None else budget - self.spent
        if seconds is None or candidate.time is None:
            return left
        return min(left, candidate.time.affordable(seconds))

    def _size(self, *, first: bool) -> int:
        """4 % of a budget, and more of a small one for the first, the likeliest to go on."""
        budget, seconds = self.goal.budget, self.goal.seconds
        if budget is None or self.goal.adaptive:
            return 96 if first else 128
        least = min(512, 0.4 * budget) if first else min(128, 0.13 * budget)
        # Of the seconds, if they are limited, a pilot may take a tenth.
        most = np.inf if seconds is None else 0.1 * seconds / (LEARNING.point * 20.0)
        return int(max(min(0.04 * budget, most), least))

    def _planned(self, methods: Methods, *, first: bool) -> Iterator[Part]:
        """Pilots of the methods that apply."""
        size, budget = self._size(first=first), self.goal.budget
        if first and self.bounded and budget is not None:
            # Sizes that are powers of two times a number that is chosen now leave room for others.
            budget -= (len(methods) - 1) * self._size(first=False)
        for i, method in enumerate(methods):
            own = Goal(self.goal.stream.child(40, i), budget, adaptive=True, pilot=size)
            try:
                design = method.plan(self.problem, own)
            except (InputError, UnsupportedError):
                continue
            if design is not None:
                yield method, design

    def _room(self, first: Candidate) -> float:
        """Evaluations that pilots of the others may take."""
        budget = self.goal.budget
        if budget is None:
            return np.inf
        spent = 0 if first.turn is None else first.turn.design.n_evaluations
        learned = isinstance(first.method, LearnedMethod)
        reserved = n_draws(self.problem, budget) if learned else 0
        return min(0.4 * budget, budget - spent - reserved)


@dataclass(frozen=True)
class Timing:
    """Numbers of a request in seconds: choices of this package, not fitted.

    Attributes
    ----------
    first
        Evaluations of the first pilot, which shows what g costs.
    wide
        Factor of the half-width that a plain rule promises for a cheap g: its interval is wider
        beside its error than that of a model. Chosen on two runs of six even problems.
    plain
        Share of the time left that the plain rule may use before a model is tried: its rate, and
        so its promise, show in a long pilot only.
    pilot
        Share of the time left, or of the plain rule's forecast, that a pilot of a model may take.
    patience
        Share of the time left after which an analysis is given up: the rest is enough for a plain
        rule with an error that is at most twice as large.
    """

    first: int = 16
    wide: float = 0.6
    plain: float = 0.05
    pilot: float = 0.3
    patience: float = 0.6


_TIMING = Timing()


@dataclass(frozen=True)
class _TimedContest(_Contest):
    """A choice by seconds: a plain rule, pilots of models, then whatever promises more.

    Towards a tolerance the promise is the seconds that it takes, else the half-width at the end of
    the time. Both follow from turns: half-widths and rates of the candidates, and their seconds.
    """

    @property
    def seconds(self) -> float:
        """Seconds left."""
        return np.inf if self.goal.seconds is None else self.goal.seconds

    def first(self) -> Design | None:
        """A plain rule shows what g costs, in the fewest evaluations."""
        plain = NQMC()
        design = plain.plan(self.problem, replace(self.goal, pilot=_TIMING.first))
        return None if design is None else Portfolio.of(((plain, design),))

    def pilots(self) -> Portfolio | None:
        plain, names = self.candidates[0], {one.method.name for one in self.candidates}
        if plain.turn is None or self._is_early(plain):
            return None
        room = self.seconds if self.goal.half_width is None else self.cost(plain)
        # Lattices are laid out for the size that they will have in the end.
        plan, most = self._learning, float(self.goal.budget or np.inf)
        final = plan.largest(lambda n: plan.seconds(n, 0, n), self.seconds, most)
        timed = replace(self, goal=replace(self.goal, budget=max(final, 16)))
        contest = timed if self.goal.half_width is None else self
        for method, design in contest._planned(self._models(plain), first=True):
            n = design.n_evaluations
            takes = self._learning.seconds(n, 0, n)
            if method.name not in names and takes < _TIMING.pilot * room:
                return self._forecast([*self.parts, (method, design)], self.candidates, takes)
        return None

    @cached_property
    def _learning(self) -> TimePlan:
        """The forecast of models that have had no turn."""
        return start_plan(self.problem, self.candidates[0].turn, self._each)

    @property
    def _each(self) -> float:
        """Seconds of an evaluation."""
        plain = self.candidates[0]
        return plain.time.seconds_of_g if plain.time else 0.0

    def _is_early(self, plain: Candidate) -> bool:
        """Whether the plain rule has used too little time to judge it by its promise."""
        if len(self.candidates) > 1:
            return False
        if self.goal.half_width is None:
            share = _TIMING.plain if plain.half_width < np.inf else _TIMING.pilot
            return 2.0 * plain.n * self._each < share * self.seconds
        # A tenth of the least time of learning is cheap; predictions from few points are poor.
        return plain.half_width < np.inf and plain.seconds < 0.1 * LEARNING.fixed

    def _size(self, *, first: bool) -> int:
        """Evaluations of a pilot: 512, fewer of a slow g, and more in half of its time."""
        if self.goal.half_width is not None:
            return super()._size(first=first)
        plan = self._learning

        def takes(n: int) -> float:
            return plan.seconds(n, 0, n) * (1.0 if n <= 512 else 2.0)

        return max(plan.largest(takes, _TIMING.pilot * self.seconds, 1e6), 16)

    def _models(self, plain: Candidate) -> Methods:
        """Models that suit the evaluations that fit into the time: one, and then a regression."""
        affordable = min(self.seconds / max(self._each, 1e-12), self.goal.budget or np.inf)
        present = tuple(one.method for one in self.candidates[1:])
        models = present or tuple(m for m in self.methods(affordable) if not m.plain)
        # A regression analyses a point in less time than a lattice, and needs more of them.
        return (*models, LSMC()) if self._is_cheap and not self.problem.noisy else models

    @property
    def _is_cheap(self) -> bool:
        """Whether a lattice takes longer for the analysis of a point than g does."""
        plan = self._learning
        return self._each < plan.factor * plan.cost.point * plan.dim

    def cost(self, candidate: Candidate) -> float:
        if self.goal.half_width is not None:
            new = candidate.needs(self.goal.half_width, candidate.rate)
            return candidate.seconds_of(candidate.n + new, new)
        assert candidate.time is not None
        if candidate.method.plain:  # it doubles
            fit = candidate.time.share * candidate.time.affordable(self.seconds)
            doublings = int(np.log2(1.0 + fit / candidate.n))
            factor = _TIMING.wide if self._is_cheap else 1.0
            return factor * candidate.promise((2.0**doublings - 1) * candidate.n)
        known = candidate.turn.design.n_evaluations if candidate.turn else 0
        return candidate.promise(max(self._budget(candidate) - known, 0))

    def _budget(self, candidate: Candidate) -> int:
        """The request as a budget: the evaluations that a model can use in the time left.

        It is planned anew after each turn, by what turns have taken so far: one large step, and the
        correction.
        """
        most = float(self.goal.budget or np.inf) - self.spent
        return candidate.budget_in_time(self.problem, self.seconds, most)

    def grown(self, candidate: Candidate, ranked: Sequence[Candidate]) -> Design | None:
        budget = None if self.goal.budget is None else self.goal.budget - self.spent
        aimed = self.goal.half_width is not None
        if not aimed and self.cost(candidate) > min(one.half_width for one in ranked):
            return None
        if aimed or candidate.method.plain:
            left = np.inf if budget is None else budget
            design = candidate.grown(self.problem, self.goal, left)
        else:
            goal = replace(self.goal, budget=budget)
            design = candidate.grown_in_time(self.problem, goal, self.seconds)
        return design if design and candidate.seconds_of_design(design) <= self.seconds else None

    def extended(
        self, candidate: Candidate, design: Design, ranked: Sequence[Candidate]
    ) -> Portfolio:
        takes = candidate.seconds_of_design(design)
        return self._forecast(self._replaced(candidate, design), ranked, takes)

    def _forecast(
        self, parts: Sequence[Part], ranked: Sequence[Candidate], takes: float
    ) -> Portfolio:
        """A portfolio with its seconds, and the promises in words."""
        within, sign, unit = f"in {self.seconds:.2g} s ", "± ", ""
        if self.goal.half_width is not None:
            within, sign, unit = "", "", " s"
        promises = [
            f"{one.method.name} promises {sign}{self.cost(one):.2g}{unit}" for one in ranked
        ]
        reason = f"an evaluation takes {self._each:.2g} s: {within}{', '.join(promises)}"
        patience = max(_TIMING.patience * self.seconds, 1.5 * takes)
        return Portfolio.of(parts, reason=reason, seconds=takes, patience=patience)
