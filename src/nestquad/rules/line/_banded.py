"""Weights of Matérn kernels on a line in O(N), from one banded system.

Given the states (value and m - 1 derivatives) at all nodes, the integral is a sum over gaps;
derivatives given values solve a banded system. No kernel mean and no Gram matrix appears, so that
nothing cancels: quadrature by splines, stable where K has lost all its digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from nestquad._typing import Array, Mask
from nestquad.rules.line._grid import LineLaws, joined, line_grid
from nestquad.rules.line._state_space import Chain, line_chain, stationary

# The part of Σ|w| that rounding may move.
_SETTLED = 1e-7


@dataclass(frozen=True)
class LineSolution:
    """The solution for one set of nodes, in their given order.

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
    order: int, rate: Array, groups: Sequence[Array], laws: LineLaws
) -> list[list[LineSolution | None]]:
    """For each of T laws one solution for each group of node sets, None where rounding decides.

    All sets are one chain, so that many small ones take little more time than a large one. The
    order is m = ν + 1/2; rates (T,) lead from x to z; each group (T, N) has an N of its own.

    Cost
    ----
    O(T N log N): sorting, and a few microseconds for each point of the grid.
    """
    sortings = [np.argsort(nodes, axis=1, kind="stable") for nodes in groups]
    ordered = (np.take_along_axis(x, by, axis=1) for x, by in zip(groups, sortings, strict=True))
    grid = joined([line_grid(x, rate, laws) for x in ordered])
    chain = line_chain(order, grid, rate, laws)
    solved = _projected(chain, grid.known)
    if solved is None:
        if rate.size == 1:
            return [[None] * len(groups)]
        alone = [np.array([i]) for i in range(rate.size)]  # one of them is to blame
        return [
            line_solutions(order, rate[i], [x[i] for x in groups], laws.of(i))[0] for i in alone
        ]
    noise, weights, moved = solved

    intensity = 1.0 / stationary(order)[0, 0]  # of the noise that gives f unit variance
    missed = noise[..., 0] - chain.noise
    sums = np.stack(
        [
            np.einsum("ni,ni->n", missed, missed) + chain.rest,
            np.einsum("ni,ni->n", noise[..., 1], noise[..., 1]),
            np.abs(weights[:, 0]) * grid.known,
            moved * grid.known,
        ]
    )
    variance, total, size, error = np.add.reduceat(sums, grid.first, axis=1)
    variance = (variance + chain.ends) * intensity
    settled = error <= _SETTLED * size
    at_nodes = weights[grid.known] / (1.0, intensity)
    found: list[list[LineSolution | None]] = [[] for _ in range(rate.size)]
    begin, s = 0, 0
    for sorting in sortings:
        for own, by in zip(found, sorting, strict=True):
            given = np.empty((by.size, 2))
            given[by] = at_nodes[begin : begin + by.size]
            mean, one = given.T.copy()
            solution = LineSolution(mean, one, float(total[s] / intensity), float(variance[s]))
            own.append(solution if settled[s] else None)
            begin, s = begin + by.size, s + 1
    return found


def _projected(chain: Chain, known: Mask) -> tuple[Array, Array, Array] | None:
    """Contribution of each η to the integral given the values, and to K⁻¹1.

    With B the steps, the integral is Σ u·η + Σ a·s for every u that adds up to the same integral:
    Bᵀu = -a for all that is not known, and the u closest to the noise has the least variance. The
    weights are then a + Bᵀu at the values. With the η of the function 1 and a = 0 they are K⁻¹1.

    Returns
    -------
    u (n, m, 2), the weights at all points (n, 2), and how far rounding may have moved those of the
    integral, (n,). None where BᵀB is not positive definite to rounding.
    """
    n, order = chain.start.shape
    free = np.ones((n, order, 1))
    free[known, 0] = 0.0
    to, back = chain.to * free.transpose(0, 2, 1), chain.back.copy()
    back[1:] *= free[:-1].transpose(0, 2, 1)
    factor = _factor(to, back, known)
    if factor is None:
        return None

    def shift(rhs: Array) -> Array:
        """B (BᵀB)⁻¹ rhs."""
        solved, _ = lapack.dpbtrs(factor, rhs.reshape(n * order, -1), lower=1)
        states = solved.reshape(rhs.shape)
        image = to @ states
        image[1:] += back[1:] @ states[:-1]
        return np.asarray(image)

    fixed = np.zeros((n, order, 2))
    fixed[..., 0] = chain.start * chain.units
    u = np.stack([chain.noise, chain.one], axis=-1)
    # Refinement makes the normal equations as good as an orthogonal factorisation. The number of
    # turns is fixed, so that a set has the same weights in whatever company it comes.
    for _ in range(2 if order < 4 else 3):
        u -= shift((fixed + _adjoint(to, back, u)) * free)

    # The remaining residual and, as a probe, rounding errors in it of alternating sign.
    left = fixed[..., :1] + _adjoint(to, back, u[..., :1])
    size = np.abs(fixed[..., :1]) + _adjoint(np.abs(to), np.abs(back), np.abs(u[..., :1]))
    size[::2] *= np.finfo(float).eps
    size[1::2] *= -np.finfo(float).eps
    moved = shift(np.concatenate([left, size], axis=-1) * free)

    every = np.concatenate([u, moved], axis=-1)
    image = _adjoint(chain.to[:, :, :1], chain.back[:, :, :1], every)[:, 0] / chain.units[:, :1]
    image[:, 0] += chain.start[:, 0]
    return u, image[:, :2], np.abs(image[:, 2:]).sum(axis=1)


def _adjoint(to: Array, back: Array, u: Array) -> Array:
    """Bᵀu, (n, m, r)."""
    image = to.transpose(0, 2, 1) @ u
    image[:-1] += back[1:].transpose(0, 2, 1) @ u[1:]
    return np.asarray(image)


def _factor(to: Array, back: Array, known: Mask) -> Array | None:
    """Banded Cholesky factor of BᵀB as LAPACK stores it, with ones in place of known values."""
    n, order, _ = to.shape
    diagonal = to.transpose(0, 2, 1) @ to
    diagonal[:-1] += back[1:].transpose(0, 2, 1) @ back[1:]
    diagonal[known, 0, 0] = 1.0
    below = to[1:].transpose(0, 2, 1) @ back[1:]
    band = np.zeros((n, order, 2 * order))
    for j in range(order):
        band[:, j, : order - j] = diagonal[:, j:, j]
        band[:-1, j, order - j : 2 * order - j] = below[:, :, j]
    factor, info = lapack.dpbtrf(band.reshape(-1, 2 * order).T, lower=1, overwrite_ab=1)
    return factor if info == 0 else None
