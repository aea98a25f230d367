"""Polynomials that a rule integrates exactly whatever the kernel thinks."""

from __future__ import annotations

from typing import Literal

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Law

__all__ = ["Exactness", "basis", "basis_means"]

Exactness = Literal["none", "constant", "linear"]


def basis(exact: Exactness, nodes: Array) -> Array:
    """Values of the exactly integrated functions at the nodes, (N, k)."""
    n = nodes.shape[0]
    if exact == "none":
        return np.empty((n, 0))
    if exact == "constant":
        return np.ones((n, 1))
    return np.concatenate([np.ones((n, 1)), nodes], axis=1)


def basis_means(exact: Exactness, law: Law) -> Array:
    """Expectations of those functions, (k,), or (T, k) for a batch of T laws."""
    if exact == "none":
        return np.empty(0)
    if exact == "constant":
        return np.ones(1)
    mean = np.atleast_1d(law.mean())
    return np.concatenate([np.ones((*mean.shape[:-1], 1)), mean], axis=-1)
