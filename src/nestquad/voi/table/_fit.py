"""Gaussian-process regression on given columns, by penalized marginal likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack, solve_triangular

from nestquad._typing import Array, Indices
from nestquad.gp import maximum_likelihood

# Gain of log likelihood required of a parameter before it enters.
_PENALTY = 5.0
_START = {"line": 0.1, "curve": 0.03, "product": 0.3, "noise": 0.7}
_LOWEST, _HIGHEST = np.log(1e-9), np.log(1e2)
_MOST_STEPS = 200


@dataclass(frozen=True)
class Scales:
    """How the prior variance of each column is made of a few variances, as a linear map of logs.

    log variance (p,) = `constant` (p,) + `powers` (p, m) @ log scales (m,); the scales are those of
    the lines (d), of the curves (d), and of the products of two and of three.
    """

    constant: Array
    powers: Array

    @property
    def count(self) -> int:
        return int(self.powers.shape[1])


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics of n rows: sizes, centered sums of squares and products."""

    n: int
    gram: Array
    cross: Array
    square: float


@dataclass(frozen=True)
class Fit:
    """Posterior of the coefficients of one output, in its own units.

    Attributes
    ----------
    coefficients
        Posterior means (p,).
    logs
        Logarithms of the fitted scales, the noise last: a warm start for a similar fit.
    prior, noise
        Prior variances (p,) and noise variance for the output scaled to unit variance.
    scale
        Standard deviation of the output.
    """

    coefficients: Array
    logs: Array
    prior: Array
    noise: float
    scale: float


def fit(
    moments: Moments, scales: Scales, start: Array | None = None, tolerance: float = 1e-3
) -> Fit:
    """Fit one output, from logarithms of scales `start`; the last step gains less than `tolerance`.

    Notes
    -----
    Cost: O(p³) a step, some tens of steps, whatever n. Columns whose prior variance has shrunk
    to nothing are left out of the linear algebra.
    """
    m = scales.count
    scale = float(np.sqrt(moments.square / moments.n))
    p = len(scales.constant)
    if scale == 0.0:
        return Fit(np.zeros(p), np.full(m + 1, _LOWEST), np.zeros(p), 1.0, 0.0)
    unit = Moments(moments.n, moments.gram, moments.cross / scale, float(moments.n))
    if start is None:
        d = (m - 2) // 2
        start = np.log(
            [_START["line"]] * d
            + [_START["curve"]] * d
            + [_START["product"]] * 2
            + [_START["noise"]]
        )
    bounds = [(_LOWEST, _HIGHEST)] * (m - 2) + [(np.log(1e-4), np.log(10.0))] * 2
    bounds.append((np.log(1e-8), 0.5))
    found = maximum_likelihood(
        _Objective(unit, scales),
        [start],
        np.array(bounds),
        n_values=unit.n,
        most_steps=_MOST_STEPS,
        tolerance=tolerance,
    )
    assert found is not None  # A = I + … is always positive definite
    logs, _ = found
    prior = np.exp(scales.constant + scales.powers @ logs[:-1])
    noise = float(np.exp(logs[-1]))
    solved = _solve(unit, prior, noise)
    return Fit(scale * np.sqrt(prior) * solved.means, logs, prior, noise, scale)


def draw(found: Fit, gram: Array, floor: Array, normals: Array) -> Array:
    """Coefficients (p, k) from the posterior, of standard normals (p, k).

    `floor` (p,) are the least prior variances: where a line was found to be nothing, that it could
    have been a little has to show in the draws.
    """
    if found.scale == 0.0:
        return np.repeat(found.coefficients[:, None], normals.shape[1], axis=1)
    prior = np.maximum(found.prior, floor)
    drawn = np.sqrt(prior)[:, None] * normals
    active, r, factor = _factorized(gram, prior, found.noise)
    if active.size:
        drawn[active] = r[:, None] * solve_triangular(factor, normals[active], lower=True, trans=1)
    return found.coefficients[:, None] + found.scale * drawn


def _factorized(gram: Array, prior: Array, noise: float) -> tuple[Indices, Array, Array]:
    """Columns that can move anything, roots of their variances, and the Cholesky factor of A.

    A = I + √v G √v / σ²: any other column leaves its row of the identity.
    """
    active = np.flatnonzero(prior * np.diagonal(gram) / noise > 1e-5)
    r = np.sqrt(prior[active])
    matrix = r[:, None] * gram[np.ix_(active, active)] * (r / noise)
    matrix.flat[:: len(active) + 1] += 1.0
    if not active.size:
        return active, r, matrix
    return active, r, cho_factor(matrix, lower=True, check_finite=False, overwrite_a=True)[0]


@dataclass(frozen=True)
class _Solved:
    """With A = I + √v G √v / σ²: means A⁻¹ √v b / σ², diagonal of A⁻¹, log determinant of A."""

    means: Array
    inverse_diagonal: Array
    log_det: float


def _solve(moments: Moments, prior: Array, noise: float, *, inverse: bool = False) -> _Solved:
    means, diagonal = np.zeros(len(prior)), np.ones(len(prior))
    active, r, factor = _factorized(moments.gram, prior, noise)
    if not active.size:
        return _Solved(means, diagonal, 0.0)
    means[active] = cho_solve((factor, True), r * moments.cross[active] / noise, check_finite=False)
    if inverse:
        root_inverse, _ = lapack.dtrtri(factor, lower=1)
        diagonal[active] = np.square(np.tril(root_inverse)).sum(axis=0)
    log_det = 2.0 * float(np.log(np.diagonal(factor)).sum())
    return _Solved(means, diagonal, log_det)


@dataclass(frozen=True)
class _Objective:
    """Penalized negative log marginal likelihood, and its gradient in the logs of the scales."""

    moments: Moments
    scales: Scales

    def __call__(self, logs: Array) -> tuple[float, Array]:
        data = self.moments
        prior = np.exp(self.scales.constant + self.scales.powers @ logs[:-1])
        noise = float(np.exp(logs[-1]))
        solved = _solve(data, prior, noise, inverse=True)
        weights = np.sqrt(prior) * solved.means
        explained = float(data.cross @ weights)
        value = 0.5 * (data.n * logs[-1] + solved.log_det + (data.square - explained) / noise)
        used = 1.0 - solved.inverse_diagonal
        slope = self.scales.powers.T @ (0.5 * (used - solved.means**2))
        # ‖y − Bw‖² / σ², by way of the normal equations G w + σ² w / v = b.
        residual = (data.square - explained) / noise - float(solved.means @ solved.means)
        noise_slope = 0.5 * (data.n - used.sum() - residual)
        n_scales = self.scales.count - 2
        sizes = np.exp(0.5 * logs[:n_scales])
        value += _PENALTY * float(sizes.sum())
        slope[:n_scales] += 0.5 * _PENALTY * sizes
        return value, np.append(slope, noise_slope)
