"""Books of options: exceedance and expected excess of a revalued portfolio.

1–12 assets with a one-factor correlation, a handful of options on each: calls, puts, digitals,
down-and-out calls and up-and-out puts. θ holds the prices at a horizon, x those at maturity (and,
in some books, a uniform for each asset that decides whether a barrier was hit in between). J is a
sum of Black–Scholes prices, and its tail beyond a level near the 90–99.9 % quantile is exact by
the characteristic functions of the assets given the factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

import nestquad as nq
from studies.families._sketch import (
    EXCEEDANCE,
    EXCESS,
    Sketch,
    base,
    choice,
    correlated,
    tail_f,
    written,
)
from studies.families._truth import Sum
from studies.quadrature import call, put

LEVELS = (0.9, 0.95, 0.99, 0.995, 0.999)
_KINDS = ("call", "put", "digital", "down-and-out call", "up-and-out put")
_SPOT = 100.0


@dataclass(frozen=True)
class _Option:
    kind: str
    size: float
    strike: float
    barrier: float

    @property
    def has_barrier(self) -> bool:
        return "out" in self.kind

    def payoff(self, price: np.ndarray) -> np.ndarray:
        """At maturity; barriers aside."""
        if self.kind == "digital":
            return 20.0 * (price > self.strike)
        sign = 1.0 if "call" in self.kind else -1.0
        return np.maximum(sign * (price - self.strike), 0.0)

    def survival(self, start: np.ndarray, end: np.ndarray, sd: float) -> np.ndarray:
        """Probability that a path between two prices has not met the barrier."""
        side = 1.0 if "down" in self.kind else -1.0
        a, b = side * np.log(start / self.barrier), side * np.log(end / self.barrier)
        return -np.expm1(-2.0 * np.maximum(a, 0.0) * np.maximum(b, 0.0) / sd**2)

    def price(self, spot: np.ndarray, sd: float) -> np.ndarray:
        """Black–Scholes without interest; barriers by reflection."""
        if self.kind == "digital":
            return 20.0 * ndtr(np.log(spot / self.strike) / sd - sd / 2)
        plain = call if "call" in self.kind else put
        value = plain(spot, self.strike, sd)
        if not self.has_barrier:
            return value
        mirrored = spot / self.barrier * plain(self.barrier**2 / spot, self.strike, sd)
        alive = spot > self.barrier if "down" in self.kind else spot < self.barrier
        return np.where(alive, value - mirrored, 0.0)


@dataclass(frozen=True)
class Book:
    """Options by asset, and the standard deviations to the horizon and from there."""

    options: tuple[tuple[_Option, ...], ...]
    near: np.ndarray
    far: np.ndarray
    loadings: np.ndarray
    sign: float

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Book:
        n = int(rng.integers(1, 13))
        volatility = rng.uniform(0.15, 0.5, n)
        horizon = choice(rng, 0.04, 0.1, 0.25, 0.5)
        exotic = choice(rng, 0.0, 0.3, 0.6)
        options = []
        for _ in range(n):
            mine = []
            for _ in range(int(rng.integers(2, 7))):
                odd = mine and rng.random() < exotic
                kind = _KINDS[int(rng.integers(2, 5) if odd else rng.integers(2))]
                strike = _SPOT * rng.uniform(0.85, 1.15)
                gap = rng.uniform(0.05, 0.25)
                barrier = strike * (1 - gap if "down" in kind else 1 + gap)
                mine.append(_Option(kind, float(rng.normal()), strike, barrier))
            options.append(tuple(mine))
        return cls(
            tuple(options),
            volatility * math.sqrt(horizon),
            volatility * np.sqrt(rng.uniform(0.05, 1.0, n)),
            rng.uniform(-0.3, 0.9, n),
            choice(rng, -1.0, 1.0),
        )

    @property
    def n(self) -> int:
        return len(self.options)

    def value(self, i: int, spot: np.ndarray) -> np.ndarray:
        """What the options on one asset are worth at the horizon, as a loss."""
        prices = (one.size * one.price(spot, self.far[i]) for one in self.options[i])
        return self.sign * sum(prices)

    def sum(self) -> Sum:
        def part(i: int, z: np.ndarray) -> np.ndarray:
            return self.value(i, _SPOT * np.exp(self.near[i] * z - self.near[i] ** 2 / 2))

        parts = (lambda z, i=i: part(i, z) for i in range(self.n))
        return Sum(tuple(parts), self.loadings)


def sketch(rng: np.random.Generator) -> Sketch:
    kind, level, simulated = (
        choice(rng, EXCEEDANCE, EXCESS),
        choice(rng, *LEVELS),
        rng.random() < 0.5,
    )
    outer_base, inner_base = base(rng), base(rng)
    while True:
        book = Book.drawn(rng)
        total = book.sum()
        j = total.draws(14)
        limit = float(f"{np.quantile(j, level):.6g}")
        # A book that is knocked out altogether at its best has no tail beyond that.
        if 0.7 < (j > limit).mean() / (1 - level) < 1.3 and j.std() > 0.1:
            break
    simulated = simulated and any(one.has_barrier for mine in book.options for one in mine)
    factor, n = np.linalg.cholesky(total.correlation), book.n

    def horizon(z: np.ndarray) -> np.ndarray:
        return _SPOT * np.exp(book.near * correlated(factor, z) - book.near**2 / 2)

    def inner(theta: np.ndarray) -> nq.Transport:
        def maturity(z: np.ndarray) -> np.ndarray:
            moves = book.far * correlated(factor, z[..., :n]) - book.far**2 / 2
            prices = theta[:, None, :] * np.exp(moves)
            if not simulated:
                return prices
            lots = np.broadcast_to(ndtr(z[..., n:]), prices.shape)
            return np.concatenate([prices, lots], axis=-1)

        width = 2 * n if simulated else n
        return written(maturity, width, width, inner_base)

    def loss(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        total = 0.0
        for i, mine in enumerate(book.options):
            for one in mine:
                paid = one.size * one.payoff(x[..., i])
                if one.has_barrier:
                    alive = one.survival(theta[..., i], x[..., i], book.far[i])
                    paid = paid * (x[..., n + i] < alive if simulated else alive)
                total = total + paid
        return book.sign * total

    count = sum(map(len, book.options))
    return Sketch(
        nq.NestedExpectation(
            outer=written(horizon, n, n, outer_base),
            inner=inner,
            g=loss,
            f=tail_f(kind, limit),
        ),
        lambda: total.exceedance(limit) if kind == EXCEEDANCE else total.excess(limit),
        f"{kind} at {100 * level:g} %, {n} assets, {count} options, {outer_base} drivers",
    )
