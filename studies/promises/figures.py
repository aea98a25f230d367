"""Figures that several studies share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.compare import Row
from nestquad.plots import AVERAGE, INK, method_styles, new_axes, plot_comparison
from studies.runner.figures import BAND, name_axis
from studies.runner.result import Figure

_SPREAD = 0.34

Rows = Iterable[Mapping[str, Any]]


def error_lines(rows: Rows, methods: Sequence[str]) -> Figure:
    """Mean error against evaluations: a panel for each problem, a line for each method."""
    rows = [row for row in rows if row["error"] is not None]
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    n_rows = -(-len(problems) // 2)
    figure, axes = new_axes(13.0, 3.7 * n_rows, columns=2, rows=n_rows)
    for ax, problem in zip(axes, problems, strict=False):
        mine = [row for row in rows if row["problem"] == problem]
        drawn = tuple(_as_row(row) for method in methods for row in mine if row["method"] == method)
        plot_comparison(nq.Comparison(problem, None, max(row["seeds"] for row in mine), drawn), ax)
        for line in ax.get_lines():  # what the study is about stands out
            if line.get_marker() == method_styles(["auto"])["auto"].marker:
                line.set(linewidth=2.4, markersize=8, zorder=4)
        if len({row["goal"] for row in mine}) > 1:  # seeds differ: the tables tell how many
            ax.set_title(problem, loc="left", fontsize=10)
    for ax in axes[len(problems) :]:
        ax.set_axis_off()
    return figure


def _as_row(row: Mapping[str, Any]) -> Row:
    nan = float("nan")
    return Row(
        method=row["method"],
        budget=int(row["goal"]),
        n_evaluations=row["evaluations"],
        value=nan,
        mean_abs_error=row["error"],
        rmse=None,
        spread=nan,
        half_width=nan,
        coverage=None,
        seconds=row["seconds"],
    )


def coverage_dots(rows: Rows, methods: Sequence[str], budgets: Sequence[float]) -> Figure:
    """Coverage at each budget, then half-width over error at each budget."""
    rows = [row for row in rows if row["error"] is not None and row["method"] in methods]
    problems = list(dict.fromkeys(row["problem"] for row in rows))[::-1]
    budgets = [budget for budget in budgets if any(row["goal"] == budget for row in rows)]
    styles, shift = method_styles(methods), _offsets(methods)
    figure, axes = new_axes(15.0, 0.75 * len(problems) + 1.2, columns=2 * len(budgets))
    for k, budget in enumerate(budgets):
        covers, widths = axes[k], axes[len(budgets) + k]
        for row in rows:
            if row["goal"] != budget:
                continue
            look = styles[row["method"]]
            y = problems.index(row["problem"]) + shift[row["method"]]
            dot = {"marker": look.marker, "color": look.color}
            dot |= {"markersize": 8, "zorder": 4} if row["method"] == "auto" else {"markersize": 5}
            covers.plot(100 * row["coverage"], y, **dot)
            if row["sharpness"] is not None:
                widths.plot(row["sharpness"], y, **dot)
        covers.axvspan(90, 100, color=BAND, alpha=0.5, zorder=0)
        covers.set_xlim(left=None, right=102)
        covers.set_xlabel(f"95 % intervals that cover (%), {budget:,} evaluations")
        widths.axvline(5.0, color=INK, linewidth=1.0, linestyle=AVERAGE)
        widths.set_xscale("log")
        widths.set_xlabel(f"half-width / error (log scale), {budget:,} evaluations")
    for ax in axes:
        name_axis(ax, problems, shown=ax is axes[0])
    _legend(figure, axes[0], methods)
    return figure


def _offsets(methods: Sequence[str]) -> dict[str, float]:
    """Heights within the line of a problem, so that equal numbers can be told from each other."""
    heights = np.linspace(_SPREAD, -_SPREAD, len(methods)) if len(methods) > 1 else [0.0]
    return dict(zip(methods, map(float, heights), strict=True))


def _legend(figure: Figure, ax: Any, methods: Sequence[str]) -> None:
    """Markers of methods, above the axes."""
    for name, look in method_styles(methods).items():
        ax.plot([], [], look.marker, color=look.color, label=name)
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside upper left", ncols=len(methods), frameon=False
    )
