"""Nested quasi-Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nestquad.methods.nested._base import NestedRule, Sharing

__all__ = ["NQMC"]


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
    blocks: ClassVar[int | None] = 8
    sharing: Sharing = "independent"
