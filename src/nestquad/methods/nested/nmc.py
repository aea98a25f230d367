"""Nested Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nestquad._typing import Array
from nestquad.evaluate import Evaluations
from nestquad.methods.nested._base import NestedRule, Sharing
from nestquad.methods.nested._stages import InnerFit, MeanRule, OuterFit, mean_outer
from nestquad.points import Sequence

__all__ = ["NMC"]


@dataclass(frozen=True)
class NMC(NestedRule):
    """Nested Monte Carlo: means of independent draws, inside and outside.

    The baseline. A budget is split as N = √T, which is optimal for smooth f (Gordy and Juneja 2010,
    Nested simulation in portfolio risk measurement; Rainforth et al. 2018, On nesting Monte Carlo
    estimators).

    Examples
    --------
    >>> import nestquad as nq
    >>> est = nq.estimate(nq.problems.synthetic(), method=nq.NMC(n_outer=400, n_inner=20), rng=1)
    >>> est.n_evaluations
    8000
    """

    plain: ClassVar[bool] = True
    name: ClassVar[str] = "nmc"
    outer_points: str | Sequence = "iid"
    inner_points: str | Sequence = "iid"
    sharing: Sharing = "independent"

    @property
    def start(self) -> tuple[int, int]:
        return 128, 8

    def split(self, budget: int) -> tuple[int, int]:
        n_inner = max(2, round(budget ** (1.0 / 3.0)))
        return budget // n_inner, n_inner

    def fit_inner(self, evaluations: Evaluations, theta: Array) -> InnerFit:
        (grid,) = evaluations.design.grids
        return InnerFit(MeanRule(grid.n_inner), {"rule": "mean"})

    def fit_outer(self, evaluations: Evaluations, f_values: Array) -> OuterFit:
        return mean_outer(evaluations.problem.finish, f_values)
