"""Report of a value-of-information analysis as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad.pages import figure, footer, grid, paragraphs, write_page
from nestquad.voi.report._analysis import Analysis
from nestquad.voi.report._figures import (
    plot_ceac,
    plot_enbs,
    plot_evpi,
    plot_evsi,
    plot_plane,
    plot_rank,
)
from nestquad.voi.table import FLAG_WORDS

if TYPE_CHECKING:
    import pandas as pd


def write_voi_report(
    path: str | Path,
    analysis: Analysis,
    *,
    title: str | None = None,
    currency: str = "£",
    effect: str = "QALYs",
    command: str | None = None,
) -> Path:
    """Write an analysis as one self-contained HTML page.

    Parameters
    ----------
    path
        The file to write. Its folder has to exist.
    analysis
        What `analyze` returned.
    title
        The heading.
    currency, effect
        Signs or words for money and effects.
    command
        The command that made the results, to be shown.

    Returns
    -------
    Path
        The file written. Without matplotlib it has no figures, and says so.
    """
    heading = title or "Value of information"
    page = _Page(analysis, currency, effect)
    return write_page(
        path,
        heading,
        [f"<h1>{escape(heading)}</h1>", *page.sections(), footer(command)],
    )


def money(value: float, currency: str = "") -> str:
    """An amount of money, rounded for reading.

    Examples
    --------
    >>> money(1234567.8, "£"), money(-12.345, "£"), money(0.0123)
    ('£1,234,568', '−£12.3', '0.0123')
    """
    size = abs(value)
    text = f"{size:,.0f}" if size >= 100 else f"{size:.3g}"
    return f"{'−' if value < 0 and float(text.replace(',', '')) else ''}{currency}{text}"


class _Page:
    """Sections of the report."""

    def __init__(self, analysis: Analysis, currency: str, effect: str) -> None:
        self.data, self.currency, self.effect = analysis, currency, effect
        self.wtp = analysis.outputs.wtps[0]
        self.has_effects = analysis.outputs.net_benefit is None
        audience = analysis.audience
        self.whom = f"{audience.per_year:,.0f} people a year over {audience.horizon:g} years"
        self.discount = f"discounted at {100 * audience.discount:g} %"

    def sections(self) -> Iterator[str]:
        yield from self._headline()
        yield from self._psa()
        yield from self._evpi()
        yield from self._evppi()
        if self.data.evsi is not None and self.data.enbs is not None:
            yield from self._evsi(self.data.evsi, self.data.enbs)
        yield from self._submission()
        yield from self._methods()

    def money(self, value: float) -> str:
        return money(value, self.currency)

    def interval(self, row: Any) -> str:
        return f"{self.money(row.lower)} to {self.money(row.upper)}"

    def _first(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows at the first willingness to pay."""
        return table if np.isnan(self.wtp) else table[table["wtp"] == self.wtp]

    def _distinguished(self) -> pd.DataFrame:
        """Single parameters that are worth knowing, at the first willingness to pay."""
        singles = self._first(self.data.singles)
        return singles[~singles["flags"].str.contains("not distinguishable")]

    def _headline(self) -> Iterator[str]:
        row = self.data.evpi.iloc[0]
        at = f" at {self.money(self.wtp)} per unit of effect" if self.has_effects else ""
        yield (
            f'<p class="answer">EVPI {escape(self.money(row.evpi))} per person</p>'
            f"<p>95 % interval {escape(self.interval(row))}{escape(at)}.</p>"
        )
        gained = f", or {money(row.population_effects)} {self.effect}" if self.has_effects else ""
        texts = [
            f"For {self.whom} ({self.discount}): {self.money(row.population)}{gained}. "
            "Research that costs more than this cannot be worth its cost."
        ]
        seen = self._distinguished()
        if len(seen):
            top = ", ".join(
                f"{r.pars} ({self.money(r.evppi)}, {100 * r['evppi/evpi']:.0f} % of EVPI)"
                for _, r in seen.head(3).iterrows()
            )
            texts.append(f"Most worth knowing by itself: {top}.")
        else:
            texts.append("No single parameter is worth knowing by itself.")
        yield paragraphs(texts)

    def _psa(self) -> Iterator[str]:
        table = self._first(self.data.psa)
        head = ["option", "net benefit", "± se", "probability best"]
        rows = [
            [r.option, self.money(r.net_benefit), self.money(r.se), f"{100 * r.probability:.0f} %"]
            for r in table.itertuples()
        ]
        if self.has_effects:
            head[1:1] = ["mean cost", f"mean effect ({self.effect})"]
            for row, r in zip(rows, table.itertuples(), strict=True):
                row[1:1] = [self.money(r.cost), f"{r.effect:.4g}"]
        best = table.loc[table.net_benefit.idxmax()]
        yield "<h2>Decision on current information</h2>"
        said = f"{self.data.outputs.n_rows:,} draws"
        said += f", willingness to pay {self.money(self.wtp)}" if self.has_effects else ""
        yield grid(head, rows, said)
        yield paragraphs(
            [
                f"Best on average: {best.option}, and the best in {100 * best.probability:.0f} % "
                "of the draws."
            ]
        )
        if self.has_effects:
            outputs = self.data.outputs
            yield figure(
                lambda ax: plot_plane(outputs, ax),
                "Incremental costs and effects of each draw, and their means. Draws below the "
                "dashed line favor the option.",
            )
            yield figure(
                lambda ax: plot_ceac(outputs, ax),
                "How likely each option is the best, by willingness to pay; the wide band follows "
                "the option that is best on average.",
            )

    def _evpi(self) -> Iterator[str]:
        yield "<h2>Value of perfect information</h2>"
        head = ["willingness to pay", "EVPI per person", "95 % interval", "population"]
        rows = [
            [
                "–" if np.isnan(r.wtp) else self.money(r.wtp),
                self.money(r.evpi),
                self.interval(r),
                self.money(r.population),
            ]
            for _, r in self.data.evpi.iterrows()
        ]
        if self.has_effects:
            head.append(f"population, {self.effect}")
            for row, value in zip(rows, self.data.evpi.population_effects, strict=True):
                row.append(money(value))
        yield grid(head, rows)
        if self.has_effects:
            wanted = {*self._distinguished().pars.head(5), *self.data.groups.pars}
            curves = self.data.evppi_curve[self.data.evppi_curve.pars.isin(wanted)]
            yield figure(
                lambda ax: plot_evpi(
                    self.data.evpi_curve, curves if len(curves) else None, ax, mark=self.wtp
                ),
                "EVPI and the largest EVPPI per person, by willingness to pay.",
            )

    def _evppi(self) -> Iterator[str]:
        evpi = float(self.data.evpi.evpi.iloc[0])
        yield "<h2>Single parameters</h2>"
        singles = self._first(self.data.singles)
        yield figure(
            lambda ax: plot_rank(singles, ax, evpi=evpi),
            "EVPPI of each parameter by itself, with 95 % intervals.",
            height=max(2.2, 0.9 + 0.2 * min(len(singles), 20)),
        )
        yield self._ranked(self.data.singles, "parameter")
        if len(self.data.groups):
            yield "<h2>Groups of parameters</h2>"
            groups = self._first(self.data.groups)
            yield figure(
                lambda ax: plot_rank(groups, ax, evpi=evpi),
                "EVPPI of groups, with 95 % intervals.",
                height=max(2.0, 0.9 + 0.25 * min(len(groups), 20)),
            )
            yield self._ranked(self.data.groups, "group")
        flags = " ".join([*self.data.singles["flags"], *self.data.groups["flags"]])
        words = [f"<li><b>{k}</b>: {escape(v)}</li>" for k, v in FLAG_WORDS.items() if k in flags]
        if words:
            yield f"<p>Flags:</p><ul>{''.join(words)}</ul>"

    def _ranked(self, table: pd.DataFrame, what: str) -> str:
        several = len(self.data.outputs.wtps) > 1
        head = [what, *(["wtp"] if several else []), "EVPPI", "se", "95 % interval", "of EVPI"]
        rows = [
            [
                r.pars,
                *([self.money(r.wtp)] if several else []),
                self.money(r.evppi),
                self.money(r.se),
                self.interval(r),
                "–" if np.isnan(r["evppi/evpi"]) else f"{100 * r['evppi/evpi']:.0f} %",
                r["flags"],
            ]
            for _, r in table.iterrows()
        ]
        return grid([*head, "flags"], rows, "per person")

    def _evsi(self, evsi: pd.DataFrame, enbs: pd.DataFrame) -> Iterator[str]:
        yield "<h2>Value of a study</h2>"
        first = self._first(enbs)
        best = first[first.optimal]
        said = "No size that was tried is worth its cost."
        if len(best):
            n = int(best.n.iloc[0])
            said = (
                f"The best size is {n:,} in each arm, with an expected net benefit of "
                f"{self.money(best.enbs.iloc[0])}."
            )
            if n == first.n.max():
                said += " It is the largest that was tried: a larger one may be better."
        yield paragraphs([f"{str(first.design.iloc[0]).capitalize()}. {said}"])
        caption = "EVSI per person by size of the study, with 95 % intervals."
        yield figure(lambda ax: plot_evsi(self._first(evsi), ax), caption)
        yield figure(
            lambda ax: plot_enbs(first, ax),
            "Expected net benefit of sampling: value for the population less costs of the study.",
        )
        head = ["in each arm", "EVSI per person", "95 % interval", "population", "cost", "ENBS"]
        rows = [
            [
                f"{r.n:,.0f}",
                self.money(r.evsi),
                self.interval(r),
                self.money(r.population_evsi),
                self.money(r.cost),
                self.money(r.enbs),
                r["flags"],
            ]
            for _, r in first.iterrows()
        ]
        yield grid([*head, "flags"], rows)

    def _submission(self) -> Iterator[str]:
        yield "<h2>Table for a submission</h2>"
        evpi = self.data.evpi.iloc[0]
        head = ["Information about", "Per person (95 % CI)", "% of EVPI", "Population"]
        rows = [self._line("All parameters (EVPI)", evpi.evpi, evpi, 1.0)]
        for table in (self.data.groups, self.data.singles):
            rows += [
                self._line(r.pars, r.evppi, r, r["evppi/evpi"])
                for _, r in self._first(table).iterrows()
            ]
        if self.has_effects:
            head.append(f"Population, {self.effect}")
        at = f" at a willingness to pay of {self.money(self.wtp)}" if self.has_effects else ""
        yield grid(
            head,
            rows,
            f"Expected value of perfect and of partial perfect information{at}; population: "
            f"{self.whom}, {self.discount}. *: not distinguishable from 0.",
        )

    def _line(self, name: str, value: float, row: Any, share: float) -> list[str]:
        star = "*" if "not distinguishable" in str(row.get("flags", "")) else ""
        cells = [
            name,
            f"{self.money(value)}{star} ({self.interval(row)})",
            "–" if np.isnan(share) else f"{100 * share:.0f}",
            self.money(row.population),
        ]
        return [*cells, money(row.population_effects)] if self.has_effects else cells

    def _methods(self) -> Iterator[str]:
        from nestquad import __version__

        text = _METHODS.format(
            n=f"{self.data.outputs.n_rows:,}", p=self.data.n_parameters, version=__version__
        )
        if self.data.evsi is not None:
            text += _EVSI_METHODS
        text += f"Values for the population are for {self.whom}, {self.discount} a year."
        yield "<h2>Methods</h2>"
        yield paragraphs([" ".join(text.split())])
        cited = _REFERENCES if self.data.evsi is not None else _REFERENCES[:4]
        yield "<ol>" + "".join(f"<li>{escape(one)}</li>" for one in cited) + "</ol>"


_METHODS = """\
Values of information were estimated from {n} draws of a probabilistic sensitivity analysis with
{p} parameters by nestquad {version}. The expected value of perfect information (EVPI) is the mean
over draws of the largest net benefit, less the largest mean net benefit. The expected value of
partial perfect information (EVPPI) is by nonparametric regression [1, 2]: conditional means of
incremental costs and effects given the parameters of interest were estimated by Gaussian-process
regression with noise on cubic-spline eigenfunctions of each parameter and products of them (an
ANOVA decomposition [3]), with variances fitted by penalized marginal likelihood; the estimate is
the mean of the largest conditional net benefit less the largest mean. Standard errors and 95 %
intervals are from posterior draws under Bayesian-bootstrap weights [4]. Five-fold cross-fitting
tells values that cannot be distinguished from zero, and fits that held-out draws contradict. \
"""
_EVSI_METHODS = """\
The expected value of sample information (EVSI) is by the same regression on summaries of one
simulated data set for each draw [5]; the expected net benefit of sampling (ENBS) is its value for
the population less the costs of the study. """
_REFERENCES = (
    "Strong M, Oakley JE, Brennan A. Estimating multiparameter partial expected value of perfect "
    "information from a probabilistic sensitivity analysis sample: a nonparametric regression "
    "approach. Medical Decision Making 2014; 34: 311–326.",
    "Heath A, Manolopoulou I, Baio G. A review of methods for analysis of the expected value of "
    "information. Medical Decision Making 2017; 37: 747–758.",
    "Wahba G. Spline models for observational data. Philadelphia: SIAM, 1990.",
    "Rubin DB. The Bayesian bootstrap. Annals of Statistics 1981; 9: 130–134.",
    "Strong M, Oakley JE, Brennan A, Breeze P. Estimating the expected value of sample information "
    "using the probabilistic sensitivity analysis sample: a fast, nonparametric regression-based "
    "method. Medical Decision Making 2015; 35: 570–583.",
)
