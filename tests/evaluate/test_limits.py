"""Memory, time, interruptions."""

from __future__ import annotations

import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import nestquad as nq
from nestquad import risk
from nestquad.clock import use_clock
from nestquad.evaluate import Evaluations, Evaluator
from nestquad.methods import Goal
from nestquad.points import Stream


def test_memory_does_not_grow_with_the_number_of_evaluations():
    problem = nq.problems.finance()
    method = nq.NMC(n_outer=20_000, n_inner=200)  # 4 million values are 32 MB
    nq.estimate(problem, method=nq.NMC(n_outer=100, n_inner=200), rng=0)
    tracemalloc.start()
    try:
        nq.estimate(problem, method=method, rng=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16e6


class SlowG:
    """Waits whenever it is called."""

    def __init__(self, seconds, scale=(1.0, 1.0), wait=time.sleep):
        self.seconds, self.scale, self.wait = seconds, scale, wait

    def __call__(self, x, theta):
        self.wait(self.seconds)
        return self.scale[0] * np.exp(x[..., 0]) + self.scale[1] * np.exp(theta[..., 0])


def slow_problem(seconds, scale=(1.0, 1.0), wait=time.sleep):
    a, b = scale
    truth = (a**2 + 2 * a * b) * (np.e - 1) ** 2 + b**2 * (np.e**2 - 1) / 2
    return nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), SlowG(seconds, scale, wait), np.square, exact=truth
    )


@pytest.mark.parametrize("method", [nq.NMC, nq.NQMC])
def test_a_deadline_leaves_a_valid_estimate_of_what_is_complete(method, simulated):
    problem = slow_problem(0.05, wait=simulated.wait)
    sizes = method(n_outer=400, n_inner=4096)
    est = nq.estimate(problem, method=sizes, max_seconds=1.2, rng=0)
    assert simulated.seconds < 1.1 * 1.2 + 0.3
    assert est.status == "time"
    assert 1 < est.n_outer < 400
    assert est.n_evaluations >= est.n_outer * 4096  # a row may have been begun
    assert abs(est.value - problem.exact) < 5 * est.std_error
    whole = nq.estimate(slow_problem(0.0), method=method(est.n_outer, 4096), rng=0)
    assert est.value == whole.value


@pytest.mark.parametrize("scale", [(10.0, 0.001), (0.001, 10.0)])
@pytest.mark.parametrize("method", ["nmc", "nqmc", "nkq", nq.NKQ(sharing="independent")])
def test_a_deadline_while_growing_keeps_the_last_complete_answer(method, scale, simulated):
    # Growth in N leaves rows behind that are not complete: they must not spoil what was there.
    problem = slow_problem(0.08, scale, simulated.wait)
    est = nq.estimate(problem, method=method, tol=1e-15, max_seconds=0.6, rng=0)
    assert est.status == "time"
    assert est.n_outer >= 32
    assert np.isfinite(est.std_error)
    assert abs(est.value - problem.exact) < 5 * est.std_error + 1e-9
    errors = [step.std_error for step in est.trace]
    assert est.std_error == errors[-1]


@pytest.mark.parametrize("method", ["nmc", "nqmc", "nkq", nq.NKQ(sharing="independent")])
@pytest.mark.parametrize("goal", [{"budget": 1000}, {"tol": 1e-3}])
def test_no_time_at_all_is_an_error_of_ours(method, goal):
    with pytest.raises(nq.EvaluationError, match="max_seconds"):
        nq.estimate(nq.problems.synthetic(), method=method, max_seconds=1e-9, rng=0, **goal)


@pytest.mark.parametrize("method", [nq.NMC, nq.NQMC])
def test_time_for_a_single_theta(method):
    problem, method = slow_problem(0.0), method(n_outer=5, n_inner=65_536)
    evaluator = Evaluator(problem)

    def stop_after_the_first_row(done):
        if done >= 65_536:
            evaluator.deadline = 0.0

    evaluator.on_progress = stop_after_the_first_row
    design = method.plan(problem, Goal(Stream.from_rng(0)))
    est = method.analyze(Evaluations(evaluator, design)).estimate
    assert est.n_outer == 1
    assert evaluator.stopped == "time"
    assert est.std_error >= abs(est.value)  # one θ says nothing about the others


class InterruptedG:
    def __init__(self, after):
        self.after, self.calls = after, 0

    def __call__(self, x, theta):
        self.calls += 1
        if self.calls > self.after:
            raise KeyboardInterrupt
        return x[..., 0] + theta[..., 0]


@pytest.mark.parametrize("method", ["nmc", "nqmc", "nkq"])
def test_interrupt_returns_the_last_complete_turn(method):
    def problem(after):
        return nq.NestedExpectation(nq.Uniform(), nq.Uniform(), InterruptedG(after), np.square)

    est = nq.estimate(problem(8), method=method, tol=1e-14, rng=0)
    assert est.status == "interrupted"
    assert len(est.trace) >= 1
    assert abs(est.value - 13 / 12) < 5 * est.std_error + 1e-9
    assert "interrupted" in str(est)


def test_interrupt_before_any_answer_is_passed_on():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), InterruptedG(0))
    with pytest.raises(KeyboardInterrupt):
        nq.estimate(problem, budget=1000, method="nmc")


def test_progress_counts_up_to_the_total():
    seen = []
    nq.estimate(
        nq.problems.synthetic(),
        method=nq.NMC(n_outer=200, n_inner=1000),
        rng=0,
        progress=lambda done, total, message: seen.append((done, total)),
    )
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert len(done) > 1
    assert seen[-1] == (200_000, 200_000)


class WarmingG:
    """A second for the first call, as a compiler needs, and nothing for the others."""

    def __init__(self, g, wait):
        self.g, self.wait, self.cold = g, wait, True

    def __call__(self, x, theta):
        if self.cold:
            self.wait(1.0)
        self.cold = False
        return self.g(x, theta)


def test_a_budget_is_spent_while_there_is_time(simulated):
    # A last turn that promises to be long is no reason to stop where a budget was asked for: what
    # is complete at the deadline is analysed.
    plain = nq.problems.finance()
    problem = replace(plain, g=WarmingG(plain.g, simulated.wait))
    est = nq.estimate(problem, budget=4000, rng=0, max_seconds=3.0)
    patient = nq.estimate(plain, budget=4000, rng=0)
    assert (est.status, est.n_evaluations) == ("done", patient.n_evaluations)
    assert abs(est.value - patient.value) < patient.half_width


@pytest.mark.parametrize("goal", [{}, {"budget": 4000}, {"tol": 1e-9, "method": "nkq"}])
def test_an_expensive_g_in_little_time(goal, simulated):
    plain = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), lambda x, theta: x[..., 0] + theta[..., 0], np.square
    )
    problem = simulated.slow(plain, 0.1)
    est = nq.estimate(problem, max_seconds=1.0, rng=0, **goal)
    assert simulated.seconds < 1.1 * 1.0 + 0.3
    assert est.n_evaluations >= 8
    assert est.half_width > abs(est.value - 13 / 12)
    assert est.status in ("time", "unreliable")


@pytest.mark.parametrize("method", ["auto", "ckq"])
def test_analysis_counts_into_the_limit(method, simulated):
    # A millisecond for each look at the clock: 10⁷ evaluations and their analysis look oftener than
    # a thousand times.
    simulated.step = 1e-3
    est = nq.estimate(nq.problems.finance(), budget=10**7, method=method, max_seconds=1.0, rng=0)
    assert est.status == "time"
    assert simulated.seconds < 1.1 * 1.0 + 0.3


def wide_problem(dim):
    return nq.NestedExpectation(
        nq.Normal(np.zeros(dim)),
        lambda theta: nq.Normal(theta[:, :1] + np.zeros(dim)),
        lambda x, theta: np.sin(x.sum(-1)) + theta.sum(-1),
        lambda j: np.maximum(j, 0.0),
    )


@pytest.mark.parametrize(("method", "dim"), [("ckq", 300), ("lsmc", 300), ("nkq", 3000)])
def test_the_analysis_of_many_coordinates_ends_in_time(method, dim):
    started = time.process_time()
    with use_clock(time.process_time):
        est = nq.estimate(wide_problem(dim), method=method, max_seconds=1.0, rng=0)
    assert time.process_time() - started < 8.0  # 35 s where the limit is not kept
    assert est.status in ("time", "unreliable")


@pytest.mark.parametrize("store", [False, True])
def test_one_evaluation_longer_than_the_limit_is_an_answer(store, tmp_path, simulated):
    problem = slow_problem(0.5, wait=simulated.wait)
    kwargs = {"store": tmp_path / "store"} if store else {}
    est = nq.estimate(problem, method="nqmc", max_seconds=0.2, rng=0, **kwargs)
    assert est.status == "time"
    assert np.isfinite(est.value)
    assert est.std_error == np.inf
    assert est.seconds == pytest.approx(0.5, abs=1e-3)


def test_risk_says_that_there_was_no_time(simulated):
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), SlowG(0.5, wait=simulated.wait))
    with pytest.raises(nq.EvaluationError, match="time ran out"):
        risk.measure(problem, var=0.9, max_seconds=0.2, rng=0)


@pytest.mark.parametrize("store", [False, True])
def test_a_busy_pool_is_not_waited_for(store, tmp_path):
    kwargs = {"store": tmp_path / "store"} if store else {}
    free = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(free.wait, 60.0)  # an estimation that waits for it gets an answer
        with pytest.raises(nq.EvaluationError, match="time ran out"):
            nq.estimate(
                slow_problem(0.0), budget=300, method="nqmc", rng=0, executor=executor,
                max_seconds=0.1, **kwargs,
            )  # fmt: skip
        assert not free.is_set()
        free.set()


class HeldG:
    """Two calls that wait for each other, and for the third look at a clock past the deadline.

    The clock, of the thread that estimates, stands until both calls have begun. Jobs that no worker
    has begun are canceled between the first look past the deadline and the third.
    """

    def __init__(self):
        self.both, self.late, self.looks = threading.Event(), threading.Event(), 0
        self.begun = threading.Barrier(2, action=self.both.set)

    def __call__(self, x, theta):
        self.begun.wait(60.0)
        self.late.wait(60.0)
        return x[..., 0] + theta[..., 0]

    def clock(self):
        if not self.both.is_set():
            return 0.0
        self.looks += 1
        if self.looks == 3:
            self.late.set()
        return 10.0


def test_what_workers_have_begun_at_the_deadline_is_an_answer():
    g = HeldG()
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, np.square)
    with ThreadPoolExecutor(2) as executor, use_clock(g.clock):
        est = nq.estimate(problem, method="nqmc", rng=0, executor=executor, max_seconds=0.2)
    assert est.status == "time"
    assert est.n_evaluations == 2


def test_time_that_learning_cannot_use_goes_to_the_plain_rule(monkeypatch, simulated):
    # A learner whose first turn takes a third of the time has no second one.
    learned = nq.JointLattice.analyze

    def analyze(self, evaluations, last=None):
        simulated.wait(0.6)
        return learned(self, evaluations, last)

    monkeypatch.setattr(nq.JointLattice, "analyze", analyze)
    problem = simulated.slow(nq.problems.health(), 1e-5)
    est = nq.estimate(problem, max_seconds=2.0, rng=0)
    assert est.n_evaluations > 4096  # 160 where the rest of the time is not used
    assert abs(est.value - problem.exact) <= est.half_width
    assert est.status in ("time", "limit")


def test_a_model_of_j_is_learned_in_time(simulated):
    # One large step: 5 ms an evaluation are 400 evaluations in 2 s, and analyses take none here.
    plain = nq.problems.synthetic()
    slow = simulated.slow(plain, 0.005)
    model = nq.conditional(slow, max_seconds=2.0, method="joint", rng=0)
    assert simulated.seconds < 1.1 * 2.0 + 0.3
    assert 200 <= model.n_evaluations <= 460
    assert abs(model([0.25]) - (2 / 7 + 0.25**2.5)) < 1e-3
    with pytest.raises(nq.InputError, match="max_seconds"):
        nq.conditional(plain)
    with pytest.raises(nq.EvaluationError, match="time ran out"):
        nq.conditional(slow, max_seconds=1e-9, rng=0)


def test_each_run_of_a_comparison_ends_in_time(simulated):
    problem = simulated.slow(nq.problems.synthetic(), 0.01)
    table = nq.compare(
        problem, budget=10_000, methods=["nqmc"], replicates=2, rng=0, max_seconds=1.0
    )
    assert simulated.seconds < 2 * (1.1 + 0.3)
    assert table.rows[0].n_evaluations <= 130
