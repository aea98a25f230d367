"""Atom of J: a value that both draws of many pairs have exactly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import betaincinv

from nestquad._typing import Array, Indices


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
