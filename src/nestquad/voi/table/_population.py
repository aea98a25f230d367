"""Population values, and the expected net benefit of sampling."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nestquad._checks import is_number, numbers, shown
from nestquad._frames import as_given
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.voi.table._numbers import pandas

if TYPE_CHECKING:
    import pandas as pd

ByYear: TypeAlias = "float | Sequence[float] | Array"
DISCOUNT = 0.035
# Sizes within 5 % of the best are the near-optimal ones, as elsewhere in the field.
_NEAR = 0.05
_YEARS = "years that are not negative, or a function of n that returns them"
_THOUSANDS = re.compile(r"\d{1,3}([,'’\u00a0\u202f ]\d{3})+(\.\d+)?|[1-9]\d{0,2}(\.\d{3})+")


def people(
    per_year: ByYear,
    horizon: float,
    *,
    discount: float = DISCOUNT,
    start: float = 0.0,
    prevalence: float = 0.0,
    uptake: ByYear = 1.0,
) -> float:
    """Number of people whom a decision affects, later ones discounted.

    Rothery et al. (2020), “Value of information analytical methods: report 2 of the ISPOR value of
    information analysis emerging good practices task force”.

    Parameters
    ----------
    per_year
        Incidence: people who face the decision in a year; a number, or one for each year, of which
        the last holds until the horizon.
    horizon
        Years from now for which the decision stays relevant.
    discount
        Rate of a year; the first year is not discounted. Default: 3.5 %.
    start
        Years from now before which no person benefits, for instance while a study runs.
    prevalence
        People who face the decision already; they are treated at the start.
    uptake
        Share of people in whom the decision is implemented; a number, or one for each year.
    """
    for name, value in (("horizon", horizon), ("start", start), ("prevalence", prevalence)):
        amount(name, value)
    if not (is_number(discount) and 0 <= discount < 1):
        raise InputError("discount", shown(discount), "a rate such as 0.035, from 0 to below 1")
    incidence, share = _by_year("per_year", per_year), _by_year("uptake", uptake)
    if share.max() > 1:
        raise InputError("uptake", shown(uptake), "shares from 0 to 1")
    start = min(start, horizon)
    known = max(len(incidence), len(share))
    # Each year separately, and all years after the last one that was given together.
    ends = np.clip([*range(known), horizon], start, horizon)
    counted = np.array([_years(float(end), discount) for end in ends])
    year = np.arange(known)
    rates = incidence[np.minimum(year, len(incidence) - 1)]
    rates = rates * share[np.minimum(year, len(share) - 1)]
    pool = 0.0
    if start < horizon:
        soon = float(share[min(math.floor(start), len(share) - 1)])
        pool = prevalence * soon * math.exp(-math.floor(start) * math.log1p(discount))
    return float(rates @ np.diff(counted) + pool)


def _by_year(name: str, values: ByYear) -> Array:
    given: Any = values if isinstance(values, list | tuple | np.ndarray) else [values]
    if not len(given) or not all(is_number(x) and 0 <= x < math.inf for x in given):
        expected = "a number that is not negative, or one for each year"
        raise InputError(name, shown(values), expected)
    return np.array(given, dtype=float)


def _years(time: float, discount: float) -> float:
    """Discounted years until a time: a geometric sum, and a share of the last year."""
    whole, log = math.floor(time), math.log1p(discount)
    full = math.expm1(-whole * log) / math.expm1(-log) if discount else whole
    return full + (time - whole) * math.exp(-whole * log)


def ungrouped(text: str) -> str:
    """Number that a person may mean by separators of thousands; "" without any."""
    match = _THOUSANDS.fullmatch(text)
    return "" if match is None else re.sub(r"[^\d.]" if match[1] else r"\D", "", text)


def amount(name: str, value: Any, expected: str = "a number that is not negative") -> float:
    """A number from 0 on, checked."""
    if not (is_number(value) and 0 <= value < math.inf):
        raise InputError(name, shown(value), expected)
    return float(value)


@as_given
def population(
    values: Any,
    *,
    per_year: ByYear,
    horizon: float,
    discount: float = DISCOUNT,
    start: float = 0.0,
    prevalence: float = 0.0,
    uptake: ByYear = 1.0,
) -> Any:
    """The value of information for everybody whom the decision affects.

    Parameters
    ----------
    values
        Table of `evpi`, `evppi` or `evsi`; or a value for one person, or an array of them.
    per_year, horizon, discount, start, prevalence, uptake
        As in `people`.

    Returns
    -------
    Any
        Table or numbers: a table with the columns population, population_lower, population_upper
        (in money) and population_effects (in units of effect, such as quality-adjusted years of
        life; where willingness to pay is known) added; a number for a number.
    """
    whom: Any = {"discount": discount, "prevalence": prevalence, "uptake": uptake}
    count = people(per_year, horizon, start=start, **whom)
    if not isinstance(values, pandas().DataFrame):
        return numbers("values", values, "a table of values, a number or an array") * count
    name = next((name for name in ("evsi", "evppi", "evpi") if name in values), "evpi")
    require("values", values, (name, "lower", "upper", "wtp"), "voi.evpi, voi.evppi or voi.evsi")
    table = values.copy()
    for column, source in (("", name), ("_lower", "lower"), ("_upper", "upper")):
        table[f"population{column}"] = table[source] * count
    wtp = table["wtp"].where(table["wtp"] > 0)
    table["population_effects"] = table["population"] / wtp
    return table


@as_given
def enbs(
    values: pd.DataFrame,
    *,
    per_year: ByYear,
    horizon: float,
    discount: float = DISCOUNT,
    prevalence: float = 0.0,
    uptake: ByYear = 1.0,
    fixed_cost: float = 0.0,
    cost_per_participant: float = 0.0,
    duration: float | Callable[[int], float] = 0.0,
) -> pd.DataFrame:
    """Expected net benefit of sampling (ENBS): the value of a study less its cost.

    Parameters
    ----------
    values
        Table of `evsi`.
    per_year, horizon, discount, prevalence, uptake
        The people affected, as in `people`.
    fixed_cost, cost_per_participant
        Costs of the study.
    duration
        Years until its results change decisions, or a function of n (participants in an arm) that
        says so; who is treated before then does not benefit.

    Returns
    -------
    pd.DataFrame
        Table: the table with years (of the study), population_evsi, cost, enbs, enbs_lower,
        enbs_upper, optimal and near_optimal added. For each design and willingness to pay, optimal
        is true for the size with the largest enbs, if that is positive (otherwise no study pays),
        and near_optimal for sizes within 5 % of it.
    """
    require(
        "values",
        values,
        ("design", "n", "participants", "wtp", "evsi", "lower", "upper"),
        "voi.evsi",
    )
    for name, value in (("fixed_cost", fixed_cost), ("cost_per_participant", cost_per_participant)):
        amount(name, value, "an amount that is not negative")
    table = values.copy()
    waits = [
        amount("duration", duration(int(n)) if callable(duration) else duration, _YEARS)
        for n in table["n"]
    ]
    whom: Any = {"discount": discount, "prevalence": prevalence, "uptake": uptake}
    counts = np.array([people(per_year, horizon, start=wait, **whom) for wait in waits])
    table["years"] = np.asarray(waits, dtype=float)
    table["population_evsi"] = table["evsi"] * counts
    table["cost"] = fixed_cost + cost_per_participant * table["participants"]
    table["enbs"] = table["population_evsi"] - table["cost"]
    table["enbs_lower"] = table["lower"] * counts - table["cost"]
    table["enbs_upper"] = table["upper"] * counts - table["cost"]
    best = table.groupby(["design", "wtp"], dropna=False)["enbs"].transform("max")
    table["optimal"] = (table["enbs"] == best) & (best > 0)
    table["near_optimal"] = (table["enbs"] >= (1 - _NEAR) * best) & (best > 0)
    return table


@as_given
def best_sizes(values: pd.DataFrame) -> pd.DataFrame:
    """The best size of each study, the range of sizes that are nearly as good, and caveats.

    Parameters
    ----------
    values
        Table of `enbs`.

    Returns
    -------
    pd.DataFrame
        Table with a row for each design and willingness to pay: design, wtp, n (0 where no size
        pays), enbs, enbs_lower, enbs_upper, near_from and near_to (sizes tried within 5 % of the
        best), years, and notes, for instance that the best size is the largest tried.
    """
    require("values", values, ("design", "n", "wtp", "enbs", "near_optimal", "years"), "voi.enbs")
    rows = []
    for (design, k), part in values.groupby(["design", "wtp"], dropna=False, sort=False):
        best = part.loc[part["enbs"].idxmax()]
        near = part["n"][part["near_optimal"]]
        notes = []
        if not best["optimal"]:
            notes.append("no size that was tried is worth its cost")
        elif len(part) > 1 and best["n"] == part["n"].max():
            notes.append("the best size is the largest tried: a larger one may be better")
        elif len(part) > 1 and best["n"] == part["n"].min():
            notes.append("the best size is the smallest tried: a smaller one may be better")
        if best["optimal"] and best["enbs_lower"] <= 0:
            notes.append("that it pays is not certain: its interval reaches below 0")
        if (part["years"] == 0).all():
            notes.append("results are taken as immediate: no duration was given")
        row = {"design": design, "wtp": k, "n": int(best["n"]) if best["optimal"] else 0}
        row |= {name: float(best[name]) for name in ("enbs", "enbs_lower", "enbs_upper")}
        ends = (int(near.min()), int(near.max())) if len(near) else (0, 0)
        row |= {"near_from": ends[0], "near_to": ends[1], "years": float(best["years"])}
        rows.append({**row, "notes": "; ".join(notes)})
    return pandas().DataFrame(rows)


def require(argument: str, values: Any, columns: Sequence[str], maker: str) -> None:
    """Refuse anything but a table with these columns."""
    what = f"a {type(values).__name__}"
    if isinstance(values, pandas().DataFrame):
        if set(columns) <= set(values.columns):
            return
        what = f"a table with the columns {', '.join(map(str, values.columns))}"
    raise InputError(argument, what, f"the table that {maker} returned")
