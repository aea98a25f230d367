"""Repeated expectations with known values: three sines, a decision in three stages, an option."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from scipy.stats import norm

import nestquad as nq


def sines() -> nq.RepeatedExpectation:
    """E sin(y0 + E[sin(y1 − E[y2 | y1]) | y0]) = e^(−1/2), of Syed and Wang (2023)."""
    return nq.RepeatedExpectation(
        laws=[
            nq.Normal(np.pi / 2, 1.0),
            lambda y0: nq.Normal(y0, 1.0),
            lambda y0, y1: nq.Normal(y1, 1.0),
        ],
        g=lambda y2, y0, y1: y2[..., 0],
        f=[
            lambda j, y0: np.sin(y0[:, 0] + j),
            lambda j, y0, y1: np.sin(y1[:, 0] - j),
        ],
        exact=float(np.exp(-0.5)),
        name="three sines",
    )


# Chances of five grades of a test; of four responses given the grade; of the outcome given both:
# response to treatment is better for high grades, and outcomes for good responses.
GRADES = np.array([0.15, 0.25, 0.25, 0.20, 0.15])
OUTCOMES = np.array([-1.0, 0.0, 0.6, 1.5])  # quality-adjusted years gained
COSTS = np.array([0.0, 0.15, 0.45])  # of stopping, going on, adding a drug
_CUTS = norm.ppf([0.25, 0.5, 0.75])


def _responses(grade: np.ndarray) -> np.ndarray:
    """Chances (…, 4) of the four responses to treatment."""
    ends = norm.cdf(_CUTS - 0.5 * (np.asarray(grade)[..., None] - 2.0))
    whole = np.ones((*ends.shape[:-1], 1))
    return np.diff(np.concatenate([0.0 * whole, ends, whole], axis=-1), axis=-1)


def _outcomes(grade: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Chances (…, 4) of the four outcomes if treatment goes on."""
    shift = 0.25 * (np.asarray(grade) - 2.0) + 0.55 * (np.asarray(response) - 1.5)
    ends = norm.cdf(_CUTS - shift[..., None])
    whole = np.ones((*ends.shape[:-1], 1))
    return np.diff(np.concatenate([0.0 * whole, ends, whole], axis=-1), axis=-1)


def _discrete(chances: np.ndarray) -> nq.Transport:
    """Law of a class, 0, 1, …, of given chances (…, n)."""
    ends = np.cumsum(chances, axis=-1)[..., :-1]
    if ends.ndim == 1:
        return nq.Transport(lambda u: (u > ends).sum(-1, keepdims=True) + 0.0, dim=1, out_dim=1)
    return nq.Transport(
        lambda u: (u > ends[:, None]).sum(-1, keepdims=True) + 0.0, dim=1, out_dim=1
    )


def _benefits(outcome: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Net benefits (…, 3) of stopping, going on and adding a drug, which helps poor responders."""
    gain = OUTCOMES[outcome.astype(int)]
    added = gain + 0.4 * (response < 1.5)
    return np.stack([0.0 * gain, gain - COSTS[1], added - COSTS[2]], axis=-1)


def decision() -> nq.RepeatedExpectation:
    """Test, then treat, then outcome: value of the best strategy, by enumeration of 80 cases.

    The test has a grade. Treatment is begun (at a cost of 0.1) if what follows is worth it. The
    response is seen, and treatment is stopped, continued or extended, whichever is best on average
    over outcomes.
    """
    value = 0.0
    for grade, chance in enumerate(GRADES):
        begun = -0.1
        for response, share in enumerate(_responses(np.array(float(grade)))):
            outcome = np.arange(4.0)
            each = _benefits(outcome, np.full(4, float(response)))
            odds = _outcomes(np.array(float(grade)), np.array(float(response)))
            begun += share * float((odds @ each).max())
        value += chance * max(begun, 0.0)
    return nq.RepeatedExpectation(
        laws=[
            _discrete(GRADES),
            lambda y0: _discrete(_responses(y0[:, 0])),
            lambda y0, y1: _discrete(_outcomes(y0[:, 0], y1[:, 0])),
        ],
        g=lambda y2, y0, y1: _benefits(*np.broadcast_arrays(y2[..., 0], y1[..., 0])),
        f=[lambda j: np.maximum(j - 0.1, 0.0), lambda j: j.max(axis=-1)],
        exact=float(value),
        name="test, treat, outcome",
    )


def n_cases() -> int:
    """Number of cases that the enumeration of `decision` goes through."""
    return len(list(product(GRADES, range(4), OUTCOMES)))


def bermudan(
    dates: int, spot: float = 100.0, strike: float = 100.0, rate: float = 0.05, vol: float = 0.2
) -> nq.RepeatedExpectation:
    """A put of one year that may be exercised at equally spaced dates; price by a binomial tree."""
    dt = 1.0 / dates
    drift, sd, discount = (rate - 0.5 * vol**2) * dt, vol * np.sqrt(dt), np.exp(-rate * dt)

    def payoff(y: np.ndarray) -> np.ndarray:
        return np.maximum(strike - np.exp(y), 0.0)

    def law(*y: np.ndarray) -> nq.Normal:
        return nq.Normal(y[-1] + drift, sd)

    def exercise(k: int) -> Callable[..., np.ndarray]:
        """Worth at date k + 1, seen from the date before: exercise, or go on."""
        return lambda j, *y: discount * np.maximum(payoff(y[-1][:, 0]), j)

    return nq.RepeatedExpectation(
        laws=[nq.Normal(np.log(spot) + drift, sd), *[law] * (dates - 1)],
        g=lambda last, *earlier: discount * payoff(last[..., 0]),
        f=[exercise(k) for k in range(dates - 1)],
        exact=_binomial(dates, spot, strike, rate, vol),
        name=f"Bermudan put, {dates} dates",
    )


def _binomial(
    dates: int, spot: float, strike: float, rate: float, vol: float, steps: int = 2000
) -> float:
    """Price on trees of two sizes, extrapolated (Cox, Ross and Rubinstein 1979)."""
    prices = []
    for each in (steps, steps + 1):  # errors of even and odd trees have opposite signs
        n = dates * each
        h = 1.0 / n
        up = np.exp(vol * np.sqrt(h))
        chance, discount = (np.exp(rate * h) - 1.0 / up) / (up - 1.0 / up), np.exp(-rate * h)
        value = np.maximum(strike - spot * up ** (2.0 * np.arange(n, -1, -1) - n), 0.0)
        for i in range(n - 1, -1, -1):
            value = discount * (chance * value[:-1] + (1.0 - chance) * value[1:])
            if i % each == 0 and i > 0:
                nodes = spot * up ** (2.0 * np.arange(i, -1, -1) - i)
                value = np.maximum(value, strike - nodes)
        prices.append(float(value[0]))
    return float(np.mean(prices))


CASES: dict[str, Callable[[], nq.RepeatedExpectation]] = {
    "sines": sines,
    "decision": decision,
    "bermudan-3": lambda: bermudan(3),
    "bermudan-4": lambda: bermudan(4),
    "bermudan-5": lambda: bermudan(5),
}
