"""Report of risk: measures with intervals, the law of the loss, contributions, exposure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from nestquad.pages import bullets, figure, footer, paragraphs, table, write_page
from nestquad.pages import grid as page_grid
from nestquad.plots import INK, SOFT, axes_or_new, series_styles, title
from nestquad.result import NORMAL_95, Estimate, plain
from nestquad.risk._contributions import Contributions
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._greeks import Greeks
from nestquad.risk._portfolios import Incremental, Source, incremental, scalar
from nestquad.risk._stresses import Stress
from nestquad.risk._targets import Key, Kind, label

# Rows of a table on the page.
_MOST_ROWS = 40
_STRESSED = ("stress", "J there", "95 % interval", "P(J ≤ it)", "95 % interval")
_CURVE = (
    "Probability of a larger loss. The band has the 95 % interval of the probability at each loss; "
    "points are VaR with intervals, squares are exceedances, dotted lines are expected shortfall."
)
_CERTIFIED = (
    "Certified intervals rest on fresh draws alone and hold whatever was learned of the loss; an "
    "infinite end says that draws are too few to know."
)
_PORTFOLIO = ("portfolio", "measure", "value", "95 % interval")


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
        How sure the answer is, and what would improve it.
    distribution
        The law of J with a band; None for exposures.
    contributions
        Euler contributions by output; None where there is one output.
    exposure
        By date, with ``exposure=True``; otherwise None.
    sensitivities
        Derivatives of the measures in parameters, if they were asked for.
    portfolios
        Reports of portfolios by name, from the same evaluations.
    stresses
        Stress scenarios by name.
    certified
        Ends (k, 2) of intervals that rest on fresh draws alone, with ``certify=True``.
    details
        Description of the model of J, in words of the method.
    source
        Evaluations behind the report.
    """

    problem: str
    estimate: Estimate
    keys: tuple[Key, ...]
    notes: tuple[str, ...] = ()
    distribution: LossDistribution | None = None
    contributions: Contributions | None = None
    exposure: Exposure | None = None
    sensitivities: Greeks | None = None
    portfolios: Mapping[str, RiskReport] = field(default_factory=dict)
    stresses: Mapping[str, Stress] = field(default_factory=dict)
    certified: Array | None = None
    details: tuple[str, ...] = ()
    source: Source | None = field(default=None, repr=False)

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

    @cached_property
    def spectral(self) -> Mapping[str, Estimate]:
        """Spectral measures by name."""
        return self._of("spectral")

    @cached_property
    def diversification(self) -> Mapping[str, Estimate]:
        """Sum of the measures of portfolios less that of all, by the name of the measure.

        Empty unless each output is in one portfolio.
        """
        if self.source is None or not self.portfolios:
            return {}
        members = [k for one in self.source.method.groups for k in one]
        if sorted(members) != [*range(len(self.source.names))]:
            return {}
        found = self.source.combined(np.array([-1.0, *np.ones(len(self.portfolios))]))
        return {name: one for name, one in found.items() if not name.startswith("P(")}

    def incremental(self, name: str | Sequence[str]) -> Incremental:
        """Risk with and without an output, several of them, or a portfolio.

        J without them is learned again from the same evaluations, which takes as long as the
        analysis of the report.
        """
        if self.source is None or len(self.source.names) < 2:
            given = "a report of one output, of a table, or from a file"
            raise InputError("report", given, "one of risk.measure with several outputs")
        return incremental(self, self.source, name)

    def _of(self, kind: Kind) -> dict[Any, Estimate]:
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
        if self.certified is not None:
            for row, (low, high) in zip(rows, self.certified.tolist(), strict=True):
                row |= {"certified_low": low, "certified_high": high}
        return rows

    def stress_rows(self) -> list[dict[str, Any]]:
        """One for each stress scenario: J, its interval, and P(J ≤ J there) with its interval."""
        rows = []
        for name, one in self.stresses.items():
            low, high = one.loss.interval()
            row = {"stress": name, "loss": one.loss.value, "low": low, "high": high}
            if one.place is not None:
                ends = one.place.interval()
                row |= {"place": one.place.value, "place_low": ends[0], "place_high": ends[1]}
            rows.append(row)
        return rows

    def _cells(self) -> list[tuple[str, ...]]:
        """Names, values and intervals, as text; certified ones last."""
        return [
            (
                row["measure"],
                f"{row['value']:.5g}",
                f"{row['low']:.5g} … {row['high']:.5g}",
                *(
                    [f"{row['certified_low']:.5g} … {row['certified_high']:.5g}"]
                    if "certified_low" in row
                    else []
                ),
            )
            for row in self.rows()
        ]

    @property
    def _head(self) -> tuple[str, ...]:
        return ("measure", "value", "95 % interval", "certified")[: len(self._cells()[0])]

    def _stress_cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row["stress"],
                f"{row['loss']:.5g}",
                f"{row['low']:.5g} … {row['high']:.5g}",
                f"{row['place']:.3%}" if "place" in row else "–",
                f"{row['place_low']:.3%} … {row['place_high']:.3%}" if "place" in row else "–",
            )
            for row in self.stress_rows()
        ]

    def _portfolio_cells(self) -> list[tuple[str, ...]]:
        found = [
            (name, *cells[:3]) for name, one in self.portfolios.items() for cells in one._cells()
        ]
        for measure, one in self.diversification.items():
            low, high = one.interval()
            cells = (measure, f"{one.value:.5g}", f"{low:.5g} … {high:.5g}")
            found.append(("diversification", *cells))
        return found

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
            "portfolios": {name: plain(one.rows()) for name, one in self.portfolios.items()},
            "diversification": {k: one.value for k, one in self.diversification.items()},
            "stresses": plain(self.stress_rows()),
            "n_evaluations": self.n_evaluations,
            "status": self.status,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "details": list(self.details),
        }

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @property
    def _title(self) -> str:
        return f"{self.problem}: {self.n_evaluations:,} evaluations, {self.status}"

    def _repr_html_(self) -> str:
        return grid(self._title, self._head, self._cells())

    def __str__(self) -> str:
        lines = [f"{self._title}, {self.seconds:.2g} s"]
        tables: list[tuple[tuple[str, ...], list[tuple[str, ...]]]] = [(self._head, self._cells())]
        tables += [(_STRESSED, self._stress_cells())] if self.stresses else []
        tables += [(_PORTFOLIO, self._portfolio_cells())] if self.portfolios else []
        for head, rows in tables:
            widths = [max(map(len, column)) + 2 for column in zip(head, *rows, strict=True)]
            for row in (head, *rows):
                cells = zip(row[1:], widths[1:], strict=True)
                lines.append(f"{row[0]:<{widths[0]}}" + "".join(f"{c:>{w}}" for c, w in cells))
            lines.append("")
        if self.contributions is not None:
            lines += [str(self.contributions), ""]
        if self.sensitivities is not None:
            lines += [str(self.sensitivities), ""]
        return "\n".join([*lines, *self.notes]).rstrip()

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

    def plot_convergence(self, ax: Any = None) -> Any:
        """Draw the relative half-width of each interval against evaluations; returns the axes."""
        ax = axes_or_new(ax)
        steps = [one for one in self.estimate.trace if np.isfinite(one.half_width).all()]
        counts = np.array([step.n_evaluations for step in steps], dtype=float)
        looks = series_styles(len(self.labels))
        for i, (name, look) in enumerate(zip(self.labels, looks, strict=True)):
            value = float(np.atleast_1d(self.estimate.value)[i])
            halves = np.array([np.atleast_1d(step.half_width)[i] for step in steps])
            if value and len(steps):
                ax.plot(counts, halves / abs(value), label=name, markersize=4, **look.line)
        ax.set_yscale("log")
        ax.set_xlabel("evaluations of the loss")
        ax.set_ylabel("half-width / value")
        ax.legend(frameon=False, fontsize=8)
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


def write_risk_page(path: str | Path, report: RiskReport, command: str | None = None) -> Path:
    """Write the page; returns the file. Without the extra ``plot`` it has no figures."""
    sections = [f"<h1>Risk: {escape(report.problem)}</h1>", *_sections(report), footer(command)]
    try:
        return write_page(path, f"Risk: {report.problem}", sections)
    except OSError as error:
        given = f"{str(path)!r}, which cannot be written ({error.strerror})"
        raise InputError("path", given, "a file in a folder that exists") from error


def _sections(report: RiskReport) -> Iterator[str]:
    warned = [*report.notes]
    if report.status not in ("done", "converged"):
        warned.insert(0, f"Status “{report.status}”: {report.estimate.status_text}.")
    if warned:
        yield "<h2>Before you use these numbers</h2>"
        yield bullets(warned)
    if report.exposure is None:
        shares = [_relative(row["value"], row["std_error"]) for row in report.rows()]
        yield page_grid(
            (*report._head, "± of the value"),
            [(*cells, one) for cells, one in zip(report._cells(), shares, strict=True)],
            "Measures of the loss J, the expected loss given the scenario",
        )
        if report.certified is not None:
            yield paragraphs([_CERTIFIED])
        yield figure(report.plot, _CURVE, height=4.0)
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
    if report.stresses:
        yield "<h2>Stress scenarios</h2>"
        yield page_grid(_STRESSED, report._stress_cells(), "By draws at the scenario alone")
    if report.portfolios:
        yield "<h2>Portfolios</h2>"
        yield page_grid(_PORTFOLIO, report._portfolio_cells())
    if report.contributions is not None:
        yield "<h2>Contributions</h2>"
        yield paragraphs(
            [
                "The change of the measure for a small change of the position's size, in "
                "proportion: contributions add up to the measure. A negative one hedges."
            ]
        )
        drawn = min(len(report.contributions.names), 12)
        yield figure(
            report.contributions.plot,
            "Contributions with 95 % intervals, the largest first.",
            height=1.2 + 0.3 * drawn,
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
    if sum(bool(np.isfinite(step.half_width).all()) for step in report.estimate.trace) > 1:
        yield "<h2>Convergence</h2>"
        caption = "Half-width of each 95 % interval, relative to the value, by evaluations so far."
        yield figure(report.plot_convergence, caption)
    yield "<h2>Appendix: how it was found</h2>"
    yield paragraphs(
        [
            f"{report.n_evaluations:,} evaluations of the loss, {report.seconds:.2g} s, status "
            f"“{report.status}”: {report.estimate.status_text}.",
        ]
    )
    yield bullets(report.details)


def _relative(value: float, error: float) -> str:
    return "–" if not value or not np.isfinite(error) else f"{NORMAL_95 * error / abs(value):.2%}"
