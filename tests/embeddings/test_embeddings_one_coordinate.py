"""Every closed form against numerical integration of the kernel itself, to 1e-10."""

from __future__ import annotations

import numpy as np
import pytest
from embedding_reference import normal_double, normal_mean, uniform_double, uniform_mean
from numpy.testing import assert_allclose
from scipy.integrate import dblquad, quad

from nestquad.distributions import Normal, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.kernels import Gaussian, Matern

KERNELS = [Matern(0.5), Matern(1.5), Matern(2.5), Matern(3.5), Gaussian()]
LENGTHSCALES = [1e-3, 1e-2, 0.1, 0.5, 1.0, 3.0, 30.0, 1e3]
BOXES = [(0.0, 1.0), (-2.0, 3.0), (0.3, 0.301)]
NORMALS = [(0.0, 1.0), (2.0, 0.05), (-1.0, 20.0)]
TOLERANCE = 1e-10
VISIBLE = 1e-290  # smaller values lose digits by underflow


def compare(got, expected):
    expected = np.array(expected)
    seen = expected > VISIBLE
    assert_allclose(got[seen], expected[seen], rtol=TOLERANCE)
    assert (got[~seen] <= 2 * VISIBLE).all()
    assert (got >= 0.0).all()
    return int(seen.sum())


@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("box", BOXES, ids=repr)
def test_mean_on_a_box(kernel, lengthscale, box):
    kernel = kernel.with_lengthscale(lengthscale)
    low, high = box
    length = high - low
    inside = [low, low + 1e-9 * length, low + 0.2 * length, (low + high) / 2, high]
    near = [low - 1e-9 * length, low - 0.1 * length, high + length]
    far = [high + 2.5 * lengthscale, low - 25.0 * lengthscale, high + 30 * length]
    x = np.array(inside + near + far)
    expected = [uniform_mean(kernel, lengthscale, low, high, t) for t in x]
    n_seen = compare(mean_embedding(kernel, Uniform(low, high), x[:, None]), expected)
    assert n_seen >= 7


@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_double_on_a_box(kernel, lengthscale):
    kernel = kernel.with_lengthscale(lengthscale)
    for low, high in BOXES:
        expected = uniform_double(kernel, lengthscale, low, high)
        assert_allclose(double_embedding(kernel, Uniform(low, high)), expected, rtol=TOLERANCE)


@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("law", NORMALS, ids=repr)
def test_mean_under_a_normal_law(kernel, lengthscale, law):
    kernel = kernel.with_lengthscale(lengthscale)
    loc, sd = law
    x = loc + sd * np.array([-36.0, -12.0, -3.0, -0.7, 0.0, 1e-7, 1.0, 2.0, 5.0, 20.0, 30.0])
    expected = [normal_mean(kernel, lengthscale, loc, sd, t) for t in x]
    n_seen = compare(mean_embedding(kernel, Normal(loc, sd=sd), x[:, None]), expected)
    assert n_seen >= 10


@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_double_under_a_normal_law(kernel, lengthscale):
    kernel = kernel.with_lengthscale(lengthscale)
    for loc, sd in NORMALS:
        expected = normal_double(kernel, lengthscale, sd)
        assert_allclose(double_embedding(kernel, Normal(loc, sd=sd)), expected, rtol=TOLERANCE)


@pytest.mark.parametrize("kernel", [Matern(2.5, 0.3), Gaussian(0.3)], ids=repr)
def test_the_reference_agrees_with_quadpack(kernel):
    for x in (0.2, 1.4):
        expected, _ = quad(
            lambda t, x=x: kernel([[x]], [[t]])[0, 0],
            0.0,
            1.0,
            points=[0.2],
            epsabs=0,
            epsrel=1e-12,
        )
        assert uniform_mean(kernel, 0.3, 0.0, 1.0, x) == pytest.approx(expected, rel=1e-11)
    expected, _ = dblquad(
        lambda s, t: kernel([[s]], [[t]])[0, 0], 0.0, 1.0, 0.0, lambda t: t, epsabs=1e-10
    )
    assert uniform_double(kernel, 0.3, 0.0, 1.0) == pytest.approx(2 * expected, rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_double_is_the_mean_of_the_mean(kernel):
    nodes, weights = np.polynomial.legendre.leggauss(60)
    for low, high in ((0.0, 1.0), (-2.0, 3.0)):
        x = low + (high - low) * (nodes + 1) / 2
        law = Uniform(low, high)
        average = weights @ mean_embedding(kernel, law, x[:, None]) / 2
        assert double_embedding(kernel, law) == pytest.approx(average, rel=1e-10)
    x, weights = np.polynomial.hermite_e.hermegauss(120)
    average = weights @ mean_embedding(kernel, Normal(), x[:, None]) / np.sqrt(2 * np.pi)
    assert double_embedding(kernel, Normal()) == pytest.approx(average, rel=1e-10)
