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
        self._columns: dict[tuple[int, int], Array] = {}

    def first(self, n: int) -> ScoreTable:
        """The table of the first n points."""
        return self if n == self.n_points else ScoreTable(self._uniform[:n], self.scores)

    def rows(self, which: NDArray[np.int64]) -> ScoreTable:
        """The table of some of the points."""
        return ScoreTable(self._uniform[which], self.scores)

    def leading(self, dim: int) -> ScoreTable:
        """The table of the first coordinates."""
        return ScoreTable(self._uniform[:, :dim], self.scores[:dim])

    def matrix(self, terms: Sequence[Term]) -> Array:
        """One column for each term, (n, p)."""
        columns = np.empty((len(terms), self.n_points))
        self.fill(terms, columns)
        return columns.T

    def fill(self, terms: Sequence[Term], out: Array, rows: slice = slice(None)) -> None:
        """Evaluate the terms as rows, written to `out` (p, n)."""
        for row, term in zip(out, terms, strict=True):
            if len(term) < 2:
                row[:] = self._polynomial(term[0])[rows] if term else 1.0
                continue
            np.multiply(self._polynomial(term[0])[rows], self._polynomial(term[1])[rows], out=row)
            for factor in term[2:]:
                row *= self._polynomial(factor)[rows]

    def _polynomial(self, factor: tuple[int, int]) -> Array:
        column = self._columns.get(factor)
        if column is None:
            column = self._columns[factor] = self._next(*factor)
        return column

    def _next(self, coordinate: int, degree: int) -> Array:
        """By the recurrence of three terms, each with its norm."""
        hermite = self.scores[coordinate] == "normal"
        if degree == 1:
            u = self._uniform[:, coordinate]
            return np.asarray(ndtri(u) if hermite else np.sqrt(12.0) * (u - 0.5))
        k = degree - 1.0
        if hermite:
            ahead, back = 1.0 / np.sqrt(degree), np.sqrt(k / degree)
        else:
            ahead = np.sqrt((4.0 * k * (k + 2.0) + 3.0) / 3.0) / degree
            back = k / degree * np.sqrt((2.0 * k + 3.0) / (2.0 * k - 1.0))
        values = self._polynomial((coordinate, 1)) * self._polynomial((coordinate, degree - 1))
        values *= ahead
        values -= back if degree == 2 else back * self._polynomial((coordinate, degree - 2))
        return np.asarray(values)


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
    """Terms in the leading `dim` coordinates, up to two degrees above the present ones.

    All of them, or terms of single coordinates where that would be more than `most`.
    """
    leading = [term for term in present if all(coordinate < dim for coordinate, _ in term)]
    total = 2 + max(total_degree(term) for term in leading)
    if comb(dim + total, total) <= most:
        every = total_degree_terms(dim, total)
    else:
        every = [((j, degree),) for j in range(dim) for degree in range(1, total + 1)]
    known = set(present)
    return [term for term in every if term not in known][:most]
