"""What a part of the reproduction is, and what it hands to the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nestquad.reproduce._runs import Runs
from nestquad.reproduce._task import Effort, Outcome, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Content", "Drawing", "Finding", "Part", "Series", "Status", "Table", "Verdict"]

Status = Literal["holds", "holds better", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Series:
    """A method in one configuration, as a function of a task.

    Attributes
    ----------
    name
        What tasks and files call it.
    label
        What figures call it.
    run
        ``run(task, rng)``, where `rng` is a seed sequence of the task's own.
    seconds
        Roughly what a run of this size takes, to tell how much time is left.
    stream
        Series with the same stream draw the same points, for comparisons in pairs; default: its
        name.
    """

    name: str
    label: str
    run: Callable[[Task, np.random.SeedSequence], Outcome]
    seconds: Callable[[int], float] = lambda size: 0.05
    stream: str = ""


@dataclass(frozen=True)
class Verdict:
    """A claim of the paper (or of ours), the numbers on both sides, and what they say."""

    claim: str
    paper: str
    ours: str
    status: Status
    reason: str


@dataclass(frozen=True)
class Table:
    """Rows that become a CSV file, and on the page a table of the `columns` given.

    `columns` maps keys of the rows to headings; without any, the table is only a file.
    """

    name: str
    caption: str
    rows: tuple[Mapping[str, Any], ...]
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn, and what a reader should see in it."""

    name: str
    caption: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Finding:
    """What stands together on the page: words, a figure, tables, and the claims they support."""

    title: str = ""
    text: str = ""
    drawing: Drawing | None = None
    verdicts: tuple[Verdict, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Content:
    """All that a part has to say."""

    findings: tuple[Finding, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for finding in self.findings for verdict in finding.verdicts]


@dataclass(frozen=True)
class Part:
    """One part of the reproduction.

    Attributes
    ----------
    name
        As on the command line.
    title
        As on the page.
    source
        Where in the paper.
    about
        What is run, in a few sentences.
    tasks
        The runs that an effort asks for.
    analyze
        From exactly those runs to what is shown.
    series
        Configurations that only this part uses.
    extra
        The extra of nestquad that its runs need; drawing and judging them never does.
    """

    name: str
    title: str
    source: str
    about: str
    tasks: Callable[[Effort], Sequence[Task]]
    analyze: Callable[[Runs, Effort], Content]
    series: tuple[Series, ...] = ()
    extra: str = ""
