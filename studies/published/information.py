"""Expected information gains: linear, logistic and pharmacokinetic experiments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, logsumexp, ndtri, xlogy
from scipy.stats import qmc

import nestquad as nq
from nestquad import design
from studies.published.problem import Printed, PublishedProblem
from studies.quadrature import normal_nodes

_LOG_2PI = math.log(2 * math.pi)
_GODA = (
    "Goda, Hironaka and Iwamoto, Multilevel Monte Carlo estimation of expected information gains "
    "(2020), arXiv 1811.07546"
)


def _solver(experiment: design.Experiment, at: Any) -> Any:
    return lambda budget, seed: design.eig(experiment, at, budget=budget, rng=seed)


_DESIGN = np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]])
_PRIOR = np.array([[2.0, -1.0], [-1.0, 2.0]])
_NOISE = 0.1 * np.eye(3) - 0.05 * (np.eye(3, k=1) + np.eye(3, k=-1))


def _linear() -> PublishedProblem:
    root, precision = np.linalg.cholesky(_NOISE), np.linalg.inv(_NOISE)
    constant = -0.5 * (np.linalg.slogdet(_NOISE)[1] + 3 * _LOG_2PI)

    def mean(theta: np.ndarray) -> np.ndarray:
        return np.einsum("ij,...j->...i", _DESIGN, theta)

    def log_prob(y: np.ndarray, theta: np.ndarray, d: Any) -> np.ndarray:
        r = y - mean(theta)
        return constant - 0.5 * np.einsum("...i,ij,...j->...", r, precision, r)

    experiment = design.Experiment(
        prior=nq.Normal(np.zeros(2), cov=_PRIOR),
        log_prob=log_prob,
        simulate=lambda theta, e, d: mean(theta) + np.einsum("ij,...j->...i", root, e),
        noise=nq.Normal(np.zeros(3)),
        name="linear",
    )
    inside = np.eye(3) + np.linalg.solve(_NOISE, _DESIGN @ _PRIOR @ _DESIGN.T)
    return PublishedProblem(
        name="linear-gain",
        title="Linear experiment",
        source=_GODA,
        about=(
            "y = A θ + ε with A = [[1, 2], [2, 3], [3, 4]], θ ~ N(0, [[2, −1], [−1, 2]]), and "
            "ε normal with covariance 0.1 on the diagonal and −0.05 beside it."
        ),
        measure="information gain in nats",
        exact=0.5 * float(np.linalg.slogdet(inside)[1]),
        unit="absolute",
        budgets=(1_000, 10_000),
        printed=(Printed("multilevel Monte Carlo", math.nan),),
        solve=_solver(experiment, None),
        remark="The source draws the cost for an accuracy in figures and prints no numbers.",
    )


_DOSES = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


def logistic_gain(nodes: int = 160) -> float:
    """Gain by enumeration of the 2⁵ outcomes and quadrature over both coefficients."""
    z, weight = normal_nodes(nodes)
    logit = z[:, None, None] + 1.5 * z[:, None] * _DOSES  # intercept, slope, dose
    pair = weight[:, None] * weight
    outcomes = np.array(np.meshgrid(*[[0, 1]] * 5, indexing="ij")).reshape(5, -1).T
    logs = np.einsum("abd,yd->aby", log_expit(logit), outcomes) + np.einsum(
        "abd,yd->aby", log_expit(-logit), 1 - outcomes
    )
    likelihood = np.exp(logs)
    evidence = np.einsum("ab,aby->y", pair, likelihood)
    inside = np.einsum("ab,aby->", pair, likelihood * logs)
    return float(inside - xlogy(evidence, evidence).sum())


def _logistic() -> PublishedProblem:
    def logit(theta: np.ndarray, d: np.ndarray) -> np.ndarray:
        return theta[..., :1] + 1.5 * theta[..., 1:2] * d

    def log_prob(y: np.ndarray, theta: np.ndarray, d: np.ndarray) -> np.ndarray:
        at = logit(theta, d)
        return (y * log_expit(at) + (1 - y) * log_expit(-at)).sum(axis=-1)

    experiment = design.Experiment(
        prior=nq.Normal(np.zeros(2)),
        log_prob=log_prob,
        simulate=lambda theta, e, d: (e < expit(logit(theta, d))).astype(float),
        noise=nq.Uniform(np.zeros(5), 1.0),
        name="logistic",
    )
    return PublishedProblem(
        name="logistic-gain",
        title="Logistic regression",
        source=(
            "in the form of Foster and others, Variational Bayesian optimal experimental design "
            "(2019), arXiv 1903.05480"
        ),
        about=(
            "Five binary answers at the doses −2, −1, 0, 1, 2 with logits a + 1.5 b dose, "
            "a and b standard normal."
        ),
        measure="information gain in nats",
        exact=logistic_gain(),
        unit="absolute",
        budgets=(1_000, 10_000),
        printed=(Printed("variational and nested estimators", math.nan),),
        solve=_solver(experiment, _DOSES),
        remark="Doses and prior are chosen here; the source draws errors against time in figures.",
    )


_TIMES = 24.0 * np.arange(1, 16) / 15
_MEAN, _SD = np.log([1.0, 0.1, 20.0]), math.sqrt(0.05)


def concentration(theta: np.ndarray, times: np.ndarray) -> np.ndarray:
    """One compartment with first-order absorption, dose 400."""
    ka, ke, volume = theta[..., :1], theta[..., 1:2], theta[..., 2:3]
    return 400.0 / volume * ka / (ka - ke) * (np.exp(-ke * times) - np.exp(-ka * times))


def _spread(mean: np.ndarray) -> np.ndarray:
    return np.sqrt(0.01 * mean**2 + 0.1)


def _blood_log_prob(y: np.ndarray, theta: np.ndarray, times: np.ndarray) -> np.ndarray:
    mean = concentration(theta, times)
    sd = _spread(mean)
    return (-0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * _LOG_2PI).sum(axis=-1)


def pharmacokinetic_gain(log2_n: int, seed: int, nodes: int = 11) -> float:
    """Gain over Sobol points of (θ, ε); the evidence by Gauss–Hermite around each posterior."""
    u = np.clip(qmc.Sobol(18, seed=seed).random(1 << log2_n), 1e-12, 1 - 1e-12)
    node, weight = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[node] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    log_weight = np.log(np.prod(np.meshgrid(*[weight] * 3, indexing="ij"), axis=0).ravel())
    log_weight = log_weight + 0.5 * (grid**2).sum(axis=1)
    gains = []
    for part in np.array_split(ndtri(u), max(1, (1 << log2_n) // 256)):
        z, e = part[:, :3], part[:, 3:]
        mean = concentration(np.exp(_MEAN + _SD * z), _TIMES)
        y = mean + _spread(mean) * e
        mode, factor = _posterior(z, y)
        at = mode[:, None] + np.einsum("tij,nj->tni", factor, grid)
        likelihood = _blood_log_prob(y[:, None], np.exp(_MEAN + _SD * at), _TIMES)
        logs = likelihood - 0.5 * (at**2 + _LOG_2PI).sum(axis=-1) + log_weight
        volume = np.log(np.abs(np.diagonal(factor, axis1=1, axis2=2))).sum(axis=1)
        # log_weight holds the density of the grid up to (2π)^(3/2), which hermegauss includes.
        evidence = logsumexp(logs, axis=1) + volume
        own = _blood_log_prob(y, np.exp(_MEAN + _SD * z), _TIMES)
        gains.append(own - evidence)
    return float(np.concatenate(gains).mean())


def _posterior(z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior modes by damped Gauss–Newton, and Cholesky factors of their covariances."""
    for _ in range(12):
        mean = concentration(np.exp(_MEAN + _SD * z), _TIMES)
        sd = _spread(mean)
        slope = np.stack(
            [
                (
                    concentration(np.exp(_MEAN + _SD * (z + 1e-5 * e)), _TIMES)
                    - concentration(np.exp(_MEAN + _SD * (z - 1e-5 * e)), _TIMES)
                )
                / 2e-5
                for e in np.eye(3)
            ],
            axis=-1,
        )
        scaled = slope / sd[..., None]
        hessian = np.eye(3) + np.einsum("tni,tnj->tij", scaled, scaled)
        gradient = np.einsum("tni,tn->ti", scaled, (y - mean) / sd) - z
        step = np.linalg.solve(hessian, gradient[..., None])[..., 0]
        z = z + np.clip(step, -0.5, 0.5)
    return z, np.linalg.cholesky(1.3**2 * np.linalg.inv(hessian))


# Mean and standard error of pharmacokinetic_gain(13, seed) over the seeds 0 to 7.
PHARMACOKINETIC = (3.7956, 0.0004)


def _pharmacokinetic() -> PublishedProblem:
    def simulate(theta: np.ndarray, e: np.ndarray, d: np.ndarray) -> np.ndarray:
        mean = concentration(theta, d)
        return mean + _spread(mean) * e

    experiment = design.Experiment(
        prior=nq.LogNormal(_MEAN, np.full(3, _SD)),
        log_prob=_blood_log_prob,
        simulate=simulate,
        noise=nq.Normal(np.zeros(15)),
        name="pharmacokinetics",
    )
    return PublishedProblem(
        name="drug-gain",
        title="Pharmacokinetics with 15 blood samples",
        source=_GODA,
        about=(
            "Concentration 400/V · k_a/(k_a − k_e) · (exp(−k_e t) − exp(−k_a t)), logarithms of "
            "k_a, k_e and V normal around ln 1, ln 0.1 and ln 20 with variance 0.05; relative "
            "noise of variance 0.01 and absolute noise of variance 0.1."
        ),
        measure="information gain in nats",
        exact=PHARMACOKINETIC[0],
        exact_error=PHARMACOKINETIC[1],
        unit="absolute",
        budgets=(1_000, 10_000),
        printed=(Printed("multilevel Monte Carlo", math.nan),),
        solve=_solver(experiment, _TIMES),
        remark="Sampling times are chosen here: 24 i/15 hours. The source prints no numbers.",
    )


def cases() -> list[PublishedProblem]:
    """All cases of this module."""
    return [_linear(), _logistic(), _pharmacokinetic()]
