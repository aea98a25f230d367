"""Figures that several parts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nestquad.plots import (
    AVERAGE,
    INK,
    SOFT,
    TEXT_SIZE,
    End,
    MethodStyle,
    count_axis,
    label_ends,
    method_styles,
    new_axes,
    title,
)
from studies.paper.curves import Curve
from studies.runner.result import Figure

# In one list, so that a configuration has the same look in every figure of the reproduction.
_METHODS = ("nmc", "nqmc", "nkq", "mlmc", "mlkq", "auto", "ckq", "lsmc", "joint")
_LOOKS = method_styles((*_METHODS, "nkq-qmc", "mlkq ours", "mlmc ours", "released", "shared"))
_NAMES = {"mlkq published": "mlkq", "mlkq": "mlkq ours", "mlmc": "mlmc ours"}
_NAMES |= {"nkq-qmc shared": "shared", "mlmc antithetic": "mlmc"}
_NAMES |= {"mlmc plain": "lsmc"}  # which is in none of these figures

Line = tuple[str, Curve, MethodStyle]
"""Label, numbers and look."""


def look(series: str) -> MethodStyle:
    """The look of a series by its name: that of its method, told apart where it has several."""
    if series in _NAMES:
        return _LOOKS[_NAMES[series]]
    return _LOOKS[series.split(" ")[0]]


def line_looks(count: int) -> list[MethodStyle]:
    """Looks for settings of one method."""
    names = ["nkq", "nqmc", "ckq", "joint", "mlmc", "lsmc"]
    return [_LOOKS[name] for name in names[:count]]


def log_axes(ax: Any, costs: Sequence[float], words: str) -> None:
    """Cost to the right, error upwards, both logarithmic."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    count_axis(ax, np.asarray(costs, dtype=float))
    ax.set_ylabel(words)


def draw_lines(
    ax: Any,
    lines: Sequence[Line],
    *,
    exponents: bool = True,
    band: tuple[float, float] = (0.25, 0.75),
) -> list[End]:
    """Means with bands between quantiles; returns the labels, with the exponent of each line."""
    ends = []
    for label, curve, style in lines:
        ax.plot(curve.costs, curve.means, **style.line, markersize=5, linewidth=1.4, zorder=3)
        low, high = map(curve.quantiles, band)
        ax.fill_between(curve.costs, low, high, color=style.color, alpha=0.13, linewidth=0)
        text = label
        if exponents and len(curve.costs) > 2:
            text += f"  $r={curve.exponent.value:.2f}$"
        end = float(curve.costs[-1])
        ends.append(End(float(curve.means[-1]), text, style.color, end))
    return ends


def guide(ax: Any, start: tuple[float, float], r: float, until: float, text: str) -> None:
    """A thin grey line of the theory's slope, Δ ∝ cost^(-1/r), with its name."""
    cost, error = start
    last = error * (until / cost) ** (-1.0 / r)
    ax.plot([cost, until], [error, last], color=SOFT, linewidth=0.8, zorder=1)
    ax.annotate(
        text,
        ((cost * until) ** 0.5, (error * last) ** 0.5),
        xytext=(-2, -2),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=TEXT_SIZE - 1,
        color=SOFT,
    )


def error_figure(
    panels: Mapping[str, Sequence[Line]],
    *,
    words: str = "mean |error|",
    levels: Mapping[str, Sequence[tuple[float, str]]] | None = None,
    height: float = 3.6,
) -> Figure:
    """Error against cost, a panel for each title, below each other to be read on any screen.

    `levels` are horizontal lines with names.
    """
    figure, axes = new_axes(8.0, height * len(panels), rows=len(panels))
    for ax, (heading, lines) in zip(axes, panels.items(), strict=True):
        log_axes(ax, [cost for _, curve, _ in lines for cost in curve.costs], words)
        ends = draw_lines(ax, lines)
        for height_, name in (levels or {}).get(heading, ()):
            ax.axhline(height_, color=INK, linewidth=0.9, linestyle=AVERAGE)
            ends.append(End(height_, name, INK))
        label_ends(ax, ends)
        title(ax, "", heading)
    return figure
