"""Designs: descriptions of points by sizes, sequences and a stream, and the points themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from nestquad._typing import Array
from nestquad.distributions import Law, read_only
from nestquad.errors import InputError
from nestquad.points import IID, Given, Sequence, Stream
from nestquad.problem import NestedExpectation


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
        Distinguishes the grids of a design; levels have different points.
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
        """Points of the grid without a size: equal for grids that are parts of each other."""
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

    `seconds` is the predicted duration of its turn, where the method has a better prediction than
    from the size and duration of the last turn.
    """

    grids: tuple[Grid, ...] = field(default=())
    seconds: float | None = field(default=None, compare=False, kw_only=True)

    def needs(self) -> list[tuple[Grid, Array]]:
        """For each kind of points, a grid on them and how many x each of its θ has."""
        by_points: dict[Grid, list[Grid]] = {}
        for grid in self.grids:
            by_points.setdefault(grid.points, []).append(grid)
        needs = []
        for grids in by_points.values():
            largest = max(grids, key=lambda grid: grid.n_outer)
            needed = np.zeros(largest.n_outer, dtype=int)
            for grid in grids:
                needed[: grid.n_outer] = np.maximum(needed[: grid.n_outer], grid.n_inner)
            needs.append((largest, needed))
        return needs

    @cached_property
    def n_evaluations(self) -> int:
        """Number of distinct points; grids on the same points overlap."""
        return sum(int(needed.sum()) for _, needed in self.needs())


# Laws that can only be sampled are drawn in blocks, each with its own generator, so that the draws
# do not depend on how the work is cut or how a design grew.
_SAMPLER_TILE = 256
_SMALLEST_TILE = 16


@dataclass(frozen=True)
class OuterPoints:
    """θ (T, d_θ) and the uniforms (T, d) they come from; None where there are none."""

    theta: Array
    uniform: Array | None


@dataclass(frozen=True)
class InnerPoints:
    """x and the uniforms behind it.

    `x` is (T, N, d_x), or (1, N, d_x) where all θ share it. `uniform` is (S, N, d) for the S
    different sets in this span, None where there are none; row t uses set ``t % S`` counted from
    the start of the grid if S < T.
    """

    x: Array
    uniform: Array | None
    law: Law


def outer_points(problem: NestedExpectation, grid: Grid, t0: int, t1: int) -> OuterPoints:
    """The outer points t0 … t1 - 1 of a grid."""
    law, sequence = problem.outer_law, grid.outer_points
    if isinstance(sequence, Given) and sequence.space == "native":
        dim = law.dim or law.base_dim
        theta = sequence.uniforms(grid.outer_stream, dim, (0, 1), (t0, t1))[0]
        return OuterPoints(theta, None)
    if law.has_transport:
        dim = law.base_dim + (problem.inner_base_dim if grid.joint else 0)
        uniform = sequence.uniforms(grid.outer_stream, dim, (0, 1), (t0, t1))[0][:, : law.base_dim]
        if grid.outer_scale != 1.0:
            normal = grid.outer_scale * ndtri(uniform)
            return OuterPoints(_finite("outer", law.from_normal(read_only(normal))), ndtr(normal))
        return OuterPoints(_finite("outer", law.from_uniform(read_only(uniform))), uniform)
    _require_iid("outer", sequence)
    tiles = [
        law.sample(_SAMPLER_TILE, grid.outer_stream.child(tile).generator())
        for tile in range(t0 // _SAMPLER_TILE, -(-t1 // _SAMPLER_TILE))
    ]
    start = t0 - t0 % _SAMPLER_TILE
    theta = np.concatenate(tiles)[t0 - start : t1 - start]
    return OuterPoints(_finite("outer", theta), None)


def inner_points(problem: NestedExpectation, grid: Grid, theta: Array, span: Span) -> InnerPoints:
    """The inner points of a span, given its θ (t1 - t0, d_θ)."""
    law, sequence = problem.inner_law(theta), grid.inner_points
    indices = (span.n0, span.n1)
    sets = (span.t0, span.t1) if grid.n_sets is None else (0, grid.n_sets)
    if isinstance(sequence, Given) and sequence.space == "native":
        x = sequence.uniforms(grid.inner_stream, law.dim or 1, sets, indices)
        return InnerPoints(_by_row(x, grid, span), None, law)
    if not law.has_transport:
        _require_iid("inner", sequence)
        return InnerPoints(_sampled(problem, grid, theta, span), None, law)
    if grid.joint:
        dim = problem.outer_law.base_dim
        joint = grid.outer_points.uniforms(
            grid.outer_stream, dim + law.base_dim, (0, 1), (span.t0, span.t1)
        )[0]
        uniform = joint[:, None, dim:]
        return InnerPoints(_finite("inner", law.from_uniform(read_only(uniform))), uniform, law)
    which = (grid.inner_stream, law.base_dim, sets, indices)
    shared = grid.n_sets is not None
    uniform = _shared_uniforms(sequence, *which) if shared else sequence.uniforms(*which)
    if law.base == "normal":
        # The inverse normal distribution function is expensive: once for each set, not each θ.
        normal = _shared_normals(sequence, *which) if shared else ndtri(uniform)
        x = law.from_normal(read_only(_by_row(normal, grid, span)))
    else:
        x = law.from_uniform(read_only(_by_row(uniform, grid, span)))
    return InnerPoints(_finite("inner", x), uniform, law)


def grid_points(problem: NestedExpectation, grid: Grid, span: Span) -> tuple[Array, InnerPoints]:
    """θ (t1 - t0, d_θ) of a span of a grid, and its inner points."""
    theta = outer_points(problem, grid, span.t0, span.t1).theta
    return theta, inner_points(problem, grid, theta, span)


@lru_cache(maxsize=4)
def _shared_uniforms(sequence: Sequence, *which: Any) -> Array:
    """Sets that several θ share, which every chunk asks for."""
    return sequence.uniforms(*which)


@lru_cache(maxsize=4)
def _shared_normals(sequence: Sequence, *which: Any) -> Array:
    return np.asarray(ndtri(_shared_uniforms(sequence, *which)))


def _by_row(sets: Array, grid: Grid, span: Span) -> Array:
    """(S, N, d) for the sets → (T, N, d) for the rows, or (1, N, d) if all are the same."""
    if grid.n_sets is None or grid.n_sets == 1:
        return sets
    return sets[np.arange(span.t0, span.t1) % grid.n_sets]


def _sampled(problem: NestedExpectation, grid: Grid, theta: Array, span: Span) -> Array:
    rows = []
    tiles = _sampler_tiles(span.n0, span.n1)
    skip = span.n0 - tiles[0][0]
    for i in range(theta.shape[0]):
        law = problem.inner_law(theta[i : i + 1])
        which = (span.t0 + i) % (grid.n_sets or grid.n_outer)
        draws = [
            law.sample(stop - start, grid.inner_stream.child(which, start).generator())
            for start, stop in tiles
        ]
        row = np.concatenate(draws, axis=-2).reshape(-1, draws[0].shape[-1])
        rows.append(row[skip : skip + span.n1 - span.n0])
    return _finite("inner", np.stack(rows))


def _sampler_tiles(n0: int, n1: int) -> list[tuple[int, int]]:
    """The blocks in which draws [n0, n1) of one θ are made: they double, so that few are wasted."""
    tiles, start = [], 0
    while start < n1:
        stop = start + min(max(start, _SMALLEST_TILE), _SAMPLER_TILE)
        if stop > n0:
            tiles.append((start, stop))
        start = stop
    return tiles


def _require_iid(role: str, sequence: object) -> None:
    if not isinstance(sequence, IID):
        raise InputError(
            role,
            "a law that can only be sampled",
            f"a law that is a transport of uniforms, since the {role} points are "
            f"{type(sequence).__name__}",
            "Use method='nmc', or iid points, or describe the simulator by nq.Transport.",
        )


def _finite(role: str, points: Array) -> Array:
    if not np.isfinite(points).all():
        given = "a law that produced points that are not finite"
        advice = "Check its parameters; an unbounded law is never asked for its quantile at 0 or 1."
        raise InputError(role, given, "finite points", advice)
    return points
