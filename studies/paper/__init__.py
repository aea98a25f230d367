"""The paper's experiments again: figures, tables, and verdicts computed from the runs."""

from __future__ import annotations

import csv
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import nestquad as nq
from nestquad import InputError, MissingExtraError
from nestquad.errors import unknown_name
from nestquad.plots import save
from studies.paper.part import Effort, Part, Runs, Series
from studies.runner.collect import collect
from studies.runner.ledger import Ledger, Outcome, Task
from studies.runner.page import PAPER, Section, html_page
from studies.runner.result import Verdict
from studies.runner.text import duration

__all__ = ["can_run", "parts", "reproduce", "section_of"]

# Modules with a tuple PARTS, in the order of the page.
_PLACES = ("synthetic", "dimension", "ablation", "applications", "multilevel", "bayesopt")
_PLACES += ("conditional", "illustration", "rates", "tails", "theory", "remarks", "errata")
# Modules that an extra brings.
_MODULES = {"": (), "botorch": ("torch", "botorch")}

_READ = (
    "Claims are the paper's, in our words; its number stands beside ours. “Ours” marks what the "
    "paper does not claim: a measurement without a verdict. Verdicts are computed "
    "from the runs, with 95 % intervals: “holds”, “holds better” (what is claimed is reached, and "
    "the number is better), “does not hold” (the interval excludes the claim), and “cannot tell” "
    "where these runs leave it open. “Sensitivity” is the same with a setting that the paper "
    "leaves open. “As published” is the paper's own configuration run with this library; “ours "
    "(auto)” is what nestquad.estimate does when nobody chooses a method."
)


@lru_cache
def parts() -> dict[str, Part]:
    """All parts by name, in the order of the page."""
    modules = (import_module(f"studies.paper.{place}") for place in _PLACES)
    return {part.name: part for module in modules for part in module.PARTS}


def can_run(part: Part) -> bool:
    """Whether what its runs need is installed."""
    return all(find_spec(module) is not None for module in _MODULES[part.extra])


@lru_cache
def _series() -> dict[str, Series]:
    from studies.paper.series import SERIES

    own = {series.name: series for part in parts().values() for series in part.series}
    return {**SERIES, **own}


def run_task(task: Task, root: int) -> Outcome:
    """The run of a task: of one of the common series, or of one that a part brings."""
    return _series()[task.method].outcome(task, root)


def expected_seconds(task: Task) -> float:
    return _series()[task.method].seconds(task.size)


def reproduce(
    names: Sequence[str] = ("all",),
    out: str | Path = "results",
    *,
    effort: str = "quick",
    seed: int = 0,
    replicates: int | None = None,
    jobs: int = 1,
    fresh: bool = False,
    command: str = "",
    tell: Callable[[int, int, float], None] = lambda done, total, left: None,
) -> tuple[Path, list[tuple[str, Verdict]]]:
    """Run parts of the reproduction and write figures, tables and the page.

    Every run is kept in ``out/data/runs.csv`` as soon as it is done, so an interrupted call
    continues where it stopped. The page shows the parts asked for and those whose runs are
    complete.

    Parameters
    ----------
    names
        Parts, or ``"all"`` of those whose extras are installed.
    out
        The folder to write to.
    effort
        ``"quick"`` (minutes), ``"full"`` (the paper's replicates: hours) or ``"tiny"`` (seconds).
    seed, jobs
        The same seed gives the same numbers, whatever the number of processes; ``jobs=0`` runs in
        this process.
    replicates
        Most replicates of each cell; None: as many as the effort has.
    fresh
        Forget the finished runs of this seed.
    command
        The command to show on the page.
    tell
        Receives runs done, runs in all, and the seconds left.

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
    if seed < 0:
        raise InputError("seed", repr(seed), "a whole number of at least 0")
    if replicates is not None and replicates < 1:
        raise InputError("replicates", repr(replicates), "a number of at least 1, or None")
    level = Effort(effort, replicates)
    chosen = [p for n, p in known.items() if n in names or ("all" in names and can_run(p))]
    for part in chosen:
        if not can_run(part):
            raise MissingExtraError(f"The part {part.name!r} of the reproduction", part.extra)
    out = Path(out)
    ledger = Ledger(out / "data" / "runs.csv", seed)
    if fresh:
        ledger.drop()
    asked = {part.name: level.capped(part.tasks(level)) for part in known.values()}
    tasks = [task for part in chosen for task in asked[part.name]]
    run = partial(run_task, root=seed)
    collect(ledger, tasks, run, jobs, expected=expected_seconds, tell=tell)
    shown = {
        name: Runs.of(ledger, tasks)
        for name, tasks in asked.items()
        if known[name] in chosen or (tasks and not ledger.missing(tasks))
    }
    sections = [section_of(known[name], runs, level) for name, runs in shown.items()]
    for section in sections:
        _write_files(section, out)
    results = [(section.name, verdict) for section in sections for verdict in section.verdicts]
    rows = [{"part": name, **asdict(verdict)} for name, verdict in results]
    _write_rows(out / "data" / "verdicts.csv", rows)
    page, figures = out / "index.html", out / "figures"
    heading = "Nested Expectations with Kernel Quadrature, reproduced"
    opening = _opening(level, seed, command, [p for n, p in known.items() if n not in shown])
    footer = _footer(list(shown.values()))
    text = html_page(heading, opening, sections, PAPER, figures, footer)
    page.write_text(text, encoding="utf-8")
    return page, results


def section_of(part: Part, runs: Runs, effort: Effort, *, provenance: bool = True) -> Section:
    """A part on the page, with what its runs show."""
    total = len(runs.by_task)
    took = f"{total:,} runs, {duration(runs.seconds)} of CPU time." if total and provenance else ""
    findings = part.analyze(runs, effort)
    return Section(part.name, part.title, part.about, findings, part.source, took)


def _write_files(section: Section, out: Path) -> None:
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for finding in section.findings:
        for table in finding.tables:
            _write_rows(out / "data" / f"{table.name}.csv", table.rows)
        if finding.drawing is not None:
            figure = finding.drawing.draw()
            for kind in ("png", "svg"):
                save(figure, out / "figures" / f"{finding.drawing.name}.{kind}")


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _opening(effort: Effort, seed: int, command: str, absent: Sequence[Part]) -> list[str]:
    replicates = {
        "tiny": "a handful of replicates, which show that everything runs and nothing else",
        "quick": "fewer replicates than the paper and smaller top sizes; --full has the paper's",
        "full": "the paper's numbers of replicates (1000 and 100)",
    }[effort.name]
    if effort.replicates is not None:
        replicates += f", and at most {effort.replicates} of each cell"
    results = [
        "<p>Every figure and table of the experiments and appendices, computed anew: the published "
        "configuration first, our default beside it. This is the "
        f"<b>{effort.name}</b> run, seed {seed}: {replicates}.</p>"
    ]
    if command:
        results.append(f"<pre>{escape(command)}</pre>")
    results.append(f'<p class="soft">{escape(_READ)}</p>')
    names = [
        f"{p.title} (needs the extra {p.extra}: pip install '.[{p.extra}]' in a clone)"
        for p in absent
        if not can_run(p)
    ]
    if names:
        results.append(f"<p>Not on this page: {escape(', '.join(names))}.</p>")
    return results


def _footer(shown: Sequence[Runs]) -> str:
    used = {task: run for runs in shown for task, run in runs.by_task.items()}
    states = {run.sources for run in used.values()}
    mixed = f" The runs come from {len(states)} states of the code." if len(states) > 1 else ""
    took = duration(sum(run.seconds for run in used.values()))
    return (
        f"<p>{len(used):,} runs, {took} of CPU time in all, each with one thread; every "
        f'run is a line of <a href="data/runs.csv">runs.csv</a>, every verdict of '
        f'<a href="data/verdicts.csv">verdicts.csv</a>.{mixed}</p>'
        f"<p>nestquad {nq.__version__}, Python {platform.python_version()}, numpy "
        f"{np.__version__}, scipy {scipy.__version__}, {os.cpu_count()} CPUs.</p>"
    )
