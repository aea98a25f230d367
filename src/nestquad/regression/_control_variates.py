"""Control variates for the inner stage: polynomials of mean zero given θ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from nestquad._typing import Array
from nestquad.regression._least_squares import solve_normal_equations
from nestquad.regression._polynomials import (
    Score,
    ScoreTable,
    Term,
    WithinGroups,
    total_degree,
    total_degree_terms,
)


@dataclass(frozen=True)
class ControlSettings:
    """Numbers of control variates.

    Attributes
    ----------
    values_per_term, terms
        Values for each coefficient, and most coefficients.
    values, nodes
        Values, and points of one θ, that a regression looks at: limits of time.
    folds
        Folds of cross-validation over θ.
    worth
        Share below which more terms have to bring the cross-validated error.
    look_ahead
        The search ends with sets that have this multiple of the terms of the best.
    degrees
        Degrees that are tried.
    """

    values_per_term: int = 8
    terms: int = 250
    values: int = 4096
    nodes: int = 128
    folds: int = 4
    worth: float = 0.9
    look_ahead: int = 4
    degrees: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 11, 15, 20)


_CONTROLS = ControlSettings()


@dataclass(frozen=True)
class Tier:
    """A set of products of a polynomial in x (of mean zero) and one in θ.

    Terms of one coordinate of x up to degree `single`, of several coordinates up to `mixed`; both
    times terms in θ while the degrees add up to at most `crossed`.
    """

    single: int
    mixed: int = 0
    crossed: int = 0

    def terms(self, dim_x: int, dim_theta: int) -> list[Term]:
        """Terms in (θ, x), θ first."""
        in_x: list[Term] = [((j, k),) for j in range(dim_x) for k in range(1, self.single + 1)]
        if self.mixed:
            in_x += [t for t in total_degree_terms(dim_x, self.mixed) if len(t) > 1]
        highest = max(self.crossed - 1, 0)
        in_theta = total_degree_terms(dim_theta, highest)
        return [
            (*theta, *((dim_theta + j, degree) for j, degree in x))
            for x in in_x
            for theta in in_theta
            if not theta or total_degree(x) + total_degree(theta) <= self.crossed
        ]

    def count(self, dim_x: int, dim_theta: int) -> int:
        """Number of terms, without listing them."""
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
    highest = _CONTROLS.degrees[-1]
    if score == "normal":
        # The weight of a Hermite polynomial lies around ±2√degree. Beyond the outermost of n
        # points, at about √(2 log n), a fit extrapolates, and its mean is no longer zero.
        highest = int(2.0 * np.log(max(n_values, 2)) / 3.0)
    allowed = [d for d in _CONTROLS.degrees if d <= highest]
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
    room = min(n_values // _CONTROLS.values_per_term, _CONTROLS.terms)
    sized = {tier: tier.count(dim_x, dim_theta) for tier in every}
    return sorted((t for t in sized if sized[t] <= room), key=lambda tier: sized[tier])


@dataclass(frozen=True)
class ControlVariates:
    """A fitted sum of polynomials of mean zero given θ: ψ(x, θ) = Σ c_k P_k(x) Q_k(θ).

    Attributes
    ----------
    terms
        Terms in (θ, x), θ first; each contains a coordinate of x.
    coefficients
        (folds, k, p): coefficients of θ_t come from the θ of other folds, t modulo their number.
    scores
        Of θ and x.
    n_theta
        Coordinates of θ.
    """

    terms: tuple[Term, ...]
    coefficients: Array
    scores: tuple[Score, ...]
    n_theta: int

    def integrals(self, uniform: Array, weights: Array, outer: Array) -> Array:
        """ψ integrated by rules at each θ, where the integral is zero.

        Shapes
        ------
        uniform (S, N, d_x), weights (views, S or 1, N), outer (T, d_θ) uniforms → (views, T, p).
        """
        in_theta, in_x = self._split()
        x_terms = sorted(set(in_x))
        position = {x: i for i, x in enumerate(x_terms)}
        n_sets = uniform.shape[0]
        means = np.empty((len(weights), n_sets, len(x_terms)))
        block = max(1, 2_000_000 // (uniform.shape[1] * len(x_terms)))
        for s in range(0, n_sets, block):
            part = uniform[s : s + block]
            table = ScoreTable(part.reshape(-1, part.shape[-1]), self.scores[self.n_theta :])
            columns = table.matrix(x_terms).reshape(*part.shape[:2], -1)
            own = weights[:, s : s + block] if weights.shape[1] > 1 else weights
            for view in range(len(weights)):
                w = np.broadcast_to(own[view], part.shape[:2])
                means[view, s : s + block] = np.einsum("snk,sn->sk", columns, w)
        theta = ScoreTable(outer, self.scores[: self.n_theta]).matrix(in_theta)
        chosen = means[:, np.arange(len(outer)) % n_sets][:, :, [position[x] for x in in_x]]
        products = chosen * theta
        folds = len(self.coefficients)
        out = np.empty((*products.shape[:2], self.coefficients.shape[2]))
        for fold, coefficients in enumerate(self.coefficients):
            out[:, fold::folds] = products[:, fold::folds] @ coefficients
        return out

    def at(self, inner: Array, outer: Array) -> Array:
        """ψ at uniforms (T, d_x) of x and (T, d_θ) of θ: (T, p)."""
        columns = ScoreTable(np.concatenate([outer, inner], axis=1), self.scores).matrix(self.terms)
        return np.asarray(columns @ self.coefficients.mean(axis=0))

    def values(self, uniform: Array, outer: Array, t: int) -> Array:
        """ψ at the points (N, d_x) of θ_t, whose uniforms are (d_θ,): (N, p)."""
        joint = np.concatenate([np.broadcast_to(outer, (len(uniform), outer.size)), uniform], 1)
        columns = ScoreTable(joint, self.scores).matrix(self.terms)
        return np.asarray(columns @ self.coefficients[t % len(self.coefficients)])

    def _split(self) -> tuple[list[Term], list[Term]]:
        """Factors of each term in θ, and its factors in x (numbered from the first x)."""
        n = self.n_theta
        in_theta = [tuple(f for f in term if f[0] < n) for term in self.terms]
        in_x = [tuple((j - n, degree) for j, degree in t if j >= n) for t in self.terms]
        return in_theta, in_x


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
    O(n k²) for at most a few thousand values n and a few hundred functions k, at any T·N.
    """
    rows, n, n_out = values.shape
    nodes = min(n, _CONTROLS.nodes)
    taken = min(rows, max(_CONTROLS.values // nodes, 4))
    at = np.unique(np.linspace(0, rows - 1, taken).astype(int))
    y = values[at, :nodes] - values[at, :nodes].mean(axis=1, keepdims=True)
    scale = np.sqrt((y**2).mean(axis=(0, 1)))
    if not scale.max() > 0:
        return None
    y = (y / np.where(scale > 0, scale, 1.0)).reshape(-1, n_out)
    points = uniform[at % uniform.shape[0], :nodes]
    freedom = len(y) - len(at)
    dims = points.shape[-1], outer.shape[1]
    theta = np.broadcast_to(outer[at, None], (*points.shape[:2], dims[1]))
    joint = np.concatenate([theta, points], axis=2).reshape(len(y), -1)
    # Fitted to their own values, residuals look smaller than they are, and so would all errors
    # that are judged by them: each θ takes the coefficients of other θ (with other points).
    folds = [np.repeat(at % _CONTROLS.folds == f, nodes) for f in range(_CONTROLS.folds)]
    best: tuple[float, list[Term], tuple[Score, ...], Array] | None = None
    for of_x, of_theta in scores:
        offered = [t for t in tiers(*dims, freedom, of_x) if t.crossed <= len(at) // 3]
        if not offered:
            continue
        every = list(dict.fromkeys(t for tier in offered for t in tier.terms(*dims)))
        names = (of_theta,) * dims[1] + (of_x,) * dims[0]
        columns = WithinGroups(joint, names, nodes).matrix(every)
        systems = []
        for fold in folds:
            rest = columns[~fold]
            systems.append((rest.T @ rest, rest.T @ y[~fold], columns[fold], y[fold]))
        position = {term: i for i, term in enumerate(every)}
        best_size = len(every)
        for tier in offered:
            terms = tier.terms(*dims)
            if best is not None and len(terms) > _CONTROLS.look_ahead * best_size:
                break
            chosen = [position[term] for term in terms]
            coefficients, squares = [], 0.0
            for gram, moments, own, left_out in systems:
                solved = solve_normal_equations(gram[np.ix_(chosen, chosen)], moments[chosen])
                if solved is None:
                    break
                coefficients.append(solved)
                squares += float(((left_out - own[:, chosen] @ solved) ** 2).sum())
            if len(coefficients) == _CONTROLS.folds and (
                best is None or squares < _CONTROLS.worth * best[0]
            ):
                best = squares, terms, names, np.stack(coefficients)
                best_size = len(terms)
    if best is None or best[0] > freedom * n_out:
        return None
    _, terms, names, crossed = best
    return ControlVariates(tuple(terms), crossed * scale, names, dims[1])
