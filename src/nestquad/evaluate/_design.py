"""Designs: descriptions of points by sizes, sequences and a stream."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nestquad._typing import Array
from nestquad.points import Sequence, Stream


@dataclass(frozen=True)
class Span:
    """A rectangle of a grid: outer points [t0, t1) times inner points [n0, n1)."""

    t0: int
    t1: int
    n0: int
    n1: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.t1 - self.t0, self.n1 - self.n0

    @property
    def size(self) -> int:
        return (self.t1 - self.t0) * (self.n1 - self.n0)

    def common(self, other: Span) -> Span | None:
        """Intersection of two rectangles."""
        t0, t1 = max(self.t0, other.t0), min(self.t1, other.t1)
        n0, n1 = max(self.n0, other.n0), min(self.n1, other.n1)
        return Span(t0, t1, n0, n1) if t0 < t1 and n0 < n1 else None

    def without(self, other: Span) -> list[Span]:
        """The rectangle without another, as rectangles.

        Examples
        --------
        >>> sum(rest.size for rest in Span(0, 4, 0, 4).without(Span(1, 3, 1, 3)))
        12
        """
        common = self.common(other)
        if common is None:
            return [self]
        t0, t1, n0, n1 = common.t0, common.t1, common.n0, common.n1
        parts = [
            Span(self.t0, t0, self.n0, self.n1),
            Span(t0, t1, self.n0, n0),
            Span(t0, t1, n1, self.n1),
            Span(t1, self.t1, self.n0, self.n1),
        ]
        return [part for part in parts if part.size]


@dataclass(frozen=True)
class Grid:
    """T outer points, each with N inner points.

    The point (t, n) is a function of the sequences, the stream and the level alone. So a grid that
    grows in T or N keeps all its points, and any part of it can be made anywhere.

    Attributes
    ----------
    n_outer, n_inner
        T and N.
    outer_points, inner_points
        Where the uniforms come from.
    n_sets
        How many different inner point sets there are: None for one for each θ, 1 for one shared
        by all, P for a pool that θ_t takes in turn.
    stream
        The source of randomness.
    level
        Distinguishes the grids of a design; each level has points of its own.
    outer_scale
        Stretches the normal scores of θ: above 1 the design reaches further into the tails than
        the law itself, as surrogates of J need. Such θ are no sample of the law.
    joint
        θ and its single x (N = 1) are the leading and trailing coordinates of one point of
        `outer_points`, so that all of (θ, x) is covered evenly.
    """

    n_outer: int
    n_inner: int
    outer_points: Sequence
    inner_points: Sequence
    n_sets: int | None
    stream: Stream
    level: int = 0
    outer_scale: float = 1.0
    joint: bool = False

    @property
    def span(self) -> Span:
        return Span(0, self.n_outer, 0, self.n_inner)

    @property
    def points(self) -> Grid:
        """The same points without a size: equal for grids that are parts of each other."""
        return replace(self, n_outer=0, n_inner=0)

    @property
    def rows(self) -> Grid:
        """The grid without its number of rows, on which no row depends."""
        return replace(self, n_outer=0)

    @property
    def outer_stream(self) -> Stream:
        return self.stream.child(self.level, 0)

    @property
    def inner_stream(self) -> Stream:
        return self.stream.child(self.level, 1)


@dataclass(frozen=True)
class Design:
    """The grids that a method asks for: one, or one for each level.

    `seconds` are those that its turn promises to take, where the method knows better than from the
    size and duration of the last turn.
    """

    grids: tuple[Grid, ...] = field(default=())
    seconds: float | None = field(default=None, compare=False, kw_only=True)

    def needs(self) -> list[tuple[Grid, Array]]:
        """For each kind of points, a grid on them and how many x each of its θ has."""
        by_points: dict[Grid, list[Grid]] = {}
        for grid in self.grids:
            by_points.setdefault(grid.points, []).append(grid)
        found = []
        for grids in by_points.values():
            largest = max(grids, key=lambda grid: grid.n_outer)
            needed = np.zeros(largest.n_outer, dtype=int)
            for grid in grids:
                needed[: grid.n_outer] = np.maximum(needed[: grid.n_outer], grid.n_inner)
            found.append((largest, needed))
        return found

    @cached_property
    def n_evaluations(self) -> int:
        """Number of distinct points; grids on the same points overlap."""
        return sum(int(needed.sum()) for _, needed in self.needs())
