"""Learned methods: same bits whoever evaluates, budgets, and pairs as blocks of a plan."""

import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import nestquad as nq
from nestquad import limits
from nestquad.points import Stream
from nestquad.result import NORMAL_95

LIMIT, NOISE = 0.8, 0.5  # place of the kink; standard deviation of g in x


def g(x, theta):
    return theta[..., 0] + 0.5 * theta[..., 1] + x[..., 0]


def excess(j):
    return np.maximum(j - LIMIT, 0.0)


def linear(g=g):
    """J = θ₁ + θ₂/2, normal with variance 5/4."""
    return nq.NestedExpectation(nq.Normal(np.zeros(2)), nq.Normal(0.0, NOISE), g, excess)


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc"])
def test_the_same_seed_gives_the_same_bits_whoever_evaluates(method, processes, tmp_path):
    problem, options = linear(), {"method": method, "budget": 1500, "rng": 4}
    alone = nq.estimate(problem, **options)
    with ThreadPoolExecutor(2) as threads:
        others = [
            nq.estimate(problem, executor=executor, **options) for executor in (threads, processes)
        ]
    others += [nq.estimate(problem, store=tmp_path / "store", **options) for _ in range(2)]
    assert {est.value for est in others} == {alone.value}
    assert {est.std_error for est in others} == {alone.std_error}
    # The second run of a store evaluates nothing.
    assert others[-2].diagnostics["n_reused"] == 0
    assert others[-1].diagnostics["n_reused"] == others[-1].n_evaluations == alone.n_evaluations
    assert nq.estimate(problem, **{**options, "rng": 5}).value != alone.value


# Budgets that are too small to learn from.
LEAST = {"lsmc": 16, "ckq": 16}


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc", "auto"])
def test_budgets_are_kept(method):
    for budget in (16, 100, 500, 2048, 5000):
        calls = []

        def counted(x, theta, calls=calls):
            values = g(x, theta)
            calls.append(values.size)
            return values

        problem = linear(counted)
        if budget <= LEAST.get(method, 0):
            with pytest.raises(nq.InputError, match="budget"):
                nq.estimate(problem, budget=budget, method=method, rng=0)
            assert not calls
            continue
        est = nq.estimate(problem, budget=budget, method=method, rng=0)
        assert sum(calls) == est.n_evaluations <= budget
        # Most of it is spent, and from a few hundred on some of it on a check.
        assert est.n_evaluations >= 0.5 * budget
        if budget >= 500 and est.method in ("joint", "ckq", "lsmc"):
            draws = est.diagnostics["check"]["n_draws"]
            assert 32 <= draws <= 0.4 * budget


@pytest.mark.parametrize("method", ["joint", "ckq", "lsmc"])
@pytest.mark.parametrize("goal", [{"budget": 1200}, {"tol": 0.05, "budget": 20_000}])
def test_a_check_by_hand_comes_in_a_later_block(method, goal):
    problem = linear()
    block, blocks = nq.plan(problem, method=method, rng=0, **goal), []
    while block is not None:
        theta, x = (np.concatenate(part) for part in zip(*block.blocks(), strict=True))
        values = g(x, theta)
        found = nq.analyze(block, values)
        blocks.append((block, found))
        block = block.next(values)
    assert "check" not in blocks[0][1].diagnostics
    assert blocks[0][1].status == "open"
    last, est = blocks[-1]
    draws = est.diagnostics["check"]["n_draws"]
    assert 0 < draws < est.n_evaluations == sum(len(block) for block, _ in blocks)
    called = nq.estimate(problem, method=method, rng=0, **goal)
    assert (called.value, called.std_error, called.status) == (
        est.value,
        est.std_error,
        est.status,
    )
    # Two rows in a row have the same θ and another x.
    theta, x = (np.concatenate(part) for part in zip(*last.blocks(), strict=True))
    fresh = slice(len(theta) - 32, None)
    np.testing.assert_array_equal(theta[fresh][::2], theta[fresh][1::2])
    assert (x[fresh][::2] != x[fresh][1::2]).all()


@pytest.mark.parametrize("budget", [1000, 5000])
def test_averages_of_a_budget_go_on_while_they_are_the_error(budget):
    # J of health is linear in theta: all of the error is the average over its kink.
    problem = nq.problems.health()
    est = nq.estimate(problem, method="joint", budget=budget, rng=3)
    assert NORMAL_95 * est.std_error <= 2e-5
    assert abs(est.value - problem.exact) <= 2.0 * NORMAL_95 * est.std_error
    # Finance has little to gain from more theta.
    parts = nq.estimate(nq.problems.finance(), budget=budget, rng=3).diagnostics["error_parts"]
    assert parts["average"] <= 0.2 * parts["posterior"]


def test_dense_averages_take_little_memory():
    J = nq.conditional(linear(), method="lsmc", budget=500, rng=0)
    u = np.zeros((1, 2))
    J.model.mean(u)
    tracemalloc.start()
    sizes = [len(part.j) for part in J.model.replicates(16, 16, Stream.from_rng(0))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) == 16 << 16
    assert peak < 16 * 8 * limits.AVERAGE_POINTS * 2  # all points at once would be 34 MB
