"""Seconds instead of evaluations: plain rules for a cheap g, learning for an expensive one."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import nestquad as nq
from nestquad.clock import LearningCost

PROBLEM = nq.problems.finance()
LEARNED = ("joint", "ckq", "mlkq")


def waiting(seconds):
    """The same problem with a g that takes some time for each evaluation."""

    def g(x, theta):
        values = PROBLEM.g(x, theta)
        time.sleep(seconds * values.size)
        return values

    return nq.NestedExpectation(PROBLEM.outer, PROBLEM.inner, g, PROBLEM.f, exact=PROBLEM.exact)


@pytest.fixture(autouse=True, scope="module")
def imported():
    """Modules that are imported at the first use, which takes time."""
    for method in ("nqmc", "joint"):
        nq.estimate(PROBLEM, budget=600, method=method, rng=0)


def forecast(est):
    (note,) = [note for note in est.diagnostics["notes"] if note.startswith("an evaluation takes")]
    return note


def test_a_cheap_g_is_answered_by_a_plain_rule():
    runs = [nq.estimate(PROBLEM, tol=0.05, rng=seed) for seed in range(3)]
    assert {est.status for est in runs} == {"converged"}
    assert all(abs(est.value - PROBLEM.exact) <= 0.05 for est in runs)
    # The machine may be busy with something else at the first call.
    assert sum(est.method == "nqmc" for est in runs) >= 2
    assert all("plain rules promise" in forecast(est) for est in runs)


def test_an_expensive_g_is_learned_with_fewer_evaluations():
    cheap = nq.estimate(PROBLEM, tol=0.4, rng=0, method="nqmc")
    slow = nq.estimate(waiting(0.005), tol=0.4, rng=0)
    assert cheap.status == slow.status == "converged"
    assert slow.method in LEARNED
    assert slow.n_evaluations < cheap.n_evaluations
    assert abs(slow.value - PROBLEM.exact) <= 0.4
    words = [word for word in forecast(slow).split() if word[0].isdigit()]
    takes, plainly, learning = map(float, words)
    assert 0.005 <= takes < 0.01
    assert plainly > learning
    assert learning / 4.0 < slow.seconds < 4.0 * learning


def test_time_that_a_rule_needs_is_what_it_promises():
    """The forecast of learning and its inverse."""
    for seconds in (0.0, 1e-6, 1e-2):
        for accuracy in (10.0, 100.0, 1e4):
            found = LearningCost().accuracy(LearningCost().seconds(accuracy, seconds), seconds)
            assert found == pytest.approx(accuracy)
        assert LearningCost().accuracy(0.0, seconds) == 0.0
    assert LearningCost().seconds(100.0, 1.0) > LearningCost().seconds(100.0, 0.0)
    assert LearningCost().seconds(1000.0, 0.0) > LearningCost().seconds(100.0, 0.0)


@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_time_alone_is_a_request(seconds):
    started = time.perf_counter()
    est = nq.estimate(PROBLEM, max_seconds=seconds, rng=0)
    assert time.perf_counter() - started < 2.0 * seconds + 0.2
    assert est.status in ("time", "limit")
    assert est.informative
    assert abs(est.value - PROBLEM.exact) < 2.0 * est.half_width
    assert forecast(est).count("±") == 2


def test_a_moment_is_too_short_to_learn():
    est = nq.estimate(PROBLEM, max_seconds=0.25, rng=0)
    assert est.method == "nqmc"
    assert "learning ± inf" in forecast(est)
    # A thousandth of f(J), by a million of evaluations and not by the first few hundred.
    assert est.half_width < 0.01 * est.sample.spread


def test_time_alone_with_an_expensive_g():
    started = time.perf_counter()
    est = nq.estimate(waiting(0.002), max_seconds=3.0, rng=0)
    assert time.perf_counter() - started < 6.0
    assert est.method in LEARNED
    assert est.n_evaluations <= 1500


def test_without_any_request_all_four_are_named():
    with pytest.raises(nq.InputError) as caught:
        nq.estimate(PROBLEM)
    for word in ("budget=", "tol=", "max_seconds=", "n_outer="):
        assert word in str(caught.value)


def test_with_a_budget_the_way_does_not_depend_on_time():
    for goal in ({"budget": 1200}, {"budget": 4000, "tol": 0.05}):
        fast = nq.estimate(PROBLEM, rng=3, **goal)
        slow = nq.estimate(waiting(1e-4), rng=3, **goal)
        with ThreadPoolExecutor(2) as pool:
            shared = nq.estimate(PROBLEM, rng=3, executor=pool, **goal)
        assert fast.value == slow.value == shared.value
        assert fast.std_error == slow.std_error == shared.std_error
        assert fast.n_evaluations == slow.n_evaluations
        assert not [
            note for note in slow.diagnostics["notes"] if note.startswith("an evaluation takes")
        ]
