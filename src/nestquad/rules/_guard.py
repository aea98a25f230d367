"""How much to regularise, and the guard that raises it until the weights are tame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nestquad.errors import InputError

__all__ = ["Jitter", "Regularization", "Schedule", "scheduled_lambda"]


@dataclass(frozen=True)
class Jitter:
    """The smallest ridge that keeps the weights tame.

    Starts from `start` (relative to the kernel's diagonal) and multiplies by ten until the
    matrix factorises and Σ|w| ≤ `limit`. Weights that cancel each other amplify every error in
    the values, so a little bias is the better bargain.
    """

    start: float = 1e-12
    limit: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.start < 1:
            raise InputError("start", repr(self.start), "a relative ridge between 0 and 1")
        if not self.limit > 1:
            raise InputError(
                "limit",
                repr(self.limit),
                "a bound above 1, since weights that sum to one have Σ|w| ≥ 1",
            )


@dataclass(frozen=True)
class Schedule:
    """The paper's λ = λ_0 N^(-2s/d) (log N)^((2s+2)/d), with λ_0 from a grid.

    With several values of `grid`, tuning picks the one with the smallest leave-one-out error; see
    :func:`nestquad.tuning.best_lambda0`. A kernel of infinite smoothness has no schedule and gets
    the jitter instead.
    """

    grid: tuple[float, ...] = (0.01, 0.1, 1.0)

    def __post_init__(self) -> None:
        if not self.grid or not all(np.isfinite(v) and v > 0 for v in self.grid):
            raise InputError("grid", repr(self.grid), "a non-empty tuple of positive numbers")


Regularization: TypeAlias = Jitter | Schedule | float
"""A float is λ itself: the ridge is N λ."""


def scheduled_lambda(lambda0: float, n: int, smoothness: float, dim: int) -> float:
    """The theorem's regularisation for N nodes; 0 for infinite smoothness.

    Examples
    --------
    >>> round(scheduled_lambda(1.0, 100, smoothness=2.0, dim=1), 8)
    9.538e-05
    """
    if n < 2 or not np.isfinite(smoothness):
        return 0.0
    log_lambda = (
        np.log(lambda0)
        - 2.0 * smoothness / dim * np.log(n)
        + (2.0 * smoothness + 2.0) / dim * np.log(np.log(n))
    )
    # The schedule is asymptotic: for small N in high dimension it would exceed the kernel itself.
    return float(min(np.exp(log_lambda), lambda0))
