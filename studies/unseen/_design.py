"""Expected information gain of experiments that are not those of the shipped problems."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from scipy.special import expit, log_expit, ndtri

import nestquad as nq
from studies.quadrature import normal_nodes

# Three patients, three doses; intercept and slope of a logistic response are unknown.
_DOSES = np.array([-1.0, 0.5, 2.0])
_BETA_MEAN, _BETA_SD = np.array([0.0, 1.0]), np.array([1.0, 0.7])


def logistic_doses() -> nq.NestedExpectation:
    """Three binary responses: θ = the coefficients and the data they gave, d_θ = 5, d_x = 2.

    J is the evidence of the data over their likelihood, and the gain −E[log J].
    """

    def simulate(u: np.ndarray) -> np.ndarray:
        beta = _BETA_MEAN + _BETA_SD * ndtri(u[..., :2])
        return np.concatenate([beta, u[..., 2:] < expit(_logits(beta))], axis=-1)

    return nq.NestedExpectation(
        outer=nq.Transport(simulate, dim=5, out_dim=5),
        inner=nq.Normal(_BETA_MEAN, _BETA_SD),
        g=lambda x, theta: np.exp(_log_likelihood(x, theta) - _log_likelihood(theta, theta)),
        f=lambda j: -np.log(j),
        exact=_logistic_doses_exact(),
        name="logistic-doses",
    )


def _logits(beta: np.ndarray) -> np.ndarray:
    return beta[..., :1] + beta[..., 1:2] * _DOSES


def _log_likelihood(beta: np.ndarray, theta: np.ndarray) -> np.ndarray:
    return log_expit((2.0 * theta[..., 2:] - 1.0) * _logits(beta)).sum(axis=-1)


def _logistic_doses_exact() -> float:
    z, weight = normal_nodes(120)
    beta = _BETA_MEAN + _BETA_SD * np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1)
    weights = np.outer(weight, weight)
    gain = 0.0
    for outcome in itertools.product((-1.0, 1.0), repeat=3):
        log_p = log_expit(np.array(outcome) * _logits(beta)).sum(axis=-1)
        evidence = (weights * np.exp(log_p)).sum()
        gain += (weights * np.exp(log_p) * (log_p - math.log(evidence))).sum()
    return float(gain)


# A concentration that decays at an unknown rate, measured twice.
_TIMES, _NOISE = np.array([1.0, 3.0]), 0.1
_RATE_MEDIAN, _RATE_SD = 0.5, 0.5


def exponential_decay() -> nq.NestedExpectation:
    """Two noisy measurements of a decay: θ = the data (d_θ = 2), x = the rate, f = −1 − log."""

    def simulate(z: np.ndarray) -> np.ndarray:
        rate = _RATE_MEDIAN * np.exp(_RATE_SD * z[..., :1])
        return np.exp(-rate * _TIMES) + _NOISE * z[..., 1:]

    def relative_likelihood(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        residual = (theta - np.exp(-x[..., :1] * _TIMES)) / _NOISE
        return np.exp(-0.5 * (residual**2).sum(axis=-1))

    return nq.NestedExpectation(
        outer=nq.Transport(simulate, dim=3, base="normal", out_dim=2),
        inner=nq.LogNormal([math.log(_RATE_MEDIAN)], _RATE_SD),
        g=relative_likelihood,
        f=lambda j: -1.0 - np.log(j),
        exact=_exponential_decay_exact(),
        name="exponential-decay",
    )


def _exponential_decay_exact() -> float:
    # Entropy of the data less that of the noise, on a grid of data: the trapezoidal rule is
    # as good as exact for densities that are smooth and vanish at the ends.
    z, weight = normal_nodes(300)
    mean = np.exp(-_RATE_MEDIAN * np.exp(_RATE_SD * z)[:, None] * _TIMES)
    y = np.arange(-1.0, 2.0, _NOISE / 5)
    one, two = (
        np.exp(-0.5 * ((y[:, None] - mean[:, i]) / _NOISE) ** 2) / math.sqrt(2 * math.pi) / _NOISE
        for i in range(2)
    )
    density = (one * weight) @ two.T
    entropy = -(density * np.log(np.maximum(density, 1e-300))).sum() * (_NOISE / 5) ** 2
    return float(entropy - (1.0 + math.log(2 * math.pi * _NOISE**2)))


def linear_trio() -> nq.NestedExpectation:
    """Three linear measurements of two correlated coefficients: d_θ = 3, d_x = 2."""
    problem = nq.problems.eig_linear(
        design=[[1.0, 0.5], [-0.5, 1.0], [1.0, 1.0]],
        prior_cov=[[1.0, 0.3], [0.3, 0.5]],
        noise_cov=np.diag([0.25, 0.5, 0.5]),
    )
    return replace(problem, name="linear-trio")
