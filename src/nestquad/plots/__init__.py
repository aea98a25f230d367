"""Figures in one visual style; matplotlib is loaded only when one is drawn.

Functions that draw return the axes. Results are read through their attributes, so that this folder
imports none of them.
"""

from __future__ import annotations

from nestquad.plots._comparison import plot_comparison
from nestquad.plots._estimate import plot_conditional, plot_estimate, plot_trace
from nestquad.plots._proxy import plot_proxy, plot_proxy_errors
from nestquad.plots._style import (
    AVERAGE,
    INK,
    SOFT,
    TEXT_SIZE,
    End,
    MethodStyle,
    answer_text,
    axes_or_new,
    count_axis,
    label_ends,
    method_styles,
    new_axes,
    plus_minus,
    save,
    series_styles,
    short,
    style,
    title,
    to_png,
    to_svg,
)

__all__ = [
    "AVERAGE",
    "INK",
    "SOFT",
    "TEXT_SIZE",
    "End",
    "MethodStyle",
    "answer_text",
    "axes_or_new",
    "count_axis",
    "label_ends",
    "method_styles",
    "new_axes",
    "plot_comparison",
    "plot_conditional",
    "plot_estimate",
    "plot_proxy",
    "plot_proxy_errors",
    "plot_trace",
    "plus_minus",
    "save",
    "series_styles",
    "short",
    "style",
    "title",
    "to_png",
    "to_svg",
]
