"""Figures of a value-of-information analysis.

Each function draws on the axes `ax`, or on a new figure of pyplot, and returns the axes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad.errors import InputError
from nestquad.plots import (
    AVERAGE,
    INK,
    SOFT,
    TEXT_SIZE,
    End,
    MethodStyle,
    axes_or_new,
    label_ends,
    series_styles,
    short,
    title,
)
from nestquad.voi.table import Outputs, as_outputs, ceac, expected_loss, icers, require, wtp_grid

if TYPE_CHECKING:
    import pandas as pd

# Dots of a cloud, bars, curves and options that a figure shows, and the longest name in it.
_MOST_DOTS, _MOST_BARS, _MOST_CURVES, _MOST_NAMED, _LONGEST = 2_000, 20, 6, 8, 26
# Styles of lines, bands of intervals, marks, and values that are merely for comparison.
_LINE: dict[str, Any] = {"linewidth": 1.5}
_BAND: dict[str, Any] = {"alpha": 0.14, "linewidth": 0}
_MARK: dict[str, Any] = {"markersize": 9, "zorder": 4}
_RULE: dict[str, Any] = {"color": SOFT, "linewidth": 0.8}
_GRAY = "#c4c4c4"


def _looks(known: Outputs) -> list[tuple[MethodStyle, str]]:
    """Style and label of each option; of many, the best on average, the others in gray."""
    order = np.argsort(-known.net_benefits()[0].mean(axis=0), kind="stable")
    named = set(order[:_MOST_NAMED].tolist())
    styles = iter(series_styles(len(named)))
    others = replace(series_styles(1)[0], color=_GRAY)
    rest = f"{known.n_options - len(named)} others"
    looks = []
    for d, option in enumerate(known.options):
        if d in named:
            looks.append((next(styles), short(option, _LONGEST)))
        else:  # all of them have one label
            looks.append((others, rest))
            rest = ""
    return looks


def plot_plane(outputs: Any, ax: Any = None, *, reference: str | None = None) -> Any:
    """Draw the cost-effectiveness plane of costs and effects, against a reference option.

    The first willingness to pay is drawn as a line: draws below it favor the option.
    """
    known = as_outputs(outputs)
    if known.net_benefit is not None:
        raise InputError("outputs", "net benefits", "costs and effects")
    base, ax = known.reference(reference), axes_or_new(ax)
    rows = slice(None, None, max(known.n_rows // _MOST_DOTS, 1))
    # Two thousand dots are no small drawing: they are an image.
    cloud: dict[str, Any] = {"s": 5, "alpha": 0.25, "linewidths": 0, "rasterized": True}
    for d, (look, label) in enumerate(_looks(known)):
        if d == base:
            continue
        effects, costs = (t[:, d] - t[:, base] for t in (known.effects, known.costs))
        ax.scatter(effects[rows], costs[rows], color=look.color, **cloud)
        mark = {"color": look.color, "markeredgecolor": "white", "label": label, **_MARK}
        ax.plot(effects.mean(), costs.mean(), look.marker, **mark)
    ax.axhline(0.0, **_RULE)
    ax.axvline(0.0, **_RULE)
    ax.autoscale_view()
    ax.set_xlim(ax.get_xlim())
    ax.set_ylim(ax.get_ylim())
    k, ends = known.wtps[0], np.array(ax.get_xlim())
    ax.plot(ends, k * ends, color=INK, linewidth=1.0, linestyle=AVERAGE, label=f"{k:,.0f} per unit")
    ax.legend(frameon=False, fontsize=TEXT_SIZE, loc="best")
    _money(ax.yaxis)
    heading = f"Cost-effectiveness plane, against {short(known.options[base], _LONGEST)}"
    return _titled(ax, "incremental effect", "incremental cost", heading)


def plot_ceac(outputs: Any, ax: Any = None, *, wtp: Any = None) -> Any:
    """Draw acceptability curves and the frontier. Arguments as in `ceac`."""
    known = as_outputs(outputs)
    ax = _by_option(known, ceac(known, wtp), "probability", ax, bottom=-0.02, top=1.02)
    across = "willingness to pay  (wide band: the frontier)"
    return _titled(ax, across, "probability of being the best", "Acceptability curves")


def plot_loss(outputs: Any, ax: Any = None, *, wtp: Any = None) -> Any:
    """Draw expected losses by willingness to pay, as in `ceac`; the lowest curve is EVPI."""
    known = as_outputs(outputs)
    table = expected_loss(known, wtp_grid(known, 51) if wtp is None else wtp)
    ax = _by_option(known, table, "loss", ax, bottom=0.0)
    _money(ax.yaxis)
    heading = "Expected loss of each option"
    return _titled(ax, "willingness to pay", "expected loss per person", heading)


def _by_option(known: Outputs, table: pd.DataFrame, value: str, ax: Any, **limits: float) -> Any:
    """Curves over willingness to pay, one an option; bands where it is on the frontier."""
    ax = axes_or_new(ax)
    ends = []
    for option, (look, label) in zip(known.options, _looks(known), strict=True):
        part = table[table.option == option]
        ax.plot(part.wtp, part[value], color=look.color, linestyle=look.dashes, **_LINE)
        if "frontier" in part:
            on = part[value].where(part.frontier)
            ax.plot(part.wtp, on, color=look.color, linewidth=5.0, alpha=0.3, solid_capstyle="butt")
        if label:
            ends.append(End(float(part[value].iloc[-1]), label, look.color))
    ax.set_ylim(**limits)
    ax.axvline(known.wtps[0], linestyle=AVERAGE, **_RULE)
    label_ends(ax, ends)
    _money(ax.xaxis)
    return ax


def plot_frontier(outputs: Any, ax: Any = None) -> Any:
    """Draw mean costs and effects of the options, and the efficiency frontier."""
    known = as_outputs(outputs)
    table, ax = icers(known), axes_or_new(ax)
    on = table[table.status == "frontier"]
    ax.plot(on.effect, on.cost, color=INK, **_LINE)
    looks = dict(zip(known.options, _looks(known), strict=True))
    for row in table.itertuples():
        look, label = looks[row.option]
        face = look.color if row.status == "frontier" else "white"
        mark = {"color": look.color, "markerfacecolor": face, "label": label, **_MARK}
        ax.plot(row.effect, row.cost, look.marker, **mark)
    ax.legend(frameon=False, fontsize=TEXT_SIZE, loc="best")
    _money(ax.yaxis)
    return _titled(ax, "mean effect  (hollow: dominated)", "mean cost", "Efficiency frontier")


def plot_evpi(
    evpi: pd.DataFrame,
    evppi: pd.DataFrame | None = None,
    ax: Any = None,
    *,
    mark: Any = None,
    heading: str = "Value of perfect information by willingness to pay",
) -> Any:
    """Draw EVPI, and EVPPI of the leading sets, by willingness to pay, one of which is marked."""
    require("evpi", evpi, ("wtp", "evpi", "lower", "upper"), "voi.evpi")
    ax = axes_or_new(ax)
    ends = [_curve(ax, evpi, "wtp", "evpi", "EVPI", {"color": INK})]
    if evppi is not None:
        require("evppi", evppi, ("wtp", "evppi", "lower", "upper"), "voi.evppi")
        leading = evppi.groupby("pars", sort=False).evppi.max().nlargest(_MOST_CURVES).index
        for label, look in zip(leading, series_styles(len(leading)), strict=True):
            line = {"color": look.color, "linestyle": look.dashes}
            ends.append(_curve(ax, evppi[evppi.pars == label], "wtp", "evppi", label, line))
    if mark is not None:
        ax.axvline(mark, linestyle=AVERAGE, **_RULE)
    ax.set_ylim(bottom=0.0)
    label_ends(ax, ends)
    _money(ax.xaxis)
    _money(ax.yaxis)
    return _titled(ax, "willingness to pay", "value per person (band: 95 %)", heading)


def _curve(
    ax: Any,
    part: pd.DataFrame,
    x: str,
    value: str,
    label: str,
    line: dict[str, Any],
    ends: tuple[str, str] = ("lower", "upper"),
) -> End:
    """Draw a curve with the band of its intervals; its label at the end."""
    ax.fill_between(part[x], part[ends[0]], part[ends[1]], color=line["color"], **_BAND)
    ax.plot(part[x], part[value], **line, **_LINE, markersize=5)
    return End(float(part[value].iloc[-1]), short(label, _LONGEST), line["color"])


def plot_rank(evppi: pd.DataFrame, ax: Any = None, *, evpi: float | None = None) -> Any:
    """Draw the information rank: a bar for each set, longest first, with 95 % intervals.

    Of several values of willingness to pay, the first is drawn; `evpi` is for the title.
    """
    require("evppi", evppi, ("wtp", "evppi", "lower", "upper"), "voi.evppi")
    ax = axes_or_new(ax)
    first = evppi["wtp"].iloc[0]
    table = evppi if np.isnan(first) else evppi[evppi.wtp == first]
    shown = table.nlargest(_MOST_BARS, "evppi").iloc[::-1]
    is_seen = ~shown["flags"].str.contains("not distinguishable").to_numpy()
    color, y = series_styles(1)[0].color, np.arange(len(shown))
    ax.barh(y, shown.evppi, 0.62, color=np.where(is_seen, color, "white"), edgecolor=color)
    sides = np.abs(shown[["lower", "upper"]].to_numpy().T - shown["evppi"].to_numpy())
    ax.errorbar(shown.evppi, y, xerr=sides, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
    ax.set_yticks(y, [short(label, _LONGEST) for label in shown.pars], parse_math=False)
    ax.set_ylim(-0.7, len(shown) - 0.3)
    ax.set_xlim(left=0.0)
    ax.grid(False, axis="y")
    _money(ax.xaxis)
    notes = "line: 95 %" if is_seen.all() else "line: 95 %; hollow: not distinguishable from 0"
    more = f", the first {_MOST_BARS} of {len(table)}" if len(table) > _MOST_BARS else ""
    at = "" if np.isnan(first) else f" at {first:,.0f}"
    everything = "" if evpi is None else f" (everything: {evpi:,.4g})"
    heading = f"What is worth knowing{at}{everything}{more}"
    return _titled(ax, f"EVPPI per person  ({notes})", "", heading)


def plot_evsi(evsi: pd.DataFrame, ax: Any = None, *, evppi: float | None = None) -> Any:
    """Draw EVSI by the size of the study, one curve a willingness to pay.

    `evppi` is the value of knowing the study's parameters exactly, which no size exceeds.
    """
    require("evsi", evsi, ("wtp", "evsi", "lower", "upper"), "voi.evsi")
    ax = axes_or_new(ax)
    ends = _by_size(ax, evsi, "evsi", ("lower", "upper"))
    if evppi is not None:
        ax.axhline(evppi, linestyle=AVERAGE, **_RULE)
        ends.append(End(evppi, "EVPPI", SOFT))
    ax.set_ylim(bottom=0.0)
    label_ends(ax, ends)
    heading = f"Value of a {short(evsi.design.iloc[0], 44)}{_only(evsi)}"
    return _titled(ax, _participants(ax), "EVSI per person (band: 95 %)", heading)


def plot_enbs(enbs: pd.DataFrame, ax: Any = None) -> Any:
    """Draw the expected net benefit of sampling by size from a table of `enbs`."""
    require("enbs", enbs, ("wtp", "n", "enbs", "optimal"), "voi.enbs")
    ax = axes_or_new(ax)
    ends = _by_size(ax, enbs, "enbs", ("enbs_lower", "enbs_upper"))
    ax.axhline(0.0, **_RULE)
    best = enbs[enbs.optimal]
    text = {"ha": "center", "fontsize": TEXT_SIZE, "color": INK}
    for _, row in best.iterrows():
        place = (row.n, row.enbs)
        ax.plot(*place, "o", color=INK, markerfacecolor="none", **_MARK)
        said = f"best: {row.n:,.0f} per arm"
        ax.annotate(said, place, xytext=(0, 10), textcoords="offset points", **text)
    ax.margins(y=0.15)
    label_ends(ax, ends)
    verdict = "" if len(best) else ": no size pays"
    heading = f"Net benefit of a {short(enbs.design.iloc[0], 40)}{_only(enbs)}{verdict}"
    return _titled(ax, _participants(ax), "expected net benefit of sampling (band: 95 %)", heading)


def plot_convergence(convergence: pd.DataFrame, ax: Any = None) -> Any:
    """Draw EVPI and EVPPI over the number of draws, from a table of `convergence`."""
    columns = ("pars", "n", "value", "lower", "upper", "enough")
    require("convergence", convergence, columns, "voi.convergence")
    ax = axes_or_new(ax)
    names = list(dict.fromkeys(convergence["pars"]))
    ends = [
        _curve(ax, convergence[convergence["pars"] == name], "n", "value", name, look.line)
        for name, look in zip(names, series_styles(len(names)), strict=True)
    ]
    ax.set_ylim(bottom=0.0)
    sizes = np.unique(convergence["n"])
    _log_sizes(ax, sizes)
    label_ends(ax, ends)
    _money(ax.yaxis)
    is_enough = bool(convergence[convergence["n"] == sizes[-1]]["enough"].all())
    heading = f"{sizes[-1]:,} draws are {'enough' if is_enough else 'too few'}"
    if not convergence["value"].any():
        heading = f"No draw of {sizes[-1]:,} favors another option"
    return _titled(ax, "draws (log scale)", "value per person (band: 95 %)", heading)


def _by_size(ax: Any, table: pd.DataFrame, value: str, sides: tuple[str, str]) -> list[End]:
    """Curves over participants with bands, one for each willingness to pay, and their labels."""
    wtps = list(dict.fromkeys(table["wtp"].fillna(-1.0)))
    ends = []
    for k, look in zip(wtps, series_styles(len(wtps)), strict=True):
        part = table[table["wtp"].fillna(-1.0) == k].sort_values("n")
        ends.append(_curve(ax, part, "n", value, f"at {k:,.0f}", look.line, sides))
    sizes = np.unique(table["n"])
    if sizes[-1] > 8 * sizes[0]:
        _log_sizes(ax, sizes)
    _money(ax.yaxis)
    return ends if len(wtps) > 1 else []


def _log_sizes(ax: Any, sizes: Any) -> None:
    """Sizes on a log scale, each with a tick."""
    ax.set_xscale("log")
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.minorticks_off()


def _participants(ax: Any) -> str:
    return "participants in each arm" + (" (log scale)" if ax.get_xscale() == "log" else "")


def _titled(ax: Any, x: str, y: str, heading: str) -> Any:
    """Axes with words for both directions, and a title."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    title(ax, "", heading)
    return ax


def _only(table: pd.DataFrame) -> str:
    """The willingness to pay, where there is one."""
    wtps = table["wtp"].dropna().unique()
    return f" at {wtps[0]:,.0f}" if len(wtps) == 1 else ""


def _money(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}")
    )
