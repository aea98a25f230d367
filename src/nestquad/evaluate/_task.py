"""Tasks: pieces of a span bounded by memory and time, evaluated here or by a worker."""

from __future__ import annotations

import functools
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.machinery import PathFinder
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from nestquad import clock, limits
from nestquad._typing import Array
from nestquad.errors import EvaluationError, InputError, MissingExtraError, optional_module
from nestquad.evaluate._call import CountedG, call_g, joined
from nestquad.evaluate._design import (
    Grid,
    InnerPoints,
    Span,
    grid_points,
    inner_points,
    outer_points,
)
from nestquad.problem import NestedExpectation


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
    tile = max(1, min(width, limits.CHUNK_POINTS) if whole_rows is None else width)
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
    aligned = (t0 + rows) // limits.ROW_GROUP * limits.ROW_GROUP
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
    theta = problem.outer_law.middle()
    inner = problem.inner_law(theta)
    numbers = theta.shape[-1] + max(inner.dim or 1, inner.base_dim if inner.has_transport else 1)
    return max(1, limits.BLOCK_NUMBERS // (int(numbers) + 1))


@cache
def keep_freed_memory() -> None:
    """Let the process reuse the memory of one block for the next.

    The C library of Linux gives freed arrays back to the system, which hands them out again page
    by page, zeroed: a fifth of the time of a g that costs 100 ns a point. It keeps blocks up to the
    size of the largest array freed so far, so a large array is allocated and freed untouched, once
    for each process. Other systems are unaffected.
    """
    np.empty(limits.KEPT_MEMORY, dtype=np.int8)


def task_seconds(workers: int) -> float:
    """Target duration of a task: one client feeds all workers, in milliseconds a task."""
    return max(limits.TASK_SECONDS, 0.01 * workers)


@dataclass
class Pace:
    """Learns a chunk size from the duration of chunks: `seconds` each, `most` points at the most.

    Small chunks lose time on calls, on tasks and on files; large ones let workers wait for the
    last, lose much when a process dies, and react late to Ctrl-C. The cost of g is unknown
    before it has run, so the size starts small. It has no influence on the answer.

    The size changes by at most a factor of `step`: first calls are often slow, and the fixed cost
    of a call shows only in larger ones. From very short chunks it may grow more, to no more than
    `part` of the target.

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
    step: float = 8.0
    part: float = 0.25
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
        factor = min(max(ratio, 1.0 / self.step), max(self.step, self.part * ratio))
        if size == 1 and ratio > 1.0:
            factor = max(factor, self.step)
        elif size >= 4 * last[0] and seconds < 2.0 * last[1] and ratio > 0.5:
            # The time is the fixed cost of a call; more points are nearly free.
            factor = max(factor, 4.0 * self.step)
        self.points = min(max(int(size * factor), 1), self.most)


Start: TypeAlias = Literal["fork", "spawn", "remote"]
"""How processes start: as copies of this one, anew on this machine, or elsewhere."""


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
    start: Start = "fork"

    @cached_property
    def payload(self) -> bytes:
        content = (self.problem, self.grid, self.rule, self.block_points, self.retries)
        return packed(content, self.start)

    @cached_property
    def raw(self) -> Task:
        """Task without the rule."""
        return self if self.rule is None else replace(self, rule=None)

    def __reduce__(self) -> tuple[type[PackedTask], tuple[bytes]]:
        return PackedTask, (self.payload,)

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


def run_task(task: Task | PackedTask, span: Span) -> Done:
    """Evaluate a span."""
    if isinstance(task, PackedTask):
        task = Task(*opened(task.payload))
    keep_freed_memory()
    started = clock.now()
    g = CountedG(task.problem)
    values = task(span, g)
    return Done(span, values, clock.now() - started, g.n_points - span.size)


@dataclass(frozen=True)
class PackedTask:
    """A task on its way to a worker, who opens it inside our own code.

    Executors that unpack their tasks themselves lose the worker if that fails, and everything
    waits. Here it is an error like any other.
    """

    payload: bytes


@functools.lru_cache(maxsize=8)
def opened(payload: bytes) -> Any:
    try:
        return pickle.loads(payload)
    except Exception as error:
        raise EvaluationError(
            f"a worker could not unpack the problem ({type(error).__name__}: {error})",
            advice="Modules that g needs have to be installed where the workers run.",
        ) from error


def packed(content: Any, start: Start = "fork") -> bytes:
    """Pickled content, by cloudpickle where pickle gives up (lambdas, closures).

    Objects of ``__main__``, and of modules that workers do not find, go by value. Processes that
    are forked have them: there they may go by reference.
    """
    plain, reason = b"", ""
    try:
        plain = pickle.dumps(content)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        reason = f" (pickle says: {error})"
    modules = _modules_by_value(start)
    names = ["__main__", *(module.__name__ for module in modules)]
    if plain and not any(name.encode() in plain for name in names):
        return plain
    try:
        feature = f"Sending this problem to another process{reason}"
        cloudpickle = optional_module("cloudpickle", feature, "parallel")
        with _registered(cloudpickle, modules):
            return bytes(cloudpickle.dumps(content))
    except Exception as error:
        if plain and (start == "fork" or isinstance(error, MissingExtraError)):
            return plain
        if isinstance(error, MissingExtraError):
            raise
        given = f"one that cannot be sent to another process: {error}"
        expected = "functions and data that can be pickled"
        advice = "Open files, locks and connections inside g, or use threads."
        raise InputError("problem", given, expected, advice) from error


@contextmanager
def _registered(cloudpickle: Any, modules: list[types.ModuleType]) -> Iterator[None]:
    """Functions and classes of the modules go by value inside the block."""
    known = set(cloudpickle.list_registry_pickle_by_value())
    new = [module for module in modules if module.__name__ not in known]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_by_value(start: Start) -> list[types.ModuleType]:
    """Modules of the user that another process, or a remote one, would not import."""
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType)
        and module.__name__ == name != "__main__"
        and _is_of_the_user(name.partition(".")[0], getattr(module, "__file__", None))
        and (start == "remote" or PathFinder.find_spec(name.partition(".")[0]) is None)
    ]


def _is_of_the_user(package: str, file: str | None) -> bool:
    """Whether a module belongs neither to Python nor to an installed package, nor to us."""
    if file is None or package in sys.stdlib_module_names or package == __name__.partition(".")[0]:
        return False
    return "site-packages" not in file and "dist-packages" not in file
