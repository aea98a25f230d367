"""Report of risk: measures with intervals, the law of the loss, and all that comes with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nestquad._checks import listed, shown
from nestquad._notebook import grid
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.pages import bullets, figure, footer, paragraphs, table, write_page
from nestquad.pages import grid as page_grid
from nestquad.plots import INK, SOFT, axes_or_new, series_styles, title
from nestquad.result import NORMAL_95, Estimate, plain
from nestquad.risk._contributions import Contributions, Greeks, contributions_of
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._exposure import Exposure, weighted_sum
from nestquad.risk._method import RiskState, TailSampling
from nestquad.risk._rows import Tabular, cells_of, text_table
from nestquad.risk._stresses import Stress
from nestquad.risk._targets import Key, Kind, label, part_of

# Rows of a table on the page.
_MOST_ROWS = 40
_CURVE = (
    "Probability of a larger loss. The band has the 95 % interval of the probability at each loss; "
    "points are VaR with intervals, squares are exceedances, dotted lines are expected shortfall."
)
_CERTIFIED = (
    "Certified intervals rest on fresh draws alone and hold whatever was learned of the loss; an "
    "infinite end says that draws are too few to know."
)
_CONTRIBUTIONS = (
    "The change of the measure for a small change of the position's size, in proportion: "
    "contributions add up to the measure. A negative one hedges."
)


@dataclass(frozen=True, eq=False)
class Source:
    """Evaluations behind a report with their analysis; a pickled report has none.

    Attributes
    ----------
    method, state
        The method, and its last state.
    estimate
        Measures of all losses.
    names
        Names of the outputs of g.
    """

    method: TailSampling
    state: RiskState
    estimate: Estimate
    names: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def of_outputs(self, groups: Sequence[Sequence[int]]) -> Source:
        """The analysis of other sums of outputs."""
        method = replace(self.method, groups=tuple(map(tuple, groups)))
        turn = method.analyze(self.state.evaluations)
        return replace(self, method=method, state=turn.state, estimate=turn.estimate)

    def line(self, line: int) -> tuple[Estimate, LossDistribution, Contributions | None]:
        """Measures, law and contributions of one loss: of all outputs (line 0), or of a group."""
        targets, k = self.method.targets, len(self.method.targets.keys)
        estimate = part_of(self.estimate, np.arange(line * k, (line + 1) * k))
        chosen = self.method.groups[line - 1] if line else range(len(self.names))
        law, shares = self.state.laws[line], None
        if self.state.parts is not None and law.pairs is not None and len(chosen) > 1:
            names = {self.names[i]: i for i in chosen}
            shares = contributions_of(self.state, targets, estimate, names, line)
        return estimate, LossDistribution(law), shares

    def combined(self, weights: Array) -> dict[str, Estimate]:
        """Weighted sums (L,) over losses of each measure.

        Draws of all losses have the same bootstrap weights of pairs, so that their errors go
        together.
        """
        keys, n = self.method.targets.keys, len(weights)
        found = {}
        for i, key in enumerate(keys):
            mine = part_of(self.estimate, np.arange(i, n * len(keys), len(keys)))
            found[label(*key)] = weighted_sum(mine, weights)
        return found


def positions(argument: str, names: Any, known: Sequence[str], expected: str) -> tuple[int, ...]:
    """Positions of named outputs, a single name or several."""
    given = [names] if isinstance(names, str) else listed(argument, names, expected)
    if not given or len({*given}) < len(given) or not {*given} <= {*known}:
        raise InputError(argument, shown(names), expected)
    return tuple(known.index(name) for name in given)


def groups_of(portfolios: Any, outputs: Sequence[Any] | None) -> dict[str, tuple[int, ...]]:
    """Positions of outputs by portfolio."""
    if portfolios is None:
        return {}
    expected = "a mapping from names to names of outputs, such as {'macro': ['rates', 'fx']}"
    if outputs is None or not isinstance(portfolios, Mapping) or not portfolios:
        advice = "Outputs have names by outputs=[…]."
        raise InputError("portfolios", shown(portfolios), expected, advice)
    return {
        str(name): positions("portfolios", members, outputs, f"{name!r}: {expected}")
        for name, members in portfolios.items()
    }


@dataclass(frozen=True, eq=False)
class RiskReport(Tabular):
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

    def _of(self, kind: Kind) -> dict[Any, Estimate]:
        each = enumerate(self.keys)
        return {level: part_of(self.estimate, i) for i, (k, level) in each if k == kind}

    @cached_property
    def diversification(self) -> Mapping[str, Estimate]:
        """Sum of the measures of portfolios less that of all, by the name of the measure.

        Empty unless each output is in one portfolio.
        """
        if self.source is None or not self.portfolios:
            return {}
        members = [k for group in self.source.method.groups for k in group]
        if sorted(members) != [*range(len(self.source.names))]:
            return {}
        found = self.source.combined(np.array([-1.0, *np.ones(len(self.portfolios))]))
        return {name: each for name, each in found.items() if not name.startswith("P(")}

    def of_line(self, source: Source, line: int, name: str) -> RiskReport:
        """Report of one loss: of all outputs (line 0), or of a group."""
        estimate, distribution, shares = source.line(line)
        like = replace(self, notes=(), stresses={}, certified=None, sensitivities=None)
        return replace(
            like if line else self,
            problem=name,
            estimate=estimate,
            distribution=distribution,
            contributions=shares,
            source=None,
            portfolios={},
        )

    def incremental(self, name: str | Sequence[str]) -> Incremental:
        """Risk with and without an output, several of them, or a portfolio.

        J without them is learned again from the same evaluations, which takes as long as the
        analysis of the report.
        """
        source = self.source
        if source is None or len(source.names) < 2:
            given = "a report of one output, of a table, or from a file"
            raise InputError("report", given, "one of risk.measure with several outputs")
        if isinstance(name, str) and name in self.portfolios:
            chosen = source.method.groups[[*self.portfolios].index(name)]
        else:
            expected = f"some of the outputs {', '.join(map(repr, source.names))}"
            chosen = positions("name", name, source.names, expected)
        others = [k for k in range(len(source.names)) if k not in chosen]
        if not others:
            raise InputError("name", shown(name), "fewer than all outputs")
        found = source.of_outputs((others, chosen))
        text = name if isinstance(name, str) else ", ".join(name)
        alone, without = self.of_line(found, 2, text), self.of_line(found, 1, f"without {text}")
        return Incremental(text, alone, without, found.combined(np.array([1.0, -1.0, 0.0])))

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
        measures = [(name, part_of(self.estimate, i)) for i, name in enumerate(self.labels)]
        if self.exposure is not None:
            over_time = [("EPE", self.exposure.epe), ("CVA", self.exposure.cva)]
            measures += [(name, each) for name, each in over_time if each is not None]
        rows = [_row(name, each) for name, each in measures]
        if self.certified is not None:
            for row, (low, high) in zip(rows, self.certified.tolist(), strict=True):
                row |= {"certified_low": low, "certified_high": high}
        return rows

    def stress_rows(self) -> list[dict[str, Any]]:
        """One for each stress scenario: J, its interval, and P(J ≤ J there) with its interval."""
        return [each.row(name) for name, each in self.stresses.items()]

    def portfolio_rows(self) -> list[dict[str, Any]]:
        """One for each measure of a portfolio, and of diversification."""
        rows = [
            {"portfolio": name, **row}
            for name, each in self.portfolios.items()
            for row in each.rows()
        ]
        more = self.diversification.items()
        return rows + [{"portfolio": "diversification", **_row(*each)} for each in more]

    def _tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of all but the measures, by heading."""
        parts = {"contributions": self.contributions, "sensitivities": self.sensitivities}
        return {
            "stress scenarios": self.stress_rows(),
            "portfolios": self.portfolio_rows(),
            **{name: one.rows() if one is not None else [] for name, one in parts.items()},
        }

    def to_dict(self) -> dict[str, Any]:
        """All but the distribution, as plain Python objects."""
        parts = ("contributions", "exposure", "sensitivities")
        return {
            "problem": self.problem,
            "measures": plain(self.rows()),
            **{name: plain(one.rows()) if (one := getattr(self, name)) else None for name in parts},
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

    def _heading(self) -> str:
        return f"Risk: {self.problem}"

    def _title(self) -> str:
        return f"{self.problem}: {self.n_evaluations:,} evaluations, {self.status}"

    def _shown(self) -> list[dict[str, Any]]:
        """Rows of the measures for people."""
        return self.rows()

    def _remarks(self) -> str:
        return "\n".join(self.notes)

    def _repr_html_(self) -> str:
        return grid(self._title(), *cells_of(self._shown()))

    def __str__(self) -> str:
        tables = {"": self._shown(), **self._tables()}
        texts = [f"{name}\n{text_table(rows)}".strip() for name, rows in tables.items() if rows]
        first = f"{self._title()}, {self.seconds:.2g} s\n"
        return (first + "\n\n".join([*texts, self._remarks()])).rstrip()

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
        near = {"textcoords": "offset points", "fontsize": 8, "color": INK}
        for (kind, level), name, row in zip(self.keys, self.labels, self.rows(), strict=True):
            value, half = row["value"], NORMAL_95 * row["std_error"]
            if kind == "es":
                ax.axvline(value, color=SOFT, linewidth=1.0, linestyle=(0, (2, 2)))
                ax.annotate(name, (value, 0.6), xytext=(5, 5), **near)
            if kind == "var" and np.isfinite(half):
                place = (value, 1.0 - level)
                ax.errorbar(*place, xerr=half, fmt="o", color=INK, markersize=4, capsize=3)
                ax.annotate(name, place, xytext=(5, 5), **near)
            if kind == "exceed" and value > 0 and np.isfinite(half):
                ends = [[min(half, 0.999 * value)], [half]]
                ax.errorbar(level, value, yerr=ends, fmt="s", color=INK, markersize=3)
                ax.annotate(name, (level, value), xytext=(-5, -5), ha="right", va="top", **near)
        title(ax, self.problem, f"{self.n_evaluations:,} evaluations")
        return ax

    def plot_convergence(self, ax: Any = None) -> Any:
        """Draw the relative half-width of each interval against evaluations; returns the axes."""
        ax = axes_or_new(ax)
        steps = [step for step in self.estimate.trace if np.isfinite(step.half_width).all()]
        counts = [float(step.n_evaluations) for step in steps]
        halves = np.array([np.atleast_1d(step.half_width) for step in steps])
        for i, look in enumerate(series_styles(len(self.labels))):
            value = float(np.atleast_1d(self.estimate.value)[i])
            if value and steps:
                shares = halves[:, i] / abs(value)
                ax.plot(counts, shares, label=self.labels[i], markersize=4, **look.line)
        ax.set_yscale("log")
        ax.set_xlabel("evaluations of the loss")
        ax.set_ylabel("half-width / value")
        ax.legend(frameon=False, fontsize=8)
        return ax

    def save(self, path: str | Path, *, command: str | None = None) -> Path:
        """Write the report as one self-contained HTML page; returns the file.

        Without the extra ``plot`` it has no figures.
        """
        file, heading = page_path(path), self._heading()
        sections = [f"<h1>{escape(heading)}</h1>", *self._page(), footer(command)]
        try:
            return write_page(file, heading, sections)
        except OSError as error:
            given = f"{str(path)!r}, which cannot be written ({error.strerror})"
            raise InputError("path", given, "a file in a folder that exists") from error

    def _page(self) -> Iterator[str]:
        """Sections of the page."""
        return _sections(self)


@dataclass(frozen=True, eq=False)
class Incremental(Tabular):
    """Risk with and without some positions, from the same evaluations.

    Attributes
    ----------
    name
        Names of the positions.
    alone, without
        Reports of the positions by themselves, and of all others.
    change
        Measure of all outputs less that of the others, by the name of the measure.
    """

    name: str
    alone: RiskReport
    without: RiskReport
    change: Mapping[str, Estimate]

    def rows(self) -> list[dict[str, Any]]:
        """One for each measure: alone, without and the change with its 95 % interval."""
        rows = []
        for i, (measure, each) in enumerate(self.change.items()):
            low, high = each.interval()
            alone, without = (r.rows()[i]["value"] for r in (self.alone, self.without))
            change = {"change": each.value, "std_error": each.std_error, "low": low, "high": high}
            rows.append({"measure": measure, "alone": alone, "without": without, **change})
        return rows

    def __str__(self) -> str:
        return f"{self.name}\n{super().__str__()}"


def _row(name: str, estimate: Estimate) -> dict[str, Any]:
    low, high = estimate.interval()
    if name.startswith("P("):
        low, high = max(low, 0.0), min(high, 1.0)
    ends = {"low": low, "high": high}
    return {"measure": name, "value": estimate.value, "std_error": estimate.std_error, **ends}


def page_path(path: Any) -> Path:
    """The file of a page, refused if its name is none."""
    expected = "a file name that ends with .html"
    if not isinstance(path, str | PathLike) or Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError("path", shown(path), expected)
    return Path(path)


def _sections(report: RiskReport) -> Iterator[str]:
    warned = [*report.notes]
    if report.status not in ("done", "converged"):
        warned.insert(0, f"Status “{report.status}”: {report.estimate.status_text}.")
    if warned:
        yield "<h2>Before you use these numbers</h2>"
        yield bullets(warned)
    yield from _exposure(report) if report.exposure else _measures(report)
    for heading, rows in report._tables().items():
        if not rows:
            continue
        yield f"<h2>{heading.capitalize()}</h2>"
        if heading == "contributions" and report.contributions is not None:
            yield paragraphs([_CONTRIBUTIONS])
            height = 1.2 + 0.3 * min(len(report.contributions.names), 12)
            caption = "Contributions with 95 % intervals, the largest first."
            yield figure(report.contributions.plot, caption, height=height)
        caption = "By draws at the scenario alone" if heading == "stress scenarios" else ""
        yield page_grid(*cells_of(rows[:_MOST_ROWS]), caption)
        if len(rows) > _MOST_ROWS:
            rest = len(rows) - _MOST_ROWS
            yield paragraphs([f"{rest} more rows are in the report's to_frame()."])
    if sum(bool(np.isfinite(step.half_width).all()) for step in report.estimate.trace) > 1:
        yield "<h2>Convergence</h2>"
        caption = "Half-width of each 95 % interval, relative to the value, by evaluations so far."
        yield figure(report.plot_convergence, caption)
    yield "<h2>Appendix: how it was found</h2>"
    text = f"{report.n_evaluations:,} evaluations of the loss, {report.seconds:.2g} s, status "
    yield paragraphs([f"{text}“{report.status}”: {report.estimate.status_text}."])
    yield bullets(report.details)


def _measures(report: RiskReport) -> Iterator[str]:
    head, cells = cells_of(report.rows())
    for row, line in zip(report.rows(), cells, strict=True):
        half = NORMAL_95 * row["std_error"]
        line.append(f"{half / abs(row['value']):.2%}" if row["value"] and half < np.inf else "–")
    caption = "Measures of the loss J, the expected loss given the scenario"
    yield page_grid([*head, "± of the value"], cells, caption)
    if report.certified is not None:
        yield paragraphs([_CERTIFIED])
    yield figure(report.plot, _CURVE, height=4.0)


def _exposure(report: RiskReport) -> Iterator[str]:
    assert report.exposure is not None
    found = report.exposure
    rows = [("expected positive exposure", found.epe), ("CVA", found.cva)]
    yield table([(name, f"{each.summary} (95 %)") for name, each in rows if each is not None])
    yield figure(report.plot, "Exposure by date with 95 % bands.", height=4.0)
    names = [name for name in found.rows()[0] if not name.endswith(" se")]
    dates = [
        [f"{row['date']:g}"]
        + [f"{row[k]:.5g} ± {NORMAL_95 * row[f'{k} se']:.2g}" for k in names[1:]]
        for row in found.rows()
    ]
    yield page_grid(names, dates, "Exposure by date, with half-widths of 95 % intervals")
