"""Exposure of a netting set by date, and credit valuation adjustment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad._checks import numbers
from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError
from nestquad.plots import axes_or_new, series_styles
from nestquad.result import NORMAL_95, Estimate
from nestquad.risk._rows import Tabular
from nestquad.risk._targets import Targets, part_of, values_of

DefaultCurve = float | Sequence[float] | Callable[[Array], ArrayLike]


@dataclass(frozen=True, eq=False)
class Exposure(Tabular):
    """Exposure by date of a value J_t, positive where the counterparty owes.

    Attributes
    ----------
    dates
        In years, or 1, 2, ….
    ee, ene
        Expected exposure E max(J_t, 0) and expected negative exposure E max(−J_t, 0), by date.
    pfe
        Potential future exposure by level: quantiles of J_t by date.
    epe
        Expected positive exposure, the average of `ee` over time.
    cva
        Credit valuation adjustment, None without a default curve.
    """

    dates: Array
    ee: Estimate
    ene: Estimate
    pfe: Mapping[float, Estimate]
    epe: Estimate
    cva: Estimate | None = None

    @classmethod
    def of(
        cls, found: Estimate, targets: Targets, dates: Array, defaults: Array | None, lost: float
    ) -> Exposure:
        """From measures by date, cumulative default probabilities and the loss given default."""
        k = len(targets.keys)
        columns = [part_of(found, np.arange(i, k * len(dates), k)) for i in range(k)]
        levels = [level for _, level in targets.keys[2:]]
        steps = np.diff(dates, prepend=0.0)
        cva = None
        if defaults is not None:
            cva = weighted_sum(columns[0], lost * np.diff(defaults, prepend=0.0))
        return cls(
            dates,
            columns[0],
            columns[1],
            dict(zip(levels, columns[2:], strict=True)),
            weighted_sum(columns[0], steps / steps.sum()),
            cva,
        )

    def rows(self) -> list[dict[str, float]]:
        """One for each date."""
        columns = {"EE": self.ee, "ENE": self.ene}
        columns |= {f"PFE {100 * p:g} %": each for p, each in self.pfe.items()}
        rows = []
        for i, date in enumerate(self.dates):
            row = {"date": float(date)}
            for name, each in columns.items():
                row[name] = float(np.atleast_1d(each.value)[i])
                row[f"{name} se"] = float(np.atleast_1d(each.std_error)[i])
            rows.append(row)
        return rows

    def plot(self, ax: Any = None) -> Any:
        """Draw exposures against dates with 95 % bands; returns the axes."""
        ax = axes_or_new(ax)
        drawn = [
            ("expected exposure", self.ee, 1.0),
            ("− expected negative exposure", self.ene, -1.0),
        ]
        drawn += [(f"PFE {100 * p:g} %", each, 1.0) for p, each in self.pfe.items()]
        for (name, each, sign), look in zip(drawn, series_styles(len(drawn)), strict=True):
            value, half = sign * np.asarray(each.value), NORMAL_95 * np.asarray(each.std_error)
            ax.fill_between(self.dates, value - half, value + half, color=look.color, alpha=0.2)
            ax.plot(self.dates, value, label=name, markersize=3, **look.line)
        ax.set_xlabel("date")
        ax.set_ylabel("exposure")
        ax.legend(frameon=False, fontsize=8)
        return ax


def weighted_sum(estimate: Estimate, weights: Array) -> Estimate:
    """A weighted sum of answers, whose errors are correlated."""
    covariance = np.atleast_2d(np.asarray(estimate.covariance))
    error = float(np.sqrt(max(float(weights @ covariance @ weights), 0.0)))
    draws = None
    if estimate.draws is not None:
        draws = estimate.draws @ weights
        low, high = np.quantile(draws, [0.025, 0.975])
        error = float(high - low) / (2.0 * NORMAL_95)
    value = float(weights @ estimate.value)
    return replace(estimate, value=value, std_error=error, covariance=None, draws=draws)


def dates_of(outputs: Any) -> Array:
    """Dates in years, checked."""
    expected = "dates in years, in increasing order, one for each output of g"
    dates = numbers("outputs", outputs, expected)
    rising = dates.ndim == 1 and dates.size > 0 and (np.diff(dates, prepend=0.0) >= 0).all()
    if not rising or dates[-1] <= 0 or not np.isfinite(dates).all():
        raise InputError("outputs", repr(outputs), expected)
    return dates


def default_probabilities(curve: DefaultCurve, dates: Array | None) -> Array:
    """Cumulative default probabilities at the dates; without dates the curve is only checked."""
    if dates is None:
        n = 1 if callable(curve) else max(np.size(np.asarray(curve, object)), 1)
        dates = np.arange(1.0, n + 1.0)
    function = curve if callable(curve) else lambda _: curve
    found = values_of(
        "default_curve", function, dates, "numbers, or a function of an array of dates"
    )
    if found.ndim == 0 and not callable(curve):
        if found < 0:
            raise InputError("default_curve", f"a hazard rate of {found:g}", "one of at least 0")
        with np.errstate(over="ignore"):
            found = -np.expm1(-found * dates)
    good = found.shape == dates.shape and ((found >= 0) & (found <= 1)).all()
    if not good or (np.diff(found) < 0).any():
        expected = f"a hazard rate, or {len(dates)} cumulative default probabilities, not falling"
        raise InputError("default_curve", f"{found}", expected)
    return found
