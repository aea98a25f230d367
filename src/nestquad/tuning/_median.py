"""The median heuristic."""

from __future__ import annotations

import numpy as np

from nestquad._typing import Array

__all__ = ["median_lengthscale"]

_MOST_NODES = 256


def median_lengthscale(nodes: Array) -> float:
    """Median Euclidean distance between distinct nodes (N, d).

    Cost: O(min(N, 256)² d); the first nodes stand for all, which for iid and low-discrepancy
    points is a fair sample.

    Examples
    --------
    >>> import numpy as np
    >>> median_lengthscale(np.array([[0.0], [1.0], [3.0]]))
    2.0
    """
    nodes = np.asarray(nodes, dtype=float)[:_MOST_NODES]
    n, dim = nodes.shape
    if n < 2:
        return 1.0
    squared = np.zeros((n, n))
    for j in range(dim):
        squared += (nodes[:, None, j] - nodes[None, :, j]) ** 2
    distance = float(np.median(np.sqrt(squared[np.triu_indices(n, 1)])))
    return distance if distance > 0 else 1.0
