"""Figures of a check of a proxy: observed against predicted, and errors along the proxy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.errors import optional_module
from nestquad.plots._style import INK, SOFT, TEXT_SIZE, axes_or_new, series_styles, style, title


def plot_proxy(diagnosis: Any, axes: Any = None, name: str = "") -> Any:
    """Draw both figures side by side; returns the two axes."""
    if axes is None:
        optional_module("matplotlib", "Drawing a figure", "plot")
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
    left, right = axes
    _draw_observed(diagnosis.errors[0], style(left), name)
    plot_proxy_errors(diagnosis, right, "")
    return axes


def _draw_observed(errors: Any, ax: Any, name: str) -> None:
    look = series_styles(1)[0]
    observed, half = errors.predicted + errors.mean, ndtri(0.975) * np.sqrt(errors.noise)
    ax.errorbar(
        errors.predicted, observed, yerr=half, fmt="none", ecolor=look.color, elinewidth=0.5,
        alpha=0.35,
    )  # fmt: skip
    ax.plot(errors.predicted, observed, ".", color=look.color, markersize=3, alpha=0.6)
    ends = np.array([errors.predicted.min(), errors.predicted.max()])
    ax.plot(ends, ends, color=INK, linewidth=1.0)
    ax.annotate(
        "J = proxy", (ends[1], ends[1]), xytext=(0, -30), textcoords="offset points",
        fontsize=TEXT_SIZE - 1, color=INK, ha="right",
    )  # fmt: skip
    ax.set_xlabel("J predicted by the proxy")
    ax.set_ylabel("J observed (95 %)")
    title(ax, name, "observed against predicted")


def plot_proxy_errors(diagnosis: Any, ax: Any = None, name: str = "") -> Any:
    """Draw errors along the predictions with the 95 % band of their mean; returns the axes."""
    ax = axes_or_new(ax)
    errors = diagnosis.errors[0]
    look = series_styles(2)[1]
    ax.plot(errors.predicted, errors.mean, ".", color=SOFT, markersize=2.5, alpha=0.5)
    x, mean, half = _binned(errors)
    ax.fill_between(x, mean - half, mean + half, color=look.color, alpha=0.3, linewidth=0)
    ax.plot(x, mean, color=look.color, linewidth=1.6)
    ax.axhline(0.0, color=INK, linewidth=1.0)
    # Outliers of single draws are not to hide the band.
    low, high = np.quantile(errors.mean, [0.01, 0.99])
    low, high = (
        min(low, float((mean - half).min()), 0.0),
        max(high, float((mean + half).max()), 0.0),
    )
    if high > low:
        ax.set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
    ax.set_xlabel("J predicted by the proxy")
    ax.set_ylabel("observed − predicted")
    title(ax, name, "errors along the proxy, mean and 95 % band")
    return ax


def _binned(errors: Any, n_bins: int = 12) -> tuple[Array, Array, Array]:
    """Places, means and half-widths of 95 % intervals of errors in bins of equal numbers."""
    order = np.argsort(errors.predicted, kind="stable")
    parts = [part for part in np.array_split(order, min(n_bins, len(order) // 8 or 1)) if len(part)]
    rows = []
    for part in parts:
        w = errors.weights[part] / errors.weights[part].sum()
        middle = float(w @ errors.mean[part])
        error = float(np.linalg.norm(w * (errors.mean[part] - middle)))
        rows.append((float(w @ errors.predicted[part]), middle, ndtri(0.975) * error))
    x, mean, half = (np.array(column) for column in zip(*rows, strict=True))
    return x, mean, half
