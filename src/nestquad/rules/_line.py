"""Weights of the Matérn-1/2 kernel on a line in O(N log N), for any law and any distinct nodes.

The process is a Markov chain from node to node, so the inverse of its Gram matrix is tridiagonal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Law, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.kernels import Matern
from nestquad.rules._rule import Exactness, Rule


def line_rules(
    kernel: Matern, law: Law, nodes: Array, sizes: Sequence[int], exact: Exactness
) -> list[list[Rule]]:
    """Rules on prefixes for each of T node sets (T, N, 1), exact for constants at most.

    Cost
    ----
    O(T N log N), for sorting.
    """
    count, n, _ = nodes.shape
    means = np.broadcast_to(mean_embedding(kernel, law, nodes), (count, n))
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    scales = np.broadcast_to(np.reshape(kernel.lengthscale, (-1,)), (count,))
    boxes = np.full((count, 2), np.nan)  # no box: every comparison with a node is false
    if isinstance(law, Uniform):
        boxes[:] = np.concatenate([law.low, law.high], axis=-1)
    return [
        [
            _line_rule(nodes[i, :m], float(scales[i]), boxes[i], means[i, :m], doubles[i], exact)
            for m in sizes
        ]
        for i in range(count)
    ]


def _line_rule(
    nodes: Array, lengthscale: float, box: Array, mean: Array, double: float, exact: Exactness
) -> Rule:
    """Solve with the Matérn-1/2 Gram matrix of distinct nodes, whose inverse is tridiagonal.

    The interpolant is local, so on a uniform law each gap between neighbours contributes the same
    ℓ tanh(Δ/2ℓ) to both its ends: no system is solved, no digits cancel and every weight is
    positive for all N and ℓ. Other laws go through the tridiagonal inverse. `box` is the interval
    of a uniform law, NaN for any other.

    Shapes
    ------
    nodes (N, 1), mean (N,) the kernel mean at the nodes, double its mean.
    """
    order = np.argsort(nodes[:, 0], kind="stable")
    x, mu = nodes[order, 0], mean[order]
    gaps = np.diff(x) / lengthscale
    half = np.tanh(0.5 * gaps)

    # K⁻¹1 is ½(tanh + tanh) inside; each end of the line contributes the missing ½.
    ones = np.zeros(x.size)
    ones[:-1] += 0.5 * half
    ones[1:] += 0.5 * half
    ones[0] += 0.5
    ones[-1] += 0.5

    low, high = box
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

    # A difference, known to eps × double.
    variance = max(double - float(mu @ weights), np.finfo(float).eps * double)
    if exact == "constant":
        missing = 1.0 - float(weights.sum())
        weights += ones * (missing / ones.sum())
        variance += missing**2 / ones.sum()
    given = np.empty_like(weights)
    given[order] = weights
    # Without a ridge the constrained minimum of the worst-case error is the posterior variance.
    return Rule(nodes, given, 0.0, float("nan"), float(np.sqrt(variance)), float(variance))
