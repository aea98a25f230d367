"""Workers: an executor whose processes may die and be replaced, and the jobs it runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad import clock, limits
from nestquad._typing import Array
from nestquad.errors import EvaluationError, InputError, NestquadError, NestquadWarning
from nestquad.evaluate._design import Span
from nestquad.evaluate._task import Done, Task, run_task


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

    @property
    def _client(self) -> Any:
        """The client of a Dask cluster; None for other executors."""
        return getattr(self._executor, "_client", None)

    @property
    def count(self) -> int:
        """Number of concurrent tasks."""
        known = getattr(self._executor, "_max_workers", None)
        if known:
            return int(known)
        client = self._client
        if client is None:
            return os.cpu_count() or 2
        # A Dask cluster, which may grow and shrink; asking it takes milliseconds.
        now = clock.now()
        if now > self._counted + limits.COUNT_SECONDS:
            self._counted, self._count = now, max(1, int(sum(client.nthreads().values())))
        return self._count

    def begun(self, futures: list[Future[Any]]) -> int:
        """Tasks that have begun; with Dask they can still be cancelled."""
        client = self._client
        if client is None:
            return sum(future.running() or future.done() for future in futures)

        def executing(dask_scheduler: Any) -> set[Any]:  # by value: it may not know of nestquad
            workers = dask_scheduler.workers.values()
            return {task.key for worker in workers for task in worker.executing}

        keys = {future.key for future in self._executor._futures}  # type: ignore[attr-defined]
        try:
            return len(keys & client.run_on_scheduler(executing))
        except Exception:  # a scheduler that runs no code of others
            return min(len(futures), self.count)

    @property
    def cancels_all(self) -> bool:
        """Whether futures of tasks that have begun can be cancelled, as with Dask."""
        return self._client is not None

    @property
    def separate(self) -> bool:
        """Whether tasks leave this process, as with a process pool or Dask."""
        return isinstance(self._executor, ProcessPoolExecutor) or self.cancels_all

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
                raise EvaluationError(
                    f"the executor refused a task ({type(error).__name__}: {error})",
                    advice="It may have been shut down.",
                ) from error
            if isinstance(future, Future):
                return future
            raise InputError(
                "executor",
                f"one whose submit returns {type(future).__name__}",
                "one that returns a concurrent.futures.Future",
            )

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
            raise EvaluationError(
                f"the executor broke {self._broken} time(s) without finishing a chunk: {error}",
                advice="g may end its process, or need more memory than there is. Try it without "
                "an executor, on a few points.",
            ) from error
        warnings.warn(
            "A worker process died. What it was evaluating is evaluated again by a new pool; the "
            "answer is the same.",
            NestquadWarning,
            stacklevel=2,
        )
        self.close()
        self._executor = self._own = ProcessPoolExecutor(
            self.count,
            mp_context=getattr(old, "_mp_context", None),
            initializer=getattr(old, "_initializer", None),
            initargs=getattr(old, "_initargs", ()),
        )
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
    by_value: bool = False
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
