"""Matérn-1/2 weights in one dimension in O(N): its Gram matrix has a tridiagonal inverse.

The interpolant is local, so on a uniform law each gap between neighbours contributes the same
amount ℓ tanh(Δ/2ℓ) to both its ends: no system is solved, nothing cancels and every weight is
positive, whatever N and ℓ. Other laws go through the tridiagonal inverse.
"""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array
from nestquad.rules._banded import LineSolution

__all__ = ["markov_solution"]


def markov_solution(
    nodes: Array, lengthscale: float, box: tuple[float, float] | None, mean: Array, double: float
) -> LineSolution:
    """Solve with the Matérn-1/2 Gram matrix of distinct nodes on a line.

    `box` is the interval of a uniform law, None for any other.

    Shapes
    ------
    nodes (N,), mean (N,) the kernel mean at the nodes, double its mean.

    Cost
    ----
    O(N log N), for sorting.
    """
    order = np.argsort(nodes, kind="stable")
    x, mu = nodes[order], mean[order]
    gaps = np.diff(x) / lengthscale
    half = np.tanh(0.5 * gaps)

    # K⁻¹1 is ½(tanh + tanh) inside; each end of the line contributes the missing ½.
    ones = np.zeros(x.size)
    ones[:-1] += 0.5 * half
    ones[1:] += 0.5 * half
    ones[0] += 0.5
    ones[-1] += 0.5

    low, high = (np.nan, np.nan) if box is None else box
    if low <= x[0] and x[-1] <= high:
        scale = lengthscale / (high - low)
        weights = np.zeros(x.size)
        weights[:-1] += scale * half
        weights[1:] += scale * half
        weights[0] -= scale * np.expm1(-(x[0] - low) / lengthscale)
        weights[-1] -= scale * np.expm1(-(high - x[-1]) / lengthscale)
    else:
        decay = np.exp(-gaps)
        spread = -np.expm1(-2.0 * gaps)
        weights = np.array(mu)
        weights[:-1] += (mu[:-1] - decay * mu[1:]) / spread - mu[:-1]
        weights[1:] += (mu[1:] - decay * mu[:-1]) / spread - mu[1:]

    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    # A difference: below eps × double nothing is known.
    variance = max(double - float(mu @ weights), np.finfo(float).eps * double)
    return LineSolution(weights[back], ones[back], float(ones.sum()), variance)
