"""Values of g that are kept, so that nothing is evaluated twice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from nestquad._typing import Array, ArrayLike
from nestquad.evaluate._design import Span

__all__ = ["ValueTable"]


class ValueTable:
    """Values on a rectangle that may grow in both directions.

    A grid grows by rows (more θ) and by columns (more x for each θ), so what is there is always a
    prefix of each row: `columns[t]` says how long.
    """

    def __init__(self) -> None:
        self._values: Array | None = None
        self._columns = np.zeros(0, dtype=int)

    def missing(self, span: Span) -> list[Span]:
        """The rectangles of a span (which starts at row and column 0) that are not here yet."""
        return self.lacking(np.full(span.t1, span.n1))

    def lacking(self, needed: ArrayLike) -> list[Span]:
        """The rectangles that are not here yet where row t should have `needed[t]` values."""
        need = np.asarray(needed, dtype=int)
        have = np.zeros(need.size, dtype=int)
        known = min(need.size, self._columns.size)
        have[:known] = self._columns[:known]
        have = np.minimum(have, need)
        changes = (np.diff(have) != 0) | (np.diff(need) != 0)
        cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), need.size]
        return [
            Span(t0, t1, int(have[t0]), int(need[t0]))
            for t0, t1 in pairwise(cuts)
            if t1 > t0 and have[t0] < need[t0]
        ]

    def complete_rows(self, n_inner: int) -> int:
        """How many rows from the first on have at least n_inner values."""
        short = np.flatnonzero(self._columns < n_inner)
        return int(short[0]) if short.size else self._columns.size

    def put(self, span: Span, values: Array) -> None:
        self._reserve(span, values)
        assert self._values is not None
        self._values[span.t0 : span.t1, span.n0 : span.n1] = values
        self._columns[span.t0 : span.t1] = np.maximum(self._columns[span.t0 : span.t1], span.n1)

    def get(self, span: Span) -> Array:
        assert self._values is not None
        return self._values[span.t0 : span.t1, span.n0 : span.n1]

    def _reserve(self, span: Span, values: Array) -> None:
        old = self._values
        shape = (0, 0) if old is None else old.shape[:2]
        needed = (max(shape[0], span.t1), max(shape[1], span.n1))
        if old is not None and needed == shape:
            return
        # Doubling the rows keeps appending θ in blocks linear; columns double by themselves.
        rows = needed[0] if needed[0] == shape[0] else max(needed[0], 2 * shape[0])
        new = np.empty((rows, needed[1], *values.shape[2:]))
        if old is not None:
            new[: shape[0], : shape[1]] = old
        self._values = new
        columns = np.zeros(rows, dtype=int)
        columns[: self._columns.size] = self._columns
        self._columns = columns
