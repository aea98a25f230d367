"""Checks of a regression: boosted trees, and residuals of neighbors.

The spline basis leaves out products of many parameters and smooths steps. Gradient-boosted trees
(Friedman (2001), “Greedy function approximation”) fit both. They are stacked with the splines on
held-out rows (Wolpert (1992), “Stacked generalization”) in two sizes: few leaves until a validation
set stops them, for steps in noise; and many leaves, for products that show only after several
splits. Correlated residuals of neighbors show a missing part of any form (Yatchew (1997), “An
elementary estimator of the partial linear model”).
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from nestquad._typing import Array, Indices

# Measured on products of 4 and of 24 parameters, steps and maxima, with 1,000 and 10,000 rows:
# stacked, the two gain within 3 % of the best of four settings, in 0.6 s for each output.
_TREES: tuple[dict[str, Any], ...] = (
    {"max_leaf_nodes": 8, "max_iter": 300, "early_stopping": True},
    {"max_leaf_nodes": 31, "max_iter": 60, "early_stopping": False},
)
_NEIGHBORS = 5
# A limit of time: finding neighbors among them takes 0.02 s in 4 dimensions, 0.6 s in 24.
_MOST_ROWS = 5_000


def has_trees() -> bool:
    """Whether scikit-learn, the extra ``boost``, is installed."""
    return importlib.util.find_spec("sklearn") is not None


def stacked(outputs: Array, inputs: Array, fold: Indices, held_out: Array) -> Array:
    """Conditional means (n, q): trees and `held_out` stacked by nonnegative least squares."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    combined = np.empty_like(outputs)
    for j, y in enumerate(outputs.T):
        columns = [held_out[:, j]]
        for settings in _TREES:
            column = np.empty(len(y))
            for k in np.unique(fold):
                inside = fold == k
                trees = HistGradientBoostingRegressor(random_state=0, **settings)
                trees.fit(inputs[~inside], y[~inside])
                column[inside] = trees.predict(inputs[inside])
            columns.append(column)
        views = np.column_stack(columns) - y.mean()
        weights, _ = nnls(views, y - y.mean())
        combined[:, j] = y.mean() + views @ weights
    return combined


def unexplained(residuals: Array, inputs: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Standard deviations (m,) of residuals (n, m) given inputs (n, d), and their z values.

    Residuals at neighbors are uncorrelated where the fit has all of the conditional mean. Where it
    has not, their covariance is nearly the variance of the missing part, of any form. The fit
    makes residuals of neighbors differ a little, so that false alarms are rarer than z tells.
    Of a long table every k-th row is compared.
    """
    some = slice(None, None, -(-len(inputs) // _MOST_ROWS))
    x, e = inputs[some], np.ascontiguousarray(residuals[some])
    n, e = len(x), e - e.mean(axis=0)
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
