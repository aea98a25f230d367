"""What there is to run, how much of it, and what one run brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

__all__ = ["Effort", "Outcome", "Task", "cells"]

Value = TypeVar("Value")


@dataclass(frozen=True)
class Effort:
    """How much to run: ``tiny`` shows that it runs, ``quick`` what comes out, ``full`` the paper.

    `replicates` is the most of each cell, None as many as the part has.

    Examples
    --------
    >>> Effort("quick").pick(tiny=2, quick=50, full=1000)
    50
    >>> len(Effort("full", replicates=40).capped(list(cells("finance", "nmc", (100,), 1000))))
    40
    """

    name: Literal["tiny", "quick", "full"]
    replicates: int | None = None

    def pick(self, *, tiny: Value, quick: Value, full: Value) -> Value:
        """What this effort stands for."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.name]

    def capped(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks without those that are more replicates than wanted."""
        most = self.replicates
        return [task for task in tasks if most is None or task.replicate < most]


@dataclass(frozen=True)
class Task:
    """One run to do. What `size` means (N, T or evaluations) is the series' affair."""

    problem: str
    series: str
    size: int
    replicate: int


def cells(
    problem: str,
    series: str | Sequence[str],
    sizes: Sequence[int],
    replicates: int | Callable[[int], int],
) -> Iterator[Task]:
    """All tasks of some series at some sizes; `replicates` may depend on the size."""
    for one in [series] if isinstance(series, str) else series:
        for size in sizes:
            count = replicates(size) if callable(replicates) else replicates
            yield from (Task(problem, one, size, replicate) for replicate in range(count))


@dataclass(frozen=True)
class Outcome:
    """What one run found: its answer, how wrong it was, and what it cost.

    `trace` is for what a part wants to keep besides, as JSON: the way to the answer.
    """

    value: float
    error: float
    evaluations: int
    trace: str = field(default="", kw_only=True)
