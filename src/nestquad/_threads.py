"""BLAS threads: one for the analysis, whose matrices are small; no limit for g."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, get_ident
from typing import Any

# Held by the outermost entry. The limit is one for the whole process, so who sets it restores it.
_entry = Lock()
_limit: Any = None
_owner: int | None = None  # the thread of that entry


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread until the block is left, except inside `blas_threads_of_the_user`.

    Matrices of a few hundred rows do not gain from several threads, which wait for each other by
    spinning: on a busy machine an estimate takes up to ten times as long. Entries may be nested;
    inner ones, and simultaneous ones of other threads, have no effect. Without threadpoolctl there
    is no limit. It is a decorator as well.

    Cost
    ----
    20 µs for the outermost entry, 1 µs for others, and 12 ms for the first, which looks for
    libraries.
    """
    global _limit, _owner
    controller = _controller()
    if controller is None or not _entry.acquire(blocking=False):
        yield
        return
    try:
        with controller.limit(limits=1, user_api="blas") as _limit:
            _owner = get_ident()
            yield
    finally:
        _limit = _owner = None
        _entry.release()


@contextmanager
def blas_threads_of_the_user() -> Iterator[None]:
    """Lift the limit of `one_blas_thread` around a function of the user, in the same thread.

    Workers of an executor that are threads of this process keep it: they share its cores.

    Cost
    ----
    40 µs inside a limit, 1 µs outside.
    """
    if _owner != get_ident():
        yield
        return
    _limit.restore_original_limits()
    try:
        yield
    finally:
        _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:
    """The BLAS libraries that are loaded."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
