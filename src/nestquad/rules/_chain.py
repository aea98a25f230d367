"""The states of Matérn processes at the points of a grid, as a Markov chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array, Indices
from nestquad.rules._grid import Grid, LineLaws
from nestquad.rules._panel import (
    LONGEST,
    free_panels,
    quadrature_nodes,
    reversal,
    stationary,
    two_sided_panels,
)

__all__ = ["Chain", "line_chain"]

# Gaps whose quadrature nodes are in memory at a time.
_BLOCK = 2**13


@dataclass(frozen=True)
class Chain:
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
        Variances of what no state tells: of the gap before each point, (n,), and of what lies
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


def line_chain(order: int, grid: Grid, rate: Array, laws: LineLaws) -> Chain:
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
    gaps[grid.first] = LONGEST  # before the first of a set there is no gap: any will do
    chain = Chain(
        units,
        to=np.empty((n, order, order)),
        back=np.empty((n, order, order)),
        start=np.empty((n, order)),
        noise=np.empty((n, order)),
        one=np.empty((n, order)),
        rest=np.empty(n),
        ends=np.empty(grid.first.size),
    )
    for begin in range(0, n, _BLOCK):
        _fill(chain, grid, gaps, rate, laws, np.arange(begin, min(begin + _BLOCK, n)))

    whiten = np.linalg.inv(np.linalg.cholesky(stationary(order)))
    chain.to[grid.first] = whiten * units[grid.first, None, :]
    chain.back[grid.first] = 0.0
    chain.noise[grid.first] = 0.0
    chain.one[grid.first] = whiten.sum(axis=1)
    chain.rest[grid.first] = 0.0

    u, _ = quadrature_nodes()
    owner = grid.owner[grid.first]
    for index, beyond, side in ((grid.last, right, 1.0), (grid.first, left, -1.0)):
        points = grid.position[index, None] + side * (beyond / rate[owner])[:, None] * u
        density = laws.density(points, owner) / rate[owner, None]
        start, rest = free_panels(order, beyond, density)
        start *= beyond[:, None] ** np.arange(order)
        if side > 0:
            chain.start[index], chain.ends[:] = start, rest
        else:
            chain.start[index] += np.einsum("sj,ji->si", start, reversal(order))
            chain.ends[:] += rest
    return chain


def _units(order: int, gaps: Array) -> Array:
    closest = np.minimum(gaps, np.append(gaps[1:], np.inf))
    closest[np.isinf(closest)] = 1.0
    return np.asarray(closest[:, None] ** (order - 0.5 - np.arange(order)))


def _fill(
    chain: Chain, grid: Grid, gaps: Array, rate: Array, laws: LineLaws, here: Indices
) -> None:
    """Write steps and integrals of the gaps before some points."""
    order = chain.start.shape[1]
    before, block = here - 1, slice(here[0], here[-1] + 1)
    u, _ = quadrature_nodes()
    owner, gap = grid.owner[block], gaps[block, None]
    points = grid.position[before, None] + grid.length[block, None] * u
    density = laws.density(points, owner) / rate[owner, None]
    panels = two_sided_panels(order, gap[:, 0], density)
    powers = gap ** np.arange(order)
    scale = powers / gap ** (order - 0.5)
    chain.to[block] = panels.arriving * (scale * chain.units[block])[:, None, :]
    chain.back[block] = panels.leaving * (-scale * chain.units[before])[:, None, :]
    chain.start[before] = panels.start * powers
    chain.noise[block], chain.one[block] = panels.noise, panels.one
    chain.rest[block] = panels.rest
