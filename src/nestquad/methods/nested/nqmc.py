"""Nested quasi-Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import ClassVar

from nestquad._typing import Array
from nestquad.evaluate import Evaluations
from nestquad.methods.nested._base import NestedRule, Sharing
from nestquad.methods.nested._stages import InnerFit, MeanRule, OuterFit, mean_outer
from nestquad.points import Sequence

__all__ = ["NQMC", "balanced_split"]


@dataclass(frozen=True)
class NQMC(NestedRule):
    """Nested quasi-Monte Carlo: means over scrambled Sobol points, inside and outside.

    Bartuska et al. (2023), Double-loop randomized quasi-Monte Carlo estimator for nested
    integration.

    Each θ has an independent digital shift, so that inner errors average out over θ.

    Examples
    --------
    >>> import nestquad as nq
    >>> est = nq.estimate(nq.problems.synthetic(), method="nqmc", budget=4096, rng=1)
    >>> est.n_outer, est.n_inner
    (64, 64)
    """

    plain: ClassVar[bool] = True
    name: ClassVar[str] = "nqmc"
    outer_points: str | Sequence = "sobol"
    inner_points: str | Sequence = "sobol"
    sharing: Sharing = "independent"

    def split(self, budget: int) -> tuple[int, int]:
        return balanced_split(budget)

    def fit_inner(self, evaluations: Evaluations, theta: Array) -> InnerFit:
        (grid,) = evaluations.design.grids
        return InnerFit(MeanRule(grid.n_inner), {"rule": "mean of low-discrepancy points"})

    def fit_outer(self, evaluations: Evaluations, f_values: Array) -> OuterFit:
        return mean_outer(evaluations.problem.finish, f_values, blocks=8)


def balanced_split(budget: int) -> tuple[int, int]:
    """(T, N) with N the power of two nearest to √budget: Sobol points are best in such numbers.

    Examples
    --------
    >>> balanced_split(10_000)
    (78, 128)
    """
    exponent = max(1, round(0.5 * log2(max(budget, 1))))
    return budget // 2**exponent, 2**exponent
