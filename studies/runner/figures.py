"""Figures that studies share, in the look of `nestquad.plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nestquad.plots import End, MethodStyle, label_ends, new_axes, save, title
from studies.runner.result import Figure

BAND = "#DDDDDD"


def line_figure(
    panels: Mapping[str, Sequence[tuple[str, Sequence[float], Sequence[float], MethodStyle]]],
    x_words: str,
    y_words: str,
    *,
    width: float = 6.4,
    height: float = 3.8,
) -> Figure:
    """Lines (label, x, y, look) on logarithmic axes, labelled at their ends; a panel a title."""
    figure, axes = new_axes(width * len(panels), height, columns=len(panels))
    for ax, (heading, lines) in zip(axes, panels.items(), strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ends = []
        for label, x, y, look in lines:
            ax.plot(x, y, **look.line, markersize=5, linewidth=1.4)
            ends += [End(float(y[-1]), label, look.color, float(x[-1]))] if label else []
        ax.set_xlabel(f"{x_words} (log scale)")
        ax.set_ylabel(f"{y_words} (log scale)" if ax is axes[0] else "")
        label_ends(ax, ends)
        plain_ticks(ax.xaxis)
        plain_ticks(ax.yaxis)
        title(ax, "", heading)
    return figure


def name_axis(ax: Any, names: Sequence[str], *, shown: bool) -> None:
    """One line a name, from below, with thin rules between."""
    ax.set_yticks(range(len(names)), names if shown else [""] * len(names))
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(False, axis="y")
    for y in np.arange(len(names) - 1) + 0.5:
        ax.axhline(y, color=BAND, linewidth=0.6)


def plain_ticks(axis: Any) -> None:
    """A logarithmic axis with plain numbers, at 1, 2 and 5 of each decade if there are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    decades = float(np.ptp(np.log10(axis.get_view_interval())))
    axis.set_major_locator(LogLocator(10, subs=(1.0,) if decades > 1.6 else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
    axis.set_minor_formatter(NullFormatter())


def save_small(figure: Figure, path: Path) -> None:
    """PNG with 128 colors, which looks the same and takes a third of the space."""
    from PIL import Image

    save(figure, path)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(128)
    small.save(path, optimize=True)
