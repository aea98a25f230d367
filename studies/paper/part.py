"""Parts of the reproduction: how much to run, its methods and runs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from studies.paper.curves import Curve
from studies.runner.ledger import Ledger, Outcome, Run, Task
from studies.runner.result import Finding


@dataclass(frozen=True)
class Effort:
    """How much to run.

    `replicates` is that of every cell; None: as many as the part lists. `tiny` is the first three
    sizes, halved: does it run at all?
    """

    replicates: int | None = None
    tiny: bool = False

    def runs(self, listed: int) -> int:
        """Replicates of a cell for which the part lists so many."""
        return listed if self.replicates is None else self.replicates

    def sizes(self, *listed: int) -> tuple[int, ...]:
        """Sizes of a series for which the part lists these."""
        return tuple(max(n // 2, 2) for n in listed[:3]) if self.tiny else listed


@dataclass(frozen=True)
class Series:
    """A method in one configuration, as a function of a task.

    Series with the same `stream` (default: the name) draw the same points, for comparisons in
    pairs.
    """

    name: str
    run: Callable[[Task, np.random.SeedSequence], Outcome]
    stream: str = ""

    def outcome(self, task: Task, root: int) -> Outcome:
        """The run of a task, with a seed sequence of its own."""
        name = zlib.crc32(f"{task.problem} {self.stream or self.name}".encode())
        return self.run(task, np.random.SeedSequence([root, task.size, task.seed, name]))


@dataclass(frozen=True)
class Runs:
    """The runs of one part, for reading."""

    by_task: dict[Task, Run]

    @classmethod
    def of(cls, ledger: Ledger, tasks: Sequence[Task]) -> Runs:
        return cls({task: ledger.runs[task] for task in tasks})

    def of_cell(self, problem: str, series: str, size: float) -> list[Run]:
        """Replicates of one cell, in order."""
        key = (problem, series, size)
        return [r for t, r in self.by_task.items() if (t.problem, t.method, t.goal) == key]

    def sizes(self, problem: str, series: str) -> list[int]:
        return sorted({t.size for t in self.by_task if (t.problem, t.method) == (problem, series)})

    def errors(self, problem: str, series: str) -> dict[int, np.ndarray]:
        """Absolute errors of the replicates by size."""
        return {
            n: np.array([run.error for run in self.of_cell(problem, series, n)])
            for n in self.sizes(problem, series)
        }

    def curve(
        self, problem: str, series: str, error: Callable[[Run], float] | None = None
    ) -> Curve:
        """Error against cost; `error` measures another than the absolute one."""
        results = [self.of_cell(problem, series, n) for n in self.sizes(problem, series)]
        measure = error or (lambda run: run.error)
        return Curve(
            np.array([np.mean([run.evaluations for run in cell]) for cell in results]),
            tuple(np.array([measure(run) for run in cell]) for cell in results),
        )


@dataclass(frozen=True)
class Part:
    """One part of the reproduction.

    `source` is its place in the paper, `about` what is run. `tasks` lists the runs of an effort,
    `analyze` makes findings from exactly those. `series` are configurations that only this part
    uses. A part whose runs need an `extra` of nestquad runs only where it is named. `kept` says
    what is known of the runs behind a section that is kept from an earlier page.
    """

    name: str
    title: str
    source: str
    about: str
    tasks: Callable[[Effort], Sequence[Task]]
    analyze: Callable[[Runs], Sequence[Finding]]
    series: tuple[Series, ...] = ()
    extra: str = ""
    kept: str = ""
