"""Grid on a line: the nodes, and auxiliary points in long gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nestquad._typing import Array, Indices, Mask

LONGEST = 1.0
"""The longest gap in z = rate · x that the quadrature nodes resolve to rounding."""

# The shortest gap, in z: squares of its power ν appear.
_CLOSEST = 1e-30


@dataclass(frozen=True)
class LineLaws:
    """T laws on a line with density height · exp(-(curve (x - center))² / 2) between two ends.

    Attributes
    ----------
    low, high
        The ends. The mass beyond is negligible.
    height, center, curve
        Of the density. No curve: a uniform law.
    width
        The longest interval over which quadrature takes the density for a polynomial.

    Shapes
    ------
    All (T,).
    """

    low: Array
    high: Array
    height: Array
    center: Array
    curve: Array
    width: Array

    def of(self, sets: Indices) -> LineLaws:
        """Those of the given indices."""
        return LineLaws(*(value[sets] for value in vars(self).values()))

    def density(self, x: Array, owner: Indices) -> Array:
        """At points (n, q) for the laws of indices (n,)."""
        height = self.height[owner, None]
        if not self.curve.any():
            return np.broadcast_to(height, x.shape)
        z = self.curve[owner, None] * (x - self.center[owner, None])
        return np.asarray(height * np.exp(-0.5 * z * z))


@dataclass(frozen=True)
class Grid:
    """Nodes and points between them, from left to right, set after set.

    Attributes
    ----------
    position
        Of each point, (n,).
    length
        Of the gap before it, (n,); for the first of a set, of what the law has to the left.
    owner
        Index of its law, (n,).
    known
        Whether it is a node, (n,).
    first, last
        Indices of the first and last point of each set, (S,).
    beyond
        Length of what the law has to the right of the last, (S,).
    """

    position: Array
    length: Array
    owner: Indices
    known: Mask
    first: Indices
    last: Indices
    beyond: Array


def joined(grids: Sequence[Grid]) -> Grid:
    """Grids for the same laws, one after the other."""
    if len(grids) == 1:
        return grids[0]
    begins = np.cumsum([0, *(grid.owner.size for grid in grids[:-1])])
    moved = [
        replace(grid, first=grid.first + begin, last=grid.last + begin)
        for grid, begin in zip(grids, begins, strict=True)
    ]
    return Grid(*map(np.concatenate, zip(*(vars(grid).values() for grid in moved), strict=True)))


def grid_sizes(nodes: Array, rate: Array, laws: LineLaws) -> Array:
    """How many points the grids of sets of nodes (T, N) will have, (T,).

    Infinity for sets with gaps whose powers would leave the range of numbers.
    """
    edges, pieces = _pieces(np.sort(nodes, axis=1), rate, laws)
    widths = np.diff(edges, axis=1)
    gaps = widths * (rate[:, None] / pieces)
    representable = ((widths == 0.0) | (gaps > _CLOSEST)).all(axis=1)
    return np.where(representable, pieces.sum(axis=1) - 1.0, np.inf)


def line_grid(x: Array, rate: Array, laws: LineLaws) -> Grid:
    """The grid of sets of sorted nodes (T, N) for kernels of given rates (T,)."""
    edges, cuts = _pieces(x, rate, laws)
    pieces = cuts.astype(int).ravel()
    n_gaps = x.shape[1] + 1
    lengths = np.diff(edges, axis=1).ravel() / pieces
    gap = np.repeat(np.arange(pieces.size), pieces)
    step = np.arange(gap.size) - np.repeat(np.cumsum(pieces) - pieces, pieces) + 1
    known = step == pieces[gap]
    position = np.where(
        known, edges[:, 1:].ravel()[gap], edges[:, :-1].ravel()[gap] + step * lengths[gap]
    )
    # The ends of the law are not points: a state at the end of the chain that no value pins is
    # hard to eliminate where it is close to the next. Those gaps are integrated from one side.
    kept = ~(known & (gap % n_gaps == n_gaps - 1))
    gap = gap[kept]
    owner = gap // n_gaps
    first, stop = (np.searchsorted(owner, np.arange(len(x)), side) for side in ("left", "right"))
    return Grid(
        position[kept],
        lengths[gap],
        owner,
        known[kept],
        first,
        stop - 1,
        lengths[n_gaps - 1 :: n_gaps],
    )


def _pieces(x: Array, rate: Array, laws: LineLaws) -> tuple[Array, Array]:
    """Edges of the gaps of sorted nodes, (T, N + 2), and into how many pieces to cut each."""
    low, high = np.minimum(laws.low, x[:, 0]), np.maximum(laws.high, x[:, -1])
    edges = np.concatenate([low[:, None], x, high[:, None]], axis=1)
    longest = np.minimum(LONGEST / rate, laws.width)
    return edges, np.maximum(np.ceil(np.diff(edges, axis=1) / longest[:, None]), 1.0)
