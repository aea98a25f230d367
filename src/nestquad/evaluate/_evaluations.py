"""Evaluations of g on a design: made when asked for, in chunks, never twice."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from nestquad._typing import Array
from nestquad.errors import EvaluationError
from nestquad.evaluate._call import call_g
from nestquad.evaluate._chunks import CHUNK_POINTS, chunks
from nestquad.evaluate._design import Design, Grid, Span
from nestquad.evaluate._points import InnerPoints, OuterPoints, inner_points, outer_points
from nestquad.evaluate._table import ValueTable
from nestquad.points import Stream
from nestquad.problem import NestedExpectation

__all__ = ["Evaluations", "Evaluator", "InnerRule", "OutOfTimeError"]


class OutOfTimeError(EvaluationError):
    """Not even one θ was complete when time ran out."""


def _out_of_time() -> OutOfTimeError:
    return OutOfTimeError(
        "time ran out before the first chunk of evaluations was complete",
        advice="Raise max_seconds, or lower the budget.",
    )


class InnerRule(Protocol):
    """Turns values of g at the inner points of each θ into a few numbers: J and its twins.

    `views` names them; the first is the estimate, the others serve error estimation. `reduce` is
    linear in the values. With `whole_rows` None it takes any part of a row, parts are added up,
    and it gets no points; a number says that it needs the points of whole rows, and at most so
    many rows at a time.
    """

    @property
    def views(self) -> tuple[str, ...]: ...
    @property
    def whole_rows(self) -> int | None: ...
    def reduce(self, values: Array, span: Span, points: InnerPoints | None) -> Array:
        """(T, N[, p]) → (T, views[, p])."""
        ...


@dataclass
class Evaluator:
    """Evaluates designs of one problem and remembers what it was told to keep.

    Parameters
    ----------
    problem
        Whose g is called.
    executor
        Any ``concurrent.futures.Executor``; None runs in this thread.
    keep
        Keep all values in memory, for designs that grow. Otherwise values are reduced chunk by
        chunk and forgotten.
    deadline
        ``time.perf_counter()`` after which no new chunk is started.
    on_progress
        Called with the number of evaluations done so far, in all designs.
    """

    problem: NestedExpectation
    executor: Executor | None = None
    keep: bool = False
    deadline: float = float("inf")
    chunk_points: int = CHUNK_POINTS
    on_progress: Callable[[int], None] = lambda done: None
    n_evaluations: int = 0
    stopped: str | None = None
    _memos: dict[Stream, dict[str, Any]] = field(default_factory=dict)
    _tables: dict[tuple[Stream, int], ValueTable] = field(default_factory=dict)

    def evaluate(self, design: Design) -> Evaluations:
        return Evaluations(self, design)

    def memo(self, stream: Stream) -> dict[str, Any]:
        """What a method wants to remember from turn to turn to save time; no answer needs it."""
        return self._memos.setdefault(stream, {})

    def table(self, grid: Grid) -> ValueTable:
        # Stream and level make the points: grids of several methods may share an evaluator.
        return self._tables.setdefault((grid.stream, grid.level), ValueTable())

    def run(
        self, grid: Grid, spans: Iterator[Span], rule: InnerRule | None
    ) -> Iterator[tuple[Span, Array]]:
        """Evaluate spans in order; yield raw values, or what the rule reduces them to."""
        for span, result in self._ordered(grid, spans, rule):
            self.n_evaluations += span.size
            self.on_progress(self.n_evaluations)
            yield span, result

    def _ordered(
        self, grid: Grid, spans: Iterator[Span], rule: InnerRule | None
    ) -> Iterator[tuple[Span, Array]]:
        if self.executor is None:
            for span in spans:
                if self._time_is_up():
                    return
                task = partial(_evaluate_chunk, self.problem, grid, span, rule)
                yield span, self._attributed(task)
            return
        # A bounded window: enough to keep every worker busy, little enough to stop soon.
        waiting: deque[tuple[Span, Future[Array]]] = deque()
        window = 4 * int(getattr(self.executor, "_max_workers", 2) or 2)
        try:
            for span in spans:
                if self._time_is_up():
                    break
                waiting.append(
                    (span, self.executor.submit(_evaluate_chunk, self.problem, grid, span, rule))
                )
                if len(waiting) >= window:
                    first, future = waiting.popleft()
                    yield first, self._attributed(future.result)
            while waiting:
                first, future = waiting.popleft()
                yield first, self._attributed(future.result)
        finally:
            for _, future in waiting:
                future.cancel()

    def _attributed(self, call: Callable[[], Array]) -> Array:
        try:
            return call()
        except EvaluationError as error:
            error.n_completed = self.n_evaluations
            raise

    def _time_is_up(self) -> bool:
        if time.perf_counter() > self.deadline:
            self.stopped = "time"
            return True
        return False


@dataclass
class Evaluations:
    """What a method sees: points and (reduced) values of the grids of a design.

    Nothing is evaluated before it is asked for. If time runs out, the rows that are complete are
    what there is: arrays then have fewer rows than the design has outer points.
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
        return table.get(Span(0, done, 0, grid.n_inner))

    def fold(self, rule: InnerRule, level: int = 0) -> Array:
        """Reduce all rows of a grid: (T, views[, p])."""
        grid = self.design.grids[level]
        table = self.evaluator.table(grid)
        if self.evaluator.keep:
            self._fill(grid, grid.span)
        kept = min(table.complete_rows(grid.n_inner), grid.n_outer)
        rows = _Rows(grid.n_inner)
        for span in self._cut(Span(0, kept, 0, grid.n_inner), rule):
            points = None if rule.whole_rows is None else _points(self.problem, grid, span)
            rows.add(span, rule.reduce(table.get(span), span, points))
        if not self.evaluator.keep:
            rest = self._cut(Span(kept, grid.n_outer, 0, grid.n_inner), rule)
            for span, reduced in self.evaluator.run(grid, rest, rule):
                rows.add(span, reduced)
        if not rows.complete:
            raise _out_of_time()
        return np.concatenate(rows.complete)

    def _fill(self, grid: Grid, span: Span) -> None:
        table = self.evaluator.table(grid)
        for missing in table.missing(span):
            pieces = chunks(missing, self.evaluator.chunk_points)
            for piece, values in self.evaluator.run(grid, pieces, None):
                table.put(piece, values)

    def _cut(self, span: Span, rule: InnerRule) -> Iterator[Span]:
        return chunks(span, self.evaluator.chunk_points, whole_rows=rule.whole_rows)


class _Rows:
    """Adds up the parts of each block of rows; a block counts once its last part is there."""

    def __init__(self, n_inner: int) -> None:
        self.complete: list[Array] = []
        self._n_inner = n_inner
        self._sum: Array | float = 0.0

    def add(self, span: Span, part: Array) -> None:
        total = part if span.n0 == 0 else self._sum + part
        self._sum = total
        if span.n1 == self._n_inner:
            self.complete.append(total)


def _points(problem: NestedExpectation, grid: Grid, span: Span) -> InnerPoints:
    theta = outer_points(problem, grid, span.t0, span.t1).theta
    return inner_points(problem, grid, theta, span)


def _evaluate_chunk(
    problem: NestedExpectation, grid: Grid, span: Span, rule: InnerRule | None
) -> Array:
    """Make the points of a span where we are, evaluate g, and reduce if there is a rule."""
    theta = outer_points(problem, grid, span.t0, span.t1).theta
    points = inner_points(problem, grid, theta, span)
    values = call_g(problem, points.x, theta)
    if rule is None:
        return values
    return rule.reduce(values, span, None if rule.whole_rows is None else points)
