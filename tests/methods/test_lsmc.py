"""Least-squares Monte Carlo: its polynomials, its regressions, its answers and error bars."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

import nestquad as nq
from nestquad.errors import InputError, NumericalError
from nestquad.methods import Goal
from nestquad.methods._polynomials import (
    ScoreTable,
    higher_terms,
    total_degree,
    total_degree_terms,
)
from nestquad.methods._regression import regress, regress_log
from nestquad.methods._sparse_fit import choose_scores, fit_terms, grow_polynomial
from nestquad.points import Sobol, Stream

LSMC = nq.LSMC


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
    expected = table.column(((0, 2),)) * ndtri(u[:, 1]) * np.sqrt(3) * (2 * u[:, 2] - 1)
    np.testing.assert_allclose(table.column(((0, 2), (1, 1), (2, 1))), expected, rtol=1e-12)


@pytest.mark.parametrize(("dim", "degree"), [(1, 5), (3, 4), (5, 2)])
def test_terms_of_a_total_degree(dim, degree):
    terms = total_degree_terms(dim, degree)
    assert len(set(terms)) == len(terms) == comb(dim + degree, degree)
    assert max(map(total_degree, terms)) == degree
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
    values = sum(c * table.column(term) for term, c in truth.items())
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
    changes = model.perturbed(table, np.eye(256)) - model.coefficients[:, None]
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


POLYNOMIAL = nq.NestedExpectation(
    outer=nq.Normal(np.zeros(2), 1.0),
    inner=lambda theta: nq.Normal(theta, 1.0),
    g=lambda x, theta: x[..., 0] ** 2 + x[..., 1] * (1.0 + x[..., 0] - theta[..., 0]),
    f=lambda j: j**2,
    exact=3.0 + 2.0 + 1.0 + 1.0,  # J = θ1² + θ2 + 1
)


@pytest.mark.parametrize("options", [{}, {"degree": 2}])
def test_exact_on_polynomials(options):
    est = nq.estimate(POLYNOMIAL, method=LSMC(**options), budget=512, rng=0)
    expected = est.sample.theta[:, 0] ** 2 + est.sample.theta[:, 1] + 1.0
    np.testing.assert_allclose(est.sample.j, expected, atol=1e-8)
    assert abs(est.value - 7.0) < 5 * est.std_error
    # A term beyond those that are needed may be let in at the level of rounding.
    assert est.diagnostics["outputs"][0]["degree"] in ({2} if options else {2, 3})


def test_a_fixed_degree_is_not_more_than_it_says():
    # J = θ² + 1: a straight line through it is its mean, 2, and f of that is 4 instead of 6.
    problem = nq.NestedExpectation(
        nq.Normal(), lambda theta: nq.Normal(theta, 1.0), lambda x, theta: x[..., 0] ** 2, np.square
    )
    method = LSMC(degree=1, control_variates=False)
    assert nq.estimate(problem, method=method, budget=8192, rng=0).value == pytest.approx(
        4, abs=0.25
    )


def test_too_low_a_degree_is_biased_and_says_so():
    est = nq.estimate(POLYNOMIAL, method=LSMC(degree=1), budget=2048, rng=0)
    assert abs(est.value - 7.0) > 1.0
    assert abs(est.value - 7.0) < 2 * est.std_error


def mean_error(problem, method, budget, seeds=4):
    return np.mean(
        [
            abs(nq.estimate(problem, method=method, budget=budget, rng=s).value - problem.exact)
            for s in range(seeds)
        ]
    )


def test_control_variates_help():
    problem = nq.problems.health()
    without = mean_error(problem, LSMC(control_variates=False), 1000, 2)
    assert mean_error(problem, LSMC(), 1000, 2) < without / 50


def test_converges_on_the_synthetic_problem():
    problem = nq.problems.synthetic()
    small, large = (mean_error(problem, LSMC(), budget) for budget in (64, 1024))
    assert large < small / 50
    assert large < 1e-6


@pytest.mark.parametrize(
    ("name", "most"), [("finance", 0.3), ("eig-linear", 0.05), ("rainforth", 0.02), ("health", 0.1)]
)
def test_lands_near_the_truth(name, most):
    assert mean_error(nq.problems.get(name), LSMC(), 1000, 3) < most


def test_a_logarithm_gets_a_log_link():
    est = nq.estimate(nq.problems.eig_linear(), method="lsmc", budget=500, rng=0)
    assert est.diagnostics["outputs"][0]["link"] == "log"
    assert "log J" in est.diagnostics["notes"][0]
    assert (est.sample.j > 0).all()


def test_log_link_needs_positive_values():
    with pytest.raises(InputError, match="above zero"):
        nq.estimate(nq.problems.finance(), method=LSMC(link="log"), budget=200, rng=0)


def test_several_answers_have_a_covariance():
    problem = nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(theta, 1.0),
        lambda x, theta: np.stack([x[..., 0], x[..., 0] ** 2], axis=-1),
        lambda j: np.stack([j[:, 0] ** 2, j[:, 1]], axis=-1),
        exact=(1.0, 2.0),
    )
    est = nq.estimate(problem, method="lsmc", budget=500, rng=0)
    assert est.value.shape == (2,)
    assert np.abs(est.value - problem.exact).max() < 0.02
    assert np.linalg.eigvalsh(est.covariance).min() >= -1e-12 * np.trace(est.covariance)
    np.testing.assert_allclose(np.sqrt(np.diagonal(est.covariance)), est.std_error)


def test_same_seed_same_bits():
    problem = nq.problems.finance()
    first, again, other = (
        nq.estimate(problem, method="lsmc", budget=300, rng=seed) for seed in (5, 5, 6)
    )
    assert first.value == again.value
    assert first.std_error == again.std_error
    assert first.value != other.value


@pytest.mark.parametrize("budget", [32, 100, 1001])
def test_budget_is_spent(budget):
    est = nq.estimate(nq.problems.synthetic(), method="lsmc", budget=budget, rng=0)
    assert est.n_evaluations == est.n_outer == budget
    assert est.n_inner == 1
    assert np.isfinite(est.std_error)


def test_tolerance_is_met_and_nothing_is_evaluated_twice():
    problem = nq.problems.finance()
    calls = []

    def g(x, theta):
        values = problem.g(x, theta)
        calls.append(values.size)
        return values

    counted = nq.NestedExpectation(problem.outer, problem.inner, g, problem.f)
    est = nq.estimate(counted, method=LSMC(), tol=0.4, rng=1)
    assert est.status == "converged"
    assert len(est.trace) > 1
    assert abs(est.value - problem.exact) < 0.4
    assert sum(calls) == est.n_evaluations


@pytest.mark.parametrize(
    "options",
    [
        {"n_outer": 3},
        {"degree": 0},
        {"degree": 1.5},
        {"link": "logit"},
        {"outer_points": nq.Given(np.full((4, 2), 0.5))},
        {"outer_points": "sobole"},
    ],
)
def test_bad_options(options):
    with pytest.raises(InputError):
        LSMC(**options)


def test_too_small_a_budget():
    with pytest.raises(InputError, match="at least 32"):
        nq.estimate(nq.problems.synthetic(), method="lsmc", budget=20)


@pytest.mark.parametrize("role", ["outer", "inner"])
def test_laws_without_transport_are_refused(role):
    sampler = nq.Sampler(lambda n, rng: rng.normal(size=(n, 1)), dim=1)
    laws = {"outer": nq.Normal(), "inner": nq.Normal(), role: sampler}
    problem = nq.NestedExpectation(laws["outer"], laws["inner"], lambda x, t: x[..., 0])
    with pytest.raises(InputError, match=f"^{role}"):
        nq.estimate(problem, method="lsmc", budget=100)


def coverage(problem, budget, seeds):
    runs = [nq.estimate(problem, method="lsmc", budget=budget, rng=s) for s in range(seeds)]
    return np.mean([low <= problem.exact <= high for low, high in (r.interval() for r in runs)])


@pytest.mark.parametrize("name", ["finance", "gaussian-es"])
def test_error_bars_cover(name):
    assert coverage(nq.problems.get(name), 500, 15) >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1000, 10_000])
@pytest.mark.parametrize("name", nq.problems.names())
def test_error_bars_cover_everywhere(name, budget):
    assert coverage(nq.problems.get(name), budget, 40) >= 0.87


def test_a_pilot_is_followed_by_the_whole_budget_at_once():
    problem, method = nq.problems.finance(), nq.LSMC()
    goal = Goal(Stream.from_rng(0), 5000, adaptive=True, pilot=128)
    first = method.plan(problem, goal)
    assert first.n_evaluations == 128
    estimate = nq.Estimate(1.0, 0.1, 128, 128, 1, "lsmc")
    assert method.plan(problem, goal, (first, estimate)).n_evaluations == 256
    whole = replace(goal, adaptive=False)
    assert method.plan(problem, whole, (first, estimate)).n_evaluations == 5000
