"""Gaussian process of g jointly in θ and x, with x integrated out in closed form.

The process lives in scores: standard normal variables, or centered uniform variables of unit
variance, as the laws are written. Its kernel is a product over coordinates, so that

    Cov(J(θ), g(z_i)) = σ² k_θ(θ, θ_i) ∏_j ∫ k_j(x_ij, t) dP_j(t)

has the closed forms of `embeddings` (O'Hagan 1991, Bayes–Hermite quadrature), and J is again a
Gaussian process. Functions of the trend are linear and scores have mean zero, so the trend of J is
the trend at x = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.distributions import Independent, Law, Normal, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.gp._dense import FLOOR, GP, Hyperparameters, Priors, RestrictedLikelihood
from nestquad.gp._optimizer import maximum_likelihood
from nestquad.gp._prior import Correlation, Shape, Trend
from nestquad.kernels import Gaussian, Matern

_ROOT3, _ROOT12 = np.sqrt(3.0), np.sqrt(12.0)
_UNIT_NORMAL, _UNIT_UNIFORM = Normal(), Uniform(-_ROOT3, _ROOT3)


@dataclass(frozen=True)
class ScoreKind:
    """Scores of θ and x: normal variables, or uniform variables of mean zero and variance one.

    Attributes
    ----------
    shape
        Correlation function of a coordinate.
    normal
        Whether the scores of each coordinate (d,) are normal.
    """

    shape: Shape
    normal: tuple[bool, ...]

    def scores(self, uniform: Array) -> Array:
        """Scores of uniforms (n, ≤ d), the leading coordinates."""
        normal = np.array(self.normal[: uniform.shape[1]])
        scores = _ROOT12 * (uniform - 0.5)
        scores[:, normal] = ndtri(uniform[:, normal])
        return np.asarray(scores)


@dataclass(frozen=True)
class JointPriors:
    """Priors and limits of a fit, chosen on even seeds by ``python -m studies few``.

    Attributes
    ----------
    priors
        Log lengthscales have mean 1.5 and standard deviation 2, those of the noise are weaker: few
        points in many coordinates tell smooth and inactive ones apart, and little more.
    noise
        Guess of the noise variance relative to that of g: rounding and detail below the points.
    trend_points
        Points for each coefficient of a linear trend; with fewer the trend is constant.
    most_steps
        Steps of the search of the likelihood, at first; a warm search takes half.
    """

    priors: Priors = Priors((1.5, 2.0), 4.0)
    noise: float = 1e-6
    trend_points: float = 2.0
    most_steps: int = 40


DEFAULT = JointPriors()


@dataclass(frozen=True, eq=False)
class IntegratedGP:
    """Process of one output of g at scores z (n, d), and of its mean J over x.

    Attributes
    ----------
    gp
        The process of g.
    kind
        Scores and correlation.
    outer
        d_θ, the number of leading coordinates.
    """

    gp: GP
    kind: ScoreKind
    outer: int

    @property
    def variance_unit(self) -> float:
        """Factor of relative variances."""
        return self.gp._scale[1] ** 2

    @cached_property
    def _inner_law(self) -> Law:
        normal = self.kind.normal[self.outer :]
        return Independent(*(_UNIT_NORMAL if one else _UNIT_UNIFORM for one in normal))

    @cached_property
    def embedding(self) -> Array:
        """Integrals (n,) of the kernel over x at the points."""
        return self.embedded(self.gp.z)

    def embedded(self, z: Array) -> Array:
        """∏_j ∫ k_j(x_j, t) dP_j(t) at scores z (n, d): (n,)."""
        return mean_embedding(self._inner_kernel, self._inner_law, z[:, self.outer :])

    @cached_property
    def inner_variance(self) -> float:
        """∬ k_x dP dP: the prior variance of J relative to that of g."""
        return float(double_embedding(self._inner_kernel, self._inner_law))

    @property
    def _inner_kernel(self) -> Gaussian | Matern:
        lengthscale = self.gp.parameters.lengthscale[self.outer :]
        return Gaussian(lengthscale) if self.kind.shape == "gaussian" else Matern(2.5, lengthscale)

    def cross(self, theta: Array, z: Array | None = None) -> Array:
        """Prior covariance (T, n) of J at scores (T, d_θ) with g at z (n, d), or at the points."""
        lengthscale = self.gp.parameters.lengthscale[: self.outer]
        points = self.gp.z if z is None else z
        embedding = self.embedding if z is None else self.embedded(z)
        k = self.gp.correlation(theta, points[:, : self.outer], lengthscale)
        k *= self.gp.parameters.signal * embedding
        return k

    def trend(self, theta: Array) -> Array:
        """Trend functions (T, k) of J at scores (T, d_θ)."""
        zeros = np.zeros((len(theta), self.gp.z.shape[1] - self.outer))
        return self.gp._trend(np.concatenate([theta, zeros], axis=1))

    def mean(self, theta: Array) -> Array:
        """Posterior mean (T,) of J at scores (T, d_θ)."""
        level, spread = self.gp._scale
        alpha, beta = self.gp._solution
        sums = self.cross(theta) @ alpha + self.trend(theta) @ beta
        return np.asarray(level + spread * sums[:, 0])

    def sd(self, theta: Array) -> Array:
        """Posterior standard deviation (T,) of J."""
        white, extra = self.whitened(self.cross(theta), self.trend(theta))
        prior = self.gp.parameters.signal * self.inner_variance
        variance = prior - (white**2).sum(axis=0) + (extra**2).sum(axis=0)
        return np.asarray(np.sqrt(self.variance_unit * np.maximum(variance, 0.0)))

    def whitened(self, cross: Array, trend: Array) -> tuple[Array, Array]:
        """L⁻¹ c (n, T) and the part (k, T) of the trend, whose products are explained variances."""
        lower, half, small = self.gp._factor
        white = solve_triangular(lower, cross.T, lower=True)
        extra = solve_triangular(small, trend.T - half.T @ white, lower=True)
        return white, extra

    def interpolated(self, theta: Array, values: Array) -> Array:
        """Posterior mean (T, m) of J from other values (n, m) of g, by the same model."""
        alpha, beta = self.gp._coefficients(values)
        return np.asarray(self.cross(theta) @ alpha + self.trend(theta) @ beta)

    def with_parameters(self, vector: Array) -> IntegratedGP:
        """The process with other log hyperparameters (d + 2,)."""
        return replace(self, gp=replace(self.gp, parameters=Hyperparameters.from_vector(vector)))

    def restricted(self, rows: NDArray[np.bool_]) -> IntegratedGP:
        """The process from some of the points, with the same hyperparameters."""
        return replace(self, gp=self.gp.restricted(rows))

    def prior_functions(
        self, theta: Array, n_functions: int, n_features: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Functions drawn from the prior: g at the points (n, K) with noise, and J (T, K).

        By random Fourier features (Rahimi and Recht 2007, Random features for large-scale kernel
        machines), whose mean over x is a characteristic function. Conditioned on values they are
        posterior draws (Wilson and others 2020, Efficiently sampling functions from Gaussian
        process posteriors).
        """
        p, z, d = self.gp.parameters, self.gp.z, self.gp.z.shape[1]
        frequency = rng.standard_normal((n_features, d))
        if self.kind.shape == "matern52":  # a product of Matérn functions: Student's t, 5 degrees
            frequency /= np.sqrt(rng.chisquare(5.0, (n_features, d)) / 5.0)
        frequency /= p.lengthscale
        phase = rng.uniform(0.0, 2.0 * np.pi, n_features)
        size = rng.standard_normal((n_features, n_functions)) * np.sqrt(2.0 * p.signal / n_features)
        normal = np.array(self.kind.normal[self.outer :])
        inner = frequency[:, self.outer :]
        damped = np.where(normal, np.exp(-0.5 * inner**2), np.sinc(_ROOT3 * inner / np.pi))
        g = np.cos(z @ frequency.T + phase) @ size
        j = np.cos(theta @ frequency[:, : self.outer].T + phase) @ (
            damped.prod(axis=1)[:, None] * size
        )
        sd = np.sqrt(p.noise * self.gp.noise_shape + FLOOR * p.signal)
        return g + sd[:, None] * rng.standard_normal(g.shape), j


@dataclass(frozen=True, eq=False)
class JointFit:
    """A fitted process, its negative log posterior of hyperparameters, and that function."""

    process: IntegratedGP
    loss: float
    likelihood: RestrictedLikelihood

    def hyperparameters(self, n: int, rng: np.random.Generator) -> Array:
        """Draws (n, d + 2) of log hyperparameters by Laplace's approximation.

        The Hessian is made of differences of gradients along each coordinate. A draw whose loss
        exceeds the minimum by more than the approximation predicts is drawn towards the optimum.
        """
        center = self.process.gp.parameters.vector()
        step = 0.1
        here = self.likelihood(center)[1]
        shifts = step * np.eye(center.size)
        rows = [(self.likelihood(center + shift)[1] - here) / step for shift in shifts]
        hessian = 0.5 * (np.array(rows) + np.array(rows).T)
        values, vectors = np.linalg.eigh(hessian)
        # Prior precision is the least there is; failed differences count as that.
        least = self.likelihood.priors.lengthscale[1] ** -2
        root = vectors / np.sqrt(np.maximum(np.nan_to_num(values), least))
        drawn = np.empty((n, center.size))
        for k in range(n):
            normal = rng.standard_normal(center.size)
            factor, direction = 1.0, root @ normal
            for _ in range(4):
                excess = self.likelihood(center + factor * direction)[0] - self.loss
                if excess <= 2.0 + 0.5 * factor**2 * float(normal @ normal):
                    break
                factor *= 0.5
            drawn[k] = center + factor * direction
        return drawn


def fit_integrated(
    kinds: Sequence[ScoreKind],
    uniform: Array,
    y: Array,
    outer: int,
    *,
    start: Hyperparameters | None = None,
    settings: JointPriors = DEFAULT,
) -> JointFit | None:
    """Fit of the most likely kind to values y (n,) at uniforms (n, d) of (θ, x).

    Restricted likelihood with weak priors; None if no kind has a maximum. `start` are the
    hyperparameters of a fit to fewer points.
    """
    spread = float(y.std())
    n, dim = uniform.shape
    trend = Trend(1 if n >= settings.trend_points * (dim + 2) else 0)
    fits: list[JointFit] = []
    for kind in kinds:
        z = kind.scores(uniform)
        correlation = Correlation(kind.shape)
        if not spread > 1e-14 * float(np.abs(y).max(initial=0.0)):
            flat = Hyperparameters(np.full(dim, 2.0), 1e-20, 1e-20)
            gp = GP(correlation, Trend(0), z, y, np.ones(n), flat)
            functions = np.ones((n, 1))
            likelihood = RestrictedLikelihood(
                correlation, z, np.zeros(n), functions, np.ones(n), 0.0, settings.priors
            )
            return JointFit(IntegratedGP(gp, kind, outer), 0.0, likelihood)
        likelihood = RestrictedLikelihood(
            correlation,
            z,
            (y - y.mean()) / spread,
            trend.matrix(z / float(np.abs(z).max())),
            np.ones(n),
            float(np.log(settings.noise)),
            settings.priors,
        )
        starts = [np.array([*np.full(dim, 1.2), 0.0, np.log(settings.noise)])]
        if start is not None:
            starts.append(start.vector())
        bounds = np.array([(-1.5, 6.0)] * dim + [(-7.0, 14.0), (np.log(1e-14), np.log(10.0))])
        steps = settings.most_steps if start is None else settings.most_steps // 2
        best = maximum_likelihood(likelihood, starts, bounds, n_values=n, most_steps=steps)
        if best is None:
            continue
        gp = GP(correlation, trend, z, y, np.ones(n), Hyperparameters.from_vector(best[0]))
        fits.append(JointFit(IntegratedGP(gp, kind, outer), best[1], likelihood))
    return min(fits, key=lambda fit: fit.loss) if fits else None
