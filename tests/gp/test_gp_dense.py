"""The surrogate against linear algebra written out, brute-force refits and finite differences."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from nestquad.gp import (
    Correlation,
    Hyperparameters,
    PolynomialTrend,
    RestrictedLikelihood,
    SurrogateKind,
    first_kinds,
    fit_gp,
    fit_surrogate,
    near_kinds,
    trends,
)

CONSTANT, LINEAR, QUADRATIC = PolynomialTrend(0), PolynomialTrend(1), PolynomialTrend(2)

CORRELATIONS = [
    Correlation("gaussian"),
    Correlation("matern52"),
    Correlation("matern52", additive=True),
    Correlation("gaussian", additive=True),
]


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    z = rng.standard_normal((18, 2))
    y = np.sin(z[:, 0]) + 0.3 * z[:, 1] ** 2 + 0.02 * rng.standard_normal(18) + 5.0
    return z, y


def explicit(gp, z_new):
    """Universal kriging by np.linalg.solve, on the scale that the model uses."""
    level, spread = gp.y.mean(), gp.y.std()
    p = gp.parameters
    noise = p.noise * gp.noise_shape + 1e-13 * p.signal
    cov = p.signal * gp.correlation(gp.z, gp.z, p.lengthscale) + np.diag(noise)
    cross = p.signal * gp.correlation(gp.z, z_new, p.lengthscale)
    reach = np.abs(gp.z).max()
    h, h_new = gp.trend.matrix(gp.z / reach), gp.trend.matrix(z_new / reach)
    inv = np.linalg.inv(cov)
    small = np.linalg.inv(h.T @ inv @ h)
    y = (gp.y - level) / spread
    beta = small @ h.T @ inv @ y
    mean = level + spread * (h_new @ beta + cross.T @ inv @ (y - h @ beta))
    rest = h_new.T - h.T @ inv @ cross
    prior = p.signal * gp.correlation(z_new, z_new, p.lengthscale)
    return mean, spread**2 * (prior - cross.T @ inv @ cross + rest.T @ small @ rest)


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("trend", [CONSTANT, LINEAR, QUADRATIC, PolynomialTrend(3, additive=True)])
def test_predictions_equal_universal_kriging(data, correlation, trend):
    z, y = data
    fitted = fit_gp(correlation, trend, z, y, noise_guess=4e-4)
    # Far from singular, so that an explicit inverse is a fair judge.
    gp = replace(fitted, parameters=Hyperparameters(np.array([0.9, 1.6]), 1.3, 0.02))
    new = np.random.default_rng(0).standard_normal((7, 2))
    mean, covariance = explicit(gp, new)
    np.testing.assert_allclose(gp.mean(new), mean, rtol=1e-9)
    np.testing.assert_allclose(gp.covariance(new), covariance, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(gp.sd(new) ** 2, np.diagonal(covariance), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_the_likelihood_has_the_gradient_it_claims(data, correlation):
    z, y = data
    scaled = (y - y.mean()) / y.std()
    shape = np.linspace(0.5, 2.0, y.size)
    loss = RestrictedLikelihood(correlation, z, scaled, LINEAR.matrix(z), shape, np.log(1e-3))
    at = np.log([0.8, 1.7, 1.3, 0.01])
    numeric = approx_fprime(at, lambda v: loss(v)[0], 1e-6)
    np.testing.assert_allclose(loss(at)[1], numeric, rtol=2e-4, atol=2e-4)


def test_leave_one_out_equals_refits(data):
    z, y = data
    gp = fit_gp(Correlation("matern52"), LINEAR, z, y, noise_guess=4e-4)
    mean, sd = gp.leave_one_out
    level, spread = y.mean(), y.std()
    for i in range(len(y)):
        keep = np.arange(len(y)) != i
        # The refit keeps the hyperparameters, which are relative to the spread of all the data.
        scale = spread / y[keep].std()
        p = gp.parameters
        same = Hyperparameters(p.lengthscale, p.signal * scale**2, p.noise * scale**2)
        refit = replace(gp, z=z[keep], y=y[keep], noise_shape=gp.noise_shape[keep], parameters=same)
        assert refit.mean(z[i : i + 1])[0] == pytest.approx(mean[i], abs=1e-6 * abs(level))
        variance = refit.sd(z[i : i + 1])[0] ** 2 + spread**2 * p.noise * gp.noise_shape[i]
        assert np.sqrt(variance) == pytest.approx(sd[i], rel=1e-3)


def test_the_covariance_of_another_design_is_that_of_a_model_with_it(data):
    z, y = data
    gp = fit_gp(Correlation("gaussian"), LINEAR, z, y, noise_guess=4e-4)
    more = np.concatenate([z, np.random.default_rng(5).standard_normal((9, 2))])
    new = np.zeros((1, 2))
    values = np.concatenate([y, np.full(9, y.mean())])
    p, ratio = gp.parameters, (y.std() / values.std()) ** 2
    same = Hyperparameters(p.lengthscale, p.signal * ratio, p.noise * ratio)
    other = replace(gp, z=more, y=values, noise_shape=np.ones(len(more)), parameters=same)
    assert gp.covariance(new, design=more)[0, 0] == pytest.approx(
        other.covariance(new)[0, 0], rel=1e-5
    )


def test_noise_is_found(data):
    rng = np.random.default_rng(8)
    z = rng.standard_normal((80, 1))
    noise = 0.05
    y = np.sin(1.5 * z[:, 0]) + noise * rng.standard_normal(80)
    gp = fit_gp(Correlation("matern52"), CONSTANT, z, y, noise_guess=noise**2)
    assert gp.noise_sd.mean() == pytest.approx(noise, rel=0.35)
    new = np.linspace(-1.5, 1.5, 200)[:, None]
    error = np.sqrt(np.mean((gp.mean(new) - np.sin(1.5 * new[:, 0])) ** 2))
    assert error < noise / 1.5


def test_constants_need_no_optimizer():
    z = np.linspace(-1, 1, 8)[:, None]
    gp = fit_gp(Correlation("gaussian"), CONSTANT, z, np.full(8, 3.25))
    np.testing.assert_allclose(gp.mean(np.array([[0.3]])), 3.25)


def test_log_surrogates_stay_positive_and_score_on_the_scale_of_j():
    z = np.linspace(-2, 2, 14)[:, None]
    j = np.exp(-2.0 * z**2)
    change = 1e-4 * j
    log_kind = SurrogateKind("gaussian", QUADRATIC, logarithm=True)
    surrogate = fit_surrogate(log_kind, z, j, change)
    new = np.linspace(-3, 3, 50)[:, None]
    assert (surrogate.mean(new) > 0).all()
    np.testing.assert_allclose(surrogate.mean(new), np.exp(-2.0 * new**2), rtol=0.05)
    plain = fit_surrogate(SurrogateKind("gaussian", QUADRATIC), z, j, change)
    assert surrogate.log_predictive_density(j) > plain.log_predictive_density(j)


def test_paths_have_the_posterior_moments(data):
    z, y = data
    surrogate = fit_surrogate(
        SurrogateKind("matern52", CONSTANT), z, y[:, None], np.full((18, 1), 0.02)
    )
    new = np.array([[0.0, 0.0], [1.5, -1.5]])
    paths = surrogate.paths(new, 4000, np.random.default_rng(0))[:, :, 0]
    np.testing.assert_allclose(paths.mean(0), surrogate.mean(new)[:, 0], atol=0.02)
    expected = surrogate.scale[0] ** 2 * surrogate.outputs[0].covariance(new)
    scale = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
    np.testing.assert_allclose(np.cov(paths.T) / scale, expected / scale, atol=0.08)


def test_other_values_through_the_same_model(data):
    z, y = data
    gp = fit_gp(Correlation("matern52"), LINEAR, z, y, noise_guess=4e-4)
    new = np.random.default_rng(1).standard_normal((5, 2))
    both = gp.means(new, np.stack([y, 3.0 * y + 1.0], axis=1))
    np.testing.assert_allclose(both[:, 0], gp.mean(new), rtol=1e-9)
    np.testing.assert_allclose(both[:, 1], 3.0 * gp.mean(new) + 1.0, rtol=1e-9)


def test_given_noise_is_kept_and_enters_point_by_point(data):
    # Heteroskedastic regression written out: cov + diag(variance), no nugget of its own.
    z, y = data
    variance = np.linspace(1e-3, 0.2, y.size)
    gp = fit_gp(Correlation("matern52"), CONSTANT, z, y, noise_variance=variance)
    np.testing.assert_allclose(gp.noise_sd**2, variance, rtol=1e-9)
    new = np.random.default_rng(2).standard_normal((6, 2))
    mean, covariance = explicit(gp, new)
    np.testing.assert_allclose(gp.mean(new), mean, rtol=1e-7)
    np.testing.assert_allclose(gp.covariance(new), covariance, rtol=1e-5, atol=1e-8)


def test_additive_predictions_at_many_points_equal_those_at_few():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((40, 5))
    y = np.sin(z).sum(axis=1) + z[:, 0] ** 2
    gp = fit_gp(Correlation("matern52", additive=True), LINEAR, z, y, noise_guess=1e-8)
    many = rng.standard_normal((3000, 5))
    few = np.concatenate([gp.mean(part) for part in np.array_split(many, 30)])
    np.testing.assert_allclose(gp.mean(many), few, atol=1e-7 * y.std())


@pytest.mark.parametrize(
    "trend", [CONSTANT, LINEAR, QUADRATIC, PolynomialTrend(4), PolynomialTrend(3, additive=True)]
)
@pytest.mark.parametrize("dim", [1, 3])
def test_trend_sizes(dim, trend):
    z = np.random.default_rng(0).uniform(-1, 1, (80, dim))
    matrix = trend.matrix(z)
    assert matrix.shape == (80, trend.size(dim))
    expected = 1 + dim * trend.degree if trend.additive and dim == 1 else trend.size(dim)
    assert np.linalg.matrix_rank(matrix) == expected


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_kinds_are_within_what_the_points_can_tell(dim):
    for kind in first_kinds(dim, 40, positive=True):
        assert kind.trend in trends(dim, 40)
        for near in near_kinds(kind, dim, 40):
            assert near != kind
            assert near.trend.size(dim) < 40
