"""Gaussian kernel on an interval and under normal laws, correlated ones included."""

from __future__ import annotations

import numpy as np
from scipy.special import erf, erfc

from nestquad._typing import Array
from nestquad.distributions import Normal, Uniform, standard_deviation
from nestquad.embeddings._closed_forms import ClosedForm, register, short_mean
from nestquad.kernels import Gaussian


def _uniform_mean(kernel: Gaussian, law: Uniform, x: Array) -> Array:
    scale = np.sqrt(2.0) * kernel.scale(1)
    below, above = (x - law.low) / scale, (law.high - x) / scale
    # Distance of x from the interval, 0 inside, and the width, broadcast for the masks below.
    away, width = np.broadcast_arrays(
        np.maximum(np.maximum(-below, -above), 0.0), (law.high - law.low) / scale
    )
    inside = away == 0.0
    difference = np.where(inside, erf(below) + erf(above), erfc(away) - erfc(away + width))
    value = 0.5 * np.sqrt(np.pi) * difference / width
    # There the kernel changes by less than a factor e over the interval, and erfc would cancel.
    flat = ~inside & (width * (2.0 * away + width) < 1.0)
    if flat.any():
        value[flat] = short_mean(lambda z: np.exp(-(z**2)), away[flat], width[flat])
    return np.asarray(value)


def _uniform_double(kernel: Gaussian, law: Uniform) -> Array:
    width = np.asarray((law.high - law.low)[..., 0] / (np.sqrt(2.0) * kernel.scale(0)))
    value = np.sqrt(np.pi) * width * erf(width) + np.expm1(-(width**2))
    return np.asarray(value / width**2)


def _normal_mean(kernel: Gaussian, law: Normal, x: Array) -> Array:
    spread = standard_deviation(law) / kernel.scale(1)
    r = (x - law.loc) / kernel.scale(1)
    return np.asarray(np.exp(-0.5 * (r / np.hypot(1.0, spread)) ** 2) / np.hypot(1.0, spread))


def _normal_double(kernel: Gaussian, law: Normal) -> Array:
    return np.asarray(
        1.0 / np.hypot(1.0, np.sqrt(2.0) * standard_deviation(law)[..., 0] / kernel.scale(0))
    )


register(Gaussian, Uniform, ClosedForm(_uniform_mean, _uniform_double))
register(Gaussian, Normal, ClosedForm(_normal_mean, _normal_double))


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
