"""Law of J: that of a model Ĵ, corrected by pairs of fresh draws."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.special import ndtr, ndtri

from nestquad._typing import Array, Indices
from nestquad.methods.nested import few_event_errors

# Nodes of the law of Ĵ, evenly in normal scores of its ranks: neighbors are 0.005 standard
# deviations apart, and their spread counts. Corrections vary on the scale of 1.
_NODES, _PLACES = 1800, 25
# Pairs of a bin, so that its variance is known to a third; and the most bins.
_PAIRS_A_BIN, _MOST_BINS = 16, 48
# Normal laws of pairs: a limit of time.
_MOST_SHAPES = 1024
# Draws of the correction: their spread is known to 6 %.
DRAWS = 128
# Widths of priors: a size of the correction that is e times as large or as small as what the model
# expects is as many times less likely. Models are often wrong about themselves, now and then by
# orders of magnitude, so the prior has long tails. A slope of 0.6 is a factor of ten between the
# median and the 99.99 % quantile.
_BIAS_WIDTH, _VARIANCE_WIDTH, _SLOPE_WIDTH = 2.0, 1.0, 0.6
# Least share of the fitted variance that a bin may show: products may be negative.
_LEAST = 0.1


@dataclass(frozen=True, eq=False)
class Pairs:
    """Two residuals r = g − ĝ of a loss at m scenarios: independent given θ, of mean J − Ĵ.

    `expected` are squares of errors of Ĵ that are expected beforehand. Where scenarios are given
    ones, `scenario` says which, and `chance` has its probability; `count` says how many residuals
    each of a pair is the mean of. Shapes: s = Ĵ (m,), r (m, 2), all others (m,).
    """

    s: Array
    r: Array
    weights: Array
    expected: Array
    scenario: Indices | None = None
    chance: Array | None = None
    count: Array | None = None

    def by_scenario(self) -> Pairs:
        """One pair for each given scenario, of the means of its draws.

        All draws at a scenario tell its J, which is one number: they are not a sample of others.
        """
        if self.scenario is None or self.chance is None:
            return self
        _, first, group = np.unique(self.scenario, return_index=True, return_inverse=True)
        count = np.bincount(group).astype(float)
        r = np.stack([np.bincount(group, one) / count for one in self.r.T], axis=1)
        weights: Array = np.bincount(group, self.weights).astype(float)
        return Pairs(
            self.s[first],
            r,
            weights,
            self.expected[first],
            self.scenario[first],
            self.chance[first],
            count,
        )


@dataclass(frozen=True, eq=False)
class CorrectedLaw:
    """J = Ĵ + b(Ĵ) + √v(Ĵ) N over dense θ, with b and v from pairs, and what pairs say beyond that.

    Given Ĵ, J is normal only where nothing else is seen: J given the draws of a pair is another
    normal law, and the difference of the two, averaged over pairs, is part of the law. It vanishes
    on average where J is normal, and where the noise of x hides J. Where residuals show J itself,
    as at a jump of J that the model smooths, the law is that of the pairs.

    A law is a sum of normal laws with weights: n of the nodes of Ĵ, then those of pairs in place of
    others, whose weights are negative.

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
    shape
        Weights, means and variances (1 + K, l) of the normal laws of pairs.
    atoms
        Whether θ are given scenarios: pairs tell of one each, and are no sample of others.
    """

    s: Array
    spread: Array
    z: Array
    mass: Array
    b: Array
    v: Array
    node: Indices = field(repr=False)
    shape: tuple[Array, Array, Array] | None = field(default=None, repr=False)
    atoms: bool = False

    @cached_property
    def weights(self) -> Array:
        """Of the nodes, all replicates together."""
        return np.asarray(self.mass.mean(axis=0))

    @cached_property
    def variance(self) -> float:
        """Of Ĵ."""
        return float(self.weights @ (self.s - self.weights @ self.s) ** 2)

    @cached_property
    def normals(self) -> tuple[Array, Array, Array]:
        """Weights, means and standard deviations (1 + K, ·) of the normal laws."""
        m, e = self.s + self.b, np.sqrt(self.v + self.spread)
        weights = np.broadcast_to(self.weights, m.shape)
        if self.shape is None:
            return weights, m, e
        more, mean, variance = self.shape
        # Narrower than a node there is nothing to see.
        least = np.interp(mean[0], self.s, self.spread)
        e = np.hstack([e, np.sqrt(variance + least)])
        return np.hstack([weights, more]), np.hstack([m, mean]), e

    @property
    def m(self) -> Array:
        """Means (n,) of J at the nodes, by the best correction."""
        return np.asarray(self.s + self.b[0])

    @property
    def e(self) -> Array:
        """Standard deviations (n,) of J at the nodes."""
        return np.asarray(np.sqrt(self.v[0] + self.spread))

    def survival(self, c: Array | float, rows: slice = slice(None)) -> Array:
        """P(J > c) (1 + K,) by each draw of the correction, for c (1 + K,) or a number."""
        w, t, _ = self._scores(c, rows)
        return np.asarray((w * ndtr(t)).sum(axis=1))

    def density(self, c: Array | float, rows: slice = slice(None)) -> Array:
        w, t, e = self._scores(c, rows)
        return np.asarray((w * np.exp(-0.5 * t**2) / e).sum(axis=1) / np.sqrt(2.0 * np.pi))

    def excess(self, c: Array | float, rows: slice = slice(None)) -> Array:
        """E max(J − c, 0) by each draw."""
        w, t, e = self._scores(c, rows)
        return np.asarray((w * e * _positive(t)).sum(axis=1))

    def mean(self) -> Array:
        w, m, _ = self.normals
        return np.asarray((w * m).sum(axis=1))

    def _scores(self, c: Array | float, rows: slice) -> tuple[Array, Array, Array]:
        w, m, e = (one[rows] for one in self.normals)
        return w, (m - np.broadcast_to(c, len(m))[:, None]) / e, e

    def few(self, draws: int) -> CorrectedLaw:
        """The law with fewer draws of its correction."""
        rows = slice(0, 1 + draws)
        found = replace(self, b=self.b[rows], v=self.v[rows])
        if self.shape is None:
            return found
        w, m, v = self.shape
        return replace(found, shape=(w[rows], m[rows], v[rows]))

    def shape_error(self, c: float, excess: bool) -> float:
        """Standard error of P(J > c), or of E max(J − c, 0), by the shape of J given Ĵ.

        Few pairs may make it. And the third cumulant of a law by pairs is ρ³ times that of J: what
        noise hides of a shape is 1/ρ³ − 1 times what is seen beyond chance, and at most what Ĵ
        leaves undecided. Of given scenarios, those without draws are as many chances.
        """
        if self.shape is None:
            return 0.0
        if self.atoms:
            w, t, e = (one[0] for one in self._scores(c, slice(0, 1)))
            chance = ndtr(t)
            each = w * np.abs(w) * (e**2 * chance if excess else chance * (1.0 - chance))
            return float(np.sqrt(max(each[: len(self.s)].sum() + each[w < 0].sum(), 0.0)))
        w, t, e = (one[:, len(self.s) :] for one in self._scores(c, slice(None)))
        each = w * (e * _positive(t) if excess else ndtr(t))
        n = each.shape[1] // 2
        change = each.sum(axis=1)
        values = ((each[0, :n] + each[0, n:]) / np.maximum(w[0, :n], 1e-300))[:, None]
        few = float(few_event_errors(values, w[0, :n, None])[0])
        # Beyond two standard errors: 1/ρ³ is large where noise is, and would multiply chance.
        seen = float(np.sqrt(max(change[0] ** 2 - 4.0 * change[1:].var(), 0.0)))
        chance = ndtr(t[0, n:])
        open_ = w[0, :n] * chance * (1.0 - chance)
        after, before = np.split(self.shape[2][0], 2)
        # Rounding may leave more variance than there was.
        trust = 1.0 - after / np.maximum(np.maximum(before, after), 1e-300)
        trust = float(open_ @ trust) / max(float(open_.sum()), 1e-300)
        most = float(open_.sum() if not excess else (open_ * e[0, n:]).sum())
        hidden = min(seen * (1.0 / max(trust, 1e-3) ** 3 - 1.0), most)
        return float(np.hypot(few, hidden))

    def undecided(self, c: float, below: bool = False) -> float:
        """E[P(1 − P)] / E[P] of P = P(J > c | Ĵ): the share of J > c that Ĵ does not decide.

        With `below` that of J ≤ c.
        """
        found = ndtr((-1.0 if below else 1.0) * (self.m - c) / np.sqrt(self.v[0] + 1e-300))
        total = float(found @ self.weights)
        return float((found * (1.0 - found)) @ self.weights) / total if total > 0 else 1.0

    def quantile(self, p: float, rows: slice = slice(None)) -> Array:
        """The p-quantile by each draw: Newton's steps, halving where they leave the bracket."""
        _, m, e = (one[rows] for one in self.normals)
        low, high = (m - 8.0 * e).min(axis=1), (m + 8.0 * e).max(axis=1)
        at = min(int(np.searchsorted(np.cumsum(self.weights), p)), len(self.s) - 1)
        c = m[:, at]
        for _ in range(60):
            # Between two scenarios the first is the quantile.
            over = self.survival(c, rows) - (1.0 - p) - 1e-9 * self.atoms
            low, high = np.where(over > 0, c, low), np.where(over > 0, high, c)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                step = c + over / self.density(c, rows)
            inside = (step > low) & (step < high)
            new = np.where(inside, step, 0.5 * (low + high))
            done = np.abs(new - c) <= 1e-7 * np.maximum(np.abs(c), e[:, : len(self.s)].mean(axis=1))
            c = new
            if done.all():
                break
        return np.asarray(c)

    # Errors of the dense average: what each replicate of θ says, less the mean.

    def replicate_survival(self, c: float) -> Array:
        return self._by_replicate(ndtr((self.m - c) / self.e))

    def replicate_excess(self, c: float) -> Array:
        return self._by_replicate(self.e * _positive((self.m - c) / self.e))

    def replicate_mean(self) -> Array:
        return self._by_replicate(self.m)

    def _by_replicate(self, values: Array) -> Array:
        found = self.mass @ values
        n = len(found)
        return np.zeros(1) if n < 2 else (found - found.mean()) / np.sqrt(n * (n - 1.0))


def _positive(t: Array) -> Array:
    """E max(t + N, 0) of a standard normal N."""
    return np.asarray(t * ndtr(t) + np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi))


def nodes_of(s: Array, weights: Array, owner: Indices, atoms: bool = False) -> CorrectedLaw:
    """The law of Ĵ (M,) over dense θ with weights (M,), in replicates, without a correction.

    Between `atoms`, scenarios that are given, there is nothing.
    """
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
    spread = np.maximum(spread, np.maximum(0.0 if atoms else near, least) ** 2)
    none = np.zeros((1, len(used)))
    return CorrectedLaw(middle, spread, score, mass, none, none, node, atoms=atoms)


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
    pairs = pairs.by_scenario()
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
    return replace(law, b=b, v=v, shape=_shape(law, pairs, smoother, z, b, v, rng))


def _shape(
    law: CorrectedLaw,
    pairs: Pairs,
    smoother: Smoother,
    z: Array,
    b: Array,
    v: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array, Array]:
    """Normal laws (1 + K, 2 l) of J given pairs, and with negative weights given Ĵ alone.

    J given Ĵ is N(Ĵ + b, v). The mean r of two residuals adds noise of variance σ², so that J given
    both is N(Ĵ + b + ρ (r − b), (1 − ρ) v) with ρ = v / (v + σ²). Draws have weights of a Bayesian
    bootstrap. Pairs with like answers are taken together where there are many.
    """
    # Noise of neighbors, and of the pair itself: an outlier of one draw is not in the other.
    count = np.ones(1) if pairs.count is None else pairs.count
    own = 0.25 * (pairs.r[:, 0] - pairs.r[:, 1]) ** 2
    noise = np.maximum(smoother.means(own * count)[smoother.bins] / count, own)
    column = np.clip(np.searchsorted(law.z, z), 0, len(law.z) - 1)
    s, r = pairs.s, pairs.r.mean(axis=1)
    if pairs.chance is not None:
        chance = np.broadcast_to(pairs.chance, (len(b), len(s)))
    else:
        chance = rng.standard_exponential((len(b), len(z))) * pairs.weights
        chance[0] = pairs.weights
        chance = chance / chance.sum(axis=1)[:, None]
    b, v = b[:, column], v[:, column]
    trust = v / (v + noise + 1e-300)
    before, after, left = s + b, s + b + trust * (r - b), (1.0 - trust) * v
    if pairs.scenario is not None:
        after[1:] += np.sqrt(left[1:]) * rng.standard_normal(left[1:].shape)
        left[1:] = 0.0
        order, most = np.arange(len(s)), len(s)
    else:
        order, most = np.lexsort((r, smoother.bins)), _MOST_SHAPES
    starts = np.unique(np.arange(most) * len(s) // most)
    found = []
    for mean, variance in ((after, left), (before, v)):
        total, first_, second = (
            np.add.reduceat((chance * one)[:, order], starts, axis=1)
            for one in (np.ones(1), mean, mean**2 + variance)
        )
        center = first_ / np.maximum(total, 1e-300)
        spread = np.maximum(second / np.maximum(total, 1e-300) - center**2, 0.0)
        found.append((total, center, spread))
    (w, m1, v1), (_, m0, v0) = found
    return np.hstack([w, -w]), np.hstack([m1, m0]), np.hstack([v1, v0])


def _shares(smoother: Smoother) -> Array:
    """One over the effective number of pairs in each bin."""
    weights, bins = smoother.weights, smoother.bins
    return np.asarray(np.bincount(bins, weights**2) / np.bincount(bins, weights) ** 2)


def _noise(smoother: Smoother, away: Array) -> Array:
    """Variances of weighted means of bins, from deviations (m,).

    Averages over seven bins: variances of single bins would favor those with small values.
    """
    number = 1.0 / _shares(smoother)
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
    unsure = 0.0
    if pairs.count is not None:
        # A scenario has one (J − Ĵ)², however often it is drawn: the spread of few of them is small
        # where they are, and bins would count for it. That of normal laws goes with their mean.
        inner = smoother.means(0.5 * (r[:, 0] - r[:, 1]) ** 2)
        mean = float(weights @ products / weights.sum())
        size = max(mean, 0.0) * weights.sum() / (weights @ claimed[smoother.bins]) * claimed
        normal = ((size + inner) ** 2 + size**2) * _shares(smoother)
        noise = normal * float(noise.sum() / normal.sum())
        # How v goes with Ĵ is an assumption; without it, v is known as well as that mean.
        error = float(np.linalg.norm(weights * (products - mean)) / weights.sum())
        unsure = error / max(mean, error)
    center = float(np.median(at))
    # Up to more than is seen: a model that explains nothing may claim a small error.
    most = 3.0 * max(law.variance, float(y.max())) / float(np.median(claimed))
    # Steps of 5 %: thousands of pairs know a variance no better.
    levels = np.geomspace(1e-9, max(30.0, most), 600)
    slopes = _SLOPE_WIDTH * np.linspace(-2.0, 2.0, 9)
    shape = claimed * np.exp(slopes[:, None] * (at - center))
    fit = levels[:, None, None] * shape
    logs = -0.5 * ((y - fit) ** 2 / noise).sum(axis=2)
    logs = logs - np.abs(0.5 * np.log(levels) / _VARIANCE_WIDTH)[:, None]
    logs = logs - 0.5 * (slopes / _SLOPE_WIDTH) ** 2
    chance = np.exp(logs - logs.max()).ravel()
    chance /= chance.sum()
    chosen = rng.choice(len(chance), DRAWS, p=chance)
    every = fit.reshape(-1, len(at))
    best = np.concatenate([(chance @ every)[None], every[chosen]])
    # A jump that the model smooths shows in single bins, whose products differ by three standard
    # errors or more. Chance differs by less, and local variances would follow it.
    prior = np.maximum((y - best[0]) ** 2 - 9.0 * noise, 0.0)
    gain = prior / (prior + noise)
    local = best + gain * (y - best)
    local[1:] += np.sqrt(gain * noise) * rng.standard_normal((DRAWS, len(at)))
    if unsure:
        local[1:] *= np.exp(unsure * rng.standard_normal((DRAWS, 1)))
    logs = np.log(np.maximum(local, _LEAST * best))
    return np.asarray(np.exp(np.stack([np.interp(law.z, at, one) for one in logs])))


def _nearest(at: Array, places: Array) -> Array:
    """Interpolation (bins, places) at scores of bins."""
    return np.stack([np.interp(at, places, row) for row in np.eye(len(places))], axis=1)
