"""Gaussian mixtures: expectation-maximization, and conditioning on some of the coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from nestquad._typing import Array

LOG_2PI = math.log(2.0 * math.pi)
_STEPS = 10  # of expectation-maximization after a split: later ones hardly raise densities


def log_normal(white: Array, log_scale: Array | float = 0.0) -> Array:
    """Log density of normals from whitened deviations (..., d) and the log determinant's half."""
    return np.asarray(
        -0.5 * np.einsum("...i,...i->...", white, white)
        - log_scale
        - 0.5 * white.shape[-1] * LOG_2PI
    )


def whitened(inverse: Array, deviation: Array) -> Array:
    """L⁻¹ d for lower triangular L⁻¹ (..., d, d) and deviations (..., d).

    Coordinate by coordinate: BLAS rounds a row differently in chunks of different sizes.
    """
    rows = []
    for i in range(deviation.shape[-1]):
        total = inverse[..., i, 0] * deviation[..., 0]
        for j in range(1, i + 1):
            total = total + inverse[..., i, j] * deviation[..., j]
        rows.append(total)
    return np.stack(rows, axis=-1)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights (K,), means (K, d) and covariances (K, d, d) of a Gaussian mixture."""

    weights: Array
    means: Array
    covariances: Array

    @property
    def size(self) -> int:
        return len(self.weights)

    @cached_property
    def inverse(self) -> tuple[Array, Array]:
        """L⁻¹ (K, d, d) of the lower factors, and their log determinants (K,)."""
        factor = np.linalg.cholesky(self.covariances)
        logs = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        return np.linalg.inv(factor), logs

    def log_parts(self, x: Array) -> Array:
        """Log of weight times density of each component at x (..., d): (..., K)."""
        inverse, logs = self.inverse
        white = whitened(inverse, x[..., None, :] - self.means)
        return log_normal(white, logs) + np.log(self.weights)

    def split(self) -> Mixture:
        """Each component cut in two along its longest axis: a start for twice as many."""
        values, vectors = np.linalg.eigh(self.covariances)
        # Halves of a normal cut at its mean have means ±√(2/π) σ and variance (1 − 2/π) σ².
        step = np.sqrt(values[:, -1] * 2.0 / math.pi)[:, None] * vectors[:, :, -1]
        cut = self.covariances - step[:, :, None] * step[:, None, :]
        return Mixture(
            np.tile(self.weights / 2.0, 2),
            np.concatenate([self.means + step, self.means - step]),
            np.tile(cut, (2, 1, 1)),
        )

    def fitted(self, x: Array) -> Mixture:
        """Maximum a posteriori from this start, by expectation-maximization on rows x (n, d).

        The prior of a covariance has d + 2 degrees of freedom and the shape of the pooled one,
        shrunk by K^(2/d), so that a component never collapses (Fraley and Raftery, 2007).
        """
        n, d = x.shape
        pooled = np.cov(x, rowvar=False).reshape(d, d) + 1e-10 * np.eye(d)
        prior = pooled / self.size ** (2.0 / d)
        products = (x[:, :, None] * x[:, None]).reshape(n, -1)
        found = self
        for _ in range(_STEPS if self.size > 1 else 1):
            logs = found.log_parts_fast(x)
            share = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
            count = share.sum(axis=0) + 1e-6
            means = (share.T @ x) / count[:, None]
            second = (share.T @ products).reshape(-1, d, d)
            moment = second - count[:, None, None] * means[:, :, None] * means[:, None]
            covariances = (moment + prior) / (count + d + 2.0)[:, None, None]
            found = Mixture(count / count.sum(), means, covariances)
        return found

    def log_parts_fast(self, x: Array) -> Array:
        """Variant of `log_parts` by BLAS, for fits, whose rows are always the same."""
        inverse, logs = self.inverse
        white = x @ inverse.reshape(-1, x.shape[1]).T
        white -= np.einsum("kij,kj->ki", inverse, self.means).reshape(-1)
        return log_normal(white.reshape(len(x), self.size, -1), logs) + np.log(self.weights)


def one_normal(x: Array) -> Mixture:
    """A single component with the moments of rows x (n, d)."""
    d = x.shape[1]
    return Mixture(np.ones(1), x.mean(axis=0)[None], np.eye(d)[None]).fitted(x)


@dataclass(frozen=True, eq=False)
class Conditional:
    """The law of the first d coordinates of a mixture given the others: its fixed part.

    The covariance of a component does not depend on the values of the others, only its weight and
    its mean do.
    """

    given: Mixture
    slopes: Array
    law: Mixture

    @classmethod
    def of(cls, mixture: Mixture, first: int) -> Conditional:
        means, cov = mixture.means, mixture.covariances
        slopes = np.linalg.solve(cov[:, first:, first:], cov[:, first:, :first])
        slopes = np.swapaxes(slopes, 1, 2)
        rest = cov[:, :first, :first] - slopes @ cov[:, first:, :first]
        rest = (rest + np.swapaxes(rest, 1, 2)) / 2.0
        # Rounding may leave an eigenvalue below zero where the others determine a coordinate.
        values, vectors = np.linalg.eigh(rest)
        values = np.maximum(values, 1e-12 * values.max(axis=1, keepdims=True))
        rest = (vectors * values[:, None]) @ np.swapaxes(vectors, 1, 2)
        given = Mixture(mixture.weights, means[:, first:], cov[:, first:, first:])
        law = Mixture(mixture.weights, means[:, :first], rest)
        return cls(given, np.asarray(slopes, dtype=np.float64), law)

    def at(self, v: Array) -> tuple[Array, Array, Array]:
        """Log weights (T, K), means (T, K, d) and the log density (T,) of given values v (T, m)."""
        logs = self.given.log_parts(v)
        total = logsumexp(logs, axis=-1)
        shift = np.einsum("kij,tkj->tki", self.slopes, v[:, None] - self.given.means)
        return logs - total[:, None], self.law.means + shift, total
