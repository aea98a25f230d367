"""Cutting a rectangle of evaluations into pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from nestquad.evaluate._design import Span

__all__ = ["CHUNK_POINTS", "chunks"]

# 2^16 points keep every temporary array of g in the processor's cache: larger blocks are slower.
CHUNK_POINTS = 65_536
# Long rows are cut here whatever the chunk size, so that sums are always taken in the same order.
ROW_TILE = 65_536


def chunks(
    span: Span, points: int = CHUNK_POINTS, *, whole_rows: int | None = None
) -> Iterator[Span]:
    """Pieces of a span of at most about `points` points, in order of rows.

    Parameters
    ----------
    whole_rows
        Never cut a row and take at most so many together: for rules whose weights need all inner
        points of a θ.

    Examples
    --------
    >>> [(c.t0, c.t1) for c in chunks(Span(0, 5, 0, 100), points=200)]
    [(0, 2), (2, 4), (4, 5)]
    """
    width = span.n1 - span.n0
    tile = min(width, ROW_TILE) if whole_rows is None else width
    rows = max(1, points // max(tile, 1))
    if whole_rows is not None:
        rows = min(rows, whole_rows)
    for t0 in range(span.t0, span.t1, rows):
        t1 = min(t0 + rows, span.t1)
        for n0 in range(span.n0, span.n1, max(tile, 1)):
            yield Span(t0, t1, n0, min(n0 + tile, span.n1))
