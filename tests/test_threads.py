"""BLAS threads: limited inside, as before outside, whatever the nesting."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from nestquad import _threads
from nestquad._threads import one_blas_thread

threadpoolctl = pytest.importorskip("threadpoolctl")


def blas_threads() -> set[int]:
    return {
        one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"
    }


@pytest.fixture
def _two_threads():
    with threadpoolctl.threadpool_limits(2, "blas"):
        if blas_threads() != {2}:
            pytest.skip("BLAS cannot be given two threads here")
        yield


@pytest.mark.usefixtures("_two_threads")
def test_one_thread_inside_and_as_before_outside():
    with one_blas_thread():
        assert blas_threads() == {1}
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


@pytest.mark.usefixtures("_two_threads")
def test_an_error_restores_the_limit():
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        _ = 1 / 0
    assert blas_threads() == {2}


@pytest.mark.usefixtures("_two_threads")
def test_entries_of_several_threads_may_overlap():
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with one_blas_thread():
        thread.start()
        assert entered.wait(10)
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    leave.set()
    thread.join()
    assert blas_threads() == {2}


def test_nothing_happens_without_threadpoolctl(monkeypatch):
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    _threads._controller.cache_clear()
    try:
        before = blas_threads()
        with one_blas_thread():
            assert blas_threads() == before
            assert np.ones((2, 2)) @ np.ones(2) == pytest.approx(2.0)
    finally:
        _threads._controller.cache_clear()
