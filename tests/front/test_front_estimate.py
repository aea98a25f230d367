"""The front door: budgets, tolerances, seeds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import nestquad as nq

NESTED = ("nmc", "nqmc", "nkq")


class Counter:
    """The g of a problem, which counts points."""

    def __init__(self, g):
        self.g, self.n = g, 0

    def __call__(self, x, theta):
        values = self.g(x, theta)
        self.n += int(np.prod(np.broadcast_shapes(x.shape[:-1], theta.shape[:-1])))
        return values


def counted(name):
    problem = nq.problems.get(name)
    counter = Counter(problem.g)
    return (
        nq.NestedExpectation(
            problem.outer, problem.inner, counter, problem.f, problem.combine, problem.exact
        ),
        counter,
    )


@pytest.mark.parametrize("budget", [4, 5, 7, 12, 100, 101, 999, 4096])
@pytest.mark.parametrize("method", NESTED)
def test_a_budget_is_never_exceeded_and_mostly_used(method, budget):
    problem, counter = counted("finance")
    est = nq.estimate(problem, budget=budget, method=method, rng=0)
    assert counter.n == est.n_evaluations == est.n_outer * est.n_inner <= budget
    assert est.n_evaluations > 0.6 * budget
    assert est.status == ("done" if est.informative else "unreliable")
    assert est.informative or budget < 100
    assert np.isfinite(est.value)


@pytest.mark.parametrize("method", NESTED)
def test_a_budget_caps_a_tolerance(method):
    problem, counter = counted("finance")
    for budget in (10, 1500, 5000):
        counter.n = 0
        est = nq.estimate(problem, budget=budget, tol=1e-9, method=method, rng=0)
        assert counter.n == est.n_evaluations <= budget
        assert est.n_evaluations > budget / 4
        assert est.status == ("unreliable" if budget == 10 else "budget")
        assert budget == 10 or "budget" in est.status_text


def test_fixed_sizes_share_a_budget():
    problem, counter = counted("synthetic")
    for method, sizes in (
        (nq.NKQ(n_inner=10), (12, 10)),
        (nq.NKQ(n_outer=10), (10, 12)),
        (nq.NMC(n_outer=30), (30, 4)),
        (nq.NQMC(n_outer=5, n_inner=5), (5, 5)),
    ):
        counter.n = 0
        est = nq.estimate(problem, budget=123, method=method, rng=0)
        assert (est.n_outer, est.n_inner) == sizes
        assert counter.n == sizes[0] * sizes[1]


def test_given_points_share_a_budget():
    problem, counter = counted("synthetic")
    points = nq.Given(np.random.default_rng(0).random((50, 1)))
    est = nq.estimate(problem, budget=1000, method=nq.NQMC(outer_points=points), rng=0)
    assert (est.n_outer, est.n_inner) == (50, 20)
    assert counter.n == 1000
    est = nq.estimate(problem, method=nq.NQMC(outer_points=points, inner_points=points), rng=0)
    assert (est.n_outer, est.n_inner) == (50, 50)


@pytest.mark.parametrize("method", ["nqmc", "nkq"])
@pytest.mark.parametrize("name", ["synthetic", "finance"])
def test_a_tolerance_is_met_by_the_half_width(name, method):
    problem, counter = counted(name)
    for tol in (0.5, 0.05):
        counter.n = 0
        est = nq.estimate(problem, tol=tol, method=method, rng=1)
        low, high = est.interval(0.95)
        assert est.status == "converged"
        assert (high - low) / 2 <= tol * (1 + 1e-6)
        assert abs(est.value - problem.exact) <= tol
        assert counter.n == est.n_evaluations == est.trace[-1].n_evaluations


def test_it_stops_at_the_first_turn_that_meets_the_tolerance():
    est = nq.estimate(nq.problems.finance(), tol=0.05, method="nqmc", rng=1)
    halves = half_widths(est)
    assert halves[-1] <= 0.05
    for before, half in pairwise(halves[:-1]):
        assert half > 0.05 or before > 0.05, "it could have stopped here"
    sizes = [step.n_evaluations for step in est.trace]
    assert all(b == 2 * a for a, b in pairwise(sizes))
    assert est.trace[-1].value == est.value


def half_widths(est):
    return [1.959963985 * step.std_error for step in est.trace]


@pytest.mark.parametrize("method", ["nmc", "nqmc"])
def test_a_tolerance_just_above_the_half_width_stops_and_one_just_below_does_not(method):
    # Steady progress: no turn is much better than the one before, which would count as luck.
    problem = nq.problems.finance()
    whole = nq.estimate(problem, tol=1e-9, budget=2**15, method=method, rng=3)
    halves = half_widths(whole)
    turn = next(i for i in range(1, len(halves)) if min(halves[:i]) > halves[i] > halves[i - 1] / 5)
    size = whole.trace[turn].n_evaluations
    above, below = (
        nq.estimate(problem, tol=factor * halves[turn], method=method, budget=2**16, rng=3)
        for factor in (1.001, 0.999)
    )
    assert above.status == "converged"
    assert above.n_evaluations == size
    assert above.value == whole.trace[turn].value
    assert below.n_evaluations > size


def test_a_single_lucky_turn_is_not_believed():
    # Of many seeds some have a first half-width that is small by chance.
    for seed in range(20):
        est = nq.estimate(nq.problems.finance(), tol=0.2, method="nqmc", rng=seed)
        assert len(est.trace) >= 2


@pytest.mark.parametrize("method", NESTED)
def test_one_evaluation_too_few_for_another_turn(method):
    options = {"tol": 1e-9, "method": method, "rng": 3}
    problem = nq.problems.finance()
    assert nq.estimate(problem, budget=2047, **options).n_evaluations == 1024
    assert nq.estimate(problem, budget=2048, **options).n_evaluations == 2048


def test_a_relative_tolerance_scales_with_the_answer():
    problem = nq.problems.health()
    est = nq.estimate(problem, rtol=0.3, method="nqmc", rng=1)
    assert est.status == "converged"
    assert 1.959964 * est.std_error <= 0.3 * abs(est.value)
    # The looser of the two tolerances decides.
    loose = nq.estimate(problem, rtol=1e-9, tol=1000.0, method="nqmc", rng=1)
    assert loose.status == "converged"


def test_a_tolerance_holds_for_each_of_several_answers():
    problem = nq.NestedExpectation(
        nq.Uniform(),
        nq.Uniform(),
        lambda x, theta: x[..., 0] * theta[..., 0],
        lambda j: np.stack([j, 100 * np.exp(j)], axis=-1),
    )
    est = nq.estimate(problem, tol=0.05, method="nqmc", budget=200_000, rng=0)
    assert est.status == "converged"
    assert (1.96 * est.std_error <= 0.0501).all()


def test_growth_goes_where_the_error_is():
    def g(inner, outer):
        return lambda x, theta: inner * np.exp(x[..., 0]) + outer * np.exp(theta[..., 0])

    for (a, b), side in (((10.0, 0.01), "inner"), ((0.01, 10.0), "outer")):
        problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g(a, b), np.square)
        est = nq.estimate(
            problem, tol=1e-12, budget=10_000, method=nq.NQMC(sharing="shared"), rng=0
        )
        assert (est.n_inner > est.n_outer) == (side == "inner")


def test_a_finite_sequence_ends_growth_and_not_the_run():
    method = nq.NQMC(outer_points=nq.Lattice(log2_max=6), inner_points=nq.Lattice(log2_max=7))
    est = nq.estimate(nq.problems.finance(), tol=1e-9, budget=10**6, method=method, rng=0)
    assert est.status == "limit"
    assert (est.n_outer, est.n_inner) == (64, 128)


def test_dense_weights_end_growth_and_not_the_run(monkeypatch):
    # All of the error is in the outer stage, so T would grow beyond what can be factorised.
    monkeypatch.setattr(nq.NKQ, "most_points", 256)
    est = nq.estimate(nq.problems.gaussian_es(), tol=1e-6, budget=10**5, method="nkq", rng=0)
    assert est.status in ("budget", "limit")
    assert max(est.n_outer, est.n_inner) == 256
    assert nq.estimate(nq.problems.gaussian_es(), method=nq.NKQ(300, 8), rng=0).n_outer == 300


@pytest.mark.parametrize(
    "make", [lambda: 7, lambda: np.random.SeedSequence(7), lambda: np.int64(7)]
)
def test_seeds_repeat(make):
    problem = nq.problems.finance()
    first, again = (nq.estimate(problem, budget=400, rng=make()).value for _ in range(2))
    assert first == again


def test_a_generator_moves_on_and_none_is_fresh():
    problem = nq.problems.finance()
    rng = np.random.default_rng(7)
    first, second = (nq.estimate(problem, budget=400, rng=rng).value for _ in range(2))
    assert first != second
    assert first == nq.estimate(problem, budget=400, rng=np.random.default_rng(7)).value
    fresh, other = (nq.estimate(problem, budget=400).value for _ in range(2))
    assert fresh != other


def test_global_random_state_is_left_alone():
    np.random.seed(0)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    nq.estimate(nq.problems.finance(), budget=400, rng=1)
    nq.estimate(nq.problems.finance(), budget=400, method="nmc")
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_method_by_name_by_instance_and_by_default():
    problem = nq.problems.synthetic()
    named = nq.estimate(problem, budget=400, method="NKQ", rng=0)
    made = nq.estimate(problem, budget=400, method=nq.NKQ(), rng=0)
    assert named.value == made.value
    assert nq.estimate(problem, budget=400, rng=0).n_evaluations <= 400


def test_seconds_are_those_of_the_call(simulated):
    problem = simulated.slow(nq.problems.synthetic(), 0.01)
    est = nq.estimate(problem, method="nqmc", budget=1024, rng=0)
    assert est.n_evaluations == 1024
    assert est.seconds == pytest.approx(10.24, abs=0.01)


def test_allocate_is_exported():
    plan = nq.allocate(0.01, "nmc")
    assert (plan.n_inner, plan.n_outer) == (100, 10_000)
    assert isinstance(plan, nq.Allocation)
