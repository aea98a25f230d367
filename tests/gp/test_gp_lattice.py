"""Gaussian processes on lattices: FFTs against dense linear algebra."""

import numpy as np
import pytest
from scipy.integrate import quad

from nestquad.gp import (
    JointLikelihood,
    LatticeLikelihood,
    PeriodicKernel,
    fit_periodic,
    in_sequence_order,
    interpolate,
    lattice_steps,
    omega,
    refine_kernel,
    reversed_bits,
)
from nestquad.points import lattice_vector

VECTOR = lattice_vector(3, 10)
KERNEL = PeriodicKernel(2, np.array([0.4, 1.3, 0.2]), 1e-3)
SHIFTS = np.random.default_rng(11).random((3, 3))


def lattice(size, shifts):
    """Interleaved shifts of the lattice of that size in van der Corput order, (R m, 3)."""
    order = reversed_bits(size, (size - 1).bit_length())
    points = order[:, None] * VECTOR % size / size
    return ((points[:, None] + shifts) % 1.0).reshape(-1, 3)


def own_theta(size, shifts):
    """θ of all shifts in lattice order, (R m, 1)."""
    steps = lattice_steps(VECTOR[:1], size)[0]
    return ((steps + shifts[:, :1]) % 1.0).reshape(-1, 1)


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


@pytest.mark.parametrize("shifts", [SHIFTS[:1], SHIFTS])
def test_interpolant_equals_dense_algebra(shifts):
    points = lattice(32, shifts)
    values = values_at(points)
    process = interpolate(KERNEL, VECTOR, shifts, 1, values)
    expected = dense_marginal(KERNEL, points, values, own_theta(32, shifts))
    np.testing.assert_allclose(process.marginal(shifts[:, :1]).reshape(-1), expected, atol=1e-9)
    other = np.array([[0.123]])
    expected = dense_marginal(KERNEL, points, values, own_theta(32, other))
    np.testing.assert_allclose(process.marginal(other)[0], expected, atol=1e-9)


def test_any_points_are_predicted_as_by_dense_algebra(monkeypatch):
    points = lattice(32, SHIFTS)
    values = values_at(points)
    theta = np.random.default_rng(0).random((9, 1))
    monkeypatch.setattr("nestquad.limits.CACHE_NUMBERS", 130)  # blocks of one point
    process = interpolate(KERNEL, VECTOR, SHIFTS, 1, values)
    expected = dense_marginal(KERNEL, points, values, theta)
    np.testing.assert_allclose(process.at(theta), expected, atol=1e-9)
    # At shifted lattices in all coordinates, the FFT gives the same.
    offset = np.array([[0.3, 0.8, 0.45]])
    where = (lattice_steps(VECTOR, 32).T + offset) % 1.0
    np.testing.assert_allclose(process.marginal(offset)[0], process.at(where), atol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("size", [1e-6, 0.5, 200.0])
def test_weighted_sums_are_those_of_the_definition(order, size, monkeypatch):
    monkeypatch.setattr("nestquad.limits.CACHE_NUMBERS", 64)
    rng = np.random.default_rng(order)
    kernel = PeriodicKernel(order, size * np.array([0.4, 1.3, 0.2]), 1e-3)
    points, nodes, weights = rng.random((20, 3)), rng.random((100, 3)), rng.normal(size=100)
    weights -= weights.mean()
    found = kernel.weighted_sums(points, nodes.T, weights)
    expected = gram(kernel, points, nodes) @ weights
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_leave_one_out_is_what_leaving_out_gives():
    points = lattice(16, SHIFTS)
    values = values_at(points)
    process = interpolate(KERNEL, VECTOR, SHIFTS, 1, values)
    found = in_sequence_order(process.leave_one_out)
    covariance = noisy_gram(KERNEL, points)
    for i in range(len(points)):
        rest = np.delete(np.arange(len(points)), i)
        inverse = np.linalg.inv(covariance[np.ix_(rest, rest)])
        mean = inverse.sum(axis=0) @ values[rest] / inverse.sum()
        predicted = mean + covariance[i, rest] @ inverse @ (values[rest] - mean)
        np.testing.assert_allclose(found[i], values[i] - predicted, atol=1e-8)


def restricted_likelihood(kernel, points, values):
    """By dense algebra, without the constant log n of the mean."""
    inverse, ones = np.linalg.inv(noisy_gram(kernel, points)), np.ones(len(points))
    precision, n = ones @ inverse @ ones, len(points)
    centered = values - ones @ inverse @ values / precision
    quadratic = centered @ inverse @ centered
    return 0.5 * (-np.linalg.slogdet(inverse)[1] + (n - 1) * np.log(quadratic / (n - 1)))


def test_joint_likelihood_equals_dense_algebra():
    points = lattice(16, SHIFTS)
    values = values_at(points)
    loss = JointLikelihood.of(interpolate(KERNEL, VECTOR, SHIFTS, 1, values))
    parameters = np.log(np.append(KERNEL.scales, KERNEL.nugget))
    found, gradient = loss(parameters)
    expected = restricted_likelihood(KERNEL, points, values)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    for k in range(4):
        step = np.eye(4)[k] * 1e-5
        up, down = (loss(parameters + s)[0] for s in (step, -step))
        np.testing.assert_allclose(gradient[k], (up - down) / 2e-5, rtol=1e-5, atol=1e-5)


def test_refinement_raises_the_joint_likelihood():
    points = lattice(64, SHIFTS)
    process = interpolate(KERNEL, VECTOR, SHIFTS, 1, values_at(points))
    before, _ = JointLikelihood.of(process)(np.log(np.append(KERNEL.scales, KERNEL.nugget)))
    kernel, after = refine_kernel(process)
    assert after < before - 1.0
    assert kernel.order == KERNEL.order


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


@pytest.mark.parametrize("shifts", [SHIFTS[:1], SHIFTS[:2]])
def test_posterior_draws_have_the_posterior_variance(shifts):
    points = lattice(16, shifts)
    values, n = values_at(points), len(points)
    process = interpolate(KERNEL, VECTOR, shifts, 1, values)
    marginal, noisy = process.draws(4000, np.random.default_rng(0))
    draws = (marginal - process.predicted(noisy, shifts[:, :1])).reshape(4000, -1)
    inverse = np.linalg.inv(noisy_gram(KERNEL, points))
    theta = own_theta(16, shifts)
    cross = gram(KERNEL, theta, points[:, :1])
    prior = gram(PeriodicKernel(2, KERNEL.scales[:1], 0.0), theta[:1], theta[:1])[0, 0]
    defect = 1.0 - cross @ inverse.sum(axis=0)
    variance = prior - np.einsum("ti,ij,tj->t", cross, inverse, cross)
    variance += defect**2 / inverse.sum()
    mean = inverse.sum(axis=0) @ values / inverse.sum()
    amplitude = (values - mean) @ inverse @ (values - mean) / (n - 1)
    np.testing.assert_allclose(draws.var(axis=0), amplitude * variance, rtol=0.15)
    np.testing.assert_allclose(
        process.spread**2, amplitude * np.mean(variance - defect**2 / inverse.sum()), rtol=1e-6
    )
    assert np.abs(draws.mean(axis=0)).max() < 5 * np.sqrt(amplitude * variance.max() / 4000)


def test_fit_finds_which_coordinates_matter():
    size = 512
    steps = lattice_steps(VECTOR, size)
    smooth = np.sin(2 * np.pi * steps[0]) * (1.0 + np.cos(2 * np.pi * steps[2]))
    kernel, loss = fit_periodic(smooth[None], steps, (1, 2, 3))
    assert kernel.order == 3
    assert kernel.scales[1] < 1e-3 * min(kernel.scales[0], kernel.scales[2])
    assert loss < fit_periodic(smooth[None], steps, (1,))[1]
