"""Stein kernels: derivatives by finite differences, and the integral they are made for."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from nestquad.distributions import Normal
from nestquad.errors import InputError, UnsupportedError
from nestquad.kernels import Gaussian, Matern, Sobolev, Stein

BASES = [Gaussian(0.7), Matern(1.5, 0.7), Matern(2.5, 0.7), Matern(3.5, 0.7)]


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_derivatives_are_those_of_the_kernel(base, scale):
    kernel = base.with_lengthscale(scale)
    x, y, h = scale * np.array([-1.3, 0.2, 0.5]), scale * np.array([0.0, 1.1]), 1e-4 * scale
    k, slope, bend = kernel.derivatives(x, y)
    assert_allclose(k, kernel.univariate(x, y), rtol=1e-14)
    central = (kernel.univariate(x + h, y) - kernel.univariate(x - h, y)) / (2 * h)
    assert_allclose(slope, central, rtol=1e-6, atol=1e-7 / scale)
    mixed = (
        kernel.univariate(x + h, y + h)
        - kernel.univariate(x + h, y - h)
        - kernel.univariate(x - h, y + h)
        + kernel.univariate(x - h, y - h)
    ) / (4 * h * h)
    assert_allclose(bend, mixed, rtol=1e-5, atol=1e-6 / scale**2)


@pytest.mark.parametrize("base", BASES[:1] + BASES[2:], ids=repr)
def test_curvature_is_the_mixed_derivative_at_zero(base):
    h = 1e-4
    x = np.array([0.0])
    second = (2.0 - 2.0 * base.univariate(x, x + h)[0, 0]) / h**2
    assert base.curvature(0) == pytest.approx(second, rel=1e-4)
    assert base.derivatives(x, x)[2][0, 0] == pytest.approx(base.curvature(0), rel=1e-14)


def test_curvature_of_matern_three_halves():
    # Its fourth derivative at zero does not exist, so the difference above converges slowly.
    assert Matern(1.5, 0.7).curvature(0) == pytest.approx(3.0 / 0.7**2, rel=1e-14)


def test_definition_in_two_coordinates_by_finite_differences():
    base = Matern(2.5, [0.8, 1.7])
    score = lambda x: -x * np.array([1.0, 0.25])  # noqa: E731
    x, y, h = np.array([0.4, -0.9]), np.array([-0.2, 0.3]), 1e-4

    def k(a, b):
        return base(a[None], b[None])[0, 0]

    steps = h * np.eye(2)
    gradient_x = np.array([(k(x + e, y) - k(x - e, y)) / (2 * h) for e in steps])
    gradient_y = np.array([(k(x, y + e) - k(x, y - e)) / (2 * h) for e in steps])
    mixed = sum(
        (k(x + e, y + e) - k(x + e, y - e) - k(x - e, y + e) + k(x - e, y - e)) / (4 * h * h)
        for e in steps
    )
    expected = (
        2.0 + mixed + score(x) @ gradient_y + score(y) @ gradient_x + score(x) @ score(y) * k(x, y)
    )
    assert Stein(base, score, 2.0)(x[None], y[None])[0, 0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("lengthscale", [0.05, 1.0, 30.0])
def test_the_integral_is_the_constant(base, lengthscale):
    # A bimodal density, whose normalizing constant the score does not know.
    def density(t):
        return np.exp(-0.5 * (t - 1.0) ** 2) + 0.5 * np.exp(-2.0 * (t + 1.5) ** 2)

    def score(t):
        return (
            -(t - 1.0) * np.exp(-0.5 * (t - 1.0) ** 2)
            - 2.0 * (t + 1.5) * np.exp(-2.0 * (t + 1.5) ** 2)
        ) / density(t)

    kernel = Stein(base.with_lengthscale(lengthscale), score, constant=1.5)
    x = np.array([[-2.0], [0.1], [3.0]])
    nodes, weights = np.polynomial.legendre.leggauss(30)
    ends = np.unique(np.concatenate([np.linspace(-11, 11, 881), x[:, 0]]))
    half = np.diff(ends)[:, None] / 2
    t = (ends[:-1, None] + half * (nodes + 1)).ravel()
    mass = (half * weights).ravel() * density(t)
    integral = kernel(x, t[:, None]) @ mass / mass.sum()
    size = np.abs(kernel(x, t[:, None])) @ mass / mass.sum()
    assert_allclose(integral, 1.5, atol=1e-11 * size.max())


def test_for_law_binds_the_score_once():
    law = Normal([0.0, 1.0], sd=[1.0, 2.0])
    kernel = Stein(Gaussian())
    with pytest.raises(UnsupportedError, match="for_law"):
        kernel(np.zeros((1, 2)), np.zeros((1, 2)))
    bound = kernel.for_law(law)
    x = np.array([[0.3, -0.4], [2.0, 1.0]])
    assert_allclose(bound(x, x), Stein(Gaussian(), law.score)(x, x))
    assert bound.for_law(Normal(dim=2)) is bound
    assert (2.0 * kernel + Gaussian()).for_law(law)(x, x).shape == (2, 2)
    assert bound == kernel.for_law(law)


def test_a_batch_of_laws_gives_a_batch_of_matrices():
    law = Normal(np.array([[0.0], [1.0], [5.0]]), sd=np.array([[1.0], [2.0], [0.5]]))
    kernel = Stein(Matern(2.5, [[0.5], [1.0], [2.0]])).for_law(law)
    x = np.array([[0.1], [0.7]])
    gram, diagonal = kernel(x, x), kernel.diagonal(x)
    assert gram.shape == (3, 2, 2)
    for t, (m, s, scale) in enumerate([(0.0, 1.0, 0.5), (1.0, 2.0, 1.0), (5.0, 0.5, 2.0)]):
        single = Stein(Matern(2.5, scale)).for_law(Normal(m, sd=s))
        assert_allclose(gram[t], single(x, x), rtol=1e-13)
        assert_allclose(diagonal[t], single.diagonal(x), rtol=1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Stein(Matern(0.5)), "at least 1.5"),
        (lambda: Stein(Sobolev(2)), "at least 1.5"),
        (lambda: Stein(Gaussian(), constant=0.0), "positive"),
        (lambda: Stein(Gaussian(), score=3.0), "callable"),
        (lambda: Stein(Gaussian(), lambda x: x[..., 0]).diagonal(np.zeros((3, 2))), "one gradient"),
        (lambda: Stein(Gaussian(), lambda x: x * np.nan).diagonal(np.ones((3, 2))), "not finite"),
        (lambda: Matern(0.5).derivatives(np.zeros(1), np.zeros(1)), "at least 1.5"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()
