"""From the overhead of a task, measured here, to the run time on a thousand workers, simulated."""

from __future__ import annotations

import heapq
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
from nestquad.plots import AVERAGE, SOFT, MethodStyle, series_styles
from nestquad.points import IID, Stream
from studies.runner.figures import line_figure
from studies.runner.result import Column, Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import seconds, times

_EVALUATIONS = 10**10
_WORKERS = (1, 10, 100, 1_000)
_COSTS = {"100 ns": 1e-7, "1 µs": 1e-6, "10 µs": 1e-5, "1 ms": 1e-3}
# Workers and tasks differ by so much: the standard deviation of the logarithm of their speed.
_SPREAD = 0.15
_SLEEP = 0.02
# Tasks under way, as with many workers.
_WINDOW = 500
# A task of a large cluster.
_LONG = task_seconds(1_000)[0]


def _run(settings: Settings) -> Result:
    overheads = _overheads(400 if settings.quick else 1_000)
    table = _executors(overheads)
    known = overheads.get("Dask, 2 worker processes")
    cost = known if known is not None else overheads["process pool, 2 workers"]
    rows = [
        _simulated(name, per_point, workers, cost)
        for name, per_point in _COSTS.items()
        for workers in _WORKERS
    ]
    heads = columns(
        "g; workers: count; tasks: count; seconds = run time: seconds; "
        "ideal = g alone over workers: seconds; efficiency: percent"
    )
    caption = (
        f"Simulated run time of 10¹⁰ evaluations when one scheduler hands out tasks in "
        f"{1e3 * cost:.1f} ms each, one after the other, as measured above."
    )
    simulated = Table("simulated", caption, heads, tuple(rows))
    gains = {method: _speedup(method) for method in ("nqmc", "nkq")}
    pick = next(r for r in rows if r["g"] == "1 µs" and r["workers"] == 1_000)
    return Result(
        (table, simulated),
        tuple(
            Verdict.of(
                f"g of 20 ms a point, two workers beside one, {method}",
                "≥ 1.8 ×",
                times(gain),
                gain >= 1.8,
            )
            for method, gain in gains.items()
        ),
        (
            f"10¹⁰ evaluations of 1 µs on 1,000 workers: {seconds(pick['seconds'])} simulated, "
            f"{seconds(pick['ideal'])} without any overhead.",
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
            "share": overhead / (task_seconds(1)[0] + overhead),
            "busy": int(_LONG / overhead),
        }
        for name, overhead in overheads.items()
    ]
    heads = (
        Column("executor", "executor"),
        Column("overhead", "overhead a task", "seconds"),
        Column("share", f"of a task of {task_seconds(1)[0]:g} s", "percent"),
        Column("busy", "workers it keeps busy", "count"),
    )
    caption = (
        "What handing out a task and taking its values back costs: many tasks of four cheap "
        "evaluations each, pickled problem included, in CPU time of the process that hands them "
        "out (for Dask with its scheduler in it). The last column is how many workers one such "
        f"process feeds with tasks of {_LONG:g} s."
    )
    return Table("executors", caption, heads, tuple(rows))


def _simulated(name: str, per_point: float, workers: int, overhead: float) -> dict[str, Any]:
    """One queue, one scheduler, workers of different speed; tasks sized as nestquad sizes them."""
    target, least = task_seconds(workers)
    rng = np.random.default_rng(0)
    speed = np.exp(_SPREAD * rng.standard_normal(workers))
    free = [(0.0, i) for i in range(workers)]
    left, scheduler, end, tasks = _EVALUATIONS * per_point, 0.0, 0.0, 0
    while left > 0:
        size = min(target, max(left / (4 * workers), least), left)
        if left > 1_000 * target * workers:
            # Far from the end nothing changes but the clock: a thousand rounds at once.
            rounds = int(left / (target * workers)) - 500
            step = max(target * workers / float(speed.sum()), overhead * workers)
            shift = rounds * step
            free = [(t + shift, i) for t, i in free]
            scheduler += shift
            tasks += rounds * workers
            left -= rounds * workers * target
            continue
        at, worker = heapq.heappop(free)
        scheduler = max(scheduler, at) + overhead
        done = scheduler + size / speed[worker] * float(np.exp(_SPREAD * rng.standard_normal()))
        heapq.heappush(free, (done, worker))
        end, left, tasks = max(end, done), left - size, tasks + 1
    ideal = _EVALUATIONS * per_point / float(speed.sum())
    return {
        "g": name,
        "workers": workers,
        "tasks": tasks,
        "seconds": end,
        "ideal": ideal,
        "efficiency": ideal / end,
    }


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


def _draw(result: Result) -> Figure:
    rows, lines = result.table("simulated").rows, []
    for name, look in zip(_COSTS, series_styles(len(_COSTS)), strict=True):
        mine = [row for row in rows if row["g"] == name]
        x = [row["workers"] for row in mine]
        lines.append(("", x, [row["ideal"] for row in mine], MethodStyle(SOFT, "", AVERAGE)))
        lines.append((f"g {name}", x, [row["seconds"] for row in mine], look))
    return line_figure({"": lines}, "workers", "seconds for 10¹⁰ evaluations")


STUDY = Study(
    name="cluster",
    title="From one machine to a thousand workers",
    about="""
What an executor adds to a task is measured here, on one machine. What that means for 10¹⁰
evaluations on up to a thousand workers is simulated: one scheduler that hands out tasks one after
the other, workers and tasks whose speed varies by 15 %, and tasks sized as nestquad sizes them:
half a second for a few workers, ten seconds for a thousand, smaller towards the end. The network,
the start of the workers and shared disks are not part of the model.
""",
    run=_run,
    drawings=(
        Drawing(
            "",
            "Simulated run time of 10¹⁰ evaluations; dashed, g alone divided by the workers.",
            _draw,
        ),
    ),
)
