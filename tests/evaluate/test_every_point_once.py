"""g is called at each point of the design, once, and at no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counting import counting_problem

import nestquad as nq
from nestquad.evaluate import Design, Evaluations, Evaluator, Grid, inner_points, outer_points
from nestquad.methods import Goal
from nestquad.points import Sobol, Stream

STREAM = Stream.from_rng(5)
METHODS = {
    "nmc": nq.NMC(n_outer=23, n_inner=17),
    "nqmc": nq.NQMC(n_outer=23, n_inner=17),
    "nkq pool": nq.NKQ(n_outer=23, n_inner=17, sharing=3),
    "nkq shared": nq.NKQ(n_outer=23, n_inner=17, sharing="shared"),
    "nkq independent": nq.NKQ(n_outer=23, n_inner=17, sharing="independent"),
    "nkq native": nq.NKQ(
        n_outer=23, n_inner=17, inner=nq.KernelQuadrature(nq.Matern(1.5), space="native")
    ),
}


def design_points(problem, grid):
    """All (θ, x) of a grid, made in one piece."""
    theta = outer_points(problem, grid, 0, grid.n_outer).theta
    x = inner_points(problem, grid, theta, grid.span).x[..., 0]
    return np.stack(np.broadcast_arrays(theta, x), axis=-1).reshape(-1, 2)


def in_order(points):
    return points[np.lexsort(points.T)]


@pytest.mark.parametrize("chunk_points", [1, 100, 65_536])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_exactly_the_points_of_the_design(method, keep, chunk_points):
    problem, g = counting_problem()
    method = METHODS[method]
    design = method.plan(problem, Goal(STREAM))
    evaluator = Evaluator(problem, keep=keep, chunk_points=chunk_points)
    estimate = method.analyze(Evaluations(evaluator, design)).estimate
    expected = design_points(problem, design.grids[0])
    assert g.n_evaluations == 23 * 17 == design.n_evaluations == evaluator.n_evaluations
    assert estimate.n_evaluations == 23 * 17
    np.testing.assert_array_equal(in_order(g.all_points()), in_order(expected))


@pytest.mark.parametrize("outputs", [1, 2])
def test_growth_evaluates_only_what_is_new(outputs):
    problem, g = counting_problem(outputs)
    evaluator = Evaluator(problem, keep=True, chunk_points=50)
    grid = Grid(8, 4, Sobol(), Sobol(), None, STREAM)
    sizes = [(8, 4), (16, 4), (16, 8), (16, 16), (32, 16), (33, 16), (33, 40)]
    for n_outer, n_inner in sizes:
        grid = replace(grid, n_outer=n_outer, n_inner=n_inner)
        values = Evaluations(evaluator, Design((grid,))).values(n_outer)
        assert values.shape == (n_outer, n_inner, 2)[: 2 + (outputs > 1)]
        assert g.n_evaluations == n_outer * n_inner == evaluator.n_evaluations
    points = design_points(problem, grid)
    np.testing.assert_array_equal(in_order(g.all_points()), in_order(points))
    expected = (np.cos(points[:, 1]) + points[:, 0] * points[:, 1]).reshape(33, 40)
    np.testing.assert_array_equal(values if outputs == 1 else values[..., 0], expected)


@pytest.mark.parametrize("inner", ["dependent", "shared", "sampler"])
def test_a_grown_design_gives_the_same_bits_as_a_fresh_one(inner):
    problem, _ = counting_problem(inner=inner)
    points = "iid" if inner == "sampler" else "sobol"
    small = nq.NQMC(n_outer=8, n_inner=8, inner_points=points)
    large = nq.NQMC(n_outer=32, n_inner=32, inner_points=points)
    grown = Evaluator(problem, keep=True)
    small.analyze(Evaluations(grown, small.plan(problem, Goal(STREAM))))
    after = large.analyze(Evaluations(grown, large.plan(problem, Goal(STREAM)))).estimate
    fresh = large.analyze(
        Evaluations(Evaluator(problem), large.plan(problem, Goal(STREAM)))
    ).estimate
    assert after.value == fresh.value
    assert after.std_error == fresh.std_error
    assert grown.n_evaluations == 32 * 32


def test_tolerance_never_evaluates_a_point_twice():
    problem, g = counting_problem()
    est = nq.estimate(problem, tol=1e-3, budget=20_000, method="nqmc", rng=0)
    points = g.all_points()
    assert len(est.trace) > 2
    assert g.n_evaluations == est.n_evaluations == est.n_outer * est.n_inner
    assert len(np.unique(points, axis=0)) == len(points)
