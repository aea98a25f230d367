"""Automatic choice of a method: pilots, then the candidate of smallest predicted error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from nestquad._checks import shown
from nestquad.accuracy import characteristics, needs_positive
from nestquad.errors import InputError, NestquadError, UnsupportedError
from nestquad.evaluate import Design, Evaluations, OutOfTimeError
from nestquad.methods._candidate import Candidate, credible, is_pilot
from nestquad.methods._method import Goal, Method, Turn, has_transports
from nestquad.methods._time import budget_in_time, seconds_of, start_plan
from nestquad.methods.learned import (
    CKQ,
    LSMC,
    JointLattice,
    JointProcess,
    Learned,
    LearnedMethod,
)
from nestquad.methods.multilevel import MLMC
from nestquad.methods.nested import NKQ, NMC, NQMC
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["Auto"]

Parts: TypeAlias = dict[Method[Any], Design]
Methods: TypeAlias = tuple[Method[Any], ...]


@dataclass(frozen=True)
class AutoSettings:
    """Tuning numbers of the choice, tried on even seeds of the families.

    Attributes
    ----------
    share, least, most
        Pilots take this share of a budget; at least so many evaluations, for the first candidate
        and for each other one; and of a small budget these shares.
    early
        Evaluations of pilots towards a tolerance, for the first candidate and for each other one.
        With 96 points in the first, 73 % of the intervals of a compound option that ended there
        covered, with 192 all of 30: groups of 16 points share what they miss.
    unexplained
        Share of the variance of J that the first candidate may leave unexplained and go on alone.
        Below it, a pilot of `NQMC` beside a lattice was worth nothing: the
        error without it was .83 and 1.0 times as large at 1,000 and 10,000 evaluations (203 runs on
        even seeds of the families). Beyond it, errors of `NQMC` were smaller than those of a
        lattice in half of the problems.
    first
        Evaluations that show how long g takes. A plain rule goes on with its share of the seconds,
        at most as many as the pilot of a first candidate and at least four times as many.
    cheap
        In limited time a plain rule goes first, for at most these shares of the seconds and of the
        pilot of a model.
    analysis, worthwhile
        A model is tried if the analysis of its pilot takes at most this share of the seconds, which
        are lost where the plain rule wins; and towards a tolerance if the pilot takes at most this
        share of the seconds that the plain rule needs.
    models
        Where time counts, the pilot of a model takes this share of the evaluations that fit, or of
        those that the plain rule needs for a tolerance.
    caution
        Where g is faster than the analysis of a model, it goes on instead of the plain rule if it
        promises a half-width smaller by this factor: on 14 even problems half-widths are 9 times
        the error of `NQMC`, and 3 times that of `LSMC`, in the geometric mean.
    unproven
        Share of the seconds left that the pilots of two models may take there, and the analyses of
        one until it has shown a rate, if that is enough to double its evaluations. They grow
        fourfold at most: a lattice of 512 points took .1 s, one of 8,192 more than 1 s.
    """

    share: float = 0.04
    least: tuple[int, int] = (512, 128)
    most: tuple[float, float] = (0.4, 0.13)
    early: tuple[int, int] = (192, 128)
    unexplained: float = 0.2
    first: int = 4
    cheap: tuple[float, float] = (0.1, 0.2)
    analysis: float = 0.5
    worthwhile: float = 0.6
    models: float = 0.2
    caution: float = 3.5
    unproven: float = 0.25


DEFAULT = AutoSettings()


@dataclass(frozen=True)
class Portfolio(Design):
    """The designs of several methods, each with a stream of its own, and the reason in words."""

    parts: tuple[tuple[Method[Any], Design], ...] = field(default=())
    reason: str = field(default="", compare=False)

    @classmethod
    def of(cls, parts: Parts, reason: str = "", seconds: float | None = None) -> Portfolio:
        grids = tuple(grid for design in parts.values() for grid in design.grids)
        return cls(grids, tuple(parts.items()), reason, seconds=seconds)


@dataclass(frozen=True)
class Race:
    """The candidates after a turn."""

    candidates: tuple[Candidate, ...]

    def standing(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.turn is not None]


@dataclass(frozen=True)
class Auto(Method[Race]):
    """The method that suits a problem, and a second one where pairs say that it does not.

    A pilot of the first method is checked by pairs of fresh draws. Where they show that it leaves
    more than a fifth of the variance of J unexplained, the next method has a pilot as well, and the
    more promising of both continues: the promise is the half-width, extrapolated to the remaining
    evaluations at the rate that the method has shown.

    Without a budget, time counts instead of evaluations: four show how long g takes. Where at most
    256 fit into the seconds, `JointProcess` has the others. Elsewhere `NQMC` goes on, the pilot of
    a model follows, and promises are compared in seconds, or in half-widths at their end. They
    stand in the notes.

    Parameters
    ----------
    candidates
        The methods to choose from, the likeliest first, which all have pilots; None takes
        `JointProcess` alone for a budget of at most 256 evaluations, and for a larger one
        `JointLattice`, then `NQMC`, `CKQ` alone where f needs J > 0, `CKQ`, then `NQMC`, where g
        is noisy, or `NMC`, then `MLMC`, where a law can only be sampled. Where time counts, `LSMC`
        has a pilot as well if an evaluation is faster than its part of the analysis of a lattice.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.finance()
    >>> est = nq.estimate(problem, budget=5000, rng=0)
    >>> bool(abs(est.value - problem.exact) < 0.01), len(est.candidates)
    (True, 1)
    """

    name: ClassVar[str] = "auto"
    sequential: ClassVar[bool] = True

    candidates: tuple[Method[Any], ...] | None = None

    def __post_init__(self) -> None:
        given = self.candidates
        if given is None:
            return
        is_valid = isinstance(given, tuple | list) and all(isinstance(m, Method) for m in given)
        names = [method.name for method in given] if is_valid else []
        if not names or self.name in names or len({*names}) < len(names):
            raise InputError("candidates", shown(given), "configured methods of different kinds")

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Race] | None = None
    ) -> Design | None:
        timed = goal.hurried and self.candidates is None and has_transports(problem)
        contest = (_TimedContest if timed else _Contest)(problem, goal, last, self.candidates)
        if last is not None:
            return contest.next()
        pilots = contest.pilots()
        if pilots:
            return Portfolio.of(pilots)
        # Too small a budget for a choice; a candidate of the user's says why it refuses.
        only = (self.candidates or (NKQ() if has_transports(problem) else NMC(),))[0]
        design = only.plan(problem, goal)
        return None if design is None else Portfolio.of({only: design})

    def analyze(self, evaluations: Evaluations, last: Turn[Race] | None = None) -> Turn[Race]:
        portfolio, problem = evaluations.design, evaluations.problem
        assert isinstance(portfolio, Portfolio)
        known = {c.method: c for c in last.state.candidates} if last else {}
        state = Race(
            tuple(
                Candidate.after(evaluations, method, design, known.get(method))
                for method, design in portfolio.parts
            )
        )
        standing = state.standing()
        if not standing:
            failure = state.candidates[0].failure
            if failure and (isinstance(failure, OutOfTimeError) or len(state.candidates) > 1):
                raise failure
            # The other candidates have not been asked yet; if that is too late, `plan` raises.
            return Turn(portfolio, Estimate(np.nan, np.inf, 0, 0, 0, self.name), state)
        informed = [candidate.informed(standing) for candidate in standing]
        best = min(credible(informed), key=lambda candidate: candidate.half_width)
        assert best.turn is not None
        found = best.turn.estimate
        notes = [*_notes(portfolio, state, best), *characteristics(problem, found)]
        notes += found.diagnostics.get("notes", [])
        estimate = replace(
            found,
            n_evaluations=portfolio.n_evaluations,
            candidates={c.method.name: c.turn.estimate for c in standing if c.turn},
            diagnostics={**found.diagnostics, "chosen": best.method.name, "notes": notes},
        )
        return Turn(portfolio, estimate, state, best.turn.final, best.turn.tentative)


def _notes(portfolio: Portfolio, race: Race, best: Candidate) -> Iterator[str]:
    """The choice in words: bars of all candidates, predictions, and failures."""
    opinions = [f"{c.method.name} {c.turn.estimate.summary}" for c in race.candidates if c.turn]
    state = best.turn.state if best.turn else None
    if len(race.candidates) == 1 and isinstance(state, Learned) and state.check:
        yield f"auto took {best.method.name}: pairs of fresh draws called for no other method"
    elif len(race.candidates) == 1:
        yield f"auto took {best.method.name}: budget or time are too small for pilots of others"
    else:
        yield (
            f"auto chose {best.method.name}, the smallest error bar that is believed: "
            f"{', '.join(opinions)}"
        )
    if portfolio.reason:
        yield portfolio.reason
    yield from (f"{c.method.name} dropped out: {c.failure}" for c in race.candidates if c.failure)


def methods_for(
    problem: NestedExpectation, budget: float | None, *, failed: bool = False
) -> Methods:
    """Methods for a number of evaluations; where the first has `failed`, others to try instead."""
    if not has_transports(problem):
        return (NMC(), MLMC())
    if budget is not None and not failed and JointProcess.suits(problem, int(min(budget, 1e15))):
        return (JointProcess(),)  # too few evaluations for a comparison
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
    """The candidates after a turn, and the next design: pilots, then the most promising.

    The cost of a candidate is the number of evaluations that a tolerance needs, or the half-width
    to expect after all that is left.
    """

    problem: NestedExpectation
    goal: Goal
    last: Turn[Race] | None
    own: Methods | None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return () if self.last is None else self.last.state.candidates

    @property
    def aimed(self) -> bool:
        """Whether a tolerance ends the contest."""
        return self.goal.adaptive

    @property
    def left(self) -> float:
        """Evaluations left."""
        spent = 0 if self.last is None else self.last.design.n_evaluations
        return np.inf if self.goal.budget is None else self.goal.budget - spent

    @property
    def seconds(self) -> float:
        return np.inf if self.goal.seconds is None else self.goal.seconds

    def next(self) -> Portfolio | None:
        """Pilots of further candidates, or a larger design of the most promising one."""
        assert self.last is not None
        assert isinstance(self.last.design, Portfolio)
        present: Parts = dict(self.last.design.parts)
        pilots = self.pilots()
        if not pilots and self.candidates[0].failure and not self.last.state.standing():
            raise self.candidates[0].failure
        ranked = sorted(self.hopeful(), key=self.rank)
        if pilots:
            return Portfolio.of(present | pilots, self.reason(ranked))
        for candidate in ranked:
            design = self.larger(candidate, ranked)
            if design is not None:
                parts = present | {candidate.method: design}
                return Portfolio.of(parts, self.reason(ranked), self.predicted(candidate, design))
        return None

    def pilots(self) -> Parts:
        """Designs of candidates to be tried in addition."""
        if self.last is None:
            methods = self.own or methods_for(self.problem, self.goal.budget)
            if self.own and not self.goal.adaptive:
                return self.planned(methods, self.sizes, self.left)
            each = (self.planned((method,), self.sizes, self.left) for method in methods)
            return next(filter(None, each), {})
        first, failed = self.candidates[0], self.candidates[0].turn is None
        methods = self.own or methods_for(self.problem, self.goal.budget, failed=failed)
        others = tuple(method for method in methods if method != first.method)
        if len(self.candidates) > 1 or not others or self.left < first.n:
            return {}
        if first.turn and isinstance(first.method, LearnedMethod) and not self.goal.adaptive:
            check = first.method.first_check(self.problem, first.turn)
            if check is not None:
                return {first.method: check}
        is_alone = first.unexplained <= DEFAULT.unexplained
        return {} if is_alone else self.planned(others, self.sizes, self.left)

    @property
    def sizes(self) -> tuple[int, int]:
        """Evaluations of the pilot of the first candidate, and of each other one."""
        if self.goal.budget is None or self.goal.adaptive:
            return DEFAULT.early
        limits = zip(DEFAULT.least, DEFAULT.most, strict=True)
        first, other = (max(DEFAULT.share * self.left, min(n, s * self.left)) for n, s in limits)
        if self.seconds < np.inf:  # its analysis ends in time
            plan, room = start_plan(self.problem, None, 0.0), DEFAULT.models * self.seconds
            most = max(budget_in_time(plan, self.problem, None, room, first), DEFAULT.early[0])
            first, other = min(first, most), min(other, most)
        return int(first), int(other)

    def planned(self, methods: Methods, sizes: tuple[int, int], left: float) -> Parts:
        """Pilots of the methods that apply, within the evaluations that are left."""
        parts: Parts = {}
        # Sizes that are powers of two times a number that is chosen now leave room for others.
        budget = None if left == np.inf else int(left) - (len(methods) - 1) * sizes[1]
        for i, method in enumerate(methods, len(self.candidates)):
            stream, size = self.goal.stream.child(40, i), sizes[min(i, 1)]
            try:
                design = method.plan(self.problem, Goal(stream, budget, adaptive=True, pilot=size))
            except (InputError, UnsupportedError):
                continue
            if design is not None:
                parts[method] = design
        return parts

    def hopeful(self) -> list[Candidate]:
        """Candidates that may still give the answer: credible, or too small to be judged."""
        assert self.last is not None
        standing = self.last.state.standing()
        if self.goal.adaptive and self.last.final:
            # More θ of the dense average, of the candidate that needs no more evaluations.
            standing = [c for c in standing if c.turn is not None and c.turn.final]
        standing = [candidate.informed(standing) for candidate in standing]
        believed = credible(standing) if standing else []
        return [c for c in standing if c in believed or is_pilot(c, standing)]

    def cost(self, candidate: Candidate) -> float:
        """Price of the tolerance, or the half-width to expect at the end."""
        if self.aimed:
            return candidate.needs(self.goal.half_width or 0.0)
        return candidate.promise(self.affordable(candidate))

    def rank(self, candidate: Candidate) -> float:
        """What is least for the candidate that goes on."""
        return self.cost(candidate)

    def affordable(self, candidate: Candidate) -> float:
        """Further evaluations of a candidate that budget and time allow."""
        if self.seconds == np.inf:
            return self.left
        present = candidate.n_evaluations
        if candidate.method.plain:
            new = min(self.seconds / max(candidate.seconds_each, 1e-300), self.left)
            return float(present * (2.0 ** np.floor(np.log2(1.0 + new / present)) - 1.0))  # doubles
        n = budget_in_time(
            candidate.time, self.problem, candidate.turn, self.seconds, self.left + present
        )
        return max(n - present, 0)

    def larger(self, candidate: Candidate, ranked: list[Candidate]) -> Design | None:
        """A larger design of a candidate, if that should pay and end in time."""
        if not self.aimed and self.cost(candidate) > min(c.half_width for c in ranked):
            return None
        assert candidate.turn is not None
        present = candidate.turn.design
        goal, new = self.step(candidate)
        if goal.budget is not None:
            goal = replace(goal, budget=int(present.n_evaluations + new))
        goal = replace(goal, stream=present.grids[0].stream)
        try:
            design = candidate.method.plan(self.problem, goal, candidate.turn)
        except NestquadError:  # it says why it cannot go on when it is asked for by name
            return None
        if design is None or (
            design.n_evaluations <= present.n_evaluations
            and (design == present or not candidate.turn.final)
        ):
            return None
        return None if candidate.takes(design) > self.seconds else design

    def step(self, candidate: Candidate) -> tuple[Goal, float]:
        """The goal of a candidate's next design, and its evaluations at most."""
        if self.goal.adaptive:
            return self.goal, self.left
        return self.goal, self.affordable(candidate)

    def predicted(self, candidate: Candidate, design: Design) -> float | None:
        """Seconds of the next design, None to be predicted from the last one."""
        return None

    def reason(self, candidates: list[Candidate]) -> str:
        """The predictions in words; none where evaluations count."""
        return ""


@dataclass(frozen=True)
class _TimedContest(_Contest):
    """The contest where time counts: a plain rule, then a model if its pilot pays.

    The cost of a candidate is the time that a tolerance needs, or the half-width to expect at the
    end of the time.
    """

    @property
    def aimed(self) -> bool:
        return self.goal.half_width is not None

    def pilots(self) -> Parts:
        if self.last is None:
            plain = NQMC()
            design = plain.plan(self.problem, replace(self.goal, pilot=DEFAULT.first))
            return {} if design is None else {plain: design}
        (first, *others) = self.candidates
        return self.models(first) if first.method.plain and first.turn and not others else {}

    def hopeful(self) -> list[Candidate]:
        """Candidates but for a plain rule that has only shown how long g takes."""
        found = super().hopeful()
        return [c for c in found if not (c.method.plain and c.n <= DEFAULT.first)] or found

    def models(self, plain: Candidate) -> Parts:
        """Pilots of models, once the plain rule has shown what g costs, and if they pay."""
        fitting = min(self.seconds / max(plain.time.seconds_of_g, 1e-12), self.left)
        first, *_ = methods_for(self.problem, fitting)
        if not isinstance(first, LearnedMethod):
            return {}
        if not (isinstance(first, JointLattice) and plain.time.is_analysis):
            return self.model_pilots(plain, (first,), DEFAULT.analysis)
        # Where analysis counts, a regression takes the least, and a lattice learns the most.
        both = self.model_pilots(plain, (LSMC(), first), DEFAULT.unproven)
        return both or self.model_pilots(plain, (LSMC(),), DEFAULT.analysis)

    def model_pilots(self, plain: Candidate, methods: Methods, share: float) -> Parts:
        """Pilots of models whose analyses take at most a share of the time."""
        time, half_width = plain.time, self.goal.half_width
        if half_width is None:
            room, early, least = self.seconds, DEFAULT.cheap[0] * self.seconds, 0
            most: float = budget_in_time(time, self.problem, None, room, self.left)
            rival = most
        else:
            room, early, least = self.cost(plain), 0.0, DEFAULT.early[0]
            most, rival = self.left, plain.needs(half_width)
        size = max(int(min(DEFAULT.least[0], DEFAULT.models * rival)), least)
        if time.is_analysis and not self.aimed:  # points cost little beside a fit
            allowed, largest = share * room / (len(methods) * time.share), DEFAULT.least[0]
            size = time.largest(lambda n: time.seconds(n, 0, 0), allowed, min(most, largest))
        parts = self.planned(methods, (size, size), most) if most else {}
        takes = sum(seconds_of(time, design) for design in parts.values())
        lost = takes - time.seconds_of_g * sum(design.n_evaluations for design in parts.values())
        is_early = 2.0 * plain.n * plain.seconds_each < max(early, DEFAULT.cheap[1] * takes)
        is_early &= not isinstance(methods[0], JointProcess)  # a comparison would cost too much
        is_dear = half_width is not None and takes > DEFAULT.worthwhile * room
        return {} if is_early or is_dear or lost > share * room else parts

    def cost(self, candidate: Candidate) -> float:
        found = super().cost(candidate)
        return candidate.price(found) if self.aimed else found

    def rank(self, candidate: Candidate) -> float:
        unsure = candidate.time.is_analysis and not (self.aimed or candidate.method.plain)
        return self.cost(candidate) * (DEFAULT.caution if unsure else 1.0)

    def step(self, candidate: Candidate) -> tuple[Goal, float]:
        assert candidate.turn is not None
        if candidate.method.plain and candidate.n <= DEFAULT.first:
            room = DEFAULT.cheap[0] * self.seconds / max(candidate.seconds_each, 1e-12)
            most = min(room, self.left, DEFAULT.early[0] if self.aimed else DEFAULT.least[0])
            least = min(4.0 * candidate.n, candidate.n + self.affordable(candidate))
            size = 2.0 ** np.floor(np.log2(max(most, least)))
            return replace(self.goal, adaptive=False), size - candidate.n
        if self.aimed or candidate.method.plain or candidate.turn.final:
            return self.goal, self.left
        new = self.affordable(candidate)
        if candidate.time.is_analysis and candidate.observed_rate is None:
            free, present = replace(candidate.time, seconds_of_g=0.0), candidate.n_evaluations
            room = DEFAULT.unproven * self.seconds
            most = self.left + present
            few = budget_in_time(free, self.problem, candidate.turn, room, most) - present
            # Fixed costs hide how time grows: fourfold at most, and twofold if that is too much.
            new = min(new, max(few, present), 3 * present)
        return replace(self.goal, adaptive=False), new

    def predicted(self, candidate: Candidate, design: Design) -> float | None:
        return candidate.takes(design)

    def reason(self, candidates: list[Candidate]) -> str:
        within, sign, unit = f"in {self.seconds:.2g} s ", "± ", ""
        if self.aimed:
            within, sign, unit = "", "", " s"
        promises = [f"{c.method.name} promises {sign}{self.cost(c):.2g}{unit}" for c in candidates]
        each = self.candidates[0].seconds_each
        return f"an evaluation takes {each:.2g} s: {within}{', '.join(promises)}"
