"""J given Ĵ at pairs: its shape, and an atom, a value that both draws of many pairs have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import betaincinv, ndtri

from nestquad._typing import Array, Indices
from nestquad.methods.learned import Evidence

Shape: TypeAlias = Literal["shrunk", "sharp", "normal"]


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


@dataclass(frozen=True, eq=False)
class Scatter:
    """J given Ĵ at pairs, from which neighboring θ take theirs: a smoothed bootstrap.

    At a pair with mean residual r of noise variance σ², J − Ĵ is N(b + ρ (r − b), (1 − ρ) v) with
    ρ = v / (v + σ²), which has ρ³ of the skewness of J given Ĵ; b + √ρ (r − b) has the variance v
    too and ρ^1.5 of the skewness. The change by the second shows the size of the shape that noise
    hides.

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
        noise = 1.0 / seen.trust(np.ones(len(r))) - 1.0
        own, last = np.sort(seen.z), np.flatnonzero(np.diff(np.sort(seen.bins)))
        return cls(
            0.5 * (own[last] + own[last + 1]),
            order,
            seen.bins[order],
            column[order],
            r[order],
            noise[order],
            seen.pairs.weights[order],
            atom,
            None if atom is None else atom.pairs[order],
        )

    def trust(self, v: Array) -> Array:
        """ρ (m,) of each pair, for v (n,) at the nodes."""
        at = v[self.column]
        return np.asarray(at / (at + self.noise + 1e-300))

    def draw(
        self, z: Array, u: Array, b: Array, v: Array, chance: Array, shape: Shape
    ) -> tuple[Array, Indices]:
        """Standardized J − Ĵ − b at scores z by uniforms (2, n), and the pairs they come from.

        b, v (n,) are at the nodes, `chance` (m,) are bootstrap weights of the pairs. Residuals are
        shrunk by ρ, or by √ρ if sharp, or have no part in the shape.
        """
        bins = np.searchsorted(self.edges, z)
        total = np.cumsum(self.weights * chance[self.order])
        ends = np.searchsorted(self.bins, np.arange(len(self.edges) + 1), "right")
        upper = total[ends - 1]
        lower = np.concatenate([[0.0], upper[:-1]])
        wanted = lower[bins] + u[0] * (upper - lower)[bins]
        pick = np.clip(np.searchsorted(total, wanted, "right"), 0, len(total) - 1)
        if shape == "normal":
            return ndtri(u[1]), pick
        at, rho = v[self.column], self.trust(v)
        away = (self.r - b[self.column]) / np.sqrt(at + 1e-300)
        if shape == "sharp":
            return (np.sqrt(rho) * away)[pick], pick
        return (rho * away)[pick] + np.sqrt(1.0 - rho)[pick] * ndtri(u[1]), pick
