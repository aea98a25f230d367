"""Polynomials in the variables that drive both laws.

Columns are products of orthonormal polynomials of single coordinates, so a term that contains a
coordinate of x has mean zero given θ. The terms in θ alone are then a model of J, and all others
are control variates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import comb
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from nestquad._typing import Array

Term: TypeAlias = tuple[tuple[int, int], ...]  # pairs (coordinate, degree ≥ 1), by coordinate
Score: TypeAlias = Literal["uniform", "normal"]


class ScoreTable:
    """Orthonormal polynomials of each coordinate at n points, made when they are asked for.

    Shapes
    ------
    uniform: (n, d) in (0, 1); scores: d names. Legendre polynomials of the uniform itself, or
    Hermite polynomials of its normal score.
    """

    def __init__(self, uniform: Array, scores: Sequence[Score]) -> None:
        self.n_points, self.dim = uniform.shape
        self.scores = tuple(scores)
        self._uniform = uniform
        self._columns: list[list[Array]] = [[np.ones(self.n_points)] for _ in self.scores]
        self._arguments: list[Array | None] = [None] * self.dim

    def first(self, n: int) -> ScoreTable:
        """The table of the first n points."""
        return self if n == self.n_points else ScoreTable(self._uniform[:n], self.scores)

    def rows(self, which: NDArray[np.int64]) -> ScoreTable:
        """The table of some of the points."""
        return ScoreTable(self._uniform[which], self.scores)

    def leading(self, dim: int) -> ScoreTable:
        """The table of the first coordinates."""
        return ScoreTable(self._uniform[:, :dim], self.scores[:dim])

    def matrix(self, terms: Sequence[Term], rows: slice = slice(None)) -> Array:
        """One column for each term, (n, p)."""
        columns = np.empty((len(terms), self._uniform[rows].shape[0]))
        self.fill(terms, columns, rows)
        return columns.T

    def fill(self, terms: Sequence[Term], out: Array, rows: slice = slice(None)) -> None:
        """The same as rows, written to `out` (p, n)."""
        for row, term in zip(out, terms, strict=True):
            if len(term) < 2:
                row[:] = self._polynomial(*term[0])[rows] if term else 1.0
                continue
            first, second, *others = (self._polynomial(*factor)[rows] for factor in term)
            np.multiply(first, second, out=row)
            for other in others:
                row *= other

    def _polynomial(self, coordinate: int, degree: int) -> Array:
        columns = self._columns[coordinate]
        x = self._arguments[coordinate]
        hermite = self.scores[coordinate] == "normal"
        if x is None:
            u = self._uniform[:, coordinate]
            x = self._arguments[coordinate] = np.asarray(ndtri(u) if hermite else 2.0 * u - 1.0)
        while len(columns) <= degree:
            k = len(columns) - 1
            before = columns[k - 1] if k else 0.0
            if hermite:
                columns.append((x * columns[k] - np.sqrt(k) * before) / np.sqrt(k + 1.0))
            else:  # three terms of the Legendre recurrence, each with its norm √(2k + 1)
                ahead = np.sqrt(2 * k + 3.0) / (k + 1.0)
                back = k / np.sqrt(2 * k - 1.0) if k else 0.0
                columns.append(ahead * (np.sqrt(2 * k + 1.0) * x * columns[k] - back * before))
        return columns[degree]


class WithinGroups(ScoreTable):
    """A table whose columns have mean zero over each `size` consecutive points."""

    def __init__(self, uniform: Array, scores: Sequence[Score], size: int) -> None:
        super().__init__(uniform, scores)
        self._size = size

    def fill(self, terms: Sequence[Term], out: Array, rows: slice = slice(None)) -> None:
        super().fill(terms, out, rows)
        groups = out.reshape(len(out), -1, self._size)
        groups -= groups.mean(axis=2, keepdims=True)


def total_degree(term: Term) -> int:
    return sum(degree for _, degree in term)


def total_degree_terms(dim: int, degree: int) -> list[Term]:
    """All terms of total degree at most `degree` in `dim` coordinates.

    Examples
    --------
    >>> total_degree_terms(2, 2)
    [(), ((0, 1),), ((0, 2),), ((1, 1),), ((1, 2),), ((0, 1), (1, 1))]
    """
    terms: list[Term] = [()]
    for factors in range(1, min(dim, degree) + 1):
        for coordinates in combinations(range(dim), factors):
            for degrees in product(range(1, degree + 1), repeat=factors):
                if sum(degrees) <= degree:
                    terms.append(tuple(zip(coordinates, degrees, strict=True)))
    return terms


def higher_terms(present: Sequence[Term], dim: int, most: int) -> list[Term]:
    """Terms in the leading `dim` coordinates, up to two degrees above those present.

    All of them, or those of single coordinates where that would be more than `most`.
    """
    leading = [term for term in present if all(coordinate < dim for coordinate, _ in term)]
    total = 2 + max(total_degree(term) for term in leading)
    if comb(dim + total, total) <= most:
        every = total_degree_terms(dim, total)
    else:
        every = [((j, degree),) for j in range(dim) for degree in range(1, total + 1)]
    known = set(present)
    return [term for term in every if term not in known][:most]
