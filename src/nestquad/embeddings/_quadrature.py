"""Gauss–Legendre on a short interval, where differences of antiderivatives would cancel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nestquad._typing import Array

__all__ = ["short_mean"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


def short_mean(function: Callable[[Array], Array], start: Array, width: Array) -> Array:
    """Mean of `function` over [start, start + width], exact to rounding for short intervals.

    Short means a width of at most 2 for functions such as polynomial × e^{-z} or e^{-z²/2}, and
    little change within the interval; the error of 10 nodes is then far below 1e-16.
    """
    total = np.zeros(np.broadcast_shapes(start.shape, width.shape))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += 0.5 * weight * function(start + width * (0.5 + 0.5 * node))
    return total
