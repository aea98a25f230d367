"""How likely is a large loss in a month, and how much is lost beyond it?

We have sold a put option that expires in a year. In a month the market will have moved to θ, and
the option will be worth what it is expected to cost us from there: J(θ) = E[payoff(x) | θ]. Two
answers are wanted from the same simulations, P(J > limit) and E[max(J - limit, 0)].

Run it with `python examples/black_scholes_risk.py`, or from the command line with
`nestquad estimate examples/black_scholes_risk.py:problem --budget 1e4 --method ckq`.
"""

import math

import numpy as np
from scipy.special import ndtr

import nestquad as nq

PRICE, STRIKE, VOLATILITY = 100.0, 95.0, 0.25
MONTH, YEAR = 1.0 / 12.0, 1.0
LIMIT = 12.0


def log_price(start, years):
    """Mean and standard deviation of the log price after some years, without interest."""
    return np.log(start) - 0.5 * VOLATILITY**2 * years, VOLATILITY * math.sqrt(years)


def price_in_a_year(theta):
    """The law of x given θ (T, 1), for all T of them at once."""
    return nq.LogNormal(*log_price(theta, YEAR - MONTH))


def payoff(x, theta):
    return np.maximum(STRIKE - x[..., 0], 0.0)


def loss_beyond_limit(j):
    return np.stack([j > LIMIT, np.maximum(j - LIMIT, 0.0)], axis=-1)


def black_scholes(theta):
    """J(θ) in closed form: what the simulations above have to find out."""
    mean, sd = log_price(theta, YEAR - MONTH)
    d = (math.log(STRIKE) - mean) / sd
    return STRIKE * ndtr(d) - theta * ndtr(d - sd)


def exact():
    """Both answers from the closed form, on a fine grid of normal scores."""
    mean, sd = log_price(PRICE, MONTH)
    scores = np.linspace(-8.0, 8.0, 400_001)
    weights = np.exp(-0.5 * scores**2)
    return weights @ loss_beyond_limit(black_scholes(np.exp(mean + sd * scores))) / weights.sum()


problem = nq.NestedExpectation(
    outer=nq.LogNormal(*log_price(PRICE, MONTH)),
    inner=price_in_a_year,
    g=payoff,
    f=loss_beyond_limit,
    exact=exact(),
    name="sold put",
)

if __name__ == "__main__":
    est = nq.estimate(problem, budget=1024, method="ckq", rng=0)
    low, high = est.interval()
    for name, k in (("P(J > limit)", 0), ("E[max(J - limit, 0)]", 1)):
        print(
            f"{name:<21} {est.value[k]:.5f}  95 % interval {low[k]:.5f} … {high[k]:.5f}  "
            f"exact {problem.exact[k]:.5f}"
        )
    print(est)
