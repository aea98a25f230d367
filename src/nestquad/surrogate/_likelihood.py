"""The restricted likelihood of a Gaussian process with trend and nugget, and its maximum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from nestquad._typing import Array
from nestquad.surrogate._correlation import Correlation

__all__ = ["FLOOR", "Hyperparameters", "Likelihood", "factorized", "most_likely"]

# Smallest diagonal relative to the signal: below it Cholesky factors lose their meaning.
FLOOR = 1e-13
# Weak priors: lengthscales around 2 standard deviations of θ, noise around what halving the inner
# points suggests. They decide only what the data leave open.
_LENGTHSCALE_PRIOR = (np.log(2.0), 1.5)
_NOISE_PRIOR_SD = 1.5
_FAILED = 1e25


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
class Likelihood:
    """Negative restricted log likelihood plus priors, with its gradient.

    `apart` are the coordinates' distances (d, T, T), `functions` the trend's (T, k). Without
    `log_noise_guess` the noise is what `noise_shape` says, and has no prior.

    Cost
    ----
    O(T³ + d T²), by LAPACK itself: with a few dozen points checking arguments would cost more
    than the arithmetic.
    """

    correlation: Correlation
    apart: Array
    y: Array
    functions: Array
    noise_shape: Array
    log_noise_guess: float | None

    def __call__(self, vector: Array) -> tuple[float, Array]:
        p = Hyperparameters.from_vector(vector)
        matrix, slopes = self.correlation.derivatives(self.apart, p.lengthscale)
        covariance = p.signal * matrix
        covariance.flat[:: self.y.size + 1] += p.noise * self.noise_shape + FLOOR * p.signal
        factors = factorized(covariance, self.functions)
        if factors is None:
            return 10 * _FAILED, np.zeros_like(vector)
        lower, half, small = factors
        inverse, _ = lapack.dtrtri(lower, lower=1)
        # The factor's upper triangle is zero, and so is its inverse's.
        part, _ = lapack.dtrtrs(small, half.T @ inverse, lower=1)
        projection = inverse.T @ inverse - part.T @ part
        alpha = projection @ self.y
        loss = 0.5 * float(self.y @ alpha)
        loss += float(np.log(np.diagonal(lower)).sum() + np.log(np.diagonal(small)).sum())
        inside = projection - alpha[:, None] * alpha
        gradient = np.empty_like(vector)
        flat = inside.ravel()
        gradient[:-2] = 0.5 * p.signal * (slopes.reshape(len(slopes), -1) @ flat)
        gradient[-2] = 0.5 * p.signal * float(matrix.ravel() @ flat)
        gradient[-1] = 0.5 * p.noise * float(np.diagonal(inside) @ self.noise_shape)
        centre, sd = _LENGTHSCALE_PRIOR
        deviation = (vector[:-2] - centre) / sd
        loss += 0.5 * float(deviation @ deviation)
        gradient[:-2] += deviation / sd
        if self.log_noise_guess is not None:
            noise = (vector[-1] - self.log_noise_guess) / _NOISE_PRIOR_SD
            loss += 0.5 * float(noise**2)
            gradient[-1] += noise / _NOISE_PRIOR_SD
        return loss, gradient


def most_likely(
    likelihood: Likelihood, start: Hyperparameters | None, most_steps: int = 30
) -> tuple[Hyperparameters, float] | None:
    """The maximum, searched from the best of a few starts; None if there is none.

    `start` is where a search among fewer points ended.
    """
    dim = len(likelihood.apart)
    fixed = likelihood.log_noise_guess is None
    guess = 0.0 if likelihood.log_noise_guess is None else likelihood.log_noise_guess
    noise_bounds = (0.0, 0.0) if fixed else (np.log(1e-22), np.log(10.0))
    bounds = [(np.log(0.05), np.log(100.0))] * dim + [(np.log(1e-6), np.log(1e6)), noise_bounds]
    low, high = np.array(bounds).T
    # The last search may sit in an optimum of more noise than there is now: never trust it alone.
    vectors = [np.array([*np.full(dim, np.log(s)), 0.0, guess]) for s in (1.0, 3.0)]
    if start is not None:
        vectors.append(start.vector())
    vectors = [np.clip(v, low, high) for v in vectors]
    first = min(vectors, key=lambda v: likelihood(v)[0])
    found = minimize(
        likelihood,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": most_steps, "ftol": 1e-5},
    )
    if not found.fun < _FAILED:
        return None
    return Hyperparameters.from_vector(found.x), -float(found.fun)


def factorized(covariance: Array, functions: Array) -> tuple[Array, Array, Array] | None:
    """Cholesky factor L, L⁻¹H and the factor of HᵀK⁻¹H; None where one does not exist."""
    lower, info = lapack.dpotrf(covariance, lower=1, clean=1)
    if info != 0:
        return None
    half, _ = lapack.dtrtrs(lower, functions, lower=1)
    small, info = lapack.dpotrf(half.T @ half, lower=1, clean=1)
    return None if info != 0 else (lower, half, small)
