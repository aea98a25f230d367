"""Whoever evaluates: lambdas travel, workers die, and two are twice as fast as one."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_all_start_methods, get_context

import numpy as np
import pytest
import sending

import nestquad as nq

# Processes that are forked from one that has imported everything start at once.
CONTEXT = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
if CONTEXT.get_start_method() == "forkserver":
    CONTEXT.set_forkserver_preload(["nestquad", "scipy.stats"])


def closure_problem(scale=2.0):
    """Everything in it is a lambda or a closure."""
    return nq.NestedExpectation(
        nq.Uniform(),
        lambda theta: nq.Normal(theta, 1.0),
        lambda x, theta: np.cos(scale * x[..., 0]) + theta[..., 0],
        lambda j: j**2,
    )


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=CONTEXT) as pool:
        yield pool


@pytest.mark.parametrize("method", ["nmc", "mlmc"])
def test_lambdas_and_closures_in_processes(method, processes):
    pytest.importorskip("cloudpickle")
    alone = nq.estimate(closure_problem(), method=method, budget=3000, rng=0)
    together = nq.estimate(closure_problem(), method=method, budget=3000, rng=0, executor=processes)
    assert together.value == alone.value
    assert together.std_error == alone.std_error


def test_without_cloudpickle_the_message_says_what_to_install(processes, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(nq.MissingExtraError, match=r"parallel"):
        nq.estimate(closure_problem(), method="nmc", budget=1000, rng=0, executor=processes)


def test_what_cannot_travel_is_refused_in_words(processes):
    pytest.importorskip("cloudpickle")
    lock = threading.Lock()
    problem = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), lambda x, theta: x[..., 0] + lock.locked()
    )
    with pytest.raises(nq.InputError, match="inside g"):
        nq.estimate(problem, method="nmc", budget=1000, rng=0, executor=processes)


class Inline(Executor):
    """The least that an executor can be: it has no number of workers and runs at once."""

    def __init__(self):
        self.tasks = 0

    def submit(self, call, *args):
        self.tasks += 1
        future = Future()
        try:
            future.set_result(call(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def test_any_executor_will_do():
    executor = Inline()
    alone = nq.estimate(closure_problem(), method="nkq", budget=3000, rng=0)
    answer = nq.estimate(closure_problem(), method="nkq", budget=3000, rng=0, executor=executor)
    assert answer.value == alone.value
    assert executor.tasks > 1


def test_a_client_is_not_an_executor():
    class Client:
        pass

    with pytest.raises(nq.InputError, match=r"get_executor\(\)"):
        nq.estimate(closure_problem(), budget=1000, executor=Client())


class KillsItsProcess:
    """Ends the process that evaluates it, once; a file tells whether it has."""

    def __init__(self, file, parent):
        self.file, self.parent = file, parent

    def __call__(self, x, theta):
        values = np.cos(x[..., 0]) + theta[..., 0]
        if os.getpid() != self.parent and theta.max() > 0.9 and not os.path.exists(self.file):
            with open(self.file, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return values


@pytest.mark.parametrize("method", ["nkq", "mlmc"])
def test_a_killed_worker_does_not_change_the_answer(method, tmp_path):
    file = str(tmp_path / "killed")
    problem = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), KillsItsProcess(file, os.getpid()), np.square
    )
    alone = nq.estimate(problem, method=method, budget=20_000, rng=0)
    assert not os.path.exists(file)
    with (
        ProcessPoolExecutor(2, mp_context=CONTEXT) as pool,
        pytest.warns(nq.NestquadWarning, match="died"),
    ):
        together = nq.estimate(problem, method=method, budget=20_000, rng=0, executor=pool)
    assert os.path.exists(file)
    assert together.value == alone.value
    assert together.n_evaluations == alone.n_evaluations


def test_a_pool_that_was_broken_before():
    with ProcessPoolExecutor(1, mp_context=CONTEXT) as pool:
        assert pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL).exception()
        with pytest.warns(nq.NestquadWarning, match="died"):
            answer = nq.estimate(
                nq.problems.synthetic(), method="nmc", budget=300, executor=pool, rng=0
            )
    assert (
        answer.value == nq.estimate(nq.problems.synthetic(), method="nmc", budget=300, rng=0).value
    )


def kills_every_process(x, theta):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_g_that_always_kills_ends_with_an_error_of_ours():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), kills_every_process)
    with (
        ProcessPoolExecutor(1, mp_context=CONTEXT) as pool,
        pytest.warns(nq.NestquadWarning, match="died"),
        pytest.raises(nq.EvaluationError, match="end its process"),
    ):
        nq.estimate(problem, method="nmc", budget=100, rng=0, executor=pool)


class Sleeps:
    """10 ms for each point; counts the calls under way when one begins."""

    def __init__(self):
        self.under_way, self.seen, self.lock = 0, [], threading.Lock()

    def __call__(self, x, theta):
        values = x[..., 0] + theta[..., 0]
        with self.lock:
            self.under_way += 1
            self.seen.append((self.under_way, values.size))
        time.sleep(0.01 * values.size)
        with self.lock:
            self.under_way -= 1
        return values

    @property
    def busy_workers(self):
        """Calls under way, averaged over points: a count, however long each sleeps."""
        calls, points = np.array(self.seen).T
        return calls @ points / points.sum()


@pytest.mark.parametrize(("method", "vectorized"), [("nmc", True), ("nqmc", False)])
def test_two_workers_are_both_at_work(method, vectorized):
    g = Sleeps()
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, vectorized=vectorized)
    with ThreadPoolExecutor(2) as pool:
        nq.estimate(problem, method=method, budget=300, rng=0, executor=pool)
    assert g.busy_workers > 1.8


def test_expensive_rows_are_shared_by_workers():
    # Four θ with 100 points each: whole rows would leave half of the workers without work.
    g = Sleeps()
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g)
    with ThreadPoolExecutor(8) as pool:
        nq.estimate(problem, method=nq.NMC(4, 100), rng=0, executor=pool)
    assert g.busy_workers > 5.0


@pytest.fixture(scope="module")
def dask():
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("cloudpickle")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.filterwarnings("ignore")  # of Dask and what it imports
class TestDask:
    @pytest.mark.parametrize("method", ["nkq", "mlkq"])
    def test_same_bits(self, method, dask):
        alone = nq.estimate(closure_problem(), method=method, budget=3000, rng=0)
        executor = dask.get_executor()
        answer = nq.estimate(
            closure_problem(), method=method, budget=3000, rng=0, executor=executor
        )
        assert answer.value == alone.value
        assert answer.std_error == alone.std_error

    def test_a_killed_worker_does_not_change_the_answer(self, dask, tmp_path):
        file = str(tmp_path / "killed")
        g = KillsItsProcess(file, os.getpid())
        problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, np.square)
        alone = nq.estimate(problem, method="nmc", budget=20_000, rng=0)
        answer = nq.estimate(
            problem, method="nmc", budget=20_000, rng=0, executor=dask.get_executor()
        )
        assert os.path.exists(file)
        assert answer.value == alone.value


# What workers do not find by name.


def sent(kind, which):
    pytest.importorskip("cloudpickle")
    if kind == "dask":
        pytest.importorskip("distributed")
    run = subprocess.run(
        [sys.executable, sending.__file__, kind, which],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return dict(line.split(" ", 1) for line in run.stdout.splitlines() if line[:1].isupper())


@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_a_g_of_the_main_script(kind):
    result = sent(kind, "g")
    assert result["VALUE"] == result["PLAIN"]


@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_what_cannot_travel_is_named(kind):
    assert "_thread.lock" in sent(kind, "locked")["ERROR"]


def test_a_g_that_kills_every_worker_of_dask():
    assert (
        "EvaluationError a worker could not finish a task (KilledWorker"
        in (sent("dask", "kills")["ERROR"])
    )


def test_a_module_that_workers_cannot_import(tmp_path):
    pytest.importorskip("cloudpickle")
    file = tmp_path / "only_here.py"
    file.write_text("SCALE = 2.0\n\n\ndef g(x, theta):\n    return SCALE * x[..., 0]\n")
    spec = importlib.util.spec_from_file_location("only_here", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["only_here"] = module
    spec.loader.exec_module(module)
    try:
        problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), module.g, np.square)
        alone = nq.estimate(problem, method="nmc", budget=400, rng=0)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            answer = nq.estimate(problem, method="nmc", budget=400, rng=0, executor=pool)
    finally:
        del sys.modules["only_here"]
    assert answer.value == alone.value


BEGUN, FREE = threading.Event(), threading.Event()


def hold():
    BEGUN.set()
    FREE.wait(60)


@pytest.mark.filterwarnings("ignore")  # of Dask and what it imports
@pytest.mark.parametrize("workers", [0, 1])
def test_dask_without_free_workers_is_not_waited_for(workers):
    distributed = pytest.importorskip("distributed")
    FREE.clear()
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        if workers:
            held = client.submit(hold, pure=False)
            BEGUN.wait(60)
        with pytest.raises(nq.EvaluationError, match="time ran out"):
            nq.estimate(
                nq.problems.synthetic(), budget=300, method="nqmc", rng=0, max_seconds=0.5,
                executor=client.get_executor(),
            )  # fmt: skip
        FREE.set()
        if workers:
            held.result()


def test_waiting_for_workers_is_said(monkeypatch):
    monkeypatch.setattr("nestquad.limits.PATIENCE_SECONDS", 0.2)
    said, free = [], threading.Event()

    def progress(done, total, message):
        said.append((done, message))
        free.set()  # the worker, once its absence is told

    with ThreadPoolExecutor(1) as pool:
        pool.submit(free.wait, 60.0)
        with pytest.warns(nq.NestquadWarning, match="No worker") as caught:
            answer = nq.estimate(
                closure_problem(), method="nmc", budget=300, rng=0, executor=pool, progress=progress
            )
    assert len(caught) == 1
    assert "waiting" in said[0][1]
    assert "waiting" not in said[-1][1]
    assert answer.value == nq.estimate(closure_problem(), method="nmc", budget=300, rng=0).value


@pytest.mark.parametrize("returned", [None, 3])
def test_an_executor_without_futures_is_refused(returned):
    class NoFutures(Executor):
        def submit(self, call, *args, **kwargs):
            return returned

    with pytest.raises(nq.InputError, match=r"executor.*Future"):
        nq.estimate(nq.problems.synthetic(), budget=300, rng=0, executor=NoFutures())


class Mixed(Inline):
    """Returns the result of another task, or none at all."""

    def __init__(self, change):
        super().__init__()
        self.change, self.last = change, None

    def submit(self, call, *args):
        future, result = Future(), super().submit(call, *args)
        future.set_result(self.change(self.last or result.result()))
        self.last = result.result()
        return future


@pytest.mark.parametrize("change", [lambda done: done, lambda done: None, lambda done: done.values])
def test_an_executor_that_mixes_up_results(change):
    with pytest.raises(nq.EvaluationError, match="executor returned"):
        nq.estimate(closure_problem(), method="nkq", budget=3000, rng=0, executor=Mixed(change))
