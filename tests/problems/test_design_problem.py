from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from nestquad.errors import InputError
from nestquad.problems import eig_linear

GENERAL = {
    "design": np.array([[1.0, 0.5], [0.0, 2.0], [1.0, -1.0]]),
    "prior_cov": np.array([[0.5, 0.2], [0.2, 0.3]]),
    "noise_cov": np.array([[1.0, 0.3, 0.0], [0.3, 2.0, 0.1], [0.0, 0.1, 1.5]]),
}


def gauss_hermite(order, dim):
    """Nodes (order**dim, dim) and weights for standard normals."""
    node, weight = np.polynomial.hermite_e.hermegauss(order)
    nodes = np.stack(np.meshgrid(*[node] * dim), axis=-1).reshape(-1, dim)
    weights = np.prod(np.meshgrid(*[weight / weight.sum()] * dim), axis=0).ravel()
    return nodes, weights


def test_one_dimension_by_quadrature_of_the_log_evidence():
    # log p(y | β) − log p(y), with the normalised densities and no algebra of ours.
    def integrand(y):
        evidence, _ = quad(lambda b: norm.pdf(y, b) * norm.pdf(b), y / 2 - 8, y / 2 + 8)
        return -math.log(evidence) * norm.pdf(y, scale=math.sqrt(2))

    entropy_of_noise = 0.5 * math.log(2 * math.pi * math.e)
    gain = quad(integrand, -12, 12, epsabs=1e-10)[0] - entropy_of_noise
    assert eig_linear().exact == pytest.approx(gain, abs=1e-8)
    assert eig_linear().exact == pytest.approx(0.5 * math.log(2), rel=1e-15)


@pytest.mark.parametrize("arguments", [{}, {"dim": 2}, GENERAL], ids=["1-D", "2-D", "general"])
def test_exact_by_gauss_hermite_through_its_own_laws_g_and_f(arguments):
    problem = eig_linear(**arguments)
    z, weights = gauss_hermite(60, problem.inner_law(np.zeros((1, 1))).base_dim)
    outer, outer_weights = gauss_hermite(4, problem.outer_law.base_dim)  # log J is quadratic
    theta = problem.outer_law.from_normal(outer)
    x = problem.inner_law(theta).from_normal(z)
    j = problem.g(x, theta[:, None, :]) @ weights
    assert problem.exact == pytest.approx(outer_weights @ problem.f(j), rel=1e-8)


def test_exact_is_the_determinant():
    x, prior, noise = (GENERAL[key] for key in ("design", "prior_cov", "noise_cov"))
    gain = 0.5 * math.log(np.linalg.det(np.eye(3) + np.linalg.inv(noise) @ x @ prior @ x.T))
    assert eig_linear(**GENERAL).exact == pytest.approx(gain, rel=1e-12)
    assert eig_linear(4).exact == pytest.approx(2 * math.log(2), rel=1e-14)


def test_g_is_the_likelihood_over_its_peak():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 2)), rng.normal(size=(5, 3))
    expected = []
    for b, data in zip(x, y, strict=True):
        law = multivariate_normal(GENERAL["design"] @ b, GENERAL["noise_cov"])
        expected.append(law.pdf(data) / law.pdf(law.mean))
    np.testing.assert_allclose(eig_linear(**GENERAL).g(x, y), expected, rtol=1e-12)


def test_outer_law_is_that_of_the_data():
    law = eig_linear(**GENERAL).outer_law
    x, prior, noise = (GENERAL[key] for key in ("design", "prior_cov", "noise_cov"))
    np.testing.assert_allclose(law.cov, x @ prior @ x.T + noise, rtol=1e-13)
    assert eig_linear(3).outer_law.sd == pytest.approx(math.sqrt(2) * np.ones(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 0}, "dim"),
        ({"design": [1.0, 2.0]}, "design"),
        ({"design": [[math.nan]]}, "design"),
        ({"prior_cov": np.eye(2)}, "prior_cov"),
        ({"dim": 2, "noise_cov": [[1.0, 0.5], [0.0, 1.0]]}, "noise_cov"),
        ({"dim": 2, "noise_cov": [[1.0, 2.0], [2.0, 1.0]]}, "eigenvalue -1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        eig_linear(**arguments)
