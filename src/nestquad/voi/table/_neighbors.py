"""Omnibus check of a regression: neighbors whose residuals agree share something it has missed."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from nestquad._typing import Array

_NEIGHBORS = 5
# A limit of time: finding neighbors among them takes 0.02 s in 4 dimensions, 0.6 s in 24.
_MOST_ROWS = 5_000


def rows_to_compare(n: int) -> slice:
    """Rows for `unexplained`: all of a table, or every k-th."""
    return slice(None, None, -(-n // _MOST_ROWS))


def unexplained(residuals: Array, inputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Standard deviations (m,) of what residuals (n, m) still owe to inputs (n, d), and z values.

    Residuals at neighbors are uncorrelated where the fit has all of the conditional mean. Where it
    has not, their covariance is nearly the variance of what is missing, whatever its form. The fit
    makes residuals of neighbors differ a little, so that false alarms are rarer than z tells.
    """
    x, e, n = inputs, residuals - residuals.mean(axis=0), len(inputs)
    x = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    x = x + 1e-6 * rng.standard_normal(x.shape)  # ties in random order
    nearest = cKDTree(x).query(x, _NEIGHBORS + 1)[1][:, 1:]
    rows = np.repeat(np.arange(n), _NEIGHBORS)
    one_way = csr_array((np.ones(rows.size), (rows, nearest.ravel())), shape=(n, n))
    pairs = one_way + one_way.T  # 2 where each is among the nearest of the other
    total = (e * (pairs @ e)).sum(axis=0) / 2
    variance = (e**2 * (pairs.multiply(pairs) @ e**2)).sum(axis=0) / 2
    z = total / np.sqrt(np.where(variance > 0, variance, np.inf))
    return np.sqrt(np.maximum(total, 0.0) / rows.size), z
