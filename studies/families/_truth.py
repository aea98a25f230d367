"""Exact values: quadrature on a line, tails of sums by Fourier series, dense averages.

Nothing here uses an estimator of nestquad. Every value comes with a bound or a standard error of
its own (`Truth.error`), from a second computation at another resolution or from replicates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, roots_legendre
from scipy.stats import qmc

from studies.quadrature import FAR, normal_density

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Truth:
    """The exact value, how far it may be off, and the natural scale of the problem.

    The scale is what an absolute tolerance is a part of: the standard deviation of f(J) over θ,
    and the value itself for probabilities and expected excesses.
    """

    value: float
    error: float
    scale: float


def moments(h: Function, breaks: Sequence[float] = ()) -> Truth:
    """E h(z) of a standard normal, smooth between the breaks; the scale is the sd of h(z)."""
    values = []
    for order in (16, 24):
        z, weight = _panels(breaks, order)
        image = h(z)
        values.append(mean := float(weight @ image))
    spread = math.sqrt(max(float(weight @ (image - mean) ** 2), 0.0))
    return Truth(values[1], abs(values[1] - values[0]) + 1e-14 * abs(mean), spread)


def exceedance(h: Function, level: float) -> Truth:
    """P(h(z) > level) of a standard normal, from the crossings of a continuous h."""
    ends = np.concatenate([[-FAR], crossings(lambda z: h(z) - level), [FAR]])
    above = h((ends[:-1] + ends[1:]) / 2) > level
    # Differences on the side where ndtr is small keep the digits of rare events.
    left, right = ends[:-1], ends[1:]
    mass = np.where(left > 0, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))
    value = float(mass[above].sum())
    return Truth(value, 1e-10 * value + 1e-18, value)


def excess(h: Function, level: float) -> Truth:
    """E max(h(z) − level, 0) of a standard normal, for an h that is smooth."""
    breaks = crossings(lambda z: h(z) - level)
    found = moments(lambda z: np.maximum(h(z) - level, 0.0), breaks)
    return Truth(found.value, found.error, found.value)


def crossings(h: Function, n: int = 40_001) -> np.ndarray:
    """Where h changes its sign on [-FAR, FAR], by bisection from a fine grid."""
    grid = np.linspace(-FAR, FAR, n)
    signs = h(grid) > 0
    at = np.flatnonzero(signs[1:] != signs[:-1])
    low, high, rising = grid[at], grid[at + 1], signs[at + 1]
    for _ in range(60):
        middle = (low + high) / 2
        right = (h(middle) > 0) == rising
        low, high = np.where(right, low, middle), np.where(right, middle, high)
    return (low + high) / 2


def tabulated(h: Function, n: int = 200_001) -> Function:
    """A smooth h by linear interpolation on [-8.5, 8.5]: an error of 1e-9 of its curvature."""
    grid = np.linspace(-8.5, 8.5, n)
    values = h(grid)
    values = np.append(values, values[-1])

    def table(z: np.ndarray) -> np.ndarray:
        at = (np.clip(z, -8.5, 8.5) + 8.5) * ((n - 1) / 17.0)
        index = at.astype(np.int64)
        low = values[index]
        return low + (values[index + 1] - low) * (at - index)

    return table


def _panels(breaks: Sequence[float], order: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and normal weights on panels of [-FAR, FAR]."""
    inside = [one for one in breaks if -FAR < one < FAR]
    ends = np.unique(np.concatenate([np.linspace(-FAR, FAR, 145), inside]))
    node, weight = roots_legendre(order)
    half = np.diff(ends) / 2
    z = (ends[:-1] + half)[:, None] + half[:, None] * node
    return z.ravel(), (half[:, None] * weight * normal_density(z)).ravel()


@dataclass(frozen=True)
class Sum:
    """J = Σ_i part_i(r_i m + √(1 − r_i²) e_i) of independent standard normals m, e_1, …, e_n."""

    parts: tuple[Function, ...]
    loadings: np.ndarray

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """J at correlated normals (…, n)."""
        return sum(part(z[..., i]) for i, part in enumerate(self.parts))

    @property
    def correlation(self) -> np.ndarray:
        return np.outer(self.loadings, self.loadings) + np.diag(1 - self.loadings**2)

    def draws(self, log2: int, stretch: float = 1.0) -> np.ndarray:
        """J at Sobol points, whose normals may be stretched to see more of the tails."""
        z = stretch * ndtri(qmc.Sobol(len(self.parts), rng=0).random_base2(log2))
        return self(z @ np.linalg.cholesky(self.correlation).T)

    def exceedance(self, level: float) -> Truth:
        """P(J > level)."""
        if len(self.parts) == 1:
            return exceedance(self.parts[0], level)
        if len(self.parts) == 2:
            return self._pair(level, _normal_mass)
        return self._series(level, _step_series)

    def excess(self, level: float) -> Truth:
        """E max(J − level, 0)."""
        if len(self.parts) == 1:
            return excess(self.parts[0], level)
        if len(self.parts) == 2:
            return self._pair(level, _normal_excess)
        return self._series(level, _ramp_series)

    def square(self) -> Truth:
        """E J², from the first two moments of the parts given m; the scale is the sd of J²."""
        found = []
        for nodes in ((60, 20, 12), (90, 21, 16)):
            m, m_weight, e, e_weight = _grids(*nodes)
            mean = variance = 0.0
            for part, loading in zip(self.parts, self.loadings, strict=True):
                value = part(loading * m[:, None] + math.sqrt(1 - loading**2) * e)
                first = value @ e_weight
                mean, variance = mean + first, variance + value**2 @ e_weight - first**2
            found.append(float(m_weight @ (mean**2 + variance)))
        return Truth(found[1], abs(found[1] - found[0]), float((self.draws(16) ** 2).std()))

    def mean(self, f: Function) -> Truth:
        """E f(J) for a smooth f, by a dense average."""
        quick = Sum(tuple(map(tabulated, self.parts)), self.loadings)
        factor = np.linalg.cholesky(self.correlation)
        return average(lambda u: f(quick(ndtri(u) @ factor.T)), len(self.parts))

    def _pair(self, level: float, given: Callable[..., float]) -> Truth:
        # Given the first normal, the second is normal: integrate over where its part is above.
        rho = float(self.loadings[0] * self.loadings[1])
        grid = np.linspace(-FAR, FAR, 36_001)
        second = self.parts[1](grid)
        z = (np.arange(12_000) + 0.5) * (2 * FAR / 12_000) - FAR
        weight = normal_density(z) * (2 * FAR / 12_000)
        used = weight > 1e-16
        parts = np.zeros_like(z)
        for k in np.flatnonzero(used):
            threshold = level - float(self.parts[0](z[k]))
            parts[k] = given(grid, second, threshold, rho * z[k], math.sqrt(1 - rho**2))
        value = float(weight @ parts)
        thirds = float(3 * weight[1::3] @ parts[1::3])  # the same rule with a third of the nodes
        return Truth(value, abs(value - thirds) / 3, value)

    def _series(self, level: float, coefficients: Callable[..., np.ndarray]) -> Truth:
        # The cosine series of f on an interval that holds J within 5.7 standard deviations of the
        # normals; given m the parts are independent, and the mean of a cosine is a product.
        j = self.draws(16, 1.35)
        low, high = float(j.min()), float(j.max())
        before = self._sum(level, coefficients, low, high, 700, _grids(48, 20, 12))
        for terms, nodes in ((1500, (80, 21, 16)), (4000, (120, 43, 16)), (12_000, (160, 85, 16))):
            value = self._sum(level, coefficients, low, high, terms, _grids(*nodes))
            error, before = 3 * abs(value - before), value
            if error <= 3e-5 * value:
                break
        return Truth(value, error, value)

    def _sum(
        self,
        level: float,
        coefficients: Callable[..., np.ndarray],
        low: float,
        high: float,
        terms: int,
        grids: tuple[np.ndarray, ...],
    ) -> float:
        m, m_weight, e, e_weight = grids
        step = math.pi / (high - low)
        product = np.ones((terms, m.size), dtype=complex)
        for part, loading in zip(self.parts, self.loadings, strict=True):
            z = loading * m[:, None] + math.sqrt(1 - loading**2) * e
            turn = np.exp(1j * step * part(z))
            power = turn.copy()
            for k in range(terms):
                product[k] *= power @ e_weight
                power *= turn
        k = np.arange(1, terms + 1)
        characteristic = (product @ m_weight) * np.exp(-1j * k * step * low)
        series = coefficients(level - low, high - low, k)
        return float(series[0] + series[1:] @ characteristic.real)


def _normal_mass(
    grid: np.ndarray, values: np.ndarray, level: float, mean: float, sd: float
) -> float:
    """P(h(z) > level) of z ~ N(mean, sd²), from values of h on a fine grid."""
    above = values > level
    at = np.flatnonzero(above[1:] != above[:-1])
    step = (level - values[at]) / (values[at + 1] - values[at])
    ends = (grid[at] + step * (grid[1] - grid[0]) - mean) / sd
    signs = np.where(above[at + 1], 1.0, -1.0)
    # One if h is above at the far left, then P(z > end) more or less at every crossing.
    return float(above[0]) + float(signs @ ndtr(-ends))


def _normal_excess(
    grid: np.ndarray, values: np.ndarray, level: float, mean: float, sd: float
) -> float:
    """E max(h(z) − level, 0) of z ~ N(mean, sd²), by the trapezoidal rule on the grid."""
    at = np.flatnonzero(values > level)
    if not at.size:
        return 0.0
    density = normal_density((grid[at] - mean) / sd) * ((grid[1] - grid[0]) / sd)
    return float((values[at] - level) @ density)


def _grids(many: int, panels: int, order: int) -> tuple[np.ndarray, ...]:
    """Nodes and weights for m, and on panels for e, whose functions may have kinks."""
    node, weight = roots_legendre(many)
    m, m_weight = 7.5 * node, weight * normal_density(7.5 * node)
    edges = np.linspace(-7.5, 7.5, panels + 1)
    node, weight = roots_legendre(order)
    half = (edges[1] - edges[0]) / 2
    e = ((edges[:-1] + half)[:, None] + half * node).ravel()
    e_weight = np.tile(weight, panels) * normal_density(e)
    return m, m_weight / m_weight.sum(), e, e_weight / e_weight.sum()


def _step_series(c: float, b: float, k: np.ndarray) -> np.ndarray:
    """Cosine coefficients of 1{y > c} on [0, b]."""
    omega = k * math.pi / b
    return np.concatenate([[1 - c / b], -2 / b * np.sin(omega * c) / omega])


def _ramp_series(c: float, b: float, k: np.ndarray) -> np.ndarray:
    """Cosine coefficients of max(y − c, 0) on [0, b]."""
    omega = k * math.pi / b
    terms = 2 / b * ((-1.0) ** k - np.cos(omega * c)) / omega**2
    return np.concatenate([[(b - c) ** 2 / (2 * b)], terms])


def average(
    h: Callable[[np.ndarray], np.ndarray],
    dim: int,
    *,
    combine: Callable[[np.ndarray], float] = lambda means: float(means[0]),
    scale: float | None = None,
    log2: int = 15,
    most: int = 18,
    target: float = 1e-6,
) -> Truth:
    """Mean of h over uniforms (n, dim), by scrambled Sobol points; the error is 2.5 of its se.

    `combine` makes a number of the q means; the scale is the sd of h's first column by default.
    The points are doubled until the error is a part `target` of the scale, or there are enough.
    """
    while True:
        answers, spreads = [], []
        for scramble in range(16):
            u = qmc.Sobol(dim, rng=np.random.default_rng([log2, scramble])).random_base2(log2)
            image = h(np.clip(u, 1e-15, 1 - 1e-15))
            image = image[:, None] if image.ndim == 1 else image
            answers.append(combine(image.mean(axis=0)))
            spreads.append(float(image[:, 0].std()))
        size = float(np.mean(spreads)) if scale is None else scale
        value, error = float(np.mean(answers)), 2.5 * float(np.std(answers, ddof=1)) / 4
        if error <= target * size or log2 >= most:
            return Truth(value, error, size)
        log2 += 1
