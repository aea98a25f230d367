"""The regression behind EVPPI: basis, likelihood, posterior and cross-fit against mathematics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal

from nestquad.voi.table._regression import (
    Moments,
    _Objective,
    draw,
    fit,
    regress,
    spline_basis,
)


def moments(basis, y):
    y = y - y.mean()
    return Moments(len(y), basis.gram, basis.columns.T @ y, float(y @ y))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 0] * x[:, 1] + 0.3 * rng.normal(size=300)
    return x, y


def test_curves_are_orthonormal_and_orthogonal_to_the_line():
    x = np.random.default_rng(1).gamma(2.0, size=(4000, 1))
    columns = spline_basis(x).columns
    correlation = columns.T @ columns / len(x)
    # Rows are binned to 100 knots, which is what keeps this from being exact.
    np.testing.assert_allclose(correlation[:6, :6], np.eye(6), atol=0.03)


def test_columns_are_straight_beyond_the_outer_knots():
    columns = spline_basis(np.linspace(0.0, 1.0, 2000)[:, None]).columns
    bends = np.abs(np.diff(columns[:, 1:], n=2, axis=0)).max(axis=1)  # 20 rows to a knot
    assert bends[:8].max() < 1e-8
    assert bends[-8:].max() < 1e-8
    assert bends[8:-8].max() > 1e-5


@pytest.mark.parametrize("d", range(1, 12))
def test_number_of_columns_stays_small(d):
    basis = spline_basis(np.random.default_rng(d).normal(size=(500, d)))
    assert basis.columns.shape[1] == len(basis.terms) <= 400
    assert sum(len(term) == 1 and term[0][1] == 0 for term in basis.terms) == d


def test_a_yes_or_no_parameter_is_a_line():
    x = np.random.default_rng(0).integers(0, 2, size=(200, 1)).astype(float)
    assert spline_basis(x).columns.shape[1] == 1


def test_likelihood_is_that_of_the_normal_law(data):
    x, y = data
    basis = spline_basis(x[:60])
    y = y[:60] - y[:60].mean()
    objective = _Objective(moments(basis, y), basis.scales)
    logs = np.linspace(-3.0, 0.0, basis.scales.powers.shape[1] + 1)
    prior = np.exp(basis.scales.constant + basis.scales.powers @ logs[:-1])
    covariance = basis.columns * prior @ basis.columns.T + np.exp(logs[-1]) * np.eye(60)
    exact = -multivariate_normal(cov=covariance).logpdf(y) - 30 * np.log(2 * np.pi)
    penalty = 5.0 * np.exp(0.5 * logs[: basis.scales.powers.shape[1] - 3]).sum()
    assert objective(logs)[0] == pytest.approx(exact + penalty, rel=1e-9)


def test_gradient(data):
    x, y = data
    basis = spline_basis(x)
    objective = _Objective(moments(basis, y), basis.scales)
    at = np.linspace(-2.0, 0.5, basis.scales.powers.shape[1] + 1)
    error = check_grad(lambda t: objective(t)[0], lambda t: objective(t)[1], at)
    assert error < 1e-4 * np.linalg.norm(objective(at)[1])


def test_influence_is_that_of_the_linear_smoother(data):
    """The mean of weights × fitted values moves by smoothed weights × changes of the outputs."""
    x, y = data
    rng = np.random.default_rng(0)
    found = regress(y[:, None], x, rng)
    weights, [one] = rng.normal(size=(len(y), 1)), found.fits
    b = found.basis.columns
    used = one.prior * np.diagonal(found.basis.gram) / one.noise > 1e-5
    inner = found.basis.gram[np.ix_(used, used)] + np.diag(one.noise / one.prior[used])
    hat = b[:, used] @ np.linalg.solve(inner, b[:, used].T) + 1 / len(y)
    np.testing.assert_allclose(hat @ y, found.fitted[:, 0], rtol=1e-6, atol=1e-8)
    exact = (hat.T @ weights[:, 0]) * (y - found.fitted[:, 0])
    np.testing.assert_allclose(found.influence(weights), exact, rtol=1e-6, atol=1e-8)


def test_posterior_draws_have_the_posterior_mean_and_covariance(data):
    x, y = data
    basis = spline_basis(x[:, :1])
    sums = moments(basis, y)
    found = fit(sums, basis.scales)
    p = len(basis.terms)
    center = draw(found, sums, np.zeros(p), np.zeros((p, 1)))
    np.testing.assert_allclose(center[:, 0], found.coefficients, atol=1e-9)
    drawn = draw(found, sums, np.zeros(p), np.eye(p)) - center
    covariance = drawn @ drawn.T
    precision = basis.gram / found.noise + np.diag(1 / found.prior)
    exact = np.linalg.inv(precision) * found.scale**2
    np.testing.assert_allclose(covariance, exact, atol=1e-6 * exact.max())
    right = basis.columns.T @ (y - y.mean()) / found.noise
    np.testing.assert_allclose(
        found.coefficients, exact @ right / found.scale**2, atol=1e-6 * abs(right).max()
    )


def test_fit_finds_what_is_there_and_nothing_else(data):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3000, 4))
    truth = np.sin(2 * x[:, 0]) + 0.5 * x[:, 0] * x[:, 1]
    y = (truth + rng.normal(size=3000))[:, None]
    found = regress(y, x, np.random.default_rng(0))
    assert np.sqrt(np.mean((found.fitted[:, 0] - truth) ** 2)) < 0.15
    lines, curves = np.exp(found.fits[0].logs[:4]), np.exp(found.fits[0].logs[4:8])
    assert max(lines[2:].max(), curves[2:].max()) < 1e-3


def test_held_out_means_and_fits_do_not_see_their_rows():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 1)), rng.normal(size=(200, 1))
    before = regress(y, x, np.random.default_rng(0))
    row = 17
    y[row] += 100.0
    after = regress(y, x, np.random.default_rng(0))
    assert after.held_out[row, 0] == pytest.approx(before.held_out[row, 0], abs=1e-2)
    assert after.held_out_means[row, 0] == pytest.approx(before.held_out_means[row, 0])
    assert abs(after.held_out - before.held_out).max() > 0.1


def test_held_out_fit_is_the_fit_without_those_rows(data):
    x, y = data
    found = regress(y[:, None], x[:, :2], np.random.default_rng(5))
    fold = np.random.default_rng(5).permutation(300) % 5
    rest = fold != 2
    basis = spline_basis(x[:, :2])
    columns = basis.columns[rest] - basis.columns[rest].mean(axis=0)
    target = y[rest] - y[rest].mean()
    one = fit(
        Moments(rest.sum(), columns.T @ columns, columns.T @ target, float(target @ target)),
        basis.scales,
        found.fits[0].logs,
        tolerance=1e-2,
    )
    predicted = y[rest].mean() + (basis.columns[~rest] - basis.columns[rest].mean(0)) @ (
        one.coefficients
    )
    np.testing.assert_allclose(found.held_out[~rest, 0], predicted, atol=1e-4)


def test_constant_output():
    x = np.random.default_rng(0).normal(size=(100, 2))
    found = regress(np.full((100, 1), 3.0), x, np.random.default_rng(0))
    np.testing.assert_array_equal(found.fitted, 3.0)
    assert all(np.all(one == 3.0) for one in found.draws(3, np.random.default_rng(0)))
