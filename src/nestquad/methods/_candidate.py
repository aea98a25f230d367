"""Candidates of an automatic choice: promise and credibility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad.errors import NestquadError
from nestquad.methods._method import Method, Turn
from nestquad.methods.learned import Learned, LearnedDesign
from nestquad.points import Stream
from nestquad.result import NORMAL_95


@dataclass(frozen=True)
class Candidate:
    """A method with its last turn, or with the error that made it fail, and how long it took.

    `past` has the evaluations and half-widths of earlier turns.
    """

    method: Method[Any]
    turn: Turn[Any] | None
    failure: NestquadError | None = None
    seconds: float = 0.0
    past: tuple[tuple[int, float], ...] = ()

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
    def stream(self) -> Stream:
        assert self.turn is not None
        return self.turn.design.grids[0].stream

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

    @property
    def seconds_of_g(self) -> float:
        """Seconds of an evaluation and its part of the analysis, in the last turn."""
        known = self.past[-1][0] if self.past else 0
        return max(self.seconds, 1e-9) / max(self.n - known, 1)

    def promise(self, left: float) -> float:
        """Half-width to expect after `left` more evaluations."""
        return self.half_width * float((self.n / (self.n + left)) ** self.rate)

    @property
    def rate(self) -> float:
        """Power of n at which the half-width falls.

        A model's rate is that of its posterior between all groups and all but one, which holds
        for a while, and at least 1; pilots of 512 points had 1.4 to 3. A plain rule's is observed
        since a turn with a sixteenth of the evaluations, and .8 before there is one.
        """
        if self.turn is None or not self.method.plain:
            state = None if self.turn is None else self.turn.state
            return float(np.clip(state.rate, 1.0, 1.5)) if isinstance(state, Learned) else 1.0
        before = [(n, half) for n, half in self.past if 16 * n <= self.n and 0 < half < np.inf]
        if not before or not 0 < self.half_width < np.inf:
            return 0.8
        n, half = before[-1]
        return float(np.clip(np.log(half / self.half_width) / np.log(self.n / n), 0.4, 1.0))

    def needs(self, half_width: float, rate: float) -> float:
        """Evaluations to expect until the half-width is that small."""
        ratio = np.clip(self.half_width / max(half_width, 1e-300), 1.0, 1e60)
        return self.n * (float(ratio ** (1.0 / rate)) - 1.0)


def is_pilot(candidate: Candidate, standing: Sequence[Candidate]) -> bool:
    """Whether a candidate has less than a third of the points of another: its bar may be luck.

    Plain rules are no measure for others, as they need many more points.
    """
    sizes = [other.n for other in standing if not other.method.plain]
    return candidate.n < max(sizes, default=0) / 3.0


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
