"""Gaussian process of g jointly in θ and x, with x integrated out in closed form.

The process lives in scores: standard normal variables, or centered uniform variables of unit
variance, as the laws are written. Its kernel is a product over coordinates, so that

    Cov(J(θ), g(z_i)) = σ² k_θ(θ, θ_i) ∏_j ∫ k_j(x_ij, t) dP_j(t)

has the closed forms of `embeddings` (O'Hagan 1991, Bayes–Hermite quadrature), and J is again a
Gaussian process. Functions of the trend are linear and scores have mean zero, so the trend of J is
the trend at x = 0.

A positive g such as a likelihood may have a smoother logarithm h. Then J = ∫ exp h dP is computed
on nodes in x, and its error to first order is ∫ exp(ĥ) (h − ĥ) dP: again a linear functional of a
Gaussian process, whose weights depend on θ (warped Bayesian quadrature: Gunter and others 2014,
Sampling for inference in probabilistic models with fast Bayesian quadrature).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri, roots_hermitenorm

from nestquad._typing import Array
from nestquad.distributions import Independent, Law, Normal, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.gp._dense import (
    FLOOR,
    GP,
    Correlation,
    Hyperparameters,
    PolynomialTrend,
    Priors,
    RestrictedLikelihood,
    Shape,
)
from nestquad.gp._optimizer import maximum_likelihood
from nestquad.kernels import Gaussian, Matern
from nestquad.points import PeriodicLattice, Stream

_ROOT3, _ROOT12 = np.sqrt(3.0), np.sqrt(12.0)
# θ at which exp ĥ is computed together: it stays in a cache.
_BLOCK = 1024
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
    logarithm
        Whether the process is one of log g.
    """

    shape: Shape
    normal: tuple[bool, ...]
    logarithm: bool = False

    def scores(self, uniform: Array) -> Array:
        """Scores of uniforms (n, ≤ d), the leading coordinates."""
        normal = np.array(self.normal[: uniform.shape[1]])
        scores = _ROOT12 * (uniform - 0.5)
        scores[:, normal] = ndtri(uniform[:, normal])
        return np.asarray(scores)


_WEAK = Priors((1.5, 2.0), 4.0)


@dataclass(frozen=True)
class JointPriors:
    """Priors and limits of a fit, chosen on few even seeds of the families.

    Attributes
    ----------
    priors
        Log lengthscales have mean 1.5 and standard deviation 2, priors of the noise are weaker: few
        points in many coordinates tell smooth and inactive ones apart, and little more.
    noise
        Guess of the noise variance relative to that of g: rounding and detail below the points.
    trend_points
        Points for each coefficient of a linear trend; with fewer the trend is constant.
    signals, least_noise
        Bounds of the prior variance and of the noise variance, relative to the variance of g:
        beyond them rounding of covariances is larger than the noise.
    most_steps
        Steps of the search of the likelihood, at first; a warm search takes half.
    n_nodes
        Nodes in x where log g is modeled.
    """

    priors: Priors = _WEAK
    noise: float = 1e-6
    trend_points: float = 2.0
    signals: tuple[float, float] = (1e-3, 1e3)
    least_noise: float = 1e-10
    most_steps: int = 40
    n_nodes: int = 128


DEFAULT = JointPriors()
# A tenth of the variance, within a factor of e⁴ or so: a random g cannot be interpolated.
NOISY = JointPriors(Priors((1.5, 2.0), 2.0), noise=0.1)


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
    def n_nodes(self) -> int:
        """Nodes in x."""
        return 0

    @property
    def variance_unit(self) -> float:
        """Factor of relative variances."""
        return self.gp._scale[1] ** 2

    @cached_property
    def _inner_law(self) -> Law:
        normal = self.kind.normal[self.outer :]
        return Independent(*(_UNIT_NORMAL if is_normal else _UNIT_UNIFORM for is_normal in normal))

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

    def predict(self, z: Array) -> Array:
        """Prediction (n,) of g at scores (n, d)."""
        return self.gp.mean(z)

    @cached_property
    def leave_one_out(self) -> tuple[Array, Array]:
        """Predictions (n,) of each value of g by the others, and their standard deviations."""
        return self.gp.leave_one_out

    def mean(self, theta: Array) -> Array:
        """Posterior mean (T,) of J at scores (T, d_θ)."""
        level, spread = self.gp._scale
        alpha, beta = self.gp._solution
        sums = self.cross(theta) @ alpha + self.trend(theta) @ beta
        return np.asarray(level + spread * sums[:, 0])

    def sd(self, theta: Array) -> Array:
        """Posterior standard deviation (T,) of J."""
        white, extra = self.whitened(self.cross(theta), self.trend(theta))
        variance = self.prior_variance(theta) - (white**2).sum(axis=0) + (extra**2).sum(axis=0)
        return np.asarray(np.sqrt(self.variance_unit * np.maximum(variance, 0.0)))

    def node_error(self, theta: Array) -> Array:
        """Error (T,) of J by nodes in x: none in closed form."""
        return np.zeros(len(theta))

    def prior_variance(self, theta: Array) -> Array:
        """Prior variance (T,) of J, relative to the unit."""
        return np.full(len(theta), self.gp.parameters.signal * self.inner_variance)

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
        g = np.cos(z @ frequency.T + phase) @ size
        j = self._integrated_waves(theta, frequency, phase) @ size
        sd = np.sqrt(p.noise * self.gp.noise_shape + FLOOR * p.signal)
        return g + sd[:, None] * rng.standard_normal(g.shape), j

    def _integrated_waves(self, theta: Array, frequency: Array, phase: Array) -> Array:
        """Integrals (T, F) of cos(ω·z + φ) over x."""
        inner = frequency[:, self.outer :]
        normal = np.array(self.kind.normal[self.outer :])
        damped = np.where(normal, np.exp(-0.5 * inner**2), np.sinc(_ROOT3 * inner / np.pi))
        waves = np.cos(theta @ frequency[:, : self.outer].T + phase)
        return np.asarray(waves * damped.prod(axis=1))


@dataclass(frozen=True, eq=False)
class LogIntegratedGP(IntegratedGP):
    """Process of h = log g, and J = ∫ exp h dP with errors to first order.

    `nodes` (N, d_x) are scores of x and `weights` (N,) theirs. Covariances belong to
    ∫ exp(ĥ) h dP, so everything that is linear in values is inherited. The kernel is a product, so
    ĥ on θ × x costs one matrix product.
    """

    nodes: Array
    weights: Array

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    @cached_property
    def _inner_gram(self) -> Array:
        """Correlations (N, n) of x at nodes and points."""
        return self._correlate_inner(self.gp.z)

    def _correlate_inner(self, z: Array) -> Array:
        lengthscale = self.gp.parameters.lengthscale[self.outer :]
        return self.gp.correlation(self.nodes, z[:, self.outer :], lengthscale)

    def _correlate_outer(self, theta: Array, z: Array) -> Array:
        lengthscale = self.gp.parameters.lengthscale[: self.outer]
        return self.gp.correlation(theta, z[:, : self.outer], lengthscale)

    def _values(self, theta: Array) -> Array:
        """exp ĥ (T, N) at θ and the nodes, times their weights."""
        level, spread = self.gp._scale
        alpha, beta = self.gp._solution
        outer = self._correlate_outer(theta, self.gp.z) * alpha[:, 0]
        h = self.gp.parameters.signal * (outer @ self._inner_gram.T)
        # Trend functions are one, and a multiple of each score.
        zeros = np.zeros((len(self.nodes), self.outer))
        at_nodes = self.gp._trend(np.concatenate([zeros, self.nodes], axis=1)) @ beta
        h += self.trend_at_zero(theta) @ beta + (at_nodes - beta[0]).T
        h *= spread
        h += level
        np.exp(np.minimum(h, 700.0, out=h), out=h)
        h *= self.weights
        return np.asarray(h)

    def trend_at_zero(self, theta: Array) -> Array:
        return super().trend(theta)

    def node_error(self, theta: Array) -> Array:
        """Standard deviation (T,) of J by its nodes: half the difference of two interleaved halves.

        Zero for products of Gauss rules.
        """
        if self.nodes.shape[1] <= 2:
            return np.zeros(len(theta))
        values = self._values(theta)
        return np.asarray(values[:, ::2].sum(axis=1) - values[:, 1::2].sum(axis=1))

    def mean(self, theta: Array) -> Array:
        blocks = (theta[i : i + _BLOCK] for i in range(0, len(theta), _BLOCK))
        return np.concatenate([self._values(block).sum(axis=1) for block in blocks])

    def cross(self, theta: Array, z: Array | None = None) -> Array:
        points = self.gp.z if z is None else z
        inner = self._inner_gram if z is None else self._correlate_inner(z)
        k = self._correlate_outer(theta, points)
        k *= self.gp.parameters.signal * (self._values(theta) @ inner)
        return k

    def trend(self, theta: Array) -> Array:
        values = self._values(theta)
        functions = self.trend_at_zero(theta) * values.sum(axis=1)[:, None]
        if functions.shape[1] > 1:
            zeros = np.zeros((len(self.nodes), self.outer))
            rows = self.gp._trend(np.concatenate([zeros, self.nodes], axis=1))
            functions[:, 1 + self.outer :] = values @ rows[:, 1 + self.outer :]
        return np.asarray(functions)

    def prior_variance(self, theta: Array) -> Array:
        values = self._values(theta)
        lengthscale = self.gp.parameters.lengthscale[self.outer :]
        gram = self.gp.correlation(self.nodes, self.nodes, lengthscale)
        return np.asarray(self.gp.parameters.signal * np.einsum("tn,tn->t", values @ gram, values))

    def predict(self, z: Array) -> Array:
        return np.asarray(np.exp(np.minimum(self.gp.mean(z), 700.0)))

    @cached_property
    def leave_one_out(self) -> tuple[Array, Array]:
        mean, sd = self.gp.leave_one_out
        value = np.exp(np.minimum(mean, 700.0))
        # The standard deviation of a lognormal variable of that median, within a factor of e².
        return value, value * np.expm1(np.minimum(sd, 2.0))

    def _integrated_waves(self, theta: Array, frequency: Array, phase: Array) -> Array:
        values = self._values(theta)
        outer = theta @ frequency[:, : self.outer].T + phase
        inner = self.nodes @ frequency[:, self.outer :].T
        # cos(a + b) = cos a cos b − sin a sin b
        waves = np.cos(outer) * (values @ np.cos(inner))
        waves -= np.sin(outer) * (values @ np.sin(inner))
        return np.asarray(waves)


def fit_integrated(
    kinds: Sequence[ScoreKind],
    uniform: Array,
    y: Array,
    outer: int,
    *,
    start: Hyperparameters | None = None,
    noisy: bool = False,
) -> IntegratedGP | None:
    """Process of the most likely kind for values y (n,) at uniforms (n, d) of (θ, x).

    Restricted likelihood with weak priors; None if no kind has a maximum. `start` are the
    hyperparameters of a fit to fewer points. `noisy` if g is random at fixed (θ, x).
    """
    settings = NOISY if noisy else DEFAULT
    if not float(y.std()) > 1e-14 * float(np.abs(y).max(initial=0.0)):
        return _flat_process(kinds[0], uniform, y, outer)
    fits = [_fit_kind(kind, uniform, y, outer, start, settings) for kind in kinds]
    found = [fit for fit in fits if fit is not None]
    return min(found, key=lambda fit: fit[0])[1] if found else None


def _fit_kind(
    kind: ScoreKind,
    uniform: Array,
    y: Array,
    outer: int,
    start: Hyperparameters | None,
    settings: JointPriors,
) -> tuple[float, IntegratedGP] | None:
    """Negative log restricted likelihood of the values of g, and the process of one kind."""
    n, dim = uniform.shape
    z, values = kind.scores(uniform), np.log(y) if kind.logarithm else y
    trend = PolynomialTrend(1 if n >= settings.trend_points * (dim + 2) else 0)
    correlation, spread = Correlation(kind.shape), float(values.std())
    likelihood = RestrictedLikelihood(
        correlation,
        z,
        (values - values.mean()) / spread,
        trend.matrix(z / float(np.abs(z).max())),
        np.ones(n),
        float(np.log(settings.noise)),
        settings.priors,
    )
    starts = [np.array([*np.full(dim, 1.2), 0.0, np.log(settings.noise)])]
    if start is not None:
        starts.append(start.vector())
    low, high = settings.signals
    scales = [(np.log(low), np.log(high)), (np.log(settings.least_noise), np.log(10.0))]
    bounds = np.array([(-1.5, 6.0)] * dim + scales)
    steps = settings.most_steps if start is None else settings.most_steps // 2
    best = maximum_likelihood(likelihood, starts, bounds, n_values=n, most_steps=steps)
    if best is None:
        return None
    gp = GP(correlation, trend, z, values, np.ones(n), Hyperparameters.from_vector(best[0]))
    # Densities of y itself: standardized values and logarithms have a Jacobian.
    score = best[1] + (n - trend.size(dim)) * float(np.log(spread))
    if not kind.logarithm:
        return score, IntegratedGP(gp, kind, outer)
    process = LogIntegratedGP(gp, kind, outer, *_inner_rule(kind, outer, settings.n_nodes))
    return score + float(values.sum()), process


def _inner_rule(kind: ScoreKind, outer: int, n: int) -> tuple[Array, Array]:
    """Scores (N, d_x) and weights (N,) of x: products of Gauss rules up to two coordinates."""
    normal = kind.normal[outer:]
    if len(normal) > 2:
        lattice = PeriodicLattice(16, "tent")
        uniform = lattice.uniforms(Stream.from_rng(0), len(normal), (0, 1), (0, n))[0]
        scores = np.where(normal, ndtri(uniform), _ROOT12 * (uniform - 0.5))
        return scores, np.full(n, 1.0 / n)
    size = n // 2 if len(normal) == 1 else round(n**0.5)
    rules = []
    for is_normal in normal:
        nodes, masses = (
            roots_hermitenorm(size) if is_normal else np.polynomial.legendre.leggauss(size)
        )
        rules.append((nodes if is_normal else _ROOT3 * nodes, masses / masses.sum()))
    grids = np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij")
    weights = rules[0][1] if len(rules) == 1 else np.outer(rules[0][1], rules[1][1])
    return np.stack([grid.ravel() for grid in grids], axis=1), weights.ravel()


def _flat_process(kind: ScoreKind, uniform: Array, y: Array, outer: int) -> IntegratedGP:
    """Process of a g that has one value."""
    n, dim = uniform.shape
    flat = Hyperparameters(np.full(dim, 2.0), 1e-20, 1e-20)
    gp = GP(Correlation(kind.shape), PolynomialTrend(0), kind.scores(uniform), y, np.ones(n), flat)
    return IntegratedGP(gp, replace(kind, logarithm=False), outer)
