"""Law of J as posterior draws: a model Ĵ over dense θ, corrected by pairs of fresh draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import betaincinv, gammaincinv, ndtr, ndtri

from nestquad._typing import Array, Indices
from nestquad.accuracy import replicate_errors
from nestquad.functionals import WeightedSample
from nestquad.methods.learned import (
    Evidence,
    Pairs,
    draw_bias,
    draw_variances,
)
from nestquad.risk._targets import Targets


@dataclass(frozen=True)
class AtomSettings:
    """Tuning numbers of the search for an atom.

    Attributes
    ----------
    fewest
        Pairs with twice the same value below which there is no atom.
    least_share
        Share of such pairs in all pairs below which there is none.
    least_pure
        Least share of J = value among such pairs: below it they are draws of a g that often has
        that value where J has not.
    neighbors
        Bins on each side that count as near.
    """

    fewest: int = 6
    least_share: float = 0.02
    least_pure: float = 0.9
    neighbors: int = 2


@dataclass(frozen=True, eq=False)
class Atom:
    """Value that J has with positive probability.

    Where J is at the atom, both draws of a pair have its value. Elsewhere g has it with some
    probability p, and pairs with one such draw (`mixed`) and with none tell p: given a draw of
    another value, its partner has the atom's with probability p. Their number, with a Beta
    posterior of p under Jeffreys' prior, says how many pairs have the value twice by chance.

    Attributes
    ----------
    value
        The value.
    side
        1 if it is the least value of g, −1 if the largest, 0 otherwise: J elsewhere is beyond it.
    pairs
        Number (m,) of the bin of each pair that has the value twice; −1 for others.
    both, mixed, none
        Numbers (B,) of pairs with the value twice, once and never, in and near each bin.
    """

    value: float
    side: int
    pairs: Indices
    both: Array = field(repr=False)
    mixed: Array = field(repr=False)
    none: Array = field(repr=False)

    @classmethod
    def of(cls, values: Array, bins: Indices, settings: AtomSettings | None = None) -> Atom | None:
        """The atom that draws (m, 2) at pairs in bins (m,) show, if there is one."""
        chosen = settings or AtomSettings()
        same = values[values[:, 0] == values[:, 1], 0]
        each, counts = np.unique(same, return_counts=True)
        least = max(chosen.fewest, chosen.least_share * len(values))
        if not len(each) or counts.max() < least:
            return None
        value = float(each[np.argmax(counts)])
        equal = (values == value).sum(axis=1)
        width = np.ones(2 * chosen.neighbors + 1)
        n_bins = int(bins.max()) + 1
        near = [
            np.convolve(np.bincount(bins[equal == k], minlength=n_bins), width)[
                chosen.neighbors : chosen.neighbors + n_bins
            ]
            for k in (2, 1, 0)
        ]
        side = int(values.min() == value) - int(values.max() == value)
        atom = cls(value, side, np.where(equal == 2, bins, -1), *near)
        pure = atom.share(atom.pairs, None)
        return atom if pure[equal == 2].mean() >= chosen.least_pure else None

    def share(self, pairs: Indices, rng: np.random.Generator | None) -> Array:
        """Probability (m,) that J is at the atom, for each pair; a draw, or the median without rng.

        Given p, (mixed / 2 + none) / (1 − p) pairs are elsewhere, of which a share p² has the value
        twice.
        """
        level = 0.5 if rng is None else rng.random()
        p = betaincinv(0.5 * self.mixed + 0.5, self.none + 0.5, level)
        by_chance = (0.5 * self.mixed + self.none) * p**2 / np.maximum(1.0 - p, 1e-12)
        pure = np.clip(1.0 - by_chance / np.maximum(self.both, 1.0), 0.0, 1.0)
        return np.where(pairs >= 0, pure[pairs], 0.0)

    def apply(self, j: Array, at_atom: Array) -> Array:
        """J with the atom: its value where `at_atom`; elsewhere reflected to the side of others."""
        if self.side:
            away = np.maximum(np.abs(j - self.value), 1e-12 * max(abs(self.value), 1e-12))
            j = self.value + self.side * away
        return np.where(at_atom, self.value, j)


class SmoothEvidence(Evidence):
    """Pairs in bins whose variance is a smooth function of the score.

    Where losses are skewed, a bin that has met no large one shows a small mean and a small variance
    at once. Weighted by its own variance it would count most: on even seeds of `studies/risk` the
    standard deviation of J given Ĵ was half of the true one, and biases in the tail too low.
    """

    degree: ClassVar[int] = 2
    steps: ClassVar[int] = 50

    def noise(self, away: Array) -> Array:
        """Variances of means in bins: a gamma regression with logarithmic link on the score.

        McCullagh and Nelder (1989), Generalized linear models, section 8.3, by Fisher scoring.
        """
        weights = self.pairs.weights
        number = np.bincount(self.bins, weights) ** 2 / np.bincount(self.bins, weights**2)
        each = self.means(away**2) * number / np.maximum(number - 1.0, 0.5)
        mean = float(each.mean())
        if mean == 0.0:
            return each
        at = self.means(self.z)
        at = (at - at.mean()) / max(float(at.std()), 1e-12)
        terms = np.linalg.qr(np.vander(at, min(self.degree + 1, len(at)), increasing=True))[0]
        fitted = np.full(len(at), np.log(mean))
        for _ in range(self.steps):
            change = terms @ (terms.T @ (each * np.exp(-fitted) - 1.0))
            fitted = fitted + np.clip(change, -1.0, 1.0)
        return np.asarray(np.exp(fitted) / number)


@dataclass(frozen=True, eq=False)
class Scatter:
    """J given Ĵ at pairs, from which neighboring θ take theirs: a smoothed bootstrap.

    Mean residuals r of pairs, with noise of variance σ², are scaled to the variance v of J given Ĵ:
    b + √ρ (r − b) with ρ = v / (v + σ²), which has ρ^1.5 of its skewness.

    Shapes
    ------
    edges (B − 1,): scores between bins; order (m,) by bin and residual. All others (m,) in that
    order: bin, column of the nearest node, mean residual, its noise variance, weight, and the bin
    of pairs that may be at the atom.
    """

    edges: Array
    order: Indices
    bins: Indices
    column: Indices
    r: Array
    noise: Array
    weights: Array
    atom: Atom | None = None
    at_atom: Indices | None = None

    @classmethod
    def of(cls, z: Array, seen: Evidence, atom: Atom | None) -> Scatter:
        r = seen.pairs.r.mean(axis=1)
        order = np.lexsort((r, seen.bins))
        column = np.clip(np.searchsorted(z, seen.z), 0, len(z) - 1)
        own, last = np.sort(seen.z), np.flatnonzero(np.diff(np.sort(seen.bins)))
        return cls(
            0.5 * (own[last] + own[last + 1]),
            order,
            seen.bins[order],
            column[order],
            r[order],
            seen.pair_noise[order],
            seen.pairs.weights[order],
            atom,
            None if atom is None else atom.pairs[order],
        )

    def trust(self, v: Array) -> Array:
        """ρ (m,) of each pair, for v (n,) at the nodes."""
        at = v[self.column]
        return np.asarray(at / (at + self.noise + 1e-300))

    def draw(self, z: Array, u: Array, b: Array, v: Array, chance: Array) -> tuple[Array, Indices]:
        """Standardized J − Ĵ − b at scores z by uniforms (n,), and the pairs they come from.

        b, v (n,) are at the nodes, `chance` (m,) are bootstrap weights of the pairs.
        """
        bins = np.searchsorted(self.edges, z)
        total = np.cumsum(self.weights * chance[self.order])
        ends = np.searchsorted(self.bins, np.arange(len(self.edges) + 1), "right")
        upper = total[ends - 1]
        lower = np.concatenate([[0.0], upper[:-1]])
        wanted = lower[bins] + u * (upper - lower)[bins]
        pick = np.clip(np.searchsorted(total, wanted, "right"), 0, len(total) - 1)
        away = (self.r - b[self.column]) / np.sqrt(v[self.column] + self.noise + 1e-300)
        return away[pick], pick


@dataclass(frozen=True)
class LawSettings:
    """Tuning numbers of the law of J.

    Attributes
    ----------
    n_nodes
        Nodes of Ĵ, evenly in normal scores of its ranks: 0.002 standard deviations apart.
    n_draws
        Posterior draws: their 2.5 % quantile is known to a quarter of a standard deviation.
    n_points, n_central
        Values of J given Ĵ at each node, in a draw and in the central law.
    near
        Standard deviations of Ĵ around a quantile that count as near it: the correction is smooth
        on the scale of one.
    few
        Scenarios of the fit, or pairs, beyond a threshold from which their number is no error of
        its own.
    hidden
        Standard errors by the shape of J given Ĵ that noise hides, in units of the larger change
        of a measure from the visible shape to a normal law, or to a jump: with a normal law alone,
        whose tails may agree by accident, 3 of 6 intervals of ES held on `credit` (even seeds).
    lengths_of_theta, bins_of_theta
        Scales of scores on which J − Ĵ varies with one coordinate of θ, and most bins of pairs.
    degrees
        Degrees of freedom of the scale of errors near a place, for a single coordinate: claims are
        right on average, not at each place.
    larger_bias_width
        Scale of the prior of log(size of b / claimed size) above one for a single coordinate, where
        no variance stands in for what the model does not claim.
    bias_width
        Scale of the Laplace prior of log(size of b / claimed size). A prior of 2 shrinks b towards
        zero: errors were a fifth larger on even seeds of `studies/risk`, at intervals .96 as wide.
    contradiction
        Standard errors by which the mean product of pairs has to exceed the mean of v before it
        takes its place. With one, errors on `book5-sampled` were twice as large (even seeds), since
        v was up to six times too large.
    """

    n_nodes: int = 4096
    n_draws: int = 128
    n_points: int = 2
    n_central: int = 8
    near: float = 0.15
    few: int = 5
    hidden: float = 1.5
    lengths_of_theta: tuple[float, ...] = (0.05, 0.15, 0.5, 1.5)
    bins_of_theta: int = 192
    degrees: float = 4.0
    larger_bias_width: float = 4.0
    bias_width: float = 0.5
    contradiction: float = 2.0


DEFAULT = LawSettings()
# Steps of the Kronecker sequence in two dimensions: powers of the inverse of the root of
# x³ = x + 1 (Roberts 2018, The unreasonable effectiveness of quasirandom sequences).
_STEPS = 1.324717957244746 ** -np.arange(1.0, 3.0)
# Standardized quantile functions of J given Ĵ: normal, and a jump to either side.
_SHAPES: tuple[Callable[[Array], Array], ...] = (ndtri, lambda u: np.where(u < 0.5, -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class LawOfJ:
    """J = Ĵ + b(Ĵ) + √v(Ĵ) ε over dense θ, with b, v and ε from pairs, as posterior draws.

    Attributes
    ----------
    s, along, z
        Ĵ at the nodes; the coordinate on which J − Ĵ depends, Ĵ itself or the only one of θ, in
        order; and normal scores of its ranks.
    mass
        Probability of each node by replicate (R, n).
    b, v
        Correction at the nodes: the best (first row), and draws of it (1 + K, n).
    node
        The node of each dense θ.
    scatter
        J given Ĵ at the pairs, if there are any.
    dim
        Coordinates of θ, along which errors of Ĵ change sign; infinite for given scenarios: pairs
        tell of one each, and are no sample of others.
    pairs, n_learned
        The evidence behind the correction, None if unknown, and the number of scenarios
        behind Ĵ.
    trust
        Share (m,) of the variance of each pair's mean residual that is not noise.
    by_theta
        Whether `along` is the only coordinate of θ, of which J is a function.
    """

    s: Array
    along: Array
    z: Array
    mass: Array
    b: Array
    v: Array
    node: Indices = field(repr=False)
    scatter: Scatter | None = field(default=None, repr=False)
    dim: float = np.inf
    pairs: Pairs | None = field(default=None, repr=False)
    n_learned: int = 0
    trust: Array | None = field(default=None, repr=False)
    by_theta: bool = False
    settings: LawSettings = DEFAULT

    @classmethod
    def of_model(
        cls,
        s: Array,
        weights: Array,
        owner: Indices,
        dim: float,
        n: int = 0,
        theta: Array | None = None,
    ) -> LawOfJ:
        """The law of Ĵ (M,) over dense θ with weights (M,), in replicates, without a correction.

        `theta` (M,) is the coordinate of θ if it has only one. J given θ is then a number.
        """
        along = s if theta is None else theta
        order = np.argsort(along, kind="stable")
        n_sets = int(owner.max()) + 1
        totals = np.bincount(owner, weights, n_sets)
        share = weights / totals[owner] / n_sets
        rank = np.empty(len(s))
        rank[order] = np.cumsum(share[order]) - 0.5 * share[order]
        z = ndtri(np.clip(rank, 1e-12, 1.0 - 1e-12))
        reach = float(np.abs(z).max()) * (1.0 + 1e-9)
        where = np.floor((z + reach) / (2.0 * reach) * DEFAULT.n_nodes).astype(np.intp)
        if np.isinf(dim):  # each a node, without values between them
            where[order] = np.arange(len(s))
        used, node = np.unique(where, return_inverse=True)
        cells = np.bincount(owner * len(used) + node, share * n_sets, n_sets * len(used))
        mass: Array = np.asarray(cells.reshape(n_sets, -1), dtype=np.float64)
        total = np.maximum(mass.mean(axis=0), 1e-300)
        middle, place, score = (np.bincount(node, share * one) / total for one in (s, along, z))
        none = np.zeros((1, len(used)))
        found = cls(middle, place, score, mass, none, none, node, dim=dim, n_learned=n)
        return replace(found, by_theta=theta is not None)

    @property
    def steps(self) -> bool:
        """Whether J has given values, and none between them."""
        return bool(np.isinf(self.dim))

    @cached_property
    def weights(self) -> Array:
        """Weights of the nodes, all replicates together."""
        return np.asarray(self.mass.mean(axis=0))

    @cached_property
    def variance(self) -> float:
        """Variance of Ĵ over θ."""
        return float(self.weights @ (self.s - self.weights @ self.s) ** 2)

    @property
    def unexplained(self) -> float:
        """Mean variance of J given Ĵ."""
        return float(self.weights @ self.v[0])

    @property
    def unexplained_share(self) -> float:
        """Share of the variance of J that Ĵ leaves unexplained."""
        return self.unexplained / max(self.unexplained + self.variance, 1e-300)

    @property
    def m(self) -> Array:
        """Means (n,) of J at the nodes, by the best correction."""
        return np.asarray(self.s + self.b[0])

    def evidence(self, pairs: Pairs) -> Evidence:
        """Pairs by scenario, in bins of their Ĵ, or of θ."""
        pairs = pairs.by_scenario()
        least = max(1e-12 * self.variance, 1e-300)
        z = np.interp(pairs.s if pairs.along is None else pairs.along, self.along, self.z)
        most = self.settings.bins_of_theta if self.by_theta else Evidence.most_bins
        return (Evidence if self.by_theta else SmoothEvidence)(pairs, z, least, most)

    @cached_property
    def bootstrap(self) -> tuple[Array, Array]:
        """Weights (1 + K, R) of replicates of dense θ, and (1 + K, m) of pairs.

        The first rows are for the central law, the others of a Bayesian bootstrap (Rubin 1981, The
        Bayesian bootstrap). Replicates are few: their Dirichlet weights vary so that a mean has the
        variance of `replicate_errors`, Student's.
        """
        rng, n, size = np.random.default_rng(2), len(self.b), len(self.mass)
        # Weights of shape a have the variance (R − 1) / (R² (R a + 1)).
        variance = size**2 * (replicate_errors(np.eye(size)[:1]) ** 2).sum() if size > 1 else 1.0
        shape = max((size - 1.0) / variance - 1.0, 0.1) / size
        pairs = 0 if self.scatter is None else len(self.scatter.r)
        found = [rng.standard_gamma(shape, (n, size)), rng.standard_exponential((n, pairs))]
        for each in found:
            each[0] = 1.0
        return found[0] / found[0].sum(axis=1, keepdims=True), found[1]

    @cached_property
    def samples(self) -> tuple[WeightedSample, ...]:
        """The law by the best correction, and posterior draws of it."""
        rng = np.random.default_rng(4)
        return (self.center, *(self._sample(k, rng) for k in range(1, len(self.b))))

    @cached_property
    def center(self) -> WeightedSample:
        """The law by the best correction."""
        return self._sample(0, np.random.default_rng(1))

    def _sample(
        self,
        k: int,
        rng: np.random.Generator,
        shape: Callable[[Array], Array] | None = None,
        n_points: int | None = None,
    ) -> WeightedSample:
        """Values of J at each node under correction k, at points of a Kronecker sequence.

        A `shape` of J given Ĵ takes the place of that of the pairs.

        The error of Ĵ does not average out over the θ at a level if these are few: it is all but
        orthogonal to cubics, so that it changes sign at least four times along a coordinate, and
        has 4^(d − 1) patches of independent errors.
        """
        n = n_points or (self.settings.n_points if k else self.settings.n_central)
        n = n if self.v[k].any() else 1
        at = np.repeat(np.arange(len(self.s)), n)
        mean, sd = (self.s + self.b[k])[at], np.sqrt(self.v[k])[at]
        if not self.steps:  # evenly between the middles of neighboring nodes
            places = (np.arange(len(at)) + 0.5) / n - 0.5
            mean = np.interp(places, np.arange(len(self.s)), self.s + self.b[k])
        shares, chances = self.bootstrap
        weights = (shares[k] @ self.mass)[at] / n
        if not sd.any():
            return WeightedSample(mean, weights, self.steps)
        u = (np.arange(len(at)) * _STEPS[:, None] + rng.random((2, 1))) % 1.0
        u = np.clip(u, 1e-12, 1.0 - 1e-12)
        if self.scatter is None:
            return WeightedSample(mean + sd * ndtri(u[0]), weights, self.steps)
        noise, pick = self.scatter.draw(self.z[at], u[0], self.b[k], self.v[k], chances[k])
        noise = noise if shape is None else shape(u[0])
        shift = float(2.0 ** (1.0 - self.dim) * rng.standard_normal()) if k else 0.0
        j = mean + sd * (noise + shift)
        if self.scatter.atom is not None and self.scatter.at_atom is not None:
            share = self.scatter.atom.share(self.scatter.at_atom, rng if k else None)
            j = self.scatter.atom.apply(j, u[1] < share[pick])
        return WeightedSample(j, weights)

    def measured(self, targets: Targets) -> tuple[Array, Array | None]:
        """Measures (k,) of the loss, and posterior draws (K, k); None if unknown."""
        if self.pairs is None:
            return targets.values(self.center), None
        value, *each = (targets.values(sample) for sample in self.samples)
        draws = np.stack(each)
        if not self.steps:  # what the fewer points of a draw miss is no error of J
            few = self._sample(0, np.random.default_rng(4), n_points=self.settings.n_points)
            draws += value - targets.values(few)
        draws += self._hidden(targets) * np.random.default_rng(5).standard_normal((len(draws), 1))
        for i, (kind, level) in enumerate(targets.keys):
            if kind == "exceed":
                draws[:, i] += self._few_hits(float(level), float(value[i]), len(draws))
            if kind in ("exceed", "ee", "ene"):
                draws[:, i] = np.clip(draws[:, i], 0.0, 1.0 if kind == "exceed" else np.inf)
        return value, draws

    def ends(self, targets: Targets, level: float) -> tuple[Array, Array]:
        """Ends (k,) of intervals of measures."""
        value, draws = self.measured(targets)
        if draws is None:
            return value - np.inf, value + np.inf
        low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        return low, high

    def _hidden(self, targets: Targets) -> Array:
        """Standard errors (k,) of measures by the shape of J given Ĵ that noise hides.

        Scaled residuals show ρ^1.5 of the skewness of J given Ĵ, and 1 − ρ³ of it is unknown.
        """
        if self.scatter is None or not self.v[0].any():
            return np.zeros(len(targets.keys))
        others = [self._sample(0, np.random.default_rng(1), shape) for shape in _SHAPES]
        center = targets.values(self.center)
        change = np.max([np.abs(targets.values(one) - center) for one in others], axis=0)
        weights = self.scatter.weights
        trust = weights @ self.scatter.trust(self.v[0]) / weights.sum()
        return np.asarray(self.settings.hidden * (1.0 - trust**3) * change)

    def _few_hits(self, c: float, value: float, n_draws: int) -> Array:
        """Changes (K,) of P(J > c) where few pairs and scenarios of the fit are beyond c, or none.

        The number of hits h is a Poisson variable, and quantiles of gamma variables with h and
        h + 1 degrees are limits of its mean (Garwood 1936, Fiducial limits for the Poisson
        distribution): for none, the upper one at 95 % is the rule of three.
        """
        assert self.pairs is not None
        below, n = value > 0.5, self.n_learned
        hits = (1.0 - value if below else value) * n
        beyond = np.interp(self.evidence(self.pairs).z, self.z, self.m) > c
        if not n or max(hits, (beyond != below).sum()) >= self.settings.few:
            return np.zeros(n_draws)
        levels = np.random.default_rng(3).permutation((np.arange(n_draws) + 0.5) / n_draws)
        degrees = np.maximum(hits + np.arange(n_draws) % 2, 1e-9)
        change = (gammaincinv(degrees, levels) - hits) / n
        return np.asarray(-change if below else change)

    def interest(self, targets: Targets) -> Array:
        """Density of draws (n,) relative to the law at the nodes: where J matters.

        Neyman allocation (1934, On the two different aspects of the representative method): in
        proportion to the standard deviation of the indicator of a loss beyond the level, and to
        the size of residuals.
        """
        powers = np.array([[1.0 if kind == "spectral" else 0.5] for kind, _ in targets.keys])
        shares = self.dependence(targets) ** powers * self._sizes
        means = shares @ self.weights
        return np.asarray((1.0 / np.where(means > 0, means, np.inf)) @ shares)

    @cached_property
    def _sizes(self) -> Array:
        """Root mean squares (n,) of residuals at the nodes."""
        if self.pairs is None:
            return np.ones(len(self.s))
        seen = self.evidence(self.pairs)
        square = seen.means((seen.pairs.r**2).mean(axis=1)) + seen.least
        return np.asarray(np.exp(0.5 * np.interp(self.z, seen.means(seen.z), np.log(square))))

    def dependence(self, targets: Targets) -> Array:
        """Change (k, n) of each measure with J at the nodes, but for a factor.

        A quantile or a probability depends on J near its level, shortfall beyond it, a spectral
        measure by its weight, exposure everywhere. Near means within the error of Ĵ, or a few
        percent of its spread.
        """
        least = self.settings.near * float(np.sqrt(self.variance))
        found = np.ones((len(targets.keys), len(self.s)))
        for i, (kind, level) in enumerate(targets.keys):
            if kind == "spectral":
                spectrum, order = targets.spectra[level], np.argsort(self.s, kind="stable")
                levels = np.empty(len(order))
                levels[order] = np.cumsum(self.weights[order]) - 0.5 * self.weights[order]
                found[i] = np.interp(levels, spectrum.levels, spectrum.density)
            elif kind not in ("ee", "ene"):
                chance = self._beyond(targets.place(self.center, kind, level), least)
                found[i] = chance * (1.0 - chance) + (chance**2 if kind == "es" else 0.0)
        return found

    def _beyond(self, c: float, least: float = 0.0) -> Array:
        """P(J > c | Ĵ) at the nodes, with a normal J given Ĵ, of a standard deviation ≥ `least`."""
        return np.asarray(ndtr((self.m - c) / np.sqrt(self.v[0] + least**2 + 1e-300)))

    def shifted(self, pairs: Pairs, rng: np.random.Generator) -> LawOfJ:
        """The law of J + D, where residuals at pairs have the mean D given θ."""
        seen = self.evidence(pairs)
        b, v = self._drawn(seen, rng)
        return replace(self, b=self.b + b, v=self.v + v)

    def _drawn(self, seen: Evidence, rng: np.random.Generator) -> tuple[Array, Array]:
        """Mean and variance of the discrepancy: the best, and draws (1 + K, n).

        A function of the only coordinate of θ has all of J − Ĵ in its mean, whose error falls with
        the pairs near a place like 1/√m; that of a variance falls like m^−1/4.
        """
        chosen, n = self.settings, self.settings.n_draws
        if self.by_theta:
            widths = chosen.bias_width, chosen.larger_bias_width
            b = draw_bias(self, seen, n, rng, *widths, lengths=chosen.lengths_of_theta)
            scale = np.sqrt(chosen.degrees / rng.chisquare(chosen.degrees, n))
            b[1:] = b[0] + scale[:, None] * (b[1:] - b[0])
            return b, np.full_like(b, seen.least)
        b = draw_bias(self, seen, n, rng, chosen.bias_width)
        return b, draw_variances(self, seen, b[0], n, rng, clearly=chosen.contradiction)

    def corrected(
        self, pairs: Pairs, rng: np.random.Generator, values: Array | None = None
    ) -> LawOfJ:
        """The law with b, v and ε learned from pairs, whose values (m, 2) of g show an atom."""
        seen, law = self.evidence(pairs), replace(self, pairs=pairs)
        b, v = self._drawn(seen, rng)
        if not law.steps:
            atom = None if values is None else Atom.of(_extremes(pairs, values), seen.bins)
            return replace(law, b=b, v=v, scatter=Scatter.of(law.z, seen, atom))
        # J of each given scenario by its own draws; in draws of the law it is a number.
        at, r = seen.pairs.node, seen.pairs.r.mean(axis=1)
        trust = v[:, at] / (v[:, at] + seen.pair_noise + 1e-300)
        b[:, at] += trust * (r - b[:, at])
        v[:, at] *= 1.0 - trust
        b[1:] += np.sqrt(v[1:]) * rng.standard_normal(v[1:].shape)
        v[1:] = 0.0
        return replace(law, b=b, v=v, trust=trust[0])


def _extremes(pairs: Pairs, values: Array) -> Array:
    """Smallest and largest value (m, 2) of g at each scenario, from values at pairs (·, 2)."""
    if pairs.node is None:
        return values
    _, group = np.unique(pairs.node, return_inverse=True)
    out = np.stack([np.full(group.max() + 1, np.inf), np.full(group.max() + 1, -np.inf)], axis=1)
    np.minimum.at(out[:, 0], group, values.min(axis=1))
    np.maximum.at(out[:, 1], group, values.max(axis=1))
    return out
