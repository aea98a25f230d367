"""Errors: their propagation to the answers, and the calibration of error bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.problem import NestedExpectation


def linearized_covariance(
    finish: Callable[[Array], Array], answers: Array, covariance: Array
) -> Array:
    """Directions (k, q) of the final answers whose products give their covariance.

    The q expectations have the given covariance; `finish` (the problem's combine) is linearised
    over one standard deviation in each principal direction, which for a maximum says more than
    its derivative at the point.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    steps = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    columns = [
        np.atleast_1d(finish(answers + step) - finish(answers - step)) / 2.0 for step in steps.T
    ]
    return np.stack(columns, axis=1)


def size_of(directions: Array) -> float:
    """The largest standard deviation that directions (k, m) of an error add up to."""
    return float(np.sqrt((directions**2).sum(axis=1)).max(initial=0.0))


def finite_average(f: Array, weights: Array) -> Array:
    """Weighted average (q,) of f (M, q) over the rows in which f is finite.

    Draws of J that only serve an error bar may leave the domain of f.
    """
    usable = np.isfinite(f).all(axis=1)
    if usable.all():
        return np.asarray(weights @ f / weights.sum())
    if not usable.any():
        return np.full(f.shape[1], np.nan)
    return np.asarray(weights[usable] @ f[usable] / weights[usable].sum())


def replicate_errors(finals: Array) -> Array:
    """Directions (k, R) of the error of a mean over R independent replicates (k, R)."""
    n = finals.shape[1]
    deviations = finals - finals.mean(axis=1, keepdims=True)
    # Student's t: the standard error has few degrees of freedom.
    few = stdtrit(n - 1, 0.975) / stdtrit(np.inf, 0.975)
    return np.asarray(few * deviations / np.sqrt(n * (n - 1)))


def propagated(problem: NestedExpectation, answers: Array, changes: Array) -> Array:
    """Changes (…, q) of the q expectations as changes (…, k) of the final answers."""
    if problem.combine is None:
        return changes
    center = np.atleast_1d(problem.finish(answers))
    rows = [problem.finish(answers + row) - center for row in changes.reshape(-1, answers.size)]
    return np.reshape(rows, (*changes.shape[:-1], center.size))


def tail_index(residuals: Array) -> float:
    """Order below which moments of residuals (n, p) exist: Hill's estimator on the largest 1 %.

    Hill (1975), A simple general approach to inference about the tail of a distribution.

    The least over outputs; at least 16 residuals count.
    """
    sizes = np.sort(np.abs(residuals), axis=0)[::-1]
    count = min(max(16, len(sizes) // 100), len(sizes) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.log(sizes[:count] / sizes[count]).mean(axis=0)
    excess = np.where(sizes[count] > 0, excess, np.where(sizes[0] > 0, np.inf, 0.0))
    return float(1.0 / max(float(excess.max()), 1e-9))


def degrees_of_freedom(influence: Sequence[Array]) -> float:
    """Degrees of freedom of a sum of means of draws, from their influences (k, n) on the answers.

    The variance estimate of n draws with kurtosis κ has a relative variance of (κ − 1)/n, a χ²
    variable with ν degrees of freedom one of 2/ν. Few draws, and few that carry all the variance,
    both mean few degrees of freedom (Satterthwaite 1946, An approximate distribution of estimates
    of variance components). The least over the answers.
    """
    total = sum((part**2).sum(axis=1) for part in influence)
    excess = sum(
        np.maximum((part**4).sum(axis=1) - (part**2).sum(axis=1) ** 2 / part.shape[1], 0.0)
        for part in influence
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(excess > 0, 2.0 * total**2 / excess, np.inf)
    return float(np.clip(np.min(freedom), 2.0, 1e9))
