"""A Matérn process between two neighbours on a line, to full relative precision.

In units z = rate · x the process is white noise passed through (D + 1)^-m, m = ν + 1/2. With the
state s_j = (D + 1)^j f, j < m, the step over a gap δ is s_i' = e^{-δ} Σ_j δ^{j-i}/(j-i)! s_j and
noise. Once s_j is multiplied by δ^j only the damping depends on the gap: powers of δ, which are
what makes close nodes difficult, stand outside. Integrals are taken by Gauss–Legendre, never as
differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb, factorial

import numpy as np

from nestquad._typing import Array

__all__ = [
    "LONGEST",
    "Panels",
    "free_panels",
    "quadrature_nodes",
    "reversal",
    "stationary",
    "two_sided_panels",
]

LONGEST = 1.0
"""The longest gap in z that the quadrature nodes resolve to rounding."""

_COUNT = 12


@dataclass(frozen=True)
class Panels:
    """Gaps with a state at both ends.

    With ŝ_j = δ^j s_j at the start and ŝ' at the end, arriving ŝ' - leaving ŝ = δ^{m-1/2} η with η
    standard normal. The integral of f against the density is start · ŝ + noise · η and a rest that
    is independent of both, of variance `rest`. For f = 1 the same η is `one`.

    Shapes
    ------
    arriving, leaving (n, m, m); start, noise, one (n, m); rest (n,).
    """

    arriving: Array
    leaving: Array
    start: Array
    noise: Array
    one: Array
    rest: Array


def two_sided_panels(order: int, gaps: Array, density: Array) -> Panels:
    """Gaps (n,) in z, with the density in z at their quadrature nodes, (n, q)."""
    tables = _tables(order)
    u, weights = quadrature_nodes()
    decay = np.exp(-gaps[:, None] * u)
    start, response = _driven(order, gaps, decay, density)
    # The noise at u enters the state at the end through polynomials of 1 - u times e^{-δ(1-u)}:
    # their span, in an orthonormal basis, is what η knows of the noise.
    ahead = decay[:, ::-1]
    weighted = ahead * weights
    grams = np.einsum("nq,qij->nij", weighted * ahead, tables.pairs)
    whiten = _lower_inverse(np.linalg.cholesky(grams))
    noise = _times(whiten, np.einsum("nq,qi->ni", weighted * response, tables.basis))
    known = np.einsum("nij,ni->nj", whiten, noise)
    unknown = response - ahead * np.einsum("nj,qj->nq", known, tables.basis)
    arriving = whiten @ tables.from_state
    leaving = np.exp(-gaps)[:, None, None] * (arriving @ tables.step)
    root = np.sqrt(gaps)[:, None]
    one = _times(whiten, np.einsum("nq,qi->ni", weighted, tables.basis))
    rest = gaps * np.einsum("nq,nq,q->n", unknown, unknown, weights)
    return Panels(arriving, leaving, start, root * noise, root * one, rest)


def free_panels(order: int, gaps: Array, density: Array) -> tuple[Array, Array]:
    """Gaps beyond the last node, with a state at one end only: start (n, m) and rest (n,)."""
    u, weights = quadrature_nodes()
    start, response = _driven(order, gaps, np.exp(-gaps[:, None] * u), density)
    return start, np.asarray(gaps * np.einsum("nq,nq,q->n", response, response, weights))


@cache
def stationary(order: int) -> Array:
    """Covariance of the state under white noise of unit intensity, (m, m)."""
    degrees = range(order)[::-1]
    return np.array([[comb(i + j, i) / 2.0 ** (i + j + 1) for j in degrees] for i in degrees])


@cache
def reversal(order: int) -> Array:
    """The matrix that makes (1 - D)^j f, the state of the process read backwards, from s."""
    return np.array(
        [
            [comb(j, i) * 2.0 ** (j - i) * (-1.0) ** i if i <= j else 0.0 for i in range(order)]
            for j in range(order)
        ]
    )


@cache
def quadrature_nodes() -> tuple[Array, Array]:
    """Gauss–Legendre on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(_COUNT)
    return 0.5 + 0.5 * nodes, 0.5 * weights


@dataclass(frozen=True)
class _Tables:
    """What does not depend on the gap.

    Shapes
    ------
    powers, basis (q, m); pairs (q, m, m); from_state, step (m, m); response (q, q).
    """

    powers: Array
    basis: Array
    pairs: Array
    from_state: Array
    step: Array
    response: Array


@cache
def _tables(order: int) -> _Tables:
    u, weights = quadrature_nodes()
    basis = _legendre(u, order)
    entering = _powers(1.0 - u, order)[:, ::-1]  # into state j: (1-u)^(m-1-j) / (m-1-j)!
    # Row i integrates (t - u_i)^(m-1) / (m-1)! times the polynomial through q values over t > u_i.
    left = 1.0 - u[:, None]
    t = u[:, None] + left * u
    cardinal = _legendre(t, _COUNT) @ (_legendre(u, _COUNT) * weights[:, None]).T
    reach = left * weights * _powers(t - u[:, None], order)[..., -1]
    return _Tables(
        powers=_powers(u, order),
        basis=basis,
        pairs=basis[:, :, None] * basis[:, None, :],
        from_state=np.asarray(np.linalg.inv(entering.T @ (weights[:, None] * basis)), float),
        step=np.array(
            [[1 / factorial(j - i) if j >= i else 0.0 for j in range(order)] for i in range(order)]
        ),
        response=np.einsum("ik,ikq->iq", reach, cardinal),
    )


def _driven(order: int, gaps: Array, decay: Array, density: Array) -> tuple[Array, Array]:
    """∫ f p over a gap: what the state at its start does, and what the noise at each node does."""
    tables = _tables(order)
    _, weights = quadrature_nodes()
    damped = decay * density
    start = gaps[:, None] * np.einsum("nq,qi->ni", damped * weights, tables.powers)
    response = np.einsum("nq,iq->ni", damped, tables.response) / decay
    return start, gaps[:, None] ** order * response


def _legendre(u: Array, count: int) -> Array:
    """Polynomials of degree below `count`, orthonormal on [0, 1], (..., count)."""
    values = np.polynomial.legendre.legvander(2.0 * u - 1.0, count - 1)
    return np.asarray(values * np.sqrt(2.0 * np.arange(count) + 1.0))


def _powers(u: Array, order: int) -> Array:
    return np.stack([u**j / factorial(j) for j in range(order)], axis=-1)


def _lower_inverse(factors: Array) -> Array:
    """Inverses of lower triangular matrices (n, m, m), five times as fast as by LAPACK."""
    out = np.zeros_like(factors)
    for i in range(factors.shape[-1]):
        out[:, i, i] = 1.0 / factors[:, i, i]
        for j in range(i):
            done = sum(factors[:, i, k] * out[:, k, j] for k in range(j, i))
            out[:, i, j] = -done * out[:, i, i]
    return out


def _times(matrices: Array, vectors: Array) -> Array:
    return np.asarray(np.einsum("nij,nj->ni", matrices, vectors))
