"""Running what a ledger lacks, in processes of one thread each, with progress."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TextIO, TypeVar

from studies.runner.ledger import Ledger, Outcome, Run, Task
from studies.runner.text import duration

Given, Found = TypeVar("Given"), TypeVar("Found")
Tell = Callable[[int, int, float], None]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def collect(
    ledger: Ledger,
    tasks: Iterable[Task],
    run: Callable[[Task], Outcome],
    jobs: int,
    *,
    warm_up: Callable[[], None] | None = None,
    tell: Tell | None = None,
) -> None:
    """Run the tasks that the ledger lacks.

    `run` is found by its name in other processes. `tell` receives runs done, runs in all, and the
    seconds left; left out, a line on the terminal shows them.
    """
    todo = ledger.missing(tasks)
    total, start, line = len(todo), time.monotonic(), Progress()
    tell = tell or line
    tell(0, total, 0.0)
    try:
        found = in_processes(partial(_run, run, ledger.root), todo, jobs, warm_up)
        for number, one in enumerate(found, 1):
            ledger.append(one)
            tell(number, total, (time.monotonic() - start) * (total / number - 1))
    finally:
        line.close()
        if todo:
            ledger.tidy()


def _run(run: Callable[[Task], Outcome], root: int, task: Task) -> Run:
    start = time.process_time()
    with warnings.catch_warnings():
        # Warnings are for those who can change the settings; here the settings are studied.
        warnings.simplefilter("ignore")
        outcome = run(task)
    if outcome.seconds != outcome.seconds:
        outcome = replace(outcome, seconds=round(time.process_time() - start, 4))
    return Run.of(task, outcome, root)


def in_processes(
    function: Callable[[Given], Found],
    tasks: Sequence[Given],
    jobs: int,
    warm_up: Callable[[], None] | None = None,
) -> Iterator[Found]:
    """The function of each task, as it finishes; ``jobs=0``: in this process, in order.

    Processes start afresh, with one thread for linear algebra, so that neither numbers nor CPU
    time depend on their number.
    """
    if jobs == 0 or not tasks:
        yield from map(function, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with _single_threads(), ProcessPoolExecutor(jobs, context, warm_up) as pool:
        try:
            for future in as_completed([pool.submit(function, task) for task in tasks]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _single_threads() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass
class Progress:
    """Progress: one line, rewritten, in a terminal; a line now and then elsewhere."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    _last: float = -1e9
    _width: int = 0

    def __call__(self, done: int, total: int, left: float) -> None:
        now, terminal = time.monotonic(), self.stream.isatty()
        if total == 0 or (now - self._last < (0.2 if terminal else 20.0) and done < total):
            return
        self._last = now
        line = f"{done:,} of {total:,} runs"
        line += f", about {duration(left)} left" if done < total else ""
        self.stream.write("\r" + line.ljust(self._width) if terminal else line + "\n")
        self._width = len(line) if terminal else 0
        self.stream.flush()

    def close(self) -> None:
        if self._width:
            self.stream.write("\n")
            self._width = 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
