"""Report of risk as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np

from nestquad.pages import figure, footer, grid, paragraphs, table, write_page
from nestquad.result import NORMAL_95
from nestquad.risk._report import RiskReport

_MOST_ROWS = 40


def write_risk_page(path: str | Path, report: RiskReport, command: str | None = None) -> Path:
    """Write the page; returns the file. Without the extra ``plot`` it has no figures."""
    sections = [f"<h1>Risk: {escape(report.problem)}</h1>", *_sections(report), footer(command)]
    return write_page(path, f"Risk: {report.problem}", sections)


def _sections(report: RiskReport) -> Iterator[str]:
    if report.exposure is None:
        yield grid(
            ("measure", "value", "95 % interval", "± of the value"),
            [
                (
                    row["measure"],
                    f"{row['value']:.5g}",
                    f"{row['low']:.5g} to {row['high']:.5g}",
                    _relative(row["value"], row["std_error"]),
                )
                for row in report.rows()
            ],
            "Measures of the loss J, the expected loss given the scenario",
        )
        yield figure(
            report.plot,
            "Probability of a larger loss with its 95 % band; points are VaR with intervals, the "
            "dotted line is expected shortfall.",
            height=4.0,
        )
    else:
        found = report.exposure
        rows = [("expected positive exposure", found.epe), ("CVA", found.cva)]
        yield table([(name, f"{one.summary} (95 %)") for name, one in rows if one is not None])
        yield figure(report.plot, "Exposure by date with 95 % bands.", height=4.0)
        head = [name for name in found.rows()[0] if not name.endswith(" se")]
        cells = [[f"{row[name]:.5g}" for name in head] for row in found.rows()]
        yield grid(head, cells, "Exposure by date")
    if report.contributions is not None:
        yield "<h2>Contributions</h2>"
        yield paragraphs(
            [
                "The change of the measure for a small change of the position's size, in "
                "proportion: contributions add up to the measure. A negative one hedges."
            ]
        )
        rows_ = report.contributions.rows()
        yield grid(
            ("measure", "output", "contribution", "±", "share"),
            [
                (
                    row["measure"],
                    row["output"],
                    f"{row['value']:.5g}",
                    f"{NORMAL_95 * row['std_error']:.2g}",
                    f"{row['share']:.1%}",
                )
                for row in rows_[:_MOST_ROWS]
            ],
        )
        if len(rows_) > _MOST_ROWS:
            yield paragraphs(
                [f"{len(rows_) - _MOST_ROWS} more rows are in the report's to_frame()."]
            )
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
