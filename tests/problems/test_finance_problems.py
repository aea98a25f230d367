from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import lognorm, norm

from nestquad.errors import InputError
from nestquad.problems import finance, gaussian_es

SIGMA, SHOCK = 0.3, 1.2
STRIKES = ((50, 1), (150, 1), (100, -2))  # of the butterfly, with their numbers of calls


def naive_payoff(price):
    return sum(number * max(price - strike, 0.0) for strike, number in STRIKES)


def black_scholes(price):
    """Value of the butterfly one year before maturity, without interest."""

    def call(strike):
        d = mp.log(price / strike) / SIGMA + mp.mpf(SIGMA) / 2
        return price * mp.ncdf(d) - strike * mp.ncdf(d - SIGMA)

    return sum(number * call(strike) for strike, number in STRIKES)


def loss(theta):
    return black_scholes(theta) - black_scholes(mp.mpf("1.2") * theta)


def price(z):
    return 100 * mp.exp(mp.mpf(SIGMA) * z - mp.mpf(SIGMA) ** 2 / 2)


def test_finance_exact_from_the_black_scholes_formula():
    # J changes its sign once: the loss is integrated from its root on.
    with mp.workdps(60):  # far out the three calls cancel almost entirely
        signs = [mp.sign(loss(price(z))) for z in np.linspace(-9, 9, 361)]
    assert sum(a != b for a, b in itertools.pairwise(signs)) == 1
    with mp.workdps(25):
        root = mp.findroot(lambda z: loss(price(z)), -0.2)
        assert float(price(root)) == pytest.approx(90.70294686624550, rel=1e-13)
        pieces = [root, 0, 1, 2, 4, 8, 16]
        answer = mp.quad(lambda z: loss(price(z)) * mp.npdf(z), pieces)
    assert finance().exact == pytest.approx(float(answer), rel=1e-13)


def test_finance_j_is_the_black_scholes_loss():
    problem = finance()
    for theta in (60.0, 90.7, 100.0, 160.0):
        law = lognorm(s=SIGMA, scale=theta * math.exp(-(SIGMA**2) / 2))
        kinks = [k / factor for k, _ in STRIKES for factor in (1.0, SHOCK)]
        j, _ = quad(
            lambda x, law=law: problem.g(np.array([x]), np.array([0.0])) * law.pdf(x),
            law.ppf(1e-16),
            law.isf(1e-16),
            points=kinks,
            limit=200,
            epsabs=1e-12,
        )
        assert j == pytest.approx(float(loss(mp.mpf(theta))), abs=1e-9)


def test_finance_g_is_the_difference_of_two_butterflies():
    x = np.concatenate((np.linspace(1, 400, 200), [125 / 3, 50, 250 / 3, 100, 125, 150]))
    expected = [naive_payoff(price) - naive_payoff(SHOCK * price) for price in x]
    np.testing.assert_allclose(finance().g(x[:, None], None), expected, rtol=1e-12, atol=1e-11)


def test_finance_laws_are_log_normal():
    problem = finance()
    u = np.array([[0.05], [0.5], [0.9]])
    scale = 100 * math.exp(-0.045)
    theta = problem.outer_law.from_uniform(u)
    np.testing.assert_allclose(theta, lognorm(s=0.3, scale=scale).ppf(u), rtol=1e-12)
    x = problem.inner_law(theta).from_uniform(u)
    assert x.shape == (3, 3, 1)
    for t in range(3):
        inner = lognorm(s=0.3, scale=theta[t, 0] * math.exp(-0.045))
        np.testing.assert_allclose(x[t], inner.ppf(u), rtol=1e-12)


@pytest.mark.parametrize(("alpha", "value"), [(0.95, 2.062713), (0.99, 2.665214), (0.3, None)])
def test_expected_shortfall_is_the_mean_of_the_tail(alpha, value):
    problem = gaussian_es(alpha)
    quantile = norm.ppf(alpha)
    tail, _ = quad(lambda j: j * norm.pdf(j), quantile, np.inf, epsabs=1e-13)
    assert problem.exact == pytest.approx(tail / (1 - alpha), rel=1e-11)
    if value is not None:
        assert problem.exact == pytest.approx(value, abs=5e-7)
    # f with the known quantile has the same mean (Rockafellar and Uryasev).
    mean = sum(
        quad(lambda j: problem.f(np.array([j]))[0] * norm.pdf(j), *part, epsabs=1e-13)[0]
        for part in ((-np.inf, quantile), (quantile, np.inf))
    )
    assert problem.exact == pytest.approx(mean, rel=1e-10)


@pytest.mark.parametrize("n_inner", [1, 3])
def test_bias_of_nested_monte_carlo_on_expected_shortfall(n_inner):
    alpha, s, n_outer = 0.95, 1.0, 200_000
    problem = gaussian_es(alpha, s)
    rng = np.random.default_rng(7)
    theta = problem.outer_law.sample(n_outer, rng)
    x = problem.inner_law(theta).sample(n_inner, rng)
    f = problem.f(problem.g(x, theta[:, None, :]).mean(axis=1))
    z, tau = norm.ppf(alpha), math.sqrt(1 + s**2 / n_inner)
    biased = z + (tau * norm.pdf(z / tau) - z * norm.cdf(-z / tau)) / (1 - alpha)
    error_bar = f.std() / math.sqrt(n_outer)
    assert abs(f.mean() - biased) < 4 * error_bar
    assert f.mean() - problem.exact > 10 * error_bar


@pytest.mark.parametrize(
    "arguments", [{"alpha": 0.0}, {"alpha": 1.0}, {"alpha": math.nan}, {"s": 0.0}, {"s": math.inf}]
)
def test_expected_shortfall_refuses_bad_parameters(arguments):
    with pytest.raises(InputError, match=next(iter(arguments))):
        gaussian_es(**arguments)
