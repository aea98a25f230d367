"""Kernel values against their definitions."""

from __future__ import annotations

from itertools import combinations
from math import comb

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import bernoulli

from nestquad.errors import InputError, UnsupportedError
from nestquad.kernels import (
    Additive,
    Anova,
    Gaussian,
    Matern,
    PeriodicSobolev,
    Scaled,
    Sobolev,
    Sum,
    Tensor,
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
    for kernel in (Matern(2.5), Gaussian(), Sobolev(2), PeriodicSobolev(1)):
        factors = [kernel.with_lengthscale(scale) for scale in scales]
        expected = np.prod([f(X[:, [j]], Y[:, [j]]) for j, f in enumerate(factors)], axis=0)
        assert_allclose(kernel.with_lengthscale(scales)(X, Y), expected, rtol=1e-14)
        assert_allclose(Tensor(*factors)(X, Y), expected, rtol=1e-14)


def test_gaussian_is_exp_of_minus_half_the_squared_distance():
    squared = ((X[:, None] - Y[None]) ** 2 / np.array([0.5, 1.0, 2.0]) ** 2).sum(-1)
    assert_allclose(Gaussian([0.5, 1.0, 2.0])(X, Y), np.exp(-0.5 * squared), rtol=1e-14)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_sobolev_is_the_bernoulli_series(order):
    x, y = pairs(X[:, 0], Y[:, 0])
    factorial = [1, 1, 2, 6, 24, 120, 720]
    varying = (
        (-1) ** (order + 1) * bernoulli_polynomial(2 * order, np.abs(x - y)) / factorial[2 * order]
    )
    for r in range(1, order + 1):
        varying = (
            varying + bernoulli_polynomial(r, x) * bernoulli_polynomial(r, y) / factorial[r] ** 2
        )
    got = Sobolev(order, 0.5)(X[:, :1], Y[:, :1])
    assert_allclose(got, 1.0 + 4.0 * varying, rtol=1e-13)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_sobolev_reproduces_its_functions(order):
    # <k(., y), f> = f(y) in the norm (∫f)² + ℓ² [Σ_{0<r<s} (∫f^(r))² + ∫(f^(s))²], for f = t^4.
    # Only values of the kernel are used: on either side of y its section is a polynomial.
    lengthscale, y = 0.7, 0.3
    f = np.polynomial.Polynomial([0.0, 0.0, 0.0, 0.0, 1.0])
    nodes, weights = np.polynomial.legendre.leggauss(30)
    sides = []
    for low, high in ((0.0, y), (y, 1.0)):
        t = low + (high - low) * (nodes + 1) / 2
        values = Sobolev(order, lengthscale)(t[:, None], np.array([[y]]))[:, 0]
        section = np.polynomial.Polynomial.fit(t, values, 2 * order)
        sides.append((section, t, (high - low) / 2 * weights))

    def integral(of):
        return sum(w @ of(section, t) for section, t, w in sides)

    product = integral(lambda k, t: k(t)) * integral(lambda k, t: f(t))
    for r in range(1, order):
        both = integral(lambda k, t, r=r: k.deriv(r)(t)) * integral(lambda k, t, r=r: f.deriv(r)(t))
        product += lengthscale**2 * both
    product += lengthscale**2 * integral(lambda k, t: k.deriv(order)(t) * f.deriv(order)(t))
    assert product == pytest.approx(y**4, rel=1e-8)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_periodic_sobolev_is_its_fourier_series(order):
    h = np.arange(1, 20_001)
    lags = np.array([0.0, 0.1, 0.37, 0.5])
    # Σ_{h≠0} e^{2πih r} / (2πh)^2s = (-1)^(s+1) B_2s(r) / (2s)!
    series = (2 * np.cos(2 * np.pi * np.outer(lags, h)) / (2 * np.pi * h) ** (2 * order)).sum(-1)
    kernel = PeriodicSobolev(order, 0.5)
    varying = kernel(lags[:, None], np.zeros((1, 1)))[:, 0] - 1.0
    tail = 2 / (2 * np.pi) ** (2 * order) / h[-1] ** (2 * order - 1)
    assert_allclose(varying / varying[0] * series[0], series, atol=2 * tail + 1e-15)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_periodic_sobolev_has_the_average_diagonal_of_sobolev(order):
    nodes, weights = np.polynomial.legendre.leggauss(10)
    x = (nodes[:, None] + 1) / 2
    average = weights @ Sobolev(order, 0.3).diagonal(x) / 2
    assert PeriodicSobolev(order, 0.3).diagonal(np.zeros((1, 1)))[0] == pytest.approx(average)


def test_periodic_sobolev_is_invariant_under_shifts_and_whole_periods():
    kernel = PeriodicSobolev(2, 0.4)
    base = kernel(X, Y)
    assert_allclose(kernel(X + 0.31, Y + 0.31), base, rtol=1e-13)
    assert_allclose(kernel(X - 2.0, Y + 5.0), base, rtol=1e-13)


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
    assert_allclose(kernel.diagonal(x), 1.0, rtol=1e-14)


def test_additive_is_the_mean_of_the_factors():
    factors = [Sobolev(1, 0.5)(X[:, [j]], Y[:, [j]]) for j in range(3)]
    assert_allclose(Additive(Sobolev(1, 0.5))(X, Y), np.mean(factors, axis=0), rtol=1e-14)


def test_sums_and_multiples():
    first, second = Matern(0.5, 0.3), Gaussian(2.0)
    kernel = 2.0 * first + second * 0.5 + first
    assert_allclose(kernel(X, Y), 3.0 * first(X, Y) + 0.5 * second(X, Y), rtol=1e-14)
    assert isinstance(kernel, Sum)
    assert isinstance(2 * first, Scaled)
    with pytest.raises(TypeError):
        first + 1.0
    with pytest.raises(TypeError):
        first * second


ALL = [
    Matern(0.5, 0.3),
    Matern(3.5, [0.1, 1.0, 3.0]),
    Gaussian(0.4),
    Sobolev(1, 0.5),
    Sobolev(3, [0.1, 0.2, 1.0]),
    PeriodicSobolev(2, 0.1),
    Additive(Matern(2.5)),
    Anova(Gaussian(0.5), 2, 0.5),
    Tensor(Matern(0.5), Gaussian(), Sobolev(2)),
    Anova(Tensor(Matern(0.5), Gaussian(), Sobolev(2)), 2),
    Tensor(Matern(0.5) + Gaussian(2.0), 2.0 * Gaussian(), Sobolev(2)),
    Gaussian() + 3.0 * Matern(1.5),
]


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_diagonal_symmetry_and_leading_axes(kernel):
    gram = kernel(X, X)
    assert_allclose(kernel.diagonal(X), np.diagonal(gram), rtol=1e-14)
    assert_array_equal(gram, gram.T)
    assert_allclose(kernel(X, Y), kernel(Y, X).T, rtol=1e-15)
    batch = RNG.random((2, 5, 1, 4, 3))
    assert kernel(batch, Y).shape == (2, 5, 1, 4, 4)
    assert kernel.diagonal(batch).shape == (2, 5, 1, 4)
    assert_allclose(kernel(batch, X)[1, 2, 0], kernel(batch[1, 2, 0], X), rtol=1e-15)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_a_batch_of_lengthscales_is_a_batch_of_kernels(kernel):
    scales = np.exp(RNG.normal(size=(5, 3)))
    batched = kernel.with_lengthscale(scales)
    nodes = RNG.random((5, 4, 3))
    gram, shared = batched(nodes, Y), batched(X, Y)
    assert gram.shape == (5, 4, 4)
    assert batched.diagonal(nodes).shape == (5, 4)
    assert shared.shape == (5, 6, 4)
    for t in range(5):
        single = kernel.with_lengthscale(scales[t])
        assert_allclose(gram[t], single(nodes[t], Y), rtol=1e-14)
        assert_allclose(shared[t], single(X, Y), rtol=1e-14)
        assert_allclose(batched.diagonal(nodes)[t], single.diagonal(nodes[t]), rtol=1e-14)


@pytest.mark.parametrize("kernel", ALL, ids=repr)
def test_evaluation_leaves_its_input_alone(kernel):
    x, y = X.copy(), Y.copy()
    x.flags.writeable = y.flags.writeable = False
    kernel(x, y)[:] = 0.0
    kernel(x, x)[:] = 0.0
    kernel.diagonal(x)[:] = 0.0
    assert_array_equal(x, X)


def test_nodes_outside_the_cube_are_refused_by_sobolev_only():
    outside = np.array([[0.5, 1.5, 0.5]])
    for call in (lambda: Sobolev(1)(X, outside), lambda: Sobolev(2).diagonal(outside)):
        with pytest.raises(InputError, match=r"outside \[0, 1\], 1.5"):
            call()
    assert np.isfinite(PeriodicSobolev(1)(X, outside)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Matern(2.0), "0.5, 1.5, 2.5 or 3.5"),
        (lambda: Matern(1.5, 0.0), "positive"),
        (lambda: Matern(1.5, [1.0, -1.0]), "positive"),
        (lambda: Gaussian(np.nan), "positive"),
        (lambda: Gaussian(np.ones((2, 2, 2))), r"\(T, d\)"),
        (lambda: Gaussian([]), r"\(T, d\)"),
        (lambda: Sobolev(4), "1, 2 or 3"),
        (lambda: PeriodicSobolev(0), "1, 2 or 3"),
        (lambda: Gaussian([1.0, 2.0])(X, Y), "one for each of the 3 coordinates"),
        (lambda: Tensor(Gaussian(), Gaussian())(X, Y), "one for each of the 3 coordinates"),
        (lambda: Tensor(Gaussian()).with_lengthscale([1.0, 2.0]), "one for each of 1"),
        (lambda: Tensor(), "at least one"),
        (lambda: Sum(Gaussian(), 3.0), "kernels of nestquad"),
        (lambda: Scaled(Gaussian(), 0.0), "positive"),
        (lambda: Scaled(3.0, 1.0), "kernels of nestquad"),
        (lambda: Additive(Gaussian() + Gaussian()), "Matern, Gaussian"),
        (lambda: Anova(Gaussian(), 0), "at least 1"),
        (lambda: Anova(Gaussian(), 1, -1.0), "positive"),
        (lambda: Gaussian()(X[:, 0], Y), r"x\[:, None\]"),
        (lambda: Gaussian()(X, Y[:, :2]), "as many as x has, 3"),
        (lambda: Gaussian()(X, np.full((1, 3), np.nan)), "finite"),
        (lambda: Gaussian().diagonal(X[0]), r"\(..., n, d\)"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_sum_of_different_lengthscales_has_none_of_its_own():
    with pytest.raises(UnsupportedError, match="different lengthscales"):
        _ = (Gaussian(1.0) + Gaussian(2.0)).lengthscale
    assert (Gaussian(1.0) + Matern(0.5, 1.0)).lengthscale == 1.0
