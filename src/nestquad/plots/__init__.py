"""Figures in one visual language; matplotlib is loaded only when one is drawn.

Results come in as they are and are only read, so that this folder depends on none of them.
"""

from __future__ import annotations

from nestquad.plots._comparison import plot_comparison
from nestquad.plots._estimate import plot_estimate, plot_trace
from nestquad.plots._style import MethodStyle, method_styles, new_axes, save, style, to_png
from nestquad.plots._text import answer_text, plus_minus

__all__ = [
    "MethodStyle",
    "answer_text",
    "method_styles",
    "new_axes",
    "plot_comparison",
    "plot_estimate",
    "plot_trace",
    "plus_minus",
    "save",
    "style",
    "to_png",
]
