"""Random experiments with known information gain: a family and a seed make one.

Even seeds are to develop on, odd seeds to report.
"""

from __future__ import annotations

import math
import zlib
from functools import lru_cache

import numpy as np
from scipy.special import expit, log_expit, xlogy
from scipy.stats import binom
from scipy.stats import t as student_t

import nestquad as nq
from nestquad import design
from studies.design.problems import Case, _dot, _normal_log_prob, gain_by_hermite, log_choose
from studies.quadrature import normal_nodes


def _linear(rng: np.random.Generator) -> Case:
    """Coefficients 1–6, observations 1–8, noise 0.03–1: closed form."""
    p, n = int(rng.integers(1, 7)), int(rng.integers(1, 9))
    a, sd, noise = (
        rng.normal(size=(n, p)),
        rng.uniform(0.3, 2.0, p),
        float(10 ** rng.uniform(-1.5, 0)),
    )
    gain = 0.5 * np.linalg.slogdet(np.eye(n) + (a * sd**2) @ a.T / noise**2)[1]
    experiment = design.Experiment(
        prior=nq.Normal(rng.normal(size=p), sd),
        log_prob=lambda y, theta, d: _normal_log_prob(y, _dot(d, theta), noise),
        simulate=lambda theta, e, d: _dot(d, theta) + noise * e,
        noise=nq.Normal(np.zeros(n)),
    )
    return Case(experiment, a, float(gain))


def _counts(rng: np.random.Generator, trials: np.ndarray) -> Case:
    """Responses at random doses, intercept and slope unknown: all outcomes, tensor quadrature."""
    doses = rng.normal(0.0, 1.5, trials.size)
    mean, sd = rng.normal(0.0, 0.7, 2), rng.uniform(0.4, 1.5, 2)

    def logit(theta: np.ndarray, d: np.ndarray) -> np.ndarray:
        return theta[..., :1] + theta[..., 1:2] * d

    def log_prob(y: np.ndarray, theta: np.ndarray, d: np.ndarray) -> np.ndarray:
        t = logit(theta, d)
        logs = log_choose(trials, y) + y * log_expit(t) + (trials - y) * log_expit(-t)
        return logs.sum(axis=-1)

    experiment = design.Experiment(
        prior=nq.Normal(mean, sd),
        log_prob=log_prob,
        simulate=lambda theta, e, d: binom.ppf(e, trials, expit(logit(theta, d))),
        noise=nq.Uniform(np.zeros(trials.size), 1.0),
    )
    z, w = normal_nodes(64)
    theta = mean + sd * np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = np.outer(w, w).ravel()
    outcomes = np.stack(np.meshgrid(*[np.arange(n + 1.0) for n in trials], indexing="ij"), axis=-1)
    gain = 0.0
    for part in np.array_split(outcomes.reshape(-1, trials.size), 1 + outcomes.size // 4096):
        logs = log_prob(part[:, None], theta, doses)
        likelihood = np.exp(logs)
        evidence = likelihood @ weight
        gain += float(
            (likelihood * logs) @ weight @ np.ones(len(part)) - xlogy(evidence, evidence).sum()
        )
    return Case(experiment, doses, gain)


def _logistic(rng: np.random.Generator) -> Case:
    return _counts(rng, np.ones(int(rng.integers(2, 8)), dtype=int))


def _binomial(rng: np.random.Generator) -> Case:
    return _counts(rng, rng.integers(2, 13, size=int(rng.integers(1, 4))))


def _regression(rng: np.random.Generator) -> Case:
    """Exponential decay or saturation, two parameters, 2–4 observations: Gauss–Hermite."""
    n, noise = int(rng.integers(2, 5)), float(10 ** rng.uniform(-1.3, -0.3))
    times, sd = np.sort(rng.uniform(0.1, 4.0, n)), rng.uniform(0.2, 0.6, 2)
    decay = rng.random() < 0.5

    def curve(theta: np.ndarray, d: np.ndarray) -> np.ndarray:
        top, rate = theta[..., :1], theta[..., 1:2]
        return top * np.exp(-rate * d) if decay else top * d / (rate + d)

    experiment = design.Experiment(
        prior=nq.LogNormal(np.zeros(2), sd),
        log_prob=lambda y, theta, d: _normal_log_prob(y, curve(theta, d), noise),
        simulate=lambda theta, e, d: curve(theta, d) + noise * e,
        noise=nq.Normal(np.zeros(n)),
    )
    gain = gain_by_hermite(lambda z: curve(np.exp(sd * z), times) / noise, 2, n, nodes=16)
    return Case(experiment, times, gain)


def _heavy(rng: np.random.Generator) -> Case:
    """A location, Student prior of 1–4 degrees of freedom: entropy of the mean of the data."""
    df, n, noise = (
        int(rng.integers(1, 5)),
        int(rng.integers(1, 4)),
        float(10 ** rng.uniform(-1, 0.3)),
    )
    prior = student_t(df)
    experiment = design.Experiment(
        prior=prior,
        log_prob=lambda y, theta, d: _normal_log_prob(y, theta, noise),
        simulate=lambda theta, e, d: theta + noise * e,
        noise=nq.Normal(np.zeros(n)),
    )
    # y = sinh(s): trapezoids in s see a center of size one and tails over nine decades.
    sd, s = noise / math.sqrt(n), np.linspace(-21.0, 21.0, 8001)
    z, w = normal_nodes(64)
    density = sum(b * prior.pdf(np.sinh(s) - sd * a) for a, b in zip(z, w, strict=True))
    entropy = -float((xlogy(density, density) * np.cosh(s)).sum() * (s[1] - s[0]))
    return Case(experiment, None, entropy - 0.5 * math.log(2 * math.pi * math.e * sd**2))


FAMILIES = {
    "linear": _linear,
    "logistic": _logistic,
    "binomial": _binomial,
    "regression": _regression,
    "heavy": _heavy,
}


@lru_cache(maxsize=64)
def draw(family: str, seed: int) -> Case:
    """The experiment of a family and a seed."""
    return FAMILIES[family](np.random.default_rng([seed, zlib.crc32(family.encode())]))
