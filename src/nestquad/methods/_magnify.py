"""Small deviations of J made large enough for an f with jumps to show them."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.methods._character import order_of_smoothness
from nestquad.problem import NestedExpectation

__all__ = ["magnification"]

# Deviations of this share of the spread of J carry some of a few hundred θ across a jump.
_VISIBLE = 0.1


def magnification(problem: NestedExpectation, j: Array, deviations: Array) -> float:
    """By what to multiply deviations (m, T, p) of J (T,) or (T, p), at least 1.

    Where f jumps, deviations that carry none of the θ across a jump seem to change nothing, but
    that is only because the θ are few. The change of an average is linear in small deviations: so
    magnify them, and divide the change by the same number. 1 if f has no jumps.
    """
    if order_of_smoothness(problem, j) > 0:
        return 1.0
    # Few θ in the tails may have deviations of another order.
    size = np.median(np.sqrt(np.mean(deviations**2, axis=0)), axis=0)
    visible = _VISIBLE * j.reshape(len(j), -1).std(axis=0)
    seen = size > 0
    return max(1.0, float((visible[seen] / size[seen]).min(initial=1e12))) if seen.any() else 1.0
