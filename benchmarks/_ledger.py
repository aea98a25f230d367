"""Every run of the long studies, a line each: what is there is not run again."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import nestquad as nq
from nestquad.reproduce._runs import sources

__all__ = ["Ledger", "Outcome", "Run", "Task", "sources"]


@dataclass(frozen=True)
class Task:
    """One run to do. `goal` is a number of evaluations or a tolerance, as the study has it."""

    problem: str
    method: str
    goal: float
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What one run found.

    Of several answers, `error` (absolute) and `half_width` (of the 95 % interval) are the largest,
    and `covered` the share of the intervals that hold the exact value. `seconds` is CPU time beyond
    what was spent inside g, which is `g_seconds`. A run that raised has the `status` ``failed``, an
    error that is not a number, and its reason in `chosen`.
    """

    error: float
    half_width: float
    covered: float
    evaluations: int
    seconds: float
    g_seconds: float
    status: str
    chosen: str


@dataclass(frozen=True)
class Run(Outcome, Task):
    """A task, what came out, and which code it was: its version, and a hash of its sources."""

    version: str
    sources: str

    @property
    def task(self) -> Task:
        return Task(self.problem, self.method, self.goal, self.seed)

    @property
    def failed(self) -> bool:
        return not math.isfinite(self.error)

    @classmethod
    def of(cls, task: Task, outcome: Outcome) -> Run:
        return cls(*astuple(task), *astuple(outcome), nq.__version__, sources())


_KINDS = {"str": str, "int": int, "float": float}
_COLUMNS = {field.name: _KINDS[str(field.type)] for field in fields(Run)}


@dataclass
class Ledger:
    """The runs in a CSV file. Those of other versions stay in the file and are not looked at."""

    path: Path

    def __post_init__(self) -> None:
        self.runs: list[Run] = []
        self._others: list[Run] = []
        if self.path.exists():
            for run in _read(self.path):
                (self.runs if run.version == nq.__version__ else self._others).append(run)
        self._rewrite()  # leaves out the line that was being written when something ended it

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        done = {run.task for run in self.runs}
        return [task for task in dict.fromkeys(tasks) if task not in done]

    def append(self, run: Run) -> None:
        self.runs.append(run)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(_row(run))

    def drop(self, unwanted: Callable[[Run], bool]) -> None:
        self.runs = [run for run in self.runs if not unwanted(run)]
        self._rewrite()

    def _rewrite(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # In order, so that two files of the same runs are the same file.
        self.runs.sort(key=lambda run: (run.goal, run.problem, run.method, run.seed))
        draft = self.path.with_suffix(".new")
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(_COLUMNS)
            writer.writerows(_row(run) for run in [*self._others, *self.runs])
        draft.replace(self.path)


def _row(run: Run) -> list[object]:
    # Two digits more than anybody reads; goal and seed have to come back as they were.
    return [
        f"{value:.4g}" if isinstance(value, float) and name != "goal" else value
        for name, value in zip(_COLUMNS, astuple(run), strict=True)
    ]


def _read(path: Path) -> Iterable[Run]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if list(row) == list(_COLUMNS) and None not in row.values():
                yield Run(**{name: kind(row[name]) for name, kind in _COLUMNS.items()})
