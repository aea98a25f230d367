"""Ridge: penalized normal equations, cross-validation, deletion of points, choice of scores."""

import numpy as np
import pytest
from scipy.special import ndtri

from nestquad.points import PeriodicLattice, Stream
from nestquad.regression import Regression, ScoreTable, ridge, ridge_terms, total_degree_terms

PENALTIES = np.logspace(-9.0, 1.0, 31)
TERMS = tuple(total_degree_terms(2, 3))


def data(n, seed=0, noise=0.3):
    """A smooth function of two uniforms with noise, and uneven weights of mean one."""
    rng = np.random.default_rng(seed)
    u = rng.random((n, 2))
    values = 5.0 + np.exp(u[:, 0]) * np.sin(3.0 * u[:, 1]) + noise * rng.standard_normal(n)
    weights = rng.uniform(0.2, 2.0, n)
    return u, values, weights / weights.mean()


def solved(columns, values, weights, total):
    """Coefficients of min Σ w (y − ȳ − Xb)² + λ |b|², from the normal equations."""
    gram = columns.T @ (weights[:, None] * columns) + total * np.eye(columns.shape[1])
    mean = weights @ values / weights.sum()
    return np.linalg.solve(gram, columns.T @ (weights * (values - mean))), mean


@pytest.mark.parametrize("penalty", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_coefficients_solve_the_penalized_normal_equations(penalty, weighted):
    u, values, weights = data(60)
    weights = weights if weighted else np.ones(60)
    table = ScoreTable(u, ("uniform", "normal"))
    columns = table.matrix(TERMS)
    fit = ridge_terms(values, table, TERMS, weights if weighted else None, penalty)
    expected, mean = solved(columns, values, weights, 60 * penalty)
    np.testing.assert_allclose(fit.residuals, values - mean - columns @ expected, atol=1e-10)
    expected[TERMS.index(())] += mean
    np.testing.assert_allclose(fit.coefficients, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(fit.evaluate(table), columns @ expected, atol=1e-10)
    assert fit.penalty == pytest.approx(penalty)


def test_a_constant_is_not_shrunk():
    u, _, weights = data(60)
    table = ScoreTable(u, ("uniform", "uniform"))
    fit = ridge_terms(np.full(60, 7.0), table, TERMS, weights, 10.0)
    np.testing.assert_allclose(fit.evaluate(table), 7.0, rtol=1e-12)


def test_multiples_of_the_weights_do_not_matter_and_a_double_weight_is_a_second_point():
    u, values, weights = data(40)
    table = ScoreTable(u, ("uniform", "uniform"))
    one, ten = (ridge_terms(values, table, TERMS, k * weights, 0.01) for k in (1.0, 10.0))
    np.testing.assert_allclose(one.coefficients, ten.coefficients, rtol=1e-10)
    twice = np.concatenate([np.full(10, 2.0), np.ones(30)])
    single = ridge_terms(values, table, TERMS, twice, 0.01)
    both = ScoreTable(np.concatenate([u, u[:10]]), ("uniform", "uniform"))
    double = ridge_terms(np.concatenate([values, values[:10]]), both, TERMS, None, 0.01)
    np.testing.assert_allclose(single.coefficients, double.coefficients, rtol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_errors_are_those_of_deletion(weighted):
    """Exactly so for a known mean; the mean of n - 1 points changes them by O(1/n)."""
    n, penalty = 40, 0.01
    u, values, weights = data(n, seed=1)
    weights = weights if weighted else np.ones(n)
    table = ScoreTable(u, ("uniform", "uniform"))
    columns = table.matrix(TERMS)
    fit = ridge_terms(values, table, TERMS, weights, penalty)
    gram = columns.T @ (weights[:, None] * columns) + n * penalty * np.eye(len(TERMS))
    hat = columns @ np.linalg.solve(gram, (weights[:, None] * columns).T)
    np.testing.assert_allclose(fit.leverage, np.diagonal(hat), rtol=1e-9)
    mean = weights @ values / n
    known, unknown = np.empty(n), np.empty(n)
    for i in range(n):
        rest = np.arange(n) != i
        x, y, w = columns[rest], values[rest], weights[rest]
        left = x.T @ (w[:, None] * x) + n * penalty * np.eye(len(TERMS))
        known[i] = values[i] - mean - columns[i] @ np.linalg.solve(left, x.T @ (w * (y - mean)))
        b, own = solved(x, y, w, n * penalty)
        unknown[i] = values[i] - own - columns[i] @ b
    np.testing.assert_allclose(fit.residuals / (1.0 - fit.leverage), known, rtol=1e-7, atol=1e-9)
    assert fit.loo == pytest.approx(weights @ known**2 / n, rel=1e-7)
    assert fit.loo == pytest.approx(weights @ unknown**2 / n, rel=3.0 / n)


@pytest.mark.parametrize("noise", [0.03, 0.3, 3.0])
def test_cross_validation_finds_the_penalty_of_brute_force(noise):
    """On a lattice, where leverages are even, it is nearly that of the least deletion error."""
    n, worse = 64, []
    for seed in range(12):
        u = PeriodicLattice(16, "tent").uniforms(Stream.from_rng(seed), 2, (0, 1), (0, n))[0]
        rng = np.random.default_rng(seed)
        values = np.exp(u[:, 0]) * np.sin(3.0 * u[:, 1]) + noise * rng.standard_normal(n)
        found = ridge(values[:, None], u)
        (fit,) = found.fits
        columns = found.table.matrix(fit.terms)

        def deleted(penalty, columns=columns, values=values):
            errors = []
            for i in range(n):
                rest = np.arange(n) != i
                b, mean = solved(columns[rest], values[rest], np.ones(n - 1), n * penalty)
                errors.append(values[i] - mean - columns[i] @ b)
            return np.mean(np.square(errors))

        worse.append(deleted(fit.penalty) / min(map(deleted, PENALTIES[::3])))
    assert np.median(worse) < 1.15
    assert max(worse) < 1.5


def _gcv(columns, values):
    """The penalty with the least n |r|² / tr(I − H)², by dense algebra."""
    n = len(values)
    centered = values - values.mean()
    scores = []
    for penalty in PENALTIES:
        gram = columns.T @ columns + n * penalty * np.eye(columns.shape[1])
        hat = columns @ np.linalg.solve(gram, columns.T)
        rest = centered - hat @ centered
        scores.append(rest @ rest / (1.0 - np.trace(hat) / n) ** 2)
    return float(PENALTIES[int(np.argmin(scores))])


@pytest.mark.parametrize("noise", [0.03, 0.3, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_penalty_is_that_of_generalized_cross_validation(noise, seed):
    u, values, _ = data(60, seed, noise)
    found = ridge(values[:, None], u)
    (fit,) = found.fits
    assert fit.penalty == pytest.approx(_gcv(found.table.matrix(fit.terms), values), rel=1e-6)


def test_noise_is_shrunk_and_signal_is_not():
    rng = np.random.default_rng(0)
    u = rng.random((200, 3))
    signal = ndtri(u).sum(axis=1)
    noise = rng.standard_normal(200)
    found = ridge(np.stack([signal, noise], axis=1), u)
    kept, shrunk = (fit.evaluate(found.table) for fit in found.fits)
    np.testing.assert_allclose(kept, signal, atol=1e-4)
    assert found.fits[1].penalty > 1e3 * found.fits[0].penalty
    assert shrunk.var() < 0.3


@pytest.mark.parametrize("dim", [2, 6])
def test_normal_scores_are_chosen_for_polynomials_in_normals(dim):
    """However the law is written: the same points are uniforms and normals alike."""
    rng = np.random.default_rng(1)
    u = rng.random((400, dim))
    z = ndtri(u)
    in_normals = z[:, 0] + z[:, 0] * z[:, 1] + 0.3 * z[:, -1] ** 2
    found = ridge(in_normals[:, None], u)
    assert set(found.table.scores) == {"normal"}
    fresh = rng.random((2000, dim))
    z = ndtri(fresh)
    exact = z[:, 0] + z[:, 0] * z[:, 1] + 0.3 * z[:, -1] ** 2
    predicted = found.fits[0].evaluate(ScoreTable(fresh, found.table.scores))
    assert np.sqrt(np.mean((predicted - exact) ** 2)) < 1e-3 * exact.std()
    in_uniforms = u[:, 0] ** 3 - u[:, 0] * u[:, 1]
    assert set(ridge(in_uniforms[:, None], u).table.scores) == {"uniform"}


def test_a_refit_on_fewer_points_keeps_terms_and_penalty():
    u, values, weights = data(200)
    found = ridge(values[:, None], u, weights)
    model = Regression(found.fits[0], found.fits[0].coefficients, "identity", 1, 1.0)
    again = model.refitted(values, found.table, weights)
    np.testing.assert_allclose(again.coefficients, model.coefficients, rtol=1e-8, atol=1e-10)
    half = model.refitted(values[:100], found.table.first(100), weights[:100])
    assert half.fit.terms == model.fit.terms
    assert half.fit.penalty == pytest.approx(model.fit.penalty)
    own = weights[:100] / weights[:100].mean()
    columns = found.table.first(100).matrix(model.fit.terms)
    expected, mean = solved(columns, values[:100], own, 100 * model.fit.penalty)
    expected[model.fit.terms.index(())] += mean
    np.testing.assert_allclose(half.coefficients, expected, rtol=1e-6, atol=1e-8)
    # The mean given θ, the first uniform: terms in the other have mean zero.
    assert all(
        model.fit.terms[k] == () or model.fit.terms[k][-1][0] == 0 for k in model.theta_terms
    )


def test_the_response_to_noise_is_the_difference_of_two_fits():
    u, values, weights = data(80)
    table = ScoreTable(u, ("uniform", "uniform"))
    fit = ridge_terms(values, table, TERMS, weights, 0.01)
    noise = np.random.default_rng(3).standard_normal(80)
    noise -= weights @ noise / weights.sum()  # the mean is not shrunk
    other = ridge_terms(values + noise, table, TERMS, weights, 0.01)
    change = fit.response(table, noise[:, None])[:, 0]
    np.testing.assert_allclose(change, other.coefficients - fit.coefficients, atol=1e-9)


def test_many_coordinates_get_few_terms():
    rng = np.random.default_rng(2)
    u = rng.random((64, 30))
    found = ridge(u[:, :1], u)
    terms = found.fits[0].terms
    assert len(terms) <= 0.6 * 64
    assert {((j, 1),) for j in range(30)} <= set(terms)


def test_more_terms_than_points():
    u, values, weights = data(8)
    table = ScoreTable(u, ("uniform", "uniform"))
    fit = ridge_terms(values, table, TERMS, weights, 0.1)
    expected, mean = solved(table.matrix(TERMS), values, weights, 8 * 0.1)
    expected[TERMS.index(())] += mean
    np.testing.assert_allclose(fit.coefficients, expected, atol=1e-10)
    assert fit.leverage.max() <= 0.999
