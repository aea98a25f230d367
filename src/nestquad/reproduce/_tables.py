"""Tables that several parts share."""

from __future__ import annotations

from collections.abc import Mapping

from nestquad.reproduce._curve import Curve
from nestquad.reproduce._part import Table

__all__ = ["curve_rows", "curve_table"]


def curve_rows(curves: Mapping[str, Curve], **more: str) -> list[dict[str, object]]:
    """A row for each method and cost."""
    return [
        {
            **more,
            "method": name,
            "evaluations": float(cost),
            "replicates": int(errors.size),
            "mean_error": float(mean),
            "quartile_25": float(low),
            "quartile_75": float(high),
        }
        for name, curve in curves.items()
        for cost, errors, mean, low, high in zip(
            curve.costs,
            curve.errors,
            curve.means,
            curve.quantiles(0.25),
            curve.quantiles(0.75),
            strict=True,
        )
    ]


def curve_table(name: str, caption: str, curves: Mapping[str, Curve], **more: str) -> Table:
    """The numbers of a figure of errors against cost."""
    columns = dict.fromkeys(more) | {
        "method": "method",
        "evaluations": "evaluations",
        "replicates": "runs",
        "mean_error": "mean |error|",
        "quartile_25": "25 %",
        "quartile_75": "75 %",
    }
    shown = {key: heading or key for key, heading in columns.items()}
    return Table(name, caption, tuple(curve_rows(curves, **more)), shown)
