"""Polynomial regression: orthonormality, leave-one-out errors, growth, links."""

from math import comb

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

from nestquad.errors import NumericalError
from nestquad.points import Sobol, Stream
from nestquad.regression import (
    LeastSquares,
    ScoreTable,
    choose_scores,
    fit_terms,
    grow_polynomial,
    higher_terms,
    regress,
    regress_log,
    total_degree_terms,
)


def sobol(n, dim, seed=0):
    return Sobol().uniforms(Stream.from_rng(seed), dim, (0, 1), (0, n))[0]


def test_legendre_columns_are_orthonormal():
    nodes, weights = np.polynomial.legendre.leggauss(20)
    table = ScoreTable((nodes[:, None] + 1) / 2, ["uniform"])
    columns = table.matrix([()] + [((0, k),) for k in range(1, 13)])
    np.testing.assert_allclose(columns.T @ (columns * weights[:, None]) / 2, np.eye(13), atol=1e-12)


def test_hermite_columns_are_orthonormal():
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    inside = np.abs(nodes) < 7.5  # the rest weighs nothing, and its uniforms are rounded to 1
    nodes, weights = nodes[inside], weights[inside] / np.sqrt(2 * np.pi)
    table = ScoreTable(ndtr(nodes)[:, None], ["normal"])
    columns = table.matrix([()] + [((0, k),) for k in range(1, 7)])
    np.testing.assert_allclose(columns.T @ (columns * weights[:, None]), np.eye(7), atol=1e-6)


def test_products_multiply():
    u = sobol(16, 3)
    table = ScoreTable(u, ["uniform", "normal", "uniform"])
    square, product = table.matrix([((0, 2),), ((0, 2), (1, 1), (2, 1))]).T
    expected = square * ndtri(u[:, 1]) * np.sqrt(3) * (2 * u[:, 2] - 1)
    np.testing.assert_allclose(product, expected, rtol=1e-12)


@pytest.mark.parametrize(("dim", "degree"), [(1, 5), (3, 4), (5, 2)])
def test_terms_of_a_total_degree(dim, degree):
    terms = total_degree_terms(dim, degree)
    assert len(set(terms)) == len(terms) == comb(dim + degree, degree)
    assert max(sum(k for _, k in term) for term in terms) == degree
    more = higher_terms(terms, dim, 1000)
    assert set(more) == set(total_degree_terms(dim, degree + 2)) - set(terms)


def test_leave_one_out_is_what_leaving_out_gives():
    rng = np.random.default_rng(0)
    u = rng.random((30, 2))
    values = np.exp(u[:, 0]) + rng.normal(size=30)
    weights = rng.random(30) + 0.5
    terms = total_degree_terms(2, 2)
    table = ScoreTable(u, ["uniform", "uniform"])
    fit = fit_terms(values, table, terms, weights)
    columns = table.matrix(terms)
    scaled = weights / weights.mean()
    errors = []
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        root = np.sqrt(scaled[rest])
        beta = np.linalg.lstsq(columns[rest] * root[:, None], values[rest] * root, rcond=None)[0]
        errors.append(scaled[i] * (values[i] - columns[i] @ beta) ** 2)
    np.testing.assert_allclose(fit.loo, np.mean(errors), rtol=1e-9)
    whole = np.sqrt(scaled)
    beta = np.linalg.lstsq(columns * whole[:, None], values * whole, rcond=None)[0]
    np.testing.assert_allclose(fit.coefficients, beta, rtol=1e-9)


def test_columns_in_blocks_give_what_they_give_together():
    rng = np.random.default_rng(0)
    u, weights = rng.random((60, 2)), rng.random(60) + 0.5
    values = np.exp(u[:, 0]) + rng.normal(size=60)
    terms = total_degree_terms(2, 3)
    table = ScoreTable(u, ["uniform", "normal"])
    whole = fit_terms(values, table, terms, weights)
    first = LeastSquares.start(values, weights).extended(terms[:3], table)
    with pytest.raises(NumericalError):
        first.extended(terms[:1], table)  # it is there already, and the failure leaves no trace
    first.extended(terms[7:], table)
    fit = first.extended(terms[3:6], table).extended(terms[6:], table).fit()
    assert fit.terms == whole.terms
    for name in ("coefficients", "residuals", "leverage", "lower"):
        np.testing.assert_allclose(getattr(fit, name), getattr(whole, name), atol=1e-10)
    weighted = table.matrix(terms) * np.sqrt(fit.weights)[:, None]
    np.testing.assert_allclose(fit.lower @ fit.lower.T, weighted.T @ weighted, rtol=1e-10)


def test_columns_that_cannot_be_told_apart():
    table = ScoreTable(np.full((10, 1), 0.3), ["uniform"])
    with pytest.raises(NumericalError):
        fit_terms(np.arange(10.0), table, [(), ((0, 1),)])


def test_growth_finds_a_sparse_polynomial_exactly():
    u = sobol(600, 12)
    scores = ["normal"] * 6 + ["uniform"] * 6
    table = ScoreTable(u, scores)
    truth = {
        (): 2.0,
        ((3, 1),): 1.0,
        ((8, 2),): 0.4,
        ((8, 4),): -0.5,
        ((1, 1), (7, 1)): 0.7,
        ((0, 1), (9, 1)): 0.3,
        ((0, 1), (3, 1), (9, 1)): 0.3,
    }
    values = table.matrix(list(truth)) @ np.array(list(truth.values()))
    fit = grow_polynomial(values, table, max_terms=60)[-1]
    found = dict(zip(fit.terms, fit.coefficients, strict=True))
    for term, coefficient in truth.items():
        assert abs(found[term] - coefficient) < 1e-10
    assert all(abs(c) < 1e-10 for term, c in found.items() if term not in truth)


def test_growth_leaves_noise_alone():
    values = np.random.default_rng(0).normal(size=500)
    table = ScoreTable(sobol(500, 8), ["uniform"] * 8)
    assert len(grow_polynomial(values, table, max_terms=50)[-1].terms) <= 5


def test_even_functions_are_found_without_their_odd_terms():
    u = sobol(512, 2)
    table = ScoreTable(u, ["normal", "normal"])
    z = ndtri(u)
    values = (z[:, 0] - z[:, 1]) ** 2
    fit = grow_polynomial(values, table, max_terms=50)[-1]
    np.testing.assert_allclose(fit.evaluate(table.leading(1)), z[:, 0] ** 2 + 1, atol=1e-9)


def test_scores_of_a_normal_law_that_is_written_in_uniforms():
    u = sobol(512, 2)
    values = (stats.norm(1, 2).ppf(u[:, :1]) + u[:, 1:]) ** 2
    groups = [(1, "uniform"), (1, "uniform")]
    assert choose_scores(values, u, groups) == ("normal", "uniform")


def test_perturbations_have_the_sandwich_covariance():
    rng = np.random.default_rng(0)
    u = sobol(256, 2)
    table = ScoreTable(u, ["uniform", "uniform"])
    values = u[:, 0] + rng.normal(size=256) * (1 + u[:, 0])
    model = regress(values, table, 1, degree=2, control_variates=True)
    # Coefficients are those of values in units of the scale.
    changes = model.scale * (model.perturbed(table, np.eye(256)) - model.coefficients[:, None])
    columns = table.matrix(model.fit.terms)
    bread = np.linalg.inv(columns.T @ columns)
    hat = np.einsum("ij,jk,ik->i", columns, bread, columns)
    noise = (values - columns @ bread @ columns.T @ values) / (1 - hat)
    sandwich = bread @ (columns.T * noise**2) @ columns @ bread
    np.testing.assert_allclose(changes @ changes.T, sandwich, rtol=1e-8, atol=1e-14)


def test_log_link_finds_an_exponential():
    # Multiplicative noise of mean one around exp(0.3 - z²/2 + z).
    u = sobol(4096, 2)
    z = ndtri(u)
    values = np.exp(0.3 - z[:, 0] ** 2 / 2 + z[:, 0] + 0.5 * z[:, 1] - 0.125)
    table = ScoreTable(u, ["normal", "normal"])
    model = regress_log(values, table, 1, degree=None, control_variates=True)
    grid = ScoreTable(ndtr(np.linspace(-2, 2, 9))[:, None], ["normal"])
    at = np.linspace(-2, 2, 9)
    np.testing.assert_allclose(model.j(grid), np.exp(0.3 - at**2 / 2 + at), rtol=0.05)
    assert model.link == "log"
    assert model.degree == 2
