"""Other estimators of information gain, for comparison: Laplace, nested Monte Carlo, MLMC, Pyro."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp

import nestquad as nq
from nestquad.points import Stream
from nestquad.result import Estimate
from studies.design import problems
from studies.design.problems import Case

GOALS = (1e4, 1e5, 1e6)
NAMES = ("nmc", "mlmc", "laplace is", "pyro nmc", "pyro vnmc", "pyro laplace")


def fits(rival: str, problem: str, goal: float) -> bool:
    """Whether a rival is written for a problem, and takes seconds: targets need another one."""
    if rival == "pyro laplace" and goal > 1e4:
        return False
    if rival.startswith("pyro"):
        return problem in _PYRO
    return problem != "ab_test"


def run(rival: str, problem: str, case: Case, budget: int, seed: int) -> Estimate:
    started = time.perf_counter()
    if rival == "mlmc":
        return _mlmc(case, budget, seed)
    if rival.startswith("pyro"):
        value, error, spent = _pyro(rival, problem, case, budget, seed)
    else:
        value, error, spent = {"nmc": _nmc, "laplace is": _laplace}[rival](case, budget, seed)
    seconds = time.perf_counter() - started
    return Estimate(value, error, spent, 1, 1, rival, seconds=seconds)


def _simulated(case: Case, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    u = np.maximum(rng.random((n, case.experiment.dim)), 2.0**-54)
    return case.experiment.simulated(u, case.design)


def _nmc(case: Case, budget: int, seed: int) -> tuple[float, float, int]:
    """Nested Monte Carlo with the prior inside, as Pyro's nmc_eig: N = √budget."""
    rng = np.random.default_rng(seed)
    n_inner = math.isqrt(budget)
    n_outer = budget // (n_inner + 1)
    z, y = _simulated(case, n_outer, rng)
    exp, d = case.experiment, case.design
    gains = []
    for rows in np.array_split(np.arange(n_outer), max(1, n_outer * n_inner // 2**18)):
        inside = rng.standard_normal((len(rows), n_inner, z.shape[1]))
        evidence = logsumexp(exp.log_likelihood(y[rows, None], inside, d), axis=1)
        own = exp.log_likelihood(y[rows], z[rows], d)
        gains.append(own - np.maximum(evidence - math.log(n_inner), -1e4))
    found = np.concatenate(gains)
    return float(found.mean()), float(found.std() / math.sqrt(n_outer)), n_outer * (n_inner + 1)


def _mlmc(case: Case, budget: int, seed: int) -> Estimate:
    """Nested multilevel Monte Carlo for E[−log(p(y) / p(y | θ))], with the prior inside."""
    exp, d = case.experiment, case.design
    k = exp.prior_law.base_dim

    def outer(u: np.ndarray) -> np.ndarray:
        flat = u.reshape(-1, u.shape[-1])
        z, y = exp.simulated(flat, d)
        own = exp.log_likelihood(y, z, d)
        return np.concatenate([y, own[:, None]], axis=1).reshape(*u.shape[:-1], -1)

    def g(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.exp(np.clip(exp.log_likelihood(rows[..., :-1], x, d) - rows[..., -1], -600, 600))

    problem = nq.NestedExpectation(
        nq.Transport(outer, dim=exp.dim), nq.Normal(np.zeros(k)), g, lambda j: -np.log(j)
    )
    return nq.estimate(problem, method="mlmc", budget=budget, rng=Stream.from_rng(seed))


def _laplace(case: Case, budget: int, seed: int) -> tuple[float, float, int]:
    """Double loop with importance sampling from a Laplace approximation at each y.

    The mode is found from the θ that made the data, by Newton steps with finite differences; all
    likelihoods are counted.
    """
    rng, exp, d = np.random.default_rng(seed), case.experiment, case.design
    k, n_inner, steps = exp.prior_law.base_dim, 32, 4
    each = 1 + n_inner + steps * (1 + 2 * k + 2 * k * (k - 1))
    n_outer = max(2, budget // each)
    z, y = _simulated(case, n_outer, rng)

    def log_posterior(at: np.ndarray) -> np.ndarray:
        found = exp.log_likelihood(y[:, None], at, d) - 0.5 * (at**2).sum(axis=-1)
        return np.maximum(found, -1e10)

    mode = z.copy()
    for _ in range(steps):
        slope, hessian = _derivatives(log_posterior, mode)
        values, vectors = np.linalg.eigh(-hessian)
        values = np.maximum(np.nan_to_num(values), 0.5)
        step = np.einsum("tij,tj->ti", vectors, np.einsum("tji,tj->ti", vectors, slope) / values)
        mode = mode + np.clip(np.nan_to_num(step), -0.5, 0.5)
    draws = rng.standard_normal((n_outer, n_inner, k))
    scaled = draws / np.sqrt(values)[:, None]
    at = mode[:, None] + np.einsum("tij,tnj->tni", vectors, scaled)
    log_q = -0.5 * (draws**2).sum(axis=-1) + 0.5 * np.log(values).sum(axis=1)[:, None]
    evidence = logsumexp(log_posterior(at) - log_q, axis=1) - math.log(n_inner)
    gains = exp.log_likelihood(y, z, d) - evidence
    return float(gains.mean()), float(gains.std() / math.sqrt(n_outer)), n_outer * each


def _derivatives(
    function: Callable[[np.ndarray], np.ndarray], at: np.ndarray, h: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (T, k) and Hessian (T, k, k) by central differences."""
    k = at.shape[1]
    steps = [np.zeros(k)]
    pairs = [(i, j) for i in range(k) for j in range(i)]
    steps += [s * h * e for e in np.eye(k) for s in (1, -1)]
    steps += [
        h * (a * np.eye(k)[i] + b * np.eye(k)[j])
        for i, j in pairs
        for a in (1, -1)
        for b in (1, -1)
    ]
    values = function(at[:, None] + np.array(steps))
    up, down = values[:, 1 : 2 * k + 1 : 2], values[:, 2 : 2 * k + 2 : 2]
    slope = (up - down) / (2 * h)
    hessian = np.zeros((len(at), k, k))
    hessian[:, range(k), range(k)] = (up + down - 2 * values[:, :1]) / h**2
    for m, (i, j) in enumerate(pairs):
        pp, pm, mp, mm = np.moveaxis(values[:, 2 * k + 1 + 4 * m : 2 * k + 5 + 4 * m], 1, 0)
        hessian[:, i, j] = hessian[:, j, i] = (pp - pm - mp + mm) / (4 * h**2)
    return slope, hessian


def _linear_model(d: Any) -> None:
    import pyro
    import pyro.distributions as dist
    import torch

    with pyro.plate_stack("plate", d.shape[:-2]):
        theta = pyro.sample("theta", dist.Normal(torch.zeros(4).double(), 1.0).to_event(1))
        mean = (d @ theta[..., None])[..., 0]
        pyro.sample("y", dist.Normal(mean, 0.1).to_event(1))


def _pharmacokinetics_model(d: Any) -> None:
    import pyro
    import pyro.distributions as dist
    import torch

    with pyro.plate_stack("plate", d.shape[:-1]):
        center = torch.as_tensor(problems._PK_MEAN)
        spread = torch.as_tensor(problems._PK_SD)
        theta = pyro.sample("theta", dist.Normal(center, spread).to_event(1)).exp()
        ka, ke, volume = theta[..., :1], theta[..., 1:2], theta[..., 2:3]
        scale = problems._DOSE / volume * ka / (ka - ke)
        mean = scale * ((-ke * d).exp() - (-ka * d).exp())
        pyro.sample("y", dist.Normal(mean, problems._PK_NOISE).to_event(1))


_PYRO = {"linear": _linear_model, "pharmacokinetics": _pharmacokinetics_model}


def _pyro(rival: str, problem: str, case: Case, budget: int, seed: int) -> tuple[float, float, int]:
    """Pyro's own estimators; the guide of vnmc is normal, linear in the data."""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.contrib.oed.eig import nmc_eig, vnmc_eig

    pyro.set_rng_seed(seed)
    pyro.clear_param_store()
    torch.set_default_dtype(torch.float64)
    d = torch.as_tensor(np.asarray(case.design, dtype=float))
    model, k = _PYRO[problem], case.experiment.prior_law.base_dim
    n = math.isqrt(budget)
    try:
        if rival == "pyro nmc":
            value = nmc_eig(model, d, ["y"], ["theta"], N=budget // (n + 1), M=n)
            return float(value), 0.0, (budget // (n + 1)) * (n + 1)
        if rival == "pyro vnmc":
            n_y = case.experiment.noise_law.base_dim

            def guide(y_dict: Any, design: Any, *_: Any) -> None:
                y = y_dict["y"]
                slope = pyro.param("slope", torch.zeros(n_y, k))
                shift = pyro.param("shift", torch.zeros(k))
                root = pyro.param(
                    "root", 0.3 * torch.eye(k), constraint=dist.constraints.lower_cholesky
                )
                with pyro.plate_stack("guide", y.shape[:-1]):
                    pyro.sample(
                        "theta", dist.MultivariateNormal(y @ slope + shift, scale_tril=root)
                    )

            # Half of the likelihoods train the guide, half make the estimate.
            steps, draws, inner = 1000, max(2, budget // 2 // (1000 * 9)), 8
            final = (budget // 2 // 33, 32)
            optimizer = pyro.optim.Adam({"lr": 0.02})
            value = vnmc_eig(model, d, ["y"], ["theta"], (draws, inner), steps, guide, optimizer,
                             final_num_samples=final)  # fmt: skip
            return float(value), 0.0, steps * draws * (inner + 1) + final[0] * (final[1] + 1)
        if rival == "pyro laplace":
            from pyro.contrib.oed.eig import laplace_eig
            from pyro.contrib.oed.glmm.guides import LinearModelLaplaceGuide

            class Guide(LinearModelLaplaceGuide):  # type: ignore[misc]
                """Pyro's own makes an upper factor, which its normal law refuses."""

                def finalize(self, loss: Any, target_labels: Any) -> None:
                    self.eval()
                    for name, mean in self.means.items():
                        hessian = self._hessian_diag(loss, mean, event_shape=(k,))
                        self.scale_trils[name] = torch.linalg.cholesky(torch.linalg.inv(hessian))

            steps, loss = 100, pyro.infer.Trace_ELBO().differentiable_loss
            # From the prior mean: Pyro's own start has equal rates, at which the model is 0/0.
            start = torch.as_tensor(problems._PK_MEAN if problem != "linear" else np.zeros(k))
            guide = Guide(1, {"theta": k}, init_value=start)
            optimizer = pyro.optim.Adam({"lr": 0.05})
            n = budget // (steps + 1)
            value = laplace_eig(model, d[None], ["y"], ["theta"], guide, loss, optimizer, steps, n)
            return float(value), 0.0, n * (steps + 1)
    finally:
        torch.set_default_dtype(torch.float32)
