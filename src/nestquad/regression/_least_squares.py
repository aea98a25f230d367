"""Least squares on polynomials, with terms that are given or grown one round after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import comb
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.regression._polynomials import Score, ScoreTable, Term, total_degree
from nestquad.rules import factorize

__all__ = ["PolynomialFit", "choose_scores", "fit_terms", "grow_polynomial"]

# Hermite polynomials of higher degree are all about the tails, where there are few points.
_MAX_DEGREE: dict[Score, int] = {"uniform": 12, "normal": 8}
_MAX_FACTORS = 4
# A term may enter when its correlation with the residuals is this many standard errors from zero,
_SIGNIFICANT = 3.0
# and a round of terms stays when it lowers the leave-one-out error to this fraction.
_PROGRESS = 0.999
# Mean squared leave-one-out error, relative to that of the values, below which all is explained.
_EXACT = 1e-24
_MOST_CONDITION = 1e12
_BLOCK = 1 << 11
# Terms that are looked at together.
_TOGETHER = 64
# Scores other than those in which the law is written have to be better by this factor.
_BETTER_SCORES = 0.95


@dataclass(frozen=True)
class PolynomialFit:
    """Least squares of values on some terms.

    Attributes
    ----------
    terms, coefficients
        One coefficient (p,) for each term.
    loo
        Mean squared leave-one-out residual, weighted.
    residuals, leverage
        Of each point, (n,); residuals without their weights.
    lower, weights
        Cholesky factor of the weighted Gram matrix of the columns, and the weights (n,).
    """

    terms: tuple[Term, ...]
    coefficients: Array
    loo: float
    residuals: Array
    leverage: Array
    lower: Array
    weights: Array

    def response(self, table: ScoreTable, noise: Array) -> Array:
        """By how much noise (n, m) in the values changes the coefficients, (p, m).

        Values beyond those that were fitted do not count.
        """
        n = self.weights.size
        weighted = self.weights[:, None] * noise[:n]
        moments = np.empty((len(self.terms), noise.shape[1]))
        for some in _blocks(n):
            part = table.matrix(self.terms, some).T @ weighted[some]
            moments = part if some.start == 0 else moments + part
        half = solve_triangular(self.lower, moments, lower=True)
        return np.asarray(solve_triangular(self.lower, half, lower=True, trans="T"))

    def with_coefficients(self, coefficients: Array) -> PolynomialFit:
        """The same terms with other coefficients (p,), or several sets of them (p, m)."""
        return replace(self, coefficients=coefficients)

    def extended(self, terms: Sequence[Term], coefficients: Array) -> PolynomialFit:
        """With further terms, whose coefficients are given."""
        return replace(
            self,
            terms=(*self.terms, *terms),
            coefficients=np.concatenate([self.coefficients, coefficients]),
        )

    def evaluate(self, table: ScoreTable) -> Array:
        """The terms whose coordinates all are in the table: the whole, or its mean given θ.

        (n,), or (n, m) for m sets of coefficients.
        """
        inside = [k for k, term in enumerate(self.terms) if all(j < table.dim for j, _ in term)]
        terms, coefficients = [self.terms[k] for k in inside], self.coefficients[inside]
        value = np.empty((table.n_points, *coefficients.shape[1:]))
        for some in _blocks(table.n_points):
            value[some] = table.matrix(terms, some) @ coefficients
        return value


def _blocks(n: int) -> list[slice]:
    """Rows in pieces whose columns fit into a cache, or at least into memory."""
    return [slice(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]


def fit_terms(
    values: Array, table: ScoreTable, terms: Sequence[Term], weights: Array | None = None
) -> PolynomialFit:
    """Weighted least squares of values (n,) on given terms."""
    return _LeastSquares.start(values, weights).extended(terms, table).solve()


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
    current = _LeastSquares.start(values, weights).extended([()], table)
    path = [current.solve()]
    scale = path[0].loo
    while path[-1].loo > _EXACT * scale and len(current.terms) < max_terms:
        room = min(max_terms - len(current.terms), max(table.dim, len(current.terms)))
        candidates = current.significant(path[-1], table)
        for n_factors in range(1, _MAX_FACTORS + 1):
            chosen = [term for term in candidates if len(term) == n_factors][:room]
            if not chosen:
                continue
            larger = current.extended(chosen, table)
            try:
                fit = larger.solve()
            except NumericalError:  # columns that the points cannot tell apart
                continue
            if fit.loo < _PROGRESS * path[-1].loo:
                current = larger
                path.append(fit)
                break
        else:
            break
    return path


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
    if len(terms) * 4 > uniform.shape[0]:
        return _spread(written, sizes)

    def unexplained(scores: list[Score]) -> float:
        table = ScoreTable(uniform, _spread(scores, sizes))
        total = 0.0
        for column in values.T:
            spread = float(np.var(column))
            if spread > 0:
                total += fit_terms(column, table, terms, weights).loo / spread
        return total

    if "uniform" not in written:
        return _spread(written, sizes)
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
    """How far from zero a covariance is, in standard errors.

    `variance` allows for residuals whose size depends on the column. But where the residual is
    the column itself, and heavy-tailed, it is far too large, so half of what constant residuals
    would give counts as well.
    """
    robust = np.abs(covariance) / np.sqrt(np.maximum(variance, 1e-300))
    plain = np.abs(covariance) / np.sqrt(np.maximum(plain_variance, 1e-300))
    return np.asarray(np.maximum(robust, 0.5 * plain))


@cache
def _by_chance(degree: int, dim: int) -> float:
    """What the strongest of all terms of that degree reaches where there is only noise."""
    return float(np.sqrt(2.0 * np.log(comb(dim + degree, degree))))


def _raised(term: Term, position: int, step: int) -> Term:
    coordinate, degree = term[position]
    return (*term[:position], (coordinate, degree + step), *term[position + 1 :])


@dataclass(frozen=True, eq=False)
class _LeastSquares:
    """Weighted least squares whose columns come in blocks; the Gram matrix grows with them.

    The columns are orthonormal under the law that the points sample, so the normal equations are
    well conditioned.
    """

    terms: tuple[Term, ...]
    _values: Array  # times the roots of the weights, as the columns
    _root: Array
    _columns: Array
    _gram: Array

    @classmethod
    def start(cls, values: Array, weights: Array | None) -> _LeastSquares:
        n = values.size
        root = np.ones(n) if weights is None else np.sqrt(weights / weights.mean())
        return cls((), values * root, root, np.empty((n, 0)), np.empty((0, 0)))

    def extended(self, terms: Sequence[Term], table: ScoreTable) -> _LeastSquares:
        block = table.matrix(terms) * self._root[:, None]
        cross = self._columns.T @ block
        gram = np.block([[self._gram, cross], [cross.T, block.T @ block]])
        columns = np.concatenate([self._columns, block], axis=1)
        return replace(self, terms=(*self.terms, *terms), _columns=columns, _gram=gram)

    def significant(self, fit: PolynomialFit, table: ScoreTable) -> list[Term]:
        """Terms one or two degrees above those present that the residuals contain.

        Two degrees at once, because an even function has no odd terms to climb over. Pairs may be
        there without their single coordinates. The strongest come first.
        """
        residuals = self._root * fit.residuals
        size = float(np.sqrt(np.mean(residuals**2)))
        factors = [((j, degree),) for j in range(table.dim) for degree in (1, 2)]
        single = table.matrix(factors)
        parents = [*self.terms, *factors]
        columns = np.concatenate([self._columns, single * self._root[:, None]], axis=1)
        signal = columns * residuals[:, None]
        t = _strength(
            signal.T @ single,
            (signal**2).T @ single**2,
            size**2 * ((columns**2).T @ single**2),
        )
        found: dict[Term, float] = {}
        for row, column in np.argwhere(t > _SIGNIFICANT):
            (factor,) = factors[column]
            term = parents[row]
            if len(term) < _MAX_FACTORS and all(factor[0] != j for j, _ in term):
                found[tuple(sorted((*term, factor)))] = float(t[row, column])
        # Higher degrees in a coordinate that a term has already.
        known = set(self.terms)
        higher = {_raised(t, i, k) for t in self.terms for i in range(len(t)) for k in (1, 2)}
        higher = {
            term
            for term in higher - known
            if all(degree <= _MAX_DEGREE[table.scores[j]] for j, degree in term)
        }
        ordered = sorted(higher)
        for start in range(0, len(ordered), _TOGETHER):
            some = ordered[start : start + _TOGETHER]
            rows = table.matrix(some).T * self._root
            covariance = rows @ residuals
            rows *= rows
            t = _strength(covariance, rows @ residuals**2, size**2 * rows.sum(axis=1))
            found.update(zip(some, t.tolist(), strict=True))
        for term in known:
            found.pop(term, None)
        order = sorted(found, key=lambda term: (-found[term], term))
        return [
            term
            for term in order
            if found[term] > max(_SIGNIFICANT, _by_chance(total_degree(term), table.dim))
        ]

    def solve(self) -> PolynomialFit:
        factor = factorize(self._gram, 0.0)
        if factor is None or factor.condition() > _MOST_CONDITION:
            raise NumericalError(
                f"{len(self.terms)} polynomials cannot be told apart by {self._values.size} points"
            )
        lower = np.tril(factor.lower)
        half = solve_triangular(lower, self._columns.T, lower=True)
        coefficients = solve_triangular(lower, half @ self._values, lower=True, trans="T")
        residuals = self._values - self._columns @ coefficients
        # One step of refinement: residuals of an exact fit are then at the level of rounding.
        more = solve_triangular(lower, half @ residuals, lower=True, trans="T")
        coefficients, residuals = coefficients + more, residuals - self._columns @ more
        leverage = np.minimum(np.einsum("ij,ij->j", half, half), 0.999)
        return PolynomialFit(
            self.terms,
            coefficients,
            float(np.mean((residuals / (1.0 - leverage)) ** 2)),
            residuals / self._root,
            leverage,
            lower,
            self._root**2,
        )
