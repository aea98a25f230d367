"""One self-contained HTML page: the answer, what it means, how it was found, how methods compare.

Nothing is fetched: figures are embedded, styles are inline. Whatever comes from outside (names,
notes, commands) is escaped.
"""

from __future__ import annotations

import base64
import datetime
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from nestquad.compare import Comparison, Row
from nestquad.errors import InputError, MissingExtraError
from nestquad.plots import (
    answer_text,
    new_axes,
    plot_comparison,
    plot_estimate,
    plot_trace,
    to_png,
)
from nestquad.result import Estimate

__all__ = ["write_report"]

_STYLE = """
body { margin: 0; background: #fff; color: #222; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.3rem; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #ddd; }
.answer { font-size: clamp(1.5rem, 7vw, 2.6rem); font-weight: 600; margin: .5rem 0 0; }
.answer { color: #0072b2; overflow-wrap: anywhere; line-height: 1.2; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
caption { text-align: left; color: #6b6b6b; padding-bottom: .3rem; }
th, td { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
tr { border-bottom: 1px solid #eee; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.numbers th, .numbers td { text-align: right; white-space: nowrap; }
.numbers th:first-child, .numbers td:first-child { text-align: left; }
.best { font-weight: 600; }
figure { margin: 1rem 0; break-inside: avoid; }
img { max-width: 100%; height: auto; }
figcaption, footer { font-size: .9rem; color: #6b6b6b; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f5f5f5; padding: .5rem; }
@media print {
  body { font-size: 10pt; }
  main { max-width: none; }
  .scroll { overflow: visible; }
  th, td { padding-right: .6rem; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  img { max-height: 7.5cm; }
}
"""

_WORDS = {
    "answers": "expectations of f(J)",
    "error_inner": "error of the inner stage, one standard error",
    "error_outer": "error of the outer stage, one standard error",
    "n_sets": "inner point sets",
    "sum_abs_weights": "sum of absolute weights",
    "worst_case_error": "worst-case error",
    "condition": "condition number",
}
_MOST_NUMBERS = 8

_STAGES = (
    " The error bar counts both the inner stage, where J(θ) is estimated, and the outer stage, "
    "where f(J(θ)) is averaged."
)
_MEASURES = ("mean |error|", "RMSE", "spread", "half-width")
_HEAD = ("method", "evaluations", *_MEASURES, "covered", "seconds")
_COLUMNS = (
    "Mean |error| and RMSE are measured against the exact value; the spread is the standard "
    "deviation over replicates, which does not see bias; the half-width is the median claimed "
    "95 % half-width, and “covered” says how often the interval held the exact value; seconds "
    "are for one run."
)


def write_report(
    path: str | Path,
    *,
    estimate: Estimate | None = None,
    comparison: Comparison | None = None,
    title: str | None = None,
    command: str | None = None,
) -> Path:
    """Write an estimate, a comparison or both as one self-contained HTML page.

    Parameters
    ----------
    path
        The file to write. Its folder has to exist.
    estimate, comparison
        What to report; at least one of them.
    title
        The heading; default: the problem's name.
    command
        The command that made the results, to be shown.

    Returns
    -------
    Path
        The file written. Without the extra ``plot`` it has no figures, and says so.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import nestquad as nq
    >>> est = nq.estimate(nq.problems.synthetic(), budget=256, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(pathlib.Path(folder) / "page.html", estimate=est)
    ...     "<title>synthetic</title>" in page.read_text(encoding="utf-8")
    True
    """
    if estimate is None and comparison is None:
        raise InputError(
            "write_report", "neither an estimate nor a comparison", "at least one of them"
        )
    problem = estimate.problem if estimate is not None else getattr(comparison, "problem", "")
    heading = title or problem or "Nested expectation"
    sections = [f"<h1>{escape(heading)}</h1>"]
    if estimate is not None:
        sections += _answer_sections(estimate)
    if comparison is not None:
        sections += _comparison_sections(comparison)
    if estimate is not None:
        sections.append("<h2>Settings and diagnostics</h2>")
        sections.append(_table([*_settings(estimate), *_flat(estimate.diagnostics)]))
    sections.append(_footer(command))
    body = "\n".join(sections)
    path = Path(path)
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n",
        encoding="utf-8",
    )
    return path


def _answer_sections(estimate: Estimate) -> Iterator[str]:
    yield f'<p class="answer">{escape(answer_text(estimate))}</p>'
    yield _paragraphs(_meaning(estimate))
    notes = [str(note) for note in estimate.diagnostics.get("notes", [])]
    if notes:
        yield "<h2>Notes</h2>\n<ul>" + "".join(f"<li>{escape(n)}</li>" for n in notes) + "</ul>"
    yield from _figures(_estimate_drawings(estimate))


def _meaning(estimate: Estimate) -> Iterator[str]:
    low, high = (np.ravel(end) for end in estimate.interval())
    ranges = "; ".join(f"{a:.6g} to {b:.6g}" for a, b in zip(low, high, strict=True))
    yield (
        f"95 % interval: {ranges}. Of a hundred such intervals about 95 hold the true value."
        + (_STAGES if estimate.n_inner > 1 else "")
    )
    if estimate.exact is not None:
        exact, value = np.ravel(estimate.exact), np.ravel(estimate.value)
        inside = bool(np.all((low <= exact) & (exact <= high)))
        yield (
            f"The exact value is known, {_text(exact)}: the estimate is off by "
            f"{_text(np.abs(value - exact), 2)}, and the interval "
            f"{'holds' if inside else 'does not hold'} it."
        )
    sizes = f" ({estimate.n_outer:,} values of θ, {estimate.n_inner:,} inner points for each)"
    yield (
        f"It took {estimate.n_evaluations:,} evaluations of g"
        f"{sizes if estimate.n_inner > 1 else ''} and {estimate.seconds:.2g} s by "
        f"{estimate.method}. Status “{estimate.status}”: {estimate.status_text}."
    )
    inner, outer = (estimate.diagnostics.get(f"error_{stage}") for stage in ("inner", "outer"))
    if inner is not None and outer is not None:
        more = "inner points" if inner > outer else "values of θ"
        yield f"For a smaller error, more {more} would help most."


def _settings(estimate: Estimate) -> Iterator[tuple[str, str]]:
    yield "problem", estimate.problem
    yield "method", estimate.method
    yield "value", _text(estimate.value, 10)
    yield "standard error", _text(estimate.std_error, 3)
    yield "evaluations of g", f"{estimate.n_evaluations:,}"
    yield "outer × inner size", f"{estimate.n_outer:,} × {estimate.n_inner:,}"
    yield "turns", str(max(len(estimate.trace), 1))
    yield "seconds", f"{estimate.seconds:.3g}"


def _comparison_sections(comparison: Comparison) -> Iterator[str]:
    yield "<h2>Methods side by side</h2>"
    yield _comparison_table(comparison)
    yield _paragraphs([_COLUMNS])
    yield from _figures([_comparison_drawing(comparison)])


def _comparison_table(comparison: Comparison) -> str:
    best = [
        min((row for row in comparison.rows if row.budget == budget), key=_size)
        for budget in {row.budget for row in comparison.rows}
    ]
    lines = []
    for row in comparison.rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row))
        lines.append(f'<tr class="best">{cells}</tr>' if row in best else f"<tr>{cells}</tr>")
    exact = "" if comparison.exact is None else f", exact value {comparison.exact:.10g}"
    caption = f"{comparison.problem}{exact}, {comparison.replicates} replicates"
    return (
        f'<div class="scroll"><table class="numbers"><caption>{escape(caption)}</caption>\n'
        f"<thead><tr>{''.join(f'<th>{name}</th>' for name in _HEAD)}</tr></thead>\n<tbody>"
        + "\n".join(lines)
        + "</tbody></table></div>"
    )


def _size(row: Row) -> float:
    size = row.spread if row.mean_abs_error is None else row.mean_abs_error
    return size if np.isfinite(size) else np.inf


def _cells(row: Row) -> tuple[str, ...]:
    numbers = (row.mean_abs_error, row.rmse, row.spread, row.half_width)
    return (
        row.method,
        f"{row.n_evaluations:,}",
        *("–" if n is None or not np.isfinite(n) else f"{n:.2e}" for n in numbers),
        "–" if row.coverage is None else f"{100 * row.coverage:.0f} %",
        f"{row.seconds:.3f}",
    )


@dataclass(frozen=True)
class _Drawing:
    """How to draw a figure, and what to say about it to those who see it and who do not."""

    draw: Any
    result: Any
    caption: str
    alt: str


def _estimate_drawings(estimate: Estimate) -> Iterator[_Drawing]:
    if estimate.sample is not None:
        yield _Drawing(
            plot_estimate,
            estimate,
            "What the outer stage integrates: f(J(θ)), its mean, and J(θ) where it fits the scale.",
            f"f(J(θ)) at {len(estimate.sample.f):,} values of θ, from "
            f"{estimate.sample.f.min():.4g} to {estimate.sample.f.max():.4g}; "
            f"the answer is {answer_text(estimate)}",
        )
    if len(estimate.trace) > 1:
        first, last = estimate.trace[0], estimate.trace[-1]
        yield _Drawing(
            plot_trace,
            estimate,
            "The answer and its 95 % interval after each turn: evaluations were added where the "
            "error was larger.",
            f"The answer from {first.n_evaluations:,} evaluations, {_text(first.value)}, to "
            f"{last.n_evaluations:,} evaluations, {_text(last.value)}",
        )


def _comparison_drawing(comparison: Comparison) -> _Drawing:
    sizes = ", ".join(
        f"{row.method} {_size(row):.2g} at {row.n_evaluations:,}" for row in comparison.rows
    )
    return _Drawing(
        plot_comparison,
        comparison,
        "Error of each method for the same number of evaluations; further left or lower is better.",
        f"Errors by method and number of evaluations: {sizes}",
    )


def _figures(drawings: Iterable[_Drawing]) -> Iterator[str]:
    for drawing in drawings:
        try:
            figure, (ax,) = new_axes(5.6, 3.5)  # small enough to read on a phone
        except MissingExtraError as error:
            yield _paragraphs([f"Figures are left out. {error}"])
            return
        drawing.draw(drawing.result, ax)
        data = base64.b64encode(to_png(figure)).decode("ascii")
        yield (
            f'<figure><img src="data:image/png;base64,{data}" alt="{escape(drawing.alt)}">'
            f"<figcaption>{escape(drawing.caption)}</figcaption></figure>"
        )


def _flat(values: Mapping[str, Any], stage: str = "") -> Iterator[tuple[str, str]]:
    """Diagnostics as rows; those of a stage carry its name. Notes have a place of their own."""
    for key, value in values.items():
        if key == "notes":
            continue
        words = _WORDS.get(key, str(key).replace("_", " "))
        label = f"{stage}: {words}" if stage else words
        if isinstance(value, Mapping):
            yield from _flat(value, label)
        else:
            yield label, _text(value)


def _text(value: Any, digits: int = 6) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}g}"
    if isinstance(value, np.ndarray | list | tuple):
        items = np.ravel(value).tolist() if isinstance(value, np.ndarray) else list(value)
        shown = ", ".join(_text(item, digits) for item in items[:_MOST_NUMBERS])
        return shown + (f", … ({len(items)} in all)" if len(items) > _MOST_NUMBERS else "")
    return str(value)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>\n" for k, v in rows)
    return f'<div class="scroll"><table>{body}</table></div>'


def _paragraphs(texts: Iterable[str]) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)


def _footer(command: str | None) -> str:
    from nestquad import __version__

    made_by = "" if command is None else f"<p>Made by</p><pre>{escape(command)}</pre>"
    versions = (
        f"nestquad {__version__}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}; {datetime.date.today().isoformat()}"
    )
    return f"<footer>{made_by}<p>{escape(versions)}</p></footer>"
