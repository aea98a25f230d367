"""Candidates of an automatic choice: promise and credibility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad.clock import LEARNING, AnalysisCost, TimePlan
from nestquad.errors import NestquadError
from nestquad.evaluate import Design
from nestquad.methods._method import Goal, Method, Turn, has_transports
from nestquad.methods.learned import Learned, LearnedDesign, LearnedMethod, n_draws
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95

# Forecasts of turns beyond FAR times the points of the last count FAR_FACTOR-fold: terms of a model
# grow with its points (`python -m studies costs`: a tenth of the turns took four times as long).
FAR, FAR_FACTOR = 4.0, 2.5
# A plain rule has no analysis beside its evaluations.
_NO_ANALYSIS = AnalysisCost(fixed=0.0, point=0.0, product=0.0)


@dataclass(frozen=True)
class Candidate:
    """A method with its last turn, or with the error that made it fail.

    Attributes
    ----------
    seconds
        Duration of the last turn.
    past
        Evaluations and half-widths of earlier turns.
    time
        Forecast of the next turn.
    """

    method: Method[Any]
    turn: Turn[Any] | None = None
    failure: NestquadError | None = None
    seconds: float = 0.0
    past: tuple[tuple[int, float], ...] = ()
    time: TimePlan | None = None

    @property
    def n(self) -> int:
        """Evaluations that the answer rests on, without those that check it."""
        if self.turn is None:
            return 0
        design = self.turn.design
        return (design.learning if isinstance(design, LearnedDesign) else design).n_evaluations

    @property
    def n_draws(self) -> int:
        """Fresh draws of its check."""
        return 0 if self.turn is None else self.turn.design.n_evaluations - self.n

    @property
    def half_width(self) -> float:
        """95 % half-width, maximum over answers."""
        half = np.max(self.turn.estimate.half_width) if self.turn else np.inf
        return np.inf if np.isnan(half) else float(half)

    @property
    def spread(self) -> float:
        """Standard deviation of f(J) over θ; zero where it is unknown."""
        sample = self.turn.estimate.sample if self.turn else None
        return 0.0 if sample is None else sample.spread

    @property
    def unseen(self) -> float:
        """Standard error from rare values of g, if points are independent in θ and x."""
        if self.turn is None or not self.turn.design.grids[0].joint:
            return 0.0
        return float(self.turn.state.parts.get("unseen", 0.0))

    def informed(self, others: Sequence[Candidate]) -> Candidate:
        """The candidate with an error bar that allows for rare values of g that others have seen.

        Their frequency does not depend on the method. The number of points counts for a plain rule,
        not for kernel rules, which reuse few x.
        """
        if self.turn is None or self.turn.design.grids[0].joint:
            return self
        estimate = self.turn.estimate
        own, floor = float(np.max(estimate.std_error)), 0.0
        for other in others:
            if other.half_width == np.inf:  # it saw nothing vary, and knows of no frequency
                continue
            reduction = min(1.0, other.n / self.n) ** 0.5 if self.method.plain else 1.0
            part = other.unseen * reduction
            # A bar that is a tenth of this has seen none of the rare values.
            floor = max(floor, part if part <= 10.0 * own else other.half_width / NORMAL_95)
        if not floor:
            return self
        wider = estimate.widened(floor, "other methods saw rare values of g")
        return replace(self, turn=replace(self.turn, estimate=wider))

    def is_within(self, share: float) -> bool:
        """Whether the half-width is within a share of the spread of f(J)."""
        return 0.0 < self.half_width <= share * self.spread

    def contradicts(self, other: Candidate) -> bool:
        """Whether the intervals of an answer have nothing in common."""
        if self.turn is None or other.turn is None:
            return False
        mine, theirs = self.turn.estimate, other.turn.estimate
        distance = np.abs(np.asarray(mine.value) - theirs.value)
        return bool((distance > np.asarray(mine.half_width) + theirs.half_width).any())

    def after(
        self, problem: NestedExpectation, turn: Turn[Any], seconds: float, seconds_of_g: float
    ) -> Candidate:
        """The candidate after another turn that took `seconds`, its forecast corrected by them."""
        past = (*self.past, (self.n, self.half_width)) if self.turn else ()
        now = replace(self, turn=turn, failure=None, seconds=seconds, past=past)
        known = 0 if self.turn is None else self.turn.design.n_evaluations
        new = turn.design.n_evaluations - known
        if not isinstance(self.method, LearnedMethod):
            each = max(seconds, 1e-9) / max(new, 1)
            return replace(now, time=TimePlan(1.0, each, 1.0, _NO_ANALYSIS))
        plan = self.time or start_plan(problem, turn, seconds_of_g)
        plan = replace(plan, seconds_of_g=seconds_of_g)
        corrected = plan.corrected(seconds, now.n, now.n_draws, new, fitted=now.n > self.n)
        return replace(now, time=corrected)

    def delayed(self, seconds: float) -> Candidate:
        """The candidate after an analysis that was given up: forecasts are that much longer."""
        assert self.time is not None
        factor = max(2.0, seconds / max(self.seconds, 1e-9))
        return replace(self, time=replace(self.time, factor=factor * self.time.factor))

    def seconds_of(self, n: float, new: float) -> float:
        """Predicted seconds of a turn that learns from n evaluations, of which some are new."""
        assert self.time is not None
        return self.time.seconds(n, 0, new)

    def seconds_of_design(self, design: Design) -> float:
        """Predicted seconds of a larger design."""
        assert self.turn is not None
        assert self.time is not None
        n = design.learning.n_evaluations if isinstance(design, LearnedDesign) else 0
        new = design.n_evaluations - self.turn.design.n_evaluations
        return self.time.seconds(n, design.n_evaluations - n, new, fitted=n > self.n)

    def budget_in_time(self, problem: NestedExpectation, left: float, most: float) -> int:
        """Evaluations, with those of the last turn, of a fit and its check that end in time."""
        plan = self.time
        assert plan is not None

        def takes(n: int) -> float:
            if not n:
                return 0.0
            checks = max(_n_checks(problem, n), self.n_draws)
            seconds = plan.seconds(n, checks, n - self.n + checks - self.n_draws)
            return seconds * (FAR_FACTOR if n > FAR * self.n else 1.0)

        n = max(plan.largest(takes, left, most), self.n)
        return max(n + _n_checks(problem, n), self.n + self.n_draws) if n else 0

    def grown(self, problem: NestedExpectation, goal: Goal, left: float) -> Design | None:
        """A larger design within `left` more evaluations; None if there is none."""
        assert self.turn is not None
        present, final = self.turn.design, self.turn.final
        budget = None if goal.budget is None else int(present.n_evaluations + left)
        own = replace(goal, stream=present.grids[0].stream, budget=budget)
        try:
            design = self.method.plan(problem, own, self.turn)
        except NestquadError:  # it says why it cannot go on when it is asked for by name
            return None
        if design is None or design.n_evaluations < present.n_evaluations:
            return None
        larger = design.n_evaluations > present.n_evaluations or (final and design != present)
        return design if larger else None

    def grown_in_time(
        self, problem: NestedExpectation, goal: Goal, seconds: float
    ) -> Design | None:
        """The largest design that ends in time together with its check, in one step."""
        n = self.budget_in_time(problem, seconds, float(goal.budget or np.inf))
        own = replace(goal, budget=n, adaptive=False)
        design = self.grown(problem, own, n - self.n - self.n_draws)
        if not isinstance(design, LearnedDesign) or not isinstance(self.method, LearnedMethod):
            return design
        n = design.learning.n_evaluations
        if n == self.n:
            return None if self.n_draws else design
        assert self.turn is not None
        wanted = _n_checks(problem, n) - self.n_draws
        few = wanted <= 0.5 * self.n_draws
        return design if few else self.method.checked(problem, self.turn, wanted, design.learning)

    def promise(self, left: float) -> float:
        """Half-width to expect after `left` more evaluations."""
        return self.half_width * float((self.n / (self.n + left)) ** self.rate)

    @property
    def rate(self) -> float:
        """Power of n at which the half-width falls.

        A model's rate is that of its posterior between all groups and all but one, which holds
        for a while, and for lattices at least 1; pilots of 512 points had 1.4 to 3. A plain rule's
        is observed since a turn with a sixteenth of the evaluations, and .8 before there is one.
        """
        if self.turn is None or not self.method.plain:
            state = None if self.turn is None else self.turn.state
            least = self.method.slowest
            return float(np.clip(state.rate, least, 1.5)) if isinstance(state, Learned) else 1.0
        before = [(n, half) for n, half in self.past if 16 * n <= self.n and 0 < half < np.inf]
        if not before or not 0 < self.half_width < np.inf:
            return 0.8
        n, half = before[-1]
        return float(np.clip(np.log(half / self.half_width) / np.log(self.n / n), 0.4, 1.0))

    def needs(self, half_width: float, rate: float) -> float:
        """Evaluations to expect until the half-width is that small."""
        ratio = np.clip(self.half_width / max(half_width, 1e-300), 1.0, 1e60)
        return self.n * (float(ratio ** (1.0 / rate)) - 1.0)


def _n_checks(problem: NestedExpectation, n: int) -> int:
    """Fresh draws beside n evaluations to learn from, of which they are a seventh of all."""
    return n_draws(problem, 7.0 * n / 6.0)


def is_pilot(candidate: Candidate, standing: Sequence[Candidate]) -> bool:
    """Whether the only turn had less than a third of the points of another: its bar may be luck.

    Plain rules are no measure for others, as they need many more points.
    """
    sizes = [other.n for other in standing if not other.method.plain]
    return not candidate.past and candidate.n < max(sizes, default=0) / 3.0


def credible(standing: Sequence[Candidate]) -> list[Candidate]:
    """Candidates that are no pilots, and whose interval no wider one contradicts.

    A bar vanishes by accident where all points missed a feature that others saw. So an interval
    that contradicts a wider one is not believed, if that one has half as many evaluations or more.
    """
    enough = [candidate for candidate in standing if not is_pilot(candidate, standing)]

    def is_refuted(candidate: Candidate) -> bool:
        return any(
            other.half_width > candidate.half_width
            and other.n >= 0.5 * candidate.n
            and candidate.contradicts(other)
            for other in enough
        )

    kept = [candidate for candidate in _unrefuted(enough) if not is_refuted(candidate)]
    # Where all are doubted, the widest bar is the least wrong.
    return kept or [max(enough, key=lambda candidate: candidate.half_width)]


def _unrefuted(standing: list[Candidate]) -> list[Candidate]:
    """Candidates whose model no common check finds clearly worse than another."""
    learned = [(one, one.turn.state) for one in standing if one.turn and one.n_draws]
    checks = [state.check for _, state in learned if state.check is not None]
    if not checks:
        return standing
    check = max(checks, key=lambda draws: draws.n_draws)
    kept = check.unrefuted([state.model for _, state in learned])
    worse = [candidate for k, (candidate, _) in enumerate(learned) if k not in kept]
    return [candidate for candidate in standing if candidate not in worse]


def start_plan(problem: NestedExpectation, turn: Turn[Any] | None, seconds_of_g: float) -> TimePlan:
    """The forecast of turns that learn, before the first of them."""
    law, sample = problem.outer_law, turn.estimate.sample if turn else None
    dim = law.base_dim + problem.inner_base_dim if has_transports(problem) else law.dim or 1
    # Each output has a model of its own.
    outputs = 1 if sample is None else max(sample.j[0].size, 1)
    return TimePlan.start((20.0 + dim) * outputs, seconds_of_g, LEARNING)
