"""docs/benchmarks.md, made of what is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks._study import Column, Result, Study, Table, Verdict
from nestquad.reproduce._text import number as error

_HEAD = """\
<!-- Written by `python -m benchmarks`; change a study in benchmarks/studies, not this page. -->
# Benchmarks

What nestquad promises and what it measures. `make bench` runs everything on this page and writes
it, missed targets included; `python -m benchmarks --only NAME` reruns one study and
`python -m benchmarks --redraw` makes page and figures again from the saved numbers in `data/`.
The long studies keep every run in `data/NAME_runs.csv` and go on where they were left.
Errors are absolute, against exact values, and averaged over seeds 0, 1, 2, …; what follows ± is
the standard error of that average.
"""


def limit(value: float) -> str:
    """A target: as `error`, without a digit that is zero."""
    if 0.01 <= abs(value) < 1000:
        return f"{value:.2g}"
    return error(value).replace(".0e", "e")


def seconds(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f} s"
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def times(value: float) -> str:
    return f"{value:,.0f} ×" if value >= 100 else f"{value:.2f} ×"


_FORMS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "cell": str,  # as it is, to the right
    "count": lambda v: f"{v:,.0f}",
    "error": error,
    "seconds": seconds,
    "times": times,
    "number": lambda v: f"{v:.2f}" if v < 10 else f"{v:.0f}" if v < 1000 else error(v),
    "percent": lambda v: f"{100 * v:.0f} %",
}


def page(results: Mapping[str, Result], studies: Iterable[Study]) -> str:
    studies = list(studies)
    shown = [study for study in studies if study.name in results]
    parts = [_HEAD, _summary(results, shown)]
    parts += [_section(study, results[study.name]) for study in shown]
    missing = [study.name for study in studies if study.name not in results]
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.\n")
    return "\n".join(parts)


def markdown(table: Table) -> str:
    head = [column.heading for column in table.columns]
    rule = ["---" if column.form == "text" else "---:" for column in table.columns]
    body = [[_cell(row, column) for column in table.columns] for row in table.rows]
    return f"{table.caption}\n\n{_lines([head, rule, *body])}\n"


def _cell(row: Mapping[str, Any], column: Column) -> str:
    value = row.get(column.key)
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–"
    text = _FORMS[column.form](value)
    spread = row.get(f"{column.key}_se")
    return text if spread is None else f"{text} ± {error(spread)}"


def _lines(rows: Iterable[Iterable[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _word(verdict: Verdict) -> str:
    return {True: "met", False: "**not met**", None: "not measured"}[verdict.met]


def _summary(results: Mapping[str, Result], shown: list[Study]) -> str:
    rows = [["study", "claim", "target", "measured", "verdict"], ["---"] * 5]
    for study in shown:
        for v in results[study.name].verdicts:
            link = f"[{study.name}](#{_anchor(study.title)})"
            rows.append([link, v.claim, v.target, v.measured, _word(v)])
    verdicts = [v.met for study in shown for v in results[study.name].verdicts]
    count = f"{verdicts.count(True)} of {len(verdicts)} targets are met."
    return f"## Summary\n\n{count}\n\n{_lines(rows)}\n"


def _anchor(title: str) -> str:
    """What Markdown makes of a heading."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def _section(study: Study, result: Result) -> str:
    parts = [f"## {study.title}\n", study.about.strip() + "\n", _provenance(result)]
    parts += [markdown(table) for table in result.tables if table.shown]
    for drawing in study.drawings:
        path = f"figures/{drawing.file(study.name)}"
        parts.append(f"![{drawing.caption}]({path})\n\n*{drawing.caption}*\n")
    if result.notes:
        parts.append("\n".join(f"* {note}" for note in result.notes) + "\n")
    head = [["claim", "target", "measured", "verdict"], ["---"] * 4]
    body = [[v.claim, v.target, v.measured, _word(v)] for v in result.verdicts]
    if body:
        parts.append(f"{_lines([*head, *body])}\n")
    return "\n".join(parts)


def _provenance(result: Result) -> str:
    env = result.environment
    threads = env.get("threads") or {}
    counts = " / ".join(dict.fromkeys(threads.values())) or "not fixed"
    runs = env.get("runs")
    took = f"took {result.seconds:.0f} s"
    if runs is not None:
        took = f"makes {runs:,} runs, which took {_duration(result.seconds)} of CPU time,"
    return (
        f"`{result.command}` {took} on {env.get('cpus')} CPUs (BLAS threads: "
        f"{counts}; Python {env.get('python')}, NumPy {env.get('numpy')}, "
        f"SciPy {env.get('scipy')}).\n"
    )


def _duration(value: float) -> str:
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} minutes"
