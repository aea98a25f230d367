"""Findings of a study: verdicts, tables and figures, and the JSON file that keeps them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy

import nestquad as nq
from nestquad.result import plain
from studies.runner.collect import THREAD_VARIABLES
from studies.runner.ledger import sources

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

# "ours": measured, but claimed by nobody else, so that there is nothing to judge or to count.
Status = Literal["holds", "holds better", "does not hold", "cannot tell", "ours"]
_STATUS: dict[bool | None, Status] = {True: "holds", False: "does not hold", None: "cannot tell"}


@dataclass(frozen=True)
class Verdict:
    """A claim or a promise, what it asks for, what was measured, and whether it holds.

    `sensitivity` is the same measurement with a setting that the claim leaves open.
    """

    claim: str
    target: str
    measured: str
    status: Status
    reason: str = ""
    sensitivity: str = ""

    @classmethod
    def of(cls, claim: str, target: str, measured: str, met: bool | None) -> Verdict:
        """A promise that is kept or not; None where the runs cannot tell."""
        return cls(claim, target, measured, _STATUS[None if met is None else bool(met)])

    @property
    def met(self) -> bool | None:
        return None if self.status in ("cannot tell", "ours") else self.status != "does not hold"


@dataclass(frozen=True)
class Column:
    """A column of a table. `form` names a format of `page`; empty: by type and key."""

    key: str
    heading: str
    form: str = ""


def columns(heads: str | Mapping[str, str]) -> tuple[Column, ...]:
    """Columns from headings by key, or from a text: ``"problem; error = mean error: number"``."""
    if not isinstance(heads, str):
        return tuple(Column(key, heading) for key, heading in heads.items())
    results = []
    for one in heads.split(";"):
        names, _, form = one.partition(":")
        key, _, heading = names.partition("=")
        results.append(Column(key.strip(), (heading or key).strip(), form.strip()))
    return tuple(results)


@dataclass(frozen=True)
class Table:
    """Rows of one kind; without columns, for files and figures only."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn, and its caption.

    The drawing of a `Study` is a function of its `Result`, new or loaded: it is drawn again
    without running anything. That of a `Finding` has no arguments.
    """

    name: str
    caption: str
    draw: Callable[..., Figure]


@dataclass(frozen=True)
class Finding:
    """What stands together on a page: words, a figure, tables, and the claims they support."""

    title: str = ""
    text: str = ""
    drawing: Drawing | None = None
    verdicts: tuple[Verdict, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """Tables, verdicts and notes of a study, with their origin."""

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
            Table(t["name"], t["caption"], tuple(Column(**c) for c in t["columns"]), (*t["rows"],))
            for t in data.pop("tables")
        )
        verdicts = tuple(Verdict(**v) for v in data.pop("verdicts"))
        return cls(tables, verdicts, tuple(data.pop("notes")), **data)


def environment() -> dict[str, Any]:
    """What a reader needs to know about the machine and the code."""
    return {
        "cpus": os.cpu_count(),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "version": nq.__version__,
        "sources": sources(),
    }


def verdicts_of(findings: Sequence[Finding]) -> list[Verdict]:
    return [verdict for finding in findings for verdict in finding.verdicts]
