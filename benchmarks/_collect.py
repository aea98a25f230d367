"""Run what a ledger lacks, in as many processes as wanted, and write it down as it comes."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import nestquad as nq
from benchmarks._ledger import Ledger, Outcome, Run, Task
from benchmarks._study import Settings
from nestquad.methods import METHODS
from nestquad.reproduce._workers import in_processes

__all__ = ["ALL_METHODS", "ROUNDING", "collect", "measure", "open_ledger"]

Measure = Callable[[Task], Outcome]

# What `auto` is compared with comes after it, whether or not it has a name among them.
ALL_METHODS = ("auto", *(name for name in METHODS if name != "auto"))
# Errors below this part of the exact value are rounding.
ROUNDING = 1e-12
_SECONDS_BETWEEN_LINES = 20.0


def open_ledger(study: str, settings: Settings) -> Ledger:
    """The runs of a study so far; with `fresh`, without those that the settings select."""
    ledger = Ledger(settings.data / f"{study}_runs.csv")
    if settings.fresh:
        ledger.drop(lambda run: settings.selects(run.problem, run.method, run.goal))
    return ledger


def collect(ledger: Ledger, tasks: Iterable[Task], measure: Measure, settings: Settings) -> None:
    """Do those of the tasks that the settings select and the ledger lacks.

    `measure` is found by its name in other processes. They start afresh, with one thread for
    linear algebra, so that CPU time means the same whatever the number of jobs.
    """
    selected = [task for task in tasks if settings.selects(task.problem, task.method, task.goal)]
    todo = ledger.missing(selected)
    _say(f"  {len(todo):,} runs to do, {len(selected) - len(todo):,} there already")
    start = last = time.monotonic()
    found = in_processes(partial(_run, measure), todo, settings.jobs, _warm_up)
    for done, run in enumerate(found, 1):
        ledger.append(run)
        now = time.monotonic()
        if now - last > _SECONDS_BETWEEN_LINES:
            last = now
            _say(f"  {done:,} of {len(todo):,} runs after {(now - start) / 60:.1f} minutes")


def measure(
    problem: nq.NestedExpectation, method: Any, seed: int, **limits: float | None
) -> Outcome:
    """One estimate, with its error against the exact value and the time that g did not take."""
    clock = _Clock(problem.g)
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = nq.estimate(replace(problem, g=clock), method=method, rng=seed, **limits)
    except nq.NestquadError as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        nan = float("nan")
        spent = time.process_time() - start - clock.seconds
        return Outcome(nan, nan, 0.0, 0, spent, clock.seconds, "failed", reason[:200])
    seconds = time.process_time() - start - clock.seconds
    exact = np.ravel(np.asarray(problem.exact, dtype=float))
    errors = np.abs(np.ravel(found.value) - exact)
    low, high = (np.ravel(end) for end in found.interval(0.95))
    covered = ((low <= exact) & (exact <= high)) | (errors <= ROUNDING * np.abs(exact))
    return Outcome(
        error=float(errors.max()),
        half_width=float((high - low).max() / 2),
        covered=float(covered.mean()),
        evaluations=found.n_evaluations,
        seconds=max(seconds, 0.0),
        g_seconds=clock.seconds,
        status=found.status,
        chosen=_chosen(found),
    )


def _chosen(found: nq.Estimate) -> str:
    """What the method chose, in a word or a few; its name where it chose nothing."""
    chosen = found.diagnostics.get("chosen", found.method)
    if isinstance(chosen, Mapping):
        chosen = chosen.get("method", found.method)
    return str(chosen)[:60]


class _Clock:
    """g, and the CPU time spent in it."""

    def __init__(self, g: Callable[..., Any]) -> None:
        self.g, self.seconds = g, 0.0

    def __call__(self, x: np.ndarray, theta: np.ndarray) -> Any:
        start = time.process_time()
        try:
            return self.g(x, theta)
        finally:
            self.seconds += time.process_time() - start


def _run(measure: Measure, task: Task) -> Run:
    return Run.of(task, measure(task))


def _warm_up() -> None:
    # The first estimates of a process pay for imports inside SciPy.
    problem = nq.problems.finance()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in ALL_METHODS:
            with suppress(nq.NestquadError):
                nq.estimate(problem, method=method, budget=500, rng=0)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
