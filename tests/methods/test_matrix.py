"""Every method on every shipped problem: value, error bar, reproducibility."""

from __future__ import annotations

import numpy as np
import pytest
from intervals import study

import nestquad as nq
from nestquad.methods import METHODS

BUDGET = 4000
# Budgets of methods that learn, whose analysis takes time.
LEARNED = {"process": 96, **dict.fromkeys(("auto", "ckq", "joint", "lsmc"), 2000)}
PROBLEMS = {problem.name: problem for problem in nq.problems.all()}
NESTED = ("nmc", "nqmc", "nkq")
EVERY = (*METHODS, "auto")


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_lands_near_the_truth(problem, method):
    problem = PROBLEMS[problem]
    budget = LEARNED.get(method, BUDGET)
    est = nq.estimate(problem, budget=budget, method=method, rng=11)
    assert abs(est.value - problem.exact) < 5 * est.std_error
    # A regression of log J knows that it is poor in the tails.
    most = 3.0 if method == "lsmc" else 1.2
    assert 0 < est.std_error < most * max(abs(problem.exact), 0.3)
    assert budget / 2 < est.n_evaluations <= budget
    assert est.method == method or (method == "auto" and est.method in METHODS)
    assert est.problem == problem.name


@pytest.mark.parametrize("method", EVERY)
def test_same_seed_same_bits(method):
    problem = PROBLEMS["finance"]
    budget = 40 if method == "process" else 400
    first, again, other = (
        nq.estimate(problem, budget=budget, method=method, rng=seed) for seed in (5, 5, 6)
    )
    assert first.value == again.value
    assert first.std_error == again.std_error
    assert first.value != other.value


@pytest.mark.parametrize("name", ["synthetic", "finance", "rainforth"])
def test_kernel_quadrature_beats_the_others(name):
    problem = PROBLEMS[name]
    errors = {
        method: np.mean(
            [
                abs(
                    nq.estimate(problem, budget=BUDGET, method=method, rng=seed).value
                    - problem.exact
                )
                for seed in range(5)
            ]
        )
        for method in NESTED
    }
    assert errors["nkq"] < errors["nqmc"] < errors["nmc"]


@pytest.mark.parametrize("points", ["iid", "sobol", "lattice"])
@pytest.mark.parametrize("sharing", ["independent", "shared", 4])
@pytest.mark.parametrize("cls", [nq.NMC, nq.NQMC, nq.NKQ])
def test_any_points_any_sharing(cls, sharing, points):
    problem = nq.problems.rainforth()
    method = cls(64, 32, outer_points=points, inner_points=points, sharing=sharing)
    est = nq.estimate(problem, method=method, rng=2)
    assert est.value == pytest.approx(problem.exact, abs=0.3)
    assert abs(est.value - problem.exact) < 6 * est.std_error


# Differences of rules of few points are far too wide, or scatter by the number of points.
@pytest.mark.parametrize("n_inner", [2, 3, 4, 5])
@pytest.mark.parametrize(("cls", "widest"), [(nq.NMC, 2.7), (nq.NQMC, 14.0), (nq.NKQ, 200.0)])
def test_few_inner_points_admit_their_error(cls, widest, n_inner):
    covered, width = study(nq.problems.synthetic(), 12, method=cls(128, n_inner))
    assert covered >= 9 / 12
    assert 1.3 < width < widest


@pytest.mark.parametrize("n_outer", [3, 4, 7])
@pytest.mark.parametrize(("cls", "widest"), [(nq.NMC, 6.5), (nq.NQMC, 42.0), (nq.NKQ, 280.0)])
def test_few_outer_points_admit_their_error(cls, widest, n_outer):
    covered, width = study(nq.problems.synthetic(), 12, method=cls(n_outer, 64))
    assert covered >= 9 / 12
    assert 2.0 < width < widest


def test_bias_of_nested_monte_carlo_is_the_one_in_the_books():
    # An average of N noisy losses has variance 1 + s²/N, so its expected shortfall is known.
    from scipy.stats import norm

    problem, n = nq.problems.gaussian_es(0.9, s=1.0), 4
    z, tau = norm.ppf(0.9), np.sqrt(1 + 1 / n)
    biased = z + (tau * norm.pdf(z / tau) - z * norm.sf(z / tau)) / 0.1
    values = [nq.estimate(problem, method=nq.NMC(4000, n), rng=s).value for s in range(25)]
    error = np.std(values) / 5
    assert np.mean(values) == pytest.approx(biased, abs=4 * error)
    assert abs(problem.exact - biased) > 8 * error, "the bias is there to be seen"


def test_nested_means_are_unbiased_for_linear_f():
    problem = nq.NestedExpectation(
        nq.Uniform(), lambda theta: nq.Normal(theta, 1.0), lambda x, theta: x[..., 0] ** 2
    )
    for cls in (nq.NMC, nq.NQMC):  # E = 1 + 1/3
        values = [nq.estimate(problem, method=cls(30, 8), rng=s).value for s in range(100)]
        assert np.mean(values) == pytest.approx(4 / 3, abs=4 * np.std(values) / np.sqrt(100))


def test_error_of_nested_monte_carlo_is_the_central_limit_theorem():
    # f linear, so the inner stage has no bias and the error bar is sd(J)/√T, times Student's
    # factor so that 1.96 of it make a 95 % interval.
    from scipy.stats import norm, t

    problem = nq.NestedExpectation(
        nq.Uniform(), lambda theta: nq.Normal(theta, 1.0), lambda x, theta: x[..., 0]
    )
    est = nq.estimate(problem, method=nq.NMC(500, 10), rng=0)
    j = est.sample.j
    student = t(499).ppf(0.975) / norm.ppf(0.975)
    assert est.std_error == pytest.approx(student * j.std(ddof=1) / np.sqrt(500), rel=1e-6)
    assert est.value == pytest.approx(j.mean(), rel=1e-12)


@pytest.mark.parametrize("sharing", ["shared", 4, "independent"])
def test_a_fixed_recipe_evaluates_nothing_twice(sharing):
    calls = 0

    def g(x, theta):
        nonlocal calls
        values = x[..., 0] * theta[..., 0]
        calls += values.size
        return values

    recipe = nq.KernelQuadrature(nq.Matern(0.5), space="uniform", lengthscale="fixed")
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g)
    est = nq.estimate(problem, budget=1024, method=nq.NKQ(inner=recipe, sharing=sharing), rng=0)
    assert calls == est.n_evaluations <= 1024
