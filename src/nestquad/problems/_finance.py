"""Risk management: expected loss under a shock, and expected shortfall."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from nestquad._checks import number
from nestquad._typing import Array
from nestquad.distributions import LogNormal, Normal
from nestquad.problem import NestedExpectation


@dataclass(frozen=True)
class Butterfly:
    """Market and option of the paper, experiment “Risk Management in Finance”.

    Times are in years; the option pays most at `middle` and zero beyond the strikes.
    """

    price: float = 100.0
    volatility: float = 0.3
    shock: float = 0.2
    time_of_shock: float = 1.0
    maturity: float = 2.0
    middle: float = 100.0
    half_width: float = 50.0


_BUTTERFLY = Butterfly()


def finance() -> NestedExpectation:
    """The paper's finance problem: expected loss of a butterfly option when a shock hits.

    The price θ at the time of the shock and the price x at maturity follow Black and Scholes
    (S0 = 100, σ = 0.3, one year to the shock, one more to maturity). The shock multiplies the
    price by 1.2: g(x) = ψ(x) − ψ(1.2·x) with the butterfly ψ of strikes 50, 100, 150, and
    f = max(·, 0).

    Notes
    -----
    The answer is 3.07365140973624 (Black–Scholes formula for J, integrated from its root
    θ = 90.7029… on). The paper prints 3.077, which leaves a floor of 3.3e-3 under every error.

    Shapes: d_x = d_θ = 1; g depends on x only.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.problems import finance
    >>> problem = finance()
    >>> problem.exact
    3.07365140973624
    >>> problem.g(np.array([[50.0], [100.0], [150.0]]), None)
    array([-10.,  20.,   0.])
    """
    variance = _BUTTERFLY.volatility**2 * _BUTTERFLY.time_of_shock
    return NestedExpectation(
        outer=LogNormal(math.log(_BUTTERFLY.price) - variance / 2, math.sqrt(variance)),
        inner=_price_at_maturity,
        g=_shortfall,
        f=_positive_part,
        exact=3.07365140973624,
        name="finance",
        tags=("kinked",),
        smoothness=(1.0, 1.0),
    )


def gaussian_es(alpha: float = 0.95, s: float = 1.0) -> NestedExpectation:
    """Expected shortfall of a standard normal loss that is only seen through noise.

    The loss is J = θ ~ N(0, 1) and x = θ + s·noise is one simulation of it. With the value at risk
    z = Φ⁻¹(α) known, the expected shortfall is E[z + max(J − z, 0)/(1 − α)] (Rockafellar and
    Uryasev 2000, Optimization of conditional value-at-risk), which is φ(z)/(1 − α).

    Parameters
    ----------
    alpha
        The level, between 0 and 1.
    s
        Standard deviation of the noise.

    Notes
    -----
    An average of N simulations has variance 1 + s²/N =: τ², so the bias of nested Monte Carlo is
    known too: its mean is z + (τ·φ(z/τ) − z·Φ(−z/τ))/(1 − α).

    Shapes: d_x = d_θ = 1.

    Examples
    --------
    >>> from nestquad.problems import gaussian_es
    >>> gaussian_es(0.99).exact
    2.66521...
    """
    alpha = number("alpha", alpha, "a level between 0 and 1, both excluded", below=1.0)
    s = number("s", s, "a positive standard deviation")
    quantile = float(ndtri(alpha))
    density = math.exp(-0.5 * quantile**2) / math.sqrt(2.0 * math.pi)
    return NestedExpectation(
        outer=Normal(),
        inner=_NoisyLoss(s),
        g=_first_coordinate,
        f=_ShortfallBeyond(quantile, 1.0 - alpha),
        exact=density / (1.0 - alpha),
        name="gaussian-es",
        tags=("kinked",),
        smoothness=(math.inf, 1.0),
    )


def _price_at_maturity(theta: Array) -> LogNormal:
    variance = _BUTTERFLY.volatility**2 * (_BUTTERFLY.maturity - _BUTTERFLY.time_of_shock)
    return LogNormal(np.log(theta) - variance / 2, math.sqrt(variance))


def _shortfall(x: Array, theta: Array) -> Array:
    price = x[..., 0]
    loss = _butterfly(price, 1.0)
    loss -= _butterfly(price, 1.0 + _BUTTERFLY.shock)
    return loss


def _butterfly(price: Array, factor: float) -> Array:
    # The three calls add up to a tent over the middle strike. Written so, it takes one array
    # and has no cancellation at high prices.
    payoff: Array = np.asarray(factor * price)
    payoff -= _BUTTERFLY.middle
    np.abs(payoff, out=payoff)
    np.subtract(_BUTTERFLY.half_width, payoff, out=payoff)
    return np.maximum(payoff, 0.0, out=payoff)


def _positive_part(j: Array) -> Array:
    return np.maximum(j, 0.0)


def _first_coordinate(x: Array, theta: Array) -> Array:
    return x[..., 0]


@dataclass(frozen=True)
class _NoisyLoss:
    s: float

    def __call__(self, theta: Array) -> Normal:
        return Normal(theta, self.s)


@dataclass(frozen=True)
class _ShortfallBeyond:
    quantile: float
    tail: float

    def __call__(self, j: Array) -> Array:
        excess: Array = np.maximum(j - self.quantile, 0.0)
        return self.quantile + excess / self.tail
