"""Gaussian-process regression with trend and nugget, fitted by restricted likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_triangular

from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.surrogate._correlation import Correlation, distances
from nestquad.surrogate._likelihood import (
    FLOOR,
    Hyperparameters,
    Likelihood,
    factorized,
    most_likely,
)
from nestquad.surrogate._trend import Trend

__all__ = ["GP", "fit_gp"]

# Lengthscales are searched among so many points: optima are flat, and T³ is dear.
_TUNING_POINTS = 80
_BLOCK = 4096
_LINE = 512


@dataclass(frozen=True)
class GP:
    """A fitted surrogate of one output.

    Shapes
    ------
    z (T, d), y (T,), noise_shape (T,): relative noise variances.

    Cost
    ----
    O(T³) once; prediction O(T) a point, its variance O(T²).
    """

    correlation: Correlation
    trend: Trend
    z: Array
    y: Array
    noise_shape: Array
    parameters: Hyperparameters
    log_likelihood: float

    @cached_property
    def _scale(self) -> tuple[float, float]:
        spread = float(self.y.std())
        return float(self.y.mean()), spread if spread > 0 else 1.0

    @cached_property
    def _factor(self) -> tuple[Array, Array, Array]:
        return self._factorized(self.z, self.noise_shape)

    def _factorized(self, x: Array, noise_shape: Array) -> tuple[Array, Array, Array]:
        """Cholesky factor, L⁻¹H and the factor of HᵀK⁻¹H."""
        found = factorized(self._covariance(x, noise_shape), self._trend(x))
        if found is None:
            raise NumericalError("The covariance of a surrogate is not positive definite.")
        return found

    def _coefficients(self, ys: Array) -> tuple[Array, Array]:
        """Coefficients of kernel (T, m) and trend (k, m) for standardized values (T, m)."""
        lower, half, small = self._factor
        covariance, functions = self._covariance(self.z, self.noise_shape), self._trend(self.z)
        alpha, beta = np.zeros_like(ys), np.zeros((functions.shape[1], ys.shape[1]))
        # Two rounds of refinement: kernels of smooth functions are close to singular.
        for _ in range(3):
            residual = ys - covariance @ alpha - functions @ beta
            white = solve_triangular(lower, residual, lower=True)
            step = _cholesky_solve(small, half.T @ white)
            alpha = alpha + solve_triangular(lower, white - half @ step, lower=True, trans=1)
            beta = beta + step
        return alpha, beta

    @cached_property
    def _solution(self) -> tuple[Array, Array]:
        level, spread = self._scale
        return self._coefficients((self.y[:, None] - level) / spread)

    def mean(self, z: Array) -> Array:
        """Predictions at z (n, d)."""
        alpha, beta = self._solution
        level, spread = self._scale
        return np.asarray(level + spread * (self._sums(z, alpha) + self._trend(z) @ beta)[:, 0])

    def means(self, z: Array, ys: Array) -> Array:
        """What the model would predict at z (n, d) from other values ys (T, m): (n, m)."""
        level, spread = self._scale
        alpha, beta = self._coefficients((ys - level) / spread)
        return np.asarray(level + spread * (self._sums(z, alpha) + self._trend(z) @ beta))

    def covariance(self, z: Array, design: Array | None = None, noise_ratio: float = 1.0) -> Array:
        """Posterior covariance of the function at z (n, d).

        `design` and `noise_ratio` ask what it would be with other design points, or with the
        noise multiplied: neither needs values.
        """
        if design is None and noise_ratio == 1.0:
            x, (lower, half, small) = self.z, self._factor
        else:
            x = self.z if design is None else design
            shape = noise_ratio * np.full(x.shape[0], self.noise_shape.mean())
            lower, half, small = self._factorized(x, shape)
        p = self.parameters
        white = solve_triangular(lower, p.signal * self._correlate(x, z), lower=True)
        missing = self._trend(z).T - half.T @ white
        extra = solve_triangular(small, missing, lower=True)
        _, spread = self._scale
        prior = p.signal * self._correlate(z, z)
        return np.asarray(spread**2 * (prior - white.T @ white + extra.T @ extra))

    def sd(self, z: Array) -> Array:
        """Posterior standard deviation at z (n, d), one block at a time."""
        lower, half, small = self._factor
        _, spread = self._scale
        out = np.empty(z.shape[0])
        for start in range(0, z.shape[0], _BLOCK):
            block = z[start : start + _BLOCK]
            white = solve_triangular(lower, self._cross(block).T, lower=True)
            extra = solve_triangular(small, self._trend(block).T - half.T @ white, lower=True)
            variance = self.parameters.signal - (white**2).sum(0) + (extra**2).sum(0)
            out[start : start + _BLOCK] = spread * np.sqrt(np.maximum(variance, 0.0))
        return out

    @cached_property
    def leave_one_out(self) -> tuple[Array, Array]:
        """Predictions of each y from the others, and their standard deviations (noise included)."""
        lower, half, small = self._factor
        inverse = solve_triangular(lower, np.eye(self.y.size), lower=True)
        part = solve_triangular(small, half.T @ inverse, lower=True)
        precision = np.maximum((inverse**2).sum(0) - (part**2).sum(0), np.finfo(float).tiny)
        alpha, _ = self._solution
        _, spread = self._scale
        return self.y - spread * alpha[:, 0] / precision, spread / np.sqrt(precision)

    @property
    def noise_sd(self) -> Array:
        """Standard deviation of the noise in each y."""
        _, spread = self._scale
        return np.asarray(spread * np.sqrt(self.parameters.noise * self.noise_shape))

    def _correlate(self, x: Array, z: Array) -> Array:
        return self.correlation(x, z, self.parameters.lengthscale)

    def _cross(self, z: Array) -> Array:
        return np.asarray(self.parameters.signal * self._correlate(z, self.z))

    def _sums(self, z: Array, alpha: Array) -> Array:
        """Σ_t k(z, z_t) α_t for alpha (T, m): (n, m).

        An additive one is a sum of functions of one coordinate. At many points a spline through
        values on a line gives them to nine digits.
        """
        if not self.correlation.additive or len(z) < 2 * _LINE:
            return np.asarray(self._cross(z) @ alpha)
        p = self.parameters
        total = np.zeros((len(z), alpha.shape[1]))
        for j in range(z.shape[1]):
            line = np.linspace(z[:, j].min(), z[:, j].max(), _LINE)
            factor = self.correlation(line[:, None], self.z[:, j : j + 1], p.lengthscale[j : j + 1])
            total += CubicSpline(line, factor @ alpha)(z[:, j])
        return np.asarray(p.signal / z.shape[1] * total)

    def _covariance(self, x: Array, noise_shape: Array) -> Array:
        p = self.parameters
        matrix = p.signal * self._correlate(x, x)
        matrix.flat[:: x.shape[0] + 1] += p.noise * noise_shape + FLOOR * p.signal
        return matrix

    @cached_property
    def _reach(self) -> float:
        return _reach(self.z)

    def _trend(self, z: Array) -> Array:
        return self.trend.matrix(z / self._reach)


def fit_gp(
    correlation: Correlation,
    trend: Trend,
    z: Array,
    y: Array,
    *,
    noise_shape: Array | None = None,
    noise_guess: float | None = None,
    noise_variance: Array | None = None,
    start: Hyperparameters | None = None,
) -> GP | None:
    """Fit by restricted maximum likelihood with weak priors; None if there is no maximum.

    Parameters
    ----------
    noise_shape
        Relative noise variances, (T,); default: equal.
    noise_guess
        A guess of the noise variance in units of y², the centre of its prior.
    noise_variance
        The noise variances themselves, (T,), in units of y²: nothing of the noise is then fitted.
    start
        Where to start besides the defaults, such as the last fit to fewer points.
    """
    spread = float(y.std())
    dim = z.shape[1]
    shape = np.ones(y.size) if noise_shape is None else noise_shape
    if not spread > 1e-14 * float(np.abs(y).max(initial=0.0)):
        flat = Hyperparameters(np.full(dim, 2.0), 1e-20, 1e-20)
        return GP(correlation, trend, z, y, np.ones(y.size), flat, 0.0)
    log_guess: float | None = float(np.log(max((noise_guess or 0.0) / spread**2, 1e-20)))
    if noise_guess is None:
        log_guess = float(np.log(1e-6))
    if noise_variance is not None:
        shape, log_guess = noise_variance / spread**2, None
    few = slice(0, max(_TUNING_POINTS, 2 * trend.size(dim)))
    likelihood = Likelihood(
        correlation,
        distances(z[few], z[few]),
        ((y - y.mean()) / spread)[few],
        trend.matrix(z[few] / _reach(z)),
        shape[few],
        log_guess,
    )
    found = most_likely(likelihood, start)
    if found is None:
        return None
    gp = GP(correlation, trend, z, y, shape, *found)
    return gp if factorized(gp._covariance(z, shape), gp._trend(z)) is not None else None


def _reach(z: Array) -> float:
    return float(np.abs(z).max())


def _cholesky_solve(lower: Array, rhs: Array) -> Array:
    white = solve_triangular(lower, rhs, lower=True)
    return np.asarray(solve_triangular(lower, white, lower=True, trans=1))
