"""Nested Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nestquad.methods.nested._base import NestedRule, Sharing
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
