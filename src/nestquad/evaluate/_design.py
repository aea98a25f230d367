"""What to evaluate, described and not held: a few numbers stand for any amount of points."""

from __future__ import annotations

from dataclasses import dataclass, field

from nestquad.points import Sequence, Stream

__all__ = ["Design", "Grid", "Span"]


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
    def outer_stream(self) -> Stream:
        return self.stream.child(self.level, 0)

    @property
    def inner_stream(self) -> Stream:
        return self.stream.child(self.level, 1)


@dataclass(frozen=True)
class Design:
    """The grids that a method asks for: one, or one for each level."""

    grids: tuple[Grid, ...] = field(default=())

    @property
    def n_evaluations(self) -> int:
        """How many points there are; those that grids of one level share count once."""
        tables: dict[tuple[Stream, int], list[Grid]] = {}
        for grid in self.grids:
            tables.setdefault((grid.stream, grid.level), []).append(grid)
        return sum(_area(grids) for grids in tables.values())


def _area(grids: list[Grid]) -> int:
    """Of the union of rectangles that share a corner."""
    area = width = 0
    for grid in sorted(grids, key=lambda grid: -grid.n_outer):
        area += grid.n_outer * max(grid.n_inner - width, 0)
        width = max(width, grid.n_inner)
    return area
