"""Figures of methods side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nestquad.plots._style import (
    SOFT,
    TEXT_SIZE,
    End,
    axes_or_new,
    count_axis,
    label_ends,
    method_styles,
    short,
    title,
)


def plot_comparison(comparison: Any, ax: Any = None) -> Any:
    """Draw the error of each method: dots for one budget, lines for several.

    The error is the mean absolute one where the exact value is known; otherwise the spread over
    replicates, which does not see bias, or for a single replicate the claimed half-width. The axis
    says which.

    Parameters
    ----------
    comparison
        A `Comparison`, from ``nq.compare``.
    ax
        Axes to draw on; None makes a figure with pyplot.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad.plots import new_axes
    >>> problem, methods = nq.problems.synthetic(), ["nmc", "nkq"]
    >>> table = nq.compare(problem, budget=256, methods=methods, replicates=2, rng=0)
    >>> figure, (ax,) = new_axes()
    >>> plot_comparison(table, ax).get_xlabel()
    'mean |error| (log scale)'
    """
    ax = axes_or_new(ax)
    measure, words = _measure(comparison.rows)
    if len({row.budget for row in comparison.rows}) == 1:
        _draw_dots(ax, comparison, measure, words)
    else:
        _draw_rates(ax, comparison, measure, words)
    return ax


def _measure(rows: Sequence[Any]) -> tuple[list[float], str]:
    if all(row.mean_abs_error is not None for row in rows):
        return [row.mean_abs_error for row in rows], "mean |error|"
    if all(np.isfinite(row.spread) for row in rows):
        return [row.spread for row in rows], "spread over replicates, exact value unknown"
    return [row.half_width for row in rows], "claimed half-width, exact value unknown"


def _draw_dots(ax: Any, comparison: Any, measure: list[float], words: str) -> None:
    pairs = sorted(zip(comparison.rows, measure, strict=True), key=lambda p: p[1], reverse=True)
    styles = method_styles(row.method for row in comparison.rows)
    ax.set_xscale("log")
    ends = []
    for y, (row, size) in enumerate(pairs):
        look = styles[row.method]
        drawn = [v for v in (size, row.half_width) if np.isfinite(v) and v > 0]
        ax.plot(drawn, [y] * len(drawn), color=look.color, linewidth=1.0)
        ax.plot(drawn[1:], [y] * len(drawn[1:]), "|", color=look.color, ms=14, mew=2)
        ax.plot(drawn[:1], [y] * len(drawn[:1]), look.marker, color=look.color, ms=8)
        covered = "" if row.coverage is None else f", covered {100 * row.coverage:.0f} %"
        ends.append(End(y, f"{size:.2g}{covered}", look.color))
    ax.plot([], [], "o", color=SOFT, ms=7, label=words.partition(",")[0])
    ax.plot([], [], "|", color=SOFT, ms=12, mew=2, label="claimed 95 % half-width")
    place = {"loc": "lower left", "bbox_to_anchor": (-0.01, 0.98), "handletextpad": 0.2}
    ax.legend(frameon=False, fontsize=TEXT_SIZE, ncols=2, **place)
    ax.set_yticks(range(len(pairs)), [short(row.method) for row, _ in pairs])
    ax.set_ylim(-0.6, len(pairs) - 0.4)
    ax.grid(False, axis="y")
    ax.set_xlabel(f"{words} (log scale)")
    label_ends(ax, ends)
    text = f"{comparison.rows[0].budget:,} evaluations, {_runs(comparison)}"
    title(ax, comparison.problem, text, pad=22)


def _draw_rates(ax: Any, comparison: Any, measure: list[float], words: str) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ends = []
    for method, look in method_styles(row.method for row in comparison.rows).items():
        pairs = [
            (row.n_evaluations, size)
            for row, size in zip(comparison.rows, measure, strict=True)
            if row.method == method and size > 0
        ]
        if not pairs:
            continue
        x, y = np.array(sorted(pairs), dtype=float).T
        ax.plot(x, y, **look.line, markersize=6, linewidth=1.5)
        text = short(method)
        if len(np.unique(x)) > 1:
            slope = np.polyfit(np.log(x), np.log(y), 1)[0]
            text += f"  $\\propto n^{{{slope:.2f}}}$"
        ends.append(End(float(y[-1]), text, look.color))
    label_ends(ax, ends)
    count_axis(ax, np.array([row.n_evaluations for row in comparison.rows], dtype=float))
    ax.set_ylabel(words.replace(", ", "\n"))
    title(ax, comparison.problem, _runs(comparison))


def _runs(comparison: Any) -> str:
    return f"{comparison.replicates} replicate{'s' if comparison.replicates > 1 else ''}"
