"""Published problem: parameters in words, truth, printed results, and our way to solve it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

import nestquad as nq

Solver = Callable[[int, np.random.SeedSequence], nq.Estimate]


@dataclass(frozen=True)
class Printed:
    """Result that the source prints: root-mean-square error at a number of evaluations.

    `error` is in the unit of the case: of the measure itself, or relative to it. It is None where
    the source draws a figure and prints no number.
    """

    method: str
    evaluations: float
    error: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class PublishedProblem:
    """A problem from the literature with all parameters.

    Attributes
    ----------
    name, title
        Name on the command line, and the heading on the page.
    source
        Authors, year, title and arXiv number or journal; the repository where there is one.
    about
        The problem with all its parameters, in Markdown.
    measure
        The quantity that is estimated.
    exact, exact_error
        The truth, recomputed here, and its standard error where it is no closed form.
    unit
        Whether errors are those of the measure, or relative to it.
    budgets
        Evaluations of g at which nestquad is run.
    printed
        Results of the source.
    solve
        Estimate with a budget and a seed.
    remark
        Differences between the source's setting and ours; empty where there are none.
    """

    name: str
    title: str
    source: str
    about: str
    measure: str
    exact: float
    unit: Literal["absolute", "relative"]
    budgets: tuple[int, ...]
    printed: tuple[Printed, ...]
    solve: Solver
    exact_error: float = 0.0
    remark: str = ""

    @property
    def scale(self) -> float:
        """Divisor of errors."""
        return abs(self.exact) if self.unit == "relative" else 1.0
