"""Parts of the reproduction: how much to run, its methods and runs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from studies.paper.curves import Curve
from studies.runner.ledger import Ledger, Outcome, Run, Task
from studies.runner.result import Finding

Value = TypeVar("Value")


@dataclass(frozen=True)
class Effort:
    """How much to run: ``tiny`` shows that it runs, ``quick`` what comes out, ``full`` the paper.

    `replicates` is the most of each cell; None: as many as the part has.
    """

    name: Literal["tiny", "quick", "full"]
    replicates: int | None = None

    def pick(self, *, tiny: Value, quick: Value, full: Value) -> Value:
        """What this effort stands for."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.name]

    def capped(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks, without replicates beyond the limit."""
        most = self.replicates
        return [task for task in tasks if most is None or task.seed < most]


@dataclass(frozen=True)
class Series:
    """A method in one configuration, as a function of a task.

    `seconds` is the rough time of a run of a given size. Series with the same `stream` (default:
    the name) draw the same points, for comparisons in pairs.
    """

    name: str
    label: str
    run: Callable[[Task, np.random.SeedSequence], Outcome]
    seconds: Callable[[int], float] = lambda size: 0.05
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

    @property
    def seconds(self) -> float:
        return sum(run.seconds for run in self.by_task.values())


@dataclass(frozen=True)
class Part:
    """One part of the reproduction.

    `source` is its place in the paper, `about` what is run. `tasks` lists the runs of an effort,
    `analyze` makes findings from exactly those. `series` are configurations that only this part
    uses. `extra` is the extra of nestquad that its runs need; drawing and judging never do.
    """

    name: str
    title: str
    source: str
    about: str
    tasks: Callable[[Effort], Sequence[Task]]
    analyze: Callable[[Runs, Effort], Sequence[Finding]]
    series: tuple[Series, ...] = ()
    extra: str = ""
