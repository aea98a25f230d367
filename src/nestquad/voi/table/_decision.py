"""The decision on current information: means, increments, dominance, losses, acceptability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._frames import as_given
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.result import NORMAL_95
from nestquad.voi.table._numbers import pandas
from nestquad.voi.table._outputs import Outputs, as_outputs

if TYPE_CHECKING:
    import pandas as pd


@as_given
def psa_summary(outputs: Any) -> pd.DataFrame:
    """Means of each option with standard errors, and its probability of being the best.

    Returns a table with a row for each willingness to pay and option: wtp, option, cost, effect
    (where given), net_benefit, se, and probability of being the best.
    """
    known = as_outputs(outputs)
    benefits = known.net_benefits()
    columns: dict[str, Array] = {}
    if known.net_benefit is None:
        columns = {"cost": known.costs.mean(axis=0), "effect": known.effects.mean(axis=0)}
    columns |= {"net_benefit": benefits.mean(axis=1)}
    columns |= {"se": benefits.std(axis=1, ddof=1) / np.sqrt(known.n_effective)}
    return _by_option(known, **columns, probability=_shares(benefits))


def _by_option(known: Outputs, **columns: Any) -> pd.DataFrame:
    """Table with a row for each willingness to pay and option, from arrays (D,) or (W, D)."""
    shape = (len(known.wtps), known.n_options)
    keys = {"wtp": np.repeat(known.wtps, shape[1]), "option": [*known.options] * shape[0]}
    filled = {name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()}
    return pandas().DataFrame({**keys, **filled})


@as_given
def incremental(outputs: Any, reference: str | None = None) -> pd.DataFrame:
    """Incremental net benefit of each option against one of them, with its own error.

    Common parts of the options cancel draw by draw, so that the error is much smaller than the
    errors of the two means.

    Parameters
    ----------
    reference
        The option to compare with; default: the first.

    Returns
    -------
    pd.DataFrame
        Table with a row for each willingness to pay and other option: wtp, option, against, cost,
        effect (increments, where given), inb, se, lower, upper (95 %), and the probability of being
        better.
    """
    known = as_outputs(outputs)
    base = known.reference(reference)
    columns: dict[str, Any] = {"against": known.options[base]}
    if known.net_benefit is None:
        for what, table in (("cost", known.costs), ("effect", known.effects)):
            columns[what] = (table - table[:, base : base + 1]).mean(axis=0)
    benefits = known.net_benefits()
    gains = benefits - benefits[:, :, base : base + 1]
    better = (gains > 0).mean(axis=1) + (gains == 0).mean(axis=1) / 2
    columns |= mean_row("inb", gains.swapaxes(1, 2), _sizes(benefits), known)
    table = _by_option(known, **columns, probability=better)
    others: pd.DataFrame = table[table["option"] != known.options[base]]
    return others.reset_index(drop=True)


def _sizes(benefits: Array) -> Array:
    """Mean size of net benefits (W, n, D) at each willingness to pay, (W, 1)."""
    return np.asarray(np.abs(benefits).mean(axis=(1, 2)))[:, None]


def mean_row(name: str, values: Array, size: Any, outputs: Outputs) -> dict[str, Any]:
    """Means over draws of outputs, the last axis, errors and intervals.

    `size` is that of the numbers subtracted.
    """
    mean, se = values.mean(axis=-1), values.std(axis=-1, ddof=1) / np.sqrt(outputs.n_effective)
    se = np.where(se < 1e-12 * size, 0.0, se)  # a constant difference leaves rounding errors
    half = NORMAL_95 * se
    return {name: mean, "se": se, "lower": mean - half, "upper": mean + half}


@as_given
def icers(outputs: Any) -> pd.DataFrame:
    """Incremental cost-effectiveness ratios, dominance and the efficiency frontier.

    Returns a table of options by increasing mean cost: option, cost, effect, status
    (``"frontier"``, ``"dominated"`` by a cheaper option that is as good, or ``"extendedly
    dominated"`` by a mixture of two); and for options on the frontier incremental_cost,
    incremental_effect and icer against the option before.
    """
    known = _with_effects(outputs)
    means = {"cost": known.costs.mean(axis=0), "effect": known.effects.mean(axis=0)}
    table = pandas().DataFrame({"option": known.options, **means})
    table = table.sort_values(["cost", "effect"], ascending=[True, False], ignore_index=True)
    is_rising = table["effect"] > table["effect"].cummax().shift(fill_value=-np.inf)
    frontier: list[int] = []
    for d in map(int, np.flatnonzero(is_rising)):
        while len(frontier) > 1 and _ratio(table, frontier[-1], d) <= _ratio(table, *frontier[-2:]):
            frontier.pop()
        frontier.append(d)
    table["status"] = np.where(is_rising, "extendedly dominated", "dominated")
    table.loc[frontier, "status"] = "frontier"
    steps = table.loc[frontier, ["cost", "effect"]].diff()
    table["incremental_cost"], table["incremental_effect"] = steps["cost"], steps["effect"]
    table["icer"] = steps["cost"] / steps["effect"]
    return table


def _ratio(table: pd.DataFrame, first: int, second: int) -> float:
    step = table.loc[second, ["cost", "effect"]] - table.loc[first, ["cost", "effect"]]
    return float(step["cost"] / step["effect"])


@as_given
def expected_loss(outputs: Any, wtp: Any = None) -> pd.DataFrame:
    """Expected loss of each option: mean net benefit forgone by choosing it; the smallest is EVPI.

    Parameters
    ----------
    wtp
        Values of willingness to pay that replace the values of the outputs.

    Returns
    -------
    pd.DataFrame
        Table with a row for each willingness to pay and option: wtp, option, loss, se, lower,
        upper.
    """
    known = as_outputs(outputs)
    known = known if wtp is None else known.at(wtp)
    benefits = known.net_benefits()
    losses = benefits.max(axis=2, keepdims=True) - benefits
    return _by_option(known, **mean_row("loss", losses.swapaxes(1, 2), _sizes(benefits), known))


def _with_effects(outputs: Any) -> Outputs:
    known = as_outputs(outputs)
    if known.net_benefit is not None:
        advice = "A curve needs a willingness to pay."
        raise InputError("outputs", "net benefits", "costs and effects", advice)
    return known


@as_given
def ceac(outputs: Any, wtp: Any = None) -> pd.DataFrame:
    """Cost-effectiveness acceptability curves, and the frontier.

    Fenwick, Claxton and Sculpher (2001), “Representing uncertainty: the role of
    cost-effectiveness acceptability curves”.

    Parameters
    ----------
    outputs
        Costs and effects, as in `evpi`.
    wtp
        Values of willingness to pay; default: from 0 to twice the largest of the outputs.

    Returns
    -------
    pd.DataFrame
        Table with a row for each willingness to pay and option: wtp, option, probability of being
        the best, and frontier, true for the option with the largest mean net benefit.
    """
    known = _with_effects(outputs)
    swept = known.at(wtp_grid(known, 101) if wtp is None else wtp)
    benefits = swept.net_benefits()
    best = benefits.mean(axis=1).argmax(axis=1)
    on_frontier = np.arange(swept.n_options) == best[:, None]
    return _by_option(swept, probability=_shares(benefits), frontier=on_frontier)


def wtp_grid(outputs: Outputs, count: int) -> Array:
    """Values from 0 to twice the largest willingness to pay."""
    top = 2.0 * max(outputs.wtps)
    return np.linspace(0.0, top if top > 0 else 50_000.0, count)


def _shares(benefits: Array) -> Array:
    """Share of draws (W, D) in which each option is the best, ties shared."""
    best = benefits == benefits.max(axis=2, keepdims=True)
    shares: Array = (best / best.sum(axis=2, keepdims=True)).mean(axis=1)
    return shares
