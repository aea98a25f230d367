"""Weights of Matérn kernels on a line in O(N), from one banded system.

Given the states (value and m - 1 derivatives) at all nodes, the integral is a sum over gaps. What
values say about derivatives is a banded system. No kernel mean and no Gram matrix appears, so that
nothing cancels: this is quadrature by splines, and as stable, where K has lost all its digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from nestquad._typing import Array, Mask
from nestquad.rules._chain import Chain, line_chain
from nestquad.rules._grid import LineLaws, line_grid
from nestquad.rules._panel import stationary

__all__ = ["LineSolution", "line_solutions"]

# Parts of the weights: what the last refinement may change (the error left is about its square),
# and what rounding in the last sum may.
_MOST_CHANGE, _MOST_ROUNDING = 1e-5, 1e-9


@dataclass(frozen=True)
class LineSolution:
    """What there is to know of one set of nodes, in their given order.

    Attributes
    ----------
    inverse_mean, inverse_one
        K⁻¹μ and K⁻¹1, (N,).
    total
        1ᵀK⁻¹1, a sum of squares.
    variance
        Of the integral given the values, a sum of squares.
    """

    inverse_mean: Array
    inverse_one: Array
    total: float
    variance: float


def line_solutions(
    order: int, rate: Array, nodes: Array, laws: LineLaws
) -> list[LineSolution | None]:
    """One solution for each of T sets of distinct nodes (T, N), None where rounding decides.

    All sets are one chain, so that many small ones take little more time than a large one.

    Parameters
    ----------
    order
        m = ν + 1/2.
    rate
        Of the kernels, from x to z, (T,).

    Cost
    ----
    O(T N log N): sorting, and a few microseconds for each point of the grid.
    """
    sorting = np.argsort(nodes, axis=1, kind="stable")
    grid = line_grid(np.take_along_axis(nodes, sorting, axis=1), rate, laws)
    chain = line_chain(order, grid, rate, laws)
    solved = _projected(chain, grid.known)
    if solved is None:
        if len(nodes) == 1:
            return [None]
        alone = [np.array([i]) for i in range(len(nodes))]  # one of them is to blame
        return [line_solutions(order, rate[i], nodes[i], laws.of(i))[0] for i in alone]
    noise, weights, change, rounding = solved

    intensity = 1.0 / stationary(order)[0, 0]  # of the noise that gives f unit variance
    missed = noise[0] - chain.noise
    sums = np.stack(
        [
            np.einsum("ni,ni->n", missed, missed) + chain.rest,
            np.einsum("ni,ni->n", noise[1], noise[1]),
            np.abs(weights[0]) * grid.known,
            np.abs(change) * grid.known,
            rounding * grid.known,
        ]
    )
    variance, total, size, moved, lost = np.add.reduceat(sums, grid.first, axis=1)
    settled = (moved <= _MOST_CHANGE * size) & (lost <= _MOST_ROUNDING * size)
    variance = (variance + chain.ends) * intensity
    ordered = weights[:, grid.known].reshape(2, *nodes.shape)
    given = np.empty_like(ordered)
    np.put_along_axis(given, sorting[None], ordered, axis=2)
    return [
        LineSolution(w, p / intensity, float(t) / intensity, float(v)) if good else None
        for w, p, t, v, good in zip(*given, total, variance, settled, strict=True)
    ]


def _projected(chain: Chain, known: Mask) -> tuple[Array, Array, Array, Array] | None:
    """What each η contributes to the integral given the values, and to K⁻¹1.

    With B the steps, the integral is Σ u·η + Σ a·s for every u that adds up to the same integral:
    Bᵀu = -a for all that is not known, and the u closest to the noise has the least variance. The
    weights are then a + Bᵀu at the values. With the η of the function 1 and a = 0 they are K⁻¹1.

    Returns
    -------
    u (2, n, m) and the weights at all points (2, n); of K⁻¹μ, what the last refinement changed and
    a bound of what rounding may, (n,). None where BᵀB is not positive definite to rounding.
    """
    n, order = chain.start.shape
    value_to, value_back = chain.to[:, :, 0].copy(), chain.back[:, :, 0].copy()
    free = np.ones((n, order))
    free[known, 0] = 0.0
    to, back = chain.to * free[:, None, :], chain.back.copy()
    back[1:] *= free[:-1, None, :]
    factor = _factor(to, back, known)
    if factor is None:
        return None

    def at_values(u: Array, value_to: Array = value_to, value_back: Array = value_back) -> Array:
        image = np.einsum("ni,rni->rn", value_to, u)
        image[:, :-1] += np.einsum("ni,rni->rn", value_back[1:], u[:, 1:])
        return np.asarray(image / chain.units[:, 0])

    fixed = np.stack([chain.start * chain.units, np.zeros((n, order))])
    u = np.stack([chain.noise, chain.one])
    change = u
    # Each refinement squares what is left of the error of the normal equations. The number of
    # them is fixed, so that a set has the same weights in whatever company it comes.
    for _ in range(2 if order < 4 else 3):
        residual = np.einsum("nki,rnk->rni", to, u)
        residual[:, :-1] += np.einsum("nki,rnk->rni", back[1:], u[:, 1:])
        residual += fixed
        residual *= free
        solved, _ = lapack.dpbtrs(factor, residual.reshape(2, -1).T, lower=1)
        states = solved.T.reshape(2, n, order)
        change = np.einsum("nki,rni->rnk", to, states)
        change[:, 1:] += np.einsum("nki,rni->rnk", back[1:], states[:, :-1])
        u -= change
    weights = at_values(u)
    weights[0] += chain.start[:, 0]
    largest = at_values(np.abs(u[:1]), np.abs(value_to), np.abs(value_back))[0]
    return u, weights, at_values(change[:1])[0], np.finfo(float).eps * largest


def _factor(to: Array, back: Array, known: Mask) -> Array | None:
    """Banded Cholesky factor of BᵀB as LAPACK stores it, with ones in place of known values."""
    n, order, _ = to.shape
    diagonal = np.einsum("nki,nkj->nij", to, to)
    diagonal[:-1] += np.einsum("nki,nkj->nij", back[1:], back[1:])
    diagonal[known, 0, 0] = 1.0
    below = np.einsum("nki,nkj->nij", to[1:], back[1:])
    band = np.zeros((n, order, 2 * order))
    for j in range(order):
        band[:, j, : order - j] = diagonal[:, j:, j]
        band[:-1, j, order - j : 2 * order - j] = below[:, :, j]
    factor, info = lapack.dpbtrf(band.reshape(-1, 2 * order).T, lower=1, overwrite_ab=1)
    return factor if info == 0 else None
