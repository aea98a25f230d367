"""The paper's answers by plain numerical integration, independent of the rest of the library.

Everything here is a formula on paper, integrated by quadrature, so that a reader can check it in
a few lines of another program.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

from studies.paper.curves import Array


def finance_j(theta: float) -> float:
    """J(θ) of the finance problem by the Black–Scholes formula."""
    return _butterfly(theta) - _butterfly(1.2 * theta)


def finance_answer() -> float:
    """E[max(J(θ), 0)], split where J changes sign."""
    root = brentq(finance_j, 60.0, 120.0, xtol=1e-13)

    def integrand(z: float) -> float:
        theta = math.exp(math.log(100.0) - 0.045 + 0.3 * z)
        return finance_j(theta) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    start = (math.log(root / 100.0) + 0.045) / 0.3
    pieces = [start, 1.0, 3.0, 9.0]
    return float(sum(quad(integrand, a, b, epsabs=1e-13)[0] for a, b in pairwise(pieces)))


def _butterfly(price: float) -> float:
    return _call(price, 50.0) + _call(price, 150.0) - 2.0 * _call(price, 100.0)


def _call(price: float, strike: float) -> float:
    d1 = (math.log(price / strike) + 0.045) / 0.3
    return float(price * ndtr(d1) - strike * ndtr(d1 - 0.3))


# Means and standard deviations of the four correlated parameters, and the constants of J.
_MEAN = np.array([0.7, 0.8, 3.0, 3.0])  # θ_1, θ_2, x_6, x_14
_SD = np.array([0.1, 0.1, 0.5, 1.0])
_COV = 0.6 * np.outer(_SD, _SD) + 0.4 * np.diag(_SD**2)
_OTHER = (
    1e4 * 0.25 * -0.1 * 0.5 - (1000 + 0.1 * 5.2 * 400),
    1e4 * 0.2 * -0.1 * 0.5 - (1500 + 0.08 * 6.1 * 400),
)


def evppi(known: str) -> float:
    """EVPPI of the stated model when ``"responses"`` (θ) or ``"durations"`` (x_6, x_14) are known.

    Of θ_c and the duration beside it one is known, and the other enters by its mean given all
    that is known.
    """
    here, there = (slice(0, 2), slice(2, 4)) if known == "responses" else (slice(2, 4), slice(0, 2))
    slope = np.linalg.solve(_COV[here, here], _COV[here, there]).T

    def benefits(a: Array, b: Array) -> tuple[Array, Array]:
        first, second = _MEAN[here]
        centered = (a - first, b - second)
        expected = [
            _MEAN[there][c] + slope[c, 0] * centered[0] + slope[c, 1] * centered[1] for c in (0, 1)
        ]
        return 3e3 * a * expected[0] + _OTHER[0], 3e3 * b * expected[1] + _OTHER[1]

    return _value(_MEAN[here], _factor(_COV[here, here]), benefits)


def released_evppi() -> float:
    """What the released code converges to.

    Each arm is conditional on its own θ alone, and θ is drawn as mean + u·L with the lower
    Cholesky factor L, whose covariance is LᵀL instead of LLᵀ.
    """
    factor = _factor(_COV[:2, :2])

    def benefits(a: Array, b: Array) -> tuple[Array, Array]:
        first = 3.0 + 0.6 * 0.5 / 0.1 * (a - 0.7)
        second = 3.0 + 0.6 * 1.0 / 0.1 * (b - 0.8)
        return 3e3 * a * first + _OTHER[0], 3e3 * b * second + _OTHER[1]

    return _value(_MEAN[:2], _factor(factor.T @ factor), benefits)


def _factor(cov: Array) -> Array:
    """The lower Cholesky factor."""
    return np.asarray(np.linalg.cholesky(cov), dtype=float)


def _value(
    mean: Array, factor: Array, benefits: Callable[[Array, Array], tuple[Array, Array]]
) -> float:
    """E max − max E over two normals: Gauss–Legendre, panel by panel on ±9 standard deviations."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    edges = np.linspace(-9.0, 9.0, 121)
    z = (edges[:-1, None] + 0.075 * (nodes + 1)).ravel()
    w = np.tile(0.075 * weights, 120) * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    best = ones = twos = 0.0
    for one, weight in zip(z, w, strict=True):
        a = np.full_like(z, mean[0] + factor[0, 0] * one)
        b = mean[1] + factor[1, 0] * one + factor[1, 1] * z
        first, second = benefits(a, b)
        best += weight * float(w @ np.maximum(first, second))
        ones += weight * float(w @ first)
        twos += weight * float(w @ second)
    return best - max(ones, twos)


def norms_answer(dim: int, norm_x: float, norm_theta: float) -> float:
    """E[(E‖x‖_p^2.5 + ‖θ‖_q^2.5)²] with uniform x and θ on the unit cube, two or three coordinates.

    Gauss–Legendre with x = t², which removes the root at zero.
    """
    nodes, weights = np.polynomial.legendre.leggauss(40)
    t = (nodes + 1) / 2
    points, weights = t**2, weights * t  # dx = 2 t dt, and half the interval
    grids = np.meshgrid(*[points] * dim, indexing="ij")
    joint = np.ones(())
    for _ in range(dim):
        joint = np.multiply.outer(joint, weights)

    def power(p: float) -> Array:
        total: Array = sum((grid**p for grid in grids), np.zeros(()))
        return np.asarray(total ** (2.5 / p))

    inner = float((joint * power(norm_x)).sum())
    return float((joint * (inner + power(norm_theta)) ** 2).sum())
