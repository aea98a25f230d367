"""The protocol that models of J share: means, control variates, paths, groups, replicates."""

import numpy as np
import pytest

import nestquad as nq
from nestquad.methods import ModelOfJ
from nestquad.points import Stream


def two_outputs():
    """J = (exp(θ₁ + ½), θ₁ θ₂): smooth, and with noise in x that is explained by x."""
    return nq.NestedExpectation(
        nq.Normal(np.zeros(2), 0.5),
        nq.Normal(np.zeros(2)),
        lambda x, theta: np.stack(
            [
                np.exp(theta[..., 0] + x[..., 0]),
                theta[..., 0] * theta[..., 1] + x[..., 1] + 0.0 * x[..., 0],
            ],
            axis=-1,
        ),
    )


def exact_j(uniform):
    theta = nq.Normal(np.zeros(2), 0.5).from_uniform(uniform)
    return np.stack([np.exp(theta[:, 0] + 0.5), theta[:, 0] * theta[:, 1]], axis=1)


@pytest.fixture(scope="module", params=["ckq", "joint", "lsmc"])
def model(request) -> ModelOfJ:
    return nq.conditional(two_outputs(), budget=1500, method=request.param, rng=0).model


def test_means_are_near_the_truth(model):
    u = 0.05 + 0.9 * np.random.default_rng(0).random((200, 2))
    error = model.mean(u) - exact_j(u)
    assert np.sqrt(np.mean(error**2)) < 0.1


def test_the_mean_over_x_of_the_control_variate_is_the_mean(model):
    u = np.repeat(0.1 + 0.8 * np.random.default_rng(1).random((5, 2)), 4096, axis=0)
    v = nq.Sobol().uniforms(Stream.from_rng(0), 2, (0, 1), (0, 4096))[0]
    inner = np.clip(np.tile(v, (5, 1)), 1e-9, 1 - 1e-9)
    found = model.at(u, inner).reshape(5, 4096, 2).mean(axis=1)
    np.testing.assert_allclose(found, model.mean(u[::4096]), atol=0.03)


def test_the_control_variate_explains_g(model):
    problem, rng = two_outputs(), np.random.default_rng(2)
    u, v = rng.random((500, 2)), rng.random((500, 2))
    theta = problem.outer_law.from_uniform(u)
    g = problem.g(problem.inner_law(theta).from_uniform(v[:, None])[:, 0], theta)
    assert (np.var(g - model.at(u, v), axis=0) < 0.3 * np.var(g, axis=0)).all()


def test_paths_scatter_about_the_mean_by_the_standard_deviation(model):
    paths = model.paths(200, np.random.default_rng(3))
    sketch = model.sketch
    assert paths.errors.shape == (200, *sketch.j.shape)
    scatter = np.median(np.sqrt(np.mean(paths.errors**2, axis=0)), axis=0)
    claimed = np.median(model.sd(sketch.uniform), axis=0)
    assert (scatter <= 3 * claimed + 1e-8).all()
    assert (claimed <= 10 * scatter + 1e-3).all()


def test_replicates_integrate_moments_of_theta(model):
    parts = list(model.replicates(3, 12, Stream.from_rng(0)))
    u, weights, owner = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("uniform", "weights", "owner")
    )
    for r in range(3):
        w = weights[owner == r] / weights[owner == r].sum()
        np.testing.assert_allclose(w @ u[owner == r], 0.5, atol=1e-3)
        np.testing.assert_allclose(w @ u[owner == r] ** 2, 1.0 / 3.0, atol=1e-3)
    np.testing.assert_allclose(model.mean(u[:10]), parts[0].j[:10], atol=1e-6)
