"""Evaluations of g on a design: lazy, in chunks, never twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array
from nestquad.clock import OutOfTimeError
from nestquad.evaluate._chunks import chunks
from nestquad.evaluate._design import (
    Design,
    Grid,
    InnerPoints,
    OuterPoints,
    Span,
    inner_points,
    outer_points,
)
from nestquad.evaluate._evaluator import Evaluator
from nestquad.evaluate._task import InnerRule, Task
from nestquad.problem import NestedExpectation


def _out_of_time() -> OutOfTimeError:
    return OutOfTimeError(
        "time ran out before the first chunk of evaluations was complete",
        advice="Raise max_seconds, or lower the budget.",
    )


@dataclass
class Evaluations:
    """The view of a method: points and (reduced) values of the grids of a design.

    Evaluation is lazy. If time runs out, arrays hold the complete rows only, fewer than the design
    has outer points.
    """

    evaluator: Evaluator
    design: Design

    @property
    def problem(self) -> NestedExpectation:
        return self.evaluator.problem

    def outer(self, level: int = 0) -> OuterPoints:
        grid = self.design.grids[level]
        return outer_points(self.problem, grid, 0, grid.n_outer)

    def inner(self, theta: Array, rows: tuple[int, int], level: int = 0) -> InnerPoints:
        """Inner points of rows [t0, t1), whose θ is given."""
        grid = self.design.grids[level]
        return inner_points(self.problem, grid, theta, Span(*rows, 0, grid.n_inner))

    def values(self, rows: int, level: int = 0) -> Array:
        """Values of g for the first rows, (rows, N[, p]); they are kept for the fold."""
        grid = self.design.grids[level]
        span = Span(0, min(rows, grid.n_outer), 0, grid.n_inner)
        self._fill(grid, span)
        table = self.evaluator.table(grid)
        done = min(table.complete_rows(grid.n_inner), span.t1)
        if not done:
            raise _out_of_time()
        return self._seen(table.get(Span(0, done, 0, grid.n_inner)))

    def fold(self, rule: InnerRule, level: int = 0, *, remember: bool = False) -> Array:
        """Reduce all rows of a grid: (T, views[, p]).

        With `remember` the rule must depend on the number of inner points alone; reduced rows are
        then kept between turns instead of values.
        """
        grid = self.design.grids[level]
        evaluator, table = self.evaluator, self.evaluator.table(grid)
        if evaluator.keep and not remember:
            self._fill(grid, grid.span)
        rows = _Rows(grid.n_inner)
        before = evaluator.folded.get(grid.rows) if remember else None
        if before is not None:
            rows.complete.append(before[: grid.n_outer])
        kept = max(min(table.complete_rows(grid.n_inner), grid.n_outer), rows.count)
        task = Task(evaluator.given, grid, rule, evaluator.chunk_points)
        stored = Span(rows.count, kept, 0, grid.n_inner)
        for span in chunks(stored, evaluator.chunk_points, whole_rows=rule.whole_rows):
            rows.add(span, task.reduce(table.get(span), span))
        for span, reduced in evaluator.run(grid, Span(kept, grid.n_outer, 0, grid.n_inner), rule):
            rows.add(span, reduced)
            evaluator.on_rows(grid, rows.complete)
        if not rows.count:
            raise _out_of_time()
        folded = np.concatenate(rows.complete)
        if remember:
            evaluator.folded[grid.rows] = folded
        return self._seen(folded)

    def _seen(self, values: Array) -> Array:
        return self.evaluator.units.seen(self.evaluator.given, values)

    def _fill(self, grid: Grid, span: Span) -> None:
        table = self.evaluator.table(grid)
        for missing in table.lacking(np.full(span.t1, span.n1)):
            for tile, values in self.evaluator.run(grid, missing, None):
                table.put(tile, values)


class _Rows:
    """Adds up the parts of each block of rows; a block counts once its last part is there."""

    def __init__(self, n_inner: int) -> None:
        self.complete: list[Array] = []
        self._n_inner = n_inner
        self._sum: Array | float = 0.0

    @property
    def count(self) -> int:
        return sum(map(len, self.complete))

    def add(self, span: Span, part: Array) -> None:
        total = part if span.n0 == 0 else self._sum + part
        self._sum = total
        if span.n1 == self._n_inner:
            self.complete.append(total)
