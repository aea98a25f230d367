"""The paper's experiments again: figures, tables, and verdicts computed from what came out."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from nestquad.errors import InputError, MissingExtraError, unknown_name
from nestquad.plots import save
from nestquad.reproduce._collect import collect
from nestquad.reproduce._page import Picture, Section, write_page
from nestquad.reproduce._part import Content, Part, Table, Verdict
from nestquad.reproduce._registry import absent, can_run, parts
from nestquad.reproduce._runs import Ledger, Runs
from nestquad.reproduce._task import Effort

__all__ = ["part_names", "reproduce"]


def part_names() -> list[str]:
    """The parts that there are, in the order of the page.

    Examples
    --------
    >>> part_names()[0]
    'synthetic'
    """
    return list(parts())


def reproduce(
    names: Sequence[str] = ("all",),
    out: str | Path = "results",
    *,
    effort: str = "quick",
    seed: int = 0,
    replicates: int | None = None,
    jobs: int = 1,
    fresh: bool = False,
    command: str | None = None,
    tell: Callable[[int, int, float], None] = lambda done, total, left: None,
) -> tuple[Path, list[tuple[str, Verdict]]]:
    """Run parts of the reproduction and write figures, tables and the page.

    Every run is kept in ``out/data/runs.csv`` as soon as it is done, and is not run again, so an
    interrupted call goes on where it was. The page shows the parts asked for and those whose runs
    are all there.

    Parameters
    ----------
    names
        Parts, or ``"all"`` of those whose extras are installed.
    out
        The folder to write to.
    effort
        ``"quick"`` (minutes), ``"full"`` (the paper's replicates: hours) or ``"tiny"`` (seconds,
        to see that everything runs).
    seed, jobs
        The same seed gives the same numbers, whatever the number of processes; ``jobs=0`` runs in
        this process.
    replicates
        Run at most so many of each cell; None runs as many as the effort has.
    fresh
        Forget the runs of this seed that are there.
    command
        What to show on the page as the command that made it.
    tell
        Hears how many runs are done, of how many, and the seconds left.

    Returns
    -------
    tuple
        The page, and the verdicts with the names of their parts.
    """
    known = parts()
    if effort not in ("tiny", "quick", "full"):
        raise unknown_name("effort", effort, ("tiny", "quick", "full"))
    for name in names:
        if name != "all" and name not in known:
            raise unknown_name("part", name, ("all", *known))
    if jobs < 0:
        raise InputError("jobs", repr(jobs), "a number of processes, 0 for this one")
    if replicates is not None and replicates < 1:
        raise InputError("replicates", repr(replicates), "a number of at least 1, or None")
    level = Effort(effort, replicates)  # type: ignore[arg-type]
    chosen = [p for n, p in known.items() if n in names or ("all" in names and can_run(p))]
    for part in chosen:
        if not can_run(part):
            raise MissingExtraError(f"The part {part.name!r} of the reproduction", part.extra)
    out = Path(out)
    ledger = Ledger(out / "data" / "runs.csv", seed)
    if fresh:
        ledger.forget()
    asked = {part.name: level.capped(part.tasks(level)) for part in known.values()}
    collect(ledger, [task for part in chosen for task in asked[part.name]], jobs, tell)
    sections = []
    for part in known.values():
        tasks = asked[part.name]
        if part in chosen or (tasks and not ledger.missing(tasks)):
            sections.append(_section(part, Runs.of(ledger, tasks), level, out))
    found = [(s.part.name, verdict) for s in sections for verdict in s.content.verdicts]
    _write_verdicts(out / "data" / "verdicts.csv", found)
    shown = {section.part.name for section in sections}
    missing = [
        f"{part.title} (needs the extra {part.extra}: pip install '.[{part.extra}]' in a clone)"
        for part in known.values()
        if part.name not in shown and not can_run(part)
    ]
    page = write_page(out / "index.html", sections, [*absent(), *missing], level, seed, command)
    return page, found


def _section(part: Part, runs: Runs, effort: Effort, out: Path) -> Section:
    content: Content = part.analyze(runs, effort)
    pictures = {}
    for finding in content.findings:
        for table in finding.tables:
            _write_table(out / "data" / f"{table.name}.csv", table)
        if finding.drawing is not None:
            name = finding.drawing.name
            figure = finding.drawing.draw()
            (out / "figures").mkdir(parents=True, exist_ok=True)
            files = [save(figure, out / "figures" / f"{name}.{kind}") for kind in ("png", "svg")]
            names = [file.relative_to(out).as_posix() for file in files]
            pictures[name] = Picture(files[0].read_bytes(), names)
    return Section(part, content, runs, pictures)


def _write_table(path: Path, table: Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(key for row in table.rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(table.rows)


def _write_verdicts(path: Path, found: Sequence[tuple[str, Verdict]]) -> None:
    rows = tuple({"part": name, **asdict(verdict)} for name, verdict in found)
    _write_table(path, Table("verdicts", "", rows))
