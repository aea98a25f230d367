"""Gaussian processes on lattices: FFTs against dense linear algebra."""

import numpy as np
import pytest
from scipy.integrate import quad

from nestquad.gp import (
    PeriodicKernel,
    _lattice,
    fit_periodic,
    interpolate,
    lattice_steps,
    reversed_bits,
)
from nestquad.gp._lattice import LatticeLikelihood, omega
from nestquad.points import lattice_vector

VECTOR = lattice_vector(3, 10)
KERNEL = PeriodicKernel(2, np.array([0.4, 1.3, 0.2]), 1e-3)


def lattice(n, size):
    """The first n points in van der Corput order of the lattice of that size, (n, 3)."""
    order = reversed_bits(n, (size - 1).bit_length())
    return order[:, None] * VECTOR % size / size


def gram(kernel, a, b):
    """k between rows, from its definition: a product of factors less one."""
    factors = [
        1.0 + scale * omega(kernel.order, (a[:, None, j] - b[None, :, j]) % 1.0)
        for j, scale in enumerate(kernel.scales[: a.shape[1]])
    ]
    return np.prod(factors, axis=0) - 1.0


def noisy_gram(kernel, points):
    diagonal = gram(kernel, points[:1], points[:1])[0, 0]
    return gram(kernel, points, points) + kernel.nugget * diagonal * np.eye(len(points))


def values_at(points):
    u = points
    return np.exp(np.sin(2 * np.pi * u[:, 0])) + np.abs(u[:, 1] - 0.5) * u[:, 2] + 3.0


def dense_marginal(kernel, points, values, theta):
    """Universal kriging with a constant, of the mean over the last two coordinates."""
    inverse = np.linalg.inv(noisy_gram(kernel, points))
    ones = np.ones(len(values))
    mean = ones @ inverse @ values / (ones @ inverse @ ones)
    cross = gram(kernel, theta, points[:, :1])
    return mean + cross @ inverse @ (values - mean)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_omega_is_its_fourier_series(order):
    x = np.linspace(0.03, 0.97, 7)
    h = np.arange(1, 20_001)
    series = 2.0 * (np.cos(2 * np.pi * np.outer(x, h)) / h ** (2.0 * order)).sum(axis=1)
    np.testing.assert_allclose(omega(order, x), series, atol=2e-6 if order == 1 else 1e-11)


def test_leaving_out_a_coordinate_integrates_it():
    step = np.array([[0.2], [0.7], [0.0]])

    def integrand(third):
        return float(KERNEL(np.array([step[0], step[1], [third]]))[0])

    integral = quad(integrand, 0.0, 1.0, epsabs=1e-12)[0]
    np.testing.assert_allclose(KERNEL(step[:2])[0], integral, atol=1e-10)


@pytest.mark.parametrize("n", [64, 63, 50, 33])
def test_interpolant_equals_dense_algebra(n):
    points = lattice(n, 64)
    values = values_at(points)
    process = interpolate(KERNEL, VECTOR, 1, values)
    theta = lattice_steps(VECTOR[:1], 64).T
    expected = dense_marginal(KERNEL, points, values, theta)
    np.testing.assert_allclose(process.marginal(), expected, atol=1e-10)
    shift = np.array([0.123])
    expected = dense_marginal(KERNEL, points, values, (theta + shift) % 1.0)
    np.testing.assert_allclose(process.marginal(shift[None])[0], expected, atol=1e-10)


@pytest.mark.parametrize("n", [64, 50])
def test_any_points_are_predicted_as_by_dense_algebra(n, monkeypatch):
    points = lattice(n, 64)
    values = values_at(points)
    theta = np.random.default_rng(0).random((9, 1))
    monkeypatch.setattr(_lattice, "_BLOCK", 130)  # blocks of two points
    found = interpolate(KERNEL, VECTOR, 1, values).at(theta)
    np.testing.assert_allclose(found, dense_marginal(KERNEL, points, values, theta), atol=1e-10)


@pytest.mark.parametrize("n", [32, 25])
def test_leave_one_out_is_what_leaving_out_gives(n):
    points = lattice(n, 32)
    values = values_at(points)
    found = interpolate(KERNEL, VECTOR, 1, values).leave_one_out
    covariance = noisy_gram(KERNEL, points)
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        inverse = np.linalg.inv(covariance[np.ix_(rest, rest)])
        mean = inverse.sum(axis=0) @ values[rest] / inverse.sum()
        predicted = mean + covariance[i, rest] @ inverse @ (values[rest] - mean)
        np.testing.assert_allclose(found[i], values[i] - predicted, atol=1e-9)


def test_likelihood_equals_dense_algebra():
    size = 64
    points = np.arange(size)[:, None] * VECTOR % size / size
    values = values_at(points)
    inverse = np.linalg.inv(noisy_gram(KERNEL, points))
    ones = np.ones(size)
    precision = ones @ inverse @ ones
    centred = values - ones @ inverse @ values / precision
    quadratic = centred @ inverse @ centred
    # The restricted likelihood; the FFT leaves out the constant log M of the mean's mode.
    expected = 0.5 * (
        -np.linalg.slogdet(inverse)[1]
        + np.log(precision)
        - np.log(size)
        + (size - 1) * np.log(quadratic / (size - 1))
    )
    parameters = np.log(np.append(KERNEL.scales, KERNEL.nugget))
    omegas = omega(2, lattice_steps(VECTOR, size)[:, : size // 2 + 1])
    loss = LatticeLikelihood(omegas, np.abs(np.fft.rfft(values - values.mean())) ** 2 / size)
    found, gradient = loss(parameters)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    for k in range(4):
        step = np.eye(4)[k] * 1e-5
        up, down = (loss(parameters + s)[0] for s in (step, -step))
        np.testing.assert_allclose(gradient[k], (up - down) / 2e-5, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [32, 27])
def test_posterior_draws_have_the_posterior_variance(n):
    points = lattice(n, 32)
    values = values_at(points)
    process = interpolate(KERNEL, VECTOR, 1, values)
    marginal, noisy = process.draws(4000, np.random.default_rng(0))
    draws = marginal - process.predicted(noisy)
    inverse = np.linalg.inv(noisy_gram(KERNEL, points))
    theta = lattice_steps(VECTOR[:1], 32).T
    cross = gram(KERNEL, theta, points[:, :1])
    prior = gram(PeriodicKernel(2, KERNEL.scales[:1], 0.0), theta[:1], theta[:1])[0, 0]
    defect = 1.0 - cross @ inverse.sum(axis=0)
    variance = prior - np.einsum("ti,ij,tj->t", cross, inverse, cross)
    variance += defect**2 / inverse.sum()
    mean = inverse.sum(axis=0) @ values / inverse.sum()
    amplitude = (values - mean) @ inverse @ (values - mean) / (n - 1)
    np.testing.assert_allclose(draws.var(axis=0), amplitude * variance, rtol=0.15)
    assert np.abs(draws.mean(axis=0)).max() < 5 * np.sqrt(amplitude * variance.max() / 4000)


def test_fit_finds_which_coordinates_matter():
    size = 512
    steps = lattice_steps(VECTOR, size)
    smooth = np.sin(2 * np.pi * steps[0]) * (1.0 + np.cos(2 * np.pi * steps[2]))
    kernel, loss = fit_periodic(smooth, steps, (1, 2, 3))
    assert kernel.order == 3
    assert kernel.scales[1] < 1e-3 * min(kernel.scales[0], kernel.scales[2])
    assert loss < fit_periodic(smooth, steps, (1,))[1]
