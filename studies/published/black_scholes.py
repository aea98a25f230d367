"""Black–Scholes values with interest, and log-normal prices under both measures."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

import nestquad as nq


def call_value(spot: Any, strike: float, rate: float, vol: float, time: float) -> np.ndarray:
    """Value of a European call."""
    sd = vol * np.sqrt(time)
    forward = np.asarray(spot) * np.exp(rate * time)
    d = np.log(forward / strike) / sd + sd / 2
    return np.exp(-rate * time) * (forward * ndtr(d) - strike * ndtr(d - sd))


def put_value(spot: Any, strike: float, rate: float, vol: float, time: float) -> np.ndarray:
    """Value of a European put, by put–call parity."""
    bond = strike * np.exp(-rate * time)
    return call_value(spot, strike, rate, vol, time) - np.asarray(spot) + bond


def prices(start: Any, drift: float, vol: float, time: float, correlation: float = 0.0) -> Any:
    """Law of prices (…, d) after some time, with one pairwise correlation."""
    start = np.asarray(start, dtype=float)
    d = start.shape[-1]
    cov = vol**2 * time * ((1 - correlation) * np.eye(d) + correlation)
    return nq.LogNormal(np.log(start) + (drift - vol**2 / 2) * time, cov=cov)
