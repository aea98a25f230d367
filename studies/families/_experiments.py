"""Experiments: expected log evidence, and expected information gain by the ratio of likelihoods.

Linear measurements with normal noise have a closed form. Logistic responses are counted, one or
several patients a dose: all outcomes are enumerated and each evidence is a quadrature over the
coefficients.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import bdtr, expit, gammaln, log_expit, ndtr

import nestquad as nq
from studies.families._sketch import Sketch, base, choice, correlated, written
from studies.families._truth import Truth
from studies.quadrature import legendre, normal_density


def sketch(rng: np.random.Generator) -> Sketch:
    return choice(rng, _linear, _binomial, _logistic)(rng)


def _linear(rng: np.random.Generator) -> Sketch:
    """y = A β + noise: θ = y with f = log, or θ = (β, y) with f = −log of a ratio."""
    p, m, gain = int(rng.integers(1, 6)), int(rng.integers(1, 6)), rng.random() < 0.5
    a, sd = rng.normal(size=(m, p)) / math.sqrt(p), rng.uniform(0.5, 2.0, p)
    noise = rng.uniform(0.3, 1.0) * np.ones(m)
    how = base(rng)

    def simulate(z: np.ndarray) -> np.ndarray:
        beta = sd * z[..., :p]
        y = correlated(a, beta) + noise * z[..., p:]
        return np.concatenate([beta, y], axis=-1) if gain else y

    def log_likelihood(beta: np.ndarray, y: np.ndarray) -> np.ndarray:
        residual = (y - correlated(a, beta)) / noise
        return -0.5 * (residual**2).sum(axis=-1) - np.log(noise * math.sqrt(2 * math.pi)).sum()

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        if not gain:
            return np.exp(log_likelihood(x, theta))
        y = theta[..., p:]
        return np.exp(log_likelihood(x, y) - log_likelihood(theta[..., :p], y))

    def truth() -> Truth:
        total = a @ np.diag(sd**2) @ a.T + np.diag(noise**2)
        determinant = np.linalg.slogdet(total)[1]
        if not gain:
            value = -0.5 * (m * math.log(2 * math.pi) + m + determinant)
            return Truth(float(value), 1e-13, math.sqrt(m / 2))
        value = 0.5 * (determinant - 2 * np.log(noise).sum())
        # log p(y|β) − log p(y) = −½ zᵀ(I − N½ V⁻¹ N½)z + … has this variance.
        factor = np.concatenate([a * sd, np.diag(noise)], axis=1)
        form = factor.T @ np.linalg.solve(total, factor)
        form -= np.diag(np.concatenate([np.zeros(p), np.ones(m)]))
        return Truth(float(value), 1e-13, math.sqrt(float((form**2).sum()) / 2))

    return Sketch(
        nq.NestedExpectation(
            outer=written(simulate, p + m, p + m if gain else m, how),
            inner=nq.Normal(np.zeros(p), sd),
            g=g,
            f=(lambda j: -np.log(j)) if gain else np.log,
        ),
        truth,
        f"linear, {p} coefficients, {m} measurements, {'gain' if gain else 'log evidence'}",
        positive=True,
    )


def _logistic(rng: np.random.Generator) -> Sketch:
    return _counts(rng, np.ones(int(rng.integers(2, 6)), dtype=int))


def _binomial(rng: np.random.Generator) -> Sketch:
    return _counts(rng, rng.integers(2, 9, size=int(rng.integers(1, 4))))


def _counts(rng: np.random.Generator, patients: np.ndarray) -> Sketch:
    """Responses of patients to doses; θ = (coefficients, counts) or the counts alone."""
    k, p = patients.size, int(rng.integers(1, 3))
    doses = np.sort(rng.uniform(-2.0, 2.0, k))
    features = np.stack([np.ones(k), doses], axis=-1) if p == 2 else doses[:, None]
    mean, sd = rng.normal(size=p) * 0.5, rng.uniform(0.5, 2.0, p)
    gain, how = rng.random() < 0.5, base(rng)
    constant = gammaln(patients + 1)

    def simulate(z: np.ndarray) -> np.ndarray:
        beta, u = mean + sd * z[..., :p], ndtr(z[..., p:])
        rate = expit(correlated(features, beta))
        below = [u > np.where(j < patients, bdtr(j, patients, rate), 2.0)
                 for j in range(int(patients.max()))]  # fmt: skip
        counts = np.sum(below, axis=0, dtype=float)
        return np.concatenate([beta, counts], axis=-1) if gain else counts

    def log_likelihood(beta: np.ndarray, y: np.ndarray) -> np.ndarray:
        logit = correlated(features, beta)
        choose = constant - gammaln(y + 1) - gammaln(patients - y + 1)
        return (choose + y * log_expit(logit) + (patients - y) * log_expit(-logit)).sum(axis=-1)

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        if not gain:
            return np.exp(log_likelihood(x, theta))
        y = theta[..., p:]
        return np.exp(log_likelihood(x, y) - log_likelihood(theta[..., :p], y))

    def truth() -> Truth:
        coarse, fine = (_enumerated(log_likelihood, patients, mean, sd, gain, n) for n in (80, 110))
        return Truth(fine[0], abs(fine[0] - coarse[0]) + 1e-12, fine[1])

    return Sketch(
        nq.NestedExpectation(
            outer=written(simulate, p + k, p + k if gain else k, how),
            inner=nq.Normal(mean, sd),
            g=g,
            f=(lambda j: -np.log(j)) if gain else np.log,
        ),
        truth,
        f"{'binomial' if patients.max() > 1 else 'logistic'}, {p} coefficients, {k} doses, "
        f"{'gain' if gain else 'log evidence'}",
        positive=True,
    )


def _enumerated(
    log_likelihood, patients: np.ndarray, mean: np.ndarray, sd: np.ndarray, gain: bool, n: int
) -> tuple[float, float]:
    z, weight = legendre(-8.0, 8.0, n)
    weight = weight * normal_density(z)
    grid = np.stack(np.meshgrid(*[z] * mean.size, indexing="ij"), axis=-1).reshape(-1, mean.size)
    weights = np.prod(np.meshgrid(*[weight] * mean.size, indexing="ij"), axis=0).ravel()
    weights /= weights.sum()
    beta, first, second = mean + sd * grid, 0.0, 0.0
    for outcome in itertools.product(*(range(n + 1) for n in patients)):
        log_p = log_likelihood(beta, np.array(outcome, dtype=float))
        evidence = float(weights @ np.exp(log_p))
        if gain:
            score = log_p - math.log(evidence)
            first += float(weights @ (np.exp(log_p) * score))
            second += float(weights @ (np.exp(log_p) * score**2))
        else:
            first += evidence * math.log(evidence)
            second += evidence * math.log(evidence) ** 2
    return first, math.sqrt(max(second - first**2, 0.0))
