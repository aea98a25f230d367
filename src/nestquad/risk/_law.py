"""Law of J: that of a model Ĵ, corrected by pairs of fresh draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.special import ndtr, ndtri

from nestquad._typing import Array, Indices

# Nodes of the law of Ĵ, evenly in normal scores of its ranks: neighbors are 0.005 standard
# deviations apart, and their spread counts. Corrections vary on the scale of 1.
_NODES, _PLACES = 1800, 25
# Pairs of a bin, so that its variance is known to a third; and the most bins.
_PAIRS_A_BIN, _MOST_BINS = 16, 48
# Draws of the correction: their spread is known to 6 %.
DRAWS = 128
# Widths of priors: a size of the correction that is e times as large or as small as what the model
# expects is as many times less likely. Models are often wrong about themselves, now and then by
# orders of magnitude, so the prior has long tails. A slope of 0.6 is a factor of ten between the
# median and the 99.99 % quantile.
_BIAS_WIDTH, _VARIANCE_WIDTH, _SLOPE_WIDTH = 2.0, 1.0, 0.6


@dataclass(frozen=True, eq=False)
class Pairs:
    """Two residuals r = g − ĝ of a loss at m scenarios: independent given θ, of mean J − Ĵ.

    `expected` are squares of errors of Ĵ that are expected beforehand. Shapes: s = Ĵ (m,), r
    (m, 2), weights and expected (m,).
    """

    s: Array
    r: Array
    weights: Array
    expected: Array


@dataclass(frozen=True, eq=False)
class CorrectedLaw:
    """J = Ĵ + b(Ĵ) + √v(Ĵ) N: normal given Ĵ, with b and v from pairs.

    Attributes
    ----------
    s, spread, z
        Nodes of Ĵ, the variance of Ĵ within each, and normal scores of their ranks.
    mass
        Probability of each node by replicate (R, n).
    b, v
        Correction at the nodes: the best (first row), and draws of it (1 + K, n).
    node
        The node of each dense θ.
    """

    s: Array
    spread: Array
    z: Array
    mass: Array
    b: Array
    v: Array
    node: Indices = field(repr=False)

    @cached_property
    def m(self) -> Array:
        return np.asarray(self.s + self.b)

    @cached_property
    def e(self) -> Array:
        return np.sqrt(self.v + self.spread)

    @cached_property
    def weights(self) -> Array:
        """Of the nodes, all replicates together."""
        return np.asarray(self.mass.mean(axis=0))

    @cached_property
    def variance(self) -> float:
        """Of Ĵ."""
        return float(self.weights @ (self.s - self.weights @ self.s) ** 2)

    def survival(self, c: Array | float, rows: slice = slice(None)) -> Array:
        """P(J > c) (1 + K,) by each draw of the correction, for c (1 + K,) or a number."""
        return np.asarray(self._conditional(c, rows) @ self.weights)

    def _conditional(self, c: Array | float, rows: slice) -> Array:
        at = np.broadcast_to(c, len(self.m[rows]))[:, None]
        return np.asarray(ndtr((self.m[rows] - at) / self.e[rows]))

    def undecided(self, c: float) -> float:
        """E[P(1 − P)] / E[P] of P = P(J > c | Ĵ): the share of J > c that Ĵ does not decide."""
        found = ndtr((self.m[0] - c) / np.sqrt(self.v[0] + 1e-300))
        total = float(found @ self.weights)
        return float((found * (1.0 - found)) @ self.weights) / total if total > 0 else 1.0

    def density(self, c: Array, rows: slice = slice(None)) -> Array:
        t = (self.m[rows] - np.asarray(c)[:, None]) / self.e[rows]
        each = np.exp(-0.5 * t**2) / (np.sqrt(2.0 * np.pi) * self.e[rows])
        return np.asarray(each @ self.weights)

    def _excesses(self, c: Array | float, rows: slice = slice(None)) -> Array:
        e = self.e[rows]
        t = (self.m[rows] - np.broadcast_to(c, len(e))[:, None]) / e
        return np.asarray(e * (t * ndtr(t) + np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)))

    def excess(self, c: Array | float, rows: slice = slice(None)) -> Array:
        """E max(J − c, 0) by each draw."""
        return self._excesses(c, rows) @ self.weights

    def quantile(self, p: float, rows: slice = slice(None)) -> Array:
        """The p-quantile by each draw: Newton's steps, halving where they leave the bracket."""
        m, e = self.m[rows], self.e[rows]
        low, high = (m - 8.0 * e).min(axis=1), (m + 8.0 * e).max(axis=1)
        order = np.argsort(m[0], kind="stable")
        at = min(int(np.searchsorted(np.cumsum(self.weights[order]), p)), len(order) - 1)
        c = m[:, order[at]]
        for _ in range(60):
            over = self.survival(c, rows) - (1.0 - p)
            low, high = np.where(over > 0, c, low), np.where(over > 0, high, c)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = c + over / self.density(c, rows)
            inside = (step > low) & (step < high)
            new = np.where(inside, step, 0.5 * (low + high))
            done = np.abs(new - c) <= 1e-9 * np.maximum(np.abs(c), e.mean(axis=1))
            c = new
            if done.all():
                break
        return np.asarray(c)

    # Errors of the dense average: what each replicate of θ says, less the mean.

    def replicate_survival(self, c: float) -> Array:
        return self._by_replicate(self._conditional(c, slice(0, 1))[0])

    def replicate_excess(self, c: float) -> Array:
        return self._by_replicate(self._excesses(c, slice(0, 1))[0])

    def replicate_mean(self) -> Array:
        return self._by_replicate(self.m[0])

    def _by_replicate(self, values: Array) -> Array:
        found = self.mass @ values
        n = len(found)
        return np.zeros(1) if n < 2 else (found - found.mean()) / np.sqrt(n * (n - 1.0))

    def near(self, c: float, width: float) -> Array:
        """Weights (n,) of the nodes given that J is near c, within a standard deviation."""
        found = np.exp(-0.5 * (self.m[0] - c) ** 2 / (self.e[0] ** 2 + width**2))
        found = self.weights * found / np.sqrt(self.e[0] ** 2 + width**2)
        return np.asarray(found / max(float(found.sum()), 1e-300))

    def beyond(self, c: float) -> Array:
        """Weights (n,) of the nodes given J > c."""
        found = self.weights * self._conditional(c, slice(0, 1))[0]
        return np.asarray(found / found.sum())


def nodes_of(s: Array, weights: Array, owner: Indices) -> CorrectedLaw:
    """The law of Ĵ (M,) over dense θ with weights (M,), in replicates, without a correction."""
    order = np.argsort(s, kind="stable")
    n_sets = int(owner.max()) + 1
    totals = np.bincount(owner, weights, n_sets)
    share = weights / totals[owner] / n_sets
    rank = np.empty(len(s))
    rank[order] = np.cumsum(share[order]) - 0.5 * share[order]
    z = ndtri(np.clip(rank, 1e-12, 1.0 - 1e-12))
    reach = float(np.abs(z).max()) * (1.0 + 1e-9)
    where = np.floor((z + reach) / (2.0 * reach) * _NODES).astype(np.intp)
    used, node = np.unique(where, return_inverse=True)
    cells = np.bincount(owner * len(used) + node, share * n_sets, n_sets * len(used))
    mass: Array = np.asarray(cells.reshape(n_sets, -1), dtype=np.float64)
    total = np.maximum(mass.mean(axis=0), 1e-300)
    middle, score = (np.bincount(node, share * one) / total for one in (s, z))
    spread = np.bincount(node, share * (s - middle[node]) ** 2) / total
    # Narrower than 0.6 of the distance between nodes, a sum of normal densities has ripples.
    gaps = np.diff(middle, prepend=-np.inf, append=np.inf)
    near = 0.6 * np.nan_to_num(np.minimum(gaps[:-1], gaps[1:]), posinf=0.0)
    least = 1e-9 * max(float(s.std()), 1e-9 * float(np.abs(s).max()), 1e-100)
    spread = np.maximum(spread, np.maximum(near, least) ** 2)
    none = np.zeros((1, len(used)))
    return CorrectedLaw(middle, spread, score, mass, none, none, node)


@dataclass(frozen=True, eq=False)
class Smoother:
    """A Gaussian process over scores z, observed in bins; linear in the means of bins.

    Attributes
    ----------
    bins
        The bin of each pair.
    places, matrix
        Scores at which a correction is given, and its weights (places, bins) on means of bins.
    """

    bins: Indices
    weights: Array
    places: Array
    matrix: Array

    def means(self, values: Array) -> Array:
        total = np.bincount(self.bins, self.weights)
        return np.asarray(np.bincount(self.bins, self.weights * values) / total)

    def medians(self, values: Array) -> Array:
        """Medians of three neighboring bins at a time."""
        each = [values[np.abs(self.bins - k) <= 1] for k in range(self.bins.max() + 1)]
        return np.array([np.median(one) for one in each])

    def at(self, values: Array, z: Array) -> Array:
        """The smoothed values (m,) of pairs at scores z."""
        return np.asarray(np.interp(z, self.places, self.matrix @ self.means(values)))


def corrected(law: CorrectedLaw, pairs: Pairs, rng: np.random.Generator) -> CorrectedLaw:
    """The law with b and v learned from pairs.

    b is a Gaussian process over normal scores, constant plus smooth, whose size and scale are
    averaged over their posterior; where residuals show no bias, it vanishes. v = Var(J | Ĵ) is the
    mean product of two residuals, in which the noise of x cancels. Both have priors of the size
    of the error that the model expects of itself.
    """
    z = np.interp(pairs.s, law.s, law.z)
    mean = pairs.r.mean(axis=1)
    order = np.argsort(z, kind="stable")
    count = int(np.clip(len(z) // _PAIRS_A_BIN, 2, _MOST_BINS))
    bins = np.empty(len(z), dtype=np.intp)
    bins[order] = np.arange(len(z)) * count // len(z)
    weights = pairs.weights
    places = np.linspace(law.z[0], law.z[-1], _PLACES)
    base = Smoother(bins, weights, places, np.empty((0, count)))
    at, y = base.means(z), base.means(mean)
    noise = _noise(base, mean - y[bins])
    claimed = base.medians(pairs.expected) + max(1e-12 * law.variance, 1e-300)
    scale = float(np.sqrt(np.median(claimed)))
    # Bias: sizes from next to nothing to all of what is seen.
    most = max(10.0 * scale, 3.0 * float(np.abs(y).max()))
    sizes = np.geomspace(1e-4 * scale, most, 24)
    # Where the model expects larger errors, its bias may be larger.
    both = np.concatenate([at, places])
    shape = np.exp(0.5 * np.interp(both, at, np.log(claimed))) / scale
    logs, fits = [], []
    for length in (0.7, 2.0):
        k = 0.5 + 0.5 * np.exp(-0.5 * ((both[:, None] - both) / length) ** 2)
        k *= shape[:, None] * shape
        for size in sizes:
            cov = size**2 * k
            # Rounding of the kernel counts as noise where residuals have none.
            factor = cho_factor(
                cov[:count, :count] + np.diag(noise + 1e-10 * size**2 * shape[:count] ** 2),
                lower=True,
            )
            fit = cho_solve(factor, y)
            logs.append(
                -0.5 * float(y @ fit)
                - float(np.log(np.diag(factor[0])).sum())
                - abs(float(np.log(size / scale))) / _BIAS_WIDTH
            )
            gain = cho_solve(factor, cov[:count, count:]).T
            fits.append((gain, cov[count:, count:] - gain @ cov[:count, count:]))
    chance = np.exp(np.array(logs) - max(logs))
    chance /= chance.sum()
    matrix = np.einsum("h,hpb->pb", chance, np.stack([gain for gain, _ in fits]))
    smoother = Smoother(bins, weights, places, matrix)
    chosen = np.sort(rng.choice(len(chance), DRAWS, p=chance))
    drawn = np.empty((DRAWS, _PLACES))
    for h in np.unique(chosen):
        gain, cov = fits[h]
        jitter = 1e-9 * max(float(np.trace(cov)) / _PLACES, 1e-300) * np.eye(_PLACES)
        root = cholesky(cov + jitter, lower=True)
        rows = chosen == h
        drawn[rows] = gain @ y + rng.standard_normal((rows.sum(), _PLACES)) @ root.T
    b = np.stack([np.interp(law.z, places, one) for one in (matrix @ y, *drawn)])
    v = _variances(law, pairs, smoother, z, claimed, rng)
    return CorrectedLaw(law.s, law.spread, law.z, law.mass, b, v, law.node)


def _noise(smoother: Smoother, away: Array) -> Array:
    """Variances of weighted means of bins, from deviations (m,).

    Averages over seven bins: variances of single bins would favor those with small values.
    """
    weights, bins = smoother.weights, smoother.bins
    number = np.bincount(bins, weights) ** 2 / np.bincount(bins, weights**2)
    each = smoother.means(away**2) * number / np.maximum(number - 1.0, 0.5)
    smooth = np.array([each[max(k - 3, 0) : k + 4].mean() for k in range(len(each))])
    return np.asarray(np.maximum(smooth, 1e-300) / number)


def _variances(
    law: CorrectedLaw,
    pairs: Pairs,
    smoother: Smoother,
    z: Array,
    claimed: Array,
    rng: np.random.Generator,
) -> Array:
    """v at the nodes, (1 + K, n): what is claimed in each bin, times an exponential in the score.

    Level and slope of the exponential follow by Bayes' rule.
    """
    r = pairs.r - smoother.at(pairs.r.mean(axis=1), z)[:, None]
    products = r[:, 0] * r[:, 1]
    weights = smoother.weights
    at, y = smoother.means(z), smoother.means(products)
    # Fitting b takes its degrees of freedom out of the residuals.
    freedom = float(np.trace(smoother.matrix @ _nearest(at, smoother.places)))
    y = y + freedom / len(z) * float(weights @ r.mean(axis=1) ** 2 / weights.sum())
    noise = _noise(smoother, products - y[smoother.bins])
    center = float(np.median(at))
    levels = np.geomspace(1e-9, max(30.0, 3.0 * law.variance / float(np.median(claimed))), 80)
    slopes = _SLOPE_WIDTH * np.linspace(-2.0, 2.0, 9)
    shape = claimed * np.exp(slopes[:, None] * (at - center))
    fit = levels[:, None, None] * shape
    logs = -0.5 * ((y - fit) ** 2 / noise).sum(axis=2)
    logs = logs - np.abs(0.5 * np.log(levels) / _VARIANCE_WIDTH)[:, None]
    logs = logs - 0.5 * (slopes / _SLOPE_WIDTH) ** 2
    chance = np.exp(logs - logs.max()).ravel()
    chance /= chance.sum()
    far = np.clip(law.z, at[0], at[-1]) - center
    base = np.exp(np.interp(law.z, at, np.log(claimed)))
    every = (levels[:, None, None] * base * np.exp(slopes[:, None] * far)).reshape(-1, len(far))
    chosen = rng.choice(len(chance), DRAWS, p=chance)
    return np.concatenate([(chance @ every)[None], every[chosen]])


def _nearest(at: Array, places: Array) -> Array:
    """Interpolation (bins, places) at scores of bins."""
    return np.stack([np.interp(at, places, row) for row in np.eye(len(places))], axis=1)
