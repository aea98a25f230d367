"""Proposals for the posterior, learned from simulated pairs (θ, y) alone: no likelihood is spent.

A quadratic regression predicts θ from y, and a Gaussian mixture of its residuals and y, conditioned
on y, is q(θ | y). Draws come from a wider law: components stretched, and a share of the prior.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import lambertw, logsumexp, ndtr, ndtri

from nestquad._typing import Array, Mask
from nestquad.design._mixture import LOG_2PI, Conditional, Mixture, log_normal, one_normal, whitened
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
MOST_COMPONENTS = 64
# Data with more coordinates enter the mixture by their prediction of θ only.
_MOST_COORDINATES = 8
# Tails as heavy as those of a law without a tenth moment, such as Student's t with ten degrees of
# freedom: squares of such data say nothing about the rest.
_HEAVY = 0.1
# Draws near a known θ, three in four: 16 scales by factors of 2.5, from that of the prior down to a
# millionth. With 64 draws each scale has three.
NEAR_DRAWS, _NEAR, _SCALES = 64, 0.75, 2.5 ** -np.arange(16.0)
_IDLE = -14.0  # log weight of components without which a density is right to 1e-6
_ROWS = 256  # data whose weights of all samples are computed together

Simulations = Callable[[int], tuple[Array, Array]]
"""Parameters, in coordinates to regress in, and data of the first n simulations."""


@dataclass(frozen=True, eq=False)
class Summary:
    """Standardized data, and a quadratic regression of the latent parameters on them."""

    counts: Mask
    center: Array
    scale: Array
    tails: Array
    coefficients: Array
    spread: Array

    @classmethod
    def of(cls, latent: Array, y: Array) -> Summary:
        counts = ((y == np.round(y)) & (y >= 0)).all(axis=0)
        v = _stable(y, counts)
        center, scale, tails = _letter_values(v)
        empty = np.zeros((0, latent.shape[1]))
        blank = cls(counts, center, scale, tails, empty, np.ones(latent.shape[1]))
        features = blank._features(y)
        units = np.sqrt((features**2).mean(axis=0)) + 1e-150
        scaled = features / units
        gram = scaled.T @ scaled + 1e-9 * len(y) * np.eye(len(units))
        coefficients = np.linalg.solve(gram, scaled.T @ latent) / units[:, None]
        residual = latent - features @ coefficients
        spread = np.maximum(residual.std(axis=0), 1e-9)
        return cls(counts, center, scale, tails, coefficients, spread)

    def _raw(self, y: Array) -> Array:
        return np.asarray((_stable(y, self.counts) - self.center) / self.scale)

    def standardized(self, y: Array) -> Array:
        """Data (T, n_y) of light tails."""
        v = self._raw(y)
        if not self.tails.any():
            return v
        h = np.where(self.tails > 0, self.tails, 1.0)
        light = np.sign(v) * np.sqrt(lambertw(h * v * v).real / h)
        return np.where(self.tails > 0, light, v)

    def _features(self, y: Array) -> Array:
        v, raw = self.standardized(y), self._raw(y)[:, self.tails > 0]
        # A location far out follows the data themselves.
        parts = [np.ones_like(v[:, :1]), v, raw]
        if v.shape[1] <= 4 * _MOST_COORDINATES:  # squares of more are too many to estimate
            i, j = np.triu_indices(v.shape[1])
            parts.append(v[:, i] * v[:, j])
        return np.concatenate(parts, axis=1)

    def prediction(self, y: Array) -> Array:
        # einsum without BLAS: the bits of a row do not depend on the number of rows.
        return np.asarray(np.einsum("tf,fk->tk", self._features(y), self.coefficients))

    def given(self, y: Array) -> Array:
        """Coordinates (T, m) on which the mixture is conditioned."""
        if y.shape[1] <= _MOST_COORDINATES:
            return self.standardized(y)
        return self.prediction(y)


def _stable(y: Array, counts: Mask) -> Array:
    """Counts by Anscombe's square root, whose variance hardly depends on their mean."""
    return np.asarray(np.where(counts, np.sqrt(np.maximum(y, 0.0) + 0.375), y))


def _letter_values(v: Array) -> tuple[Array, Array, Array]:
    """Center, scale and tail h of columns: v = center + scale · u exp(h u²/2), u nearly normal.

    The tails of a law with index α have h = 1/α (Tukey, 1977; Hoaglin, 1985): log(q(1−p) − q(p)) is
    linear in the square of the normal quantile. Light tails have h = 0, mean and deviation.
    """
    center, scale = v.mean(axis=0), v.std(axis=0)
    z = np.array([1.0, 1.5, 2.0, 2.5, 3.0])
    low, middle, high = (np.quantile(v, q, axis=0) for q in (ndtr(-z), 0.5, ndtr(z)))
    width = np.log(np.maximum(high - low, 1e-300)) - np.log(2.0 * z)[:, None]
    slope, at = np.polyfit(0.5 * z * z, width, 1)
    tails = np.where(slope > _HEAVY, slope, 0.0)
    center, scale = (np.where(tails > 0, a, b) for a, b in ((middle, center), (np.exp(at), scale)))
    return center, np.where(scale > 1e-12 * (1.0 + np.abs(center)), scale, 1.0), tails


@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters themselves as coordinates, beside the normals that drive each of them alone.

    Far out in a heavy tail, the posterior of a location is as wide as anywhere, but that of its
    driving normal is narrower by orders of magnitude.
    """

    law: Law
    own: tuple[int, ...]

    @classmethod
    def heavy(cls, law: Law, own: tuple[int, ...]) -> Parameters | None:
        """Those of a law with a heavy tail, if it can be inverted coordinate by coordinate."""
        z = np.random.default_rng(0).standard_normal((512, law.base_dim))
        theta = law.from_normal(z)
        if theta.shape != z.shape or not _letter_values(theta[:, own])[2].any():
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
class _Conditioned:
    """A mixture given data, in latent coordinates of θ.

    `base_dim` is the number of uniforms behind a draw, and of its latent coordinates. `draws`
    (T, N, base_dim + 3) for data (T, n_y) and uniforms (T or 1, N, base_dim) are rows of latent
    coordinates, log prior − log of the sampled law, log q − log of the sampled law, and log q; with
    `center` (T, base_dim) most of them are near it, at scales of all sizes. `log_ratio` (T,) is the
    first of the logs at given latent coordinates, without a center. `log_prior_mean` is the mean of
    the log prior under the prior, which is also the mean over posteriors. `mean_logs` (T, 2) has
    log q at one θ for each row of data, and E_q[log q] by draws or exactly.
    """

    summary: Summary
    conditional: Conditional
    mixture: Mixture
    share: float
    score: float

    @property
    def components(self) -> int:
        return self.mixture.size

    @property
    def n_latent(self) -> int:
        return int(self.summary.spread.size)

    def log_evidence(self, y: Array) -> Array:
        """The mixture's own log density of the data, (T,): log p(y) up to a map of y."""
        return self.conditional.at(self.summary.given(y))[2]

    def _parts(self, y: Array) -> tuple[Array, Array]:
        """Log weights (T, K) and means (T, K, k) of the components."""
        weights, means, _ = self.conditional.at(self.summary.given(y))
        return weights, self.summary.prediction(y)[:, None] + means * self.summary.spread

    @cached_property
    def _factors(self) -> tuple[Array, Array, Array]:
        """Lower factors (K, k, k) of the components, their inverses and log determinants."""
        factor = np.linalg.cholesky(self.conditional.law.covariances)
        factor = np.asarray(self.summary.spread[:, None] * factor, dtype=np.float64)
        logs = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        return np.asarray(factor), np.asarray(np.linalg.inv(factor)), np.asarray(logs)


@dataclass(frozen=True, eq=False)
class NormalProposal(_Conditioned):
    """For parameters driven by standard normals, by a mixture of those or of the parameters."""

    parameters: Parameters | None

    @property
    def base_dim(self) -> int:
        return self.n_latent

    @property
    def log_prior_mean(self) -> float:
        return -0.5 * self.n_latent * (1.0 + LOG_2PI)

    def draws(self, y: Array, uniform: Array, center: Array | None = None) -> Array:
        weights, means = self._parts(y)
        z = self._drawn(weights, means, uniform, PRIOR_SHARE, STRETCH)
        if center is not None:
            z = np.array(z)
            near = np.arange(z.shape[1])[int((1.0 - _NEAR) * z.shape[1]) :]
            scale = _SCALES[near % len(_SCALES)]
            z[:, near] = center[:, None] + scale[:, None] * ndtri(uniform[:, near])
        log_prior, log_q, sampled = self._sampled(z, weights, means)
        if center is not None:
            away, k = z - center[:, None], z.shape[-1]
            parts = [log_normal(away / scale, k * math.log(scale)) for scale in _SCALES]
            around = np.asarray(logsumexp(parts, axis=0)) - math.log(len(_SCALES))
            sampled = with_share(_NEAR, sampled, around)
        columns = [log_prior - sampled, log_q - sampled, log_q]
        return np.concatenate([z, np.stack(columns, axis=-1)], axis=-1)

    def _sampled(self, z: Array, weights: Array, means: Array) -> tuple[Array, Array, Array]:
        """Log densities (T, N) of the prior, of q, and of the law of draws."""
        log_q, log_wide = self._log_densities(z, weights, means)
        log_prior = log_normal(z)
        return log_prior, log_q, with_share(PRIOR_SHARE, log_wide, log_prior)

    def log_ratio(self, latent: Array, y: Array) -> Array:
        log_prior, _, sampled = self._sampled(latent[:, None], *self._parts(y))
        return np.asarray((log_prior - sampled)[:, 0])

    def log_marginal(self, latent: Array, y: Array, kept: tuple[int, ...]) -> Array:
        """log q (T,) of some of the parameters."""
        weights, means = self._parts(y)
        factor = self._factors[0][:, kept]
        law = Mixture(weights[0], means[0, :, kept], factor @ np.swapaxes(factor, 1, 2))
        inverse, logs = law.inverse
        at, slope = latent[:, kept], np.zeros(())
        if self.parameters is not None:
            own = tuple(self.parameters.own[i] for i in kept)
            some = Parameters(self.parameters.law, own)
            at, slope = some.at(at), some.log_slope(at)
        white = whitened(inverse, at[:, None] - means[:, :, kept])
        log_q = np.asarray(logsumexp(log_normal(white, logs) + weights, axis=-1)) + slope
        return with_share(self.share, log_q, log_normal(latent[:, kept]))

    def mean_logs(self, latent: Array, y: Array, uniform: Array) -> Array:
        weights, means = self._parts(y)
        at = self._log_densities(latent[:, None], weights, means)[0][:, 0]
        if self.components == 1 and self.share == 0 and self.parameters is None:
            return np.stack(
                [at, np.full(len(y), self.log_prior_mean - self._factors[2][0])], axis=1
            )
        z = self._drawn(weights, means, uniform, self.share, 1.0)
        return np.stack([at, self._log_densities(z, weights, means)[0].mean(axis=1)], axis=1)

    def _drawn(
        self, weights: Array, means: Array, uniform: Array, share: float, stretch: float
    ) -> Array:
        """Draws (T, N, k): the first uniform chooses a component and drives the first normal."""
        rows, k = len(weights), self.n_latent
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
        factors = np.concatenate([np.eye(k)[None], stretch * self._factors[0]])
        centers = np.concatenate([np.zeros((rows, 1, k)), means], axis=1)
        centers = np.take_along_axis(centers, chosen[..., None], axis=1)
        drawn = np.asarray(whitened(factors[chosen], s) + centers)
        if self.parameters is None:
            return drawn
        return np.where(chosen[..., None] == 0, s, self.parameters.normals(drawn))

    def _log_densities(self, z: Array, weights: Array, means: Array) -> tuple[Array, Array]:
        """log q and log of the stretched q at z (T, N, k), one component at a time."""
        _, inverse, logs = self._factors
        plain, wide = [], []
        at, slope = z, np.zeros(())
        if self.parameters is not None:
            at, slope = self.parameters.at(z), self.parameters.log_slope(z)
        for c in range(self.components):
            white = whitened(inverse[c], at - means[:, None, c])
            square = -0.5 * np.einsum("...i,...i->...", white, white)
            constant = weights[:, None, c] - logs[c] - 0.5 * self.n_latent * LOG_2PI
            plain.append(square + constant)
            wide.append(square / STRETCH**2 + constant - self.n_latent * math.log(STRETCH))
        log_q = with_share(self.share, np.asarray(logsumexp(plain, axis=0)) + slope, log_normal(z))
        return log_q, np.asarray(logsumexp(wide, axis=0)) + slope


@dataclass(frozen=True, eq=False)
class SampleProposal(_Conditioned):
    """For a prior of weighted samples: probabilities of the samples given data.

    They are proportional to weight × q(θ | y) / p̂(θ), with a mixture p̂ of the samples themselves.
    The latent coordinate is a sample's number. Log probabilities are relative to p̂, as those of a
    density: entropies then do not follow how dense the samples are.
    """

    prior: Empirical
    log_prior: Array
    log_cloud: Array

    @property
    def base_dim(self) -> int:
        return 1

    @property
    def log_prior_mean(self) -> float:
        return float(self.prior.weights @ (self.log_prior + self.log_cloud))

    def draws(self, y: Array, uniform: Array, center: Array | None = None) -> Array:
        u, parts = np.broadcast_to(uniform[..., 0], (len(y), uniform.shape[1])), []
        for i in range(0, len(y), _ROWS):
            log_q, sampled = self._sampled(y[i : i + _ROWS])
            if center is not None:
                sampled = (1.0 - _NEAR) * sampled + _NEAR * self._around(center[i : i + _ROWS, 0])
            edges = np.cumsum(sampled, axis=1)
            rows = zip(edges, u[i : i + _ROWS], strict=True)
            index = np.stack([np.searchsorted(e[:-1] / e[-1], one) for e, one in rows])
            log_s, log_q = (np.take_along_axis(a, index, axis=1) for a in (np.log(sampled), log_q))
            density = log_q + self.log_cloud[index]
            parts.append(
                np.stack([index, self.log_prior[index] - log_s, log_q - log_s, density], -1)
            )
        return np.concatenate(parts)

    def _sampled(self, y: Array) -> tuple[Array, Array]:
        """log q (T, n), and the probabilities of draws."""
        log_q = self._log_probabilities(y)
        return log_q, (1.0 - PRIOR_SHARE) * np.exp(log_q) + PRIOR_SHARE * self.prior.weights

    def _around(self, center: Array) -> Array:
        """Probabilities (T, n) of samples near those of given numbers, in their order."""
        n = len(self.prior.samples)
        apart = np.abs(np.arange(n) - center[:, None])
        parts = [apart <= 2**octave for octave in range(n.bit_length())]
        found = np.mean([one / one.sum(axis=1, keepdims=True) for one in parts], axis=0)
        return np.asarray(found)

    def log_ratio(self, latent: Array, y: Array) -> Array:
        parts, index = [], latent[:, 0].astype(int)
        for i in range(0, len(y), _ROWS):
            sampled = self._sampled(y[i : i + _ROWS])[1]
            at = index[i : i + _ROWS]
            parts.append(self.log_prior[at] - np.log(sampled[np.arange(len(at)), at]))
        return np.concatenate(parts)

    def mean_logs(self, latent: Array, y: Array, uniform: Array) -> Array:
        parts = []
        for i in range(0, len(y), _ROWS):
            log_q = self._log_probabilities(y[i : i + _ROWS])
            density = log_q + self.log_cloud
            at = np.take_along_axis(density, latent[i : i + _ROWS].astype(int), axis=1)[:, 0]
            parts.append(np.stack([at, (np.exp(log_q) * density).sum(axis=1)], axis=1))
        return np.concatenate(parts)

    @cached_property
    def _white(self) -> Array:
        """Samples (K, n, p) in the units of each component."""
        return np.asarray(np.einsum("kij,nj->kni", self._factors[1], self.prior.samples))

    def _log_probabilities(self, y: Array) -> Array:
        """log q (T, n) of all samples."""
        weights, means = self._parts(y)
        _, inverse, logs = self._factors
        density = np.full((len(y), len(self.prior.samples)), 1e-300)
        for c, white in enumerate(self._white):
            # Given the data, few of the components count.
            rows = np.flatnonzero(weights[:, c] > _IDLE)
            center = whitened(inverse[c], means[rows, c])
            square = np.einsum("ti,ni->tn", center, -2.0 * white)
            square += (white**2).sum(axis=1)
            square += (center**2).sum(axis=1)[:, None]
            square *= -0.5
            square += (weights[rows, c] - logs[c])[:, None]
            density[rows] += np.exp(square, out=square)
        density *= np.exp(self.log_prior - self.log_cloud)
        density /= density.sum(axis=1, keepdims=True)
        return with_share(self.share, np.log(density), self.log_prior)


Proposal = NormalProposal | SampleProposal
"""q(θ | y): draws with their log weights, and densities."""


def with_share(share: float, log_q: Array, log_prior: Array) -> Array:
    """Log of a mixture of q and a share of the prior."""
    if share == 0:
        return log_q
    return np.logaddexp(math.log1p(-share) + log_q, math.log(share) + log_prior)


def fit_proposal(
    simulations: Simulations, most: int, law: Law, own: tuple[int, ...], until: float = np.inf
) -> tuple[Proposal, int]:
    """A proposal from at most that many simulations, and their number; the best at a time `until`.

    Components double while held-out data gain by it, and simulations with them. A quarter of the
    simulations is held out. Where the prior has a heavy tail, so does the choice of coordinates.
    """
    if isinstance(law, Empirical):
        return _grown(simulations, most, law, until)
    found, n = _grown(simulations, most, None, until)
    if (parameters := Parameters.heavy(law, own)) is not None:
        other, more = _grown(simulations, most, parameters, until)
        n = max(n, more)
        if other.score > found.score:
            found = other
    return found, n


def _grown(
    simulations: Simulations,
    most: int,
    prior: Empirical | Parameters | None,
    until: float,
) -> tuple[Proposal, int]:
    n = min(_FEWEST, most)
    found, tried = _fitted(*simulations(n), None, prior), 1
    start = found
    while 2 * tried <= MOST_COMPONENTS and time.perf_counter() < until:
        tried *= 2
        more = min(most, max(n, tried * _FOR_EACH))
        if more < tried * _FOR_EACH // 2:
            break
        if more > n:  # scores are comparable on the same simulations only
            n = more
            found = _fitted(*simulations(n), found.mixture, prior)
        start = _fitted(*simulations(n), start.mixture.split(), prior)
        gain = start.score - found.score
        if gain > 0:
            found = start
        if gain < _WORTHWHILE and tried >= 4:
            break
    return found, n


def _fitted(
    latent: Array, y: Array, start: Mixture | None, prior: Empirical | Parameters | None
) -> Proposal:
    n, z, slope = 3 * len(y) // 4, latent, np.zeros(())
    if isinstance(prior, Parameters):
        latent, slope = prior.at(z), prior.log_slope(z[n:])
    summary = Summary.of(latent[:n], y[:n])
    residual = (latent - summary.prediction(y)) / summary.spread
    x = np.concatenate([residual, summary.given(y)], axis=1)
    mixture = one_normal(x[:n]) if start is None else start.fitted(x[:n])
    conditional = Conditional.of(mixture, latent.shape[1])
    joint = logsumexp(mixture.log_parts_fast(x[n:]), axis=1)
    given = logsumexp(conditional.given.log_parts_fast(x[n:, latent.shape[1] :]), axis=1)
    log_q = joint - given - np.log(summary.spread).sum() + slope
    if isinstance(prior, Empirical):
        parts, log_prior = (
            (summary, conditional, mixture),
            np.log(np.maximum(prior.weights, 1e-300)),
        )
        return SampleProposal(
            *parts, _SHARES[1], float(log_q.mean()), prior, log_prior, _cloud(prior)
        )
    # One normal may be the posterior itself. Elsewhere, tails that few simulations show count.
    shares = _SHARES if mixture.size == 1 else _SHARES[1:]
    scores = {x: float(with_share(x, log_q, log_normal(z[n:])).mean()) for x in shares}
    share = max(scores, key=lambda x: scores[x])
    return NormalProposal(summary, conditional, mixture, share, scores[share], prior)


@lru_cache(maxsize=4)
def _cloud(prior: Empirical) -> Array:
    """Log density (n,) of weighted samples by a mixture of eight normals, in their own units."""
    mean = prior.weights @ prior.samples
    sd = np.sqrt(prior.weights @ (prior.samples - mean) ** 2)
    x = (prior.samples - mean) / np.where(sd > 0, sd, 1.0)
    levels = (np.arange(4096) + 0.5) / 4096
    rows = x[np.searchsorted(np.cumsum(prior.weights)[:-1], levels)]
    mixture = one_normal(rows)
    for _ in range(3):
        mixture = mixture.split().fitted(rows)
    return np.asarray(logsumexp(mixture.log_parts(x), axis=1))
