"""Chunk size: pieces of a span bounded by memory and by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from nestquad import limits
from nestquad.evaluate._design import Span
from nestquad.problem import NestedExpectation

# Rows for which independent points are made together. A chunk that ends within such a group makes
# points that the next one makes again.
_GROUP = 16


def chunks(
    span: Span,
    points: int | Callable[[int], int] = limits.CHUNK_POINTS,
    *,
    whole_rows: int | None = None,
) -> Iterator[Span]:
    """Pieces of a span of about `points` points, at most a quarter more, in order of rows.

    `points` may be a function of the number of points still to come. With `whole_rows` no row is
    cut, and a piece has at most this number of rows: for rules whose weights need all inner points
    of a θ.

    Examples
    --------
    >>> [(c.t0, c.t1) for c in chunks(Span(0, 5, 0, 100), points=200)]
    [(0, 2), (2, 4), (4, 5)]
    """
    width = span.n1 - span.n0
    tile = max(1, min(width, limits.ROW_TILE) if whole_rows is None else width)
    t0 = span.t0
    while t0 < span.t1:
        size = points((span.t1 - t0) * width) if callable(points) else points
        rows = max(1, size // tile)
        t1 = row_end(t0, rows, span.t1)
        if whole_rows is not None:
            t1 = min(t1, t0 + whole_rows)
        for n0 in range(span.n0, span.n1, tile):
            yield Span(t0, t1, n0, min(n0 + tile, span.n1))
        t0 = t1


def row_end(t0: int, rows: int, end: int) -> int:
    """End of a block of about `rows` rows that starts at t0, with rows up to `end`.

    A few last rows join the block: another call would cost more.

    Examples
    --------
    >>> row_end(0, 103, 316), row_end(96, 103, 316), row_end(192, 103, 316)
    (96, 192, 316)
    """
    if end - t0 <= rows + rows // 4:
        return end
    aligned = (t0 + rows) // _GROUP * _GROUP
    return aligned if 2 * (aligned - t0) > rows else t0 + rows


def columns(span: Span, points: Callable[[], int]) -> Iterator[Span]:
    """Pieces of a span of about `points()` points that may be parts of rows, in order of rows.

    Examples
    --------
    >>> [c.shape for c in columns(Span(0, 2, 0, 100), lambda: 60)]
    [(1, 60), (1, 40), (1, 60), (1, 40)]
    """
    t0, width = span.t0, span.n1 - span.n0
    while t0 < span.t1:
        t1 = min(t0 + max(1, points() // max(width, 1)), span.t1)
        n0 = span.n0
        while n0 < span.n1:
            n1 = span.n1 if t1 - t0 > 1 else min(n0 + max(1, points()), span.n1)
            yield Span(t0, t1, n0, n1)
            n0 = n1
        t0 = t1


def block_points(problem: NestedExpectation) -> int:
    """Points that fit into memory at a time."""
    law = problem.outer_law
    theta = (
        law.from_uniform(np.full((1, law.base_dim), 0.5))
        if law.has_transport
        else law.sample(1, np.random.default_rng(0))
    )
    inner = problem.inner_law(theta)
    numbers = theta.shape[-1] + max(inner.dim or 1, inner.base_dim if inner.has_transport else 1)
    return max(1, limits.MEMORY // (8 * limits.BLOCK_COPIES * (int(numbers) + 1)))


@cache
def keep_freed_memory() -> None:
    """Let the process reuse the memory of one block for the next.

    The C library of Linux gives freed arrays back to the system, which hands them out again page
    by page, zeroed: a fifth of the time of a g that costs 100 ns a point. It keeps blocks up to the
    size of the largest array freed so far, so a large array is allocated and freed untouched, once
    for each process. Other systems are unaffected.
    """
    np.empty(limits.KEPT_MEMORY, dtype=np.int8)


# A step up or down is at most this factor: the first calls of a function are often slow, and the
# fixed cost of a call shows only in larger ones. From very short chunks a step may be
# larger, as long as it leads to no more than this part of the target.
_STEP, _PART = 8.0, 0.25


def task_seconds(workers: int) -> tuple[float, float]:
    """Target and least duration of a task, for a number of workers."""
    target = max(limits.TASK_SECONDS, limits.TASK_SECONDS_BY_WORKER * workers)
    return target, max(limits.LEAST_TASK_SECONDS, limits.LEAST_SECONDS_BY_WORKER * workers)


@dataclass
class Pace:
    """Learns a chunk size from the duration of chunks: `seconds` each, `most` points at the most.

    Small chunks lose time on calls, on tasks and on files; large ones let workers wait for the
    last, lose much when a process dies, and react late to Ctrl-C. The cost of g is unknown
    before it has run, so the size starts small. It has no influence on the answer.

    Examples
    --------
    >>> pace = Pace(points=16, most=65_536, seconds=0.25)
    >>> pace.observe(16, 0.32)  # 20 ms a point
    >>> pace.points
    12
    """

    points: int
    most: int
    seconds: float
    per_point: float = 0.0
    _last: tuple[int, float] = (1 << 62, 0.0)
    _recent: tuple[float, ...] = ()

    @property
    def typical(self) -> float:
        """Seconds a point, of the fastest of the last chunks: others were small, or disturbed."""
        return min(self._recent, default=0.0)

    def observe(self, size: int, seconds: float) -> None:
        """Learn from the duration of a chunk."""
        last, self._last = self._last, (size, seconds)
        self.per_point = seconds / size
        self._recent = (*self._recent[-3:], self.per_point)
        if 2 * size < self.points and seconds < self.seconds:
            return  # the end of a row tells no time of larger chunks
        ratio = self.seconds / max(seconds, 1e-9)
        factor = min(max(ratio, 1.0 / _STEP), max(_STEP, _PART * ratio))
        if size == 1 and ratio > 1.0:
            factor = max(factor, _STEP)
        elif size >= 4 * last[0] and seconds < 2.0 * last[1] and ratio > 0.5:
            # The time is the fixed cost of a call; more points are nearly free.
            factor = max(factor, 4.0 * _STEP)
        self.points = min(max(int(size * factor), 1), self.most)
