"""Pages: sections of findings with their verdicts, as Markdown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
