"""One-dimensional quadrature and Black–Scholes prices, for exact values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr, roots_legendre

# Standard normals beyond this have a probability of 1e-19.
FAR = 9.0


def legendre(low: Any, high: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [low, high], on a new last axis if the ends are arrays."""
    node, weight = roots_legendre(n)
    middle, half = (np.asarray(low) + high) / 2, (np.asarray(high) - low) / 2
    return middle[..., None] + half[..., None] * node, half[..., None] * weight


def normal_density(z: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


def normal_nodes(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for expectations of smooth functions of a standard normal."""
    z, weight = legendre(-FAR, FAR, n)
    return z, weight * normal_density(z)


def increasing_root(h: Callable[[np.ndarray], np.ndarray], like: np.ndarray) -> np.ndarray:
    """Where h, increasing in each entry, changes its sign on [-FAR, FAR]; an end if nowhere."""
    low, high = np.full_like(like, -FAR), np.full_like(like, FAR)
    for _ in range(60):
        middle = (low + high) / 2
        below = h(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def call(spot: Any, strike: float, sd: Any) -> np.ndarray:
    """Black–Scholes without interest; `sd` is volatility × √time."""
    spot = np.asarray(spot, dtype=float)
    d = np.log(spot / strike) / sd + sd / 2
    return spot * ndtr(d) - strike * ndtr(d - sd)


def put(spot: Any, strike: float, sd: Any) -> np.ndarray:
    spot = np.asarray(spot, dtype=float)
    d = np.log(spot / strike) / sd + sd / 2
    return strike * ndtr(sd - d) - spot * ndtr(-d)
