"""What it is worth to know more before a treatment is chosen."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

import nestquad as nq

_WORTH = 20_000.0  # of one quality-adjusted year of life


def _best_and_each(j: np.ndarray) -> np.ndarray:
    return np.concatenate([j.max(axis=-1, keepdims=True), j], axis=-1)


def _gain(answers: np.ndarray) -> np.ndarray:
    return answers[0] - answers[1:].max()


# A new treatment with an uncertain rate of response, beside an old one with a known net benefit.
_SUCCESSES, _FAILURES, _PATIENTS = 8.0, 12.0, 20
_YEARS_GAINED, _COST_SHAPE, _COST_MEAN, _OLD = 0.3, 4.0, 200.0, 2280.0


def response_rate() -> nq.NestedExpectation:
    """Value of knowing a rate of response with a beta prior; responders are counted (discrete)."""

    def inner(theta: np.ndarray) -> nq.Transport:
        def simulate(u: np.ndarray) -> np.ndarray:
            responders = stats.binom.ppf(u[..., 0], _PATIENTS, theta[:, :1])
            cost = stats.gamma.ppf(u[..., 1], _COST_SHAPE, scale=_COST_MEAN / _COST_SHAPE)
            return np.stack(np.broadcast_arrays(responders, cost), axis=-1)

        return nq.Transport(simulate, dim=2, out_dim=2)

    def net_benefit(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        new = _WORTH * _YEARS_GAINED * x[..., 0] / _PATIENTS - x[..., 1]
        return np.stack([np.full_like(new, _OLD), new], axis=-1)

    return nq.NestedExpectation(
        outer=stats.beta(_SUCCESSES, _FAILURES),
        inner=inner,
        g=net_benefit,
        f=_best_and_each,
        combine=_gain,
        exact=_response_rate_exact(),
        name="response-rate",
    )


def _response_rate_exact() -> float:
    slope, needed = _WORTH * _YEARS_GAINED, _COST_MEAN + _OLD
    break_even, mean = needed / slope, _SUCCESSES / (_SUCCESSES + _FAILURES)
    partial_mean = mean * stats.beta.sf(break_even, _SUCCESSES + 1, _FAILURES)
    gain = slope * partial_mean - needed * stats.beta.sf(break_even, _SUCCESSES, _FAILURES)
    return float(gain - max(slope * mean - needed, 0.0))


# A trial of fifty patients, before it is decided whether to replace standard care.
_EFFECT, _EFFECT_SD, _TRIAL_VARIANCE = 0.1, 0.3, 1.0 / 50
_PRICE, _PRICE_SD = 1500.0, 0.4
_SHRINK = _EFFECT_SD**2 / (_EFFECT_SD**2 + _TRIAL_VARIANCE)


def trial() -> nq.NestedExpectation:
    """Expected value of the sample of a normal trial: θ = its mean, x = effect and price."""

    def inner(theta: np.ndarray) -> nq.Independent:
        mean = _EFFECT + _SHRINK * (theta - _EFFECT)
        return nq.Independent(
            nq.Normal(mean, math.sqrt(_SHRINK * _TRIAL_VARIANCE)),
            nq.LogNormal([math.log(_PRICE) - _PRICE_SD**2 / 2], _PRICE_SD),
        )

    def net_benefit(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        new = _WORTH * x[..., 0] - x[..., 1]
        return np.stack([np.zeros_like(new), new], axis=-1)

    return nq.NestedExpectation(
        outer=nq.Normal(_EFFECT, math.sqrt(_EFFECT_SD**2 + _TRIAL_VARIANCE)),
        inner=inner,
        g=net_benefit,
        f=_best_and_each,
        combine=_gain,
        exact=_trial_exact(),
        name="trial",
    )


def _trial_exact() -> float:
    # The posterior mean of the net benefit is normal: the unit normal loss function.
    mean = _WORTH * _EFFECT - _PRICE
    sd = _WORTH * _EFFECT_SD * math.sqrt(_SHRINK)
    law = stats.norm()
    return float(sd * law.pdf(mean / sd) + mean * law.cdf(mean / sd) - max(mean, 0.0))
