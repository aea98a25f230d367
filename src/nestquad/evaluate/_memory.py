"""How much may be held in memory at a time."""

from __future__ import annotations

from functools import cache

import numpy as np

from nestquad.problem import NestedExpectation

__all__ = ["MEMORY", "block_points", "keep_freed_memory"]

# Points and values of one block, temporary arrays of g included, and results that wait: bytes.
MEMORY = 256_000_000
# A block of g is held about this many times over: x, theta, and what g makes of them.
_COPIES = 6
# What may stay with the process between blocks: twice this, in bytes.
_KEPT = 16_000_000


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


@cache
def keep_freed_memory() -> None:
    """Let the process reuse the memory of one block for the next.

    The C library of Linux gives freed arrays back to the system, which hands them out again page
    by page, zeroed: a fifth of the time of a g that costs 100 ns a point. It keeps what is as large
    as the largest array that it saw freed, so one is allocated, not touched, and freed, once for
    each process. Other systems do not care.
    """
    np.empty(_KEPT, dtype=np.int8)
