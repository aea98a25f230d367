"""Ledger of runs in a CSV file, compressed if its name ends with .gz; finished runs are skipped."""

from __future__ import annotations

import ast
import csv
import gzip
import hashlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

import nestquad as nq


@dataclass(frozen=True)
class Task:
    """One run to do.

    `method` is a method, or a configuration of one, by name. `goal` is a size, a number of
    evaluations or a tolerance, as the study defines it. `seed` numbers the replicates.
    """

    problem: str
    method: str
    goal: float
    seed: int

    @property
    def size(self) -> int:
        """The goal as a whole number."""
        return int(self.goal)


def cells(
    problem: str,
    methods: str | Sequence[str],
    goals: Sequence[float],
    replicates: int | Callable[[float], int],
) -> Iterator[Task]:
    """All tasks of some methods at some goals; `replicates` may depend on the goal."""
    for method in [methods] if isinstance(methods, str) else methods:
        for goal in goals:
            count = replicates(goal) if callable(replicates) else replicates
            yield from (Task(problem, method, goal, seed) for seed in range(count))


@dataclass(frozen=True)
class Outcome:
    """Outcome of one run.

    Of several answers, `error` (absolute) and `half_width` (of the 95 % interval) are the largest,
    and `covered` is the share of intervals that contain the exact value. `seconds` is CPU time
    beyond `g_seconds`, the time inside g; left out, it is measured by `collect`. A run that raised
    has the status ``failed``, an error that is not a number, and the reason in `chosen`. `trace`
    is JSON for whatever else a study keeps.
    """

    error: float
    evaluations: int
    value: float = math.nan
    half_width: float = math.nan
    covered: float = math.nan
    seconds: float = math.nan
    g_seconds: float = 0.0
    status: str = "done"
    chosen: str = ""
    trace: str = ""

    @classmethod
    def failure(cls, error: Exception, evaluations: int = 0, **others: float) -> Outcome:
        """Outcome of a run that raised: a method that breaks on one problem ends no study."""
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        fields: dict[str, Any] = {"covered": 0.0, "seconds": 0.0, **others}
        return Outcome(math.nan, evaluations, status="failed", chosen=reason, **fields)


@dataclass(frozen=True)
class Run(Outcome, Task):
    """A task with its outcome, the root of its seeds, and the code: version and source hash."""

    root: int = 0
    version: str = ""
    sources: str = ""

    @property
    def task(self) -> Task:
        return Task(self.problem, self.method, self.goal, self.seed)

    @property
    def failed(self) -> bool:
        return not math.isfinite(self.error)

    @classmethod
    def of(cls, task: Task, outcome: Outcome, root: int = 0) -> Run:
        return cls(**asdict(task), **asdict(outcome), root=root, version=nq.__version__,
                   sources=sources())  # fmt: skip


_KINDS: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float}
_COLUMNS = {field.name: _KINDS[str(field.type)] for field in fields(Run)}


@dataclass
class Ledger:
    """The runs in a CSV file.

    `runs` has those of this root of seeds, whatever the code that made them: `Run.sources` tells.
    `others`, of other roots, stay in the file.
    """

    path: Path
    root: int = 0

    def __post_init__(self) -> None:
        self.runs: dict[Task, Run] = {}
        self.others: list[Run] = []
        self._open = False
        for run in _read(self.path) if self.path.exists() else ():
            if run.root != self.root:
                self.others.append(run)
            elif not run.version.endswith("earlier"):  # of code that had been repeated
                self.runs[run.task] = run

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        return [task for task in dict.fromkeys(tasks) if task not in self.runs]

    def append(self, run: Run) -> None:
        """Keep a run, on disk at once: an interruption loses none."""
        if not self._open:
            self.tidy()  # leaves out a line that was cut short by an interruption
            self._open = True
        self.runs[run.task] = run
        with _open_text(self.path, self.path, "a") as file:
            csv.writer(file).writerow(_row(run))

    def drop(self, unwanted: Callable[[Run], bool] = lambda run: True) -> None:
        """Forget runs, so that they are run again."""
        self.runs = {task: run for task, run in self.runs.items() if not unwanted(run)}
        self.tidy()

    def tidy(self) -> None:
        """Rewrite the file in order: the same runs make the same file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._open = False
        ordered = sorted(self.runs.values(), key=by_goal)
        draft = self.path.with_suffix(".new")
        with _open_text(draft, self.path, "w") as file:
            writer = csv.writer(file)
            writer.writerow(_COLUMNS)
            writer.writerows(map(_row, [*self.others, *ordered]))
        draft.replace(self.path)


def by_goal(run: Run) -> tuple[float, str, str, int]:
    """Key of the order of a ledger."""
    return run.goal, run.problem, run.method, run.seed


def _open_text(path: Path, named: Path, mode: str) -> TextIO:
    """Text of a file, through gzip where the name of the ledger asks for it.

    The time of writing stays out of the header: the same runs make the same bytes.
    """
    if named.suffix != ".gz":
        return path.open(mode, newline="", encoding="utf-8")
    binary = gzip.GzipFile(path, f"{mode}b", mtime=0)
    return io.TextIOWrapper(binary, newline="", encoding="utf-8")


def _row(run: Run) -> list[object]:
    return ["" if value != value else value for value in asdict(run).values()]


def _read(path: Path) -> Iterator[Run]:
    with _open_text(path, path, "r") as file:
        for row in csv.DictReader(_until_cut(file)):
            if None in row or None in row.values():
                continue
            known = {name: text for name, text in row.items() if name in _COLUMNS}
            values = {
                name: math.nan if text == "" and _COLUMNS[name] is float else _COLUMNS[name](text)
                for name, text in known.items()
            }
            yield Run(**values)


def _until_cut(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a file, up to where an interruption cut a compressed one short."""
    try:
        yield from lines
    except EOFError:
        return


def code_of(paths: Iterable[Path]) -> str:
    """A hash of modules; their comments, docstrings and layout do not matter."""
    digest = hashlib.blake2s(digest_size=4)
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(
                node
            ):
                node.body = node.body[1:]
        digest.update(ast.dump(tree).encode())
    return digest.hexdigest()


# Parts of the library that draw, write and parse: they change no number.
_ASIDE = {"cli", "pages", "plots", "reproduce.py"}


@lru_cache
def sources() -> str:
    """A hash of the library's files and of the paper's configurations.

    Two runs with the same hash ran the same code.
    """
    folder, studies = Path(nq.__file__).parent, Path(__file__).parents[1]
    digest = hashlib.blake2s(digest_size=4)
    inside = [p for p in folder.rglob("*.py") if p.relative_to(folder).parts[0] not in _ASIDE]
    for base, paths in ((folder, inside), (studies, [studies / "paper" / "series.py"])):
        for path in sorted(paths):
            digest.update(path.relative_to(base).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
