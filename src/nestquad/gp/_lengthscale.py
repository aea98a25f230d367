"""Lengthscales of kernels: restricted likelihood pooled over θ, median heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from nestquad import limits
from nestquad._typing import Array
from nestquad.kernels import Kernel


@dataclass(frozen=True)
class LengthscaleSettings:
    """Numbers of the search for a lengthscale.

    Attributes
    ----------
    ridge
        Relative ridge while tuning: large enough for every lengthscale to factorize.
    bounds, grid
        Least and largest factor of the lengthscale, and the number of factors between: neighbors
        differ by 1.6, and the likelihood between them is a parabola of the logarithm.
    nodes
        Leading nodes of each group that are used: optima are flat, and the cost is N³.
    median_nodes
        Nodes whose distances enter the median heuristic: 32,640 pairs.
    """

    ridge: float = 1e-9
    bounds: tuple[float, float] = (0.03, 30.0)
    grid: int = 16
    nodes: int = 128
    median_nodes: int = 256


_TUNING = LengthscaleSettings()


def median_lengthscale(nodes: Array) -> float:
    """Median Euclidean distance between the first 256 of distinct nodes (N, d).

    Examples
    --------
    >>> import numpy as np
    >>> median_lengthscale(np.array([[0.0], [1.0], [3.0]]))
    2.0
    """
    nodes = np.asarray(nodes, dtype=float)[: _TUNING.median_nodes]
    n, dim = nodes.shape
    if n < 2:
        return 1.0
    squared = np.zeros((n, n))
    for j in range(dim):
        squared += (nodes[:, None, j] - nodes[None, :, j]) ** 2
    distance = float(np.median(np.sqrt(squared[np.triu_indices(n, 1)])))
    return distance if distance > 0 else 1.0


def fit_lengthscale(kernel: Kernel, groups: Sequence[tuple[Array, Array]]) -> tuple[Kernel, float]:
    """The kernel with the likeliest multiple of its lengthscale, and its log likelihood.

    The restricted likelihood of m functions at the same N nodes, up to a constant. Each function
    has its own constant and all share one amplitude, both profiled out: the functions are g(·, θ)
    for different θ, and the kernel is common to all of them.

    Both come from a parabola through the best of a grid of factors: optima are flat. Per-coordinate
    lengthscales keep their ratios. Values are standardised by the profile itself.

    Parameters
    ----------
    kernel
        Where to start.
    groups
        Pairs of nodes (N, d) and values (N, m): m functions observed at the same nodes.

    Cost
    ----
    Sixteen Cholesky factorisations of min(N, 128) for each group, in one batch: many small ones at
    once cost little more than one. L-BFGS-B would take more: there is one parameter, and kernels
    have no derivatives in it.
    """
    # Groups of one shape are worked on together.
    alike: dict[tuple[int, ...], list[tuple[Array, Array]]] = {}
    for nodes, values in groups:
        if (centred := _centred(values[: _TUNING.nodes])) is not None:
            alike.setdefault(centred.shape, []).append((nodes[: _TUNING.nodes], centred))
    if not alike:
        return kernel, 0.0
    stacks = [
        (np.stack(nodes), np.stack(values))
        for nodes, values in (zip(*group, strict=True) for group in alike.values())
    ]

    factors = np.geomspace(*_TUNING.bounds, _TUNING.grid)
    heights = np.sum([_scaled_likelihoods(kernel, n, v, factors) for n, v in stacks], axis=0)
    best = int(np.argmax(heights))
    around = slice(max(best - 1, 0), best + 2)
    log_factor, highest = _vertex(np.log(factors[around]), heights[around], best - around.start)
    return kernel.with_lengthscale(kernel.lengthscale * float(np.exp(log_factor))), highest


def _vertex(x: Array, y: Array, best: int) -> tuple[float, float]:
    """Where the parabola through three points is highest, and how high; the best point at an end.

    The middle one of three is the highest, so that the parabola opens downwards.
    """
    if len(x) < 3 or not np.isfinite(y).all():
        return float(x[best]), float(y[best])
    slopes = np.diff(y) / np.diff(x)
    curvature = (slopes[1] - slopes[0]) / (x[2] - x[0])
    if not curvature < 0:
        return float(x[best]), float(y[best])
    at = 0.5 * (x[0] + x[1]) - slopes[0] / (2.0 * curvature)
    height = y[0] + (at - x[0]) * (slopes[0] + curvature * (at - x[1]))
    return float(at), float(height)


def _scaled_likelihoods(kernel: Kernel, nodes: Array, values: Array, factors: Array) -> Array:
    """Restricted likelihoods with the lengthscale multiplied by each factor, (F,).

    Summed over G groups: nodes (G, N, d), values (G, N, m).
    """
    n_groups, n, _ = values.shape
    scales = np.multiply.outer(factors, np.atleast_1d(kernel.lengthscale))
    right = np.concatenate([values, np.ones((n_groups, n, 1))], axis=2)
    likelihoods = np.empty(len(factors) * n_groups)
    together = max(1, limits.CACHE_NUMBERS // n**2)
    for start in range(0, len(likelihoods), together):
        factor, group = np.divmod(
            np.arange(start, min(start + together, len(likelihoods))), n_groups
        )
        grams = kernel.with_lengthscale(scales[factor])(nodes[group], nodes[group])
        likelihoods[start : start + together] = _likelihoods(grams, right[group])
    return np.asarray(likelihoods.reshape(-1, n_groups).sum(axis=1))


def _likelihoods(grams: Array, right: Array) -> Array:
    """Restricted likelihoods of Gram matrices (F, N, N), for values and a column of ones."""
    n, m = right.shape[1], right.shape[2] - 1
    diagonals = np.einsum("fii->fi", grams)
    diagonals += _TUNING.ridge * diagonals.mean(axis=1, keepdims=True)
    lower = _lower_factors(grams)
    # Row by row in memory, a lower factor is the transpose of an upper one to LAPACK.
    half = np.stack(
        [lapack.dtrtrs(low.T, r, lower=0, trans=1)[0] for low, r in zip(lower, right, strict=True)]
    )
    whitened, ones = half[..., :-1], half[..., -1]
    total = np.einsum("fi,fi->f", ones, ones)
    explained = np.einsum("fim,fi->fm", whitened, ones) ** 2 / total[:, None]
    left = np.maximum(np.einsum("fim,fim->fm", whitened, whitened) - explained, 0.0).sum(axis=1)
    determinants = 2.0 * np.log(np.einsum("fii->fi", lower)).sum(axis=1)
    freedom = m * (n - 1)
    with np.errstate(divide="ignore"):
        log_likelihood = -0.5 * (
            m * determinants + m * np.log(total) + freedom * np.log(left / freedom)
        )
    return np.where((left > 0) & np.isfinite(log_likelihood), log_likelihood, -np.inf)


def _lower_factors(grams: Array) -> Array:
    """Cholesky factors (F, N, N); NaN for matrices that are not positive definite."""
    try:
        return np.asarray(np.linalg.cholesky(grams), dtype=np.float64)
    except np.linalg.LinAlgError:
        if len(grams) == 1:
            return np.full_like(grams, np.nan)
        return np.concatenate([_lower_factors(gram[None]) for gram in grams])


def _centred(values: Array) -> Array | None:
    """Centered values; None for constants or three points, which are uninformative."""
    centred: Array = values - values.mean(axis=0)
    level = float(np.abs(values).max(initial=0.0))
    if values.shape[0] < 4 or float(np.abs(centred).max(initial=0.0)) <= 1e-13 * level:
        return None
    return centred
