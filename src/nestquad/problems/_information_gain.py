"""Bayesian experimental design: expected information gain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nestquad._checks import numbers, whole
from nestquad._typing import Array, ArrayLike
from nestquad.distributions import Normal
from nestquad.errors import InputError
from nestquad.problem import NestedExpectation


def eig_linear(
    dim: int = 1,
    *,
    design: ArrayLike | None = None,
    prior_cov: ArrayLike | None = None,
    noise_cov: ArrayLike | None = None,
) -> NestedExpectation:
    """Expected information gain of the linear Gaussian experiment y = X·β + ε.

    With β ~ N(0, Σ) and ε ~ N(0, R) the gain is E[log p(y | β)] − E[log p(y)]. The outer variable
    θ is the data y, the inner variable x a β of the prior, and J is the evidence of y. The entropy
    of Gaussian noise is known, so that E[log p(y | β)] needs no estimate: with the likelihood
    relative to its peak, g = exp(−½·|y − Xβ|²_R⁻¹), the gain is E[−n/2 − log J], and no noise comes
    from the term that is known. The answer is ½·log det(I + R⁻¹XΣXᵀ).

    Parameters
    ----------
    dim
        Number of coefficients β, where no `design` says so.
    design
        X, one row an observation. Default: the identity, each coefficient seen once.
    prior_cov, noise_cov
        Σ and R. Default: identities.

    Notes
    -----
    Shapes: d_x = number of columns of X, d_θ = number of rows; x does not depend on θ.

    Examples
    --------
    >>> import math
    >>> from nestquad.problems import eig_linear
    >>> math.isclose(eig_linear().exact, 0.5 * math.log(2))
    True
    """
    x = _design_matrix(dim, design)
    n_observations, n_coefficients = x.shape
    prior = _covariance("prior_cov", prior_cov, n_coefficients)
    noise = _covariance("noise_cov", noise_cov, n_observations)
    # After whitening the observations, R is the identity.
    whiten = np.linalg.inv(np.linalg.cholesky(noise))
    signal = x @ prior @ x.T
    gain = np.linalg.slogdet(np.eye(n_observations) + whiten @ signal @ whiten.T).logabsdet
    return NestedExpectation(
        outer=_centered(signal + noise),
        inner=_centered(prior),
        g=_RelativeLikelihood(whiten, whiten @ x),
        f=_InformationGain(n_observations),
        exact=0.5 * float(gain),
        name="eig-linear",
        tags=("smooth", "log"),
        smoothness=(math.inf, math.inf),
    )


@dataclass(frozen=True, eq=False)
class _RelativeLikelihood:
    """exp(−½·|whitened residual|²): the likelihood of β = x for the data y = θ over its peak."""

    whiten: Array
    design: Array

    def __call__(self, x: Array, theta: Array) -> Array:
        # One observation at a time: (T, N) in memory instead of (T, N, n).
        exponent: Array = np.zeros(np.broadcast_shapes(x.shape[:-1], theta.shape[:-1]))
        for whiten, design in zip(self.whiten, self.design, strict=True):
            exponent -= np.square(_dot(whiten, theta) - _dot(design, x))
        exponent *= 0.5
        return np.exp(exponent, out=exponent)


def _dot(row: Array, points: Array) -> Array:
    # Not a matrix product: BLAS rounds a row differently in chunks of different sizes, and the
    # same seed has to give the same bits however the work was cut.
    total: Array = row[0] * points[..., 0]
    for j in range(1, row.size):
        total = total + row[j] * points[..., j]
    return total


@dataclass(frozen=True)
class _InformationGain:
    n_observations: int

    def __call__(self, j: Array) -> Array:
        gain: Array = -0.5 * self.n_observations - np.log(j)
        return gain


def _centered(cov: Array) -> Normal:
    # Independent coordinates are told so: more embeddings are known in closed form for them.
    diagonal = np.diag(cov)
    if np.array_equal(cov, np.diag(diagonal)):
        return Normal(np.zeros(diagonal.size), np.sqrt(diagonal))
    return Normal(np.zeros(diagonal.size), cov=cov)


def _design_matrix(dim: int, design: ArrayLike | None) -> Array:
    if design is None:
        # A matrix that fits into memory.
        return np.eye(whole("dim", dim, "a whole number from 1 to 10,000", below=10_001))
    x = numbers("design", design, "numbers of shape (observations, coefficients)")
    if x.ndim != 2 or x.size == 0 or not np.all(np.isfinite(x)):
        expected = "finite numbers of shape (observations, coefficients)"
        raise InputError("design", f"an array of shape {x.shape}", expected)
    return x


def _covariance(argument: str, given: ArrayLike | None, size: int) -> Array:
    if given is None:
        return np.eye(size)
    cov = numbers(argument, given, f"a symmetric matrix ({size}, {size})")
    if cov.shape != (size, size) or not np.all(np.isfinite(cov)) or not np.allclose(cov, cov.T):
        raise InputError(
            argument, f"an array of shape {cov.shape}", f"a symmetric matrix ({size}, {size})"
        )
    smallest = float(np.linalg.eigvalsh(cov)[0])
    if smallest <= 0.0:
        raise InputError(
            argument, f"a matrix with the eigenvalue {smallest:.3g}", "a positive definite matrix"
        )
    return cov
