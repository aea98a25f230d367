"""Tasks: evaluation and reduction of a span, in this thread or on a worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from nestquad._typing import Array
from nestquad.evaluate._call import CountedG, call_g, joined
from nestquad.evaluate._chunks import chunks, keep_freed_memory, row_end
from nestquad.evaluate._design import Grid, Span
from nestquad.evaluate._points import InnerPoints, inner_points, outer_points
from nestquad.evaluate._sending import Parcel, packed
from nestquad.problem import NestedExpectation


class InnerRule(Protocol):
    """Reduction of the values of g at each θ to a few numbers: J from all and from fewer points.

    `views` names them; the first is the estimate, the others serve error estimation. `reduce` is
    linear in the values. With `whole_rows` None it takes any part of a row, parts are added up,
    and it gets no points; a number says that it needs the points of whole rows, and at most
    that many rows at a time.
    """

    @property
    def views(self) -> tuple[str, ...]: ...
    @property
    def whole_rows(self) -> int | None: ...
    def reduce(self, values: Array, span: Span, points: InnerPoints | None) -> Array:
        """(T, N[, p]) → (T, views[, p])."""
        ...


@dataclass(frozen=True)
class Task:
    """Everything needed to evaluate a span of a grid, except the span.

    It travels to workers with every span, so it is pickled once, and unpickled once by each
    worker. Executors that do not pickle use it as it is.
    """

    problem: NestedExpectation
    grid: Grid
    rule: InnerRule | None
    block_points: int
    retries: int = 0

    @cached_property
    def payload(self) -> bytes:
        return self._packed()

    def _packed(self, *, by_value: bool = False) -> bytes:
        content = (self.problem, self.grid, self.rule, self.block_points, self.retries)
        return packed(content, by_value=by_value)

    def send_by_value(self) -> None:
        """Send all that is not installed with the task, since workers do not find it by name."""
        for task in {id(task): task for task in (self, self.raw)}.values():
            vars(task)["payload"] = task._packed(by_value=True)

    @cached_property
    def raw(self) -> Task:
        """The same without the rule."""
        return self if self.rule is None else replace(self, rule=None)

    def __reduce__(self) -> tuple[type[Parcel], tuple[bytes]]:
        return Parcel, (self.payload,)

    def values(self, span: Span, g: CountedG) -> Array:
        """g on a span, in blocks of bounded size: (T, N[, p])."""
        width = max(1, min(span.n1 - span.n0, self.block_points))
        rows = max(1, self.block_points // width)
        parts = []
        t0 = span.t0
        while t0 < span.t1:
            t1 = row_end(t0, rows, span.t1)
            theta = outer_points(self.problem, self.grid, t0, t1).theta
            row = []
            for n0 in range(span.n0, span.n1, width):
                block = Span(t0, t1, n0, min(n0 + width, span.n1))
                x = inner_points(self.problem, self.grid, theta, block).x
                row.append(call_g(self.problem, g, x, theta, self.retries))
            parts.append(joined(row, axis=1))
            t0 = t1
        return joined(parts)

    def reduce(self, values: Array, span: Span) -> Array:
        """Reduced values of a span; without a rule, the values."""
        if self.rule is None:
            return values
        if self.rule.whole_rows is None:
            return self.rule.reduce(values, span, None)
        theta = outer_points(self.problem, self.grid, span.t0, span.t1).theta
        return self.rule.reduce(values, span, inner_points(self.problem, self.grid, theta, span))

    def __call__(self, span: Span, g: CountedG) -> Array:
        if self.rule is None:
            return self.values(span, g)
        parts = []
        for block in chunks(span, self.block_points, whole_rows=self.rule.whole_rows):
            if self.rule.whole_rows is None or block.size > self.block_points:
                parts.append(self.reduce(self.values(block, g), block))
            else:  # points are needed twice, and are expensive
                theta = outer_points(self.problem, self.grid, block.t0, block.t1).theta
                points = inner_points(self.problem, self.grid, theta, block)
                values = call_g(self.problem, g, points.x, theta, self.retries)
                parts.append(self.rule.reduce(values, block, points))
        return joined(parts)


@dataclass(frozen=True)
class Done:
    """Values of a span, the seconds that they took, and how many points g got more than once."""

    span: Span
    values: Array
    seconds: float
    n_again: int


def run_task(task: Task | Parcel, span: Span) -> Done:
    """Evaluate a span."""
    if isinstance(task, Parcel):
        task = Task(*task.content())
    keep_freed_memory()
    started = time.perf_counter()
    g = CountedG(task.problem)
    values = task(span, g)
    return Done(span, values, time.perf_counter() - started, g.n_points - span.size)
