"""Dense sets of θ for averages that cost no evaluation of g."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.points import Sobol, Stream

__all__ = ["DenseSet", "dense_sets", "scores_of"]

# Points of one set on a grid in one and two dimensions, and of one scramble beyond; the larger
# ones are for answers that turn out to be limited by them.
_LINES, _SQUARES, _SCRAMBLED = (2**12, 2**15), (96, 256), (2**11, 2**13)
_SCRAMBLES = 4
# Normal scores beyond this carry less than 1e-16 of the law.
_REACH = 8.3
# Gauss–Legendre points in one panel: enough for smooth functions to be exact.
_PANEL = 8


@dataclass(frozen=True)
class DenseSet:
    """Scores (n, d) with weights (n,) that sum to one."""

    scores: Array
    weights: Array

    def average(self, values: Array) -> Array:
        """Mean of values (n, q)."""
        return np.asarray(self.weights @ values)


def dense_sets(law: Law, stream: Stream) -> Iterator[list[DenseSet]]:
    """A few sets, each good by itself; how much they differ says how good their average is.

    In one and two dimensions grids in the scores: the trapezoidal rule with a normal density (two
    offsets) converges at once and misses no tail, panels of Gauss–Legendre points (of two sizes)
    do so on a cube, and kinks cost O(h²). Beyond, scrambled Sobol points. The second time that
    the iterator is asked, larger ones come.
    """
    dim = law.base_dim
    offset = float(stream.generator().random())
    for size in range(2):
        if dim > 2:
            count = _SCRAMBLED[size]
            sets = [
                Sobol().uniforms(stream.child(r), dim, (0, 1), (0, count))[0]
                for r in range(_SCRAMBLES)
            ]
            yield [DenseSet(scores_of(law, u), np.full(count, 1.0 / count)) for u in sets]
        else:
            count = _LINES[size] if dim == 1 else _SQUARES[size]
            yield [
                _normal_grid(dim, count, (offset + r / 2) % 1.0)
                if law.base == "normal"
                else _panels(dim, int(count * 0.7**r))
                for r in range(2)
            ]


def scores_of(law: Law, uniform: Array) -> Array:
    """Coordinates of θ in which J is learned, of about unit variance.

    Normal scores where the law is written in normals; otherwise the uniforms themselves, since a
    function that is tame on an interval runs away between the last point and the end of the
    normal scale.
    """
    if law.base == "normal":
        return np.asarray(ndtri(uniform))
    return np.asarray(np.sqrt(12.0) * (uniform - 0.5))


def _normal_grid(dim: int, count: int, offset: float) -> DenseSet:
    line = _REACH * (2.0 * (np.arange(count) + offset) / count - 1.0)
    density = np.exp(-0.5 * line**2)
    return _product(dim, line, density / density.sum())


def _panels(dim: int, count: int) -> DenseSet:
    nodes, weights = np.polynomial.legendre.leggauss(_PANEL)
    panels = count // _PANEL
    unit = (np.arange(panels)[:, None] + 0.5 * (nodes + 1.0)) / panels
    line = np.sqrt(12.0) * (unit.ravel() - 0.5)
    return _product(dim, line, np.tile(0.5 * weights / panels, panels))


def _product(dim: int, line: Array, weights: Array) -> DenseSet:
    if dim == 1:
        return DenseSet(line[:, None], weights)
    first, second = np.meshgrid(line, line, indexing="ij")
    product = np.outer(weights, weights).ravel()
    keep = product > 1e-18 * product.max()
    scores = np.column_stack([first.ravel(), second.ravel()])[keep]
    return DenseSet(scores, product[keep] / product[keep].sum())
