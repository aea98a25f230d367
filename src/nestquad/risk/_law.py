"""Law of J: that of a model Ĵ, corrected by pairs of fresh draws."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from nestquad._typing import Array, Indices
from nestquad.methods.learned import BinnedResiduals, Evidence, Pairs, draw_bias, draw_variances
from nestquad.methods.nested import few_event_errors

# Nodes of the law of Ĵ, evenly in normal scores of its ranks: neighbors are 0.005 standard
# deviations apart, and their spread counts.
_NODES = 1800
# Normal laws of pairs: a limit of time.
_MOST_SHAPES = 1024
# Numbers of pairs at the same θ, and what a normal law may miss of what Ĵ leaves undecided: that of
# a skewness of one half or so.
REPEATS, _SKEWED = 2.0 ** np.arange(6), 0.1
# Draws of the correction: their spread is known to 6 %.
DRAWS = 128


@dataclass(frozen=True, eq=False)
class Shape:
    """What pairs say of J given Ĵ beyond its mean and variance.

    Attributes
    ----------
    weights, means, variances
        Of normal laws of J given pairs, then with negative weights given Ĵ alone (1 + K, 2 l).
    share, mean, sd, trust, shrunk
        Of each pair (m,), by the best correction: its weight, mean and standard deviation of J
        given Ĵ, ρ, and J from the mean residual shrunk by √ρ.
    """

    weights: Array
    means: Array
    variances: Array
    share: Array
    mean: Array
    sd: Array
    trust: Array
    shrunk: Array

    @property
    def best(self) -> Shape:
        """That of the best correction alone."""
        laws = {name: getattr(self, name)[:1] for name in ("weights", "means", "variances")}
        return replace(self, **laws)


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
        The normal laws of pairs, if there are any.
    dim
        Coordinates of θ, along which errors of Ĵ change sign; infinite for given scenarios: pairs
        tell of one each, and are no sample of others.
    pairs, n_learned
        What the correction was learned from, None where nothing is known, and the number of
        scenarios behind Ĵ.
    """

    s: Array
    spread: Array
    z: Array
    mass: Array
    b: Array
    v: Array
    node: Indices = field(repr=False)
    shape: Shape | None = field(default=None, repr=False)
    dim: float = np.inf
    pairs: Pairs | None = field(default=None, repr=False)
    n_learned: int = 0

    @property
    def steps(self) -> bool:
        """Whether J has given values, with nothing between them."""
        return bool(np.isinf(self.dim))

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
        more, mean, variance = self.shape.weights, self.shape.means, self.shape.variances
        # Narrower than a node there is nothing to see.
        least = np.interp(mean[0], self.s, self.spread)
        e = np.hstack([e, np.sqrt(variance + least)])
        return np.hstack([weights, more]), np.hstack([m, mean]), e

    @cached_property
    def best(self) -> CorrectedLaw:
        """The law by the best correction alone."""
        first = None if self.shape is None else self.shape.best
        return replace(self, b=self.b[:1], v=self.v[:1], shape=first)

    @property
    def m(self) -> Array:
        """Means (n,) of J at the nodes, by the best correction."""
        return np.asarray(self.s + self.b[0])

    @property
    def e(self) -> Array:
        """Standard deviations (n,) of J at the nodes."""
        return np.asarray(np.sqrt(self.v[0] + self.spread))

    def survival(self, c: Array | float) -> Array:
        """P(J > c) (1 + K,) by each draw of the correction, for c (1 + K,) or a number."""
        w, t, _ = self._scores(c)
        return np.asarray((w * ndtr(t)).sum(axis=1))

    def density(self, c: Array | float) -> Array:
        w, t, e = self._scores(c)
        return np.asarray((w * np.exp(-0.5 * t**2) / e).sum(axis=1) / np.sqrt(2.0 * np.pi))

    def excess(self, c: Array | float) -> Array:
        """E max(J − c, 0) by each draw."""
        w, t, e = self._scores(c)
        return np.asarray((w * e * positive(t)).sum(axis=1))

    def mean(self) -> Array:
        w, m, _ = self.normals
        return np.asarray((w * m).sum(axis=1))

    def _scores(self, c: Array | float) -> tuple[Array, Array, Array]:
        w, m, e = self.normals
        return w, (m - np.broadcast_to(c, len(m))[:, None]) / e, e

    def shape_error(self, c: float, excess: bool) -> float:
        """Standard error of P(J > c), or of E max(J − c, 0), by the shape of J given Ĵ.

        Few pairs may make it. And noise hides it: laws by pairs have ρ³ of the skewness of J given
        Ĵ. Means of residuals that are shrunk by √ρ have its variance and ρ^1.5 of its skewness:
        what they change, and its chance, stand for what normal laws miss.
        """
        if self.shape is None:
            return 0.0
        w, t, e = (one[0, len(self.s) :] for one in self._scores(c))
        each = (w * (e * positive(t) if excess else ndtr(t))).reshape(2, -1).sum(axis=0)
        w = w[: len(each)]
        few = float(few_event_errors((each / np.maximum(w, 1e-300))[:, None], w[:, None])[0])
        change, chance, _, rho = self._missed(c, excess)
        return float(np.hypot(few, (1.0 - rho**3) * np.hypot(change, chance)))

    def _missed(self, c: float, excess: bool) -> tuple[float, float, float, float]:
        """What shrunk means change, its chance, the most that Ĵ leaves undecided, and ρ there."""
        one = self.shape
        assert one is not None
        t, j = (one.mean - c) / one.sd, one.shrunk
        missed = np.maximum(j - c, 0.0) - one.sd * positive(t) if excess else (j > c) - ndtr(t)
        change = float(one.share @ missed)
        chance = float(np.linalg.norm(one.share * (missed - change)))
        undecided = one.share * ndtr(t) * ndtr(-t)
        rho = float(undecided @ one.trust) / max(float(undecided.sum()), 1e-300)
        return change, chance, float(undecided @ one.sd if excess else undecided.sum()), rho

    def repeated(self, c: float, excess: bool, n: int) -> Array:
        """Squared errors to expect of n further pairs, if REPEATS of them are at the same θ.

        Fewer θ are a smaller sample, and more draws at each hide less of the shape of J.
        """
        if self.shape is None:
            return np.ones(len(REPEATS))
        change, chance, most, rho = self._missed(c, excess)
        seen = max(change**2 - chance**2, (_SKEWED * most) ** 2)
        deeper = REPEATS * rho / (1.0 + (REPEATS - 1.0) * rho)
        sampled = chance**2 * REPEATS * len(self.shape.share) / n
        return np.asarray(sampled + seen * (1.0 - deeper**3) ** 2)

    def undecided(self, c: float, below: bool = False) -> float:
        """E[P(1 − P)] / E[P] of P = P(J > c | Ĵ): the share of J > c that Ĵ does not decide.

        With `below` that of J ≤ c.
        """
        found = ndtr((-1.0 if below else 1.0) * (self.m - c) / np.sqrt(self.v[0] + 1e-300))
        total = float(found @ self.weights)
        return float((found * (1.0 - found)) @ self.weights) / total if total > 0 else 1.0

    def quantile(self, p: float) -> Array:
        """The p-quantile by each draw: Newton's steps, halving where they leave the bracket."""
        _, m, e = self.normals
        low, high = (m - 8.0 * e).min(axis=1), (m + 8.0 * e).max(axis=1)
        at = min(int(np.searchsorted(np.cumsum(self.weights), p)), len(self.s) - 1)
        c = m[:, at] if len(m) == 1 else np.broadcast_to(self.best.quantile(p), len(m))
        for _ in range(60):
            # Between two scenarios the first is the quantile.
            over = self.survival(c) - (1.0 - p) - 1e-9 * self.steps
            low, high = np.where(over > 0, c, low), np.where(over > 0, high, c)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                step = c + over / self.density(c)
            inside = (step > low) & (step < high)
            new = np.where(inside, step, 0.5 * (low + high))
            done = np.abs(new - c) <= 1e-7 * np.maximum(np.abs(c), e[:, : len(self.s)].mean(axis=1))
            c = np.where(done, c, new)
            if done.all():
                break
        return np.asarray(c)

    def by_replicate(self, values: Array) -> Array:
        """Errors (R,) of an average of values (n,) at the nodes: each replicate less the mean."""
        found = self.mass @ values
        n = len(found)
        return np.zeros(1) if n < 2 else (found - found.mean()) / np.sqrt(n * (n - 1.0))


def positive(t: Array) -> Array:
    """E max(t + N, 0) of a standard normal N."""
    return np.asarray(t * ndtr(t) + np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi))


def nodes_of(s: Array, weights: Array, owner: Indices, dim: float, n: int = 0) -> CorrectedLaw:
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
    if np.isinf(dim):  # each a node, with nothing between them
        where[order] = np.arange(len(s))
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
    spread = np.maximum(spread, np.maximum(0.0 if np.isinf(dim) else near, least) ** 2)
    none = np.zeros((1, len(used)))
    return CorrectedLaw(middle, spread, score, mass, none, none, node, dim=dim, n_learned=n)


def corrected(law: CorrectedLaw, pairs: Pairs, rng: np.random.Generator) -> CorrectedLaw:
    """The law with b and v learned from pairs, and with what pairs say beyond that."""
    law, pairs = replace(law, pairs=pairs), pairs.by_scenario()
    least = max(1e-12 * law.variance, 1e-300)
    seen = Evidence(pairs, np.interp(pairs.s, law.s, law.z), least)
    b = draw_bias(law, BinnedResiduals.of_pairs(seen), DRAWS, rng)
    v = draw_variances(law, seen, b[0], DRAWS, rng)
    if not law.steps:
        return replace(law, b=b, v=v, shape=_shape(law, seen, b, v, rng))
    # J of each given scenario by its own draws; in draws of the law it is a number.
    at, r = pairs.node, pairs.r.mean(axis=1)
    trust = seen.trust(v[:, at])
    b[:, at] += trust * (r - b[:, at])
    v[:, at] *= 1.0 - trust
    b[1:] += np.sqrt(v[1:]) * rng.standard_normal(v[1:].shape)
    v[1:] = 0.0
    return replace(law, b=b, v=v)


def _shape(
    law: CorrectedLaw, seen: Evidence, b: Array, v: Array, rng: np.random.Generator
) -> Shape:
    """Normal laws of J given pairs.

    J given Ĵ is N(Ĵ + b, v). The mean r of two residuals adds noise of variance σ², so that J given
    both is N(Ĵ + b + ρ (r − b), (1 − ρ) v) with ρ = v / (v + σ²). Draws have weights of a Bayesian
    bootstrap. Pairs with like answers are taken together where there are many.
    """
    s, r, weights = seen.pairs.s, seen.pairs.r.mean(axis=1), seen.pairs.weights
    column = np.clip(np.searchsorted(law.z, seen.z), 0, len(law.z) - 1)
    b, v = b[:, column], v[:, column]
    chance = rng.standard_exponential(b.shape) * weights
    chance[0] = weights
    chance = chance / chance.sum(axis=1)[:, None]
    trust = seen.trust(v)
    order = np.lexsort((r, seen.bins))
    starts = np.unique(np.arange(_MOST_SHAPES) * len(s) // _MOST_SHAPES)

    def grouped(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """Weights, means and variances of groups."""
        total, first, second = (
            np.add.reduceat((chance * one)[:, order], starts, axis=1)
            for one in (np.ones(1), mean, mean**2 + variance)
        )
        center = first / np.maximum(total, 1e-300)
        return total, center, np.maximum(second / np.maximum(total, 1e-300) - center**2, 0.0)

    w, after, left = grouped(s + b + trust * (r - b), (1.0 - trust) * v)
    _, before, whole = grouped(s + b, v)
    return Shape(
        np.hstack([w, -w]),
        np.hstack([after, before]),
        np.hstack([left, whole]),
        chance[0],
        s + b[0],
        np.sqrt(v[0]),
        trust[0],
        s + b[0] + np.sqrt(trust[0]) * (r - b[0]),
    )
