"""Polynomial trends of surrogates."""

from __future__ import annotations

from typing import Literal

import numpy as np

from nestquad._typing import Array

__all__ = ["Trend", "trend_matrix", "trend_size"]

Trend = Literal["constant", "linear", "quadratic"]


def trend_matrix(trend: Trend, z: Array) -> Array:
    """Values of the trend's functions at z (n, d), as (n, k)."""
    n, dim = z.shape
    columns = [np.ones((n, 1))]
    if trend != "constant":
        columns.append(z)
    if trend == "quadratic":
        upper = np.triu_indices(dim)
        columns.append(z[:, upper[0]] * z[:, upper[1]])
    return np.concatenate(columns, axis=1)


def trend_size(trend: Trend, dim: int) -> int:
    """How many functions that is."""
    return {"constant": 1, "linear": 1 + dim, "quadratic": 1 + dim + dim * (dim + 1) // 2}[trend]
