"""Clock of an estimation: long computations ask it now and then whether there is time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
