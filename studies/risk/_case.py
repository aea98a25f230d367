"""A drawn problem of risk before its truths are known, and thresholds for its exceedances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import nestquad as nq
from studies.families._truth import Sum
from studies.risk._truth import MEASURES, Dense, LawOfJ, OnALine, quick_sum


@dataclass(frozen=True)
class Sketch:
    """A problem without f, the law of its J, levels of P by measure, a word on what was drawn."""

    problem: nq.NestedExpectation
    law: LawOfJ
    levels: Mapping[str, float]
    about: str


def levels_of(j: np.ndarray) -> dict[str, float]:
    """Thresholds near the quantiles, in four digits as a person would write them."""
    return {
        name: float(f"{np.quantile(j, 1 - p):.4g}")
        for name, (kind, p) in MEASURES.items()
        if kind == "p"
    }


def law_of(total: Sum) -> LawOfJ:
    return OnALine(total.parts[0]) if len(total.parts) == 1 else Dense(total)


def tail_draws(total: Sum) -> np.ndarray | None:
    """J at Sobol points; None for a total whose tail is no risk measure's business.

    A book that is knocked out altogether has an atom at its worst, and a VaR near zero has no
    relative error.
    """
    quick = quick_sum(total)
    j = quick.draws(14)
    if not (j.std() > 0.1 and np.quantile(j, 0.95) > 0.5 * j.std()):
        return None
    j = quick.draws(17)
    heavy = [(j > level).mean() / MEASURES[name][1] for name, level in levels_of(j).items()]
    return j if min(heavy) > 0.7 else None
