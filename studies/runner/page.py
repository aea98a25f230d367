"""Pages: sections of findings with their verdicts, as Markdown or as self-contained HTML."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from studies.runner.result import Column, Finding, Table, Verdict, verdicts_of
from studies.runner.text import count, number, seconds, times


@dataclass(frozen=True)
class Section:
    """A study on a page: `about` and `provenance` are its first and its last words."""

    name: str
    title: str
    about: str
    findings: Sequence[Finding]
    source: str = ""
    provenance: str = ""

    @property
    def verdicts(self) -> list[Verdict]:
        return verdicts_of(self.findings)


_SUBSCRIPT = re.compile(r"((?<![^\W_])[^\W\d_]|‖)_(\d+\.\d+|[A-Za-z0-9θ]+)")
_EXPONENT = re.compile(r"\^(?:\(((?:[^()]|\([^()]*\))*)\)|(−?[\w.]*\w))")


def plain_markdown(text: str) -> str:
    """Text whose signs Markdown leaves alone, subscripts and exponents off the line.

    Examples
    --------
    >>> plain_markdown("λ_0 N^(−2s/d), Δ^−1.9, as_published.")
    'λ<sub>0</sub> N<sup>−2s/d</sup>, Δ<sup>−1.9</sup>, as\\\\_published.'
    """
    text = _SUBSCRIPT.sub(r"\1<sub>\2</sub>", text)
    for sign in "\\_*|[]":
        text = text.replace(sign, f"\\{sign}")
    return _EXPONENT.sub(lambda m: f"<sup>{m[1] or m[2]}</sup>", text)


@dataclass(frozen=True)
class Words:
    """Headings of a page's verdict tables, and its names for a status."""

    target: str
    measured: str
    status: Mapping[str, str] = field(default_factory=dict)
    text: Callable[[str], str] = str

    def cells(self, verdict: Verdict) -> list[str]:
        claim, target, result = map(self.text, (verdict.claim, verdict.target, verdict.measured))
        if verdict.sensitivity:
            result += f"<br>*Sensitivity:* {self.text(verdict.sensitivity)}"
        return [claim, target, result, self.status.get(verdict.status, verdict.status)]

    @property
    def head(self) -> list[str]:
        return ["claim", self.target, self.measured, "verdict"]


PAPER = Words("paper", "measured here", text=plain_markdown)
PROMISES = Words(
    "target", "measured",
    {"holds": "met", "does not hold": "**not met**", "cannot tell": "not measured"},
)  # fmt: skip

_FORMS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "cell": str,  # as it is, to the right
    "count": lambda v: f"{v:,.0f}",
    "error": number,
    "seconds": seconds,
    "times": times,
    "number": lambda v: f"{v:.2f}" if v < 10 else f"{v:.0f}" if v < 1000 else number(v),
    "percent": lambda v: f"{100 * v:.0f} %",
    "percent1": lambda v: f"{100 * v:.1f} %" if v < 1 else f"{100 * v:,.0f} %",
    "evaluations": count,
}


def _cell(row: Mapping[str, Any], column: Column) -> str:
    value = row.get(column.key)
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–"
    if column.form:
        text = _FORMS[column.form](value)
    elif isinstance(value, float):
        text = count(value) if column.key == "evaluations" else number(value)
    else:
        text = str(value)
    spread = row.get(f"{column.key}_se")
    return text if spread is None else f"{text} ± {number(spread)}"


# Markdown.


def markdown_page(head: str, sections: Sequence[Section], words: Words) -> str:
    """A page with all verdicts first, and then the sections."""
    link = {section.name: f"[{section.name}](#{slug(section.title)})" for section in sections}
    rows = [[link[s.name], *words.cells(v)] for s in sections for v in s.verdicts]
    table = _lines([["study", *words.head], ["---"] * 5, *rows])
    return f"{head}{table}\n\n" + "\n".join(markdown_section(s, words) for s in sections)


def markdown_table(table: Table) -> str:
    head = [column.heading for column in table.columns]
    rule = ["---" if column.form in ("", "text") else "---:" for column in table.columns]
    body = [[_cell(row, column) for column in table.columns] for row in table.rows]
    return f"{table.caption}\n\n{_lines([head, rule, *body])}\n"


def markdown_section(
    section: Section, words: Words, *, prefix: str = "", tables: bool = True
) -> str:
    """A section with the figures ``figures/{prefix}{name}.png``, with or without its tables."""
    parts = [f"## {section.title}\n"]
    source = f"In the paper: {section.source}. " if section.source else ""
    parts += [words.text(source + section.about.strip()) + "\n"]
    if section.provenance:
        parts.append(f"{section.provenance}\n")
    for finding in section.findings:
        if finding.title:
            parts.append(f"### {words.text(finding.title)}\n")
        parts += [f"{words.text(one)}\n" for one in finding.text.split("\n\n") if one]
        if tables:
            parts += [markdown_table(table) for table in finding.tables if table.columns]
        if finding.drawing is not None:
            caption = words.text(finding.drawing.caption)
            path = f"figures/{prefix}{finding.drawing.name}.png"
            plain = re.sub("<sup>(.*?)</sup>", r"^\1", re.sub("</?sub>", "", caption))
            parts.append(f"![{plain}]({path})\n\n*{caption}*\n")
        if finding.notes:
            parts.append("\n".join(f"* {note}" for note in finding.notes) + "\n")
        if finding.verdicts:
            rows = [words.cells(verdict) for verdict in finding.verdicts]
            parts.append(_lines([words.head, ["---"] * 4, *rows]) + "\n")
    return "\n".join(parts)


def _lines(rows: Iterable[Iterable[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def slug(title: str) -> str:
    """Anchor of a heading, as Markdown's table of contents makes it.

    Examples
    --------
    >>> slug("Calls on 20 assets: value at risk 90 %")
    'calls-on-20-assets-value-at-risk-90'
    """
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


# HTML. Words and signs, not colors alone: the page has to survive a printer.

_SIGNS = {"holds": "✓", "holds better": "✓✓", "does not hold": "✗", "cannot tell": "?", "ours": "–"}
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
th, td { text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0; }
tr { border-bottom: 1px solid #eee; }
td { font-variant-numeric: tabular-nums; }
td.n, th.n { text-align: right; white-space: nowrap; }
figure { margin: 1rem 0; break-inside: avoid; }
img { max-width: min(100%, 52rem); height: auto; }
.v { white-space: nowrap; font-weight: 600; border-radius: .25rem; padding: .05rem .45rem; }
.v.holds { background: #e2f1ea; color: #00573f; }
.v.holds-better { background: #00805d; color: #fff; }
.v.does-not-hold { background: #fff; color: #8c2d28; border: 1px solid #8c2d28; }
.v.cannot-tell, .v.ours { background: #eee; color: #444; }
.counts { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }
summary, a { color: #0072b2; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f5f5; padding: .5rem; }
@media print { body { font-size: 10pt; } main { max-width: none; } .scroll { overflow: visible; } }
"""


def html_page(
    heading: str,
    opening: Sequence[str],
    sections: Sequence[Section],
    words: Words,
    figures: Path,
    footer: str,
) -> str:
    """A page that fetches nothing; figures are read from their folder, beside the page."""
    results = [verdict.status for section in sections for verdict in section.verdicts]
    shown = (f"<span>{_badge(s)} {results.count(s)}</span>" for s in _SIGNS if s in results)
    links = (f'<a href="#{s.name}">{escape(s.title)}</a>' for s in sections)
    body = [
        f"<h1>{escape(heading)}</h1>",
        *opening,
        f'<div class="counts">{" ".join(shown)}</div>',
        f"<p>{' · '.join(links)}</p>",
    ]
    for section in sections:
        body += _html_section(section, words, figures)
    text = "\n".join([*body, f"<footer>{footer}</footer>"])
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{text}\n</main>\n</body>\n</html>\n"
    )


def _html_verdicts(verdicts: Sequence[Verdict], words: Words) -> str:
    head = ["verdict", "claim", words.target, words.measured, "because"]
    cells = [[v.claim, v.target, v.measured, v.reason] for v in verdicts]
    if any(v.sensitivity for v in verdicts):
        head.append("sensitivity")
        cells = [[*row, v.sensitivity] for row, v in zip(cells, verdicts, strict=True)]
    rows = [[_badge(v.status), *map(escape, row)] for row, v in zip(cells, verdicts, strict=True)]
    return _html_table(head, rows)


def _html_section(section: Section, words: Words, figures: Path) -> Iterator[str]:
    yield f'<h2 id="{section.name}">{escape(section.title)}</h2>'
    if section.source:
        yield f'<p class="soft">In the paper: {escape(section.source)}.</p>'
    yield f"<p>{escape(section.about)}</p>"
    for finding in section.findings:
        if finding.title:
            yield f"<h3>{escape(finding.title)}</h3>"
        for paragraph in filter(None, (*finding.text.split("\n\n"), *finding.notes)):
            yield f"<p>{escape(paragraph)}</p>"
        if finding.drawing is not None:
            yield _html_figure(figures, finding.drawing.name, escape(finding.drawing.caption))
        if finding.verdicts:
            yield _html_verdicts(finding.verdicts, words)
        yield from map(_html_data, finding.tables)
    if section.provenance:
        yield f'<p class="soft">{escape(section.provenance)}</p>'


def _html_figure(figures: Path, name: str, caption: str) -> str:
    data = base64.b64encode((figures / f"{name}.png").read_bytes()).decode("ascii")
    links = ", ".join(f'<a href="{figures.name}/{name}.{k}">{k}</a>' for k in ("png", "svg"))
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
        f"<figcaption>{caption} ({links})</figcaption></figure>"
    )


def _html_data(table: Table) -> str:
    link = f'<a href="data/{table.name}.csv">{table.name}.csv</a>'
    if not table.columns:
        return f'<p class="soft">Numbers: {link}.</p>'
    rows = [[escape(_cell(row, column)) for column in table.columns] for row in table.rows]
    made = _html_table([column.heading for column in table.columns], rows, ' class="n"')
    caption = f"<p>{escape(table.caption)} ({link})</p>"
    if len(rows) <= _LONG:
        return caption + made
    return f"<details><summary>Numbers: {escape(table.name)}</summary>{caption}{made}</details>"


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    first = "".join(f"<th{kind if i else ''}>{escape(name)}</th>" for i, name in enumerate(head))
    body = "\n".join(
        "<tr>" + "".join(f"<td{kind if i else ''}>{c}</td>" for i, c in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{first}</tr>\n{body}</table></div>'


def _badge(status: str) -> str:
    return f'<span class="v {status.replace(" ", "-")}">{_SIGNS[status]} {status}</span>'
