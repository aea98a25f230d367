"""Kernel values against their definitions."""

from __future__ import annotations

from itertools import combinations
from math import comb

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import bernoulli

from nestquad.errors import InputError
from nestquad.kernels import (
    Anova,
    Gaussian,
    Matern,
)

RNG = np.random.default_rng(7)
X = RNG.random((6, 3))
Y = RNG.random((4, 3))


def bernoulli_polynomial(n, x):
    """B_n(x) from Bernoulli numbers, independently of the polynomials in the source."""
    numbers = bernoulli(n)
    return sum(comb(n, k) * numbers[k] * x ** (n - k) for k in range(n + 1))


def pairs(x, y):
    return x[:, None], y[None, :]


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, 3.5])
@pytest.mark.parametrize("lengthscale", [1e-2, 0.3, 50.0])
def test_matern_is_the_bessel_form(nu, lengthscale):
    got = Matern(nu, lengthscale)(X[:, :1], Y[:, :1])
    for i, x in enumerate(X[:, 0]):
        for j, y in enumerate(Y[:, 0]):
            z = mp.sqrt(2 * nu) * abs(mp.mpf(x) - mp.mpf(y)) / lengthscale
            exact = 2 ** (1 - mp.mpf(nu)) / mp.gamma(nu) * z**nu * mp.besselk(nu, z)
            assert float(abs(got[i, j] / exact - 1)) < 1e-12


def test_product_kernels_multiply_over_coordinates_with_their_own_lengthscales():
    scales = np.array([0.2, 1.0, 3.0])
    for kernel in (Matern(2.5), Gaussian()):
        factors = [kernel.with_lengthscale(scale) for scale in scales]
        expected = np.prod([f(X[:, [j]], Y[:, [j]]) for j, f in enumerate(factors)], axis=0)
        assert_allclose(kernel.with_lengthscale(scales)(X, Y), expected, rtol=1e-14)


def test_gaussian_is_exp_of_minus_half_the_squared_distance():
    squared = ((X[:, None] - Y[None]) ** 2 / np.array([0.5, 1.0, 2.0]) ** 2).sum(-1)
    assert_allclose(Gaussian([0.5, 1.0, 2.0])(X, Y), np.exp(-0.5 * squared), rtol=1e-14)


def brute_force_anova(factors, order, weight):
    dim = len(factors)
    total = count = 0.0
    for size in range(min(order, dim) + 1):
        for subset in combinations(range(dim), size):
            total = total + weight**size * np.prod([factors[j] for j in subset], axis=0)
            count += weight**size
    return total / count


@pytest.mark.parametrize("order", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("weight", [0.3, 1.0, 2.0])
def test_anova_is_the_sum_over_subsets(order, weight):
    x, y = RNG.random((5, 5)), RNG.random((3, 5))
    scales = np.array([0.2, 0.5, 1.0, 2.0, 5.0])
    base = Matern(1.5, scales)
    factors = [Matern(1.5, s)(x[:, [j]], y[:, [j]]) for j, s in enumerate(scales)]
    kernel = Anova(base, order, weight)
    assert_allclose(kernel(x, y), brute_force_anova(factors, order, weight), rtol=1e-13)
    assert_allclose(np.diagonal(kernel(x, x)), 1.0, rtol=1e-14)


ALL = [
    Matern(0.5, 0.3),
    Matern(3.5, [0.1, 1.0, 3.0]),
    Gaussian(0.4),
    Anova(Gaussian(0.5), 2, 0.5),
]


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_symmetry_and_leading_axes(kernel):
    gram = kernel(X, X)
    assert_array_equal(gram, gram.T)
    assert_allclose(kernel(X, Y), kernel(Y, X).T, rtol=1e-15)
    batch = RNG.random((2, 5, 1, 4, 3))
    assert kernel(batch, Y).shape == (2, 5, 1, 4, 4)
    assert_allclose(kernel(batch, X)[1, 2, 0], kernel(batch[1, 2, 0], X), rtol=1e-15)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_a_batch_of_lengthscales_is_a_batch_of_kernels(kernel):
    scales = np.exp(RNG.normal(size=(5, 3)))
    batched = kernel.with_lengthscale(scales)
    nodes = RNG.random((5, 4, 3))
    gram, shared = batched(nodes, Y), batched(X, Y)
    assert gram.shape == (5, 4, 4)
    assert shared.shape == (5, 6, 4)
    for t in range(5):
        single = kernel.with_lengthscale(scales[t])
        assert_allclose(gram[t], single(nodes[t], Y), rtol=1e-14)
        assert_allclose(shared[t], single(X, Y), rtol=1e-14)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_evaluation_leaves_its_input_alone(kernel):
    x, y = X.copy(), Y.copy()
    x.flags.writeable = y.flags.writeable = False
    kernel(x, y)[:] = 0.0
    kernel(x, x)[:] = 0.0
    assert_array_equal(x, X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Matern(2.0), "0.5, 1.5, 2.5 or 3.5"),
        (lambda: Matern(1.5, 0.0), "positive"),
        (lambda: Matern(1.5, [1.0, -1.0]), "positive"),
        (lambda: Gaussian(np.nan), "positive"),
        (lambda: Gaussian(np.ones((2, 2, 2))), r"\(T, d\)"),
        (lambda: Gaussian([]), r"\(T, d\)"),
        (lambda: Gaussian([1.0, 2.0])(X, Y), "one for each of the 3 coordinates"),
        (lambda: Anova(Anova(Gaussian()), 1), "Matern or Gaussian"),
        (lambda: Anova(Gaussian(), 0), "at least 1"),
        (lambda: Anova(Gaussian(), 1, -1.0), "positive"),
        (lambda: Gaussian()(X[:, 0], Y), r"x\[:, None\]"),
        (lambda: Gaussian()(X, Y[:, :2]), "as many as x has, 3"),
        (lambda: Gaussian()(X, np.full((1, 3), np.nan)), "finite"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()
