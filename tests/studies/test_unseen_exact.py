"""The problems that nothing was tuned on: their exact values by routes of their own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

from studies import unseen
from studies.unseen._finance import _five_puts_exact

NORMAL = stats.norm()
GAUSS, WEIGHT = np.polynomial.hermite_e.hermegauss(100)
WEIGHT = WEIGHT / WEIGHT.sum()


def density(z):
    return math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def mean(h, low=-np.inf, high=np.inf):
    """E[h(z); low < z < high] of a standard normal, by adaptive quadrature."""
    low, high = max(low, -10.0), min(high, 10.0)
    return quad(lambda z: h(z) * density(z), low, high, epsabs=1e-11, limit=200)[0]


def lognormal_option(payoff, spot, sd, kink):
    """E[payoff] of a martingale, integrated over prices on both sides of a kink."""
    law = stats.lognorm(sd, scale=spot * math.exp(-(sd**2) / 2))
    pieces = [(0.0, kink), (kink, law.ppf(1 - 1e-15))]
    return sum(
        quad(lambda s: payoff(s) * law.pdf(s), a, b, epsabs=1e-12, limit=200)[0] for a, b in pieces
    )


def black_call(spot, strike, sd):
    d = (math.log(spot / strike) + sd**2 / 2) / sd
    return spot * float(ndtr(d)) - strike * float(ndtr(d - sd))


def test_there_are_problems_of_every_field():
    assert len(unseen.names()) >= 8
    assert {"finance", "insurance", "design", "health"} <= set(unseen.FIELDS.values())
    assert [unseen.get(name).name for name in unseen.names()] == list(unseen.names())


@pytest.mark.parametrize("name", unseen.names())
def test_brute_force_on_the_definition_agrees(name):
    # Plain nested quasi-Monte Carlo with the laws, g and f that methods will see.
    problem = unseen.get(name)
    m_outer, m_inner = 12, 10 if name == "response-rate" else 11
    outer = stats.qmc.Sobol(problem.outer_law.base_dim, rng=1).random_base2(m_outer)
    inner = stats.qmc.Sobol(problem.inner_base_dim, rng=2).random_base2(m_inner)
    rows = []
    for part in np.split(outer, 16):
        theta = problem.outer_law.from_uniform(part)
        x = problem.inner_law(theta).from_uniform(inner)
        x = x if x.ndim == 3 else x[None]
        values = problem.g(x, theta[:, None, :])
        values = np.broadcast_to(values, (len(theta), len(inner), *values.shape[2:]))
        rows.append(problem.apply_f(values.mean(axis=1)))
    answer = float(problem.finish(np.concatenate(rows).mean(axis=0)))
    assert answer == pytest.approx(problem.exact, rel=6e-3)


def test_chooser_from_the_side_of_the_put():
    sd1, sd2, rho = 0.25, 0.35, 0.5
    rest = math.sqrt(1 - rho**2)

    def price1(z1):
        return black_call(100 * math.exp(sd1 * z1 - sd1**2 / 2), 105.0, sd1)

    def gain(z2):
        spot = 100 * math.exp(sd2 * z2 - sd2**2 / 2)
        put = black_call(spot, 95.0, sd2) - spot + 95.0

        def excess(e):
            return price1(rho * z2 + rest * e) - put

        start = brentq(excess, -30, 30, xtol=1e-13) if excess(-30) < 0 else -30
        return put + mean(excess, low=start)

    assert unseen.get("chooser").exact == pytest.approx(mean(gain), abs=1e-7)


def test_default_exposure_by_conditioning_on_one_leg():
    def at(time):
        sd1, sd2 = 0.2 * math.sqrt(time), 0.12 * math.sqrt(time)

        def given_first(z):
            first = 100 * math.exp(sd1 * z - sd1**2 / 2)
            return black_call(97.0, first, sd2) - 97.0 + first

        return (1 - time / 5) * mean(given_first) / 5

    value = quad(at, 0, 5, epsabs=1e-9)[0]
    assert unseen.get("default-exposure").exact == pytest.approx(value, abs=1e-7)


def test_digital_loss_with_a_straddle_integrated_numerically():
    horizon, rest = 0.3 * math.sqrt(0.1), 0.3 * math.sqrt(0.4)

    def excess(z):
        spot = 100 * math.exp(horizon * z - horizon**2 / 2)
        return lognormal_option(lambda s: abs(s - 100.0), spot, rest, 100.0) - 20.0

    low, high = brentq(excess, -4, 0, xtol=1e-12), brentq(excess, 0, 4, xtol=1e-12)
    value = NORMAL.cdf(low) + NORMAL.sf(high)
    assert unseen.get("digital-loss").exact == pytest.approx(value, abs=1e-8)


def test_five_puts():
    exact = unseen.get("five-puts").exact
    # The series has converged, in terms and in nodes…
    assert exact == pytest.approx(_five_puts_exact(450, 800), abs=1e-9)
    # …to what averaging over prices gives, with puts by put–call parity.
    z = stats.norm.ppf(stats.qmc.Sobol(5, rng=3).random_base2(18))
    worth = np.zeros(len(z))
    for i, (vol, strike) in enumerate(
        zip((0.2, 0.25, 0.3, 0.35, 0.4), (90, 95, 100, 105, 110), strict=True)
    ):
        sd = vol * math.sqrt(0.5)
        spot = 100 * np.exp(sd * z[:, i] - sd**2 / 2)
        d = (np.log(spot / strike) + sd**2 / 2) / sd
        worth += spot * stats.norm.cdf(d) - strike * stats.norm.cdf(d - sd) - spot + strike
    value = np.maximum(worth / 5 - 10, 0).mean()
    assert exact == pytest.approx(value, rel=1e-4)


def test_claims_shortfall_with_the_layer_integrated_numerically():
    alpha = 0.99
    nodes, weights = np.polynomial.legendre.leggauss(400)

    def layer(z):
        law = stats.norm(math.log(20) + 0.25 * z, 0.8)
        # E min(max(x − 40, 0), 160) = ∫ P(x > s) ds from 40 to 200.
        s = 120 + 80 * nodes
        return 80 * weights @ law.sf(np.log(s))

    value = mean(layer, low=NORMAL.ppf(alpha)) / (1 - alpha)
    assert unseen.get("claims-shortfall").exact == pytest.approx(value, abs=1e-8)


def test_annuity_from_the_side_of_interest():
    def gain(z_rate, m):
        rate = 0.03 * math.exp(0.3 * z_rate)
        years = 20 * np.exp(0.15 * m + 0.5 * GAUSS)
        return WEIGHT @ (1 - np.exp(-rate * years)) / rate / 14 - 1

    def given_longevity(m):
        if gain(-10, m) < 0:
            return 0.0
        end = brentq(gain, -10, 10, args=(m,), xtol=1e-13)
        return mean(lambda z: gain(z, m), high=end)

    value = quad(lambda m: given_longevity(m) * density(m), -8, 8, epsabs=1e-9)[0]
    assert unseen.get("annuity").exact == pytest.approx(value, abs=1e-8)


def test_logistic_doses_as_entropy_less_conditional_entropy():
    b0, b1 = GAUSS[:, None], 1 + 0.7 * GAUSS[None, :]
    weight = np.outer(WEIGHT, WEIGHT)
    p = [1 / (1 + np.exp(-(b0 + b1 * dose))) for dose in (-1.0, 0.5, 2.0)]
    conditional = sum((weight * stats.bernoulli(one).entropy()).sum() for one in p)
    evidence = [
        (weight * np.prod([q if y else 1 - q for q, y in zip(p, bits, strict=True)], axis=0)).sum()
        for bits in np.ndindex(2, 2, 2)
    ]
    assert sum(evidence) == pytest.approx(1.0, abs=1e-12)
    value = stats.entropy(evidence) - conditional
    assert unseen.get("logistic-doses").exact == pytest.approx(value, abs=1e-8)


def test_exponential_decay_as_an_average_over_experiments():
    z, w = np.polynomial.hermite_e.hermegauss(48)
    w = w / w.sum()
    fine, fine_weight = np.polynomial.legendre.leggauss(300)
    fine = 9 * fine
    fine_weight = 9 * fine_weight * stats.norm.pdf(fine)
    times = np.array([1.0, 3.0])
    means = np.exp(-0.5 * np.exp(0.5 * fine)[:, None] * times)
    value = 0.0
    for k, wk in zip(fine[::1], fine_weight, strict=True):
        if wk < 1e-13:
            continue
        y = np.exp(-0.5 * math.exp(0.5 * k) * times)
        one, two = (
            np.exp(-0.5 * ((y[i] + 0.1 * z)[:, None] - means[:, i]) ** 2 / 0.01) for i in (0, 1)
        )
        evidence = (one * fine_weight) @ two.T
        value += wk * (w @ (-1 - np.log(evidence)) @ w)
    assert unseen.get("exponential-decay").exact == pytest.approx(value, abs=1e-8)


def test_linear_trio_in_information_form():
    x = np.array([[1.0, 0.5], [-0.5, 1.0], [1.0, 1.0]])
    prior = np.array([[1.0, 0.3], [0.3, 0.5]])
    information = x.T @ np.diag([4.0, 2.0, 2.0]) @ x
    value = 0.5 * np.linalg.slogdet(np.eye(2) + prior @ information).logabsdet
    assert unseen.get("linear-trio").exact == pytest.approx(value, abs=1e-12)


def test_response_rate_over_the_prior():
    prior = stats.beta(8, 12)

    def best(p):
        return max(2280.0, 6000 * p - 200) * prior.pdf(p)

    value = quad(best, 0, 1, points=[2480 / 6000], epsabs=1e-9)[0] - 2280
    assert unseen.get("response-rate").exact == pytest.approx(value, abs=1e-6)


def test_trial_over_its_results():
    shrink, sd = 0.09 / 0.11, math.sqrt(0.11)

    def posterior(z):
        return 20_000 * (0.1 + shrink * sd * z) - 1500

    root = brentq(posterior, -5, 5)
    value = mean(posterior, low=root) - 500
    assert unseen.get("trial").exact == pytest.approx(value, abs=1e-6)


def test_no_influence():
    value = math.log(mean(lambda z: math.exp(z / 2)) + mean(lambda z: z * z))
    assert unseen.get("no-influence").exact == pytest.approx(value, abs=1e-9)


def test_the_sawtooth_has_mean_theta():
    # Midpoints of a grid with as many cells as one period has, in the coordinate with most teeth.
    problem = unseen.get("rough")
    x = np.stack([(np.arange(4096) + 0.5) / 4096 / 10_007, np.full(4096, 0.3)], axis=-1)
    for theta in (0.1, 0.75):
        period = problem.g(x, np.array([theta]))
        assert period.mean() == pytest.approx(theta, abs=2e-3)
        assert np.ptp(period) > 3.9
