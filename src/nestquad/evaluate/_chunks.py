"""Cutting a rectangle of evaluations into pieces of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nestquad.evaluate._design import Span

__all__ = ["CHUNK_POINTS", "chunks", "columns", "row_end"]

# Half a megabyte for each temporary array of g. They stay in the processor's cache, and what is
# done once for each block, by an interpreter that they drove out of the nearest one, is little.
CHUNK_POINTS = 65_536
# Long rows are cut here whatever the chunk size, so that sums are always taken in the same order.
ROW_TILE = 65_536
# Independent points are made for so many rows together, or for a multiple of it. A chunk that ends
# within such a group makes points that the next one makes again.
_GROUP = 16


def chunks(
    span: Span,
    points: int | Callable[[int], int] = CHUNK_POINTS,
    *,
    whole_rows: int | None = None,
) -> Iterator[Span]:
    """Pieces of a span of about `points` points, in order of rows; a quarter more at the most.

    Parameters
    ----------
    points
        A number, or a function that says how many for so many points that are left.
    whole_rows
        Never cut a row and take at most so many together: for rules whose weights need all inner
        points of a θ.

    Examples
    --------
    >>> [(c.t0, c.t1) for c in chunks(Span(0, 5, 0, 100), points=200)]
    [(0, 2), (2, 4), (4, 5)]
    """
    width = span.n1 - span.n0
    tile = max(1, min(width, ROW_TILE) if whole_rows is None else width)
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
    """Where a block of about so many rows ends that starts at t0, when there are rows up to `end`.

    A few rows that are left at the end come with it: calls cost more than they would.

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
