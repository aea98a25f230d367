"""Candidates of an automatic choice: predicted error, price and credibility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad import clock
from nestquad.clock import TimePlan
from nestquad.errors import NestquadError, NumericalError, OutsideDomainError, UnsupportedError
from nestquad.evaluate import Design, Evaluations, OutOfTimeError
from nestquad.methods._events import HEAVY_TAIL
from nestquad.methods._method import Method, Turn
from nestquad.methods._time import correct_plan, seconds_of, start_plan
from nestquad.methods.learned import Learned, LearnedDesign
from nestquad.result import NORMAL_95

# Evaluations with which a plain rule is no pilot: as many as those of a model.
_SHOWN = 512


@dataclass(frozen=True)
class Candidate:
    """A method with its last turn, or with the error that made it fail, and how long it took.

    `time` is the forecast of its analyses, `past` has the evaluations and half-widths of earlier
    turns, and `paces` the seconds of an evaluation and its part of the analysis in the last two.
    """

    method: Method[Any]
    turn: Turn[Any] | None
    time: TimePlan
    failure: NestquadError | None = None
    seconds: float = 0.0
    past: tuple[tuple[int, float], ...] = ()
    paces: tuple[float, ...] = ()

    @classmethod
    def after(
        cls, evaluations: Evaluations, method: Method[Any], design: Design, known: Candidate | None
    ) -> Candidate:
        """The candidate after a design; one whose design has not grown is not analyzed again."""
        last = None if known is None else known.turn
        if known is not None and (last is None or last.design == design):
            return known
        started, evaluator = clock.now(), evaluations.evaluator
        turn, failure = last, None
        try:
            turn = method.analyze(Evaluations(evaluator, design), last)
        except (NumericalError, UnsupportedError, OutsideDomainError, OutOfTimeError) as error:
            if last is None or not isinstance(error, OutOfTimeError):
                turn, failure = None, error
        seconds, each = clock.now() - started, evaluator.seconds_per_evaluation
        time = known.time if known else start_plan(evaluations.problem, turn, each)
        time = replace(time, seconds_of_g=each)
        if turn is not None and turn is not last:
            time = correct_plan(time, turn, last, seconds)
        past = () if known is None else (*known.past, (known.n, known.half_width))
        found = cls(method, turn, time, failure, seconds, past)
        pace = max(seconds, 1e-9) / max(found.n - (known.n if known else 0), 1)
        found = replace(found, paces=(*(known.paces[-1:] if known else ()), pace))
        # Cut off by time, a larger set may be less even than the last, which was complete.
        cut = evaluator.stopped is not None
        return known if known and cut and found.half_width > known.half_width else found

    @property
    def n_evaluations(self) -> int:
        return 0 if self.turn is None else self.turn.design.n_evaluations

    @property
    def n(self) -> int:
        """Evaluations that the answer rests on, without checks."""
        if self.turn is None:
            return 0
        design = self.turn.design
        return (design.learning if isinstance(design, LearnedDesign) else design).n_evaluations

    @property
    def half_width(self) -> float:
        """95 % half-width, maximum over answers."""
        half = np.max(self.turn.estimate.half_width) if self.turn else np.inf
        return np.inf if np.isnan(half) else float(half)

    @property
    def unexplained(self) -> float:
        """Share of the variance of J that pairs show to be unexplained; one without a model."""
        state = None if self.turn is None else self.turn.state
        if not isinstance(state, Learned):
            return 1.0
        return 0.0 if state.check is None else state.check.unexplained_share(state.model, 0.0)

    def contradicts(self, other: Candidate) -> bool:
        """Whether the intervals of an answer are disjoint."""
        if self.turn is None or other.turn is None:
            return False
        mine, theirs = self.turn.estimate, other.turn.estimate
        distance = np.abs(np.asarray(mine.value) - theirs.value)
        return bool((distance > np.asarray(mine.half_width) + theirs.half_width).any())

    @property
    def unseen(self) -> float:
        """Standard error from rare values of g, if points are independent in θ and x."""
        if self.turn is None or not self.turn.design.grids[0].joint:
            return 0.0
        return float(self.turn.state.parts.get("unseen", 0.0))

    @property
    def has_heavy_tail(self) -> bool:
        """Whether few residuals far out decide the answer of a model."""
        state = None if self.turn is None else self.turn.state
        return isinstance(state, Learned) and state.parts.get("tail", 0.0) == np.inf

    def informed(self, others: Sequence[Candidate]) -> Candidate:
        """Candidate with an interval that allows for the values that others have seen.

        *Heavy tails.* Values far out that one candidate has met, others have missed. *Rare values
        of g.* Their frequency does not depend on the method. The number of points
        counts for a plain rule, not for kernel rules, which reuse few x. *Contradiction.* Where the
        interval of another candidate that is no pilot has no point in common, one of them has
        missed a feature of g: their distance is an error. A plain rule is not contradicted by a
        model of less than half of its evaluations.
        """
        if self.turn is None:
            return self
        estimate, note = self.turn.estimate, "other methods saw rare values of g"
        own, floor = float(np.max(estimate.std_error)), 0.0
        for other in others:
            if other.has_heavy_tail and not is_pilot(other, others):
                return replace(
                    self, turn=replace(self.turn, estimate=estimate.widened(np.inf, HEAVY_TAIL))
                )
            if other.half_width == np.inf:  # g hardly varied: it shows no frequency
                continue
            fewer = self.method.plain and other.n < 0.5 * self.n
            if self.contradicts(other) and not fewer and not is_pilot(other, others):
                floor = max(floor, self.distance(other) / NORMAL_95)
                note = (
                    f"the interval of {other.method.name} contradicts it: features of g are missed"
                )
            elif not self.turn.design.grids[0].joint:
                reduction = min(1.0, other.n / self.n) ** 0.5 if self.method.plain else 1.0
                part = other.unseen * reduction
                # An interval of a tenth of this has seen none of the rare values.
                floor = max(floor, part if part <= 10.0 * own else other.half_width / NORMAL_95)
        if not floor:
            return self
        wider = estimate.widened(floor, note)
        return replace(self, turn=replace(self.turn, estimate=wider))

    def distance(self, other: Candidate) -> float:
        """Distance of the answers, the largest."""
        assert self.turn is not None
        assert other.turn is not None
        mine, theirs = self.turn.estimate.value, other.turn.estimate.value
        return float(np.max(np.abs(np.asarray(mine) - theirs)))

    @property
    def observed_rate(self) -> float | None:
        """Power of n at which the half-width fell since a turn with a quarter of the evaluations.

        Of a plain rule since one with a sixteenth, as its half-widths scatter; None if there is no
        such turn.
        """
        few = self.n / (16 if self.method.plain else 4)
        before = [(n, half) for n, half in self.past if n <= few and 0 < half < np.inf]
        if not before or not 0 < self.half_width < np.inf:
            return None
        n, half = before[-1]
        return float(np.log(half / self.half_width) / np.log(self.n / n))

    @property
    def rate(self) -> float:
        """Power of n at which the half-width is expected to fall, within limits.

        The observed one; before there is one, a model's is that of its posterior between all groups
        and all but one.
        """
        if (observed := self.observed_rate) is not None:
            return float(np.clip(observed, 0.4, 1.0))
        state = None if self.turn is None else self.turn.state
        return float(np.clip(state.rate, 0.5, 1.0)) if isinstance(state, Learned) else 0.5

    def promise(self, new: float) -> float:
        """Half-width to expect after more evaluations."""
        return self.half_width * float((self.n / (self.n + new)) ** self.rate)

    def needs(self, half_width: float) -> float:
        """Evaluations to expect until the half-width is that small."""
        ratio = np.clip(self.half_width / max(half_width, 1e-300), 1.0, 1e60)
        return self.n * (float(ratio ** (1.0 / self.rate)) - 1.0)

    @property
    def seconds_each(self) -> float:
        """The fastest of the last two paces and one and a half calls of g: turns are held up."""
        return min(*self.paces, 1.5 * self.time.seconds_of_g or np.inf)

    def price(self, new: float) -> float:
        """Predicted seconds of more evaluations, with their analysis."""
        if self.method.plain:
            return new * self.seconds_each
        return self.time.seconds(self.n + new, 0, new)

    def takes(self, design: Design) -> float:
        """Predicted seconds of a larger design."""
        if not isinstance(design, LearnedDesign):
            return self.price(design.n_evaluations - self.n_evaluations)
        if design.n_evaluations == self.n_evaluations:  # θ of an average alone
            assert self.turn is not None
            return 4.0 * self.seconds
        return seconds_of(self.time, design, self.turn)


def is_pilot(candidate: Candidate, standing: Sequence[Candidate]) -> bool:
    """Whether the half-width of a candidate may be an accident of few points.

    It has less than a third of the points of a model; a plain rule, whose half-width is a spread of
    blocks, less than a fifth, or fewer than 512.
    """
    sizes = [other.n for other in standing if not other.method.plain]
    largest = max(sizes, default=0)
    if candidate.method.plain and candidate.n >= _SHOWN:
        return candidate.n < largest / 5.0
    return candidate.n < largest / 3.0


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

    kept = [candidate for candidate in enough if not is_refuted(candidate)]
    # Where none is credible, the widest bar is the least wrong.
    return kept or [max(enough, key=lambda candidate: candidate.half_width)]
