"""What an executor adds to a task, and how many workers one process feeds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.evaluate import Grid, Span
from nestquad.evaluate._task import Task, run_task, task_seconds
from nestquad.points import IID, Stream
from studies.runner.result import Column, Result, Table, Verdict
from studies.runner.study import Settings, Study
from studies.runner.text import times

_SLEEP = 0.02
# Tasks under way, as with many workers.
_WINDOW = 500
# Seconds of a task of a large cluster.
_LONG = task_seconds(1_000)


def _run(settings: Settings) -> Result:
    overheads = _overheads(400 if settings.quick else 1_000)
    gains = {method: _speedup(method) for method in ("nqmc", "nkq")}
    return Result(
        (_executors(overheads),),
        tuple(
            Verdict.of(
                f"g of 20 ms a point, two workers beside one, {method}",
                "≥ 1.8 ×",
                times(gain),
                gain >= 1.8,
            )
            for method, gain in gains.items()
        ),
    )


def _task() -> Task:
    problem = nq.problems.finance()
    grid = Grid(10**6, 4, IID(), IID(), None, Stream.from_rng(0))
    return Task(problem, grid, None, 65_536)


def _overheads(tasks: int) -> dict[str, float]:
    """CPU seconds that this process spends on a task: tiny chunks, many of them under way."""
    results = {}
    task = _task()
    start = time.process_time()
    for t in range(200):
        run_task(task, Span(t, t + 1, 0, 4))
    own = (time.process_time() - start) / 200
    for name, make in _EXECUTORS.items():
        try:
            with make() as executor:
                _submit_all(executor, task, 20)
                start = time.process_time()
                _submit_all(executor, task, tasks)
                elapsed = time.process_time() - start
        except ImportError:
            continue
        results[name] = max(elapsed / tasks - (own if "thread" in name else 0.0), 1e-6)
    return results


def _submit_all(executor: Executor, task: Task, n: int) -> None:
    waiting: set[Any] = set()
    for t in range(n):
        waiting.add(executor.submit(run_task, task, Span(t, t + 1, 0, 4)))
        if len(waiting) >= _WINDOW:
            _, waiting = wait(waiting, return_when="FIRST_COMPLETED")
    wait(waiting)


@contextmanager
def _processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@contextmanager
def _threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@contextmanager
def _dask() -> Iterator[Executor]:
    import distributed

    with (
        warnings.catch_warnings(action="ignore"),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


_EXECUTORS: dict[str, Callable[[], Any]] = {
    "thread pool, 2 workers": _threads,
    "process pool, 2 workers": _processes,
    "Dask, 2 worker processes": _dask,
}


def _executors(overheads: dict[str, float]) -> Table:
    rows = [
        {
            "executor": name,
            "overhead": overhead,
            "share": overhead / (task_seconds(1) + overhead),
            "busy": int(_LONG / overhead),
        }
        for name, overhead in overheads.items()
    ]
    heads = (
        Column("executor", "executor"),
        Column("overhead", "overhead a task", "seconds"),
        Column("share", f"of a task of {task_seconds(1):g} s", "percent"),
        Column("busy", "workers it keeps busy", "count"),
    )
    caption = (
        "What handing out a task and taking its values back costs: many tasks of four cheap "
        "evaluations each, pickled problem included, in CPU time of the process that hands them "
        "out (for Dask with its scheduler in it). The last column is how many workers one such "
        f"process feeds with tasks of {_LONG:g} s."
    )
    return Table("executors", caption, heads, tuple(rows))


def _speedup(method: str) -> float:
    """How much faster two workers are than one, for a g of 20 ms."""
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), _sleeps, vectorized=False)
    taken = []
    nq.estimate(nq.problems.synthetic(), method=method, budget=400, rng=0)  # late imports
    for workers in (1, 2):
        with ThreadPoolExecutor(workers) as pool:
            run = lambda pool=pool: nq.estimate(  # noqa: E731
                problem, method=method, budget=400, rng=0, executor=pool
            )
            taken.append(_timed(run))
    return taken[0] / taken[1]


def _sleeps(x: np.ndarray, theta: np.ndarray) -> float:
    time.sleep(_SLEEP)
    return float(x[0] + theta[0])


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


STUDY = Study(
    name="cluster",
    title="Handing out tasks",
    about="""
What an executor adds to a task, measured on one machine: one process hands out tasks one after the
other, of half a second for a few workers and ten seconds for a thousand. And the time that two
workers save where g takes 20 ms.
""",
    run=_run,
)
