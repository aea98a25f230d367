"""Split of a time limit: measured costs, one large step and one correction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(eq=False)
class Schedule:
    """Clock of one estimate, and measured seconds for each unit of work.

    The fit gets a quarter of the time, as likelihoods improve the answer at the rate of Monte Carlo
    and a fit does not. The large step gets two fifths of the rest, and shows the cost of the last.
    """

    max_seconds: float | None = None
    fit_share: float = 0.25
    step_share: float = 0.4
    now: Callable[[], float] = time.perf_counter
    costs: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started = self.now()

    @property
    def elapsed(self) -> float:
        return self.now() - self.started

    @property
    def left(self) -> float:
        """Seconds left; infinite without a limit."""
        return float("inf") if self.max_seconds is None else self.max_seconds - self.elapsed

    def room_for(self, share: float) -> Callable[[float], bool]:
        """Test whether a task of predicted seconds ends within a share of the time."""
        limit = float("inf") if self.max_seconds is None else share * self.max_seconds
        return lambda seconds: self.elapsed + seconds <= limit

    @contextmanager
    def measure(self, task: str, units: int) -> Iterator[None]:
        """Record the seconds of a unit of work."""
        begin = self.now()
        yield
        self.costs[task] = max(self.now() - begin, 1e-9) / units

    def affordable(self, task: str, most: int, share: float | None = None) -> int:
        """Number of units within a share of the time, at most `most`."""
        if self.max_seconds is None:
            return most
        share = self.fit_share if share is None else share
        return min(most, max(2, int(share * self.max_seconds / self.costs[task])))
