from __future__ import annotations

import cmath
import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from nestquad.errors import InputError
from nestquad.problems import health

MEAN = np.array(
    [1e3, 0.1, 5.2, 400, 0.3, 3, 0.25, -0.1, 0.5, 1500, 0.08, 6.1, 0.3, 3, 0.2, -0.1, 0.5, 0.7, 0.8]
)
SD = np.array(
    [1, 0.02, 1, 200, 0.1, 0.5, 0.1, 0.02, 0.2, 1, 0.02, 1, 0.05, 1, 0.05, 0.02, 0.2, 0.1, 0.1]
)
KNOWN = {"responses": [17, 18], "durations": [5, 13]}
RHO = 0.6


def covariance():
    correlation = np.eye(19)
    for i in (5, 13, 17, 18):
        for j in (5, 13, 17, 18):
            if i != j:
                correlation[i, j] = RHO
    return correlation * np.outer(SD, SD)


def naive_benefits(p):
    """Both net benefits at one point: the paper's formula, parameters in its order."""
    x = dict(enumerate(p[:17], start=1))
    first = 1e4 * (p[17] * x[5] * x[6] + x[7] * x[8] * x[9]) - (x[1] + x[2] * x[3] * x[4])
    second = 1e4 * (p[18] * x[13] * x[14] + x[15] * x[16] * x[17]) - (x[10] + x[11] * x[12] * x[4])
    return [first, second]


def conditional_means(known, z):
    """J_1 and J_2 when the two known parameters are z standard deviations off.

    All four correlated parameters have correlation ρ, so the mean of each of the other two is
    ρ/(1 + ρ)·(z_1 + z_2) of its standard deviations off; the rest stay where they are.
    """
    point = MEAN.copy()
    point[[5, 13, 17, 18]] += RHO / (1 + RHO) * (z[0] + z[1]) * SD[[5, 13, 17, 18]]
    point[KNOWN[known]] = MEAN[KNOWN[known]] + np.asarray(z) * SD[KNOWN[known]]
    # Each product has at most one factor that is not independent of the others given z.
    return naive_benefits(point)


def quadratic(known):
    """c, b, A with J_1 − J_2 = c + b·y + y'Ay for standard normal y."""
    factor = np.linalg.cholesky([[1, RHO], [RHO, 1]])

    def difference(y):
        first, second = conditional_means(known, factor @ np.asarray(y, dtype=float))
        return first - second

    c = difference([0, 0])
    plus, minus = np.array([[difference(s * e) for e in np.eye(2)] for s in (1, -1)])
    b, diagonal = (plus - minus) / 2, (plus + minus) / 2 - c
    mixed = (difference([1, 1]) - c - b.sum() - diagonal.sum()) / 2
    a = np.array([[diagonal[0], mixed], [mixed, diagonal[1]]])
    assert difference([0.7, -1.3]) == pytest.approx(
        c + b @ [0.7, -1.3] + np.array([0.7, -1.3]) @ a @ [0.7, -1.3], rel=1e-9
    )
    return c, b, a


def gain_by_nested_quadrature(c, b, a):
    """E[max(c + b·y + y'Ay, 0)]: in closed form over y_1 between the roots, then adaptively."""

    def over_first(y2):
        square, slope, level = a[0, 0], b[0] + 2 * a[0, 1] * y2, c + b[1] * y2 + a[1, 1] * y2**2
        roots = np.roots([square, slope, level])
        edges = [-np.inf, *sorted(roots.real[np.abs(roots.imag) == 0]), np.inf]
        total = 0.0
        for low, high in itertools.pairwise(edges):
            middle = np.clip(low, -1e3, 1e3) / 2 + np.clip(high, -1e3, 1e3) / 2
            if level + slope * middle + square * middle**2 > 0:
                density = norm.pdf([low, high])
                ends = [
                    0.0 if math.isinf(t) else t * p
                    for t, p in zip((low, high), density, strict=True)
                ]
                mass = norm.cdf(high) - norm.cdf(low)
                total += level * mass + slope * (density[0] - density[1])
                total += square * (mass + ends[0] - ends[1])
        return total * norm.pdf(y2)

    pieces = np.linspace(-10, 10, 41)
    return sum(
        quad(over_first, low, high, epsabs=1e-10, limit=200)[0]
        for low, high in itertools.pairwise(pieces)
    )


def gain_by_characteristic_function(c, b, a):
    """The same from E|D| = (2/π)·∫ (1 − Re φ(t))/t² dt, with φ of a Gaussian quadratic form."""
    eigenvalues, rotation = np.linalg.eigh(a)
    slopes = rotation.T @ b
    scale = math.sqrt(b @ b + 2 * np.sum(a**2))

    def real_part(t):
        t /= scale
        phi = cmath.exp(1j * t * c)
        for eigenvalue, slope in zip(eigenvalues, slopes, strict=True):
            spread = 1 - 2j * t * eigenvalue
            phi *= cmath.exp(-0.5 * (slope * t) ** 2 / spread) / cmath.sqrt(spread)
        return phi.real

    low, high = 1e-3, 400.0
    # (1 − Re φ)/t² is E D²/2 at 0 with the next term of order t², small enough to take as linear.
    start = quad(lambda t: (1 - real_part(t)) / t**2, low, 1, epsabs=1e-12)[0]
    start += low * (1 - real_part(low)) / low**2
    rest = sum(
        quad(lambda t: real_part(t) / t**2, p, q, epsabs=1e-13, limit=400)[0]
        for p, q in ((1, 4), (4, 16), (16, 64), (64, high))
    )
    absolute = scale * 2 / math.pi * (start + 1.0 - rest)
    mean = c + np.trace(a)
    return (absolute + mean) / 2


@pytest.mark.parametrize("known", ["responses", "durations"])
def test_exact_value_by_two_methods(known):
    c, b, a = quadratic(known)
    gain = gain_by_nested_quadrature(c, b, a)
    assert gain_by_characteristic_function(c, b, a) == pytest.approx(gain, rel=1e-6)
    # E max(J_1, J_2) = E J_2 + E (J_1 − J_2)⁺, and the second treatment is the better one.
    means = 5057.0, 5584.8
    assert c + np.trace(a) == pytest.approx(means[0] - means[1], rel=1e-11)
    assert health(known).exact == pytest.approx(gain, abs=1e-8)


@pytest.mark.parametrize("known", ["responses", "durations"])
def test_g_is_the_formula_of_the_paper(known):
    rng = np.random.default_rng(0)
    points = MEAN + SD * rng.standard_normal((50, 19))
    unknown = [i for i in range(19) if i not in KNOWN[known]]
    values = health(known).g(points[:, unknown], points[:, KNOWN[known]])
    np.testing.assert_allclose(values, [naive_benefits(p) for p in points], rtol=1e-12)


@pytest.mark.parametrize("known", ["responses", "durations"])
def test_inner_law_is_conditional_on_both(known):
    problem = health(known)
    here = KNOWN[known]
    unknown = [i for i in range(19) if i not in here]
    theta = problem.outer_law.sample(4, np.random.default_rng(1))
    law = problem.inner_law(theta)
    # By the precision matrix instead of the covariance.
    precision = np.linalg.inv(covariance())
    conditional = np.linalg.inv(precision[np.ix_(unknown, unknown)])
    slope = -conditional @ precision[np.ix_(unknown, here)]
    np.testing.assert_allclose(
        law.cov, np.broadcast_to(conditional, law.cov.shape), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(law.loc, MEAN[unknown] + (theta - MEAN[here]) @ slope.T, rtol=1e-12)
    np.testing.assert_allclose(problem.outer_law.loc, MEAN[here])
    np.testing.assert_allclose(problem.outer_law.cov, covariance()[np.ix_(here, here)], rtol=1e-13)


@pytest.mark.parametrize("known", ["responses", "durations"])
def test_inner_mean_of_g(known):
    problem = health(known)
    z = np.array([[0.0, 0.0], [1.0, -1.0], [-2.0, 0.5], [1.5, 2.0]])
    theta = MEAN[KNOWN[known]] + z * SD[KNOWN[known]]
    x = problem.inner_law(theta).sample(20_000, np.random.default_rng(2))
    values = problem.g(x, theta[:, None, :])
    j = [conditional_means(known, row) for row in z]
    scores = (values.mean(axis=1) - j) / (values.std(axis=1) / math.sqrt(20_000))
    assert np.abs(scores).max() < 4


def test_f_and_combine():
    problem = health()
    f = problem.f(np.array([[1.0, 3.0], [5.0, 2.0]]))
    np.testing.assert_array_equal(f, [[3, 1, 3], [5, 5, 2]])
    assert problem.finish(f.mean(axis=0)) == 4 - 3


def test_unknown_information():
    with pytest.raises(InputError, match="Did you mean 'durations'"):
        health("duration")
