"""Which θ sees which x."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq
from nestquad.evaluate import Grid, Span, inner_points, outer_points
from nestquad.points import IID, Given, Lattice, Sobol, Stream

STREAM = Stream.from_rng(2)
DEPENDENT = nq.NestedExpectation(
    nq.Uniform(), lambda theta: nq.Normal(theta, 1.0 + theta), lambda x, theta: x[..., 0]
)
SEQUENCES = [IID(), Sobol(), Lattice(log2_max=6)]


def grid_of(inner, n_sets, n_outer=12, n_inner=8):
    return Grid(n_outer, n_inner, Sobol(), inner, n_sets, STREAM)


def normals_behind(grid):
    theta = outer_points(DEPENDENT, grid, 0, grid.n_outer).theta
    x = inner_points(DEPENDENT, grid, theta, grid.span).x
    return (x[..., 0] - theta) / (1.0 + theta)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_shared_points_are_the_same_noise_for_every_theta(sequence):
    noise = normals_behind(grid_of(sequence, 1))
    np.testing.assert_allclose(noise, np.broadcast_to(noise[0], noise.shape), atol=1e-12)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_pool_is_taken_in_turn(sequence):
    noise = normals_behind(grid_of(sequence, 5))
    for t in range(12):
        np.testing.assert_allclose(noise[t], noise[t % 5], atol=1e-12)
    assert len(np.unique(noise[:5].round(9))) == 40


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_independent_sets_are_all_different(sequence):
    noise = normals_behind(grid_of(sequence, None))
    assert len(np.unique(noise.round(9))) == noise.size


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("n_sets", [None, 1, 5])
def test_parts_of_a_grid_are_parts(sequence, n_sets):
    grid = grid_of(sequence, n_sets)
    theta = outer_points(DEPENDENT, grid, 0, 12).theta
    whole = inner_points(DEPENDENT, grid, theta, grid.span).x
    part = inner_points(DEPENDENT, grid, theta[3:9], Span(3, 9, 2, 7)).x
    np.testing.assert_array_equal(part, whole[3:9, 2:7])
    np.testing.assert_array_equal(outer_points(DEPENDENT, grid, 3, 9).theta, theta[3:9])


def test_a_law_without_theta_is_one_set_of_points():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Normal(2.0), lambda x, theta: x[..., 0])
    design = nq.NKQ(n_outer=20, n_inner=16).plan(problem, nq.methods.Goal(STREAM))
    (grid,) = design.grids
    assert grid.n_sets == 1
    theta = outer_points(problem, grid, 0, 20).theta
    assert inner_points(problem, grid, theta, grid.span).x.shape == (1, 16, 1)


@pytest.mark.parametrize("shared", [True, False])
def test_given_uniforms_are_transported(shared):
    uniforms = np.random.default_rng(0).random((8, 1) if shared else (12, 8, 1))
    noise = normals_behind(grid_of(Given(uniforms), 1 if shared else None))
    from scipy.special import ndtri

    np.testing.assert_allclose(noise, np.broadcast_to(ndtri(uniforms)[..., 0], (12, 8)), atol=1e-12)


def test_given_native_points_are_used_as_they_are():
    points = np.random.default_rng(0).normal(size=(12, 8, 1))
    grid = grid_of(Given(points, space="native"), None)
    theta = outer_points(DEPENDENT, grid, 0, 12).theta
    result = inner_points(DEPENDENT, grid, theta, grid.span)
    np.testing.assert_array_equal(result.x, points)
    assert result.uniform is None


def test_given_outer_points():
    uniforms = np.random.default_rng(1).random((6, 1))
    values = -np.log(np.random.default_rng(2).random((6, 1)))
    problem = nq.NestedExpectation(
        nq.LogNormal(0.0, 0.5), nq.Uniform(), lambda x, theta: theta[..., 0] + x[..., 0]
    )
    for points, expected in (
        (Given(uniforms), problem.outer_law.from_uniform(uniforms)),
        (Given(values, space="native"), values),
    ):
        est = nq.estimate(problem, method=nq.NMC(outer_points=points, n_inner=4), rng=0)
        np.testing.assert_array_equal(est.sample.theta, expected)
        assert est.n_outer == 6


def test_levels_and_stages_have_points_of_their_own():
    grids = [Grid(64, 64, IID(), IID(), None, STREAM, level) for level in (0, 1)]
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), lambda x, theta: x[..., 0])
    theta = [outer_points(problem, grid, 0, 64).theta for grid in grids]
    x = [inner_points(problem, g, t, g.span).x for g, t in zip(grids, theta, strict=True)]
    everything = np.concatenate([np.ravel(a) for a in (*theta, *x)])
    assert len(np.unique(everything)) == everything.size


def test_a_sampler_with_shared_points_repeats_its_noise():
    problem = nq.NestedExpectation(
        nq.Uniform(),
        lambda theta: nq.Sampler(
            lambda n, rng: theta[:, None] + rng.standard_normal((len(theta), n, 1)), dim=1
        ),
        lambda x, theta: x[..., 0],
    )
    for n_sets in (1, 3):
        grid = Grid(7, 20, IID(), IID(), n_sets, STREAM)
        theta = outer_points(problem, grid, 0, 7).theta
        noise = inner_points(problem, grid, theta, grid.span).x[..., 0] - theta
        np.testing.assert_allclose(noise, noise[np.arange(7) % n_sets], atol=1e-12)


class WritesToItsInput(nq.distributions.Law):
    dim = base_dim = 1

    def _from_uniform(self, u):
        u *= 0.5
        return u


@pytest.mark.parametrize("role", ["outer", "inner"])
def test_a_law_that_writes_to_its_input_cannot_spoil_the_points(role):
    # The same uniforms are nodes of the rule and are kept for the next chunk.
    laws = {"outer": nq.Uniform(), "inner": nq.Uniform(), role: WritesToItsInput()}
    problem = nq.NestedExpectation(
        laws["outer"], laws["inner"], lambda x, theta: x[..., 0] + theta[..., 0]
    )
    with pytest.raises(ValueError, match="read-only"):
        nq.estimate(problem, budget=1000, rng=0)
