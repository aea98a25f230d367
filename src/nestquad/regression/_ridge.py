"""Ridge regression on all polynomials of low degree, its penalty by cross-validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from scipy.linalg import cholesky

from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.regression._least_squares import MOST_LEVERAGE, PolynomialFit
from nestquad.regression._polynomials import Score, ScoreTable, Term

# Terms for each point, and limits of time: terms, points, and points on which scores are chosen.
_TERMS_A_POINT, _MOST_TERMS, _MOST_POINTS, _CHOICE = 0.6, 500, 1 << 13, 1 << 11
# Penalties for each point, from none to one under which nothing remains.
_PENALTIES = np.logspace(-9.0, 1.0, 31)
# Cross-validation is blind where there are nearly as many free parameters as points.
_MOST_FREEDOM = 0.9


@dataclass(frozen=True, eq=False)
class Ridge:
    """One fit for each output of g, on the polynomials of a table."""

    fits: tuple[PolynomialFit, ...]
    table: ScoreTable


def ridge(
    values: Array,
    uniform: Array,
    weights: Array | None = None,
    *,
    max_points: int = _MOST_POINTS,
    max_terms: int = _MOST_TERMS,
) -> Ridge:
    """Regress values (n, p) on polynomials of uniforms (n, d), with weights (n,).

    Least squares that chooses its terms sees what a few of them explain. A ridge takes all terms
    of low degree at once, which is better where g is a sum of many small effects: a book of
    options, say. Coefficients shrink as generalized cross-validation says. Normal scores of all
    coordinates compete with uniform ones, however the laws are written.
    """
    n, dim = min(len(values), max_points), uniform.shape[1]
    terms = _terms(dim, min(int(_TERMS_A_POINT * n), max_terms))
    few = min(n, _CHOICE)
    known = [term for term in terms if len(terms) <= few // 2 or len(term) < 2]
    spread = values[:few].var(axis=0)
    found: dict[Score, float] = {}
    options: tuple[Score, ...] = ("normal", "uniform")
    for score in options:
        system = _System.of(uniform[:few], (score,) * dim, known, weights)
        left = [system.fit(column).loo for column in values[:few].T]
        found[score] = float(np.sum(left / np.where(spread > 0, spread, 1.0)))
    best = min(options, key=found.__getitem__)
    system = _System.of(uniform[:n], (best,) * dim, terms, weights)
    return Ridge(tuple(system.fit(column) for column in values[:n].T), system.table)


def ridge_terms(
    values: Array,
    table: ScoreTable,
    terms: Sequence[Term],
    weights: Array | None,
    penalty: float,
) -> PolynomialFit:
    """The ridge of values (n,) with given terms and penalty for each point."""
    return _System.on(table, terms, weights).fit(values, penalty)


@dataclass(frozen=True, eq=False)
class _System:
    """Columns (n, k) times the roots of the weights, and their Gram matrix Q diag(s) Qᵀ."""

    table: ScoreTable
    terms: tuple[Term, ...]
    root: Array
    columns: Array
    spectrum: Array
    vectors: Array

    @classmethod
    def of(
        cls, uniform: Array, scores: tuple[Score, ...], terms: Sequence[Term], weights: Array | None
    ) -> _System:
        return cls.on(ScoreTable(uniform, scores), terms, weights)

    @classmethod
    def on(cls, table: ScoreTable, terms: Sequence[Term], weights: Array | None) -> _System:
        n = table.n_points
        given = np.ones(n) if weights is None else weights[:n]
        root = np.sqrt(given / given.mean())
        columns = table.matrix(terms) * root[:, None]
        spectrum, vectors = np.linalg.eigh(columns.T @ columns)
        return cls(table, tuple(terms), root, columns, np.maximum(spectrum, 0.0), vectors)

    def fit(self, values: Array, penalty: float | None = None) -> PolynomialFit:
        """With a penalty for each point; None leaves it to generalized cross-validation."""
        n = self.root.size
        # The mean is not shrunk.
        mean = float(self.root**2 @ values[:n]) / n
        scaled = (values[:n] - mean) * self.root
        moments = self.vectors.T @ (self.columns.T @ scaled)
        options = n * (_PENALTIES if penalty is None else np.array([penalty]))
        shrunk = self.spectrum / (self.spectrum + options[:, None])
        # ‖y − Xb‖² = ‖y‖² − Σ (2h − h²) a²/s over the eigenvectors.
        projected = moments**2 / np.maximum(self.spectrum, np.finfo(float).tiny)
        rest = np.maximum(scaled @ scaled - (2.0 * shrunk - shrunk**2) @ projected, 0.0)
        freedom = shrunk.sum(axis=1) / n
        score = np.where(freedom < _MOST_FREEDOM, rest / (1.0 - freedom) ** 2, np.inf)
        chosen = float(options[int(np.argmin(score))])
        if not np.isfinite(score).any() and penalty is None:
            raise NumericalError(f"{n} points are too few for a ridge on {len(self.terms)} terms")
        inverse = 1.0 / (self.spectrum + chosen)
        coefficients = self.vectors @ (inverse * moments)
        residuals = scaled - self.columns @ coefficients
        # Rows of the hat matrix: half of the inverse on each side.
        half = self.columns @ (self.vectors * np.sqrt(inverse))
        leverage = np.minimum(np.einsum("ij,ij->i", half, half), MOST_LEVERAGE)
        coefficients[self.terms.index(())] += mean
        lower = cholesky((self.vectors / inverse) @ self.vectors.T, lower=True)
        return PolynomialFit(
            self.terms,
            coefficients,
            float(np.mean((residuals / (1.0 - leverage)) ** 2)),
            residuals / self.root,
            leverage,
            lower,
            self.root**2,
            chosen / n,
        )


def _terms(dim: int, most: int) -> list[Term]:
    """The constant, and groups of terms by rising degree as long as there is room."""
    terms: list[Term] = [()]
    for group in _groups(dim):
        if len(terms) + len(group) > most:
            break
        terms += group
    return terms


def _groups(dim: int) -> Iterator[list[Term]]:
    """Terms of total degree 1, 2, …, those of few coordinates first."""
    for degree in range(1, 9):
        for factors in range(1, min(dim, degree, 3) + 1):
            ways = [w for w in product(range(1, degree + 1), repeat=factors) if sum(w) == degree]
            yield [
                tuple(zip(coordinates, way, strict=True))
                for coordinates in combinations(range(dim), factors)
                for way in ways
            ]
