"""Rare: events of probability 1e-2 … 1e-4, in θ or in x, that carry the answer.

In θ: a smooth J that exceeds a far level (one index, or a sum over coordinates), or a J that is
large with a small probability. In x: a loss that occurs with a small probability, which θ moves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

import nestquad as nq
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
from studies.families._truth import Sum, Truth, crossings, moments


def sketch(rng: np.random.Generator) -> Sketch:
    probability = float(f"{10 ** rng.uniform(-4, -2):.2g}")
    build = choice(rng, _far_level, _far_sum, _shock, _loss, _corner)
    return build(rng, probability)


def _far_level(rng: np.random.Generator, probability: float) -> Sketch:
    """J increases with one index of θ: the level is its quantile."""
    d, dx = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    way, across = direction(rng, d), direction(rng, dx)
    slope, noise, kind = (
        rng.uniform(0.2, 0.8),
        rng.uniform(0.2, 1.0),
        choice(rng, EXCEEDANCE, EXCESS),
    )
    bend = choice(rng, np.exp, lambda w: w + 0.1 * w**3, np.tanh)

    def j(w: np.ndarray) -> np.ndarray:
        return bend(slope * w)

    level = float(j(-ndtri(probability)))

    def truth() -> Truth:
        if kind == EXCEEDANCE:
            return Truth(probability, 1e-9 * probability, probability)
        found = moments(lambda w: np.maximum(j(w) - level, 0.0), [-ndtri(probability)])
        return Truth(found.value, found.error, found.value)

    return Sketch(
        nq.NestedExpectation(
            outer=written(lambda z: z, d, d, base(rng)),
            inner=written(lambda z: z, dx, dx, base(rng)),
            g=lambda x, theta: (
                j(dot(theta, way)) + noise * np.sin(dot(x, across)) * (1.0 + theta[..., 0] ** 2)
            ),
            f=tail_f(kind, level),
        ),
        truth,
        f"{kind} of probability {probability:g} in θ, {d} + {dx} dimensions, one index",
    )


def _far_sum(rng: np.random.Generator, probability: float) -> Sketch:
    """J is a sum over coordinates of θ, exponential or cubic in each."""
    n, kind = int(rng.integers(2, 7)), choice(rng, EXCEEDANCE, EXCESS)
    size, slope = rng.uniform(0.3, 1.0, n), rng.uniform(0.2, 0.6, n)
    noise, how = rng.uniform(0.2, 0.8), base(rng)

    def part(i: int) -> Callable[[np.ndarray], np.ndarray]:
        if i % 2:
            return lambda z: size[i] * (z + 0.05 * z**3)
        return lambda z: size[i] * np.exp(slope[i] * z)

    parts = tuple(part(i) for i in range(n))
    total = Sum(parts, rng.uniform(0.0, 0.7, n))
    factor = np.linalg.cholesky(total.correlation)
    level = float(f"{np.quantile(total.draws(17), 1 - probability):.5g}")

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return sum(
            one(theta[..., i]) * np.exp(noise * x[..., i] - noise**2 / 2)
            for i, one in enumerate(parts)
        )

    return Sketch(
        nq.NestedExpectation(
            outer=written(lambda z: correlated(factor, z), n, n, how),
            inner=nq.Normal(dim=n),
            g=g,
            f=tail_f(kind, level),
        ),
        lambda: total.exceedance(level) if kind == EXCEEDANCE else total.excess(level),
        f"{kind} of probability about {probability:g} in θ, sum of {n}",
    )


_CONCAVE = {
    "log": lambda j: np.log(j),
    "root": lambda j: np.sqrt(j),
    "identity": lambda j: j,
    "square": lambda j: j**2,
}


def _shock(rng: np.random.Generator, probability: float) -> Sketch:
    """An index of θ beyond its quantile multiplies J; that carries much of the answer."""
    d, way_d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    way, across, kind = direction(rng, d), direction(rng, way_d), choice(rng, *_CONCAVE)
    start, slope, noise = -ndtri(probability), rng.uniform(0.05, 0.3), rng.uniform(0.2, 0.8)
    power = {"log": 2.0, "root": 2.0, "identity": 1.0, "square": 0.5}[kind]
    # Up to four times what is there without it; under a logarithm there is only so much to gain.
    size = min((rng.uniform(0.3, 3.0) / probability) ** power, 1e8)
    f = _CONCAVE[kind]

    def j(w: np.ndarray) -> np.ndarray:
        return np.exp(slope * w) * (1.0 + size * (w > start))

    def truth() -> Truth:
        found = moments(lambda w: f(j(w)), [start])
        return Truth(found.value, found.error, abs(found.value))

    return Sketch(
        nq.NestedExpectation(
            outer=written(lambda z: z, d, d, base(rng)),
            inner=nq.Normal(dim=way_d),
            g=lambda x, theta: j(dot(theta, way)) * np.exp(noise * dot(x, across) - noise**2 / 2),
            f=f,
        ),
        truth,
        f"shock of probability {probability:g} in θ, {d} + {way_d} dimensions, f = {kind}",
        positive=kind in ("log", "root"),
    )


def _loss(rng: np.random.Generator, probability: float) -> Sketch:
    """A loss when an index of x, moved by θ, passes a far threshold."""
    d, dx = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    way, across = direction(rng, d), direction(rng, dx)
    slope, spread = rng.uniform(0.1, 0.5), rng.uniform(0.0, 1.0)
    start = -ndtri(probability) * np.sqrt(1 + slope**2)

    def j(w: np.ndarray) -> np.ndarray:
        return ndtr(slope * w - start) / probability

    kind = choice(rng, "excess", "log", "root")
    level = float(j(rng.normal()))
    f = {
        "excess": lambda v: np.maximum(v - level, 0.0),
        "log": np.log1p,
        "root": lambda v: np.sqrt(1.0 + v),
    }[kind]

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        hit = dot(x, across) + slope * dot(theta, way) > start
        return hit * np.exp(spread * x[..., dx] - spread**2 / 2) / probability

    def truth() -> Truth:
        breaks = crossings(lambda w: j(w) - level) if kind == "excess" else ()
        found = moments(lambda w: f(j(w)), breaks)
        return Truth(found.value, found.error, abs(found.value))

    return Sketch(
        nq.NestedExpectation(
            outer=written(lambda z: z, d, d, base(rng)),
            inner=written(lambda z: z, dx + 1, dx + 1, base(rng)),
            g=g,
            f=f,
        ),
        truth,
        f"loss of probability {probability:g} in x, {d} + {dx + 1} dimensions, f = {kind}",
        positive=kind != "excess",
    )


def _corner(rng: np.random.Generator, probability: float) -> Sketch:
    """A loss in a corner of the cube of x; its sides move with θ."""
    d, dx = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    way, side = direction(rng, d), probability ** (1 / dx)
    slope = rng.uniform(0.05, 0.3) / dx

    def width(w: np.ndarray) -> np.ndarray:
        return side * np.exp(slope * np.tanh(w))

    def j(w: np.ndarray) -> np.ndarray:
        return width(w) ** dx / probability

    level = float(j(-abs(rng.normal())))

    def truth() -> Truth:
        found = moments(lambda w: np.maximum(j(w) - level, 0.0), crossings(lambda w: j(w) - level))
        return Truth(found.value, found.error, abs(found.value))

    return Sketch(
        nq.NestedExpectation(
            outer=written(lambda z: z, d, d, base(rng)),
            inner=nq.Uniform(dim=dx),
            g=lambda x, theta: (x.min(axis=-1) > 1 - width(dot(theta, way))) / probability,
            f=lambda v: np.maximum(v - level, 0.0),
        ),
        truth,
        f"loss of probability {probability:g} in a corner of x, {d} + {dx} dimensions",
    )
