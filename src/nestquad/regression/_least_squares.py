"""Weighted least squares on polynomials, with leave-one-out residuals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular

from nestquad import limits
from nestquad._typing import Array
from nestquad.clock import tick
from nestquad.errors import NumericalError
from nestquad.regression._polynomials import Score, ScoreTable, Term


@dataclass(frozen=True)
class SquaresSettings:
    """Tolerances of least squares.

    Attributes
    ----------
    pivots
        Ratio of the largest pivot to the smallest, beyond which columns cannot be told apart:
        squared, it is a lower bound of the condition of the normal equations.
    left
        Share of a column orthogonal to its predecessors, below which orthogonality is restored:
        rounding errors of the first projection are then a thousand times larger, relative to it.
    leverage
        Largest leverage: a point of full leverage has no leave-one-out residual.
    """

    pivots: float = 1e6
    left: float = 1e-3
    leverage: float = 0.999


SQUARES = SquaresSettings()
_TERMS = 16  # terms that are worked on together


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
    penalty
        Ridge: addition to the diagonal of that matrix, for each point.
    """

    terms: tuple[Term, ...]
    coefficients: Array
    loo: float
    residuals: Array
    leverage: Array
    lower: Array
    weights: Array
    penalty: float = 0.0

    def response(self, table: ScoreTable, noise: Array) -> Array:
        """Change of the coefficients, (p, m), by noise (n, m) in the values.

        Only fitted values count.
        """
        weighted = self.weights[:, None] * noise[: self.weights.size]
        moments = np.zeros((len(self.terms), noise.shape[1]))
        for some, which, rows in pieces(table, self.terms, self.weights.size):
            moments[which] += rows @ weighted[some]
        half = solve_triangular(self.lower, moments, lower=True)
        return np.asarray(solve_triangular(self.lower, half, lower=True, trans="T"))

    def with_coefficients(self, coefficients: Array) -> PolynomialFit:
        """Replace the coefficients by others (p,), or by several sets (p, m)."""
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
        (terms, coefficients), n = _inside([self], table.dim), table.n_points
        coefficients = coefficients[:, 0]
        value = np.zeros((n, *coefficients.shape[1:]))
        for some, which, rows in pieces(table, terms, n):
            value[some] += rows.T @ coefficients[which]
        return value


def evaluate_all(fits: Sequence[PolynomialFit], uniform: Array, scores: Sequence[Score]) -> Array:
    """Several polynomials as by `PolynomialFit.evaluate` at uniforms (n, d): (n, m).

    Terms that they have in common are computed once.
    """
    n, dim = uniform.shape
    terms, coefficients = _inside(fits, dim)
    value = np.zeros((n, len(fits)))
    for block in blocks(n):
        table, part = ScoreTable(uniform[block], scores[:dim]), value[block]
        for some, which, rows in pieces(table, terms, len(part)):
            part[some] += rows.T @ coefficients[which]
    return value


def _inside(fits: Sequence[PolynomialFit], dim: int) -> tuple[list[Term], Array]:
    """All terms in the leading coordinates, and their coefficients (p, m, …) in each fit."""
    every = {term: None for fit in fits for term in fit.terms if not term or term[-1][0] < dim}
    position = {term: k for k, term in enumerate(every)}
    coefficients = np.zeros((len(every), len(fits), *fits[0].coefficients.shape[1:]))
    for m, fit in enumerate(fits):
        for term, coefficient in zip(fit.terms, fit.coefficients, strict=True):
            if term in position:
                coefficients[position[term], m] = coefficient
    return list(every), coefficients


def blocks(n: int) -> list[slice]:
    """Points in pieces: shorter columns cost more in calls, longer ones leave caches."""
    size = 4 * limits.CACHE_NUMBERS // _TERMS
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def pieces(
    table: ScoreTable, terms: Sequence[Term], n: int
) -> Iterator[tuple[slice, slice, Array]]:
    """Columns of the terms at n points, a few of them at some points at a time, as rows.

    All pieces are written to the same memory, a megabyte that stays in a cache.
    """
    memory = np.empty((min(_TERMS, len(terms)), min(4 * limits.CACHE_NUMBERS // _TERMS, n)))
    for block in blocks(n):
        tick()
        for start in range(0, len(terms), _TERMS):
            which = slice(start, start + _TERMS)
            rows = memory[: len(terms[which]), : block.stop - block.start]
            table.fill(terms[which], rows, block)
            yield block, which, rows


def fit_terms(
    values: Array, table: ScoreTable, terms: Sequence[Term], weights: Array | None = None
) -> PolynomialFit:
    """Weighted least squares of values (n,) on given terms."""
    return LeastSquares.start(values, weights).extended(terms, table).fit()


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Weighted least squares whose columns come in blocks.

    Columns are made orthogonal to their predecessors as they come (block Gram–Schmidt, twice where
    little is left), so that a block costs O(n p) for each of its columns, residuals and leverages
    included.

    Blocks are written into memory that all extensions of a fit share: extending it again makes
    earlier extensions invalid.
    """

    terms: tuple[Term, ...]
    residuals: Array  # (n,), times the roots of the weights, as the columns
    leverage: Array
    root: Array
    _columns: Array  # (capacity, n)
    _basis: Array  # (capacity, n): columns = lower @ basis
    _lower: Array  # (capacity, capacity)
    _projections: Array  # (capacity,): values times the basis

    @classmethod
    def start(cls, values: Array, weights: Array | None) -> LeastSquares:
        n = values.size
        root = np.ones(n) if weights is None else np.sqrt(weights / weights.mean())
        none = np.empty((0, n))
        return cls((), values * root, np.zeros(n), root, none, none, np.empty((0, 0)), np.empty(0))

    @property
    def columns(self) -> Array:
        """Columns times the roots of the weights, as rows (p, n)."""
        return self._columns[: len(self.terms)]

    def extended(self, terms: Sequence[Term], table: ScoreTable) -> LeastSquares:
        """With further terms; NumericalError where the points cannot tell columns apart."""
        old, new = len(self.terms), len(self.terms) + len(terms)
        larger = self._with_room(new)
        block, rest = larger._columns[old:new], larger._basis[old:new]
        table.fill(terms, block)
        block *= self.root
        basis = larger._basis[:old]
        tick()
        cross = block @ basis.T
        np.matmul(cross, basis, out=rest)
        np.subtract(block, rest, out=rest)
        corner, info = lapack.dpotrf(rest @ rest.T, lower=1, clean=1)
        if old and (info != 0 or corner.diagonal().min() < SQUARES.left * np.sqrt(self.root.size)):
            again = rest @ basis.T
            cross += again
            rest -= again @ basis
            corner, info = lapack.dpotrf(rest @ rest.T, lower=1, clean=1)
        lower = larger._lower
        lower[old:new, :old] = cross
        lower[old:new, old:new] = corner
        pivots = lower.diagonal()[:new]
        if info != 0 or not pivots.max() < SQUARES.pivots * pivots.min():
            raise NumericalError(
                f"{new} polynomials cannot be told apart by {self.root.size} points"
            )
        tick()
        # In place: transposed, rows are contiguous to BLAS.
        blas.dtrsm(1.0, corner, rest.T, side=1, lower=1, trans_a=1, overwrite_b=1)
        products = rest @ self.residuals
        residuals = self.residuals - products @ rest
        larger._projections[old:new] = products
        # Refinement: residuals of an exact fit are then at the level of rounding.
        more = rest @ residuals
        residuals -= more @ rest
        projections = larger._projections.copy()
        projections[old:new] += more
        leverage = self.leverage + np.einsum("ij,ij->j", rest, rest)
        fitted = {"residuals": residuals, "leverage": leverage, "_projections": projections}
        return replace(larger, terms=(*self.terms, *terms), **fitted)

    def with_values(self, values: Array) -> LeastSquares:
        """Refit the columns to other values."""
        basis, residuals = self._basis[: len(self.terms)], values * self.root
        projections = np.zeros_like(self._projections)
        for _ in range(2):  # the second time for refinement
            products = basis @ residuals
            residuals -= products @ basis
            projections[: len(products)] += products
        return replace(self, residuals=residuals, _projections=projections)

    def coefficients(self, values: Array) -> Array:
        """Coefficients for other values, without refinement."""
        size = len(self.terms)
        coefficients = self._basis[:size] @ (values * self.root)
        return np.asarray(
            solve_triangular(self._lower[:size, :size], coefficients, lower=True, trans="T")
        )

    def fit(self) -> PolynomialFit:
        """Coefficients and leave-one-out errors."""
        size = len(self.terms)
        lower = self._lower[:size, :size].copy()
        coefficients = solve_triangular(lower, self._projections[:size], lower=True, trans="T")
        leverage = np.minimum(self.leverage, SQUARES.leverage)
        return PolynomialFit(
            self.terms,
            coefficients,
            float(np.mean((self.residuals / (1.0 - leverage)) ** 2)),
            self.residuals / self.root,
            leverage,
            lower,
            self.root**2,
        )

    def _with_room(self, size: int) -> LeastSquares:
        """Itself, in larger memory where this is too small."""
        if size <= len(self._columns):
            return self
        old, n = len(self.terms), self.root.size
        # All at once at first; then doublings.
        capacity = size if old == 0 else max(size, 2 * len(self._columns))
        columns, basis = np.empty((capacity, n)), np.empty((capacity, n))
        lower, projections = np.zeros((capacity, capacity)), np.empty(capacity)
        columns[:old], basis[:old] = self._columns[:old], self._basis[:old]
        lower[:old, :old], projections[:old] = self._lower[:old, :old], self._projections[:old]
        return replace(self, _columns=columns, _basis=basis, _lower=lower, _projections=projections)


def solve_normal_equations(gram: Array, moments: Array) -> Array | None:
    """Coefficients (k, p) from the Gram matrix of k columns and their products with p values.

    None where the columns cannot be told apart.
    """
    size = 1.0 / np.sqrt(np.maximum(np.diagonal(gram), np.finfo(float).tiny))
    lower, info = lapack.dpotrf(gram * size[:, None] * size, lower=1)
    # Columns have length one here, so pivots are sines of the angles between them.
    if info != 0 or np.diagonal(lower).min() < 1.0 / SQUARES.pivots:
        return None
    solution, _ = lapack.dpotrs(lower, moments * size[:, None], lower=1)
    return np.asarray(solution * size[:, None])
