"""Kinks: books of options, baskets and other kinked g in 1–3 + 1–3 dimensions.

Calls and puts (now and then a digital) on correlated assets, options on a geometric basket, puts
and straddles on one asset seen at several dates, distances and maxima of linear functions of
normals. g has a kink in x, mostly one that θ moves; J is smooth and a sum of functions of at most
three normals, so that exceedances and expected excesses beyond a level between the 50 % and the
99.5 % quantile are nested integrals on lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

import nestquad as nq
from studies.families._nested import smooth_mean, tail
from studies.families._sketch import (
    EXCEEDANCE,
    EXCESS,
    Sketch,
    base,
    choice,
    correlated,
    direction,
    dot,
    tail_f,
    written,
)
from studies.families._truth import Function, Sum, Truth
from studies.quadrature import call, normal_density, put

LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
_UTILITY = "quadratic utility"
_SPOT = 100.0
_HORIZONS = (0.04, 0.1, 0.25, 0.5)  # years


@dataclass(frozen=True)
class _Option:
    kind: str  # "call", "put" or "digital"
    size: float
    strike: float

    def payoff(self, price: np.ndarray) -> np.ndarray:
        if self.kind == "digital":
            return self.size * 20.0 * (price > self.strike)
        sign = 1.0 if self.kind == "call" else -1.0
        return self.size * np.maximum(sign * (price - self.strike), 0.0)

    def price(self, forward: np.ndarray, sd: float) -> np.ndarray:
        """Black–Scholes without interest."""
        if self.kind == "digital":
            return self.size * 20.0 * ndtr(np.log(forward / self.strike) / sd - sd / 2)
        return self.size * (call if self.kind == "call" else put)(forward, self.strike, sd)

    def shocked(self, factor: float) -> _Option:
        """Minus the payoff of a call or put at a price multiplied by the factor."""
        return _Option(self.kind, -factor * self.size, self.strike / factor)


@dataclass(frozen=True)
class _Model:
    """A nested problem without its f, and J as a sum of functions of normals."""

    name: str
    j: Sum
    outer: Any
    inner: Any
    g: Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _Assets:
    """Standard deviations of log prices to the horizon and from there to maturity."""

    near: np.ndarray
    far: np.ndarray
    loadings: np.ndarray

    @classmethod
    def drawn(cls, rng: np.random.Generator, n: int) -> _Assets:
        volatility = rng.uniform(0.15, 0.5, n)
        return cls(
            volatility * math.sqrt(choice(rng, *_HORIZONS)),
            volatility * np.sqrt(rng.uniform(0.05, 1.0, n)),
            rng.uniform(-0.3, 0.9, n),
        )

    @property
    def correlation(self) -> np.ndarray:
        return np.outer(self.loadings, self.loadings) + np.diag(1 - self.loadings**2)

    def outer(self, how: Any) -> nq.Transport:
        """Prices at the horizon."""
        factor, n = np.linalg.cholesky(self.correlation), self.near.size

        def prices(z: np.ndarray) -> np.ndarray:
            return _SPOT * np.exp(self.near * correlated(factor, z) - self.near**2 / 2)

        return written(prices, n, n, how)

    def inner(self, how: Any) -> Callable[[np.ndarray], nq.Transport]:
        """Prices at maturity given those at the horizon."""
        factor, n = np.linalg.cholesky(self.correlation), self.far.size

        def law(theta: np.ndarray) -> nq.Transport:
            def prices(z: np.ndarray) -> np.ndarray:
                moves = self.far * correlated(factor, z) - self.far**2 / 2
                return theta[:, None, :] * np.exp(moves)

            return written(prices, n, n, how)

        return law


def _strike(rng: np.random.Generator, sd: float) -> float:
    return _SPOT * math.exp(rng.uniform(-1.2, 1.2) * sd)


def _size(rng: np.random.Generator) -> float:
    return choice(rng, -1.0, 1.0) * rng.uniform(0.5, 2.0)


def _book(rng: np.random.Generator) -> _Model:
    """2–5 vanilla options on 1–3 correlated assets."""
    n = int(rng.integers(1, 4))
    assets, count = _Assets.drawn(rng, n), int(rng.integers(max(2, n), 6))
    options: list[list[_Option]] = [[] for _ in range(n)]
    for k in range(count):
        i = k if k < n else int(rng.integers(n))
        kind = "digital" if rng.random() < 0.1 else choice(rng, "call", "put")
        strike = _strike(rng, math.hypot(assets.near[i], assets.far[i]))
        options[i].append(_Option(kind, _size(rng), strike))

    def part(i: int) -> Function:
        near, far = assets.near[i], assets.far[i]

        def worth(z: np.ndarray) -> np.ndarray:
            spot = _SPOT * np.exp(near * z - near**2 / 2)
            return sum(one.price(spot, far) for one in options[i])

        return worth

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return sum(one.payoff(x[..., i]) for i in range(n) for one in options[i])

    return _Model(
        f"{count} options on {n} assets",
        Sum(tuple(part(i) for i in range(n)), assets.loadings),
        assets.outer(base(rng)),
        assets.inner(base(rng)),
        g,
    )


def _basket(rng: np.random.Generator) -> _Model:
    """A call, put, straddle or spread on the geometric mean of 1–3 correlated assets."""
    n = int(rng.integers(1, 4))
    assets, share = _Assets.drawn(rng, n), rng.dirichlet(np.full(n, 3.0))
    near, far = (
        math.sqrt((share * sd) @ assets.correlation @ (share * sd))
        for sd in (assets.near, assets.far)
    )
    # The geometric mean drifts: its mean is below that of the assets.
    near_drift, far_drift = (share @ sd**2 / 2 for sd in (assets.near, assets.far))
    strike, kind = (
        _strike(rng, math.hypot(near, far)),
        choice(rng, "call", "put", "straddle", "spread"),
    )
    options = {
        "call": (_Option("call", 1.0, strike),),
        "put": (_Option("put", 1.0, strike),),
        "straddle": (_Option("call", 1.0, strike), _Option("put", 1.0, strike)),
        "spread": (_Option("call", 1.0, strike), _Option("call", -1.0, strike * (1 + 2 * far))),
    }[kind]
    sign = choice(rng, 1.0, 1.0, -1.0)

    def j(z: np.ndarray) -> np.ndarray:
        forward = _SPOT * np.exp(near * z - near_drift - far_drift + far**2 / 2)
        return sign * sum(one.price(forward, far) for one in options)

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        mean = np.exp(dot(np.log(x), share))
        return sign * sum(one.payoff(mean) for one in options)

    side = "long" if sign > 0 else "short"
    return _Model(
        f"{side} {kind} on a basket of {n}",
        Sum((j,), np.zeros(1)),
        assets.outer(base(rng)),
        assets.inner(base(rng)),
        g,
    )


def _dates(rng: np.random.Generator) -> _Model:
    """A put, straddle or butterfly on one asset, or its loss by a shock of the price.

    θ holds prices at 1–3 dates up to the horizon, x at 1–3 dates from there to maturity.
    """
    d, dx = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    volatility = rng.uniform(0.15, 0.5)
    near = volatility * math.sqrt(choice(rng, *_HORIZONS))
    far = volatility * math.sqrt(rng.uniform(0.05, 1.0))
    steps, later = (
        sd * np.sqrt(rng.dirichlet(np.full(k, 3.0))) for sd, k in ((near, d), (far, dx))
    )
    sd, kind = math.hypot(near, far), choice(rng, "put", "straddle", "butterfly")
    strike = _strike(rng, sd)
    options = {
        "put": [_Option("put", 1.0, strike)],
        "straddle": [_Option("call", 1.0, strike), _Option("put", 1.0, strike)],
        "butterfly": [
            _Option("call", size, strike * math.exp(k * sd))
            for k, size in ((-1, 1.0), (0, -2.0), (1, 1.0))
        ],
    }[kind]
    shock = choice(rng, None, 0.8, 1.2)
    if shock:
        options += [one.shocked(shock) for one in options]

    def walk(z: np.ndarray, steps: np.ndarray) -> np.ndarray:
        return np.exp(np.cumsum(steps * z - steps**2 / 2, axis=-1))

    how = base(rng)

    def inner(theta: np.ndarray) -> nq.Transport:
        return written(lambda z: theta[:, None, -1:] * walk(z, later), dx, dx, how)

    def j(z: np.ndarray) -> np.ndarray:
        spot = _SPOT * np.exp(near * z - near**2 / 2)
        return sum(one.price(spot, far) for one in options)

    what = f"{kind}, shock {shock:g}" if shock else kind
    return _Model(
        f"{what}, {d} + {dx} dates",
        Sum((j,), np.zeros(1)),
        written(lambda z: _SPOT * walk(z, steps), d, d, base(rng)),
        inner,
        lambda x, theta: sum(one.payoff(x[..., -1]) for one in options),
    )


def _normals(rng: np.random.Generator, d: int, dx: int) -> tuple[nq.Transport, nq.Transport]:
    return (
        written(lambda z: z, d, d, base(rng)),
        written(lambda z: z, dx, dx, base(rng)),
    )


def _distance(rng: np.random.Generator) -> _Model:
    """|a·x + b·θ − c|, whose mean is that of a folded normal."""
    d, dx = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    way, across = direction(rng, d), direction(rng, dx)
    slope, sd, centre = rng.uniform(0.3, 2.0), rng.uniform(0.2, 1.5), rng.normal()

    def j(w: np.ndarray) -> np.ndarray:
        mean = slope * w - centre
        return 2 * sd * normal_density(mean / sd) + mean * (1 - 2 * ndtr(-mean / sd))

    return _Model(
        f"distance of normals, {d} + {dx} dimensions",
        Sum((j,), np.zeros(1)),
        *_normals(rng, d, dx),
        lambda x, theta: np.abs(sd * dot(x, across) + slope * dot(theta, way) - centre),
    )


def _larger(rng: np.random.Generator) -> _Model:
    """The larger of two linear functions of θ and x.

    max(l₁, l₂) = l₁ + max(l₂ − l₁, 0): J depends on θ through the index of l₂ − l₁, and linearly
    on what is left of l₁.
    """
    d, dx = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    sd = slope = 0.0
    while sd <= 0.25 * slope:  # else J is all but kinked itself
        b, a, c = rng.normal(size=(2, d)), rng.normal(size=(2, dx)), rng.normal(size=2) / 2
        gap, sd = b[1] - b[0], float(np.linalg.norm(a[1] - a[0]))
        slope = float(np.linalg.norm(gap))
    along = float(b[0] @ gap) / slope
    across = float(np.linalg.norm(b[0] - along * gap / slope))

    def j(w: np.ndarray) -> np.ndarray:
        mean = slope * w + c[1] - c[0]
        return along * w + c[0] + sd * normal_density(mean / sd) + mean * ndtr(mean / sd)

    parts = (j,) if d == 1 else (j, lambda e: across * e)
    return _Model(
        f"larger of two linear, {d} + {dx} dimensions",
        Sum(parts, np.zeros(len(parts))),
        *_normals(rng, d, dx),
        lambda x, theta: np.maximum(
            *(dot(x, a[k]) + dot(theta, b[k]) + c[k] for k in range(2)),
        ),
    )


def sketch(rng: np.random.Generator) -> Sketch:
    build = choice(rng, _book, _book, _book, _basket, _dates, _distance, _larger)
    level = choice(rng, *LEVELS)
    kind = EXCESS if build is _dates else choice(rng, EXCESS, EXCESS, EXCEEDANCE, _UTILITY)
    while True:
        model = build(rng)
        j = model.j.draws(14)
        limit = float(f"{np.quantile(j, level):.6g}")
        beyond = np.maximum(j - limit, 0.0).mean() / (1 - level)
        # J that is all but constant beyond the level has no tail; a normal one has 0.3 to 0.8.
        if 0.9 < (j > limit).mean() / (1 - level) < 1.1 and beyond > 0.03 * j.std() > 0.0015:
            break
    risk = float(f"{0.5 / (abs(j.mean()) + j.std()):.3g}")
    f = (lambda v: v - risk * v**2) if kind == _UTILITY else tail_f(kind, limit)

    def truth() -> Truth:
        if kind == _UTILITY:
            return smooth_mean(model.j, f)
        return tail(model.j, limit, kind == EXCESS)

    what = kind if kind == _UTILITY else f"{kind} at {100 * level:g} %"
    return Sketch(
        nq.NestedExpectation(outer=model.outer, inner=model.inner, g=model.g, f=f),
        truth,
        f"{what}, {model.name}",
    )
