"""Functions of x with known mean zero: control variates for the inner stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from scipy.linalg import lapack

from nestquad._typing import Array
from nestquad.regression._polynomials import (
    Score,
    ScoreTable,
    Term,
    total_degree,
    total_degree_terms,
)

__all__ = ["ControlVariates", "Tier", "fit_controls", "tiers"]

# Values for each coefficient, the most coefficients, and how many values are then looked at.
_VALUES_A_TERM = 8
_MOST_TERMS = 250
_REGRESSION_VALUES = 4096
_MOST_NODES = 128
_FOLDS = 4
# More terms have to bring the cross-validated error below this share.
_WORTH = 0.9
# Sets of so many times the best's terms are looked at before giving up.
_LOOK_AHEAD = 4
# Cosines of angles between columns below which they are taken for dependent.
_INDEPENDENT = 1e-6
_DEGREES = (1, 2, 3, 4, 6, 8, 11, 15, 20)


@dataclass(frozen=True)
class Tier:
    """Which products of a polynomial in x (of mean zero) and one in θ.

    Terms of one coordinate of x up to degree `single`, of several coordinates up to `mixed`; both
    times terms in θ while the degrees add up to at most `crossed`.
    """

    single: int
    mixed: int = 0
    crossed: int = 0

    def terms(self, dim_x: int, dim_theta: int) -> list[tuple[Term, Term]]:
        """Pairs of a term in x and a term in θ."""
        in_x: list[Term] = [((j, k),) for j in range(dim_x) for k in range(1, self.single + 1)]
        if self.mixed:
            in_x += [t for t in total_degree_terms(dim_x, self.mixed) if len(t) > 1]
        highest = max(self.crossed - 1, 0)
        in_theta = total_degree_terms(dim_theta, highest)
        return [
            (x, theta)
            for x in in_x
            for theta in in_theta
            if not theta or total_degree(x) + total_degree(theta) <= self.crossed
        ]

    def count(self, dim_x: int, dim_theta: int) -> int:
        """How many that is, without listing them."""
        total = 0
        for degree in range(1, max(self.single, self.mixed) + 1):
            in_x = dim_x if degree <= self.single else 0
            if degree <= self.mixed:
                in_x += comb(dim_x + degree - 1, degree) - dim_x
            highest = max(self.crossed - degree, 0)
            total += in_x * comb(dim_theta + highest, highest)
        return total


def tiers(dim_x: int, dim_theta: int, n_values: int, score: Score) -> list[Tier]:
    """Sets of functions with enough values for each coefficient, from small to large."""
    highest = _DEGREES[-1]
    if score == "normal":
        # The weight of a Hermite polynomial lies around ±2√degree. Beyond the outermost of n
        # points, at about √(2 log n), a fit knows nothing, and its mean is no longer zero.
        highest = int(2.0 * np.log(max(n_values, 2)) / 3.0)
    allowed = [d for d in _DEGREES if d <= highest]
    if dim_x == 1:
        every = [Tier(d, 0, c) for d in allowed for c in {0, (d + 1) // 2, d, d + 1}]
        every = [t for t in every if dim_theta <= 2 or t.crossed <= 3]
    else:
        degrees = [d for d in allowed if d <= (8 if dim_x <= 5 else 4)]
        shapes = [(0, 0), (0, 2), (2, 0), (2, 2), (2, 3), (3, 3), (4, 4), (6, 6)]
        few = dim_x + dim_theta
        every = [
            Tier(max(d, m), m, c)
            for d in degrees
            for m, c in shapes
            if m <= d + 1 and max(m, c) <= (6 if few <= 4 else 4 if few <= 6 else 3)
        ]
    room = min(n_values // _VALUES_A_TERM, _MOST_TERMS)
    sized = {tier: tier.count(dim_x, dim_theta) for tier in every}
    return sorted((t for t in sized if sized[t] <= room), key=lambda tier: sized[tier])


@dataclass(frozen=True)
class ControlVariates:
    """A fitted sum of functions of mean zero: ψ(x, θ) = Σ c_k P_k(x) Q_k(θ).

    Attributes
    ----------
    terms
        Pairs of a term in x and a term in θ.
    coefficients
        (folds, k, p): those of θ_t come from the θ of other folds, t modulo their number.
    scores
        The scores of x and of θ.
    """

    terms: list[tuple[Term, Term]]
    coefficients: Array
    scores: tuple[Score, Score]

    def integrals(self, uniform: Array, weights: Array, outer: Array) -> Array:
        """What rules give instead of zero at each θ.

        Shapes
        ------
        uniform (S, N, d_x), weights (views, S or 1, N), outer (T, d_θ) uniforms → (views, T, p).
        """
        x_terms = sorted({x for x, _ in self.terms})
        position = {x: i for i, x in enumerate(x_terms)}
        n_sets = uniform.shape[0]
        means = np.empty((len(weights), n_sets, len(x_terms)))
        block = max(1, 2_000_000 // (uniform.shape[1] * len(x_terms)))
        for s in range(0, n_sets, block):
            part = uniform[s : s + block]
            flat = _table(part.reshape(-1, part.shape[-1]), self.scores[0]).matrix(x_terms)
            columns = flat.reshape(*part.shape[:2], -1)
            own = weights[:, s : s + block] if weights.shape[1] > 1 else weights
            for view in range(len(weights)):
                w = np.broadcast_to(own[view], part.shape[:2])
                means[view, s : s + block] = np.einsum("snk,sn->sk", columns, w)
        theta = _table(outer, self.scores[1]).matrix([theta for _, theta in self.terms])
        chosen = means[:, np.arange(len(outer)) % n_sets][
            :, :, [position[x] for x, _ in self.terms]
        ]
        products = chosen * theta
        folds = len(self.coefficients)
        out = np.empty((*products.shape[:2], self.coefficients.shape[2]))
        for fold, coefficients in enumerate(self.coefficients):
            out[:, fold::folds] = products[:, fold::folds] @ coefficients
        return out

    def at(self, inner: Array, outer: Array) -> Array:
        """ψ at uniforms (T, d_x) of x and (T, d_θ) of θ: (T, p)."""
        matrix = _table(inner, self.scores[0]).matrix([x for x, _ in self.terms])
        theta = _table(outer, self.scores[1]).matrix([theta for _, theta in self.terms])
        return np.asarray((matrix * theta) @ self.coefficients.mean(axis=0))

    def values(self, uniform: Array, outer: Array, t: int) -> Array:
        """ψ at the points (N, d_x) of θ_t, whose uniforms are (d_θ,): (N, p)."""
        matrix = _table(uniform, self.scores[0]).matrix([x for x, _ in self.terms])
        theta = _table(outer[None], self.scores[1]).matrix([theta for _, theta in self.terms])
        return np.asarray((matrix * theta) @ self.coefficients[t % len(self.coefficients)])


def fit_controls(
    uniform: Array, outer: Array, values: Array, scores: Sequence[tuple[Score, Score]]
) -> ControlVariates | None:
    """Regress g on functions of mean zero, pooled over θ; how many is cross-validated.

    One θ alone has too few values. Coefficients come from deviations within each θ, so that J
    itself does not disturb them.

    Shapes
    ------
    uniform (S, N, d_x) for the S sets that θ_t takes in turn, outer (T, d_θ), values (T, N, p).

    Cost
    ----
    O(n k²) for at most a few thousand values n and a few hundred functions k, whatever T·N.
    """
    rows, n, n_out = values.shape
    nodes = min(n, _MOST_NODES)
    taken = min(rows, max(_REGRESSION_VALUES // nodes, 4))
    at = np.unique(np.linspace(0, rows - 1, taken).astype(int))
    y = values[at, :nodes] - values[at, :nodes].mean(axis=1, keepdims=True)
    scale = np.sqrt((y**2).mean(axis=(0, 1)))
    if not scale.max() > 0:
        return None
    y = (y / np.where(scale > 0, scale, 1.0)).reshape(-1, n_out)
    points = uniform[at % uniform.shape[0], :nodes]
    freedom = len(y) - len(at)
    dims = points.shape[-1], outer.shape[1]
    # Fitted to their own values, residuals look smaller than they are, and so would all errors
    # that are judged by them: each θ takes the coefficients of other θ (with other points).
    folds = [np.repeat(at % _FOLDS == f, nodes) for f in range(_FOLDS)]
    best: tuple[float, list[tuple[Term, Term]], tuple[Score, Score], Array] | None = None
    for pair in scores:
        offered = [t for t in tiers(*dims, freedom, pair[0]) if t.crossed <= len(at) // 3]
        if not offered:
            continue
        every = list(dict.fromkeys(t for tier in offered for t in tier.terms(*dims)))
        psi = _columns(points, outer[at], every, pair)
        systems = [_System.of(psi, y, fold) for fold in folds]
        position = {term: i for i, term in enumerate(every)}
        best_size = len(every)
        for tier in offered:
            terms = tier.terms(*dims)
            if best is not None and len(terms) > _LOOK_AHEAD * best_size:
                break
            chosen = [position[term] for term in terms]
            solved = [system.solve(chosen) for system in systems]
            coefficients = [c for c, _ in solved if c is not None]
            squares = sum(squares for _, squares in solved)
            if len(coefficients) == _FOLDS and (best is None or squares < _WORTH * best[0]):
                best = squares, terms, pair, np.stack(coefficients)
                best_size = len(terms)
    if best is None or best[0] > freedom * n_out:
        return None
    _, terms, pair, crossed = best
    return ControlVariates(terms, crossed * scale, pair)


@dataclass(frozen=True)
class _System:
    """Least squares on all rows but those of one fold, which are for validation."""

    gram: Array
    right: Array
    psi: Array
    y: Array

    @classmethod
    def of(cls, psi: Array, y: Array, fold: Array) -> _System:
        inside, others = np.flatnonzero(fold), np.flatnonzero(fold == 0)
        columns = psi[others]
        return cls(columns.T @ columns, columns.T @ y[others], psi[inside], y[inside])

    def solve(self, chosen: list[int]) -> tuple[Array | None, float]:
        """Coefficients (k, p) of some columns, and the sum of squared errors in the fold."""
        gram = self.gram[np.ix_(chosen, chosen)]
        size = 1.0 / np.sqrt(np.maximum(np.diagonal(gram), np.finfo(float).tiny))
        gram = gram * size[:, None] * size
        right = self.right[chosen] * size[:, None]
        lower, info = lapack.dpotrf(gram, lower=1)
        if info != 0 or np.diagonal(lower).min() < _INDEPENDENT:
            return None, np.inf
        found, _ = lapack.dpotrs(lower, right, lower=1)
        coefficients = np.asarray(found * size[:, None])
        residual = self.y - self.psi[:, chosen] @ coefficients
        return coefficients, float((residual**2).sum())


def _columns(
    points: Array, outer: Array, terms: list[tuple[Term, Term]], scores: tuple[Score, Score]
) -> Array:
    """All functions at points (T, N, d_x), less their mean at each θ: (T·N, k)."""
    rows, n, dim = points.shape
    x_terms = sorted({x for x, _ in terms})
    position = {x: i for i, x in enumerate(x_terms)}
    x = _table(points.reshape(-1, dim), scores[0]).matrix(x_terms).reshape(rows, n, -1)
    x -= x.mean(axis=1, keepdims=True)
    theta = _table(outer, scores[1]).matrix([theta for _, theta in terms])
    columns = x[:, :, [position[a] for a, _ in terms]] * theta[:, None, :]
    return np.asarray(columns.reshape(rows * n, -1))


def _table(uniform: Array, score: Score) -> ScoreTable:
    return ScoreTable(uniform, [score] * uniform.shape[1])
