"""Six experiments with known information gain: closed form, enumeration or dense quadrature."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.special import expit, gammaln, log_expit, logsumexp, ndtri, xlog1py, xlogy
from scipy.stats import binom, qmc

import nestquad as nq
from nestquad import design
from studies.quadrature import normal_nodes

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Case:
    """An experiment, a design, and the gain in nats."""

    experiment: design.Experiment
    design: Any
    exact: float


def _normal_log_prob(y: np.ndarray, mean: np.ndarray, sd: float) -> np.ndarray:
    return (-0.5 * ((y - mean) / sd) ** 2 - math.log(sd) - 0.5 * LOG_2PI).sum(axis=-1)


def _dot(matrix: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Rows of a matrix times parameters, without BLAS: the same bits in chunks of any size."""
    return np.einsum("ij,...j->...i", matrix, theta)


def linear() -> Case:
    """Four coefficients, eight observations with noise 0.1: closed form."""
    a = np.random.default_rng(0).normal(size=(8, 4))
    experiment = design.Experiment(
        prior=nq.Normal(np.zeros(4)),
        log_prob=lambda y, theta, d: _normal_log_prob(y, _dot(d, theta), 0.1),
        simulate=lambda theta, e, d: _dot(d, theta) + 0.1 * e,
        noise=nq.Normal(np.zeros(8)),
        name="linear",
    )
    exact = 0.5 * np.linalg.slogdet(np.eye(4) + a.T @ a / 0.01)[1]
    return Case(experiment, a, float(exact))


_TRIALS = 6


def _success(theta: np.ndarray, stimuli: np.ndarray) -> np.ndarray:
    slope, lapse = np.exp(theta[..., 1:2]), 0.2 * expit(theta[..., 2:3])
    return lapse / 2 + (1 - lapse) * expit(slope * (stimuli - theta[..., :1]))


def psychometric() -> Case:
    """Threshold, slope and lapses of a psychometric curve, four stimuli: enumeration."""
    stimuli = np.array([-2.0, -0.5, 0.5, 2.0])
    mean, sd = np.array([0.0, 0.7, -1.0]), np.array([1.0, 0.4, 1.0])

    def log_prob(y: np.ndarray, theta: np.ndarray, d: np.ndarray) -> np.ndarray:
        p = _success(theta, d)
        return (log_choose(_TRIALS, y) + xlogy(y, p) + xlog1py(_TRIALS - y, -p)).sum(axis=-1)

    def simulate(theta: np.ndarray, e: np.ndarray, d: np.ndarray) -> np.ndarray:
        return binom.ppf(e, _TRIALS, _success(theta, d))

    experiment = design.Experiment(
        prior=nq.Normal(mean, sd),
        log_prob=log_prob,
        simulate=simulate,
        noise=nq.Uniform(np.zeros(4), 1.0),
        name="psychometric",
    )
    z, w = normal_nodes(48)
    grid = np.stack(np.meshgrid(z, z, z, indexing="ij"), axis=-1).reshape(-1, 3)
    weight = np.einsum("i,j,k->ijk", w, w, w).ravel()
    keep = weight > 1e-14
    return Case(experiment, stimuli, _enumerated(mean + sd * grid[keep], weight[keep], stimuli))


def log_choose(n: Any, k: Any) -> np.ndarray:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _enumerated(theta: np.ndarray, weight: np.ndarray, stimuli: np.ndarray) -> float:
    p = _success(theta, stimuli)
    counts = np.arange(_TRIALS + 1)
    logs = log_choose(_TRIALS, counts) + xlogy(counts, p[..., None])
    logs += xlog1py(_TRIALS - counts, -p[..., None])  # (n, 4, 7)
    likelihood = np.exp(logs)
    # Two stimuli at a time: p(y) of all outcomes is one matrix product.
    first = (likelihood[:, 0, :, None] * likelihood[:, 1, None, :]).reshape(len(p), -1)
    second = (likelihood[:, 2, :, None] * likelihood[:, 3, None, :]).reshape(len(p), -1)
    evidence = (weight[:, None] * first).T @ second
    noise = (weight[:, None, None] * likelihood * logs).sum()
    return float(noise - xlogy(evidence, evidence).sum())


_SIZE, _TIMES = 50, np.array([0.5, 1.5])


def death() -> Case:
    """A death process of 50 individuals, observed twice: enumeration."""

    def chances(rate: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return -np.expm1(-rate * d[0]), -np.expm1(-rate * (d[1] - d[0]))

    def log_prob(y: np.ndarray, theta: np.ndarray, d: np.ndarray) -> np.ndarray:
        p, q = chances(theta[..., 0], d)
        a, b = y[..., 0], y[..., 1]
        left = _SIZE - a
        first = log_choose(_SIZE, a) + xlogy(a, p) + xlog1py(left, -p)
        return first + log_choose(left, b) + xlogy(b, q) + xlog1py(left - b, -q)

    def simulate(theta: np.ndarray, e: np.ndarray, d: np.ndarray) -> np.ndarray:
        p, q = chances(theta[..., 0], d)
        a = binom.ppf(e[..., 0], _SIZE, p)
        return np.stack([a, np.where(a < _SIZE, binom.ppf(e[..., 1], _SIZE - a, q), 0.0)], axis=-1)

    experiment = design.Experiment(
        prior=nq.LogNormal(0.0, 0.5),
        log_prob=log_prob,
        simulate=simulate,
        noise=nq.Uniform(np.zeros(2), 1.0),
        name="death process",
    )
    z, w = normal_nodes(400)
    pairs = [(a, b) for a in range(_SIZE + 1) for b in range(_SIZE + 1 - a)]
    logs = log_prob(np.array(pairs, float)[:, None], np.exp(0.5 * z)[:, None], _TIMES)
    evidence = np.exp(logs) @ w
    gain = (w * np.exp(logs) * np.maximum(logs, -1e6)).sum() - xlogy(evidence, evidence).sum()
    return Case(experiment, _TIMES, float(gain))


_SENSORS = np.array([[0.0, 0.0], [1.5, 0.0], [-0.5, 1.2]])


def _signal(theta: np.ndarray, sensors: np.ndarray) -> np.ndarray:
    places = theta.reshape(*theta.shape[:-1], 2, 1, 2)
    square = ((places - sensors) ** 2).sum(axis=-1)
    return np.log(0.1 + (1.0 / (1e-4 + square)).sum(axis=-2))


def sources() -> Case:
    """Two sources in the plane seen by three sensors: quadrature over data on a grid."""
    experiment = design.Experiment(
        prior=nq.Normal(np.zeros(4)),
        log_prob=lambda y, theta, d: _normal_log_prob(y, _signal(theta, d), 0.5),
        simulate=lambda theta, e, d: _signal(theta, d) + 0.5 * e,
        noise=nq.Normal(np.zeros(3)),
        name="two sources",
    )
    return Case(experiment, _SENSORS, _sources_exact())


@lru_cache(maxsize=1)
def _sources_exact(log2_n: int = 22, cells: int = 160) -> float:
    """Entropy of the data less that of the noise; signals of a dense sample on a grid."""
    low, high, sd = -4.5, 11.5, 0.5
    step = (high - low) / cells
    sampler = qmc.Sobol(4, seed=5)
    table = np.zeros(cells**3)
    for _ in range(1 << (log2_n - 18)):
        u = np.clip(sampler.random(1 << 18), 1e-12, 1 - 1e-12)
        at = (_signal(ndtri(u), _SENSORS) - low) / step - 0.5
        floor = np.floor(at).astype(int)
        part = at - floor
        for corner in itertools.product((0, 1), repeat=3):  # linear binning
            weight = np.prod(np.where(np.array(corner) == 1, part, 1 - part), axis=1)
            index = np.clip(floor + np.array(corner), 0, cells - 1)
            flat = np.ravel_multi_index(tuple(index.T), (cells,) * 3)
            table += np.bincount(flat, weight, cells**3)
    table = (table / table.sum()).reshape((cells,) * 3)
    # Linear binning has itself spread each point by a variance of step²/6.
    density = gaussian_filter(table, math.sqrt((sd / step) ** 2 - 1 / 6), truncate=7.0) / step**3
    density = np.maximum(density, 0.0)
    entropy = -(xlogy(density, density)).sum() * step**3
    return float(entropy - 3 * (0.5 * (1 + LOG_2PI) + math.log(sd)))


_VISITS = 10


def _conversions(theta: np.ndarray) -> np.ndarray:
    """Logits of two sites in both arms: effect, mean, and an intercept for each site."""
    effect, mean, sites = theta[..., :1], theta[..., 1:2], theta[..., 2:4]
    base = mean + 0.7 * sites
    return np.concatenate([base, base + effect], axis=-1)


def ab_test() -> Case:
    """An A/B test at two sites with random intercepts; the effect is of interest: enumeration."""

    def log_prob(y: np.ndarray, theta: np.ndarray, d: int) -> np.ndarray:
        logit = _conversions(theta)
        logs = log_choose(d, y) + y * log_expit(logit) + (d - y) * log_expit(-logit)
        return logs.sum(axis=-1)

    experiment = design.Experiment(
        prior=nq.Normal(np.array([0.0, -0.5, 0.0, 0.0]), np.array([1.0, 0.8, 1.0, 1.0])),
        log_prob=log_prob,
        simulate=lambda theta, e, d: binom.ppf(e, d, expit(_conversions(theta))),
        noise=nq.Uniform(np.zeros(4), 1.0),
        target=[0],
        name="A/B test",
    )
    z, w = normal_nodes(48)
    counts = np.arange(_VISITS + 1)
    effect, base = z[:, None, None], (-0.5 + 0.8 * z)[:, None] + 0.7 * z

    def table(logit: np.ndarray) -> np.ndarray:
        logs = log_choose(_VISITS, counts) + counts * log_expit(logit[..., None])
        return np.exp(logs + (_VISITS - counts) * log_expit(-logit[..., None]))

    control, treated = table(base), table(base + effect)  # (μ, a, y), (δ, μ, a, y)
    site = np.einsum("a,may,dmaz->dmyz", w, control, treated, optimize=True)
    site = site.reshape(len(z), len(z), -1)  # one site's outcomes given δ and μ
    given = np.einsum("m,dmi,dmj->dij", w, site, site, optimize=True)
    evidence = np.einsum("d,dij->ij", w, given)
    gain = np.einsum("d,dij->", w, xlogy(given, given)) - xlogy(evidence, evidence).sum()
    return Case(experiment, _VISITS, float(gain))


_DOSE, _PK_TIMES = 400.0, np.array([0.5, 1.0, 3.0, 6.0, 12.0])
_PK_MEAN, _PK_SD = np.log([1.0, 0.1, 20.0]), np.full(3, math.sqrt(0.05))
_PK_NOISE = 1.0


def _concentration(theta: np.ndarray, times: np.ndarray) -> np.ndarray:
    ka, ke, volume = theta[..., :1], theta[..., 1:2], theta[..., 2:3]
    scale = _DOSE / volume * ka / (ka - ke)
    return scale * (np.exp(-ke * times) - np.exp(-ka * times))


def pharmacokinetics() -> Case:
    """One compartment, five blood samples: adaptive Gauss–Hermite at each of many data."""

    def mean(z: np.ndarray) -> np.ndarray:
        return _concentration(np.exp(_PK_MEAN + _PK_SD * z), _PK_TIMES) / _PK_NOISE

    return Case(_drug(5), _PK_TIMES, gain_by_hermite(mean, 3, 5))


@cache
def blood_times() -> tuple[design.Experiment, np.ndarray, np.ndarray]:
    """One blood sample at one of 13 times: experiment, times, and the gain of each.

    The gain is the entropy of the sample less that of its noise, by Sobol points over θ and the
    trapezoidal rule over the data.
    """
    times = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.5, 5.0, 7.0, 9.0, 12.0, 16.0, 24.0])
    theta = np.exp(_PK_MEAN + _PK_SD * ndtri(qmc.Sobol(3, seed=3).random(1 << 14)))
    y = np.arange(-8.0, 60.0, 0.25) * _PK_NOISE
    exact = []
    for mean in _concentration(theta, times).T:
        density = np.exp(-0.5 * ((y[:, None] - mean) / _PK_NOISE) ** 2 - 0.5 * LOG_2PI).mean(axis=1)
        entropy = -0.25 * xlogy(density, density).sum()
        exact.append(entropy - 0.5 * (1 + LOG_2PI))
    one = replace(_drug(1), name="time of a blood sample")
    return one, times, np.array(exact)


def _drug(samples: int) -> design.Experiment:
    return design.Experiment(
        prior=nq.LogNormal(_PK_MEAN, _PK_SD),
        log_prob=lambda y, theta, d: _normal_log_prob(y, _concentration(theta, d), _PK_NOISE),
        simulate=lambda theta, e, d: _concentration(theta, d) + _PK_NOISE * e,
        noise=nq.Normal(np.zeros(samples)),
        name="pharmacokinetics",
    )


def gain_by_hermite(
    mean: Callable[[np.ndarray], np.ndarray], p: int, n_y: int, log2_n: int = 15, nodes: int = 10
) -> float:
    """Gain of y = mean(z) + noise, all standard normal, by adaptive Gauss–Hermite at each y."""
    u = np.clip(qmc.Sobol(p + n_y, seed=3).random(1 << log2_n), 1e-12, 1 - 1e-12)
    node, weight = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[node] * p, indexing="ij"), axis=-1).reshape(-1, p)
    log_weight = np.log(np.prod(np.meshgrid(*[weight] * p, indexing="ij"), axis=0).ravel())
    log_weight = log_weight + 0.5 * (grid**2).sum(axis=1)
    gains = []
    for part in np.array_split(ndtri(u), max(1, (1 << log2_n) * len(grid) // 2**22)):
        start, y = part[:, :p].copy(), mean(part[:, :p]) + part[:, p:]
        z, factor = _laplace(mean, start, y)
        at = z[:, None] + np.einsum("tij,nj->tni", factor, grid)
        log_likelihood = -0.5 * ((y[:, None] - mean(at)) ** 2 + LOG_2PI).sum(axis=-1)
        logs = log_likelihood - 0.5 * (at**2 + LOG_2PI).sum(axis=-1) + log_weight
        evidence = logsumexp(logs, axis=1)
        post = np.exp(logs - evidence[:, None])
        logdet = np.log(np.abs(np.diagonal(factor, axis1=1, axis2=2))).sum(axis=1)
        gains.append((post * log_likelihood).sum(axis=1) - evidence - logdet)
    return float(np.concatenate(gains).mean())


def _laplace(
    mean: Callable[[np.ndarray], np.ndarray], z: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior modes by damped Gauss–Newton, and factors of the inverse Hessians."""
    p = z.shape[1]
    for _ in range(15):
        m = mean(z)
        jacobian = np.stack(
            [(mean(z + 1e-5 * e) - mean(z - 1e-5 * e)) / 2e-5 for e in np.eye(p)], axis=-1
        )
        hessian = np.eye(p) + np.einsum("tni,tnj->tij", jacobian, jacobian)
        slope = np.einsum("tni,tn->ti", jacobian, y - m) - z
        step = np.linalg.solve(hessian, slope[..., None])[..., 0]
        z = z + np.clip(step, -1.0, 1.0)
    return z, np.linalg.cholesky(np.linalg.inv(hessian))


CASES: dict[str, Callable[[], Case]] = {
    "linear": linear,
    "psychometric": psychometric,
    "death": death,
    "sources": sources,
    "ab_test": ab_test,
    "pharmacokinetics": pharmacokinetics,
}


@cache
def case(name: str) -> Case:
    return CASES[name]()
