"""One self-contained HTML page: the answer, what it means, how it was found, methods compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nestquad._page import embedded, footer, paragraphs, table, write_page
from nestquad.compare import Comparison, Row
from nestquad.errors import InputError, MissingExtraError
from nestquad.plots import answer_text, new_axes, plot_comparison, plot_estimate, plot_trace
from nestquad.result import Estimate

__all__ = ["write_report"]

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
        sections.append(table([*_settings(estimate), *_flat(estimate.diagnostics)]))
    sections.append(footer(command))
    return write_page(path, heading, sections)


def _answer_sections(estimate: Estimate) -> Iterator[str]:
    yield f'<p class="answer">{escape(answer_text(estimate))}</p>'
    yield paragraphs(_meaning(estimate))
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
    yield paragraphs([_COLUMNS])
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
            yield paragraphs([f"Figures are left out. {error}"])
            return
        drawing.draw(drawing.result, ax)
        yield embedded(figure, drawing.caption, drawing.alt)


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
