"""BLAS threads: limited inside, as before outside, whatever the nesting."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nestquad as nq
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


@pytest.mark.usefixtures("_two_threads")
def test_g_has_as_many_threads_as_outside_and_the_analysis_one():
    seen: dict[str, set[int]] = {"g": set(), "f": set()}

    def g(x, theta):
        seen["g"] |= blas_threads()
        return x[..., 0] + theta[..., 0]

    def f(j):
        seen["f"] |= blas_threads()
        return np.maximum(j, 1.0)

    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, f)
    for method in ("nqmc", "nkq", "ckq", "auto"):
        nq.estimate(problem, budget=512, method=method, rng=0)
        assert seen == {"g": {2}, "f": {1}}, method
    assert blas_threads() == {2}


@pytest.mark.usefixtures("_two_threads")
def test_g_on_threads_leaves_everything_as_it_was():
    seen: set[int] = set()

    def g(x, theta):
        seen.update(blas_threads())
        return x[..., 0] * theta[..., 0]

    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g)
    with ThreadPoolExecutor(2) as pool:
        nq.estimate(problem, budget=2048, method="nkq", rng=0, executor=pool)
    assert 1 in seen  # workers share the cores
    assert blas_threads() == {2}


@pytest.mark.usefixtures("_two_threads")
def test_an_error_in_g_restores_the_limit():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), lambda x, theta: 1 / 0)
    with pytest.raises(nq.EvaluationError):
        nq.estimate(problem, budget=64, method="nkq", rng=0)
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
