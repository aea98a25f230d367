"""Every run, a line each: what is there is not run again."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import numpy as np

from nestquad.reproduce._curve import Curve
from nestquad.reproduce._task import Outcome, Task

__all__ = ["Ledger", "Run", "Runs", "sources"]


@dataclass(frozen=True)
class Run(Outcome, Task):
    """A task, what came out, and which code and seed it was.

    `seconds` is CPU time.
    """

    seconds: float
    seed: int
    sources: str

    @property
    def task(self) -> Task:
        return Task(self.problem, self.series, self.size, self.replicate)


_KINDS: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float}
_COLUMNS = {field.name: _KINDS[str(field.type)] for field in fields(Run)}
# Files of earlier versions have no traces; their runs are as good as ever.
_EARLIER = [name for name in _COLUMNS if name != "trace"]


@dataclass
class Ledger:
    """The runs in a CSV file. Those with another seed stay in the file and are not looked at."""

    path: Path
    seed: int

    def __post_init__(self) -> None:
        self.runs: dict[Task, Run] = {}
        self._others: list[Run] = []
        self._file: TextIO | None = None
        if self.path.exists():
            for run in _read(self.path):
                if run.seed == self.seed:
                    self.runs[run.task] = run
                else:
                    self._others.append(run)

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        return [task for task in dict.fromkeys(tasks) if task not in self.runs]

    def append(self, run: Run) -> None:
        """Keep a run, on disk at once: an interruption loses none."""
        if self._file is None:
            self.tidy()  # leaves out a line that was cut short when something ended it
            self._file = self.path.open("a", newline="", encoding="utf-8")
        self.runs[run.task] = run
        csv.writer(self._file).writerow(astuple(run))
        self._file.flush()

    def forget(self) -> None:
        """Start over with this seed."""
        self.runs = {}
        self.tidy()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self.tidy()

    def tidy(self) -> None:
        """Write the file anew, in order: the same runs make the same file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        ordered = sorted(
            [*self._others, *self.runs.values()],
            key=lambda run: (run.seed, run.problem, run.series, run.size, run.replicate),
        )
        draft = self.path.with_suffix(".new")
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(_COLUMNS)
            writer.writerows(astuple(run) for run in ordered)
        draft.replace(self.path)


def _read(path: Path) -> Iterable[Run]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if list(row) in (list(_COLUMNS), _EARLIER) and None not in row.values():
                values = {name: _COLUMNS[name](text) for name, text in row.items()}
                yield Run(**values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Runs:
    """The runs of one part, for reading."""

    by_task: dict[Task, Run]

    @classmethod
    def of(cls, ledger: Ledger, tasks: Sequence[Task]) -> Runs:
        return cls({task: ledger.runs[task] for task in tasks})

    def of_cell(self, problem: str, series: str, size: int) -> list[Run]:
        """Replicates of one cell, in order."""
        key = (problem, series, size)
        return [r for t, r in self.by_task.items() if (t.problem, t.series, t.size) == key]

    def sizes(self, problem: str, series: str) -> list[int]:
        return sorted({t.size for t in self.by_task if (t.problem, t.series) == (problem, series)})

    def curve(
        self, problem: str, series: str, error: Callable[[Run], float] | None = None
    ) -> Curve:
        """Error against cost; `error` measures another than the absolute one."""
        found = [self.of_cell(problem, series, n) for n in self.sizes(problem, series)]
        measure = error or (lambda run: run.error)
        return Curve(
            np.array([np.mean([run.evaluations for run in cell]) for cell in found]),
            tuple(np.array([measure(run) for run in cell]) for cell in found),
        )

    @property
    def seconds(self) -> float:
        return sum(run.seconds for run in self.by_task.values())

    @property
    def sources(self) -> set[str]:
        return {run.sources for run in self.by_task.values()}


@lru_cache
def sources() -> str:
    """A hash of the library's files: two runs with the same one ran the same code.

    Without those that only draw, write and parse, which change no number.
    """
    folder, here = Path(__file__).parents[1], Path(__file__).parent
    aside = {folder / "cli.py", folder / "report.py", *(folder / "plots").glob("*.py")}
    aside |= set(here.glob("*.py")) - {here / "_series.py"}
    digest = hashlib.blake2s(digest_size=4)
    for path in sorted(set(folder.rglob("*.py")) - aside):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
