"""The same seed gives the same bits, however the work is cut and whoever does it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from counting import counting_problem

import nestquad as nq
from nestquad.evaluate import Evaluations, Evaluator, inner_points, outer_points
from nestquad.methods import Goal
from nestquad.points import IID, Stream

METHODS = {
    "nmc": nq.NMC(n_outer=19, n_inner=24),
    "nqmc": nq.NQMC(n_outer=19, n_inner=24),
    "nkq": nq.NKQ(n_outer=19, n_inner=24),
    "nkq pool": nq.NKQ(n_outer=19, n_inner=24, sharing=3),
    "nkq independent": nq.NKQ(
        n_outer=19,
        n_inner=24,
        sharing="independent",
        inner=nq.KernelQuadrature(nq.Matern(1.5), lengthscale="median"),
    ),
}


def cos_x(x, theta):
    return np.cos(x[..., 0])


def theta_only(x, theta):
    return np.exp(theta[..., 0])


def fortran(x, theta):
    return np.asfortranarray(np.exp(x[..., 0] + theta[..., 0]))


def two_broadcast_outputs(x, theta):
    return np.stack(np.broadcast_arrays(np.exp(x[..., 0]), theta[..., 0]), axis=-1)


# Shipped problems, and layouts of g's answer that tempt numpy into another order of summation.
SHIPPED = ("synthetic10", "finance", "health", "eig-linear")
PROBLEMS = {name: nq.problems.get(name) for name in SHIPPED} | {
    g.__name__: nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g)
    for g in (cos_x, theta_only, fortran, two_broadcast_outputs)
}


def run(problem, method, **options):
    design = method.plan(problem, Goal(Stream.from_rng(3)))
    estimate = method.analyze(Evaluations(Evaluator(problem, **options), design)).estimate
    return np.append(estimate.value, estimate.std_error)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_whatever_the_chunks(problem, method):
    reference = run(PROBLEMS[problem], METHODS[method])
    for chunk_points, keep in ((1, False), (100, False), (100, True)):
        again = run(PROBLEMS[problem], METHODS[method], chunk_points=chunk_points, keep=keep)
        np.testing.assert_array_equal(again, reference)


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", ["finance", "health"])
def test_whatever_the_executor(problem, method, processes):
    problem, method = nq.problems.get(problem), METHODS[method]
    reference = run(problem, method)
    with ThreadPoolExecutor(3) as threads:
        for executor in (threads, processes):
            again = run(problem, method, executor=executor, chunk_points=60)
            np.testing.assert_array_equal(again, reference)


def test_executor_through_the_front_door():
    problem = nq.problems.finance()
    with ThreadPoolExecutor(2) as threads:
        for options in ({"budget": 3000}, {"tol": 0.2, "budget": 20_000}):
            alone = nq.estimate(problem, rng=1, **options)
            together = nq.estimate(problem, rng=1, executor=threads, **options)
            assert together.value == alone.value
            assert together.std_error == alone.std_error
            assert together.n_evaluations == alone.n_evaluations


def test_errors_travel_from_workers_with_their_point(processes):
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), refuses_large_x)
    method = nq.NMC(n_outer=200, n_inner=50)
    with pytest.raises(nq.EvaluationError, match="too large") as caught:
        run(problem, method, executor=processes, chunk_points=500)
    assert caught.value.x[0] > 0.99
    assert caught.value.theta.shape == (1,)


def refuses_large_x(x, theta):
    if (x > 0.99).any():
        raise ValueError("too large")
    return x[..., 0] + theta[..., 0]


def test_other_seeds_give_other_answers():
    problem = nq.problems.finance()
    for method in METHODS.values():
        values = [nq.estimate(problem, method=method, rng=seed).value for seed in (0, 0, 1)]
        assert values[0] == values[1] != values[2]


@pytest.mark.parametrize("role", ["inner", "outer"])
def test_draws_of_a_sampler_do_not_depend_on_the_cut(role):
    from nestquad.evaluate import Grid, Span

    problem, _ = counting_problem(inner="sampler")
    if role == "outer":
        law = nq.Sampler(lambda n, rng: rng.gamma(2.0, size=(n, 1)), dim=1)
        problem = nq.NestedExpectation(law, nq.Uniform(), cos_x)
    grid = Grid(600, 700, IID(), IID(), None, Stream.from_rng(8))
    theta = outer_points(problem, grid, 0, 600).theta
    for t0, t1 in ((0, 1), (17, 300), (255, 257), (599, 600)):
        np.testing.assert_array_equal(outer_points(problem, grid, t0, t1).theta, theta[t0:t1])
    x = inner_points(problem, grid, theta[:5], Span(0, 5, 0, 700)).x
    for t0, t1, n0, n1 in ((0, 5, 0, 3), (1, 3, 15, 17), (4, 5, 100, 700), (2, 4, 255, 513)):
        part = inner_points(problem, grid, theta[t0:t1], Span(t0, t1, n0, n1)).x
        np.testing.assert_array_equal(part, x[t0:t1, n0:n1])


def test_draws_of_a_sampler_follow_its_law_and_are_independent():
    from nestquad.evaluate import Grid

    problem, _ = counting_problem(inner="sampler")
    grid = Grid(400, 100, IID(), IID(), None, Stream.from_rng(8))
    theta = outer_points(problem, grid, 0, 400).theta
    noise = inner_points(problem, grid, theta, grid.span).x[..., 0] - theta  # exponential
    assert noise.min() > 0
    assert noise.mean() == pytest.approx(1.0, abs=5 / 200)
    assert noise.var() == pytest.approx(1.0, abs=0.1)
    assert len(np.unique(noise)) == noise.size
    correlations = np.corrcoef(noise.T)[np.triu_indices(100, 1)]
    assert np.abs(correlations).max() < 6 / np.sqrt(400)
