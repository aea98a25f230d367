"""Figures of one estimate, and of a check of a proxy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.errors import InputError, optional_module
from nestquad.plots._style import (
    AVERAGE,
    INK,
    MOST_ANSWERS,
    SOFT,
    TEXT_SIZE,
    End,
    answer_text,
    axes_or_new,
    count_axis,
    label_ends,
    method_styles,
    plus_minus,
    series_styles,
    style,
    title,
)

# Answers are told apart as methods are; J is drawn in grey.
_ANSWER_STYLES = list(method_styles(["nkq", "nqmc", "ckq", "joint"]).values())


def plot_estimate(estimate: Any, ax: Any = None) -> Any:
    """Draw f(J(θ)), the integrand of the outer stage, and its mean.

    With one coordinate of θ, f(J(θ)) is drawn against it: the area of a point is its weight, and
    J is a line. With several, the distribution of f(J(θ)) is drawn. Of many answers, the first
    four.

    Parameters
    ----------
    estimate
        An `Estimate` that carries its outer sample.
    ax
        Axes to draw on; None makes a figure with pyplot.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad.plots import new_axes
    >>> est = nq.estimate(nq.problems.synthetic(), budget=256, rng=0)
    >>> figure, (ax,) = new_axes()
    >>> plot_estimate(est, ax).get_ylabel()
    'f(J(θ))'
    """
    sample = estimate.sample
    if sample is None:
        given = "an estimate without its outer sample"
        raise InputError("estimate", given, "one that nq.estimate or nq.expectation returned")
    ax = axes_or_new(ax)
    # A single expectation has no inner stage.
    single = estimate.method == "kernel quadrature"
    variable, integrand = ("x", "h(x)") if single else ("θ", "f(J(θ))")
    if sample.theta.shape[1] == 1:
        _draw_points(ax, estimate, variable, integrand)
    else:
        _draw_distribution(ax, estimate, variable, integrand)
    title(ax, estimate.problem, f"{answer_text(estimate)} (95 %)")
    return ax


def plot_trace(estimate: Any, ax: Any = None) -> Any:
    """Draw the value ± 1.96 standard errors after each turn, against evaluations of g.

    Of several answers the first is drawn; the exact value, where known, is a line.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad.plots import new_axes
    >>> est = nq.estimate(nq.problems.synthetic(), tol=1e-3, method="nkq", rng=0)
    >>> figure, (ax,) = new_axes()
    >>> plot_trace(est, ax).get_xscale()
    'log'
    """
    if not estimate.trace:
        raise InputError("estimate", "an estimate without a trace", "one that nq.estimate returned")
    ax = axes_or_new(ax)
    counts = np.array([step.n_evaluations for step in estimate.trace], dtype=float)
    values = np.array([np.ravel(step.value)[0] for step in estimate.trace], dtype=float)
    halves = np.array([np.ravel(step.half_width)[0] for step in estimate.trace], dtype=float)
    halves[~np.isfinite(halves)] = 0.0
    look = method_styles([estimate.method])[estimate.method]
    ax.set_xscale("log")
    ax.errorbar(counts, values, halves, **look.line, markersize=5, linewidth=1.2, capsize=3)
    ends = [End(values[-1], plus_minus(values[-1], halves[-1]), look.color)]
    if estimate.exact is not None:
        exact = float(np.ravel(estimate.exact)[0])
        ax.axhline(exact, color=INK, linewidth=1.0, linestyle=AVERAGE)
        ends.append(End(exact, f"exact {exact:.6g}", INK))
    label_ends(ax, ends)
    count_axis(ax, counts)
    answers = np.size(estimate.value)
    which = f" (first of {answers} answers)" if answers > 1 else ""
    ax.set_ylabel(f"value ± 95 % half-width{which}")
    title(ax, estimate.problem, f"the answer of {estimate.method}, turn by turn")
    return ax


def plot_conditional(conditional: Any, ax: Any = None, coordinate: int = 0) -> Any:
    """Draw a learned J over one coordinate of θ, with bands of ± 1.96 standard deviations.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad.plots import new_axes
    >>> J = nq.conditional(nq.problems.synthetic(), budget=256, rng=0)
    >>> figure, (ax,) = new_axes()
    >>> plot_conditional(J, ax).get_ylabel()
    'J(θ)'
    """
    theta, mean, sd = conditional.curve(coordinate)
    ax = axes_or_new(ax)
    count = min(mean.shape[1], MOST_ANSWERS)
    ends = []
    for k, look in zip(range(count), _ANSWER_STYLES, strict=False):
        half, soft = ndtri(0.975) * sd[:, k], {"color": look.color, "alpha": 0.2, "linewidth": 0}
        ax.fill_between(theta, mean[:, k] - half, mean[:, k] + half, **soft)
        ax.plot(theta, mean[:, k], color=look.color, linestyle=look.dashes, linewidth=1.8)
        ends.append(End(mean[-1, k], _indexed("J(θ)", k, count), look.color))
    label_ends(ax, ends)
    several = conditional.n_coordinates > 1
    ax.set_xlabel(f"θ_{coordinate + 1}, others at their medians" if several else "θ")
    ax.set_ylabel("J(θ)")
    title(ax, conditional.problem, f"J from {conditional.n_evaluations:,} evaluations (95 %)")
    return ax


def _draw_points(ax: Any, estimate: Any, variable: str, integrand: str) -> None:
    sample = estimate.sample
    order = np.argsort(sample.theta[:, 0], kind="stable")
    # Points of weights below 1 % of the largest lie in the tails, where J is not known.
    size = np.abs(sample.weights[order]).max(axis=1)
    order = order[size >= 1e-2 * size.max()]
    theta, f, weights = sample.theta[order, 0], sample.f[order], sample.weights[order]
    j = sample.j.reshape(len(sample.j), -1)[order]
    ends: list[End] = []
    for k, look in zip(range(f.shape[1]), _ANSWER_STYLES, strict=False):
        faces = np.where(weights[:, k] < 0, "white", look.color)
        points = {"c": faces, "edgecolors": look.color, "linewidths": 0.6, "zorder": 3}
        marker = "o" if f.shape[1] == 1 else look.marker
        ax.scatter(theta, f[:, k], _areas(weights[:, k]), marker=marker, **points)
        mean, text = _mean_of(estimate, k)
        ax.axhline(mean, color=look.color, linewidth=1.2, linestyle=AVERAGE)
        ends.append(End(f[-1, k], _indexed(integrand, k, f.shape[1]), look.color))
        ends.append(End(mean, text, look.color))
    notes = ["area of a point: its weight"]
    if (weights < 0).any():
        notes.append("hollow: negative")
    if j.shape != f.shape or not np.allclose(j, f):
        # A common axis would flatten f.
        if np.ptp(f) < 0.1 * np.ptp(np.concatenate([j.ravel(), f.ravel()])):
            notes.append("J has another scale and is left out")
        else:
            for k in range(min(j.shape[1], MOST_ANSWERS)):
                ax.plot(theta, j[:, k], color=SOFT, linewidth=1.2, zorder=2)
                ends.append(End(j[-1, k], _indexed("J(θ)", k, j.shape[1]), SOFT))
    ax.set_xlabel(f"{variable}  ({'; '.join(notes)})")
    ax.set_ylabel(integrand)
    label_ends(ax, ends)


def _areas(weights: Array) -> Array:
    size = np.abs(weights)
    relative = size / max(float(size.mean()), np.finfo(float).tiny)
    # Smaller points where there are many, so that they do not run into a band.
    areas: Array = np.clip(30.0 * relative, 1.0, 120.0) * min(1.0, 8.0 / np.sqrt(len(size)))
    return areas


def _draw_distribution(ax: Any, estimate: Any, variable: str, integrand: str) -> None:
    sample = estimate.sample
    count = min(sample.f.shape[1], MOST_ANSWERS)
    bins = int(np.clip(np.sqrt(len(sample.f)), 6, 40))
    edges = np.histogram_bin_edges(sample.f[:, :count], bins=bins)
    for k, look in zip(range(count), _ANSWER_STYLES, strict=False):
        share = np.histogram(sample.f[:, k], edges, weights=sample.weights[:, k])[0]
        # Kernel weights may be negative, and in the sum of a bin too: no probability is.
        share = np.maximum(share / sample.weights[:, k].sum(), 0.0)
        if count == 1:
            ax.stairs(share, edges, fill=True, color=look.color, alpha=0.25)
        mean, text = _mean_of(estimate, k)
        label = f"{_indexed(integrand, k, count)}\n{text}"
        ax.stairs(share, edges, color=look.color, linestyle=look.dashes, linewidth=1.5, label=label)
        ax.axvline(mean, color=look.color, linestyle=AVERAGE, linewidth=1.0)
    # Steps have no free end to stand a label at.
    ax.legend(frameon=False, fontsize=TEXT_SIZE, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.set_ylim(bottom=0.0)
    ax.set_xlabel(f"{integrand} over {len(sample.f):,} values of {variable}  (dashed: means)")
    ax.set_ylabel("probability of a bin")


def _mean_of(estimate: Any, k: int) -> tuple[float, str]:
    """The k-th expectation in words, with ± where it is itself a final answer."""
    sample = estimate.sample
    answers = estimate.diagnostics.get("answers")
    if answers is None:
        answers = (sample.weights * sample.f).sum(axis=0)
    mean = float(np.ravel(answers)[k])
    values, halves = np.ravel(estimate.value), np.ravel(estimate.half_width)
    if values.size == sample.f.shape[1] and np.isclose(values[k], mean):
        return mean, f"mean {plus_minus(values[k], halves[k])}"
    return mean, f"mean {mean:.5g}"


def _indexed(symbol: str, k: int, count: int) -> str:
    """f(J(θ)), or f₂(J(θ)) where there are several."""
    return symbol if count == 1 else f"{symbol[0]}{'₁₂₃₄'[k]}{symbol[1:]}"


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
    bars = {"fmt": "none", "ecolor": look.color, "elinewidth": 0.5, "alpha": 0.35}
    ax.errorbar(errors.predicted, observed, yerr=half, **bars)
    ax.plot(errors.predicted, observed, ".", color=look.color, markersize=3, alpha=0.6)
    ends = np.array([errors.predicted.min(), errors.predicted.max()])
    ax.plot(ends, ends, color=INK, linewidth=1.0)
    corner = {"transform": ax.transAxes, "ha": "right", "fontsize": TEXT_SIZE - 1, "color": INK}
    ax.text(0.97, 0.04, "line: J = proxy", **corner)
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
    low, high = min(low, (mean - half).min(), 0.0), max(high, (mean + half).max(), 0.0)
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
