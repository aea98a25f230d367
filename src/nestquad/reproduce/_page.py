"""One self-contained page: each figure with the claims it supports, and a verdict on each."""

from __future__ import annotations

import base64
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import scipy

from nestquad.reproduce._part import Content, Finding, Part, Table, Verdict
from nestquad.reproduce._runs import Runs
from nestquad.reproduce._task import Effort
from nestquad.reproduce._text import count, duration, number

__all__ = ["Picture", "Section", "write_page"]

# Words and signs, not colors alone: the page has to survive a printer.
_SIGNS = {"holds": "✓", "holds better": "✓✓", "does not hold": "✗", "cannot tell": "?"}
_LONG = 14

_STYLE = """
body { margin: 0; background: #fff; color: #222; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; border-bottom: 1px solid #ddd; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .3rem; }
p { max-width: 46rem; margin: .5rem 0; }
.soft, figcaption, footer { color: #5b5b5b; font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
caption { text-align: left; color: #5b5b5b; padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0; }
tr { border-bottom: 1px solid #eee; }
td { font-variant-numeric: tabular-nums; }
td.n, th.n { text-align: right; white-space: nowrap; }
figure { margin: 1rem 0; break-inside: avoid; }
img { max-width: 100%; max-height: 28rem; width: auto; height: auto; }
.v { white-space: nowrap; font-weight: 600; border-radius: .25rem; padding: .05rem .45rem; }
.v.holds { background: #e2f1ea; color: #00573f; }
.v.holds-better { background: #00805d; color: #fff; }
.v.does-not-hold { background: #fff; color: #8c2d28; border: 1px solid #8c2d28; }
.v.cannot-tell { background: #eee; color: #444; }
.counts { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: #0072b2; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f5f5; padding: .5rem; }
a { color: #0072b2; }
@media print { body { font-size: 10pt; } main { max-width: none; } .scroll { overflow: visible; } }
"""

_READ = (
    "Claims are the paper's, in our words; its number stands beside ours. Verdicts are computed "
    "from the runs, with 95 % intervals: “holds”, “holds better” (the number is better than "
    "claimed, or our default beats the published configuration), “does not hold” (the interval "
    "excludes the claim), and “cannot tell” where these runs leave it open. “As published” is the "
    "paper's own configuration run with this library; “ours (auto)” is what "
    "nestquad.estimate does when nobody chooses a method."
)


@dataclass(frozen=True)
class Picture:
    """A drawn figure: its bytes for the page, and the files beside it."""

    png: bytes
    files: list[str]


@dataclass(frozen=True)
class Section:
    """A part, what it found, and its figures by name."""

    part: Part
    content: Content
    runs: Runs
    pictures: Mapping[str, Picture]


def write_page(
    path: Path,
    sections: Sequence[Section],
    absent: Sequence[str],
    effort: Effort,
    seed: int,
    command: str | None,
) -> Path:
    """Write the page; returns its path."""
    heading = "Nested Expectations with Kernel Quadrature, reproduced"
    body = [f"<h1>{heading}</h1>", *_opening(sections, absent, effort, seed, command)]
    for section in sections:
        body += _section(section)
    body.append(_footer(sections))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n",
        encoding="utf-8",
    )
    return path


def _opening(
    sections: Sequence[Section],
    absent: Sequence[str],
    effort: Effort,
    seed: int,
    command: str | None,
) -> Iterator[str]:
    replicates = {
        "tiny": "a handful of replicates, which show that everything runs and nothing else",
        "quick": "fewer replicates than the paper and smaller top sizes; --full has the paper's",
        "full": "the paper's numbers of replicates (1000 and 100)",
    }[effort.name]
    if effort.replicates is not None:
        replicates += f", and at most {effort.replicates} of each cell"
    yield (
        "<p>Every figure and table of the experiments and appendices, computed anew: the published "
        "configuration first, our default beside it. This is the "
        f"<b>{effort.name}</b> run, seed {seed}: {replicates}.</p>"
    )
    if command:
        yield f"<pre>{escape(command)}</pre>"
    yield f'<p class="soft">{escape(_READ)}</p>'
    yield "<h2>All verdicts</h2>"
    yield _counts([verdict for section in sections for verdict in section.content.verdicts])
    yield _summary(sections)
    if absent:
        names = ", ".join(absent)
        yield f"<p>Not on this page: {escape(names)}.</p>"


def _counts(verdicts: Sequence[Verdict]) -> str:
    shown = [
        f"<span>{_badge(status)} {total}</span>"
        for status in _SIGNS
        if (total := sum(verdict.status == status for verdict in verdicts))
    ]
    return f'<div class="counts">{" ".join(shown)}</div>'


def _summary(sections: Sequence[Section]) -> str:
    rows = []
    for section in sections:
        for verdict in section.content.verdicts:
            link = f'<a href="#{section.part.name}">{escape(section.part.name)}</a>'
            cells = [_badge(verdict.status), escape(verdict.claim), escape(verdict.paper)]
            rows.append([link, *cells, escape(verdict.ours)])
    return _html_table(["part", "verdict", "claim", "paper", "measured here"], rows)


def _section(section: Section) -> Iterator[str]:
    part = section.part
    yield f'<h2 id="{part.name}">{escape(part.title)}</h2>'
    yield f'<p class="soft">In the paper: {escape(part.source)}.</p>'
    yield f"<p>{escape(part.about)}</p>"
    for finding in section.content.findings:
        yield from _finding(finding, section.pictures)
    if section.runs.by_task:
        total = len(section.runs.by_task)
        took = duration(section.runs.seconds)
        yield f'<p class="soft">{total:,} runs, {took} of CPU time.</p>'


def _finding(finding: Finding, pictures: Mapping[str, Picture]) -> Iterator[str]:
    if finding.title:
        yield f"<h3>{escape(finding.title)}</h3>"
    for paragraph in filter(None, finding.text.split("\n\n")):
        yield f"<p>{escape(paragraph)}</p>"
    if finding.drawing is not None:
        picture = pictures[finding.drawing.name]
        data = base64.b64encode(picture.png).decode("ascii")
        links = ", ".join(f'<a href="{file}">{Path(file).suffix[1:]}</a>' for file in picture.files)
        caption = escape(finding.drawing.caption)
        yield (
            f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
            f"<figcaption>{caption} ({links})</figcaption></figure>"
        )
    if finding.verdicts:
        rows = [
            [_badge(v.status), *(escape(text) for text in (v.claim, v.paper, v.ours, v.reason))]
            for v in finding.verdicts
        ]
        yield _html_table(["verdict", "claim", "paper", "measured here", "because"], rows)
    for table in finding.tables:
        yield _data_table(table)


def _data_table(table: Table) -> str:
    link = f'<a href="data/{table.name}.csv">{table.name}.csv</a>'
    if not table.columns:
        return f'<p class="soft">Numbers: {link}.</p>'
    rows = [[_cell(key, row.get(key)) for key in table.columns] for row in table.rows]
    made = _html_table(list(table.columns.values()), rows, numbers=True)
    caption = f"<p>{escape(table.caption)} ({link})</p>"
    if len(rows) <= _LONG:
        return caption + made
    return f"<details><summary>Numbers: {escape(table.name)}</summary>{caption}{made}</details>"


def _cell(key: str, value: object) -> str:
    if isinstance(value, float):
        return count(value) if key == "evaluations" else number(value)
    return escape("–" if value is None else str(value))


def _html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> str:
    kind = ' class="n"' if numbers else ""
    first = "".join(f"<th{kind if i else ''}>{escape(name)}</th>" for i, name in enumerate(head))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind if i else ''}>{c}</td>" for i, c in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{first}</tr>\n{body}</table></div>'


def _badge(status: str) -> str:
    return f'<span class="v {status.replace(" ", "-")}">{_SIGNS[status]} {status}</span>'


def _footer(sections: Sequence[Section]) -> str:
    from nestquad import __version__

    used = {task: run for section in sections for task, run in section.runs.by_task.items()}
    states = {run.sources for run in used.values()}
    mixed = f" The runs come from {len(states)} states of the code." if len(states) > 1 else ""
    took = duration(sum(run.seconds for run in used.values()))
    return (
        f"<footer><p>{len(used):,} runs, {took} of CPU time in all, each with one thread; every "
        f'run is a line of <a href="data/runs.csv">runs.csv</a>, every verdict of '
        f'<a href="data/verdicts.csv">verdicts.csv</a>.{mixed}</p>'
        f"<p>nestquad {__version__}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}, {os.cpu_count()} CPUs.</p></footer>"
    )
