"""Evaluator of designs: workers, a deadline, a store; evaluations in chunks, never twice."""

from __future__ import annotations

import math
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from nestquad import clock, limits
from nestquad._checks import shown
from nestquad._log import log_points
from nestquad._typing import Array, ArrayLike
from nestquad.clock import OutOfTimeError
from nestquad.errors import EvaluationError, InputError, NestquadError, NestquadWarning
from nestquad.evaluate._design import (
    Design,
    Grid,
    InnerPoints,
    OuterPoints,
    Span,
    inner_points,
    outer_points,
)
from nestquad.evaluate._store import Store
from nestquad.evaluate._task import (
    Done,
    InnerRule,
    Pace,
    Start,
    Task,
    block_points,
    chunks,
    columns,
    run_task,
    task_seconds,
)
from nestquad.evaluate._units import SeenProblem, Units
from nestquad.problem import NestedExpectation

_ALONE = "Try g without an executor, on a few points."


class Workers:
    """Submits to the user's executor, and to a new pool of processes when it breaks.

    A process pool is unusable once one of its processes was killed (for want of memory, say). Its
    tasks are lost, and evaluated again by a pool of the same size.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._own: Executor | None = None
        self._broken = 0
        self._count, self._counted = 1, -np.inf
        self.generation = 0
        # The client of a Dask cluster, whose tasks can be canceled after they have begun.
        self.client: Any = getattr(executor, "_client", None)
        processes = isinstance(executor, ProcessPoolExecutor)
        self.separate = processes or self.client is not None  # tasks leave this process
        started = executor._mp_context.get_start_method() if processes else "fork"  # type: ignore
        own: Start = "fork" if started == "fork" else "spawn"
        self.start: Start = own if self.client is None else "remote"

    @property
    def count(self) -> int:
        """Number of concurrent tasks."""
        known = getattr(self._executor, "_max_workers", None)
        if known:
            return int(known)
        if self.client is None:
            return os.cpu_count() or 2
        # A cluster may grow and shrink; asking it takes milliseconds.
        now = clock.now()
        if now > self._counted + limits.POLL_SECONDS:
            self._counted, self._count = now, max(1, int(sum(self.client.nthreads().values())))
        return self._count

    def begun(self, futures: list[Future[Any]]) -> int:
        """Tasks that have begun; with Dask they can still be cancelled."""
        if self.client is None:
            return sum(future.running() or future.done() for future in futures)

        def executing(dask_scheduler: Any) -> set[Any]:  # by value: it may not know of nestquad
            workers = dask_scheduler.workers.values()
            return {task.key for worker in workers for task in worker.executing}

        keys = {future.key for future in self._executor._futures}  # type: ignore[attr-defined]
        try:
            return len(keys & self.client.run_on_scheduler(executing))
        except Exception:  # a scheduler that runs no code of others
            return min(len(futures), self.count)

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        while True:
            try:
                future = self._executor.submit(call, *args)
            except BrokenExecutor as error:
                self.replace(self.generation, error)
                continue
            except NestquadError:
                raise
            except Exception as error:
                text = f"the executor refused a task ({type(error).__name__}: {error})"
                raise EvaluationError(text, advice="It may have been shut down.") from error
            if isinstance(future, Future):
                return future
            given = f"one whose submit returns {type(future).__name__}"
            raise InputError("executor", given, "one that returns a concurrent.futures.Future")

    def worked(self) -> None:
        """Note a finished task: the task did not break the pool."""
        self._broken = 0

    def replace(self, generation: int, error: BaseException) -> None:
        """Make a new pool, unless somebody noticed before that `generation` broke."""
        if generation < self.generation:
            return
        self._broken += 1
        old = self._executor
        if self._broken > limits.BROKEN_POOLS or not isinstance(old, ProcessPoolExecutor):
            text = f"the executor broke {self._broken} time(s) without finishing a chunk: {error}"
            memory = "g may end its process, or need more memory than there is."
            raise EvaluationError(text, advice=f"{memory} {_ALONE}") from error
        lost = "A worker process died. Its task is evaluated again by a new pool; the answer is "
        warnings.warn(lost + "the same.", NestquadWarning, stacklevel=2)
        self.close()
        context = getattr(old, "_mp_context", None)
        initializer, args = getattr(old, "_initializer", None), getattr(old, "_initargs", ())
        self._executor = self._own = ProcessPoolExecutor(self.count, context, initializer, args)
        self.generation += 1

    def close(self) -> None:
        """Shut down a pool that was made here, never the user's own."""
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)
            self._own = None


@dataclass
class SpanJob:
    """A span to evaluate, or to evaluate again, and the tile that it is a part of."""

    tile: Span
    span: Span
    reduced: bool = False
    again: bool = False
    values: Array | None = None
    future: Future[Done] | None = None
    generation: int = 0

    @property
    def done(self) -> bool:
        return self.future is not None and self.future.done()

    def cancelled(self) -> bool:
        """Whether it could still be cancelled, and was."""
        return self.values is None and self.future is not None and self.future.cancel()

    def own(self, task: Task) -> Task:
        """The task with a rule only if this job is a whole tile."""
        return task if self.reduced else task.raw

    def submit(self, task: Task, workers: Workers) -> None:
        self.future = workers.submit(run_task, self.own(task), self.span)
        self.generation = workers.generation


@dataclass
class Evaluator:
    """Evaluates designs of one problem, and keeps values on request.

    Parameters
    ----------
    problem
        Whose g is called; as an attribute, the problem as methods see it, in its `units`.
    executor
        Any ``concurrent.futures.Executor``; None runs in this thread.
    keep
        Keep all values in memory, for designs that grow. Otherwise values are reduced chunk by
        chunk and forgotten.
    deadline
        ``clock.now()`` after which no new chunk is started.
    chunk_points
        The most points of a block of g; memory may allow fewer.
    retries
        How often to try again where g fails.
    store
        Where values are written as soon as they are there, and looked up before g is called.
    on_progress
        Called with the number of evaluations done so far, in all designs.
    on_rows
        Called with a grid and its rows that are reduced so far, a list of (t, views[, p]).
    folded
        Rows that were reduced before, by `Grid.rows`.
    in_units
        Whether methods see values scaled by powers of two; not if outputs of g are added up.
    """

    problem: NestedExpectation
    executor: Executor | None = None
    keep: bool = False
    deadline: float = float("inf")
    chunk_points: int = limits.CHUNK_POINTS
    retries: int = 0
    store: Store | None = None
    on_progress: Callable[[int], None] = lambda done: None
    on_rows: Callable[[Grid, list[Array]], None] = lambda grid, rows: None
    n_evaluations: int = 0
    n_reused: int = 0
    n_checked: int = 0
    stopped: str | None = None
    waiting: bool = False
    _tables: dict[Grid, ValueTable] = field(default_factory=dict)
    folded: dict[Grid, Array] = field(default_factory=dict)
    in_units: bool = True

    def __post_init__(self) -> None:
        self._workers = None if self.executor is None else Workers(self.executor)
        self.chunk_points = min(self.chunk_points, block_points(self.problem))
        most, seconds = self.chunk_points, limits.CHUNK_SECONDS
        if self._workers is not None:
            most, seconds = most * limits.TASK_CHUNKS, task_seconds(self._workers.count)
        self._pace = Pace(1, most, seconds)  # g may take minutes, or microseconds
        self._value_bytes = 8
        self.glimpse: Array | None = None
        self._outputs: tuple[int, ...] | None = None
        self.given, self.units = self.problem, Units(self.in_units)
        self.problem = SeenProblem.of(self.given, self.units)

    def table(self, grid: Grid) -> ValueTable:
        """Values on the points of a grid: grids of several methods may share an evaluator."""
        return self._tables.setdefault(grid.points, ValueTable())

    @property
    def seconds_per_evaluation(self) -> float:
        """The time that a call of g takes for each of its points; zero before the first call."""
        return self._pace.typical

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()

    def run(self, grid: Grid, span: Span, rule: InnerRule | None) -> Iterator[tuple[Span, Array]]:
        """Evaluate a span tile by tile, in order; yield values, or reduced values.

        A tile that is cheap is one job, reduced where it is evaluated. An expensive one, or one
        to be stored, consists of several jobs whose values come here.
        """
        start = "fork" if self._workers is None else self._workers.start
        task = Task(self.given, grid, rule, self.chunk_points, self.retries, start)
        before, reused = self.n_evaluations, self.n_reused
        if self._workers is not None and self._workers.separate:
            _ = task.payload  # here, where the error is seen, and not in a thread of the pool
        tile, buffer, filled = None, None, 0
        for job, values in self._results(task, self._jobs(task, span)):
            if job.reduced:
                yield job.tile, values
                continue
            if job.tile != tile or buffer is None:
                tile, filled = job.tile, 0
                buffer = np.empty((*tile.shape, *values.shape[2:]))
            part = job.span
            buffer[part.t0 - tile.t0 : part.t1 - tile.t0, part.n0 - tile.n0 : part.n1 - tile.n0] = (
                values
            )
            filled += part.size
            if filled == tile.size:
                yield tile, task.reduce(buffer, tile)
                buffer = None
        done, stored = self.n_evaluations - before, self.n_reused - reused
        text = (
            f"{done:,} of {span.size:,} points on {grid.n_outer:,} × {grid.n_inner:,}, "
            f"{stored:,} of them stored"
        )
        log_points(self.given, text, self.seconds_per_evaluation)

    def _jobs(self, task: Task, span: Span) -> Iterator[SpanJob]:
        whole_rows = None if task.rule is None else task.rule.whole_rows
        raw = task.rule is None or self.store is not None
        width = span.n1 - span.n0
        stored = None if self.store is None else self.store.table(task.grid)
        if stored is not None:
            stored.scan()
            self._check(task)
        for tile in chunks(span, lambda left: self._size(left, width, raw), whole_rows=whole_rows):
            size = partial(self._size, tile.size, width, raw)
            if stored is None and tile.size <= self._row_limit(size()):
                yield SpanJob(tile, tile, reduced=True)
                continue
            ready, missing = ([], [tile]) if stored is None else stored.read(tile)
            for part, values in ready:
                yield SpanJob(tile, part, values=values)
            for rest in missing:
                for part in columns(rest, size):
                    yield SpanJob(tile, part)

    def _check(self, task: Task) -> None:
        """Evaluate g again at a few stored points: its code is not all that it depends on."""
        assert self.store is not None
        points = self.store.to_check(task.grid)
        jobs = (SpanJob(point, point, again=True) for point in points)
        for job, values in self._results(task, jobs):
            self.store.compare(task.grid, job.span, points[job.span], values)

    def _row_limit(self, size: int) -> int:
        """Points up to which a row is not cut: twice the target duration of a chunk."""
        if self._pace.per_point == 0.0:
            return 2 * size
        affordable = 2.0 * self._pace.seconds / self._pace.per_point
        return max(size, int(min(affordable, self.chunk_points)))

    def _size(self, left: int, width: int, raw: bool) -> int:
        """Points of the next job, with `left` points to come in rows of a width."""
        size = self._pace.points
        if self._workers is None:
            return size
        workers = self._workers.count
        if raw:  # values travel here and wait in memory
            ahead = limits.TASKS_AHEAD * workers
            size = min(size, limits.MEMORY // (4 * self._value_bytes * ahead))
        # Towards the end jobs become smaller, so that no worker waits long for another, but not so
        # small that the time goes to handing them out. Rows that are cheap are not cut.
        share, least = left // (4 * workers), 0.1 * task_seconds(workers)
        if self._pace.per_point > 0.0:
            share = max(share, int(least / self._pace.per_point))
            if width * self._pace.per_point < 2.0 * least:
                share = max(share, width)
        return max(min(size, share), 1)

    def _results(self, task: Task, jobs: Iterator[SpanJob]) -> Iterator[tuple[SpanJob, Array]]:
        if self._workers is not None:
            yield from self._from_workers(task, jobs, self._workers)
            return
        for job in jobs:
            if job.values is None:
                if self._time_is_up():
                    return
                try:
                    self._finish(task, job, run_task(job.own(task), job.span))
                except EvaluationError as error:
                    error.n_completed = self.n_evaluations
                    raise
            else:
                self._count(job.span.size, reused=True)
            assert job.values is not None
            yield job, job.values

    def _from_workers(
        self, task: Task, jobs: Iterator[SpanJob], workers: Workers
    ) -> Iterator[tuple[SpanJob, Array]]:
        """Keep every worker busy; values are stored as they come, and handed on in order."""
        queue: deque[SpanJob] = deque()
        exhausted = False
        try:
            while True:
                exhausted = exhausted or self._submit(task, jobs, queue, workers)
                if clock.now() > self.deadline:
                    self._give_up(task, queue, workers)
                if not queue:
                    return
                if queue[0].values is None:
                    self._collect(task, queue, workers)
                while queue and queue[0].values is not None:
                    first = queue.popleft()
                    yield first, first.values  # type: ignore[misc]
        except NestquadError as error:
            self._save(task, queue)
            if isinstance(error, EvaluationError):
                error.n_completed = self.n_evaluations
            raise
        finally:
            self._save(task, [job for job in queue if not job.cancelled() and job.done])

    def _submit(
        self, task: Task, jobs: Iterator[SpanJob], queue: deque[SpanJob], workers: Workers
    ) -> bool:
        """Fill the queue; whether no job is left for it."""
        # A job that takes long must not stop the others; how far they may get ahead of it is a
        # question of memory.
        window = (limits.TASKS_AHEAD if self._pace.per_point else 1) * workers.count
        while len(queue) < 4 * window and sum(job.values is None for job in queue) < window:
            job = next(jobs, None)
            if job is None or (job.values is None and self._time_is_up()):
                return True
            if job.values is None:
                job.submit(task, workers)
            else:
                self._count(job.span.size, reused=True)
            queue.append(job)
        return False

    def _give_up(self, task: Task, queue: deque[SpanJob], workers: Workers) -> None:
        """After the deadline: drop the jobs from the first that no worker has begun."""
        waiting = [i for i, job in enumerate(queue) if job.values is None]
        if workers.client is not None:
            waiting = waiting[workers.begun([f for i in waiting if (f := queue[i].future)]) :]
        first = next((i for i in waiting if queue[i].cancelled()), None)
        if first is None:
            return
        dropped = [queue.pop() for _ in range(len(queue) - first)]
        self._save(task, [job for job in dropped if not job.cancelled() and job.done])
        self.stopped = "time"

    def _collect(self, task: Task, queue: deque[SpanJob], workers: Workers) -> None:
        """Wait for some job, but not past the deadline, and collect finished ones."""
        open_jobs = {job.future: job for job in queue if job.values is None}
        futures = [f for f in open_jobs if f is not None]
        left = self.deadline - clock.now()
        timeout = min(left, limits.PATIENCE_SECONDS) if left > 0.0 else limits.POLL_SECONDS
        done, _ = wait(futures, timeout, FIRST_COMPLETED)
        if not done and timeout == limits.PATIENCE_SECONDS:
            self._say_waiting(workers, futures)
        self.waiting = self.waiting and not done
        failure: NestquadError | None = None
        for future in done:
            job = open_jobs[future]
            try:
                result = future.result()
            except BrokenExecutor as error:
                workers.replace(job.generation, error)
                job.submit(task, workers)
            except NestquadError as error:
                failure = error
            except Exception as error:
                text = f"a worker could not finish a task ({type(error).__name__}: {error})"
                failure = EvaluationError(text, advice=_ALONE)
                failure.__cause__ = error
            else:
                workers.worked()
                self._finish(task, job, result)
        if failure is not None:
            raise failure

    def _say_waiting(self, workers: Workers, futures: list[Future[Done]]) -> None:
        """Tell the user, once in words and else in the progress, that no worker is free."""
        waited, self.waiting = self.waiting, not workers.begun(futures)
        if self.waiting and not waited:
            text = (
                f"No worker of the executor has begun a task for {limits.PATIENCE_SECONDS:.0f} s: "
                "all are busy, or there are none. The estimation waits; max_seconds limits that."
            )
            warnings.warn(text, NestquadWarning, stacklevel=2)
        self.on_progress(self.n_evaluations)

    def _save(self, task: Task, jobs: Iterable[SpanJob]) -> None:
        """After a failure or Ctrl-C: store the jobs that workers have begun."""
        if self.store is None:
            return
        for job in jobs:
            if job.values is None and job.future is not None and not job.cancelled():
                try:
                    result = job.future.result()
                except Exception:  # the first failure is reported
                    continue
                self._finish(task, job, result)

    def _finish(self, task: Task, job: SpanJob, result: Done) -> None:
        if not isinstance(result, Done) or result.span != job.span:
            text = f"the executor returned {getattr(result, 'span', shown(result))} for {job.span}"
            raise EvaluationError(text, advice="A future has to have the result of its own task.")
        job.values = values = result.values
        self.n_checked += result.n_again
        # Rules without points yield views in place of inner points: the other axes are outputs.
        if self._outputs is None:
            self._outputs = values.shape[2:]
        if values.shape[2:] != self._outputs and not job.again:
            raise EvaluationError(
                f"g returned {_outputs(values.shape[2:])} after {_outputs(self._outputs)}",
                n_completed=self.n_evaluations,
                advice="The number of outputs has to be the same at all points.",
            )
        if job.again:
            self.n_checked += job.span.size
            return
        if self.store is not None:
            self.store.table(task.grid).write(job.span, values)
        if self.glimpse is None:
            self.glimpse = values[0, 0] if job.reduced else values[0].mean(axis=0)
        self._pace.observe(job.span.size, result.seconds)
        self._value_bytes = max(self._value_bytes, 8 * math.prod(values.shape[2:]))
        self._count(job.span.size)

    def _count(self, size: int, *, reused: bool = False) -> None:
        self.n_reused += size * reused
        self.n_evaluations += size
        self.on_progress(self.n_evaluations)

    def _time_is_up(self) -> bool:
        if clock.now() > self.deadline:
            self.stopped = "time"
            return True
        return False


def _outputs(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} outputs" if shape else "one output"


class ValueTable:
    """Values on a rectangle that may grow in both directions.

    A grid grows by rows (more θ) and by columns (more x for each θ), so the stored
    values are always a prefix of each row: `columns[t]` is its length.
    """

    def __init__(self) -> None:
        self._values: Array | None = None
        self._columns = np.zeros(0, dtype=int)

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
        """Number of leading rows with at least n_inner values."""
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
        rows = _FoldedRows(grid.n_inner)
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


class _FoldedRows:
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
