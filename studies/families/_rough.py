"""Rough and discrete: jumps in g, counts, coins, regimes, and J that jumps in θ.

θ = (regime, z_1, …, z_d) with 1–4 regimes, or z alone. In each regime J depends on z through one
normal index w = a·z, so that the answer is a sum over regimes of integrals on a line, cut where J
jumps and where f has a kink or a jump.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln, ndtr, ndtri, pdtr

import nestquad as nq
from studies.families._sketch import Sketch, base, choice, direction, dot, written
from studies.families._truth import Truth, crossings, moments

_MOST = 80  # of a Poisson count with a mean of at most 20 or so


@dataclass(frozen=True)
class _Model:
    """The law of x by uniforms, g of x, and J, each given the index w of θ."""

    name: str
    dim: int
    draw: Callable[[np.ndarray, np.ndarray], np.ndarray]  # u (…, dim), w (…) -> x (…, dim)
    g: Callable[[np.ndarray, np.ndarray], np.ndarray]
    mean: Callable[[np.ndarray], np.ndarray]


def _steps(rng: np.random.Generator) -> _Model:
    """Jumps where an index of normals passes thresholds that move with w."""
    d, k = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    sizes, slope, at = rng.normal(size=k), rng.uniform(-1.0, 1.0, k), rng.normal(size=k)
    way = direction(rng, d)

    def draw(u: np.ndarray, w: np.ndarray) -> np.ndarray:
        return ndtri(u) + 0.0 * w[..., None]

    def g(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        v = dot(x, way)
        return sum(a * (v > t + b * w) for a, b, t in zip(sizes, slope, at, strict=True))

    def mean(w: np.ndarray) -> np.ndarray:
        return sum(a * ndtr(-t - b * w) for a, b, t in zip(sizes, slope, at, strict=True))

    return _Model(f"{k} steps in {d} normals", d, draw, g, mean)


def _counts(rng: np.random.Generator) -> _Model:
    """A Poisson count with a log-linear rate."""
    level, slope = rng.uniform(-1.0, 1.5), rng.uniform(0.1, 0.5)
    cut, kind = int(rng.integers(1, 5)), choice(rng, "capped", "at least", "root", "excess")
    of = {
        "capped": lambda n: np.minimum(n, cut),
        "at least": lambda n: (n >= cut) + 0.0,
        "root": np.sqrt,
        "excess": lambda n: np.maximum(n - cut, 0.0),
    }[kind]

    def rate(w: np.ndarray) -> np.ndarray:
        # Bounded, so that the enumeration is.
        return np.exp(level + slope * 3.0 * np.tanh(w / 3.0))

    def draw(u: np.ndarray, w: np.ndarray) -> np.ndarray:
        lam, n = rate(w)[..., None], np.zeros(np.broadcast_shapes(u.shape, (*w.shape, 1)))
        for j in range(_MOST):
            above = u > pdtr(j, lam)
            if not above.any():
                break
            n += above
        return n

    def mean(w: np.ndarray) -> np.ndarray:
        n = np.arange(_MOST, dtype=float)
        lam = rate(np.asarray(w))[..., None]
        return np.exp(n * np.log(lam) - lam - gammaln(n + 1)) @ of(n)

    return _Model(f"Poisson, {kind} {cut}", 1, draw, lambda x, w: of(x[..., 0]), mean)


def _coins(rng: np.random.Generator) -> _Model:
    """At least k of m coins, whose chances all move with w."""
    m = int(rng.integers(2, 9))
    k, level, slope = int(rng.integers(1, m + 1)), rng.normal(size=m), rng.uniform(-1.5, 1.5, m)

    def draw(u: np.ndarray, w: np.ndarray) -> np.ndarray:
        return (u < expit(level + slope * w[..., None])).astype(float)

    def mean(w: np.ndarray) -> np.ndarray:
        chances = expit(level + slope * np.asarray(w)[..., None])
        heads = np.zeros((*chances.shape[:-1], m + 1))
        heads[..., 0] = 1.0
        for i in range(m):
            p = chances[..., i : i + 1]
            moved = np.concatenate([np.zeros_like(p), heads[..., :-1]], axis=-1)
            heads = heads * (1 - p) + moved * p
        return heads[..., k:].sum(axis=-1)

    def g(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return (x.sum(axis=-1) >= k).astype(float)

    return _Model(f"{k} of {m} coins", m, draw, g, mean)


def sketch(rng: np.random.Generator) -> Sketch:
    model = choice(rng, _steps, _counts, _coins)(rng)
    d, regimes = int(rng.integers(1, 6)), choice(rng, 1, 1, 2, 3, 4)
    shares = np.full(1, 1.0) if regimes == 1 else np.sort(rng.dirichlet(np.ones(regimes)))
    offset, size = rng.normal(size=regimes), rng.uniform(0.5, 2.0, regimes)
    jumps = np.sort(rng.normal(size=choice(rng, 0, 0, 1, 3)))
    heights = rng.normal(size=jumps.size)
    way, ends, how = direction(rng, d), np.cumsum(shares)[:-1], base(rng)
    first = int(regimes > 1)

    def index(theta: np.ndarray) -> np.ndarray:
        return dot(theta[..., first:], way)

    def affine(theta: np.ndarray, values: np.ndarray) -> np.ndarray:
        state = theta[..., 0].astype(int) if first else np.zeros(theta.shape[:-1], dtype=int)
        w = index(theta)
        lifted = sum(h * (w > t) for h, t in zip(heights, jumps, strict=True))
        return offset[state] + size[state] * values + lifted

    def outer(z: np.ndarray) -> np.ndarray:
        if not first:
            return z
        state = np.searchsorted(ends, ndtr(z[..., :1]), side="right").astype(float)
        return np.concatenate([state, z[..., 1:]], axis=-1)

    def inner(theta: np.ndarray) -> nq.Transport:
        w = index(theta)[:, None]
        return nq.Transport(lambda u: model.draw(u, w), dim=model.dim, out_dim=model.dim)

    def j_of(state: int) -> Callable[[np.ndarray], np.ndarray]:
        def j(w: np.ndarray) -> np.ndarray:
            lifted = sum(h * (w > t) for h, t in zip(heights, jumps, strict=True))
            return offset[state] + size[state] * model.mean(w) + lifted

        return j

    sample = np.random.default_rng(1).standard_normal((regimes, 4000))
    pooled = np.concatenate(
        [j_of(s)(sample[s])[: int(4000 * shares[s]) + 1] for s in range(regimes)]
    )
    centre, spread = float(np.quantile(pooled, rng.uniform(0.2, 0.9))), max(pooled.std(), 1e-3)
    centre += 0.01 * spread * rng.random()  # off any atom
    kind = choice(rng, "exceedance", "excess", "distance", "square", "floor")
    step = spread / 2
    f, levels = {
        "exceedance": (lambda j: (j > centre).astype(float), [centre]),
        "excess": (lambda j: np.maximum(j - centre, 0.0), [centre]),
        "distance": (lambda j: np.abs(j - centre), [centre]),
        "square": (lambda j: (j - centre) ** 2, []),
        "floor": (
            lambda j: np.floor((j - centre) / step),
            list(centre + step * np.arange(-60, 61)),
        ),
    }[kind]

    def within(j: Callable[[np.ndarray], np.ndarray]) -> Truth:
        reach = j(np.linspace(-9, 9, 2001))
        cuts = [one for one in levels if reach.min() - 1 < one < reach.max() + 1]
        breaks = [w for one in cuts for w in crossings(lambda w: j(w) - one)]  # noqa: B023
        return moments(lambda w: f(j(w)), [*jumps, *breaks])

    def truth() -> Truth:
        found = [within(j_of(state)) for state in range(regimes)]
        value = float(shares @ [one.value for one in found])
        second = float(shares @ [one.scale**2 + one.value**2 for one in found])
        error = float(shares @ [one.error for one in found])
        return Truth(value, error, float(np.sqrt(max(second - value**2, 0.0))))

    return Sketch(
        nq.NestedExpectation(
            outer=written(outer, d + first, d + first, how),
            inner=inner,
            g=lambda x, theta: affine(theta, model.g(x, index(theta))),
            f=f,
        ),
        truth,
        f"{model.name}, {regimes} regimes, {jumps.size} jumps of J, {kind}",
    )
