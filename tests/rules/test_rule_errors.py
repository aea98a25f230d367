"""Worst-case error and posterior variance, computed here by other means."""

from __future__ import annotations

import numpy as np
import pytest

from nestquad.distributions import Empirical, Normal, Uniform
from nestquad.kernels import Gaussian, Matern
from nestquad.rules import kernel_rule

RNG = np.random.default_rng(21)
SUPPORT, MASS = RNG.random((25, 2)), RNG.random(25)
MASS /= MASS.sum()
LAW = Empirical(SUPPORT, MASS)
NODES = RNG.random((9, 2))
KERNELS = [Matern(0.5, 0.4), Matern(1.5, 0.4), Gaussian(0.2)]


@pytest.fixture(name="rng")
def fixed_rng():
    """The same numbers for each test, in whatever order they run."""
    return np.random.default_rng(22)


def signed_measure_norm(kernel, points, masses):
    """√ΣΣ c_i c_j k(x_i, x_j), one pair at a time."""
    total = 0.0
    for x, c in zip(points, masses, strict=True):
        for y, d in zip(points, masses, strict=True):
            total += c * d * float(kernel(x[None], y[None])[0, 0])
    return np.sqrt(total)


@pytest.mark.parametrize("exact", ["none", "constant"])
@pytest.mark.parametrize("lam", [None, 0.02])
def test_worst_case_error_is_the_norm_of_law_minus_rule(lam, exact):
    kernel = KERNELS[1]
    rule = kernel_rule(kernel, LAW, NODES, regularization=lam, exact=exact)
    brute = signed_measure_norm(
        kernel, np.concatenate([SUPPORT, NODES]), np.concatenate([MASS, -rule.weights])
    )
    assert rule.worst_case_error == pytest.approx(brute, rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_worst_case_error_bounds_every_function_and_is_reached(kernel, rng):
    rule = kernel_rule(kernel, LAW, NODES)
    centers = rng.random((15, 2))
    for _ in range(50):
        c = rng.standard_normal(15)
        norm = np.sqrt(c @ kernel(centers, centers) @ c)
        error = MASS @ kernel(SUPPORT, centers) @ c - rule.integrate(kernel(NODES, centers) @ c)
        assert abs(error) <= rule.worst_case_error * norm * (1 + 1e-9)

    def representer(x):
        return kernel(x, SUPPORT) @ MASS - kernel(x, NODES) @ rule.weights

    error = MASS @ representer(SUPPORT) - rule.integrate(representer(NODES))
    assert error == pytest.approx(rule.worst_case_error**2, rel=1e-8)  # its norm is the error


@pytest.mark.parametrize(
    ("kernel", "law"),
    [
        (Gaussian(0.5), Uniform(-1.0, 1.0)),
        (Matern(1.5, 1.0), Uniform(-1.0, 1.0)),
        (Gaussian(0.7), Normal(0.2, 0.8)),
        (Matern(2.5, 1.0), Normal(0.2, 0.8)),
    ],
)
def test_worst_case_error_under_continuous_laws(kernel, law):
    # The law as 1,500 atoms at its quantiles: an integral to about 1e-5.
    atoms = law.from_uniform((np.arange(1500)[:, None] + 0.5) / 1500)
    nodes = law.from_uniform((np.arange(4)[:, None] + 0.5) / 4)
    rule = kernel_rule(kernel, law, nodes)
    points = np.concatenate([atoms, nodes])
    masses = np.concatenate([np.full(1500, 1 / 1500), -rule.weights])
    brute = np.sqrt(masses @ kernel(points, points) @ masses)
    assert rule.worst_case_error == pytest.approx(brute, rel=2e-3)


def gaussian_process_integral(kernel, values, noise, prior_constant=0.0):
    """Mean and variance of Σ p_i f(s_i) given noisy f(nodes), from the joint covariance."""

    def covariance(x, y):
        return kernel(x, y) + prior_constant

    observed = covariance(NODES, NODES) + noise * np.eye(len(NODES))
    cross = covariance(SUPPORT, NODES)
    posterior = covariance(SUPPORT, SUPPORT) - cross @ np.linalg.solve(observed, cross.T)
    mean = cross @ np.linalg.solve(observed, values)
    return MASS @ mean, MASS @ posterior @ MASS


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("lam", [None, 1e-3, 0.1])
def test_posterior_of_the_integral_is_that_of_the_gaussian_process(kernel, lam):
    values = np.sin(5 * NODES.sum(axis=1))
    rule = kernel_rule(kernel, LAW, NODES, regularization=lam, exact="none")
    mean, variance = gaussian_process_integral(kernel, values, rule.ridge)
    assert rule.integrate(values) == pytest.approx(mean, rel=1e-8)
    assert rule.posterior_variance == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("lam", [1e-3, 0.1])
def test_exactness_is_the_limit_of_a_flat_prior_on_the_constant(kernel, lam):
    values = np.sin(5 * NODES.sum(axis=1)) + 100.0
    rule = kernel_rule(kernel, LAW, NODES, regularization=lam, exact="constant")
    mean, variance = gaussian_process_integral(kernel, values, rule.ridge, prior_constant=1e6)
    assert rule.integrate(values) == pytest.approx(mean, rel=1e-6)
    assert rule.posterior_variance == pytest.approx(variance, rel=1e-3)


def test_without_a_ridge_the_variance_is_the_squared_worst_case_error():
    for kernel in KERNELS:
        rule = kernel_rule(kernel, LAW, NODES, exact="none")
        assert rule.posterior_variance == pytest.approx(rule.worst_case_error**2, rel=1e-6)


@pytest.mark.parametrize("n", [50, 200])
def test_errors_below_rounding_are_clamped_and_never_claimed(n):
    nodes = (np.arange(n)[:, None] + 0.5) / n
    rule = kernel_rule(Gaussian(1.0), Uniform(), nodes)
    # Nothing is known below √eps times the prior standard deviation.
    assert rule.worst_case_error >= 1e-8
    assert rule.posterior_variance >= 1e-16
    assert abs(rule.integrate(np.exp(nodes[:, 0])) - (np.e - 1)) < 1e-7
