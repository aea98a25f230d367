"""Constants of the cost model of an analysis: turns of a joint lattice timed, terms fitted."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import nnls

import nestquad as nq
from nestquad.clock import benchmark, use_clock
from nestquad.methods import Turn
from studies import families

PROBLEMS = ("finance", "health", "rainforth", "books-2", "decisions-2", "smooth-2", "insurance-2")
BUDGETS = (300, 1_000, 3_000, 10_000, 30_000)


@dataclass(frozen=True)
class TimedLattice(nq.JointLattice):
    """A joint lattice that records n, m, weighted coordinates and CPU seconds of each analysis."""

    turns: ClassVar[list[tuple[float, float, float, float]]] = []

    def analyze(self, evaluations: Any, last: Turn[Any] | None = None) -> Turn[Any]:
        design = evaluations.design
        for level, grid in enumerate(design.grids):  # g is no part of the analysis
            evaluations.values(grid.n_outer, level)
        begin = time.process_time()
        turn = super().analyze(evaluations, last)
        n = design.learning.n_evaluations
        is_fitted = last is None or last.design.learning.n_evaluations < n
        outer, inner = evaluations.problem.outer_law, evaluations.problem.inner_base_dim
        weight = (20.0 + outer.base_dim + inner) * turn.state.model.sketch.j.shape[1]
        products = weight * n * (design.n_evaluations - n)
        self.turns.append((weight * n * is_fitted, products, weight, time.process_time() - begin))
        return turn


def measure() -> dict[str, float]:
    """Fixed seconds, seconds by point and by product, and those of the benchmark.

    Relative errors are minimized: short turns count as much as long ones.
    """
    TimedLattice.turns.clear()
    with use_clock(time.process_time), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nq.estimate(nq.problems.finance(), method="joint", budget=1_000, rng=0)  # imports
        for name in PROBLEMS:
            family, _, seed = name.rpartition("-")
            problem = families.draw(family, int(seed)) if family else nq.problems.get(name)
            for budget in BUDGETS:
                nq.estimate(problem, method=TimedLattice(), budget=budget, rng=0)
        reference = benchmark()
    points, products, _, seconds = np.array(TimedLattice.turns).T
    terms = np.stack([np.ones_like(points), points, products], axis=1)
    (fixed, point, product), _ = nnls(terms / seconds[:, None], np.ones_like(seconds))
    ratio = terms @ (fixed, point, product) / seconds
    low, high = np.quantile(ratio, [0.1, 0.9])
    return {
        "turns": len(seconds), "fixed": fixed, "point": point, "product": product,
        "reference": reference, "predicted over measured, 10 %": low, "90 %": high,
    }  # fmt: skip


def report() -> None:
    for name, value in measure().items():
        print(f"{name:32s} {value:.3g}")
