"""Polynomial trends of surrogates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb

import numpy as np

from nestquad._typing import Array

# Degrees worth telling apart, by dimension: each has a third to a half more functions.
_DEGREES = {1: (0, 1, 2, 3, 4, 6, 8, 11, 15, 20), 2: (0, 1, 2, 3, 4, 6), 3: (0, 1, 2, 3)}
_NAMES = {0: "constant", 1: "linear", 2: "quadratic", 3: "cubic"}


@dataclass(frozen=True)
class Trend:
    """All polynomials up to a total degree, or with `additive` sums of those in one coordinate.

    Powers are Chebyshev polynomials, so that high degrees stay well conditioned where the
    coordinates reach from -1 to 1.
    """

    degree: int
    additive: bool = False

    def __str__(self) -> str:
        name = _NAMES.get(self.degree, f"degree-{self.degree}")
        return f"additive {name}" if self.additive else name

    def size(self, dim: int) -> int:
        """Number of functions."""
        return 1 + dim * self.degree if self.additive else comb(dim + self.degree, dim)

    def matrix(self, z: Array) -> Array:
        """The functions at z (n, d), as (n, size)."""
        n, dim = z.shape
        powers = np.polynomial.chebyshev.chebvander(z, self.degree)  # (n, d, degree + 1)
        columns = [np.ones(n)]
        for degree in range(1, self.degree + 1):
            for factors in self._factors(dim, degree):
                column = np.ones(n)
                for j, power in factors:
                    column = column * powers[:, j, power]
                columns.append(column)
        return np.stack(columns, axis=1)

    def _factors(self, dim: int, degree: int) -> Iterator[list[tuple[int, int]]]:
        """Pairs (coordinate, power) of each function of exactly this degree."""
        if self.additive:
            for j in range(dim):
                yield [(j, degree)]
            return
        for chosen in combinations_with_replacement(range(dim), degree):
            yield [(j, chosen.count(j)) for j in sorted(set(chosen))]


def trends(dim: int, n_points: int) -> list[Trend]:
    """Trends that n points can determine, from the smallest to the largest."""
    every = [Trend(degree) for degree in _DEGREES.get(dim, (0, 1, 2))]
    if dim > 1:
        every += [Trend(2, additive=True), Trend(3, additive=True)]
    affordable = [t for t in every if 1.6 * t.size(dim) + 2 <= n_points]
    return sorted(affordable or [Trend(0)], key=lambda t: t.size(dim))
