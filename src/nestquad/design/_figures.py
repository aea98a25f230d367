"""Figures of designs; each function returns the axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nestquad.plots import INK, axes_or_new, series_styles
from nestquad.result import NORMAL_95


def plot_designs(comparison: Any, ax: Any = None) -> Any:
    """Value and 95 % interval of each design: over its number where it is one, else by name."""
    ax = axes_or_new(ax)
    label = "lower bound of the expected gain" if comparison.bounds_only else "expected gain"
    values = comparison.values
    halves = NORMAL_95 * np.array([float(est.std_error) for est in comparison.estimates])
    color = series_styles(2)[0].color
    numbers = [np.atleast_1d(_number(row)) for row in comparison.designs]
    if len(values) > 2 and all(one.size == 1 and np.isfinite(one).all() for one in numbers):
        x = np.concatenate(numbers)
        ax.errorbar(x, values, halves, fmt="o", color=color, markersize=4, linewidth=1)
        ax.plot(x[comparison.best], values[comparison.best], "o", color=INK, markersize=7)
        ax.set_xlabel("design")
        ax.set_ylabel(label)
        return ax
    y = -np.arange(len(values))
    ax.errorbar(values, y, xerr=halves, fmt="o", color=color, markersize=4, linewidth=1)
    ax.plot(values[comparison.best], y[comparison.best], "o", color=INK, markersize=7)
    ax.set_yticks(y, [label[:26] for label in comparison.labels])
    ax.set_xlabel(label)
    return ax


def _number(row: Any) -> Any:
    try:
        return np.asarray(row, dtype=float)
    except (TypeError, ValueError):
        return np.full(2, np.nan)
