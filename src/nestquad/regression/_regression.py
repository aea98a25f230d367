"""Regression of g on θ: a model of J, or of log J, for each output, by least squares or a ridge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from math import comb
from typing import Literal, TypeAlias

import numpy as np
from scipy.linalg import cholesky

from nestquad import limits
from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.regression._growth import grow_polynomial
from nestquad.regression._least_squares import SQUARES, LeastSquares, PolynomialFit, fit_terms
from nestquad.regression._polynomials import (
    Score,
    ScoreTable,
    Term,
    higher_terms,
    total_degree,
    total_degree_terms,
)

Link: TypeAlias = Literal["identity", "log"]


@dataclass(frozen=True)
class PolynomialSettings:
    """Numbers of regression on polynomials.

    Attributes
    ----------
    values_per_term
        Values for each coefficient of least squares.
    terms, degree
        Most terms, and highest total degree: limits of time.
    log_degrees, log_significant
        First and highest degree of log J. It rises while residuals are correlated with terms of
        higher degree by this number of standard errors.
    log_rounds, log_converged, log_step
        Rounds of scoring, the relative change that ends them, and the largest change of log J in a
        round.
    ridge_terms_per_point, ridge_points, choice_points
        Terms of a ridge for each point; points of a ridge, and points on which its scores are
        chosen: limits of time.
    freedom
        Largest share of free parameters: cross-validation is blind where they nearly equal the
        points.
    """

    values_per_term: int = 10
    terms: int = 500
    degree: int = 8
    log_degrees: tuple[int, int] = (2, 6)
    log_significant: float = 4.0
    log_rounds: int = 25
    log_converged: float = 1e-8
    log_step: float = 1.0
    ridge_terms_per_point: float = 0.6
    ridge_points: int = 2**13
    choice_points: int = 2**11
    freedom: float = 0.9


_POLYNOMIALS = PolynomialSettings()
# Penalties for each point, from zero to the removal of all terms.
_PENALTIES = np.logspace(-9.0, 1.0, 31)


@dataclass(frozen=True, eq=False)
class Regression:
    """J(θ) = s Σ_k c_k P_k(θ), or s times the exponential of it.

    Attributes
    ----------
    fit
        The least squares that gave the coefficients: of the values on terms in θ and on control
        variates; for the log link of the values over Ĵ(θ).
    coefficients
        c, one for each term of the fit; coefficients of control variates are not used.
    scale
        s, by which values were divided, since their squares may be out of range.
    """

    fit: PolynomialFit
    coefficients: Array
    link: Link
    n_theta: int
    scale: float

    @cached_property
    def theta_terms(self) -> list[int]:
        """Positions of the terms in θ alone."""
        return [k for k, term in enumerate(self.fit.terms) if _in_theta(term, self.n_theta)]

    @property
    def degree(self) -> int:
        """Total degree in θ."""
        return max(total_degree(self.fit.terms[k]) for k in self.theta_terms)

    def j(self, table: ScoreTable, coefficients: Array | None = None) -> Array:
        """Ĵ at n points (n,), or (n, m) for m sets of coefficients (p, m)."""
        chosen = self.theta_terms
        columns = table.matrix([self.fit.terms[k] for k in chosen])
        used = self.coefficients if coefficients is None else coefficients
        linear = np.asarray(columns @ used[chosen])
        j = linear if self.link == "identity" else np.exp(np.minimum(linear, 700.0))
        return np.asarray(self.scale * j)

    def raised(self, table: ScoreTable) -> Regression:
        """Extended by a fit of the residuals on terms of one and two more degrees in θ."""
        values = self.fit.residuals
        more = higher_terms(self.fit.terms, self.n_theta, _room(values.size))
        if not more:
            return self
        fitted = fit_terms(values, table.leading(self.n_theta), more).coefficients
        coefficients = np.concatenate([self.coefficients, fitted])
        return replace(self, fit=self.fit.extended(more, fitted), coefficients=coefficients)

    def perturbed(self, table: ScoreTable, multipliers: Array) -> Array:
        """Coefficients (p, m) under other noise: the wild bootstrap.

        Each leave-one-out residual is multiplied by one of (n, m) random numbers. The covariance
        over m is the sandwich estimate; outputs that get the same numbers keep their correlation.
        """
        noise = self.fit.residuals / (1.0 - self.fit.leverage)
        change = self.fit.response(table, noise[:, None] * multipliers)
        return np.asarray(self.coefficients[:, None] + change)

    def refitted(
        self, values: Array, table: ScoreTable, weights: Array | None = None
    ) -> Regression:
        """Refit the terms to other values."""
        if self.link == "identity":
            values = values / self.scale
            if self.fit.penalty:
                fit = ridge_terms(values, table, self.fit.terms, weights, self.fit.penalty)
            else:
                fit = fit_terms(values, table, self.fit.terms, weights)
            return replace(self, fit=fit, coefficients=fit.coefficients)
        return _log_fit(values, table, self.fit.terms, self.n_theta)


def regress(
    values: Array,
    table: ScoreTable,
    n_theta: int,
    *,
    degree: int | None,
    control_variates: bool,
) -> Regression:
    """Least squares on polynomials in θ, whose degree leave-one-out errors choose."""
    scale = float(scale_of(values))
    values = values / scale
    terms = _terms(values, table, n_theta, degree, control_variates)
    current = LeastSquares.start(values, None).extended(terms, table)
    best = current.fit()
    for total in range(1, _POLYNOMIALS.degree + 1) if degree is None else ():
        if comb(n_theta + total, total) > _room(values.size):
            break
        present = set(best.terms)
        more = [t for t in total_degree_terms(n_theta, total) if t not in present]
        if len(present) + len(more) > _room(values.size):
            break
        if not more:
            continue
        try:
            larger = current.extended(more, table)
        except NumericalError:
            break
        if (fit := larger.fit()).loo < best.loo:
            current, best = larger, fit
    return Regression(best, best.coefficients, "identity", n_theta, scale)


def regress_log(
    values: Array,
    table: ScoreTable,
    n_theta: int,
    *,
    degree: int | None,
    control_variates: bool,
) -> Regression:
    """A polynomial for log J of positive values, so that Ĵ is positive."""
    total = degree or _POLYNOMIALS.log_degrees[0]
    while total > 1 and comb(n_theta + total, total) > _room(values.size):
        total -= 1
    in_theta = total_degree_terms(n_theta, total)
    first = _log_fit(values, table, in_theta, n_theta)
    while degree is None and total < _POLYNOMIALS.log_degrees[1] and _asks_for_more(first, table):
        total += 1
        if comb(n_theta + total, total) > _room(values.size):
            break
        in_theta = total_degree_terms(n_theta, total)
        first = _log_fit(values, table, in_theta, n_theta)
    if not control_variates:
        return first
    relative = values / first.j(table)
    grown = _terms(relative, table, n_theta, None, control_variates)
    controls = [term for term in grown if not _in_theta(term, n_theta)]
    return _log_fit(values, table, [*in_theta, *controls], n_theta)


def _asks_for_more(model: Regression, table: ScoreTable) -> bool:
    """Whether residuals are correlated with terms of higher degree in θ."""
    residuals = model.fit.residuals
    more = higher_terms(model.fit.terms, model.n_theta, _room(residuals.size))
    columns = table.matrix(more)
    t = np.abs(residuals @ columns) / np.sqrt(residuals**2 @ columns**2 + 1e-300)
    return bool((t > _POLYNOMIALS.log_significant).any())


def _terms(
    values: Array, table: ScoreTable, n_theta: int, degree: int | None, control_variates: bool
) -> list[Term]:
    room = _room(values.size)
    if degree is None:
        few = min(values.size, limits.CHOICE_POINTS)
        seen = (table if control_variates else table.leading(n_theta)).first(few)
        return list(grow_polynomial(values[:few], seen, max_terms=room)[-1].terms)
    terms = total_degree_terms(n_theta, degree)
    for total in range(degree, 0, -1) if control_variates else ():
        if len(terms) + comb(table.dim + total, total) - comb(n_theta + total, total) <= room:
            every = total_degree_terms(table.dim, total)
            return [*terms, *(term for term in every if not _in_theta(term, n_theta))]
    return terms


def _log_fit(values: Array, table: ScoreTable, terms: Sequence[Term], n_theta: int) -> Regression:
    """Solve Σ_i P_k(θ_i) (y_i/Ĵ(θ_i) − 1 − control variates) = 0 for all terms in θ.

    Values over the current Ĵ are regressed on terms in θ and control variates; the terms in θ
    say by how much log Ĵ has to change, until they vanish.
    """
    scale = float(scale_of(values))
    values = values / scale
    coefficients = np.zeros(len(terms))
    constant = terms.index(())
    coefficients[constant] = np.log(values.mean())
    in_theta = [k for k, term in enumerate(terms) if _in_theta(term, n_theta)]
    squares = LeastSquares.start(values, None).extended(terms, table)
    # Without weights the columns are the polynomials.
    columns = squares.columns[in_theta]
    log_j = np.full(values.size, coefficients[constant])
    for _ in range(_POLYNOMIALS.log_rounds):
        relative = values / np.exp(log_j)
        change = squares.coefficients(relative)[in_theta]
        change[in_theta.index(constant)] -= 1.0
        moved = change @ columns
        largest = float(np.abs(moved).max())
        step = min(1.0, _POLYNOMIALS.log_step / max(largest, 1e-300))
        coefficients[in_theta] += step * change
        if largest < _POLYNOMIALS.log_converged:
            break
        log_j += step * moved
    return Regression(squares.with_values(relative).fit(), coefficients, "log", n_theta, scale)


def _room(n_values: int) -> int:
    return max(1, min(n_values // _POLYNOMIALS.values_per_term, _POLYNOMIALS.terms))


def _in_theta(term: Term, n_theta: int) -> bool:
    return all(coordinate < n_theta for coordinate, _ in term)


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
    max_points: int = _POLYNOMIALS.ridge_points,
    max_terms: int = _POLYNOMIALS.terms,
    terms: Sequence[Term] | None = None,
) -> Ridge:
    """Regress values (n, p) on polynomials of uniforms (n, d), with weights (n,).

    Least squares that chooses its terms sees the part that a few of them explain. A ridge takes all
    terms of low degree at once, which is better where g is a sum of many small effects: a book of
    options, say. Coefficients shrink as generalized cross-validation says. Normal scores of all
    coordinates compete with uniform ones, however the laws are written. `terms` replace the terms
    of low degree.
    """
    n, dim = min(len(values), max_points), uniform.shape[1]
    terms = terms or _low_terms(dim, min(int(_POLYNOMIALS.ridge_terms_per_point * n), max_terms))
    few = min(n, _POLYNOMIALS.choice_points)
    known = [term for term in terms if len(terms) <= few // 2 or len(term) < 2]
    spread = values[:few].var(axis=0)
    found: dict[Score, float] = {}
    options: tuple[Score, ...] = ("normal", "uniform")
    for score in options:
        system = _System.on(ScoreTable(uniform[:few], (score,) * dim), known, weights)
        left = [system.fit(column).loo for column in values[:few].T]
        found[score] = float(np.sum(left / np.where(spread > 0, spread, 1.0)))
    best = min(options, key=found.__getitem__)
    system = _System.on(ScoreTable(uniform[:n], (best,) * dim), terms, weights)
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
    def on(cls, table: ScoreTable, terms: Sequence[Term], weights: Array | None) -> _System:
        n = table.n_points
        given = np.ones(n) if weights is None else weights[:n]
        root = np.sqrt(given / given.mean())
        columns = table.matrix(terms) * root[:, None]
        spectrum, vectors = np.linalg.eigh(columns.T @ columns)
        return cls(table, tuple(terms), root, columns, np.maximum(spectrum, 0.0), vectors)

    @cached_property
    def _rotated_squares(self) -> Array:
        """Squares (n, k) of the columns in the basis of eigenvectors: once for all outputs."""
        rotated = self.columns @ self.vectors
        rotated *= rotated
        return rotated

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
        score = np.where(freedom < _POLYNOMIALS.freedom, rest / (1.0 - freedom) ** 2, np.inf)
        chosen = float(options[int(np.argmin(score))])
        if not np.isfinite(score).any() and penalty is None:
            raise NumericalError(f"{n} points are too few for a ridge on {len(self.terms)} terms")
        inverse = 1.0 / (self.spectrum + chosen)
        coefficients = self.vectors @ (inverse * moments)
        residuals = scaled - self.columns @ coefficients
        leverage = np.minimum(self._rotated_squares @ inverse, SQUARES.leverage)
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


def _low_terms(dim: int, most: int) -> list[Term]:
    """The constant, and groups of terms by rising degree as long as there is room."""
    terms: list[Term] = [()]
    for group in _groups(dim):
        if len(terms) + len(group) > most:
            break
        terms += group
    return terms


def _groups(dim: int) -> Iterator[list[Term]]:
    """Terms of total degree 1, 2, …, with few coordinates first."""
    for degree in range(1, 9):
        for factors in range(1, min(dim, degree, 3) + 1):
            ways = [w for w in product(range(1, degree + 1), repeat=factors) if sum(w) == degree]
            yield [
                tuple(zip(coordinates, way, strict=True))
                for coordinates in combinations(range(dim), factors)
                for way in ways
            ]
