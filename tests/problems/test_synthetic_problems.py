from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from nestquad.errors import InputError
from nestquad.problems import rainforth, synthetic


@pytest.mark.parametrize("dim", [1, 2, 5, 10, 20])
def test_synthetic_exact_from_moments(dim):
    # J = dim·E[u^2.5] + Σ θ_i^2.5, so E[J²] is its mean squared plus its variance.
    first, second = Fraction(2, 7), Fraction(1, 6)
    answer = (2 * dim * first) ** 2 + dim * (second - first**2)
    assert synthetic(dim).exact == pytest.approx(float(answer), rel=1e-15)


def test_synthetic_exact_by_quadrature_of_its_own_g_and_f():
    problem = synthetic()

    def f_of_j(theta):
        j, _ = quad(lambda x: problem.g(np.array([x]), np.array([theta])), 0, 1, epsabs=1e-12)
        return problem.f(np.array([j]))[0]

    assert problem.exact == pytest.approx(quad(f_of_j, 0, 1, epsabs=1e-11)[0], rel=1e-10)


def test_synthetic_g_is_a_sum_of_powers():
    rng = np.random.default_rng(0)
    x, theta = rng.random((6, 4)), rng.random((6, 4))
    expected = [sum(a**2.5 for a in [*row, *other]) for row, other in zip(x, theta, strict=True)]
    np.testing.assert_allclose(synthetic(4).g(x, theta), expected, rtol=1e-14)


def test_synthetic_lives_on_the_cube_and_shares_x():
    problem = synthetic(3)
    u = np.random.default_rng(1).random((5, 3))
    np.testing.assert_array_equal(problem.outer_law.from_uniform(u), u)
    np.testing.assert_array_equal(problem.inner_law(u).from_uniform(u), u)
    assert problem.inner_is_shared


@pytest.mark.parametrize("dim", [0, -1, 1.5, True, "1"])
def test_synthetic_refuses_a_bad_dimension(dim):
    with pytest.raises(InputError, match="dim"):
        synthetic(dim)


def test_rainforth_exact_by_quadrature_of_its_own_g_and_f():
    problem = rainforth()

    def log_j(theta):
        j, _ = quad(
            lambda x: problem.g(np.array([x]), np.array([theta])) * norm.pdf(x),
            theta / 2 - 9,  # well beyond both bumps
            theta / 2 + 9,
            points=[theta],
            epsabs=1e-13,
        )
        assert j == pytest.approx(math.sqrt(0.4 / math.pi) * math.exp(-0.4 * theta**2), rel=1e-10)
        return problem.f(np.array([j]))[0]

    assert problem.exact == pytest.approx(quad(log_j, -1, 1, epsabs=1e-11)[0] / 2, rel=1e-10)


def test_rainforth_laws():
    problem = rainforth()
    u = np.array([[0.1], [0.5], [0.9]])
    np.testing.assert_allclose(problem.outer_law.from_uniform(u), 2 * u - 1, rtol=1e-15)
    np.testing.assert_allclose(problem.inner_law(u).from_uniform(u), norm.ppf(u), atol=1e-14)
