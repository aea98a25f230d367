"""Growth of sparse polynomials: terms enter while leave-one-out errors fall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb
from typing import Any

import numpy as np

from nestquad import limits
from nestquad._typing import Array
from nestquad.clock import tick
from nestquad.errors import NumericalError
from nestquad.regression._least_squares import LeastSquares, PolynomialFit, fit_terms, pieces
from nestquad.regression._polynomials import Score, ScoreTable, Term, total_degree


@dataclass(frozen=True)
class GrowthSettings:
    """Numbers of the growth of polynomials.

    Attributes
    ----------
    uniform_degree, normal_degree
        Highest degree of a coordinate, in Legendre and in Hermite polynomials: high degrees of the
        latter are decided by the tails, where there are few points.
    factors
        Largest number of coordinates in a term.
    significant
        Standard errors by which the correlation of a term with the residuals differs from zero when
        it enters.
    progress
        A round of terms stays when it lowers the leave-one-out error to this fraction.
    exact
        Mean squared leave-one-out error, relative to that of the values, below which all is
        explained: rounding errors squared.
    better_scores
        Factor by which other scores have to be better than the ones in which the law is written.
    """

    uniform_degree: int = 12
    normal_degree: int = 8
    factors: int = 4
    significant: float = 3.0
    progress: float = 0.999
    exact: float = 1e-24
    better_scores: float = 0.95

    def degree(self, score: Score) -> int:
        """Highest degree of a coordinate that is written in this score."""
        return self.normal_degree if score == "normal" else self.uniform_degree


_GROWTH = GrowthSettings()


def grow_polynomial(
    values: Array, table: ScoreTable, weights: Array | None = None, *, max_terms: int
) -> list[PolynomialFit]:
    """Fits with more and more terms, each with a smaller leave-one-out error.

    A round looks at terms one or two degrees above the present ones and adds the terms that are
    significantly correlated with the residuals, at most doubling their number. Terms in
    few coordinates go first: on few points, terms in many may only mirror them.

    Cost
    ----
    O(n p²) for p terms in the end, and O(n p d) for the candidates of a round.
    """
    current = LeastSquares.start(values, weights).extended([()], table)
    path = [current.fit()]
    scale = path[0].loo
    candidates = _TermCandidates(table)
    while path[-1].loo > _GROWTH.exact * scale and len(current.terms) < max_terms:
        room = min(max_terms - len(current.terms), max(table.dim, len(current.terms)))
        significant = candidates.significant(current)
        for n_factors in range(1, _GROWTH.factors + 1):
            chosen = [term for term in significant if len(term) == n_factors][:room]
            if not chosen:
                continue
            try:
                larger = current.extended(chosen, table)
            except NumericalError:
                continue
            fit = larger.fit()
            if fit.loo < _GROWTH.progress * path[-1].loo:
                current = larger
                path.append(fit)
                break
        else:
            break
    return path


class _TermCandidates:
    """Terms one or two degrees above the present ones that residuals contain.

    Two degrees at once, because an even function has no odd terms to climb over. Pairs may be
    there without their single coordinates.
    """

    def __init__(self, table: ScoreTable) -> None:
        self._table = table
        self._factors = [((j, degree),) for j in range(table.dim) for degree in (1, 2)]
        self._single = table.matrix(self._factors).T
        # Σ_i column² factor² for each column so far, (p, 2 d).
        self._squares = np.empty((0, len(self._factors)))

    def significant(self, current: LeastSquares) -> list[Term]:
        """Terms more strongly correlated with the residuals than by chance, the strongest first."""
        # Columns have one root of the weights, residuals the other.
        residuals = current.residuals
        size = float(np.sqrt(np.mean(residuals**2)))
        products = self._products(current, size)
        products.update(self._raised(current, size))
        for term in current.terms:
            products.pop(term, None)
        dim = self._table.dim
        strong = [term for term, t in products.items() if t > _by_chance(total_degree(term), dim)]
        return sorted(strong, key=lambda term: (-products[term], term))

    def _products(self, current: LeastSquares, size: float) -> dict[Term, float]:
        """Terms present, and single factors, times another factor."""
        single, n_terms = self._single, len(current.terms)
        present = set(current.terms)
        absent = [k for k, factor in enumerate(self._factors) if factor not in present]
        parents = [*current.terms, *(self._factors[k] for k in absent)]
        covariance = np.zeros((len(parents), len(single)))
        variance = np.zeros_like(covariance)
        squares = np.zeros_like(covariance)
        known = len(self._squares)
        squares[:known] = self._squares
        block = max(limits.BLOCK_ROWS, 4 * limits.CACHE_NUMBERS // len(parents))
        squared = np.empty((len(parents), min(block, self._table.n_points)))
        for start in range(0, self._table.n_points, block):
            tick()
            part = slice(start, start + block)
            factors, r = single[:, part], current.residuals[part]
            columns, alone = current.columns[:, part], factors[absent] * current.root[part]
            weighted = (factors * r).T
            covariance[:n_terms] += columns @ weighted
            covariance[n_terms:] += alone @ weighted
            rows = squared[:, : r.size]
            np.multiply(columns, columns, out=rows[:n_terms])
            np.multiply(alone, alone, out=rows[n_terms:])
            factors = factors * factors
            variance += rows @ (factors * r**2).T
            squares[known:] += rows[known:] @ factors.T
        self._squares = squares[:n_terms].copy()
        t = _strength(covariance, variance, size**2 * squares)
        strengths: dict[Term, float] = {}
        for row, column in np.argwhere(t > _GROWTH.significant):
            (factor,) = self._factors[column]
            term = parents[row]
            if len(term) < _GROWTH.factors and all(factor[0] != j for j, _ in term):
                strengths[tuple(sorted((*term, factor)))] = float(t[row, column])
        return strengths

    def _raised(self, current: LeastSquares, size: float) -> dict[Term, float]:
        """Higher degrees in a coordinate that a term has already."""
        table, terms = self._table, current.terms
        higher = {_raised(t, i, k) for t in terms for i in range(len(t)) for k in (1, 2)}
        ordered = sorted(
            term
            for term in higher.difference(terms)
            if all(degree <= _GROWTH.degree(table.scores[j]) for j, degree in term)
        )
        residuals = current.root * current.residuals
        squares = np.stack([residuals**2, size**2 * current.root**2], axis=1)
        covariance, variances = np.zeros(len(ordered)), np.zeros((len(ordered), 2))
        for some, which, rows in pieces(table, ordered, table.n_points):
            covariance[which] += rows @ residuals[some]
            rows *= rows
            variances[which] += rows @ squares[some]
        t = _strength(covariance, *variances.T)
        return {ordered[k]: float(t[k]) for k in np.flatnonzero(t > _GROWTH.significant)}


def choose_scores(
    values: Array, uniform: Array, groups: Sequence[tuple[int, Score]], weights: Array | None = None
) -> tuple[Score, ...]:
    """Uniform or normal scores for each group of coordinates.

    `groups` gives for each the number of coordinates and the scores in which the law is written.
    A law written in uniforms may still be a normal law or like one (of scipy, say): normal
    scores are taken if cubic main effects in them explain clearly more of the values (n, p).
    """
    written = [score for _, score in groups]
    sizes = [size for size, _ in groups]
    dim = uniform.shape[1]
    terms: list[Term] = [()]
    terms += [((j, degree),) for j in range(dim) for degree in (1, 2, 3)]
    if "uniform" not in written or len(terms) * 4 > uniform.shape[0]:
        return _spread(written, sizes)

    def unexplained(scores: list[Score]) -> float:
        table = ScoreTable(uniform, _spread(scores, sizes))
        total = 0.0
        for column in values.T:
            spread = float(np.var(column))
            if spread > 0:
                total += fit_terms(column, table, terms, weights).loo / spread
        return total

    best = list(written)
    least = unexplained(best)
    for group, score in enumerate(written):
        if score == "normal":
            continue
        other: list[Score] = list(best)
        other[group] = "normal"
        if (error := unexplained(other)) < _GROWTH.better_scores * least:
            best, least = other, error
    return _spread(best, sizes)


def _spread(scores: Sequence[Score], sizes: Sequence[int]) -> tuple[Score, ...]:
    return tuple(s for s, size in zip(scores, sizes, strict=True) for _ in range(size))


def _strength(covariance: Any, variance: Any, plain_variance: Any) -> Array:
    """A covariance in standard errors.

    `variance` allows for residuals whose size depends on the column. But where the residual is
    the column itself, and heavy-tailed, it is far too large, so half of the strength with constant
    residuals counts as well.
    """
    robust = np.abs(covariance) / np.sqrt(np.maximum(variance, 1e-300))
    plain = np.abs(covariance) / np.sqrt(np.maximum(plain_variance, 1e-300))
    return np.asarray(np.maximum(robust, 0.5 * plain))


@cache
def _by_chance(degree: int, dim: int) -> float:
    """Strength of the strongest of all terms of that degree in pure noise."""
    return float(np.sqrt(2.0 * np.log(comb(dim + degree, degree))))


def _raised(term: Term, position: int, step: int) -> Term:
    coordinate, degree = term[position]
    return (*term[:position], (coordinate, degree + step), *term[position + 1 :])
