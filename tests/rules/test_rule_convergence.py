"""Rates: the worst case at the optimal order, and integrals with known values."""

from __future__ import annotations

import numpy as np
import pytest

from nestquad.distributions import Normal, Uniform
from nestquad.kernels import Gaussian, Matern
from nestquad.points import Lattice, Stream
from nestquad.rules import kernel_rule

SIZES = np.array([8, 16, 32, 64, 128, 256])


def midpoints(n):
    return (np.arange(n)[:, None] + 0.5) / n


def slope(errors, sizes=SIZES):
    return np.polyfit(np.log(sizes), np.log(errors), 1)[0]


@pytest.mark.parametrize(
    ("kernel", "rate"),
    [
        (Matern(0.5, 0.5), 1.0),
        (Matern(1.5, 0.5), 2.0),
        (Matern(2.5, 0.5), 3.0),
    ],
)
def test_worst_case_error_falls_at_the_rate_of_the_smoothness(kernel, rate):
    # Beyond 1e-7 it is lost in the rounding of ∬k.
    sizes = SIZES[: {1.0: 6, 2.0: 5, 3.0: 3}[rate]]
    errors = [kernel_rule(kernel, Uniform(), midpoints(n)).worst_case_error for n in sizes]
    assert slope(errors, sizes) == pytest.approx(-rate, abs=0.25)
    assert kernel.smoothness(1) == rate


@pytest.mark.parametrize(("nu", "rate"), [(0.5, 1.0), (1.5, 2.0)])
@pytest.mark.parametrize(
    ("h", "truth"),
    [(np.exp, np.e - 1), (lambda x: 1 / (1 + x), np.log(2)), (lambda x: x**2.5, 2 / 7)],
)
def test_smooth_integrands_converge_at_least_that_fast(nu, rate, h, truth):
    errors = [
        abs(kernel_rule(Matern(nu, 0.5), Uniform(), x).integrate(h(x[:, 0])) - truth)
        for x in map(midpoints, SIZES)
    ]
    assert slope(errors) < -rate + 0.1
    assert errors[-1] < {0.5: 1e-5, 1.5: 1e-6}[nu]


def test_tensor_products_on_the_cube():
    lattice = Lattice().uniforms(Stream.from_rng(1), 2, (0, 1), (0, 256))[0]
    h, truth = np.exp(lattice.sum(axis=1)), (np.e - 1) ** 2
    plain = abs(h.mean() - truth)
    for kernel in (Matern(2.5, 1.0), Matern(1.5, 0.5)):
        error = abs(kernel_rule(kernel, Uniform(dim=2), lattice).integrate(h) - truth)
        assert error < plain / 20
        assert error < 2e-4


@pytest.mark.parametrize(("n", "tolerance"), [(10, 1e-2), (20, 1e-7), (40, 1e-8)])
def test_gaussian_kernel_on_its_native_normal_law(n, tolerance):
    law = Normal(0.5, 1.2)
    nodes = (0.5 + 1.2 * np.linspace(-5, 5, n))[:, None]
    rule = kernel_rule(Gaussian(1.0), law, nodes)
    for a in (0.5, 1.0, 2.0):  # E[cos(ax)] is the real part of the characteristic function
        truth = np.exp(-((1.2 * a) ** 2) / 2) * np.cos(0.5 * a)
        assert rule.integrate(np.cos(a * nodes[:, 0])) == pytest.approx(truth, abs=tolerance)


def root_mean_square(errors):
    return float(np.sqrt(np.mean(np.square(errors))))


def test_gaussian_kernel_on_correlated_normals():
    law = Normal([1.0, 0.0], cov=[[1.0, 0.5], [0.5, 0.8]])
    errors, plain = [], []
    for seed in range(10):
        nodes = law.sample(100, np.random.default_rng(seed))
        values = nodes[:, 0] * nodes[:, 1]  # of mean 0.5
        errors.append(kernel_rule(Gaussian(2.0), law, nodes).integrate(values) - 0.5)
        plain.append(values.mean() - 0.5)
    assert root_mean_square(errors) < root_mean_square(plain) / 20
