"""Report of risk: measures with intervals, the law of the loss, contributions, exposure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nestquad._checks import shown
from nestquad._notebook import grid
from nestquad._typing import Array
from nestquad.errors import InputError, optional_module
from nestquad.pages import figure, footer, paragraphs, table, write_page
from nestquad.pages import grid as page_grid
from nestquad.plots import INK, SOFT, axes_or_new, series_styles, title
from nestquad.result import NORMAL_95, Estimate, plain
from nestquad.risk._contributions import Contributions
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._greeks import Greeks
from nestquad.risk._targets import Key, Kind, label

# Rows of a table on the page.
_MOST_ROWS = 40


@dataclass(frozen=True, eq=False)
class Exposure:
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

    def to_frame(self) -> Any:
        """One row a date; needs the extra ``frames``."""
        return optional_module("pandas", "to_frame", "frames").DataFrame(self.rows())

    def rows(self) -> list[dict[str, float]]:
        columns = {"EE": self.ee, "ENE": self.ene}
        columns |= {f"PFE {100 * p:g} %": one for p, one in self.pfe.items()}
        rows = []
        for i, date in enumerate(self.dates):
            row = {"date": float(date)}
            for name, one in columns.items():
                row[name] = float(np.atleast_1d(one.value)[i])
                row[f"{name} se"] = float(np.atleast_1d(one.std_error)[i])
            rows.append(row)
        return rows

    def plot(self, ax: Any = None) -> Any:
        """Draw exposures against dates with 95 % bands; returns the axes."""
        ax = axes_or_new(ax)
        drawn = [
            ("expected exposure", self.ee, 1.0),
            ("− expected negative exposure", self.ene, -1.0),
        ]
        drawn += [(f"PFE {100 * p:g} %", one, 1.0) for p, one in self.pfe.items()]
        for (name, one, sign), look in zip(drawn, series_styles(len(drawn)), strict=True):
            value, half = sign * np.asarray(one.value), NORMAL_95 * np.asarray(one.std_error)
            ax.fill_between(self.dates, value - half, value + half, color=look.color, alpha=0.2)
            ax.plot(self.dates, value, label=name, markersize=3, **look.line)
        ax.set_xlabel("date")
        ax.set_ylabel("exposure")
        ax.legend(frameon=False, fontsize=8)
        return ax


@dataclass(frozen=True, eq=False)
class RiskReport:
    """Measures of the risk of J(θ) = E[loss | scenario θ].

    Attributes
    ----------
    problem
        Its name.
    estimate
        All measures as one `Estimate`, in the order in which they are printed.
    keys
        Their kinds, with levels or thresholds.
    notes
        How the answer was found, and what would improve it.
    distribution
        The law of J with a band; None for exposures.
    contributions
        Euler contributions by output; None where there is one output.
    exposure
        By date, with ``exposure=True``; otherwise None.
    sensitivities
        Derivatives of the measures in parameters, if they were asked for.
    """

    problem: str
    estimate: Estimate
    keys: tuple[Key, ...]
    notes: tuple[str, ...] = ()
    distribution: LossDistribution | None = None
    contributions: Contributions | None = None
    exposure: Exposure | None = None
    sensitivities: Greeks | None = None

    @cached_property
    def var(self) -> Mapping[float, Estimate]:
        """Value at risk by level, each an `Estimate`."""
        return self._of("var")

    @cached_property
    def es(self) -> Mapping[float, Estimate]:
        """Expected shortfall by level."""
        return self._of("es")

    @cached_property
    def exceed(self) -> Mapping[float, Estimate]:
        """P(J > c) by threshold c."""
        return self._of("exceed")

    def _of(self, kind: Kind) -> dict[float, Estimate]:
        each = enumerate(self.keys)
        return {level: scalar(self.estimate, i) for i, (k, level) in each if k == kind}

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the measures."""
        names = [label(*key) for key in self.keys]
        if self.exposure is None:
            return tuple(names)
        return tuple(f"{name} at {date:g}" for date in self.exposure.dates for name in names)

    @property
    def n_evaluations(self) -> int:
        return self.estimate.n_evaluations

    @property
    def status(self) -> str:
        return self.estimate.status

    @property
    def seconds(self) -> float:
        return self.estimate.seconds

    def rows(self) -> list[dict[str, Any]]:
        """One for each measure: value, standard error, 95 % interval."""
        measures = [(name, scalar(self.estimate, i)) for i, name in enumerate(self.labels)]
        if self.exposure is not None:
            over_time = [("EPE", self.exposure.epe), ("CVA", self.exposure.cva)]
            measures += [(name, one) for name, one in over_time if one is not None]
        rows = []
        for name, one in measures:
            low, high = one.interval()
            if name.startswith("P("):
                low, high = max(low, 0.0), min(high, 1.0)
            found = {"value": one.value, "std_error": one.std_error, "low": low, "high": high}
            rows.append({"measure": name, **found})
        return rows

    def _cells(self) -> list[tuple[str, str, str]]:
        """Names, values and intervals, as text."""
        return [
            (row["measure"], f"{row['value']:.5g}", f"{row['low']:.5g} … {row['high']:.5g}")
            for row in self.rows()
        ]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame; needs the extra ``frames``."""
        return optional_module("pandas", "RiskReport.to_frame", "frames").DataFrame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """All but the distribution, as plain Python objects."""
        return {
            "problem": self.problem,
            "measures": plain(self.rows()),
            "contributions": plain(self.contributions.rows()) if self.contributions else None,
            "exposure": plain(self.exposure.rows()) if self.exposure else None,
            "sensitivities": plain(self.sensitivities.rows()) if self.sensitivities else None,
            "n_evaluations": self.n_evaluations,
            "status": self.status,
            "seconds": self.seconds,
            "notes": list(self.notes),
        }

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @property
    def _title(self) -> str:
        return f"{self.problem}: {self.n_evaluations:,} evaluations, {self.status}"

    def _repr_html_(self) -> str:
        return grid(self._title, ("measure", "value", "95 % interval"), self._cells())

    def __str__(self) -> str:
        width = max(map(len, self.labels))
        lines = [f"{self._title}, {self.seconds:.2g} s"]
        for name, value, ends in (("", "value", "95 % interval"), *self._cells()):
            lines.append(f"{name:<{width}}  {value:>12}   {ends}")
        if self.contributions is not None:
            lines += ["", str(self.contributions)]
        if self.sensitivities is not None:
            lines += ["", str(self.sensitivities)]
        lines += ["", *self.notes] if self.notes else []
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Draw the exceedance curve of J with its band, VaR and shortfall; returns the axes.

        Exposures are drawn by date.
        """
        if self.exposure is not None:
            ax = self.exposure.plot(ax)
            title(ax, self.problem, f"{self.n_evaluations:,} evaluations")
            return ax
        assert self.distribution is not None
        ax = self.distribution.plot(ax)
        marks: list[tuple[str, float | None, Estimate]] = [
            (f"VaR {100 * p:g} %", 1.0 - p, one) for p, one in self.var.items()
        ]
        marks += [(f"ES {100 * p:g} %", None, one) for p, one in self.es.items()]
        for name, height, one in marks:
            value, half = float(one.value), NORMAL_95 * float(one.std_error)
            if height is None:
                ax.axvline(value, color=SOFT, linewidth=1.0, linestyle=(0, (2, 2)))
            elif np.isfinite(half):
                ax.errorbar(value, height, xerr=half, fmt="o", color=INK, markersize=4, capsize=3)
            at = (value, height or 0.6)
            offset = {"xytext": (5, 5), "textcoords": "offset points"}
            ax.annotate(name, at, fontsize=8, color=INK, **offset)
        for c, one in self.exceed.items():
            value, half = float(one.value), NORMAL_95 * float(one.std_error)
            if value > 0 and np.isfinite(half):
                low = min(half, 0.999 * value)
                ax.errorbar(c, value, yerr=[[low], [half]], fmt="s", color=INK, markersize=3)
                place = {"xytext": (-5, -5), "textcoords": "offset points", "va": "top"}
                ax.annotate(f"P(J > {c:g})", (c, value), fontsize=8, color=INK, ha="right", **place)
        title(ax, self.problem, f"{self.n_evaluations:,} evaluations")
        return ax

    def save(self, path: str | Path, *, command: str | None = None) -> Path:
        """Write the report as one self-contained HTML page; returns the file."""
        return write_risk_page(page_path(path), self, command)


def page_path(path: Any) -> Path:
    """The file of a page, refused if its name is none."""
    expected = "a file name that ends with .html"
    if not isinstance(path, str | PathLike) or Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError("path", shown(path), expected)
    return Path(path)


def scalar(estimate: Estimate, which: Any) -> Estimate:
    """One of several answers, or some of them, as an estimate of its own."""
    value, error = (np.atleast_1d(one)[which] for one in (estimate.value, estimate.std_error))
    single = np.ndim(value) == 0
    covariance = None
    if not single and estimate.covariance is not None:
        covariance = estimate.covariance[np.ix_(which, which)]
    return replace(
        estimate,
        value=float(value) if single else value,
        std_error=float(error) if single else error,
        covariance=covariance,
        draws=None if estimate.draws is None else estimate.draws[:, which],
        trace=(),
    )


def write_risk_page(path: str | Path, report: RiskReport, command: str | None = None) -> Path:
    """Write the page; returns the file. Without the extra ``plot`` it has no figures."""
    sections = [f"<h1>Risk: {escape(report.problem)}</h1>", *_sections(report), footer(command)]
    try:
        return write_page(path, f"Risk: {report.problem}", sections)
    except OSError as error:
        given = f"{str(path)!r}, which cannot be written ({error.strerror})"
        raise InputError("path", given, "a file in a folder that exists") from error


def _sections(report: RiskReport) -> Iterator[str]:
    if report.exposure is None:
        shares = [_relative(row["value"], row["std_error"]) for row in report.rows()]
        yield page_grid(
            ("measure", "value", "95 % interval", "± of the value"),
            [(*cells, one) for cells, one in zip(report._cells(), shares, strict=True)],
            "Measures of the loss J, the expected loss given the scenario",
        )
        yield figure(
            report.plot,
            "Probability of a larger loss with its 95 % band; points are VaR with intervals, "
            "squares are exceedances, the dotted line is expected shortfall.",
            height=4.0,
        )
    else:
        found = report.exposure
        rows = [("expected positive exposure", found.epe), ("CVA", found.cva)]
        yield table([(name, f"{one.summary} (95 %)") for name, one in rows if one is not None])
        yield figure(report.plot, "Exposure by date with 95 % bands.", height=4.0)
        names = [name for name in found.rows()[0] if not name.endswith(" se")]
        dates = [
            [f"{row['date']:g}"]
            + [f"{row[k]:.5g} ± {NORMAL_95 * row[f'{k} se']:.2g}" for k in names[1:]]
            for row in found.rows()
        ]
        yield page_grid(names, dates, "Exposure by date, with half-widths of 95 % intervals")
    if report.contributions is not None:
        yield "<h2>Contributions</h2>"
        yield paragraphs(
            [
                "The change of the measure for a small change of the position's size, in "
                "proportion: contributions add up to the measure. A negative one hedges."
            ]
        )
        cells = report.contributions.cells()
        head = ("measure", "output", "contribution", "±", "share")
        yield page_grid(head, cells[:_MOST_ROWS])
        if len(cells) > _MOST_ROWS:
            more = len(cells) - _MOST_ROWS
            yield paragraphs([f"{more} more rows are in the report's to_frame()."])
    if report.sensitivities is not None:
        yield "<h2>Sensitivities</h2>"
        columns = ("measure", "parameter", "derivative", "±")
        yield page_grid(columns, report.sensitivities.cells()[:_MOST_ROWS])
    yield "<h2>How it was found</h2>"
    yield paragraphs(
        [
            f"{report.n_evaluations:,} evaluations of the loss, {report.seconds:.2g} s, status "
            f"“{report.status}”: {report.estimate.status_text}.",
            *report.notes,
        ]
    )


def _relative(value: float, error: float) -> str:
    return "–" if not value or not np.isfinite(error) else f"{NORMAL_95 * error / abs(value):.2%}"
