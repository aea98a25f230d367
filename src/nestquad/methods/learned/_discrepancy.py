"""Discrepancy J − Ĵ given Ĵ: its mean and variance, learned from pairs of fresh draws.

Two draws of x at the same θ have residuals r = g − ĝ that are independent given θ, of mean J − Ĵ:
their mean shows the bias of Ĵ, and their product (J − Ĵ)², free of the noise of x. Both are
Gaussian processes over normal scores of Ĵ (Kennedy and O'Hagan 2001, Bayesian calibration of
computer models), with priors of the size of the errors that the model claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Protocol

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array, Indices


@dataclass(frozen=True)
class DiscrepancySettings:
    """Tuning numbers of the discrepancy.

    Attributes
    ----------
    places
        Places in normal scores at which the bias is drawn, with lines between them: with half of
        them the chord of a convex bias leaves the data in the tails.
    bias_lengths
        Scales of scores on which the bias varies.
    pairs_a_bin, most_bins
        Pairs of a bin, which show its variance to a third, and the largest number of bins.
    variance_width
        Scale of the Laplace prior of log(size / claimed size) of the variance: claims of models
        may be wrong by orders of magnitude.
    slope_width
        Standard deviation of the slope of the log variance: 0.6 is a factor of ten between the
        median and the 99.99 % quantile.
    claims, shares, lengths
        Shapes of the unexplained variance: powers of the claimed variance, sizes of processes
        about them relative to them, and scales of scores on which these vary.
    least
        Least share of the prior variance that a bin may show: products may be negative.
    doubtful
        Where the mean product exceeds that of v by one standard error, as a sixth of the runs does
        by chance, one draw in so many takes it: it widens the interval, and the median stays. Not
        for residuals relative to a small Ĵ, whose heavy tails pass it often.
    """

    places: int = 49
    bias_lengths: tuple[float, ...] = (0.7, 2.0)
    pairs_a_bin: int = 16
    most_bins: int = 48
    variance_width: float = 1.0
    slope_width: float = 0.6
    claims: tuple[float, ...] = (0.0, 0.5, 1.0)
    shares: tuple[float, ...] = (0.0, 0.3, 1.0, 3.0)
    lengths: tuple[float, ...] = (0.3, 1.0)
    least: float = 0.1
    doubtful: int = 4


DISCREPANCY = DiscrepancySettings()


class ScoredLaw(Protocol):
    """Law of Ĵ: sorted values s (n,), normal scores z (n,) of their ranks, and the variance.

    `steps` says whether J takes given values only.
    """

    @property
    def s(self) -> Array: ...

    @property
    def z(self) -> Array: ...

    @property
    def variance(self) -> float: ...

    @property
    def steps(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class Scores:
    """Law of Ĵ over dense θ."""

    s: Array
    z: Array
    variance: float
    steps: bool = False

    @classmethod
    def of(cls, j: Array, weights: Array) -> Scores:
        """Scores of Ĵ (M,) at θ that weigh (M,)."""
        order = np.argsort(j, kind="stable")
        share = weights[order] / weights.sum()
        rank = np.cumsum(share) - 0.5 * share
        s = j[order]
        variance = float(share @ (s - share @ s) ** 2)
        return cls(s, ndtri(np.clip(rank, 1e-12, 1.0 - 1e-12)), variance)

    def __call__(self, j: Array) -> Array:
        """Normal scores of other values."""
        return np.asarray(np.interp(j, self.s, self.z))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Two residuals r = g − ĝ of a loss at m scenarios: independent given θ, of mean J − Ĵ.

    `expected` are squares of errors of Ĵ that are expected beforehand. `node` says which scenario
    it is, as several pairs may have the same; `count` says how many residuals each of a pair is the
    mean of. `along` is the coordinate on which J − Ĵ depends; None if that is Ĵ. Shapes: s = Ĵ
    (m,), r (m, 2), all others (m,).
    """

    s: Array
    r: Array
    weights: Array
    expected: Array
    node: Indices | None = None
    count: Array | None = None
    along: Array | None = None

    def after(self, n: int) -> Pairs:
        """All but the first n pairs."""
        along = None if self.along is None else self.along[n:]
        known = self.s[n:], self.r[n:], self.weights[n:], self.expected[n:]
        return Pairs(*known, along=along)

    def by_scenario(self) -> Pairs:
        """One pair for each scenario, of the means of its draws.

        All draws at a scenario tell its J, which is one number: they are not a sample of others.
        """
        if self.node is None:
            return self
        node, first = np.unique(self.node, return_index=True)
        weights: Array = np.bincount(self.node, self.weights)[node].astype(float)
        count = np.bincount(self.node)[node].astype(float)
        r = self.mean_of(self.r)
        along = None if self.along is None else self.along[first]
        return Pairs(self.s[first], r, weights, self.expected[first], node, count, along)

    def mean_of(self, values: Array) -> Array:
        """Means by scenario of values (m, ·)."""
        if self.node is None:
            return values
        node, group, count = np.unique(self.node, return_inverse=True, return_counts=True)
        flat = values.reshape(len(values), -1).T
        means = np.stack([np.bincount(group, one, len(node)) / count for one in flat], axis=1)
        return np.asarray(means.reshape(len(node), *values.shape[1:]))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Pairs in bins of equal numbers, by the score z (m,) of their Ĵ.

    `least` is a variance below which errors of Ĵ are rounding.
    """

    pairs: Pairs
    z: Array
    least: float
    most_bins: int = DISCREPANCY.most_bins

    @cached_property
    def bins(self) -> Indices:
        n = len(self.z)
        found = np.empty(n, dtype=np.intp)
        count = int(np.clip(n // DISCREPANCY.pairs_a_bin, 2, self.most_bins))
        found[np.argsort(self.z, kind="stable")] = np.arange(n) * count // n
        return found

    def means(self, values: Array) -> Array:
        """Weighted means of values (m,) in each bin."""
        total = np.bincount(self.bins, self.pairs.weights)
        return np.asarray(np.bincount(self.bins, self.pairs.weights * values) / total)

    def noise(self, away: Array) -> Array:
        """Variances of these means, from deviations (m,).

        The larger of that of the bin and the geometric mean over seven bins: variances of single
        bins would favor bins with small values, and an arithmetic mean carries the noise of large
        Ĵ to small ones, where it hides a bias.
        """
        weights = self.pairs.weights
        number = np.bincount(self.bins, weights) ** 2 / np.bincount(self.bins, weights**2)
        each = self.means(away**2) * number / np.maximum(number - 1.0, 0.5)
        logs = np.log(np.maximum(each, 1e-300))
        near = np.exp([logs[max(k - 3, 0) : k + 4].mean() for k in range(len(each))])
        return np.asarray(np.maximum(each, near) / number)

    @cached_property
    def claimed(self) -> Array:
        """Squares of errors that the model expects: medians of three neighboring bins at a time."""
        each, last = self.pairs.expected, int(self.bins.max())
        near = [each[np.abs(self.bins - k) <= 1] for k in range(last + 1)]
        return np.array([np.median(one) for one in near]) + self.least

    @cached_property
    def pair_noise(self) -> Array:
        """Variance (m,) of the noise in the mean of a pair, that of its bin.

        Variances of single pairs would shrink means of pairs more the larger they are.
        """
        count = np.ones(1) if self.pairs.count is None else self.pairs.count
        own = 0.25 * (self.pairs.r[:, 0] - self.pairs.r[:, 1]) ** 2
        return np.asarray(self.means(own * count)[self.bins] / count)


def draw_bias(
    law: ScoredLaw,
    seen: Evidence,
    n_draws: int,
    rng: np.random.Generator,
    width: float = 2.0,
    larger: float | None = None,
    lengths: tuple[float, ...] = DISCREPANCY.bias_lengths,
) -> Array:
    """b at the nodes, (1 + K, n): a Gaussian process over scores, constant plus smooth.

    Its size and scale are averaged over their posterior; where residuals show no bias, it vanishes.
    The prior is of the size of the error that the model expects of itself, wherever that is:
    log(size / claimed size) has a Laplace distribution with scale `width`, and with another scale
    for sizes that are `larger`.
    """
    mean = seen.pairs.r.mean(axis=1)
    at, y = seen.means(seen.z), seen.means(mean)
    n_places = max(DISCREPANCY.places, len(at) + 1)
    places = np.linspace(law.z[0], law.z[-1], n_places)
    if n_places > DISCREPANCY.places:  # as fine as the bins
        places = np.unique(np.concatenate([places[:: n_places // DISCREPANCY.places], at]))
    scale = float(np.sqrt(np.median(seen.claimed)))
    sd = np.sqrt(seen.noise(mean - y[seen.bins]) + 1e-14 * scale**2)
    both, n = np.concatenate([at, places]), len(at)
    shape = np.exp(0.5 * np.interp(both, at, np.log(seen.claimed))) / scale
    # From 1e-4 of the claimed size to three times the largest mean residual.
    sizes = np.geomspace(1e-4 * scale, max(10.0 * scale, 3.0 * float(np.abs(y).max())), 24)
    away, above = np.log(sizes / scale), larger or width
    prior, logs, kinds = np.maximum(-away / width, away / above), [], []
    for length in lengths:
        k = 0.5 + 0.5 * np.exp(-0.5 * ((both[:, None] - both) / length) ** 2)
        k *= shape[:, None] * shape
        # A bias is known to a hundredth of its size at best: kernels are nearly singular.
        observed = (k[:n, :n] + np.diag(1e-4 * np.diag(k)[:n])) / np.outer(sd, sd)
        spectrum, axes = np.linalg.eigh(observed)
        variance, seen_along = np.outer(sizes**2, np.maximum(spectrum, 0.0)), axes.T @ (y / sd)
        fits = -0.5 * (seen_along**2 / (1.0 + variance) + np.log1p(variance)).sum(axis=1)
        logs.append(fits - prior)
        kinds.append((k[n:, n:], (k[n:, :n] / sd) @ axes, 1.0 / (1.0 + variance), seen_along))
    chance = np.exp(np.array(logs) - np.max(logs))
    chance /= chance.sum()
    means = [
        (chance[i] * sizes**2) @ (gain * seen_along) @ cross.T
        for i, (_, cross, gain, seen_along) in enumerate(kinds)
    ]
    drawn = [np.sum(means, axis=0)[None]]
    counts = np.bincount(rng.choice(chance.size, n_draws, p=chance.ravel()))
    for h in np.flatnonzero(counts):
        i, j = divmod(int(h), len(sizes))
        (own, cross, gain, seen_along), square = kinds[i], sizes[j] ** 2
        cov = square * (own - square * (cross * gain[j]) @ cross.T)
        # Rounding may make the covariance of a smooth process slightly indefinite.
        size, axes = np.linalg.eigh(cov)
        noise = rng.standard_normal((counts[h], len(places))) * np.sqrt(np.maximum(size, 0.0))
        drawn.append(square * cross @ (gain[j] * seen_along) + noise @ axes.T)
    return np.stack([np.interp(law.z, places, one) for one in np.concatenate(drawn)])


def draw_variances(
    law: ScoredLaw,
    seen: Evidence,
    b: Array,
    n_draws: int,
    rng: np.random.Generator,
    clearly: float = 1.0,
    widened: bool = True,
) -> Array:
    """v at the nodes, (1 + K, n), by Bayes' rule from mean products of two residuals in bins.

    The noise of x cancels in products. The prior is a Gaussian process about a multiple of
    claimed^κ exp(slope · score), of a size that is a share τ of it: claims of the model
    count as far as pairs confirm them. All of these are averaged over their posterior. Where
    the mean product over all pairs exceeds the mean of v by more than `clearly` standard errors, it
    takes its place, and no draw is below that limit: bins with few large errors show less than all
    of them together.
    """
    r = seen.pairs.r - np.interp(seen.z, law.z, b)[:, None]
    weights, products = seen.pairs.weights, r[:, 0] * r[:, 1]
    at, y, claimed = seen.means(seen.z), seen.means(products), seen.claimed
    # Without noise, products are known up to rounding.
    sd = np.sqrt(seen.noise(products - y[seen.bins]) + (1e-6 * (np.abs(y) + claimed)) ** 2)
    typical, middle = float(np.median(claimed)), float(np.median(at))
    # Beyond the largest observed: a model without explanatory power may claim a small error.
    most = 3.0 * max(law.variance, float(y.max())) / typical
    levels, shares = np.meshgrid(np.geomspace(1e-9, max(30.0, most), 240), DISCREPANCY.shares)
    level, share = levels.ravel()[:, None], shares.ravel()[:, None]
    surprise = np.abs(0.5 * np.log(level[:, 0])) / DISCREPANCY.variance_width
    # Each kind in units of the noise and along axes in which the process is independent.
    kinds, logs = [], []
    for kappa, slope, length in product(
        DISCREPANCY.claims, (-2.0, -1.0, 0.0, 1.0, 2.0), DISCREPANCY.lengths
    ):
        mean = typical * (claimed / typical) ** kappa
        mean *= np.exp(slope * DISCREPANCY.slope_width * (at - middle))
        kernel = 0.5 + 0.5 * np.exp(-0.5 * ((at[:, None] - at) / length) ** 2)
        size, axes = np.linalg.eigh(kernel * np.outer(mean / sd, mean / sd))
        prior = level * (axes.T @ (mean / sd))
        variance = (level * share) ** 2 * np.maximum(size, 0.0)
        away = axes.T @ (y / sd) - prior
        fits = -0.5 * (away**2 / (1.0 + variance) + np.log1p(variance)).sum(axis=1)
        logs.append(fits - surprise - 0.5 * slope**2)
        gain = variance / (1.0 + variance)
        kinds.append((mean, axes, prior + gain * away, gain))
    chance = np.exp(np.array(logs) - np.max(logs))
    chance /= chance.sum()
    picked = np.unravel_index(rng.choice(chance.size, n_draws, p=chance.ravel()), chance.shape)
    fits = [sum(chance[k] @ fit @ axes.T for k, (_, axes, fit, _) in enumerate(kinds))]
    least = [sum(chance[k] @ level * mean for k, (mean, *_) in enumerate(kinds))]
    for k, h in zip(*picked, strict=True):
        mean, axes, fit, gain = kinds[k]
        fits.append(axes @ (fit[h] + np.sqrt(gain[h]) * rng.standard_normal(len(at))))
        least.append(level[h] * mean)
    found = np.maximum(sd * np.array(fits), DISCREPANCY.least * np.array(least))
    share = weights / weights.sum()
    total, size = float(share @ products), found[:, seen.bins] @ share
    standard_error = float(np.linalg.norm(share * (products - total)))
    lowest = total - clearly * standard_error
    if lowest > size[0]:
        shown = total + standard_error * np.append(0.0, rng.standard_normal(n_draws))
        found *= np.maximum(1.0, np.maximum(shown, lowest) / size)[:, None]
    elif widened and total - standard_error > size[0]:
        some = 1 + np.arange(n_draws // DISCREPANCY.doubtful)
        found[some] *= np.maximum(1.0, total / size[some])[:, None]
    if law.steps:
        # A scenario has one (J − Ĵ)², however often it is drawn, and products of few of them vary
        # little: v is known as well as its mean over all.
        error = np.linalg.norm(weights * (products - weights @ products / weights.sum()))
        unsure = min(float(error / (weights @ found[0, seen.bins])), 1.0)
        found[1:] *= np.exp(unsure * rng.standard_normal((n_draws, 1)))
    return np.asarray(np.exp([np.interp(law.z, at, one) for one in np.log(found)]))
