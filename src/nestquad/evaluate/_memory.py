"""How much may be held in memory at a time."""

from __future__ import annotations

import numpy as np

from nestquad.problem import NestedExpectation

__all__ = ["MEMORY", "block_points"]

# Points and values of one block, temporary arrays of g included, and results that wait: bytes.
MEMORY = 256_000_000
# A block of g is held about this many times over: x, theta, and what g makes of them.
_COPIES = 6


def block_points(problem: NestedExpectation) -> int:
    """How many points may be held at a time, whatever their dimension."""
    law = problem.outer_law
    theta = (
        law.from_uniform(np.full((1, law.base_dim), 0.5))
        if law.has_transport
        else law.sample(1, np.random.default_rng(0))
    )
    inner = problem.inner_law(theta)
    numbers = theta.shape[-1] + max(inner.dim or 1, inner.base_dim if inner.has_transport else 1)
    return max(1, MEMORY // (8 * _COPIES * (int(numbers) + 1)))
