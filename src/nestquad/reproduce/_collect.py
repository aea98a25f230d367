"""Doing the runs that are not there yet."""

from __future__ import annotations

import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import numpy as np

from nestquad.reproduce._registry import series_named
from nestquad.reproduce._runs import Ledger, Run, sources
from nestquad.reproduce._task import Task
from nestquad.reproduce._workers import in_processes

__all__ = ["collect"]


def collect(
    ledger: Ledger,
    tasks: Sequence[Task],
    jobs: int,
    tell: Callable[[int, int, float], None] = lambda done, total, left: None,
) -> None:
    """Do what the ledger lacks; `tell` hears how many are done, of how many, and seconds left."""
    todo = ledger.missing(tasks)
    expected = {task: series_named(task.series).seconds(task.size) for task in todo}
    # One replicate of everything after the other, so that progress is even; the long ones first,
    # so that no process waits for the last one.
    todo.sort(key=lambda task: (task.replicate, -expected[task]))
    total, done = sum(expected.values()), 0.0
    start = time.monotonic()
    tell(0, len(todo), total / max(jobs, 1))
    try:
        found = in_processes(partial(_run, seed=ledger.seed), todo, jobs)
        for count, run in enumerate(found, 1):
            ledger.append(run)
            done += expected[run.task]
            elapsed = time.monotonic() - start
            tell(count, len(todo), elapsed * (total - done) / done)
    finally:
        ledger.close()


def _run(task: Task, seed: int) -> Run:
    series = series_named(task.series)
    name = zlib.crc32(f"{task.problem} {series.stream or series.name}".encode())
    rng = np.random.SeedSequence([seed, task.size, task.replicate, name])
    start = time.process_time()
    with warnings.catch_warnings():
        # A warning is for the one who can change the settings; here they are what is studied.
        warnings.simplefilter("ignore")
        found = series.run(task, rng)
    seconds = round(time.process_time() - start, 4)
    values = {**asdict(task), **asdict(found)}
    return Run(**values, seconds=seconds, seed=seed, sources=sources())
