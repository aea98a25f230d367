"""The decision on current information: means, increments, dominance, losses, acceptability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.result import NORMAL_95
from nestquad.voi.table._cells import pandas
from nestquad.voi.table._outputs import Outputs, as_outputs

if TYPE_CHECKING:
    import pandas as pd


def psa_summary(outputs: Any) -> pd.DataFrame:
    """Means of each option with standard errors, and its probability of being the best.

    Returns a table with a row for each willingness to pay and option: wtp, option, cost, effect
    (where given), net_benefit, se, and probability of being the best.
    """
    known = as_outputs(outputs)
    rows = []
    for k, benefits in zip(known.wtps, known.net_benefits(), strict=True):
        shares = _shares(benefits)
        for d, option in enumerate(known.options):
            row: dict[str, Any] = {"wtp": k, "option": option}
            if known.net_benefit is None:
                row |= {"cost": known.costs[:, d].mean(), "effect": known.effects[:, d].mean()}
            row |= {
                "net_benefit": benefits[:, d].mean(),
                "se": benefits[:, d].std(ddof=1) / np.sqrt(known.n_rows),
                "probability": shares[d],
            }
            rows.append(row)
    return pandas().DataFrame(rows)


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
    name = known.options[base]
    rows = []
    for k, benefits in zip(known.wtps, known.net_benefits(), strict=True):
        for d, option in enumerate(known.options):
            if d == base:
                continue
            row: dict[str, Any] = {"wtp": k, "option": option, "against": name}
            if known.net_benefit is None:
                for what, table in (("cost", known.costs), ("effect", known.effects)):
                    row[what] = float((table[:, d] - table[:, base]).mean())
            gain = benefits[:, d] - benefits[:, base]
            better = float(np.mean(gain > 0) + np.mean(gain == 0) / 2)
            size = float(np.abs(benefits).mean())
            rows.append({**row, **mean_row("inb", gain, size), "probability": better})
    return pandas().DataFrame(rows)


def mean_row(name: str, values: Array, size: float) -> dict[str, float]:
    """A mean with standard error and 95 % interval; `size` is that of the numbers subtracted."""
    mean, se = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    se = 0.0 if se < 1e-12 * size else se  # a constant difference leaves rounding errors
    half = NORMAL_95 * se
    return {name: mean, "se": se, "lower": mean - half, "upper": mean + half}


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
    rows = []
    for k, benefits in zip(known.wtps, known.net_benefits(), strict=True):
        losses = benefits.max(axis=1, keepdims=True) - benefits
        size = float(np.abs(benefits).mean())
        for option, loss in zip(known.options, losses.T, strict=True):
            rows.append({"wtp": k, "option": option, **mean_row("loss", loss, size)})
    return pandas().DataFrame(rows)


def _with_effects(outputs: Any) -> Outputs:
    known = as_outputs(outputs)
    if known.net_benefit is not None:
        raise InputError(
            "outputs", "net benefits", "costs and effects", "A curve needs a willingness to pay."
        )
    return known


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
    rows = []
    for k, benefits in zip(swept.wtps, swept.net_benefits(), strict=True):
        shares, best = _shares(benefits), int(benefits.mean(axis=0).argmax())
        for d, option in enumerate(swept.options):
            rows.append(
                {"wtp": k, "option": option, "probability": shares[d], "frontier": d == best}
            )
    return pandas().DataFrame(rows)


def wtp_grid(outputs: Outputs, count: int) -> Array:
    """Values from 0 to twice the largest willingness to pay."""
    top = 2.0 * max(outputs.wtps)
    return np.linspace(0.0, top if top > 0 else 50_000.0, count)


def _shares(benefits: Array) -> Array:
    """How often each option is the best, ties shared."""
    best = benefits == benefits.max(axis=1, keepdims=True)
    shares: Array = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares
