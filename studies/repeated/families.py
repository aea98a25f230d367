"""Random repeated expectations of depth three and four, with truths by quadrature.

*smooth*: laws and f depend on all earlier y, and truths are nested Gauss–Hermite sums. *walk*: a
Markov chain with kinks in g and f, whose truth is backward induction on a fine grid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

import nestquad as nq

FAMILIES = ("smooth-3", "smooth-4", "walk-3", "walk-4")
# Nodes of a level, and points of the grid of a walk: a kink between two of them is wrong by the
# square of their distance, 1e-7.
_NODES, _GRID = 48, 60_001


def draw(family: str, seed: int) -> nq.RepeatedExpectation:
    """One problem with its exact value."""
    name, depth = family.split("-")
    rng = np.random.default_rng([seed, int(depth), FAMILIES.index(family)])
    make = {"smooth": _smooth, "walk": _walk}[name]
    return make(rng, int(depth), f"{family}, seed {seed}")


def _smooth_functions(rng: np.random.Generator) -> list[Callable[..., np.ndarray]]:
    """Functions of a mean and a sum of earlier y, each with constants of its own."""
    a, b, c = rng.uniform(0.3, 1.2), rng.uniform(-0.8, 0.8), rng.uniform(-1.0, 1.0)
    return [
        lambda j, s: np.sin(a * j + b * s + c),
        lambda j, s: np.exp(0.4 * a * np.tanh(j) + 0.3 * b * s),
        lambda j, s: np.log1p(np.exp(a * j + b * s + c)),
        lambda j, s: np.sqrt(1.0 + (a * j + b * s) ** 2),
        lambda j, s: (a * j + c) ** 2 / 2.0,
    ]


def _smooth(rng: np.random.Generator, depth: int, name: str) -> nq.RepeatedExpectation:
    slopes = rng.uniform(-0.9, 0.9, size=(depth, depth)) / np.sqrt(np.arange(1, depth + 1))[:, None]
    shifts, sds = rng.uniform(-0.5, 0.5, size=depth), rng.uniform(0.4, 1.0, size=depth)
    weights = rng.uniform(-1.0, 1.0, size=(depth, depth))
    functions = [rng.choice(_smooth_functions(rng)) for _ in range(depth)]  # type: ignore[arg-type]

    def mean(k: int, y: list[np.ndarray]) -> np.ndarray:
        return shifts[k] + sum(slopes[k, i] * y[i] for i in range(k))

    def summed(k: int, y: list[np.ndarray]) -> np.ndarray:
        return sum(weights[k, i] * y[i] for i in range(k + 1))  # type: ignore[return-value]

    def value_of(z: list[np.ndarray]) -> np.ndarray:
        """g at driving normals, one axis for each level."""
        y: list[np.ndarray] = []
        for k in range(depth):
            y.append(mean(k, y) + sds[k] * z[k])
        return y  # type: ignore[return-value]

    def exact(n: int) -> float:
        node, weight = hermegauss(n)
        weight = weight / weight.sum()
        axes = [node.reshape([-1 if i == k else 1 for i in range(depth)]) for k in range(depth)]
        y = value_of(axes)
        j = functions[-1](y[-1], summed(depth - 1, list(y)))
        for k in reversed(range(depth - 1)):
            j = np.broadcast_to(j, (*j.shape[: k + 1], n)) @ weight
            above = [one.reshape(one.shape[: k + 1]) for one in y[: k + 1]]
            j = functions[k](j, summed(k, above))
        return float(j @ weight)

    def law(k: int) -> Callable[..., nq.Normal]:
        return lambda *y: nq.Normal(mean(k, list(y)), sds[k])

    def g(last: np.ndarray, *earlier: np.ndarray) -> np.ndarray:
        y = [one[..., 0] for one in (*earlier, last)]
        return functions[-1](y[-1], summed(depth - 1, y))

    def f(k: int) -> Callable[..., np.ndarray]:
        return lambda j, *y: functions[k](j, summed(k, [one[:, 0] for one in y]))

    return nq.RepeatedExpectation(
        laws=[nq.Normal(shifts[0], sds[0]), *(law(k) for k in range(1, depth))],
        g=g,
        f=[f(k) for k in range(depth - 1)],
        exact=exact(_NODES),
        name=name,
    )


def _walk(rng: np.random.Generator, depth: int, name: str) -> nq.RepeatedExpectation:
    """A random walk with a payoff that may be taken early, or a bounded reward, at each level."""
    sds, drift = rng.uniform(0.4, 1.0, size=depth), rng.uniform(-0.3, 0.3, size=depth)
    strikes, wave = rng.uniform(-0.5, 0.7, size=depth), rng.uniform(0.3, 1.0, size=depth)
    kinds = rng.integers(3, size=depth - 1)
    payoff = int(rng.integers(2))

    def g_of(y: np.ndarray) -> np.ndarray:
        x = y - strikes[-1]
        return np.maximum(x, 0.0) if payoff else np.sin(wave[-1] * y) + 0.2 * y

    def f_of(k: int, j: np.ndarray, y: np.ndarray) -> np.ndarray:
        if kinds[k] == 0:
            return np.maximum(j, np.maximum(y - strikes[k], 0.0))
        if kinds[k] == 1:
            return np.maximum(j - 0.5 * strikes[k], 0.0) + 0.1 * np.sin(wave[k] * y)
        return np.tanh(j) + 0.3 * np.maximum(-j, 0.0)

    def law(k: int) -> Callable[..., nq.Normal]:
        return lambda *y: nq.Normal(y[-1] + drift[k], sds[k])

    def f(k: int) -> Callable[..., np.ndarray]:
        return lambda j, *y: f_of(k, j, y[-1][:, 0])

    far = 9.0 * float(np.sqrt((sds**2).sum())) + 2.0
    grid = np.linspace(-far, far, _GRID)

    def averaged(values: np.ndarray, k: int, at: np.ndarray) -> np.ndarray:
        """Means of values on the grid under the law of y_k given y_{k−1}."""
        z = (grid - at[:, None] - drift[k]) / sds[k]
        weight = np.exp(-0.5 * z**2)
        return np.asarray(weight @ values / weight.sum(axis=1))

    coarse = grid[::200]
    values = g_of(grid)
    for k in reversed(range(depth - 1)):
        j = _interpolated(coarse, averaged(values, k + 1, coarse), grid)
        values = f_of(k, j, grid)
    exact = float(averaged(values, 0, np.zeros(1))[0])
    return nq.RepeatedExpectation(
        laws=[nq.Normal(drift[0], sds[0]), *(law(k) for k in range(1, depth))],
        g=lambda last, *earlier: g_of(last[..., 0]),
        f=[f(k) for k in range(depth - 1)],
        exact=exact,
        name=name,
    )


def _interpolated(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    from scipy.interpolate import CubicSpline

    return np.asarray(CubicSpline(x, y)(at))


@lru_cache(maxsize=256)
def drawn(family: str, seed: int) -> nq.RepeatedExpectation:
    return draw(family, seed)
