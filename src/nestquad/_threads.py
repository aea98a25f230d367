"""BLAS threads: one for the analysis, whose matrices are small."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

# Held by the outermost entry. The limit is one for the whole process, so who sets it restores it.
_entry = Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread until the block is left.

    Matrices of a few hundred rows gain nothing from several threads, which wait for each other by
    spinning: on a busy machine an estimate takes up to ten times as long. Entries may be nested;
    inner ones, and those of other threads at the same time, change nothing. Without threadpoolctl
    nothing is limited.

    Cost
    ----
    20 µs for the outermost entry, 1 µs for others, and 12 ms for the first, which looks for
    libraries.

    Examples
    --------
    >>> with one_blas_thread():
    ...     pass  # a factorization
    """
    controller = _controller()
    if controller is None or not _entry.acquire(blocking=False):
        yield
        return
    try:
        with controller.limit(limits=1, user_api="blas"):
            yield
    finally:
        _entry.release()


@cache
def _controller() -> Any:
    """The BLAS libraries that are loaded."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
