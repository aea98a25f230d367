"""Lengthscales and amplitudes by (restricted) marginal likelihood, pooled over θ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from nestquad._typing import Array
from nestquad.kernels import Kernel
from nestquad.rules import Factor, factorize

__all__ = ["amplitude", "fit_lengthscale", "restricted_likelihood"]

# Relative ridge while tuning: large enough for every lengthscale to factorise.
_RIDGE = 1e-9


def amplitude(factor: Factor, values: Array) -> Array:
    """Variance of a Gaussian process with unknown constant mean, for each column of values (N, m).

    The maximum of the restricted likelihood: the quadratic form of the values, less what the
    constant explains, over N - 1.
    """
    return np.asarray(_centred_quadratic(factor, values) / max(values.shape[0] - 1, 1))


def restricted_likelihood(kernel: Kernel, nodes: Array, values: Array) -> float:
    """Log restricted likelihood (up to a constant) of m functions at the same N nodes.

    Each function has its own constant and all share one amplitude, both profiled out: the
    functions are g(·, θ) for different θ, and what they have in common is the kernel.
    """
    gram = kernel(nodes, nodes)
    factor = factorize(gram, _RIDGE * float(np.mean(np.diagonal(gram))))
    if factor is None:
        return -np.inf
    n, m = values.shape
    quadratic = float(_centred_quadratic(factor, values).sum())
    if not quadratic > 0:
        return -np.inf
    ones = np.ones((n, 1))
    total = float((ones * factor.solve(ones)).sum())
    freedom = m * (n - 1)
    variance = quadratic / freedom
    return -0.5 * float(
        m * factor.log_determinant() + m * np.log(total) + freedom * np.log(variance)
    )


def fit_lengthscale(
    kernel: Kernel,
    groups: Sequence[tuple[Array, Array]],
    *,
    bounds: tuple[float, float] = (0.03, 30.0),
    grid: int = 5,
    most_nodes: int = 128,
) -> tuple[Kernel, float]:
    """The kernel with its lengthscale multiplied by the factor of highest likelihood, and that.

    Per-coordinate lengthscales keep their ratios. Values are standardised by the profile itself,
    so neither their level nor their scale matters.

    Parameters
    ----------
    kernel
        Where to start; `bounds` are factors on its lengthscale.
    groups
        Pairs of nodes (N, d) and values (N, m): m functions observed at the same nodes. Functions
        observed at other nodes make another group.
    most_nodes
        Only the first so many nodes are used: the optimum is flat, and N³ is dear.

    Cost
    ----
    About ``grid + 6`` Cholesky factorisations of min(N, most_nodes) for each group.
    """
    informative = [
        (nodes[:most_nodes], centred)
        for nodes, values in groups
        if (centred := _centred(values[:most_nodes])) is not None
    ]
    if not informative:
        return kernel, 0.0

    def loss(log_factor: float) -> float:
        scaled = kernel.with_lengthscale(kernel.lengthscale * np.exp(log_factor))
        value = sum(restricted_likelihood(scaled, nodes, centred) for nodes, centred in informative)
        return -value if np.isfinite(value) else 1e300

    points = np.linspace(np.log(bounds[0]), np.log(bounds[1]), grid)
    losses = np.array([loss(p) for p in points])
    best = int(np.argmin(losses))
    low, high = points[max(best - 1, 0)], points[min(best + 1, grid - 1)]
    found = minimize_scalar(
        loss, bounds=(low, high), method="bounded", options={"xatol": 0.1, "maxiter": 7}
    )
    log_factor, smallest = min((losses[best], points[best]), (found.fun, found.x))[::-1]
    return kernel.with_lengthscale(kernel.lengthscale * float(np.exp(log_factor))), -float(smallest)


def _centred(values: Array) -> Array | None:
    """Values less their means; None for constants or three points, which teach nothing."""
    centred: Array = values - values.mean(axis=0)
    level = float(np.abs(values).max(initial=0.0))
    if values.shape[0] < 4 or float(np.abs(centred).max(initial=0.0)) <= 1e-13 * level:
        return None
    return centred


def _centred_quadratic(factor: Factor, values: Array) -> Array:
    """Yᵀ K⁻¹ Y after generalised least squares of a constant, for each column."""
    n = values.shape[0]
    solved = factor.solve(np.column_stack([values, np.ones(n)]))
    inverse_values, inverse_one = solved[:, :-1], solved[:, -1]
    explained = (values.T @ inverse_one) ** 2 / inverse_one.sum()
    return np.asarray(np.maximum((values * inverse_values).sum(axis=0) - explained, 0.0))
