"""Claims under inflation, and annuities that were promised."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expm1, ndtri

import nestquad as nq
from studies.quadrature import (
    FAR,
    call,
    increasing_root,
    legendre,
    normal_density,
    normal_nodes,
)

# A layer of large claims; inflation moves the claims, and with them what the layer pays.
_MEDIAN, _SPREAD, _INFLATION = 20.0, 0.8, 0.25
_RETENTION, _LAYER = 40.0, 160.0
_LEVEL = 0.99


def claims_shortfall() -> nq.NestedExpectation:
    """Expected shortfall at 99 % of the mean claim to a layer; d_θ = d_x = 1, kinks everywhere."""
    at_risk = float(_layer_mean(ndtri(_LEVEL)))
    return nq.NestedExpectation(
        outer=nq.Normal(),
        inner=lambda theta: nq.LogNormal(math.log(_MEDIAN) + _INFLATION * theta, _SPREAD),
        g=lambda x, theta: np.clip(x[..., 0] - _RETENTION, 0.0, _LAYER),
        f=lambda j: at_risk + np.maximum(j - at_risk, 0.0) / (1 - _LEVEL),
        exact=_claims_shortfall_exact(),
        name="claims-shortfall",
    )


def _layer_mean(z: np.ndarray) -> np.ndarray:
    mean = _MEDIAN * np.exp(_INFLATION * z + _SPREAD**2 / 2)
    return call(mean, _RETENTION, _SPREAD) - call(mean, _RETENTION + _LAYER, _SPREAD)


def _claims_shortfall_exact() -> float:
    z, weight = legendre(ndtri(_LEVEL), FAR, 200)
    return float(weight @ (_layer_mean(z) * normal_density(z)) / (1 - _LEVEL))


# On retirement a fund may be turned into an annuity at a rate fixed long before.
_FUND_SD, _RATE, _RATE_SD = 0.2, 0.03, 0.3
_LIFE, _LONGEVITY, _LIFE_SD = 20.0, 0.15, 0.5
_GUARANTEE = 1.0 / 14.0


def annuity() -> nq.NestedExpectation:
    """A guaranteed annuity: θ = fund, interest, longevity; x = years left; f = max(·, 0)."""
    return nq.NestedExpectation(
        outer=nq.Independent(
            nq.LogNormal([-(_FUND_SD**2) / 2], _FUND_SD),
            nq.LogNormal([math.log(_RATE)], _RATE_SD),
            nq.Normal(),
        ),
        inner=lambda theta: nq.LogNormal(math.log(_LIFE) + _LONGEVITY * theta[:, 2:], _LIFE_SD),
        g=lambda x, theta: theta[..., 0] * (_GUARANTEE * _paid(x[..., 0], theta[..., 1]) - 1.0),
        f=lambda j: np.maximum(j, 0.0),
        exact=_annuity_exact(),
        name="annuity",
    )


def _paid(years: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Present value of one a year, paid continuously while alive."""
    return -expm1(-rate * years) / rate


def _annuity_exact() -> float:
    # The fund is independent of the rest and has mean 1. What is left depends on interest and
    # increases with longevity.
    z_life, w_life = normal_nodes(160)
    z_rate, w_rate = normal_nodes(160)
    rate = _RATE * np.exp(_RATE_SD * z_rate)

    def gain(z: np.ndarray, rate: np.ndarray) -> np.ndarray:
        years = _LIFE * np.exp(_LONGEVITY * z[..., None] + _LIFE_SD * z_life)
        return _GUARANTEE * (_paid(years, rate[..., None]) @ w_life) - 1.0

    start = increasing_root(lambda z: gain(z, rate), z_rate)
    z, weight = legendre(start, np.full_like(start, FAR), 80)
    rates = np.broadcast_to(rate[:, None], z.shape)
    return float(w_rate @ (gain(z, rates) * normal_density(z) * weight).sum(axis=1))
