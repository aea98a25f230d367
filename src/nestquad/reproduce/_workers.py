"""Many small computations in processes of one thread each."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["THREAD_VARIABLES", "in_processes"]

Given = TypeVar("Given")
Found = TypeVar("Found")

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def in_processes(
    function: Callable[[Given], Found],
    tasks: Sequence[Given],
    jobs: int,
    warm_up: Callable[[], None] | None = None,
) -> Iterator[Found]:
    """What the function makes of each task, as it comes; ``jobs=0``: in this process, in order.

    The processes start afresh, with one thread for linear algebra, so that neither numbers nor
    CPU time depend on how many there are. The function is found by its name there.
    """
    if jobs == 0 or not tasks:
        yield from (function(task) for task in tasks)
        return
    context = multiprocessing.get_context("spawn")
    with _single_threads(), ProcessPoolExecutor(jobs, context, warm_up) as pool:
        try:
            waiting = [pool.submit(function, task) for task in tasks]
            for future in as_completed(waiting):
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
