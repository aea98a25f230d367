"""Parts of a tile that are evaluated at once, here or by a worker."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from nestquad._typing import Array
from nestquad.evaluate._design import Span
from nestquad.evaluate._task import Task, run_task
from nestquad.evaluate._workers import Workers

__all__ = ["Job"]


@dataclass
class Job:
    """A span to evaluate, and the tile that it is a part of."""

    tile: Span
    span: Span
    reduced: bool = False
    values: Array | None = None
    future: Future[tuple[Array, float]] | None = None
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
