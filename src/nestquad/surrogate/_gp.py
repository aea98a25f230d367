"""Gaussian-process regression with trend and nugget, fitted by restricted likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from nestquad._typing import Array
from nestquad.surrogate._correlation import Correlation
from nestquad.surrogate._trend import Trend, trend_matrix

__all__ = ["GP", "Hyperparameters", "fit_gp"]

# Smallest diagonal relative to the signal: below it Cholesky factors lose their meaning.
_FLOOR = 1e-11
# Weak priors: lengthscales around 2 standard deviations of θ, noise around what halving the inner
# points suggests. They decide only what the data leave open.
_LENGTHSCALE_PRIOR = (np.log(2.0), 1.5)
_NOISE_PRIOR_SD = 1.5


@dataclass(frozen=True)
class Hyperparameters:
    """Variances relative to the spread of the data; the noise is that of a point of unit weight."""

    lengthscale: Array
    signal: float
    noise: float

    def vector(self) -> Array:
        return np.asarray(np.log([*self.lengthscale, self.signal, self.noise]))

    @classmethod
    def from_vector(cls, vector: Array) -> Hyperparameters:
        values = np.exp(vector)
        return cls(values[:-2], float(values[-2]), float(values[-1]))


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
        """Cholesky factor, L⁻¹H and the factor of HᵀK⁻¹H."""
        return _factorized(self._covariance(self.z, self.noise_shape), self._trend(self.z))

    @cached_property
    def _solution(self) -> tuple[Array, Array]:
        """Coefficients of kernel and trend."""
        lower, half, small = self._factor
        level, spread = self._scale
        y = (self.y - level) / spread
        white = solve_triangular(lower, y, lower=True)
        beta = _cholesky_solve(small, half.T @ white)
        alpha = solve_triangular(lower, white - half @ beta, lower=True, trans=1)
        # One step of refinement: kernels of smooth functions are close to singular.
        residual = (
            y - self._covariance(self.z, self.noise_shape) @ alpha - self._trend(self.z) @ beta
        )
        white = solve_triangular(lower, residual, lower=True)
        step = _cholesky_solve(small, half.T @ white)
        alpha = alpha + solve_triangular(lower, white - half @ step, lower=True, trans=1)
        return alpha, beta + step

    def mean(self, z: Array) -> Array:
        """Predictions at z (n, d)."""
        alpha, beta = self._solution
        level, spread = self._scale
        cross = self._cross(z)
        return np.asarray(level + spread * (cross @ alpha + self._trend(z) @ beta))

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
            lower, half, small = _factorized(self._covariance(x, shape), self._trend(x))
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
        for start in range(0, z.shape[0], 4096):
            block = z[start : start + 4096]
            white = solve_triangular(lower, self._cross(block).T, lower=True)
            extra = solve_triangular(small, self._trend(block).T - half.T @ white, lower=True)
            variance = self.parameters.signal - (white**2).sum(0) + (extra**2).sum(0)
            out[start : start + 4096] = spread * np.sqrt(np.maximum(variance, 0.0))
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
        return self.y - spread * alpha / precision, spread / np.sqrt(precision)

    @property
    def noise_sd(self) -> Array:
        """Standard deviation of the noise in each y."""
        _, spread = self._scale
        return np.asarray(spread * np.sqrt(self.parameters.noise * self.noise_shape))

    def _correlate(self, x: Array, z: Array) -> Array:
        return self.correlation(x, z, self.parameters.lengthscale)

    def _cross(self, z: Array) -> Array:
        return np.asarray(self.parameters.signal * self._correlate(z, self.z))

    def _covariance(self, x: Array, noise_shape: Array) -> Array:
        p = self.parameters
        matrix = p.signal * self._correlate(x, x)
        matrix[np.diag_indices(x.shape[0])] += p.noise * noise_shape + _FLOOR * p.signal
        return matrix

    def _trend(self, z: Array) -> Array:
        return trend_matrix(self.trend, z)


def fit_gp(
    correlation: Correlation,
    trend: Trend,
    z: Array,
    y: Array,
    *,
    noise_shape: Array | None = None,
    noise_guess: float | None = None,
    starts: tuple[Hyperparameters, ...] = (),
) -> GP | None:
    """Fit by restricted maximum likelihood with weak priors; None if no start converges.

    Parameters
    ----------
    noise_shape
        Relative noise variances, (T,); default: equal.
    noise_guess
        A guess of the noise variance in units of y², the centre of its prior.
    starts
        Where to start besides the defaults, such as the last fit to fewer points.
    """
    spread = float(y.std())
    dim = z.shape[1]
    shape = np.ones(y.size) if noise_shape is None else noise_shape
    if not spread > 0:
        flat = Hyperparameters(np.full(dim, 2.0), 1e-20, 1e-20)
        return GP(correlation, trend, z, y, shape, flat, 0.0)
    scaled = (y - y.mean()) / spread
    guess = 1e-6 if noise_guess is None else max(noise_guess / spread**2, 1e-14)
    likelihood = _Likelihood(
        correlation, z, scaled, trend_matrix(trend, z), shape, float(np.log(guess))
    )
    defaults = tuple(Hyperparameters(np.full(dim, s), 1.0, guess) for s in (1.0, 3.0))
    bounds = [(np.log(0.05), np.log(100.0))] * dim + [(np.log(1e-6), np.log(1e6))]
    bounds += [(np.log(1e-16), np.log(10.0))]
    best_loss, best_vector = np.inf, None
    # The last fit may sit in an optimum of more noise than there is now: never trust it alone.
    for start in (*starts, defaults[0]) if starts else defaults:
        low, high = np.array(bounds).T
        first = np.clip(start.vector(), low, high)
        found = minimize(
            likelihood,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 60, "ftol": 1e-7},
        )
        if np.isfinite(found.fun) and found.fun < best_loss:
            best_loss, best_vector = float(found.fun), found.x
    if best_vector is None or best_loss >= _FAILED:
        return None
    parameters = Hyperparameters.from_vector(best_vector)
    return GP(correlation, trend, z, y, shape, parameters, -best_loss)


_FAILED = 1e25


@dataclass(frozen=True)
class _Likelihood:
    """Negative restricted log likelihood plus priors, with its gradient."""

    correlation: Correlation
    z: Array
    y: Array
    functions: Array
    noise_shape: Array
    log_noise_guess: float

    def __call__(self, vector: Array) -> tuple[float, Array]:
        p = Hyperparameters.from_vector(vector)
        matrix, slopes = self.correlation.derivatives(self.z, p.lengthscale)
        covariance = p.signal * matrix
        covariance[np.diag_indices(self.y.size)] += p.noise * self.noise_shape + _FLOOR * p.signal
        try:
            lower, half, small = _factorized(covariance, self.functions)
        except np.linalg.LinAlgError:
            return 10 * _FAILED, np.zeros_like(vector)
        inverse = solve_triangular(lower, np.eye(self.y.size), lower=True)
        part = solve_triangular(small, half.T @ inverse, lower=True)
        projection = inverse.T @ inverse - part.T @ part
        alpha = projection @ self.y
        loss = 0.5 * float(self.y @ alpha)
        loss += float(np.log(np.diagonal(lower)).sum() + np.log(np.diagonal(small)).sum())
        inside = projection - np.outer(alpha, alpha)
        gradient = np.empty_like(vector)
        gradient[:-2] = 0.5 * p.signal * np.einsum("ij,kij->k", inside, slopes)
        gradient[-2] = 0.5 * p.signal * float((inside * matrix).sum())
        gradient[-1] = 0.5 * p.noise * float(np.diagonal(inside) @ self.noise_shape)
        centre, sd = _LENGTHSCALE_PRIOR
        deviation = (vector[:-2] - centre) / sd
        noise = (vector[-1] - self.log_noise_guess) / _NOISE_PRIOR_SD
        loss += 0.5 * float((deviation**2).sum()) + 0.5 * float(noise**2)
        gradient[:-2] += deviation / sd
        gradient[-1] += noise / _NOISE_PRIOR_SD
        return loss, gradient


def _factorized(covariance: Array, functions: Array) -> tuple[Array, Array, Array]:
    lower = np.asarray(np.linalg.cholesky(covariance), dtype=float)
    half = np.asarray(solve_triangular(lower, functions, lower=True))
    return lower, half, np.asarray(np.linalg.cholesky(half.T @ half), dtype=float)


def _cholesky_solve(lower: Array, rhs: Array) -> Array:
    white = solve_triangular(lower, rhs, lower=True)
    return np.asarray(solve_triangular(lower, white, lower=True, trans=1))
