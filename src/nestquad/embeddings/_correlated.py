"""The Gaussian kernel under a normal law with full covariance."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Normal
from nestquad.kernels import Gaussian

__all__ = ["correlated_embedding"]


def correlated_embedding(kernel: Gaussian, law: Normal, x: Array | None) -> Array:
    """det(A)^-½ exp(-½ rᵀ A⁻¹ r) with A = I + Λ⁻¹ΣΛ⁻¹ and r = Λ⁻¹(x - m), Λ = diag(ℓ).

    The double embedding is the value at x = m with 2Σ in the place of Σ. In units of the
    lengthscale A is at least I, so it has a Cholesky factor for every ℓ, and where Σ is singular.
    """
    assert law.cov is not None  # the caller sends other normal laws coordinate by coordinate
    dim = law.loc.shape[-1]
    scale = np.broadcast_to(kernel.lengthscale, (*np.shape(kernel.lengthscale)[:-1], dim))
    copies = 2.0 if x is None else 1.0
    a = copies * law.cov / (scale[..., :, None] * scale[..., None, :]) + np.eye(dim)
    lower = np.linalg.cholesky(a)
    log_value = -np.sum(np.log(np.diagonal(lower, axis1=-2, axis2=-1)), axis=-1)
    if x is None:
        return np.asarray(np.exp(log_value))
    r = (x - law.loc[..., None, :]) / scale[..., None, :]
    lead = np.broadcast_shapes(r.shape[:-2], lower.shape[:-2])
    columns = np.broadcast_to(np.swapaxes(r, -1, -2), (*lead, dim, r.shape[-2]))
    solved = np.linalg.solve(lower, columns)
    return np.asarray(np.exp(log_value[..., None] - 0.5 * np.sum(solved**2, axis=-2)))
