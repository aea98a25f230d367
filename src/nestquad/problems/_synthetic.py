"""Synthetic problems with known smoothness and exact values."""

from __future__ import annotations

import math

import numpy as np

from nestquad._checks import whole
from nestquad._typing import Array
from nestquad.distributions import Normal, Uniform
from nestquad.problem import NestedExpectation


def synthetic(dim: int = 1) -> NestedExpectation:
    """The paper's synthetic problem, in any dimension.

    θ and x are uniform on the unit cube, g = Σ x_i^2.5 + Σ θ_i^2.5 and f(z) = z². The answer is
    16/49·d² + 25/294·d; g and f∘J have two square-integrable derivatives.

    Notes
    -----
    The paper prints other norms in the formula of g for d > 1. Its closed form of the answer
    belongs to the sums above.

    Shapes: d_x = d_θ = `dim`; x does not depend on θ.

    Examples
    --------
    >>> from nestquad.problems import synthetic
    >>> problem = synthetic()
    >>> problem.exact == 121 / 294
    True
    >>> float(problem.g([[0.25]], [[1.0]])[0])
    1.03125
    """
    dim = whole("dim", dim)
    return NestedExpectation(
        outer=Uniform(dim=dim),
        inner=Uniform(dim=dim),
        g=_sum_of_powers,
        f=np.square,
        exact=(96 * dim**2 + 25 * dim) / 294,
        name="synthetic" if dim == 1 else f"synthetic{dim}",
        # Product kernels lose to plain quasi-Monte Carlo from about five coordinates on.
        tags=("smooth",) if dim < 5 else ("smooth", "high-dimensional"),
        smoothness=(2.0, 2.0),
    )


def rainforth() -> NestedExpectation:
    """The log-evidence problem of Rainforth et al. (2018), "On nesting Monte Carlo estimators".

    θ ~ U(−1, 1), x ~ N(0, 1), g = √(2/π)·exp(−2(θ − x)²) and f = log, so that
    J(θ) = √(2/(5π))·exp(−2θ²/5) and the answer is ½·log(2/(5π)) − 2/15.

    Notes
    -----
    Shapes: d_x = d_θ = 1; x does not depend on θ.

    Examples
    --------
    >>> from nestquad.problems import rainforth
    >>> rainforth().exact
    -1.16384...
    """
    return NestedExpectation(
        outer=Uniform(-1.0, 1.0),
        inner=Normal(),
        g=_gaussian_bump,
        f=np.log,
        exact=0.5 * math.log(2.0 / (5.0 * math.pi)) - 2.0 / 15.0,
        name="rainforth",
        tags=("smooth", "log"),
        smoothness=(math.inf, math.inf),
    )


def _sum_of_powers(x: Array, theta: Array) -> Array:
    # Sums first, so that no array of shape (T, N, d) is ever made.
    return _power_sum(x) + _power_sum(theta)


def _power_sum(a: Array) -> Array:
    a = np.asarray(a, dtype=float)
    total: Array = np.sum(a * a * np.sqrt(a), axis=-1)  # several times faster than a**2.5
    return total


def _gaussian_bump(x: Array, theta: Array) -> Array:
    distance = theta[..., 0] - x[..., 0]
    bump: Array = math.sqrt(2.0 / math.pi) * np.exp(-2.0 * distance * distance)
    return bump
