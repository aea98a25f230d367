"""State-space form of Matérn processes on a line, to full relative precision.

State-space form as in Hartikainen and Särkkä (2010), Kalman filtering and smoothing solutions to
temporal Gaussian process regression models. In units z = rate · x the process is white noise passed
through (D + 1)^-m, m = ν + 1/2. With the state s_j = (D + 1)^j f, j < m, the step over a gap δ is
s_i' = e^{-δ} Σ_j δ^{j-i}/(j-i)! s_j and noise. Once s_j is multiplied by δ^j only the damping
depends on the gap: powers of δ, which make close nodes difficult, stand outside. Integrals are by
Gauss–Legendre, never differences. Long gaps have auxiliary points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import comb, factorial

import numpy as np

from nestquad import limits
from nestquad._typing import Array, Indices, Mask

_LONGEST = 1.0
"""The longest gap in z = rate · x that the quadrature nodes resolve to rounding."""

# The shortest gap, in z: squares of its power ν appear.
_CLOSEST = 1e-30


@dataclass(frozen=True)
class LineLaws:
    """T laws on a line with density height · exp(-(curve (x - center))² / 2) between two ends.

    Attributes
    ----------
    low, high
        The ends. The mass beyond is negligible.
    height, center, curve
        Parameters of the density. No curve: a uniform law.
    width
        The longest interval over which quadrature takes the density for a polynomial.

    Shapes
    ------
    All (T,).
    """

    low: Array
    high: Array
    height: Array
    center: Array
    curve: Array
    width: Array

    def of(self, sets: Indices) -> LineLaws:
        """Laws of the given indices."""
        return LineLaws(*(value[sets] for value in vars(self).values()))

    def density(self, x: Array, owner: Indices) -> Array:
        """At points (n, q) for the laws of indices (n,)."""
        height = self.height[owner, None]
        if not self.curve.any():
            return np.broadcast_to(height, x.shape)
        z = self.curve[owner, None] * (x - self.center[owner, None])
        return np.asarray(height * np.exp(-0.5 * z * z))


@dataclass(frozen=True)
class LineGrid:
    """Nodes and points between them, from left to right, set after set.

    Attributes
    ----------
    position
        Coordinate of each point, (n,).
    length
        Length of the gap before it, (n,); for the first of a set, of the support to its left.
    owner
        Index of its law, (n,).
    known
        Whether it is a node, (n,).
    first, last
        Indices of the first and last point of each set, (S,).
    beyond
        Length of the support to the right of the last, (S,).
    """

    position: Array
    length: Array
    owner: Indices
    known: Mask
    first: Indices
    last: Indices
    beyond: Array


def joined(grids: Sequence[LineGrid]) -> LineGrid:
    """Grids for the same laws, one after the other."""
    if len(grids) == 1:
        return grids[0]
    begins = np.cumsum([0, *(grid.owner.size for grid in grids[:-1])])
    moved = [
        replace(grid, first=grid.first + begin, last=grid.last + begin)
        for grid, begin in zip(grids, begins, strict=True)
    ]
    return LineGrid(
        *map(np.concatenate, zip(*(vars(grid).values() for grid in moved), strict=True))
    )


def grid_sizes(nodes: Array, rate: Array, laws: LineLaws) -> Array:
    """How many points the grids of sets of nodes (T, N) will have, (T,).

    Infinity for sets with gaps whose powers would leave the range of numbers.
    """
    edges, pieces = _pieces(np.sort(nodes, axis=1), rate, laws)
    widths = np.diff(edges, axis=1)
    gaps = widths * (rate[:, None] / pieces)
    representable = ((widths == 0.0) | (gaps > _CLOSEST)).all(axis=1)
    return np.where(representable, pieces.sum(axis=1) - 1.0, np.inf)


def line_grid(x: Array, rate: Array, laws: LineLaws) -> LineGrid:
    """The grid of sets of sorted nodes (T, N) for kernels of given rates (T,)."""
    edges, cuts = _pieces(x, rate, laws)
    pieces = cuts.astype(int).ravel()
    n_gaps = x.shape[1] + 1
    lengths = np.diff(edges, axis=1).ravel() / pieces
    gap = np.repeat(np.arange(pieces.size), pieces)
    step = np.arange(gap.size) - np.repeat(np.cumsum(pieces) - pieces, pieces) + 1
    known = step == pieces[gap]
    position = np.where(
        known, edges[:, 1:].ravel()[gap], edges[:, :-1].ravel()[gap] + step * lengths[gap]
    )
    # The ends of the law are not points: a state at the end of the chain that no value pins is
    # hard to eliminate where it is close to the next. These gaps are integrated from one side.
    kept = ~(known & (gap % n_gaps == n_gaps - 1))
    gap = gap[kept]
    owner = gap // n_gaps
    first, stop = (np.searchsorted(owner, np.arange(len(x)), side) for side in ("left", "right"))
    return LineGrid(
        position[kept],
        lengths[gap],
        owner,
        known[kept],
        first,
        stop - 1,
        lengths[n_gaps - 1 :: n_gaps],
    )


def _pieces(x: Array, rate: Array, laws: LineLaws) -> tuple[Array, Array]:
    """Edges of the gaps of sorted nodes, (T, N + 2), and into how many pieces to cut each."""
    low, high = np.minimum(laws.low, x[:, 0]), np.maximum(laws.high, x[:, -1])
    edges = np.concatenate([low[:, None], x, high[:, None]], axis=1)
    longest = np.minimum(_LONGEST / rate, laws.width)
    return edges, np.maximum(np.ceil(np.diff(edges, axis=1) / longest[:, None]), 1.0)


@dataclass(frozen=True)
class StateChain:
    """Steps with standard normal noise, and the integral as a function of states and noise.

    With ŝ = s / units, to[k] ŝ[k] + back[k] ŝ[k-1] = η[k]; a set starts from the stationary law,
    with `back` zero. The integral is Σ start[k] · s[k] + Σ noise[k] · η[k] and a rest.

    Attributes
    ----------
    units
        Such that steps are of order one however close two points are, (n, m).
    to, back
        (n, m, m).
    start, noise
        (n, m).
    one
        η for the function 1, (n, m).
    rest, ends
        Variances that no state explains: of the gap before each point, (n,), and of the support
        beyond the outermost points of each set, (S,).
    """

    units: Array
    to: Array
    back: Array
    start: Array
    noise: Array
    one: Array
    rest: Array
    ends: Array


def line_chain(order: int, grid: LineGrid, rate: Array, laws: LineLaws) -> StateChain:
    """The chain of processes of order m = ν + 1/2 and given rates (T,), driven by unit noise.

    Cost
    ----
    A microsecond or two for each point.
    """
    n = grid.owner.size
    gaps = grid.length * rate[grid.owner]
    left, right = gaps[grid.first], grid.beyond * rate[grid.owner[grid.first]]
    gaps[grid.first] = np.inf
    units = _units(order, gaps)
    gaps[grid.first] = _LONGEST  # before the first of a set there is no gap: any will do
    chain = StateChain(
        units,
        to=np.empty((n, order, order)),
        back=np.empty((n, order, order)),
        start=np.empty((n, order)),
        noise=np.empty((n, order)),
        one=np.empty((n, order)),
        rest=np.empty(n),
        ends=np.empty(grid.first.size),
    )
    for begin in range(0, n, limits.GAPS):
        _fill(chain, grid, gaps, rate, laws, np.arange(begin, min(begin + limits.GAPS, n)))

    whiten = np.linalg.inv(np.linalg.cholesky(stationary(order)))
    chain.to[grid.first] = whiten * units[grid.first, None, :]
    chain.back[grid.first] = 0.0
    chain.noise[grid.first] = 0.0
    chain.one[grid.first] = whiten.sum(axis=1)
    chain.rest[grid.first] = 0.0

    u, _ = _quadrature_nodes()
    owner = grid.owner[grid.first]
    for index, beyond, side in ((grid.last, right, 1.0), (grid.first, left, -1.0)):
        points = grid.position[index, None] + side * (beyond / rate[owner])[:, None] * u
        density = laws.density(points, owner) / rate[owner, None]
        start, rest = _free_panels(order, beyond, density)
        start *= beyond[:, None] ** np.arange(order)
        if side > 0:
            chain.start[index], chain.ends[:] = start, rest
        else:
            chain.start[index] += np.einsum("sj,ji->si", start, _reversal(order))
            chain.ends[:] += rest
    return chain


def _units(order: int, gaps: Array) -> Array:
    closest = np.minimum(gaps, np.append(gaps[1:], np.inf))
    closest[np.isinf(closest)] = 1.0
    return np.asarray(closest[:, None] ** (order - 0.5 - np.arange(order)))


def _fill(
    chain: StateChain, grid: LineGrid, gaps: Array, rate: Array, laws: LineLaws, here: Indices
) -> None:
    """Write steps and integrals of the gaps before some points."""
    order = chain.start.shape[1]
    before, block = here - 1, slice(here[0], here[-1] + 1)
    u, _ = _quadrature_nodes()
    owner, gap = grid.owner[block], gaps[block, None]
    points = grid.position[before, None] + grid.length[block, None] * u
    density = laws.density(points, owner) / rate[owner, None]
    panels = _two_sided_panels(order, gap[:, 0], density)
    powers = gap ** np.arange(order)
    scale = powers / gap ** (order - 0.5)
    chain.to[block] = panels.arriving * (scale * chain.units[block])[:, None, :]
    chain.back[block] = panels.leaving * (-scale * chain.units[before])[:, None, :]
    chain.start[before] = panels.start * powers
    chain.noise[block], chain.one[block] = panels.noise, panels.one
    chain.rest[block] = panels.rest


_COUNT = 12


@dataclass(frozen=True)
class _Panels:
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


def _two_sided_panels(order: int, gaps: Array, density: Array) -> _Panels:
    """Gaps (n,) in z, with the density in z at their quadrature nodes, (n, q)."""
    tables = _tables(order)
    u, weights = _quadrature_nodes()
    decay = np.exp(-gaps[:, None] * u)
    start, response = _driven(order, gaps, decay, density)
    # The noise at u enters the state at the end through polynomials of 1 - u times e^{-δ(1-u)}:
    # η is the projection of the noise on their span, in an orthonormal basis.
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
    return _Panels(arriving, leaving, start, root * noise, root * one, rest)


def _free_panels(order: int, gaps: Array, density: Array) -> tuple[Array, Array]:
    """Gaps beyond the last node, with a state at one end only: start (n, m) and rest (n,)."""
    u, weights = _quadrature_nodes()
    start, response = _driven(order, gaps, np.exp(-gaps[:, None] * u), density)
    return start, np.asarray(gaps * np.einsum("nq,nq,q->n", response, response, weights))


@cache
def stationary(order: int) -> Array:
    """Covariance of the state under white noise of unit intensity, (m, m)."""
    degrees = range(order)[::-1]
    return np.array([[comb(i + j, i) / 2.0 ** (i + j + 1) for j in degrees] for i in degrees])


@cache
def _reversal(order: int) -> Array:
    """The matrix that makes (1 - D)^j f, the state of the process read backwards, from s."""
    return np.array(
        [
            [comb(j, i) * 2.0 ** (j - i) * (-1.0) ** i if i <= j else 0.0 for i in range(order)]
            for j in range(order)
        ]
    )


@cache
def _quadrature_nodes() -> tuple[Array, Array]:
    """Gauss–Legendre on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(_COUNT)
    return 0.5 + 0.5 * nodes, 0.5 * weights


@dataclass(frozen=True)
class _Tables:
    """Constants that do not depend on the gap.

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
    u, weights = _quadrature_nodes()
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
    """∫ f p over a gap: coefficients of the state at its start and of the noise at each node."""
    tables = _tables(order)
    _, weights = _quadrature_nodes()
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
