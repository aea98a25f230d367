"""What a study is, what it returns, and how that is kept on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestquad.result import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """How thoroughly to measure."""

    seeds: int = 50
    quick: bool = False
    # What follows is for the long studies, which keep every run in `data` and do what is missing.
    other_seeds: int = 20
    problems: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    budgets: tuple[float, ...] = ()
    jobs: int = 1
    fresh: bool = False
    data: Path = Path("docs/data")

    @property
    def options(self) -> str:
        """The command-line options that say so."""
        seeds = "" if self.seeds == Settings.seeds else f" --seeds {self.seeds}"
        others = self.other_seeds != Settings.other_seeds and not self.quick
        other_seeds = f" --other-seeds {self.other_seeds}" if others else ""
        return seeds + other_seeds + (" --quick" if self.quick else "")

    def selects(self, problem: str, method: str, goal: float) -> bool:
        """Whether a run is asked for; nothing given stands for everything."""
        return (
            (not self.problems or problem in self.problems)
            and (not self.methods or method in self.methods)
            and (not self.budgets or goal in self.budgets)
        )

    def share(self, part: float, of: int | None = None) -> int:
        """A part of the seeds, for runs that take longer; two at least."""
        return max(round(part * (self.seeds if of is None else of)), 2)


@dataclass(frozen=True)
class Column:
    """`form` is the name of a format in `benchmarks._page`."""

    key: str
    heading: str
    form: str = "text"


@dataclass(frozen=True)
class Table:
    """Rows of one kind; those not `shown` are kept for figures and for readers of the JSON."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[dict[str, Any], ...]
    shown: bool = True


@dataclass(frozen=True)
class Verdict:
    """A promise, and what came out. `met` is None where this run could not tell."""

    claim: str
    target: str
    measured: str
    met: bool | None


@dataclass(frozen=True)
class Result:
    tables: tuple[Table, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    command: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plain(asdict(self)), indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Result:
        data = json.loads(path.read_text(encoding="utf-8"))
        tables = tuple(
            Table(
                table["name"],
                table["caption"],
                tuple(Column(**column) for column in table["columns"]),
                tuple(table["rows"]),
                table.get("shown", True),
            )
            for table in data.pop("tables")
        )
        verdicts = tuple(Verdict(**verdict) for verdict in data.pop("verdicts"))
        notes = tuple(data.pop("notes"))
        return cls(tables, verdicts, notes, **data)


@dataclass(frozen=True)
class Drawing:
    """A figure, from a result alone, new or loaded: it is drawn again without running anything.

    `name` tells several figures of a study apart.
    """

    draw: Callable[[Result], Figure]
    caption: str
    name: str = ""

    def file(self, study: str) -> str:
        return f"bench_{study}{'_' if self.name else ''}{self.name}.png"


@dataclass(frozen=True)
class Study:
    """A question and how to answer it. `about` is Markdown: what is run and what for."""

    name: str
    title: str
    about: str
    run: Callable[[Settings], Result]
    drawings: tuple[Drawing, ...] = ()
