"""Dense sets of θ for averages that cost no evaluation of g."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.points import Sobol, Stream

__all__ = ["DenseSet", "dense_sets", "scores_of"]

# Points of one set on a grid in one and two dimensions, and of one scramble beyond.
_LINE, _SQUARE, _SCRAMBLE = 2**13, 128, 2**13
_SCRAMBLES = 4
# Normal scores beyond this carry less than 1e-16 of the law.
_REACH = 8.3


@dataclass(frozen=True)
class DenseSet:
    """Scores (n, d) with weights (n,) that sum to one."""

    scores: Array
    weights: Array

    def average(self, values: Array) -> Array:
        """Mean of values (n, q)."""
        return np.asarray(self.weights @ values)


def dense_sets(law: Law, stream: Stream) -> list[DenseSet]:
    """A few sets, each good by itself; how much they differ says how good their average is.

    In one and two dimensions grids in the scores: the trapezoidal rule with a normal density (two
    offsets) converges at once and misses no tail, midpoints (two sizes) on a cube are of second
    order, and kinks cost O(h²). Beyond, scrambled Sobol points.
    """
    dim = law.base_dim
    if dim > 2:
        sets = [
            Sobol().uniforms(stream.child(r), dim, (0, 1), (0, _SCRAMBLE))[0]
            for r in range(_SCRAMBLES)
        ]
        return [DenseSet(scores_of(law, u), np.full(_SCRAMBLE, 1.0 / _SCRAMBLE)) for u in sets]
    count = _LINE if dim == 1 else _SQUARE
    offset = float(stream.generator().random())
    return [
        _normal_grid(dim, count, (offset + r / 2) % 1.0)
        if law.base == "normal"
        else _midpoints(dim, int(count * 0.7**r))
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


def _midpoints(dim: int, count: int) -> DenseSet:
    line = np.sqrt(12.0) * ((np.arange(count) + 0.5) / count - 0.5)
    return _product(dim, line, np.full(count, 1.0 / count))


def _product(dim: int, line: Array, weights: Array) -> DenseSet:
    if dim == 1:
        return DenseSet(line[:, None], weights)
    first, second = np.meshgrid(line, line, indexing="ij")
    product = np.outer(weights, weights).ravel()
    keep = product > 1e-18 * product.max()
    scores = np.column_stack([first.ravel(), second.ravel()])[keep]
    return DenseSet(scores, product[keep] / product[keep].sum())
