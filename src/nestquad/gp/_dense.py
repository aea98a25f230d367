"""Dense Gaussian processes with polynomial trend and nugget, fitted by restricted likelihood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular

from nestquad import limits
from nestquad._typing import Array
from nestquad.clock import tick
from nestquad.errors import NumericalError
from nestquad.gp._optimizer import FAILED, maximum_likelihood


@dataclass(frozen=True)
class DenseSettings:
    """Numbers of fits and predictions of dense Gaussian processes.

    Attributes
    ----------
    tuning_points
        Points that choose hyperparameters: optima are flat, and likelihoods cost T³.
    most_steps
        Steps of L-BFGS-B.
    line
        Nodes of the splines of an additive process: nine digits.
    """

    tuning_points: int = 80
    most_steps: int = 30
    line: int = 512


_SETTINGS = DenseSettings()


# Degrees worth telling apart, by dimension: each has a third to a half more functions.
_DEGREES = {1: (0, 1, 2, 3, 4, 6, 8, 11, 15, 20), 2: (0, 1, 2, 3, 4, 6), 3: (0, 1, 2, 3)}
_NAMES = {0: "constant", 1: "linear", 2: "quadratic", 3: "cubic"}


@dataclass(frozen=True)
class PolynomialTrend:
    """Polynomials up to a total degree; with `additive`, sums of polynomials in one coordinate.

    Powers are Chebyshev polynomials, so that high degrees stay well conditioned where the
    coordinates reach from -1 to 1.
    """

    degree: int
    additive: bool = False

    def __str__(self) -> str:
        name = _NAMES.get(self.degree, f"degree-{self.degree}")
        return f"additive {name}" if self.additive else name

    def size(self, dim: int) -> int:
        """Number of functions."""
        return 1 + dim * self.degree if self.additive else comb(dim + self.degree, dim)

    def matrix(self, z: Array) -> Array:
        """The functions at z (n, d), as (n, size)."""
        n, dim = z.shape
        powers = np.polynomial.chebyshev.chebvander(z, self.degree)  # (n, d, degree + 1)
        columns = [np.ones(n)]
        for degree in range(1, self.degree + 1):
            for factors in self._factors(dim, degree):
                column = np.ones(n)
                for j, power in factors:
                    column = column * powers[:, j, power]
                columns.append(column)
        return np.stack(columns, axis=1)

    def _factors(self, dim: int, degree: int) -> Iterator[list[tuple[int, int]]]:
        """Pairs (coordinate, power) of each function of exactly this degree."""
        if self.additive:
            for j in range(dim):
                yield [(j, degree)]
            return
        for chosen in combinations_with_replacement(range(dim), degree):
            yield [(j, chosen.count(j)) for j in sorted(set(chosen))]


def trends(dim: int, n_points: int) -> list[PolynomialTrend]:
    """Trends that n points can determine, from the smallest to the largest."""
    every = [PolynomialTrend(degree) for degree in _DEGREES.get(dim, (0, 1, 2))]
    if dim > 1:
        every += [PolynomialTrend(2, additive=True), PolynomialTrend(3, additive=True)]
    affordable = [t for t in every if 1.6 * t.size(dim) + 2 <= n_points]
    return sorted(affordable or [PolynomialTrend(0)], key=lambda t: t.size(dim))


Shape = Literal["gaussian", "matern52"]

_ROOT5 = np.sqrt(5.0)


@dataclass(frozen=True)
class Correlation:
    """A stationary correlation with one lengthscale for each coordinate.

    `additive` takes the mean over coordinates instead of the product, for a J in many coordinates
    that hardly interact.
    """

    shape: Shape
    additive: bool = False

    def __call__(self, x: Array, y: Array, lengthscale: Array) -> Array:
        """(n, d), (m, d), (d,) → (n, m)."""
        a, b = x / lengthscale, y / lengthscale
        if self.shape == "gaussian" and not self.additive:
            squared = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2.0 * a @ b.T
            return np.asarray(np.exp(-0.5 * np.maximum(squared, 0.0)))
        out = np.empty((len(a), len(b)))
        rows = max(1, limits.CACHE_NUMBERS // 4 // len(b))
        r, factor, exponent = np.empty((3, min(rows, len(a)), len(b)))
        for start in range(0, len(a), rows):
            part = out[start : start + rows]
            n = len(part)
            self._fill(part, a[start : start + n], b, r[:n], factor[:n], exponent[:n])
        return out

    def _fill(
        self, out: Array, a: Array, b: Array, r: Array, factor: Array, exponent: Array
    ) -> None:
        """Correlations of a (n, d) and b (m, d) of unit lengthscales, in memory that is given."""
        # One exponential for all coordinates: they dominate the cost of Matérn functions.
        out[:] = 0.0 if self.additive else 1.0
        exponent[:] = 0.0
        for x, y in zip(a.T, b.T, strict=True):
            np.subtract(x[:, None], y, out=r)
            if self.shape == "gaussian":
                r *= r
                r *= -0.5
                out += np.exp(r, out=r)
                continue
            np.abs(r, out=r)
            r *= _ROOT5
            np.divide(r, 3.0, out=factor)
            factor += 1.0
            factor *= r
            factor += 1.0
            if self.additive:
                np.negative(r, out=r)
                factor *= np.exp(r, out=r)
                out += factor
            else:
                out *= factor
                exponent -= r
        if self.additive:
            out /= a.shape[1]
        else:
            out *= np.exp(exponent, out=exponent)

    def derivatives(self, apart: Array, lengthscale: Array) -> tuple[Array, Array]:
        """Correlations (m,) and their derivatives in the log lengthscales, (d, m).

        `apart` (d, m) are the distances |x_j − y_j| of m pairs of points.
        """
        factor, ratio = self._factor(apart / lengthscale[:, None])
        if self.additive:
            ratio *= factor
            return factor.mean(axis=0), ratio / len(factor)
        values = factor.prod(axis=0)
        ratio *= values
        return values, ratio

    def _factor(self, r: Array) -> tuple[Array, Array]:
        """Factor of each coordinate, and the derivative of its logarithm in the log lengthscale."""
        if self.shape == "gaussian":
            squared = r * r
            return np.exp(-0.5 * squared), squared
        a = _ROOT5 * r
        square = a * a / 3.0
        polynomial = 1.0 + a + square
        return polynomial * np.exp(-a), square * (1.0 + a) / polynomial


# Smallest diagonal relative to the signal: below it Cholesky factors lose their meaning.
FLOOR = 1e-13


@dataclass(frozen=True)
class Priors:
    """Weak normal priors of log hyperparameters, which decide where the data do not.

    Attributes
    ----------
    lengthscale
        Mean and standard deviation of log lengthscales: around 2 standard deviations of θ.
    noise_sd
        Standard deviation of the log noise variance about its guess, such as the change of inner
        means by halving their points.
    """

    lengthscale: tuple[float, float] = (float(np.log(2.0)), 1.5)
    noise_sd: float = 1.5


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
class RestrictedLikelihood:
    """Negative restricted log likelihood plus priors, with its gradient.

    `z` (T, d) are the points, `functions` (T, k) the trend functions. Without `log_noise_guess` the
    noise is `noise_shape`, without a prior.

    Cost
    ----
    O(T³ + d T²), by LAPACK itself: with a few dozen points checking arguments would cost more
    than the arithmetic.
    """

    correlation: Correlation
    z: Array
    y: Array
    functions: Array
    noise_shape: Array
    log_noise_guess: float | None
    priors: Priors = Priors()

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], Array]:
        """Positions of all pairs above the diagonal (m,), and their distances (d, m)."""
        row, column = np.triu_indices(self.y.size, 1)
        position = np.asarray(row * self.y.size + column, dtype=np.int64)
        apart = np.empty((self.z.shape[1], row.size))
        for z, distances in zip(self.z.T, apart, strict=True):
            tick()
            np.abs(z[row] - z[column], out=distances)
        return position, apart

    def __call__(self, vector: Array) -> tuple[float, Array]:
        *_, signal, noise = values = np.exp(vector)
        n = self.y.size
        position, apart = self._pairs
        correlations, slopes = self.correlation.derivatives(apart, values[:-2])
        # LAPACK reads a matrix above the diagonal, row by row, as one below it, column by column.
        covariance = np.zeros((n, n))
        flat = covariance.reshape(-1)
        flat[position] = signal * correlations
        flat[:: n + 1] = noise * self.noise_shape + signal * (1.0 + FLOOR)
        factors = factorized(covariance.T, self.functions)
        if factors is None:
            return FAILED, np.zeros_like(vector)
        lower, half, small = factors
        inverse, _ = lapack.dtrtri(lower, lower=1)
        # The factor's upper triangle is zero, and so is its inverse's.
        part, _ = lapack.dtrtrs(small, half.T @ inverse, lower=1)
        projection = inverse.T @ inverse
        projection -= part.T @ part
        alpha = projection @ self.y
        loss = 0.5 * float(self.y @ alpha)
        loss += float(np.log(lower.diagonal()).sum() + np.log(small.diagonal()).sum())
        projection -= alpha[:, None] * alpha
        diagonal, pairs = projection.diagonal(), projection.reshape(-1)[position]
        gradient = np.empty_like(vector)
        gradient[:-2] = signal * (slopes @ pairs)
        gradient[-2] = signal * (float(correlations @ pairs) + 0.5 * float(diagonal.sum()))
        gradient[-1] = 0.5 * noise * float(diagonal @ self.noise_shape)
        centre, sd = self.priors.lengthscale
        deviation = (vector[:-2] - centre) / sd
        loss += 0.5 * float(deviation @ deviation)
        gradient[:-2] += deviation / sd
        if self.log_noise_guess is not None:
            away = (float(vector[-1]) - self.log_noise_guess) / self.priors.noise_sd
            loss += 0.5 * away**2
            gradient[-1] += away / self.priors.noise_sd
        return loss, gradient


def _most_likely(
    likelihood: RestrictedLikelihood, start: Hyperparameters | None
) -> Hyperparameters | None:
    """Hyperparameters of highest likelihood; `start` has the values of a similar fit."""
    dim = likelihood.z.shape[1]
    guess = likelihood.log_noise_guess
    noise_bounds = (0.0, 0.0) if guess is None else (np.log(1e-22), np.log(10.0))
    bounds = [(np.log(0.05), np.log(100.0))] * dim + [(np.log(1e-6), np.log(1e6)), noise_bounds]
    # The last search may sit in an optimum of more noise than there is now: never trust it alone.
    starts = [np.array([*np.full(dim, np.log(s)), 0.0, guess or 0.0]) for s in (1.0, 3.0)]
    if start is not None:
        starts.append(start.vector())
    limit: dict[str, int] = {"n_values": likelihood.y.size, "most_steps": _SETTINGS.most_steps}
    best = maximum_likelihood(likelihood, starts, np.array(bounds), **limit)
    return None if best is None else Hyperparameters.from_vector(best[0])


def factorized(covariance: Array, functions: Array) -> tuple[Array, Array, Array] | None:
    """Cholesky factor L, L⁻¹H and the factor of HᵀK⁻¹H; None where one does not exist."""
    lower, info = lapack.dpotrf(covariance, lower=1, clean=1)
    if info != 0:
        return None
    half, _ = lapack.dtrtrs(lower, functions, lower=1)
    small, info = lapack.dpotrf(half.T @ half, lower=1, clean=1)
    return None if info != 0 else (lower, half, small)


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
    trend: PolynomialTrend
    z: Array
    y: Array
    noise_shape: Array
    parameters: Hyperparameters

    @cached_property
    def _scale(self) -> tuple[float, float]:
        spread = float(self.y.std())
        return float(self.y.mean()), spread if spread > 0 else 1.0

    @cached_property
    def _gram(self) -> Array:
        return self._covariance(self.z, self.noise_shape)

    @cached_property
    def _factor(self) -> tuple[Array, Array, Array]:
        """Cholesky factor, L⁻¹H and the factor of HᵀK⁻¹H."""
        return self._factorized(self._gram, self.z)

    def _factorized(self, covariance: Array, x: Array) -> tuple[Array, Array, Array]:
        factor = factorized(covariance, self._trend(x))
        if factor is None:
            raise NumericalError("The covariance of a surrogate is not positive definite.")
        return factor

    def _coefficients(self, ys: Array) -> tuple[Array, Array]:
        """Coefficients of kernel (T, m) and trend (k, m) for standardized values (T, m)."""
        lower, half, small = self._factor
        covariance, functions = self._gram, self._trend(self.z)
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
        """Predictions at z (n, d) from other values ys (T, m), with the same model: (n, m)."""
        level, spread = self._scale
        alpha, beta = self._coefficients((ys - level) / spread)
        return np.asarray(level + spread * (self._sums(z, alpha) + self._trend(z) @ beta))

    def covariance(self, z: Array, design: Array | None = None, noise_ratio: float = 1.0) -> Array:
        """Posterior covariance of the function at z (n, d).

        `design` and `noise_ratio` ask for its value with other design points, or with the
        noise multiplied: neither needs values.
        """
        if design is None and noise_ratio == 1.0:
            x, (lower, half, small) = self.z, self._factor
        else:
            x = self.z if design is None else design
            shape = noise_ratio * np.full(x.shape[0], self.noise_shape.mean())
            lower, half, small = self._factorized(self._covariance(x, shape), x)
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
        for start in range(0, z.shape[0], limits.BLOCK_ROWS):
            block = z[start : start + limits.BLOCK_ROWS]
            white = solve_triangular(lower, self._cross(block).T, lower=True)
            extra = solve_triangular(small, self._trend(block).T - half.T @ white, lower=True)
            variance = self.parameters.signal - (white**2).sum(0) + (extra**2).sum(0)
            out[start : start + limits.BLOCK_ROWS] = spread * np.sqrt(np.maximum(variance, 0.0))
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

    def restricted(self, rows: NDArray[np.bool_]) -> GP:
        """Condition the process on a subset of the points."""
        y = self.y[rows]
        spread = float(y.std()) or self._scale[1]
        # Variances are in units of that of the values.
        ratio = (self._scale[1] / spread) ** 2
        p, shape = self.parameters, self.noise_shape[rows]
        p = replace(p, signal=ratio * p.signal, noise=ratio * p.noise)
        return replace(self, z=self.z[rows], y=y, noise_shape=shape, parameters=p)

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
        if not self.correlation.additive or len(z) < 2 * _SETTINGS.line:
            sums = np.empty((len(z), alpha.shape[1]))
            for start in range(0, len(z), limits.BLOCK_ROWS):
                block = slice(start, start + limits.BLOCK_ROWS)
                sums[block] = self._cross(z[block]) @ alpha
            return sums
        from scipy.interpolate import CubicSpline  # a tenth of a second to import

        p = self.parameters
        total = np.zeros((len(z), alpha.shape[1]))
        for j in range(z.shape[1]):
            line = np.linspace(z[:, j].min(), z[:, j].max(), _SETTINGS.line)
            factor = self.correlation(line[:, None], self.z[:, j : j + 1], p.lengthscale[j : j + 1])
            total += CubicSpline(line, factor @ alpha)(z[:, j])
        return np.asarray(p.signal / z.shape[1] * total)

    def _covariance(self, x: Array, noise_shape: Array) -> Array:
        p = self.parameters
        matrix = p.signal * self._correlate(x, x)
        matrix.flat[:: x.shape[0] + 1] += p.noise * noise_shape + FLOOR * p.signal
        return matrix

    def _trend(self, z: Array) -> Array:
        return self.trend.matrix(z / _reach(self.z))


def fit_gp(
    correlation: Correlation,
    trend: PolynomialTrend,
    z: Array,
    y: Array,
    *,
    noise_shape: Array | None = None,
    noise_guess: float = 0.0,
    noise_variance: Array | None = None,
    start: Hyperparameters | None = None,
) -> GP | None:
    """Fit by restricted maximum likelihood with weak priors; None if there is no maximum.

    Relative noise variances `noise_shape` (T,) are equal by default, and `noise_guess` is the
    centre of the prior of their size, in units of y². With `noise_variance` (T,) the noise is
    known. The search starts from `start` besides the defaults, such as the last fit to fewer
    points.
    """
    spread = float(y.std())
    dim = z.shape[1]
    shape = np.ones(y.size) if noise_shape is None else noise_shape
    if not spread > 1e-14 * float(np.abs(y).max(initial=0.0)):
        flat = Hyperparameters(np.full(dim, 2.0), 1e-20, 1e-20)
        return GP(correlation, trend, z, y, np.ones(y.size), flat)
    log_guess: float | None = float(np.log(max(noise_guess / spread**2, 1e-20)))
    if noise_variance is not None:
        shape, log_guess = noise_variance / spread**2, None
    few = slice(0, max(_SETTINGS.tuning_points, 2 * trend.size(dim)))
    functions, scaled = trend.matrix(z[few] / _reach(z)), ((y - y.mean()) / spread)[few]
    likelihood = RestrictedLikelihood(correlation, z[few], scaled, functions, shape[few], log_guess)
    best = _most_likely(likelihood, start)
    if best is None:
        return None
    gp = GP(correlation, trend, z, y, shape, best)
    try:
        _ = gp._factor
    except NumericalError:  # with all points, where fewer chose the hyperparameters
        return None
    return gp


def _reach(z: Array) -> float:
    return float(np.abs(z).max())


def _cholesky_solve(lower: Array, rhs: Array) -> Array:
    white = solve_triangular(lower, rhs, lower=True)
    return np.asarray(solve_triangular(lower, white, lower=True, trans=1))
