"""Options that are revalued on a later date, when prices θ are known."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

import nestquad as nq
from studies.quadrature import (
    FAR,
    call,
    increasing_root,
    legendre,
    normal_density,
    normal_nodes,
    put,
)


def _martingale(theta: np.ndarray, sd: np.ndarray) -> nq.LogNormal:
    """Prices later on, given θ: no interest, independent increments."""
    return nq.LogNormal(np.log(theta) - sd**2 / 2, sd)


# Choose, after a year, between a call on one asset and a put on another.
_CHOOSER_SD, _CHOOSER_RHO = np.array([0.25, 0.35]), 0.5
_CALL_STRIKE, _PUT_STRIKE = 105.0, 95.0


def chooser() -> nq.NestedExpectation:
    """A chooser on two correlated assets: d_θ = d_x = 2, two outputs, f = max."""

    def prices(z: np.ndarray) -> np.ndarray:
        second = _CHOOSER_RHO * z[..., 0] + math.sqrt(1 - _CHOOSER_RHO**2) * z[..., 1]
        z = np.stack([z[..., 0], second], axis=-1)
        return 100.0 * np.exp(_CHOOSER_SD * z - _CHOOSER_SD**2 / 2)

    return nq.NestedExpectation(
        outer=nq.Transport(prices, dim=2, base="normal", out_dim=2),
        inner=lambda theta: _martingale(theta, _CHOOSER_SD),
        g=lambda x, theta: np.stack(
            [np.maximum(x[..., 0] - _CALL_STRIKE, 0.0), np.maximum(_PUT_STRIKE - x[..., 1], 0.0)],
            axis=-1,
        ),
        f=lambda j: j.max(axis=-1),
        exact=_chooser_exact(),
        name="chooser",
    )


def _chooser_exact() -> float:
    # E[C] + E[max(P − C, 0)]: given the first asset, up to the price of the second where P = C.
    z1, w1 = normal_nodes()
    first, second = _CHOOSER_SD
    calls = call(100.0 * np.exp(first * z1 - first**2 / 2), _CALL_STRIKE, first)

    def puts(z2: np.ndarray, z1: np.ndarray) -> np.ndarray:
        z = _CHOOSER_RHO * z1 + math.sqrt(1 - _CHOOSER_RHO**2) * z2
        return put(100.0 * np.exp(second * z - second**2 / 2), _PUT_STRIKE, second)

    end = increasing_root(lambda z2: calls - puts(z2, z1), z1)
    z2, w2 = legendre(np.full_like(end, -FAR), end, 200)
    gain = ((puts(z2, z1[:, None]) - calls[:, None]) * normal_density(z2) * w2).sum(axis=1)
    return float(w1 @ (calls + gain))


# Two legs of a swap that amortizes over five years, and a counterparty that defaults in them.
_LEGS, _LEG_SD, _YEARS = np.array([100.0, 97.0]), np.array([0.2, 0.12]), 5.0


def default_exposure() -> nq.NestedExpectation:
    """Exposure at default, two factors and the time of default: d_θ = 3, d_x = 2, f = max(·, 0)."""

    def state(z: np.ndarray) -> np.ndarray:
        time = _YEARS * ndtr(z[..., :1])
        legs = _LEGS * np.exp(_LEG_SD * np.sqrt(time) * z[..., 1:] - _LEG_SD**2 * time / 2)
        return np.concatenate([time, legs], axis=-1)

    def inner(theta: np.ndarray) -> nq.LogNormal:
        return _martingale(theta[:, 1:], _LEG_SD * np.sqrt(_YEARS - theta[:, :1]))

    return nq.NestedExpectation(
        outer=nq.Transport(state, dim=3, base="normal", out_dim=3),
        inner=inner,
        g=lambda x, theta: (x[..., 0] - x[..., 1]) * (1.0 - theta[..., 0] / _YEARS),
        f=lambda j: np.maximum(j, 0.0),
        exact=_default_exposure_exact(),
        name="default-exposure",
    )


def _default_exposure_exact() -> float:
    # Margrabe's formula for each time of default; with time = 5·s² the integrand is smooth in s.
    s, weight = legendre(0.0, 1.0, 100)
    sd = math.hypot(*_LEG_SD) * math.sqrt(_YEARS) * s
    exchange = call(_LEGS[0], _LEGS[1], sd)
    return float(weight @ (2 * s * (1 - s**2) * exchange))


# A short straddle, and the probability that it has gained more than a limit in five weeks.
_STRADDLE_SD_HORIZON, _STRADDLE_SD_REST = 0.3 * math.sqrt(0.1), 0.3 * math.sqrt(0.4)
_STRADDLE_STRIKE, _LIMIT = 100.0, 20.0


def digital_loss() -> nq.NestedExpectation:
    """The probability of a large loss of a short straddle: f an indicator, g with a kink."""
    sd = np.array([_STRADDLE_SD_REST])
    return nq.NestedExpectation(
        outer=nq.LogNormal(
            math.log(100.0) - _STRADDLE_SD_HORIZON**2 / 2, _STRADDLE_SD_HORIZON, dim=1
        ),
        inner=lambda theta: _martingale(theta, sd),
        g=lambda x, theta: np.abs(x[..., 0] - _STRADDLE_STRIKE),
        f=lambda j: (j > _LIMIT).astype(float),
        exact=_digital_loss_exact(),
        name="digital-loss",
    )


def _digital_loss_exact() -> float:
    def excess(z: float) -> float:
        spot = 100.0 * math.exp(_STRADDLE_SD_HORIZON * z - _STRADDLE_SD_HORIZON**2 / 2)
        both = call(spot, _STRADDLE_STRIKE, _STRADDLE_SD_REST)
        both = both + put(spot, _STRADDLE_STRIKE, _STRADDLE_SD_REST)
        return float(both) - _LIMIT

    # The price of a straddle is convex: large on both sides.
    low, high = (brentq(excess, 0.0, end, xtol=1e-14) for end in (-FAR, FAR))
    return float(ndtr(low) + ndtr(-high))


# Five puts of independent assets, and an option on what they are worth together.
_PUTS_SD = np.array([0.20, 0.25, 0.30, 0.35, 0.40]) * math.sqrt(0.5)
_PUTS_STRIKE = np.array([90.0, 95.0, 100.0, 105.0, 110.0])
_PUTS_PREMIUM = 10.0


def five_puts() -> nq.NestedExpectation:
    """A basket of five puts: d_θ = d_x = 5, f = max(· − premium, 0)."""
    return nq.NestedExpectation(
        outer=nq.LogNormal(math.log(100.0) - _PUTS_SD**2 / 2, _PUTS_SD),
        inner=lambda theta: _martingale(theta, _PUTS_SD),
        g=lambda x, theta: np.maximum(_PUTS_STRIKE - x, 0.0).sum(axis=-1) / 5,
        f=lambda j: np.maximum(j - _PUTS_PREMIUM, 0.0),
        exact=_five_puts_exact(),
        name="five-puts",
    )


def _five_puts_exact(terms: int = 300, nodes: int = 600) -> float:
    # J is a sum of independent variables within [0, b]. The cosine series of max(j − c, 0) on that
    # interval has expectations that are products of characteristic functions.
    top, c = float(_PUTS_STRIKE.sum() / 5), _PUTS_PREMIUM
    k = np.arange(1, terms + 1)
    omega = k * np.pi / top
    z, weight = normal_nodes(nodes)
    characteristic = np.ones(terms, dtype=complex)
    for sd, strike in zip(_PUTS_SD, _PUTS_STRIKE, strict=True):
        price = put(100.0 * np.exp(sd * z - sd**2 / 2), strike, sd) / 5
        characteristic *= np.exp(1j * np.outer(omega, price)) @ weight
    coefficient = 2 / top * ((-1.0) ** k - np.cos(omega * c)) / omega**2
    return float((top - c) ** 2 / (2 * top) + coefficient @ characteristic.real)
