"""Tasks: evaluation and reduction of a span, in this thread or sent to a worker."""

from __future__ import annotations

import functools
import pickle
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from nestquad import clock
from nestquad._typing import Array
from nestquad.errors import EvaluationError, InputError, MissingExtraError, optional_module
from nestquad.evaluate._call import CountedG, call_g, joined
from nestquad.evaluate._chunks import chunks, keep_freed_memory, row_end
from nestquad.evaluate._design import (
    Grid,
    InnerPoints,
    Span,
    grid_points,
    inner_points,
    outer_points,
)
from nestquad.evaluate._fingerprint import is_installed
from nestquad.problem import NestedExpectation


class InnerRule(Protocol):
    """Reduction of the values of g at each θ to a few numbers: J from all and from fewer points.

    `views` names them; the first is the estimate, the others serve error estimation. `reduce` is
    linear in the values. With `whole_rows` None it takes any part of a row, parts are added up,
    and it gets no points; a number says that it needs the points of whole rows, and is the
    largest number of rows at a time.
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
        """Task without the rule."""
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
        _, points = grid_points(self.problem, self.grid, span)
        return self.rule.reduce(values, span, points)

    def __call__(self, span: Span, g: CountedG) -> Array:
        if self.rule is None:
            return self.values(span, g)
        parts = []
        for block in chunks(span, self.block_points, whole_rows=self.rule.whole_rows):
            if self.rule.whole_rows is None or block.size > self.block_points:
                parts.append(self.reduce(self.values(block, g), block))
            else:  # points are needed twice, and are expensive
                theta, points = grid_points(self.problem, self.grid, block)
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
        task = Task(*_opened(task.payload))
    keep_freed_memory()
    started = clock.now()
    g = CountedG(task.problem)
    values = task(span, g)
    return Done(span, values, clock.now() - started, g.n_points - span.size)


class UnpackingError(EvaluationError):
    """A worker that got a task could not make sense of it."""


@dataclass(frozen=True)
class Parcel:
    """A task on its way to a worker, who opens it inside our own code.

    Executors that unpack their tasks themselves lose the worker if that fails, and everything
    waits. Here it is an error like any other.
    """

    payload: bytes


@functools.lru_cache(maxsize=8)
def _opened(payload: bytes) -> Any:
    try:
        return pickle.loads(payload)
    except Exception as error:
        raise UnpackingError(
            f"a worker could not unpack the problem ({type(error).__name__}: {error})",
            advice="Modules that g needs have to be installed where the workers run.",
        ) from error


def packed(content: Any, *, by_value: bool = False) -> bytes:
    """Pickled content, by cloudpickle where pickle gives up (lambdas, closures).

    Objects of ``__main__`` go by value, since the main module of a worker may be another one, or
    else by reference, which works in forked processes. With
    `by_value` all that is not installed goes by value.
    """
    reason: Exception | None = None
    try:
        plain = pickle.dumps(content)
        if not by_value and b"__main__" not in plain:
            return plain
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        plain, reason = b"", error
    feature = "Sending this problem to another process"
    feature += f" (pickle says: {reason})" if reason else ""
    try:
        cloudpickle = optional_module("cloudpickle", feature, "parallel")
    except MissingExtraError:
        if plain:
            return plain
        raise
    try:
        with _values_of_modules(cloudpickle, by_value):
            return bytes(cloudpickle.dumps(content))
    except Exception as error:
        if plain and not by_value:
            return plain
        raise InputError(
            "problem",
            f"one that cannot be sent to another process: {error}",
            "functions and data that can be pickled",
            "Open files, locks and connections inside g, or use threads.",
        ) from error


@contextmanager
def _values_of_modules(cloudpickle: Any, wanted: bool) -> Iterator[None]:
    """Functions and classes of the user's own modules go by value inside the block."""
    ours = __name__.partition(".")[0]
    known = set(cloudpickle.list_registry_pickle_by_value())
    modules = [
        module
        for name, module in list(sys.modules.items())
        if wanted
        and isinstance(module, types.ModuleType)
        and getattr(module, "__file__", None)
        and name.partition(".")[0] != ours
        and module.__name__ == name not in known
        and not is_installed(name)
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
