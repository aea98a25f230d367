"""Growth of sparse polynomials: terms enter while leave-one-out errors fall."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.clock import tick
from nestquad.errors import NumericalError
from nestquad.regression._least_squares import LeastSquares, PolynomialFit, fit_terms, pieces
from nestquad.regression._polynomials import Score, ScoreTable, Term, total_degree

# Hermite polynomials of higher degree are all about the tails, where there are few points.
_MAX_DEGREE: dict[Score, int] = {"uniform": 12, "normal": 8}
_MAX_FACTORS = 4
# A term may enter when its correlation with the residuals is this many standard errors from zero,
_SIGNIFICANT = 3.0
# and a round of terms stays when it lowers the leave-one-out error to this fraction.
_PROGRESS = 0.999
# Mean squared leave-one-out error, relative to that of the values, below which all is explained.
_EXACT = 1e-24
# Numbers that stay in a cache, and fewest points of a block.
_NUMBERS, _FEWEST = 1 << 17, 256
# Scores other than those in which the law is written have to be better by this factor.
_BETTER_SCORES = 0.95


def grow_polynomial(
    values: Array, table: ScoreTable, weights: Array | None = None, *, max_terms: int
) -> list[PolynomialFit]:
    """Fits with more and more terms, each better than the one before in leave-one-out error.

    A round looks at terms one or two degrees above those present and adds those that are
    significantly correlated with the residuals, at most as many as there are already. Terms in
    few coordinates go first: on few points, those in many may only mirror them.

    Cost
    ----
    O(n p²) for p terms in the end, and O(n p d) for the candidates of a round.
    """
    current = LeastSquares.start(values, weights).extended([()], table)
    path = [current.fit()]
    scale = path[0].loo
    candidates = _Candidates(table)
    while path[-1].loo > _EXACT * scale and len(current.terms) < max_terms:
        room = min(max_terms - len(current.terms), max(table.dim, len(current.terms)))
        significant = candidates.significant(current)
        for n_factors in range(1, _MAX_FACTORS + 1):
            chosen = [term for term in significant if len(term) == n_factors][:room]
            if not chosen:
                continue
            try:
                larger = current.extended(chosen, table)
            except NumericalError:
                continue
            fit = larger.fit()
            if fit.loo < _PROGRESS * path[-1].loo:
                current = larger
                path.append(fit)
                break
        else:
            break
    return path


class _Candidates:
    """Terms one or two degrees above those present that residuals contain.

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
        found = self._products(current, size)
        found.update(self._raised(current, size))
        for term in current.terms:
            found.pop(term, None)
        dim = self._table.dim
        strong = [term for term, t in found.items() if t > _by_chance(total_degree(term), dim)]
        return sorted(strong, key=lambda term: (-found[term], term))

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
        block = max(_FEWEST, _NUMBERS // len(parents))
        squared = np.empty((len(parents), min(block, self._table.n_points)))
        for start in range(0, self._table.n_points, block):
            tick()
            some = slice(start, start + block)
            factors, r = single[:, some], current.residuals[some]
            columns, alone = current.columns[:, some], factors[absent] * current.root[some]
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
        found: dict[Term, float] = {}
        for row, column in np.argwhere(t > _SIGNIFICANT):
            (factor,) = self._factors[column]
            term = parents[row]
            if len(term) < _MAX_FACTORS and all(factor[0] != j for j, _ in term):
                found[tuple(sorted((*term, factor)))] = float(t[row, column])
        return found

    def _raised(self, current: LeastSquares, size: float) -> dict[Term, float]:
        """Higher degrees in a coordinate that a term has already."""
        table, terms = self._table, current.terms
        higher = {_raised(t, i, k) for t in terms for i in range(len(t)) for k in (1, 2)}
        ordered = sorted(
            term
            for term in higher.difference(terms)
            if all(degree <= _MAX_DEGREE[table.scores[j]] for j, degree in term)
        )
        residuals = current.root * current.residuals
        squares = np.stack([residuals**2, size**2 * current.root**2], axis=1)
        covariance, variances = np.zeros(len(ordered)), np.zeros((len(ordered), 2))
        for some, which, rows in pieces(table, ordered, table.n_points):
            covariance[which] += rows @ residuals[some]
            rows *= rows
            variances[which] += rows @ squares[some]
        t = _strength(covariance, *variances.T)
        return {ordered[k]: float(t[k]) for k in np.flatnonzero(t > _SIGNIFICANT)}


def choose_scores(
    values: Array, uniform: Array, groups: Sequence[tuple[int, Score]], weights: Array | None = None
) -> tuple[Score, ...]:
    """Uniform or normal scores for each group of coordinates.

    `groups` gives for each the number of coordinates and the scores in which the law is written.
    What is written in uniforms may still be a normal law or like one (of scipy, say): normal
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
        if (found := unexplained(other)) < _BETTER_SCORES * least:
            best, least = other, found
    return _spread(best, sizes)


def _spread(scores: Sequence[Score], sizes: Sequence[int]) -> tuple[Score, ...]:
    return tuple(s for s, size in zip(scores, sizes, strict=True) for _ in range(size))


def _strength(covariance: Any, variance: Any, plain_variance: Any) -> Array:
    """A covariance in standard errors.

    `variance` allows for residuals whose size depends on the column. But where the residual is
    the column itself, and heavy-tailed, it is far too large, so half of what constant residuals
    would give counts as well.
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
