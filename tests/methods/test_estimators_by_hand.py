"""NMC, NQMC and NKQ against their formulas on the same points."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import finish, leave_one_out, points_of, schedule, values_of, weights
from scipy.spatial.distance import pdist
from scipy.special import ndtri

import nestquad as nq

PROBLEMS = ["synthetic", "finance", "health", "rainforth", "eig-linear"]


@pytest.mark.parametrize("method", [nq.NMC(9, 7), nq.NQMC(16, 8), nq.NMC(9, 7, sharing="shared")])
@pytest.mark.parametrize("name", PROBLEMS)
def test_equal_weights_are_a_double_loop(name, method):
    problem = nq.problems.get(name)
    theta, _, x, _ = points_of(problem, method, seed=4)
    j = values_of(problem, theta, x).mean(axis=1)
    expected = finish(problem, j, np.full(len(theta), 1 / len(theta)))
    est = nq.estimate(problem, method=method, rng=4)
    assert est.value == pytest.approx(np.squeeze(expected), rel=1e-11)
    np.testing.assert_allclose(est.sample.theta, theta)
    np.testing.assert_allclose(est.sample.j.reshape(j.shape), j, rtol=1e-11)


INNER, OUTER = nq.Matern(1.5, 0.4), nq.Matern(2.5, 0.6)


@pytest.mark.parametrize("sharing", ["shared", "independent", 3])
@pytest.mark.parametrize("lam", [1e-4, 1e-7])
@pytest.mark.parametrize("name", ["synthetic", "finance", "rainforth"])
def test_nkq_on_uniforms_is_the_papers_equation(name, lam, sharing):
    problem, cube = nq.problems.get(name), nq.Uniform()
    method = nq.NKQ(
        14,
        10,
        sharing=sharing,
        inner=nq.KernelQuadrature(INNER, "uniform", "fixed", lam),
        outer=nq.KernelQuadrature(OUTER, "uniform", "fixed", lam, exact="none"),
    )
    theta, v, x, u = points_of(problem, method, seed=2)
    values = values_of(problem, theta, x)
    j = np.array(
        [weights(INNER, cube, u[t], lam, exact_constant=True) @ values[t] for t in range(14)]
    )
    expected = finish(problem, j, weights(OUTER, cube, v, lam))
    est = nq.estimate(problem, method=method, rng=2)
    assert est.value == pytest.approx(np.squeeze(expected), rel=1e-9)


@pytest.mark.parametrize("name", ["finance", "rainforth"])
def test_nkq_on_normals(name):
    problem, line = nq.problems.get(name), nq.Normal()
    method = nq.NKQ(
        12,
        10,
        sharing="shared",
        inner=nq.KernelQuadrature(INNER, "normal", "fixed", 1e-4),
        outer=nq.KernelQuadrature(OUTER, "normal", "fixed", 1e-4),
    )
    theta, v, x, u = points_of(problem, method, seed=2)
    w = weights(INNER, line, ndtri(u[0]), 1e-4, exact_constant=True)
    j = np.einsum("n,tnp->tp", w, values_of(problem, theta, x))
    outer = weights(OUTER, line, ndtri(v), 1e-4, exact_constant=True)
    est = nq.estimate(problem, method=method, rng=2)
    assert est.value == pytest.approx(np.squeeze(finish(problem, j, outer)), rel=1e-9)


def test_nkq_on_native_space_uses_the_embedding_of_each_law():
    problem = nq.NestedExpectation(
        nq.Normal(1.0, 0.5),
        lambda theta: nq.Normal(theta, 0.5 + theta**2),
        lambda x, theta: np.sin(x[..., 0]) * theta[..., 0],
        np.square,
    )
    method = nq.NKQ(
        11,
        9,
        inner=nq.KernelQuadrature(INNER, "native", "fixed", 1e-4),
        outer=nq.KernelQuadrature(OUTER, "native", "fixed", 1e-4),
    )
    theta, _, x, _ = points_of(problem, method, seed=3)
    values = values_of(problem, theta, x)
    j = np.array(
        [
            weights(INNER, nq.Normal(m, 0.5 + m**2), x[t], 1e-4, exact_constant=True) @ values[t]
            for t, m in enumerate(theta[:, 0])
        ]
    )
    outer = weights(OUTER, nq.Normal(1.0, 0.5), theta, 1e-4, exact_constant=True)
    est = nq.estimate(problem, method=method, rng=3)
    assert est.value == pytest.approx(np.squeeze(finish(problem, j, outer)), rel=1e-9)


@pytest.mark.parametrize("lengthscale", ["fixed", "median", "likelihood"])
def test_native_and_transported_space_agree_where_the_transport_is_the_identity(lengthscale):
    problem = nq.problems.synthetic()
    values = []
    for space in ("uniform", "native"):
        recipe = nq.KernelQuadrature(nq.Matern(1.5, 0.5), space, lengthscale)
        method = nq.NKQ(24, 16, sharing="independent", inner=recipe, outer=recipe)
        values.append(nq.estimate(problem, method=method, rng=0))
    assert values[0].value == pytest.approx(values[1].value, rel=1e-12)
    assert values[0].std_error == pytest.approx(values[1].std_error, rel=1e-9)


def test_native_and_normal_space_agree_for_standard_normals():
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: np.cos(x[..., 0] - theta[..., 0]), np.square
    )
    values = []
    for space in ("normal", "native"):
        recipe = nq.KernelQuadrature(nq.Gaussian(1.0), space, "fixed")
        method = nq.NKQ(20, 12, sharing="independent", inner=recipe, outer=recipe)
        values.append(nq.estimate(problem, method=method, rng=0).value)
    assert values[0] == pytest.approx(values[1], rel=1e-9)


# The paper to the letter


def published(problem, method, seed):
    """Both stages by np.linalg.solve: median lengthscales, schedule, λ_0, standardisation."""
    theta, v, x, u = points_of(problem, method, seed)
    values = values_of(problem, theta, x)
    s_x, s_theta = problem.smoothness
    cube, grid = nq.Uniform(dim=u.shape[-1]), (0.01, 0.1, 1.0)

    def kernel(s, lengthscale):
        return nq.Matern(s - 0.5, lengthscale)

    def lambdas(k, n, d):
        return [schedule(lambda0, n, k.smoothness(d), d) for lambda0 in grid]

    n, d_x = u.shape[1:]
    first = kernel(s_x, np.median(pdist(u[0])))
    losses = [
        sum(leave_one_out(first, u[t], values[t], lam) for t in range(4))
        for lam in lambdas(first, n, d_x)
    ]
    lam = lambdas(first, n, d_x)[int(np.argmin(losses))]
    j = np.array(
        [
            weights(kernel(s_x, np.median(pdist(u[t]))), cube, u[t], lam, standardize=True)
            @ values[t]
            for t in range(len(theta))
        ]
    )
    f = problem.f(j)
    outer = kernel(s_theta, np.median(pdist(v)))
    losses = [leave_one_out(outer, v, f, a) for a in lambdas(outer, len(v), v.shape[1])]
    lam = lambdas(outer, len(v), v.shape[1])[int(np.argmin(losses))]
    return float(weights(outer, nq.Uniform(dim=v.shape[1]), v, lam, standardize=True) @ f[:, 0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("points", ["iid", "sobol"])
@pytest.mark.parametrize(
    "problem",
    [nq.problems.synthetic(), nq.problems.synthetic(2), nq.problems.finance()],
    ids=lambda problem: problem.name,
)
def test_as_published_is_the_paper(problem, points, seed):
    method = nq.NKQ.as_published(problem, n_outer=20, n_inner=15, points=points)
    est = nq.estimate(problem, method=method, rng=seed)
    assert est.value == pytest.approx(published(problem, method, seed), rel=1e-9)


def test_as_published_takes_kernels_from_the_smoothness():
    assert nq.NKQ.as_published(nq.problems.synthetic()).inner.kernel == nq.Matern(1.5)
    assert nq.NKQ.as_published(nq.problems.finance()).outer.kernel == nq.Matern(0.5)
    health = nq.NKQ.as_published(nq.problems.health())
    assert isinstance(health.inner.kernel, nq.Gaussian)
    assert [recipe.kernel for recipe in health.outer] == [
        nq.Matern(0.5),
        nq.Gaussian(),
        nq.Gaussian(),
    ]
    assert nq.NKQ.as_published().inner.regularization == nq.Schedule((0.01, 0.1, 1.0))


# Several outputs and answers


def several(combine=None):
    def g(x, theta):
        x, theta = x[..., 0], theta[..., 0]
        return np.stack(np.broadcast_arrays(x + theta, x * theta, np.exp(x) - theta), axis=-1)

    def f(j):
        return np.stack([j.max(axis=-1), j[:, 0] ** 2], axis=-1)

    return nq.NestedExpectation(nq.Uniform(), nq.Uniform(0.0, 2.0), g, f, combine=combine)


@pytest.mark.parametrize("method", [nq.NMC(20, 6), nq.NQMC(16, 8), nq.NKQ(16, 8)])
def test_several_outputs_and_answers(method):
    problem = several()
    est = nq.estimate(problem, method=method, rng=1)
    assert est.value.shape == est.std_error.shape == (2,)
    assert est.covariance.shape == (2, 2)
    np.testing.assert_allclose(np.sqrt(np.diagonal(est.covariance)), est.std_error)
    assert est.sample.j.shape == (method.n_outer, 3)
    j, w = est.sample.j, est.sample.weights
    np.testing.assert_allclose(est.value, (w * problem.f(j)).sum(axis=0), rtol=1e-12)
    if method.name != "nkq":
        theta, _, x, _ = points_of(problem, method, seed=1)
        np.testing.assert_allclose(j, values_of(problem, theta, x).mean(axis=1))
        np.testing.assert_allclose(est.value, problem.f(j).mean(axis=0))


@pytest.mark.parametrize("method", [nq.NMC(200, 20), nq.NKQ(32, 16)])
def test_combine_is_applied_to_the_expectations_and_to_their_errors(method):
    both = nq.estimate(several(), method=method, rng=1)
    for combine, slope in (
        (lambda answers: answers[1] - 2 * answers[0], np.array([-2.0, 1.0])),
        (lambda answers: 10 * answers[0], np.array([10.0, 0.0])),
        (lambda answers: answers[0] / answers[1], None),
    ):
        one = nq.estimate(several(combine), method=method, rng=1)
        assert one.value == pytest.approx(combine(both.value), rel=1e-12)
        assert isinstance(one.value, float)
        np.testing.assert_allclose(one.diagnostics["answers"], both.value, rtol=1e-12)
        if slope is not None and method.name == "nmc":
            # Linear maps carry covariances along exactly.
            variance = slope @ both.covariance @ slope
            assert one.std_error == pytest.approx(np.sqrt(variance), rel=1e-6)


def test_a_recipe_for_each_answer():
    problem = several()
    recipes = (
        nq.KernelQuadrature(nq.Matern(0.5, 0.3), "uniform", "fixed", 1e-5, exact="none"),
        nq.KernelQuadrature(nq.Matern(2.5, 0.8), "uniform", "fixed", 1e-5, exact="none"),
    )
    method = nq.NKQ(16, 8, outer=recipes)
    est = nq.estimate(problem, method=method, rng=1)
    _, v, _, _ = points_of(problem, method, seed=1)
    f = problem.f(est.sample.j)
    for k, recipe in enumerate(recipes):
        w = weights(recipe.kernel, nq.Uniform(), v, 1e-5)
        np.testing.assert_allclose(est.sample.weights[:, k], w, atol=1e-9)
        assert est.value[k] == pytest.approx(w @ f[:, k], rel=1e-8)
    with pytest.raises(nq.InputError, match="2 recipes for 1 answers"):
        nq.estimate(nq.problems.synthetic(), method=method, rng=1)


def test_f_is_the_identity_by_default():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), lambda x, t: x[..., 0] * t[..., 0])
    assert nq.estimate(problem, budget=1000, rng=0).value == pytest.approx(0.25, abs=1e-4)


def test_a_law_of_three_coordinates():
    problem = nq.NestedExpectation(
        nq.Uniform(dim=2),
        lambda theta: nq.Independent(
            nq.Normal(theta[:, :1], 0.1), nq.Uniform(theta[:, 1:], 2.0), nq.LogNormal(0.0, 0.1)
        ),
        lambda x, theta: x[..., 0] + x[..., 1] * x[..., 2],
    )
    # E x0 = θ0; E x1 = 1 + θ1/2; E x2 = exp(0.005)
    truth = 0.5 + 1.25 * np.exp(0.005)
    for method in ("nmc", "nqmc", "nkq"):
        est = nq.estimate(problem, budget=20_000, method=method, rng=0)
        assert abs(est.value - truth) < 4 * est.std_error + 1e-12
        assert est.value == pytest.approx(truth, abs=0.02)


def test_scipy_laws_as_they_are():
    from scipy import stats

    problem = nq.NestedExpectation(
        outer=(stats.uniform(0, 1), stats.gamma(3.0)),
        inner=lambda theta: stats.expon(scale=theta[:, 1]),
        g=lambda x, theta: x[..., 0] * theta[..., 0],
    )
    for method in ("nmc", "nqmc", "nkq"):  # E = ½ · 3
        est = nq.estimate(problem, budget=30_000, method=method, rng=0)
        assert abs(est.value - 1.5) < max(5 * est.std_error, 0.03)
