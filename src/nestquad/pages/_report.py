"""Report of an estimate or a comparison as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nestquad.compare import COLUMNS, Comparison, Row
from nestquad.errors import InputError
from nestquad.pages._html import bullets, figure, footer, grid, paragraphs, table, write_page
from nestquad.plots import answer_text, plot_comparison, plot_estimate, plot_trace
from nestquad.result import Estimate

_WORDS = {
    "answers": "expectations of f(J)",
    "error_inner": "error of the inner stage, one standard error",
    "error_outer": "error of the outer stage, one standard error",
    "n_sets": "inner point sets",
    "sum_abs_weights": "sum of absolute weights",
    "worst_case_error": "worst-case error",
    "condition": "condition number",
}

_STAGES = (
    " The error bar counts both the inner stage, where J(θ) is estimated, and the outer stage, "
    "where f(J(θ)) is averaged."
)
_COLUMN_NOTES = (
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
        Results to report; at least one of them.
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
        given = "neither an estimate nor a comparison"
        raise InputError("write_report", given, "at least one of them")
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
        yield f"<h2>Notes</h2>\n{bullets(notes)}"
    yield from _figures(estimate)


def _meaning(estimate: Estimate) -> Iterator[str]:
    low, high = (np.ravel(end) for end in estimate.interval())
    ranges = "; ".join(f"{a:.6g} to {b:.6g}" for a, b in zip(low, high, strict=True))
    yield (
        f"95 % interval: {ranges}. Of a hundred such intervals about 95 hold the true value."
        + (_STAGES if estimate.n_inner > 1 else "")
    )
    if estimate.certified is not None:
        ends = (np.ravel(end) for end in estimate.certified.interval())
        ranges = "; ".join(f"{a:.6g} to {b:.6g}" for a, b in zip(*ends, strict=True))
        yield (
            f"Certified 95 % interval: {ranges}, from {estimate.certified.n_evaluations:,} fresh "
            "independent evaluations of g, whatever the model of J is worth."
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
    rows = comparison.rows
    best = [
        min((i for i, row in enumerate(rows) if row.budget == budget), key=lambda i: _size(rows[i]))
        for budget in {row.budget for row in rows}
    ]
    yield "<h2>Methods side by side</h2>"
    yield grid(COLUMNS, [row.cells for row in rows], comparison.title, best)
    yield paragraphs([_COLUMN_NOTES])
    sizes = ", ".join(f"{row.method} {_size(row):.2g} at {row.n_evaluations:,}" for row in rows)
    yield figure(
        lambda ax: plot_comparison(comparison, ax),
        "Error of each method for the same number of evaluations; further left or lower is better.",
        f"Errors by method and number of evaluations: {sizes}",
    )


def _size(row: Row) -> float:
    size = row.spread if row.mean_abs_error is None else row.mean_abs_error
    return size if np.isfinite(size) else np.inf


def _figures(estimate: Estimate) -> Iterator[str]:
    if estimate.sample is not None:
        yield figure(
            lambda ax: plot_estimate(estimate, ax),
            "What the outer stage integrates: f(J(θ)), its mean, and J(θ) where it fits the scale.",
            f"f(J(θ)) at {len(estimate.sample.f):,} values of θ, from "
            f"{estimate.sample.f.min():.4g} to {estimate.sample.f.max():.4g}; "
            f"the answer is {answer_text(estimate)}",
        )
    if len(estimate.trace) > 1:
        first, last = estimate.trace[0], estimate.trace[-1]
        yield figure(
            lambda ax: plot_trace(estimate, ax),
            "The answer and its 95 % interval after each turn: evaluations were added where the "
            "error was larger.",
            f"The answer from {first.n_evaluations:,} evaluations, {_text(first.value)}, to "
            f"{last.n_evaluations:,} evaluations, {_text(last.value)}",
        )


def _flat(values: Mapping[str, Any], stage: str = "") -> Iterator[tuple[str, str]]:
    """Diagnostics as rows with the name of their stage, without notes."""
    for key, value in values.items():
        if key == "notes":
            continue
        words = _WORDS.get(key, str(key).replace("_", " "))
        label = f"{stage}: {words}" if stage else words
        if isinstance(value, Mapping):
            yield from _flat(value, label)
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            numbered = {str(i + 1): item for i, item in enumerate(value)}
            yield from _flat(numbered, label)
        else:
            yield label, _text(value)


def _text(value: Any, digits: int = 6) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.{digits}g}"
    if isinstance(value, np.ndarray | list | tuple):
        items = np.ravel(value).tolist() if isinstance(value, np.ndarray) else list(value)
        shown = ", ".join(_text(item, digits) for item in items[:8])
        return shown + (f", … ({len(items)} in all)" if len(items) > 8 else "")
    return str(value)
