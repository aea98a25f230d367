"""Time of an estimation: a limit that long computations ask for, and the cost of learning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from nestquad.errors import EvaluationError

_limit: ContextVar[float] = ContextVar("limit", default=float("inf"))


class OutOfTimeError(EvaluationError):
    """Time ran out before there was an answer, or a better one than the last."""


@contextmanager
def time_limit(at: float) -> Iterator[None]:
    """Let `tick` raise after ``time.perf_counter()`` has passed `at`, in this thread."""
    token = _limit.set(at)
    try:
        yield
    finally:
        _limit.reset(token)


def tick() -> None:
    """Raise `OutOfTimeError` if time is up; to be called in loops that may take long."""
    if time.perf_counter() > _limit.get():
        raise OutOfTimeError(
            "time ran out before the evaluations were analysed",
            advice="Raise max_seconds, lower the budget, or use a method that learns nothing, "
            "such as 'nqmc'.",
        )


@dataclass(frozen=True)
class LearningCost:
    """Time that it takes to learn J on this machine: overhead + (analysis + g) n.

    The number n of evaluations for an accuracy is ``evaluations`` (0.01 accuracy)^``power``, where
    the accuracy is the standard deviation of f(J) over the half-width.

    Attributes
    ----------
    overhead, analysis
        Seconds of an analysis, and for each evaluation of it.
    evaluations, power
        Evaluations for a hundredth of the spread of f(J), and how they grow with the accuracy.
        Fitted to seventeen problems on two cores (`studies seconds`).
    """

    overhead: float = 0.3
    analysis: float = 1.2e-4
    evaluations: float = 1100.0
    power: float = 0.45

    def seconds(self, accuracy: float, seconds_of_g: float) -> float:
        """Predicted time to an accuracy, if an evaluation of g takes `seconds_of_g`.

        Examples
        --------
        >>> cost = LearningCost()
        >>> round(cost.accuracy(cost.seconds(100.0, 1e-3), 1e-3), 6)
        100.0
        """
        n = self.evaluations * float((0.01 * accuracy) ** self.power)
        return self.overhead + (self.analysis + seconds_of_g) * n

    def accuracy(self, seconds: float, seconds_of_g: float) -> float:
        """Inverse of `seconds`; zero where nothing is learned in that time."""
        n = max(seconds - self.overhead, 0.0) / (self.analysis + seconds_of_g)
        return 100.0 * float((n / self.evaluations) ** (1.0 / self.power))
