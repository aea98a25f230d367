"""Candidates of an automatic choice: their promise, and which of them are credible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import NestquadError
from nestquad.methods._method import Method, Turn
from nestquad.methods.learned import LearnedDesign
from nestquad.methods.nested import NQMC
from nestquad.points import Stream
from nestquad.result import NORMAL_95


@dataclass(frozen=True)
class Candidate:
    """A method with its last turn, or with the error that made it fail, and how long it took."""

    method: Method[Any]
    turn: Turn[Any] | None
    failure: NestquadError | None = None
    seconds: float = 0.0

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
        """Of the 95 % interval; the largest of several answers."""
        half = np.max(self.turn.estimate.half_width) if self.turn else np.inf
        return np.inf if np.isnan(half) else float(half)

    @property
    def unseen(self) -> float:
        """The standard error from rare values of g, if its points are independent in θ and x."""
        if self.turn is None or not self.turn.design.grids[0].joint:
            return 0.0
        return float(self.turn.state.parts.get("unseen", 0.0))

    def informed(self, others: Sequence[Candidate]) -> Candidate:
        """With a bar that allows for the rare values of g that others have seen.

        How often g has them does not depend on the method. Points of kernel rules are few
        different x, so their number is no excuse; that of a plain rule is.
        """
        if self.turn is None or self.turn.design.grids[0].joint:
            return self
        more = isinstance(self.method, NQMC)
        found = self.turn.estimate
        own = float(np.max(found.std_error))
        floor = 0.0
        for one in others:
            part = one.unseen * (min(1.0, one.n / self.n) ** 0.5 if more else 1.0)
            # A bar beside which they are a tenfold has seen none of them, and knows no more.
            floor = max(floor, part if part <= 10.0 * own else one.half_width / NORMAL_95)
        if not floor:
            return self
        wider = replace(
            found,
            std_error=_like(found.value, np.hypot(found.std_error, floor)),
            diagnostics={
                **found.diagnostics,
                "notes": [
                    *found.diagnostics.get("notes", []),
                    "other methods saw rare values of g",
                ],
            },
        )
        return replace(self, turn=replace(self.turn, estimate=wider))

    def within(self, share: float) -> bool:
        """Whether the half-width is within a share of the spread of f(J)."""
        sample = self.turn.estimate.sample if self.turn else None
        return sample is not None and 0.0 < self.half_width <= share * sample.spread

    def contradicts(self, other: Candidate) -> bool:
        """Whether the intervals of an answer have nothing in common."""
        if self.turn is None or other.turn is None:
            return False
        one, two = self.turn.estimate, other.turn.estimate
        distance = np.abs(np.asarray(one.value) - two.value)
        return bool((distance > np.asarray(one.half_width) + two.half_width).any())

    def promise(self, left: float) -> float:
        """The half-width to expect after that many more evaluations: errors fall like 1/n."""
        return self.half_width * self.n / (self.n + left)

    def needs(self, half_width: float, rate: float = 1.0) -> float:
        """More evaluations to expect until the half-width is that small."""
        ratio = max(self.half_width / max(half_width, 1e-300), 1.0)
        return self.n * (float(ratio ** (1.0 / rate)) - 1.0)


def _like(value: float | Array, error: Array) -> float | Array:
    return float(error) if np.ndim(value) == 0 else error


def is_pilot(candidate: Candidate, standing: list[Candidate]) -> bool:
    """Whether it has less than a third of the points of another: its bar may be luck.

    Plain rules are no measure for others, as they need many more points.
    """
    others = [one.n for one in standing if not isinstance(one.method, NQMC)]
    return candidate.n < max(others, default=0) / 3.0


def credible(standing: list[Candidate]) -> list[Candidate]:
    """Candidates that are no pilots, and whose interval no wider one refutes.

    A bar vanishes by accident where all points missed a feature that others saw. So an interval
    that contradicts a wider one is not believed, if that one has half as many evaluations or more.
    """
    enough = [candidate for candidate in standing if not is_pilot(candidate, standing)]

    def refuted(one: Candidate, other: Candidate) -> bool:
        wider = other.half_width > one.half_width and other.n >= 0.5 * one.n
        return wider and one.contradicts(other)

    found = [one for one in _unrefuted(enough) if not any(refuted(one, other) for other in enough)]
    # Where all are doubted, the widest bar is the least wrong.
    return found or [max(enough, key=lambda one: one.half_width)]


def _unrefuted(standing: list[Candidate]) -> list[Candidate]:
    """Candidates without those whose model a common check finds clearly worse than another."""
    learned = [(one, one.turn.state) for one in standing if one.turn and one.n_draws]
    checks = [state.check for _, state in learned if state.check is not None]
    if not checks:
        return standing
    check = max(checks, key=lambda one: one.n_draws)
    kept = check.unrefuted([state.model for _, state in learned])
    worse = [one for k, (one, _) in enumerate(learned) if k not in kept]
    return [one for one in standing if one not in worse]
