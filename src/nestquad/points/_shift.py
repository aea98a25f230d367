"""Random shifts: what makes the sets of a low-discrepancy sequence independent."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.points._stream import RandomRuns, Stream

__all__ = ["SMALLEST", "blocks", "set_shifts", "shifted_modulo_one"]

# Replaces a zero. Random doubles are multiples of 2**-53, so this is the middle of the first cell.
SMALLEST = 2.0**-54

_CACHED = 1 << 15  # numbers that stay in the fast cache between two passes over them


def set_shifts(stream: Stream, dim: int, sets: tuple[int, int]) -> Array:
    """One uniform in [0, 1) for each set and coordinate.

    Notes
    -----
    Shapes: sets (a, b) give (b - a, dim).
    """
    a, b = sets
    shifts = np.empty((b - a, dim))
    RandomRuns.of(stream).fill(0, a * dim, shifts)
    return shifts


def blocks(n_sets: int, numbers_per_set: int) -> list[slice]:
    """Cut sets into slices small enough for the cache, where several passes follow."""
    step = max(1, _CACHED // max(1, numbers_per_set))
    return [slice(i, min(i + step, n_sets)) for i in range(0, n_sets, step)]


def shifted_modulo_one(points: Array, shifts: Array) -> Array:
    """Shift all points of a set together, wrapped into the open unit cube.

    Notes
    -----
    Shapes: points (N, d) in [0, 1) and shifts (S, d) in [0, 1) give (S, N, d).
    """
    out = np.empty((len(shifts), *points.shape))
    for some in blocks(len(shifts), points.size):
        part = out[some]
        np.add(points, shifts[some, None], out=part)
        part -= part >= 1.0  # exact, unlike a remainder
        np.maximum(part, SMALLEST, out=part)
    return out
