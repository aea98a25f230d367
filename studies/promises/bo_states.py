"""Random states of a Bayesian optimisation, and exact acquisition values for them.

Kept apart from the study so that listing studies does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.utils.sampling import draw_sobol_normal_samples
from gpytorch.kernels import MaternKernel, RBFKernel
from scipy.special import ndtr
from scipy.stats import norm
from torch import Tensor

torch.set_num_threads(1)

_FIRST_SEED = 10_000  # settings were chosen on other states, and other seeds of the nodes


@dataclass(frozen=True)
class State:
    """A model, its best value, and batches (b, q, d) to be valued."""

    model: SingleTaskGP
    best_f: float
    X: Tensor


def states(count: int, q: int, batches: int, max_dim: int = 6) -> Iterator[State]:
    """Gaussian processes of 1 to `max_dim` inputs, given 3 to 25 values drawn from their prior."""
    for number in range(count):
        rng = np.random.default_rng([_FIRST_SEED + number, q, max_dim])
        dim, n = int(rng.integers(1, max_dim + 1)), int(rng.integers(3, 26))
        X = torch.from_numpy(rng.random((n, dim)))
        nu = rng.choice([0.5, 1.5, 2.5, np.inf])
        kernel = RBFKernel() if np.isinf(nu) else MaternKernel(nu=nu)
        kernel.lengthscale = float(rng.uniform(0.1, 0.6) * np.sqrt(dim))
        kernel = kernel.double()
        gram = kernel(X).to_dense().detach().numpy() + 1e-6 * np.eye(n)
        Y = torch.from_numpy(np.linalg.cholesky(gram) @ rng.standard_normal((n, 1)))
        model = SingleTaskGP(
            X, Y, torch.full_like(Y, 1e-6), covar_module=kernel, outcome_transform=None
        )
        yield State(model.eval(), float(Y.max()), torch.from_numpy(rng.random((batches, q, dim))))


@torch.no_grad()
def improvement(state: State) -> tuple[np.ndarray, np.ndarray]:
    """Exact q-EI (b,), and the largest posterior deviation of each batch, in units of which errors
    are given: q = 1 in closed form, q = 2 by dense quadrature of one coordinate and the closed form
    in the other, more by 2¹⁷ Sobol' points."""
    posterior = state.model.posterior(state.X)
    scale = posterior.variance[..., 0].sqrt().amax(dim=-1).numpy()
    q = state.X.shape[-2]
    if q == 1:
        return LogExpectedImprovement(state.model, state.best_f)(state.X).exp().numpy(), scale
    mean, root = posterior.mean[..., 0], torch.linalg.cholesky(covariance(posterior))
    if q == 2:
        results = [
            pair_improvement(m - state.best_f, r, 0.0) for m, r in zip(mean, root, strict=True)
        ]
        return np.array(results), scale
    normals = draw_sobol_normal_samples(d=q, n=2**17, seed=0, dtype=torch.double)
    values = [(m + normals @ r.T).amax(dim=-1) for m, r in zip(mean, root, strict=True)]
    return np.array([(v - state.best_f).clamp_min(0).mean().item() for v in values]), scale


def covariance(posterior: object) -> Tensor:
    matrix = posterior.distribution.covariance_matrix
    return matrix + 1e-10 * torch.eye(matrix.shape[-1]).double()


def pair_improvement(mean: Tensor, root: Tensor, best: float) -> float:
    """E max(max(Y_1, Y_2) - best, 0) for a Gaussian pair."""
    u = np.linspace(-8.0, 8.0, 20_001)
    law = norm.pdf(u) / norm.pdf(u).sum()
    (a, b), r = mean.numpy() - best, root.numpy()
    first = np.maximum(a + r[0, 0] * u, 0.0)
    shift, deviation = b + r[1, 0] * u - first, max(r[1, 1], 1e-12)
    gain = shift / deviation
    return float(law @ (first + deviation * (norm.pdf(gain) + gain * norm.cdf(gain))))


@torch.no_grad()
def two_step_pairs(state: State, candidates: Tensor) -> np.ndarray:
    """The same for pairs: candidates (R, 2, d), 2¹⁴ Sobol' points for the first step, and for the
    second dense quadrature of one coordinate with the closed form in the other."""
    normals = draw_sobol_normal_samples(d=2, n=2**14, seed=0, dtype=torch.double).numpy()
    v = np.linspace(-6.0, 6.0, 201)
    law, result = norm.pdf(v) / norm.pdf(v).sum(), []
    for x in state.X:
        best = np.zeros(len(normals))
        for pair in candidates:
            posterior = state.model.posterior(torch.cat([x, pair]))
            mean = posterior.mean[..., 0].numpy() - state.best_f
            root = torch.linalg.cholesky(covariance(posterior)).numpy()
            known = np.maximum((mean[:2] + normals @ root[:2, :2].T).max(axis=1), 0.0)
            shift = mean[2:] + normals @ root[2:, :2].T - known[:, None]
            first = np.maximum(shift[:, :1] + root[2, 2] * v, 0.0)
            gain = (shift[:, 1:] + root[3, 2] * v - first) / root[3, 3]
            density = np.exp(-0.5 * gain**2) / np.sqrt(2.0 * np.pi)
            np.maximum(best, (first + root[3, 3] * (density + gain * ndtr(gain))) @ law, out=best)
        result.append(float(np.mean(known + best)))
    return np.array(result)


@torch.no_grad()
def two_step(state: State, candidates: Tensor) -> np.ndarray:
    """Exact two-step utility (b,) of single points, z' being the best of `candidates` (R, 1, d)."""
    u = np.linspace(-7.0, 7.0, 2001)
    law, result = norm.pdf(u) / norm.pdf(u).sum(), []
    for x in state.X:
        posterior = state.model.posterior(torch.cat([x, candidates[:, 0]]))
        mean = posterior.mean[..., 0].numpy() - state.best_f
        matrix = posterior.distribution.covariance_matrix.numpy()
        deviation = np.sqrt(matrix[0, 0])
        known = np.maximum(mean[0] + deviation * u, 0.0)
        best = np.zeros_like(u)
        for m, c, v in zip(mean[1:], matrix[0, 1:], np.diagonal(matrix)[1:], strict=True):
            left = np.sqrt(max(v - c**2 / matrix[0, 0], 1e-14))
            gain = (m + c / deviation * u - known) / left
            np.maximum(best, left * (norm.pdf(gain) + gain * norm.cdf(gain)), out=best)
        result.append(law @ (known + best))
    return np.array(result)
