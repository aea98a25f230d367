"""Proposals for the posterior, learned from simulated pairs (θ, y) alone: no likelihood is spent.

A quadratic regression predicts θ from y, and a Gaussian mixture of its residuals and y, conditioned
on y, is q(θ | y). Draws come from a wider law: components stretched, and a share of the prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.interpolate import BSpline, make_interp_spline
from scipy.special import logsumexp, ndtr, ndtri

from nestquad import clock
from nestquad._typing import Array, Mask
from nestquad.distributions import Empirical, Law, to_uniform
from nestquad.errors import UnsupportedError

# Share of the prior among draws, and stretch of components: both bound the weights of importance
# where the mixture misses a part of the posterior. A stretch of 1.15 leaves single weights of 40 in
# the tails of counts; 1.3 removes them, and the spread over data is nowhere larger.
PRIOR_SHARE, STRETCH = 0.1, 1.3
# Shares of the prior in q itself, of which held-out simulations choose: where data say little about
# one side, as no success says about small chances, the posterior has the tail of the prior.
_SHARES = (0.0, 0.01, 0.03, 0.1)
# Twice as many components have to raise the held-out log density by this. Components beyond improve
# rare data, which have most of the error: little in the mean is much in the spread.
_WORTHWHILE = 0.001
# Simulations of a fit with few components, and for each component of a larger one: at least three
# for each of its parameters in eight dimensions. The fewest show data as rare as one in a thousand
# more than ten times.
_FEWEST, _FOR_EACH = 16384, 256
# Fits with fewer components do not end the growth: posteriors of counts gain by eight, not by four.
_TRIED, _MOST_COMPONENTS = 8, 64
# Data with more coordinates enter the mixture by their prediction of θ only.
_MOST_COORDINATES = 8
# Tails as heavy as in a law without a tenth moment, such as Student's t with ten degrees of
# freedom: squares of such data do not inform about the rest.
_HEAVY = 0.1
# Levels of normal scores: quantiles beyond three standard deviations have few simulations.
_LEVELS = np.linspace(-3.0, 3.0, 61)
# Draws near a known θ, three in four: 16 scales by factors of 2.5, from that of the prior down to a
# millionth. With 64 draws each scale has three.
NEAR_DRAWS, _NEAR, _SCALES = 64, 0.75, 2.5 ** -np.arange(16.0)
_SLOWER = 3.0  # seconds of the next doubling over the last: twice the components, more simulations
_IDLE = -7.0  # log weight of components that q goes without where all cells are summed
_STEPS = 10  # of expectation-maximization after a split: later ones hardly raise densities
LOG_2PI = math.log(2.0 * math.pi)

Simulations = Callable[[int], tuple[Array, Array]]
"""Parameters, in coordinates to regress in, and data of the first n simulations."""


def log_normal(white: Array, log_scale: Array | float = 0.0) -> Array:
    """Log density of normals from whitened deviations (..., d) and the log determinant's half."""
    return np.asarray(
        -0.5 * np.einsum("...i,...i->...", white, white)
        - log_scale
        - 0.5 * white.shape[-1] * LOG_2PI
    )


def lower_factors(covariances: Array) -> tuple[Array, Array, Array]:
    """Lower factors L (K, d, d) of covariances, their inverses and log determinants (K,)."""
    factor = np.asarray(np.linalg.cholesky(covariances), dtype=np.float64)
    logs = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    return factor, np.asarray(np.linalg.inv(factor), dtype=np.float64), logs


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
        return lower_factors(self.covariances)[1:]

    def log_parts(self, x: Array) -> Array:
        """Log of weight times density of each component at rows x (n, d): (n, K)."""
        inverse, logs = self.inverse
        white = x @ inverse.reshape(-1, x.shape[1]).T
        white -= np.einsum("kij,kj->ki", inverse, self.means).reshape(-1)
        return log_normal(white.reshape(len(x), self.size, -1), logs) + np.log(self.weights)

    def split(self) -> Mixture:
        """Each component cut in two along its longest axis: a start for twice the number."""
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
            logs = found.log_parts(x)
            share = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
            count = share.sum(axis=0) + 1e-6
            means = (share.T @ x) / count[:, None]
            second = (share.T @ products).reshape(-1, d, d)
            moment = second - count[:, None, None] * means[:, :, None] * means[:, None]
            covariances = (moment + prior) / (count + d + 2.0)[:, None, None]
            found = Mixture(count / count.sum(), means, covariances)
        return found


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


Coordinate = Literal["location", "scores", "arcsinh"]


@dataclass(frozen=True, eq=False)
class Summary:
    """Standardized data, and a quadratic regression of the latent parameters on them.

    Columns with heavy tails enter by their normal scores (van der Waerden, 1952), with the column
    itself as a further predictor of locations; `coordinate` leaves out the column, or takes
    arcsinh(y) instead.
    """

    coordinate: Coordinate
    counts: Mask
    center: Array
    scale: Array
    scores: dict[int, BSpline]
    coefficients: Array
    spread: Array

    @classmethod
    def of(cls, latent: Array, y: Array, coordinate: Coordinate = "location") -> Summary:
        counts = ((y == np.round(y)) & (y >= 0)).all(axis=0)
        v = _stable(y, counts, coordinate)
        center, scale, heavy = _letter_values(v)
        knots = np.arcsinh(np.quantile((v - center) / scale, ndtr(_LEVELS), axis=0).T)
        smooth = [j for j in heavy if (np.diff(knots[j]) > 0).all()]  # columns without atoms
        # Splines of degree one are monotone, and linear beyond the last quantiles.
        scores = {j: make_interp_spline(knots[j], _LEVELS, k=1) for j in smooth}
        empty = np.zeros((0, latent.shape[1]))
        parts = coordinate, counts, center, scale, scores
        features = cls(*parts, empty, np.ones(latent.shape[1]))._features(y)
        units = np.sqrt((features**2).mean(axis=0)) + 1e-150
        scaled = features / units
        gram = scaled.T @ scaled + 1e-9 * len(y) * np.eye(len(units))
        coefficients = np.linalg.solve(gram, scaled.T @ latent) / units[:, None]
        residual = latent - features @ coefficients
        return cls(*parts, coefficients, np.maximum(residual.std(axis=0), 1e-9))

    def _features(self, y: Array) -> Array:
        """1, data with light tails or as scores, heavy ones themselves, and squares."""
        v = (_stable(y, self.counts, self.coordinate) - self.center) / self.scale
        raw = v[:, list(self.scores)]
        for column, score in self.scores.items():
            v[:, column] = score(np.arcsinh(v[:, column]))
        parts = [np.ones_like(v[:, :1]), v, *([raw] if self.coordinate == "location" else [])]
        if v.shape[1] <= 4 * _MOST_COORDINATES:  # squares of more are too many to estimate
            i, j = np.triu_indices(v.shape[1])
            parts.append(v[:, i] * v[:, j])
        return np.concatenate(parts, axis=1)

    def at(self, y: Array) -> tuple[Array, Array]:
        """Predictions (T, k), and coordinates (T, m) on which the mixture is conditioned."""
        features, n = self._features(y), y.shape[1]
        predicted = np.asarray(features @ self.coefficients)
        return predicted, features[:, 1 : n + 1] if n <= _MOST_COORDINATES else predicted


def _stable(y: Array, counts: Mask, coordinate: Coordinate) -> Array:
    """Counts by Anscombe's square root (1948), other data as they are or by arcsinh."""
    other = np.arcsinh(y) if coordinate == "arcsinh" else y
    return np.asarray(np.where(counts, np.sqrt(np.maximum(y, 0.0) + 0.375), other))


def _letter_values(v: Array) -> tuple[Array, Array, Any]:
    """Center and scale of columns, and the indices of columns with heavy tails.

    The tails of a law with index α have v = center + scale · u exp(u²/2α), with u nearly normal
    (Tukey, 1977; Hoaglin, 1985): log(q(1−p) − q(p)) is linear in the square of the normal quantile.
    Columns with light tails have mean and standard deviation as center and scale.
    """
    center, scale = v.mean(axis=0), v.std(axis=0)
    z = np.array([1.0, 1.5, 2.0, 2.5, 3.0])
    low, middle, high = (np.quantile(v, q, axis=0) for q in (ndtr(-z), 0.5, ndtr(z)))
    width = np.log(np.maximum(high - low, 1e-300)) - np.log(2.0 * z)[:, None]
    slope, at = np.polyfit(0.5 * z * z, width, 1)
    heavy = slope > _HEAVY
    center, scale = (np.where(heavy, a, b) for a, b in ((middle, center), (np.exp(at), scale)))
    scale = np.where(scale > 1e-12 * (1.0 + np.abs(center)), scale, 1.0)
    return center, scale, np.flatnonzero(heavy)


@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters themselves as coordinates, with the normals that drive each of them alone.

    Far out in a heavy tail, the posterior of a location is as wide as anywhere, but that of its
    driving normal is narrower by orders of magnitude.
    """

    law: Law
    own: tuple[int, ...]

    @classmethod
    def heavy(cls, law: Law, own: tuple[int, ...]) -> Parameters | None:
        """Coordinates of a heavy-tailed law, if it can be inverted coordinate by coordinate."""
        z = np.random.default_rng(0).standard_normal((512, law.base_dim))
        theta = law.from_normal(z)
        if theta.shape != z.shape or not len(_letter_values(theta[:, own])[2]):
            return None
        found = cls(law, own)
        try:
            alone = found.at(z[:, own])
            back = found.normals(alone)
        except UnsupportedError:
            return None
        same = np.array_equal(alone, theta[:, own]) and np.allclose(back, z[:, own], atol=1e-6)
        return found if same else None

    def _among(self, values: Array, others: float | Array) -> Array:
        rows = np.empty((values[..., 0].size, self.law.base_dim))
        rows[:] = others
        rows[:, self.own] = values.reshape(-1, len(self.own))
        return rows

    def at(self, z: Array) -> Array:
        """Parameters of normals (…, k)."""
        return np.asarray(self.law.from_normal(self._among(z, 0.0))[:, self.own].reshape(z.shape))

    def normals(self, theta: Array) -> Array:
        middle = self.law.from_normal(np.zeros((1, self.law.base_dim)))
        u = to_uniform(self.law, self._among(theta, middle))[:, self.own]
        return np.asarray(ndtri(u).reshape(theta.shape))

    def log_slope(self, z: Array) -> Array:
        """Sum of log dθ/dz, (…,)."""
        step = 1e-4
        rise = np.abs(self.at(z + step) - self.at(z - step)) / (2.0 * step)
        return np.asarray(np.log(np.maximum(rise, 1e-300)).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class NormalPosterior:
    """Proposal for driving normals at given data: log weights (T, K) and means (T, K, k).

    Draws come from a wider law s, whose components have the weights `mixing`. With a `center`
    (T, k), most of them are near it, at scales of all sizes.
    """

    proposal: NormalProposal
    log_evidence: Array
    weights: Array
    means: Array
    mixing: Array

    def draws(self, uniform: Array, center: Array | None = None) -> Array:
        """Draws (T, N, k) of s from uniforms (T or 1, N, k)."""
        z = self._drawn(self.mixing, uniform, PRIOR_SHARE, STRETCH)
        if center is not None:
            near = np.arange(z.shape[1])[int((1.0 - _NEAR) * z.shape[1]) :]
            scale = _SCALES[near % len(_SCALES), None]
            z[:, near] = center[:, None] + scale * ndtri(uniform[:, near])
        return z

    def logs(self, z: Array, center: Array | None = None) -> tuple[Array, Array, Array]:
        """Log densities (T, N) of the prior, of q and of s at z (T, N, k)."""
        fit, log_prior = self.proposal, log_normal(z)
        (_, inverse, logs), parameters = fit.factors, fit.parameters
        at, slope = z, np.zeros(())
        if parameters is not None:
            at, slope = parameters.at(z), parameters.log_slope(z)
        plain, wide = [], []
        for c in range(fit.components):
            square = (((at - self.means[:, None, c]) @ inverse[c].T) ** 2).sum(axis=-1)
            constant = slope - logs[c] - 0.5 * fit.base_dim * LOG_2PI
            plain.append(constant - 0.5 * square + self.weights[:, None, c])
            constant = constant - fit.base_dim * math.log(STRETCH)
            wide.append(constant - 0.5 * square / STRETCH**2 + self.mixing[:, None, c])
        log_q = with_share(fit.share, np.logaddexp.reduce(plain), log_prior)
        log_s = with_share(PRIOR_SHARE, np.logaddexp.reduce(wide), log_prior)
        if center is not None:
            away, k = z - center[:, None], z.shape[-1]
            parts = [log_normal(away / scale, k * math.log(scale)) for scale in _SCALES]
            around = np.logaddexp.reduce(parts) - math.log(len(_SCALES))
            log_s = with_share(_NEAR, log_s, around)
        return log_prior, log_q, log_s

    def expected(self, h: Callable[[Array], Array], uniform: Array) -> Array:
        """Means (T, k) of h(θ) under the mixture, by draws without likelihoods."""
        return np.asarray(h(self._drawn(self.weights, uniform, 0.0, 1.0)).mean(axis=1))

    def log_gain(self, latent: Array, kept: tuple[int, ...]) -> Array:
        """log q(θ | y) − log p(θ), (T,), of some of the parameters."""
        fit, columns = self.proposal, list(kept)
        factor = fit.factors[0][:, columns]
        _, inverse, logs = lower_factors(factor @ np.swapaxes(factor, 1, 2))
        at, slope = latent[:, columns], np.zeros(())
        if fit.parameters is not None:
            own = tuple(fit.parameters.own[i] for i in kept)
            some = Parameters(fit.parameters.law, own)
            at, slope = some.at(at), some.log_slope(at)
        white = np.einsum("kij,tkj->tki", inverse, at[:, None] - self.means[:, :, columns])
        log_q = logsumexp(log_normal(white, logs) + self.weights, axis=-1) + slope
        log_prior = log_normal(latent[:, columns])
        return with_share(fit.share, log_q, log_prior) - log_prior

    def _drawn(self, weights: Array, uniform: Array, share: float, stretch: float) -> Array:
        """Draws (T, N, k): the first uniform chooses a component and drives the first normal."""
        fit, rows = self.proposal, len(weights)
        u = np.broadcast_to(uniform, (rows, *uniform.shape[1:]))
        mass = np.concatenate([np.full((rows, 1), share), (1.0 - share) * np.exp(weights)], axis=1)
        edges = np.cumsum(mass, axis=1)
        edges /= edges[:, -1:]
        chosen = (u[..., 0, None] > edges[:, None, :-1]).sum(axis=-1)
        low = np.concatenate([np.zeros((rows, 1)), edges[:, :-1]], axis=1)
        below = np.take_along_axis(low, chosen, axis=1)
        width = np.take_along_axis(edges, chosen, axis=1) - below
        first = np.clip((u[..., 0] - below) / np.maximum(width, 1e-300), 1e-12, 1.0 - 1e-12)
        s = ndtri(np.concatenate([first[..., None], u[..., 1:]], axis=-1))
        factors = np.concatenate([np.eye(fit.base_dim)[None], stretch * fit.factors[0]])
        centers = np.concatenate([np.zeros((rows, 1, fit.base_dim)), self.means], axis=1)
        centers = np.take_along_axis(centers, chosen[..., None], axis=1)
        drawn = np.einsum("tnij,tnj->tni", factors[chosen], s) + centers
        if fit.parameters is None:
            return np.asarray(drawn)
        return np.where(chosen[..., None] == 0, s, fit.parameters.normals(drawn))


@dataclass(frozen=True, eq=False)
class SamplePosterior:
    """Probabilities (T, n) of weighted samples at given data, and of draws of a wider law s.

    A draw is the number of a sample, and log q is relative to the prior.
    """

    proposal: SampleProposal
    log_evidence: Array
    log_q: Array
    chance: Array

    def draws(self, uniform: Array, center: Array | None = None) -> Array:
        u = np.broadcast_to(uniform[..., 0], (len(self.chance), uniform.shape[1]))
        edges = np.cumsum(self._chance(center), axis=1)
        pairs = zip(edges / edges[:, -1:], u, strict=True)
        index = [np.searchsorted(edge[:-1], levels) for edge, levels in pairs]
        return np.stack(index)[..., None].astype(float)

    def logs(self, z: Array, center: Array | None = None) -> tuple[Array, Array, Array]:
        index = z[..., 0].astype(int)
        log_prior = np.log(self.proposal.prior.weights)[index]
        log_q = np.take_along_axis(self.log_q, index, axis=1) - log_prior
        log_s = np.log(np.take_along_axis(self._chance(center), index, axis=1)) - log_prior
        return np.zeros_like(log_q), log_q, log_s

    def expected(self, h: Callable[[Array], Array], uniform: Array) -> Array:
        fit = self.proposal
        values = h(np.arange(float(len(fit.prior.samples)))[:, None])
        return (np.exp(self.log_q) - fit.share * fit.prior.weights) @ values / (1.0 - fit.share)

    def _chance(self, center: Array | None) -> Array:
        """Probabilities of draws; most of them near samples given, in their order."""
        if center is None:
            return self.chance
        n = self.chance.shape[1]
        apart, total = np.abs(np.arange(n) - center), np.zeros((len(center), n))
        for octave in range(n.bit_length()):
            near = apart <= 2**octave
            total += near / near.sum(axis=1, keepdims=True)
        return np.asarray((1.0 - _NEAR) * self.chance + _NEAR * total / n.bit_length())


ProposalAtData = NormalPosterior | SamplePosterior
"""q(θ | y) at given data, and the wider law that draws come from."""


@dataclass(frozen=True, eq=False)
class _Conditioned:
    """A mixture of residuals of latent parameters and of data, to be conditioned on data.

    `base_dim` is the number of uniforms behind a draw, and of its latent coordinates.
    """

    summary: Summary
    conditional: Conditional
    mixture: Mixture
    share: float
    score: float

    @property
    def components(self) -> int:
        return self.mixture.size

    def mixing(self, y: Array) -> Array:
        """Log weights (T, K) of components."""
        return self.conditional.at(self.summary.at(y)[1])[0]

    def parts(self, y: Array) -> tuple[Array, Array, Array]:
        """Log weights (T, K) and means (T, K, k) of components, log p(y) (T,) up to a map of y."""
        predicted, given = self.summary.at(y)
        weights, means, log_evidence = self.conditional.at(given)
        return weights, predicted[:, None] + means * self.summary.spread, log_evidence

    @cached_property
    def factors(self) -> tuple[Array, Array, Array]:
        """Lower factors (K, k, k) of the components, their inverses and log determinants."""
        spread = np.outer(self.summary.spread, self.summary.spread)
        return lower_factors(spread * self.conditional.law.covariances)


@dataclass(frozen=True, eq=False)
class NormalProposal(_Conditioned):
    """Proposal for driving normals, by a mixture of the normals or of the parameters."""

    parameters: Parameters | None

    @property
    def base_dim(self) -> int:
        return int(self.conditional.law.means.shape[1])

    def given(self, y: Array, mixing: Array | None = None) -> ProposalAtData:
        """The proposal at data (T, n_y); draws may come from other weights of components."""
        weights, means, log_evidence = self.parts(y)
        mixing = weights if mixing is None else mixing
        return NormalPosterior(self, log_evidence, weights, means, mixing)


@lru_cache(maxsize=4)
def _density(prior: Empirical) -> Array:
    """Log density (n,) of weighted samples at themselves, by a mixture of eight normals."""
    mean = prior.weights @ prior.samples
    sd = np.sqrt(prior.weights @ (prior.samples - mean) ** 2)
    x = (prior.samples - mean) / np.where(sd > 0, sd, 1.0)
    levels = (np.arange(len(x)) + 0.5) / len(x)
    rows = x[np.searchsorted(np.cumsum(prior.weights)[:-1], levels)]
    mixture = one_normal(rows)
    for _ in range(3):
        mixture = mixture.split().fitted(rows)
    return np.asarray(logsumexp(mixture.log_parts(x), axis=1))


@dataclass(frozen=True, eq=False)
class SampleProposal(_Conditioned):
    """Proposal for a prior of weighted samples: their probabilities given data.

    They are proportional to weight × q(θ | y) / p̂(θ), with a mixture p̂ of the samples themselves.
    """

    prior: Empirical
    base_dim: ClassVar[int] = 1

    def given(self, y: Array, mixing: Array | None = None) -> ProposalAtData:
        weights, means, log_evidence = self.parts(y)
        _, inverse, logs = self.factors
        density = np.full((len(y), len(self.prior.samples)), 1e-300)
        for c, white in enumerate(self._white):
            # Given the data, few of the components count.
            rows = np.flatnonzero(weights[:, c] > _IDLE)
            square = np.zeros((len(rows), len(white)))
            for i, center in enumerate((means[rows, c] @ inverse[c].T).T):
                square += (center[:, None] - white[:, i]) ** 2
            density[rows] += np.exp((weights[rows, c] - logs[c])[:, None] - 0.5 * square)
        log_weights = np.log(self.prior.weights)
        density *= np.exp(log_weights - _density(self.prior))
        density /= density.sum(axis=1, keepdims=True)
        log_q = with_share(self.share, np.log(density), log_weights)
        chance = (1.0 - PRIOR_SHARE) * np.exp(log_q) + PRIOR_SHARE * self.prior.weights
        return SamplePosterior(self, log_evidence, log_q, chance)

    @cached_property
    def _white(self) -> Array:
        """Samples (K, n, p) in the units of each component."""
        return np.asarray(np.einsum("kij,nj->kni", self.factors[1], self.prior.samples))


Proposal = NormalProposal | SampleProposal


def with_share(share: float, log_q: Array, log_prior: Array) -> Array:
    """Log of a mixture of q and a share of the prior."""
    if share == 0:
        return log_q
    return np.logaddexp(math.log1p(-share) + log_q, math.log(share) + log_prior)


def fit_proposal(
    simulations: Simulations,
    most: int,
    law: Law,
    own: tuple[int, ...],
    room: Callable[[float], bool] = lambda seconds: True,
    like: Mixture | None = None,
) -> tuple[Proposal, int]:
    """Proposal from at most `most` simulations, and their number.

    Components double while held-out data gain by it, simulations with them, and `room` allows the
    predicted seconds. A quarter of the simulations is held out. Where the prior or the data have
    heavy tails, held-out data also choose the coordinates. The mixture `like` of a similar design
    is a start without growth, if it is better than one component.
    """
    n = min(_FEWEST, most)
    if like is not None:
        n = min(most, max(n, like.size * _FOR_EACH))
    latent, y = simulations(n)
    priors: list[Empirical | Parameters | None] = [law if isinstance(law, Empirical) else None]
    if not isinstance(law, Empirical) and (heavy := Parameters.heavy(law, own)) is not None:
        priors.append(heavy)
    found: Proposal | None = None
    for prior in priors:
        first = _fitted(latent, y, None, prior, "location")
        others: tuple[Coordinate, ...] = ("scores", "arcsinh") if first.summary.scores else ()
        starts = [first, *(_fitted(latent, y, None, prior, kind) for kind in others)]
        start = max(starts, key=lambda fit: fit.score)
        if like is not None and like.means.shape[1] == start.mixture.means.shape[1]:
            similar = _fitted(latent, y, like, prior, start.summary.coordinate)
            if similar.score >= start.score and len(priors) == 1:
                return similar, n
        grown, more = _grown(simulations, n, most, prior, start, room)
        if found is None or grown.score > found.score:
            found = grown
        n = max(n, more)
    assert found is not None
    return found, n


def _grown(
    simulations: Simulations,
    n: int,
    most: int,
    prior: Empirical | Parameters | None,
    start: Proposal,
    room: Callable[[float], bool],
) -> tuple[Proposal, int]:
    best, tried, kind, seconds = start, 1, start.summary.coordinate, 0.0
    while 2 * tried <= _MOST_COMPONENTS and room(_SLOWER * seconds):
        begin = clock.now()
        tried *= 2
        more = min(most, max(n, tried * _FOR_EACH))
        if more < tried * _FOR_EACH // 2:
            break
        if more > n:  # scores are comparable on the same simulations only
            n = more
            best = _fitted(*simulations(n), best.mixture, prior, kind)
        start = _fitted(*simulations(n), start.mixture.split(), prior, kind)
        gain = start.score - best.score
        if gain > 0:
            best = start
        if gain < _WORTHWHILE and tried >= _TRIED:
            break
        seconds = clock.now() - begin
    return best, n


def _fitted(
    latent: Array,
    y: Array,
    start: Mixture | None,
    prior: Empirical | Parameters | None,
    coordinate: Coordinate,
) -> Proposal:
    n, z, slope = 3 * len(y) // 4, latent, np.zeros(())
    if isinstance(prior, Parameters):
        latent, slope = prior.at(z), prior.log_slope(z[n:])
    summary = Summary.of(latent[:n], y[:n], coordinate)
    predicted, given = summary.at(y)
    x = np.concatenate([(latent - predicted) / summary.spread, given], axis=1)
    mixture = one_normal(x[:n]) if start is None else start.fitted(x[:n])
    conditional = Conditional.of(mixture, latent.shape[1])
    joint = logsumexp(mixture.log_parts(x[n:]), axis=1)
    given = logsumexp(conditional.given.log_parts(x[n:, latent.shape[1] :]), axis=1)
    log_q = joint - given - np.log(summary.spread).sum() + slope
    if isinstance(prior, Empirical):
        parts = summary, conditional, mixture, _SHARES[1], float(log_q.mean())
        return SampleProposal(*parts, prior)
    # One normal may be the posterior itself. Elsewhere, tails that few simulations show count.
    shares = _SHARES if mixture.size == 1 else _SHARES[1:]
    scores = {x: float(with_share(x, log_q, log_normal(z[n:])).mean()) for x in shares}
    share = max(scores, key=lambda x: scores[x])
    return NormalProposal(summary, conditional, mixture, share, scores[share], prior)
