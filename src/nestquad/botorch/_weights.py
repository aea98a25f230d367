"""Kernel quadrature weights on normal nodes: positive, summing to one.

The integrands are improvements: continuous, piecewise linear in the standard normals z,
with kinks along planes of any direction. The kernel for that is the cubic spline of any dimension,
|z - z'|³, which has no lengthscale to tune and does not care how the axes are turned. On q = 1 it
integrates an order more accurately than any kernel on the uniforms Φ(z), which sees z grow without
bounds near 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import nnls
from scipy.special import gammaln, hyp1f1, ndtr

from nestquad._typing import Array
from nestquad.distributions import Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.errors import InputError, NumericalError, unknown_name
from nestquad.kernels import Kernel, Matern
from nestquad.rules import factorize


@dataclass(frozen=True)
class WeightSettings:
    """Numbers of the weights at normal nodes.

    Attributes
    ----------
    lengthscale
        Lengthscale of kernels on [0, 1]; longer than the interval, since joint improvements vary
        slowly along most directions.
    strength
        λ for 16 nodes on a line, relative to the mean diagonal of the kernel; the best of several
        for joint improvements of 1 to 32 points, on which `studies promises --only bo_accuracy` was
        not run.
    strength_on_uniforms
        The same for kernels on uniforms.
    """

    lengthscale: float = 3.0
    strength: float = 5e-4
    strength_on_uniforms: float = 5e-6


_SETTINGS = WeightSettings()


_ON_UNIFORMS = {
    "matern12": Matern(0.5, _SETTINGS.lengthscale),
    "matern32": Matern(1.5, _SETTINGS.lengthscale),
}
KERNELS = ("spline", *_ON_UNIFORMS)


@dataclass(frozen=True)
class NormalRule:
    """Weights at standard normal nodes, with diagnostics.

    Attributes
    ----------
    weights
        (N,), none negative, summing to one.
    kernel
        Name of the kernel, or its representation.
    dim
        Coordinates of a node.
    regularization
        Pull towards 1/N, relative to the kernel's mean diagonal.
    n_zero
        How many weights had to be held at zero to keep them from becoming negative.
    worst_case_error
        Largest error over the unit ball of the kernel's space.
    equal_weights_error
        Worst-case error of weights 1/N at these nodes: plain quasi-Monte Carlo.
    """

    weights: Array
    kernel: str
    dim: int
    regularization: float
    n_zero: int
    worst_case_error: float
    equal_weights_error: float

    @property
    def effective_size(self) -> float:
        """1 / Σ w²: effective sample size (Kish 1965, Survey sampling)."""
        return float(1.0 / np.sum(self.weights**2))


def normal_rule(nodes: Array, kernel: str | Kernel = "spline") -> NormalRule:
    """Non-negative weights that sum to one and integrate against the standard normal law.

    They minimise the squared worst-case error in the space of the kernel, less its mean over the
    law, plus λ times Σ w². λ grows with the dimension as d^2.5, since an
    integrand may bend in more directions, and falls as N^(-2/d): in a few dozen coordinates weights
    are nearly equal, as in plain quasi-Monte Carlo.

    Parameters
    ----------
    nodes
        Distinct standard normal points (N, d).
    kernel
        ``"spline"``: cubic, on the normals. ``"matern12"``, ``"matern32"``, or any kernel of
        `nestquad.kernels`: on the uniforms Φ(z).

    Cost
    ----
    O(N³), once: rules for the named kernels are kept for the next call with the same nodes.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import ndtri
    >>> nodes = ndtri((np.arange(16)[:, None] + 0.5) / 16)
    >>> rule = normal_rule(nodes)
    >>> improvement = np.maximum(nodes[:, 0] - 0.3, 0.0)
    >>> exact = np.exp(-0.045) / np.sqrt(2 * np.pi) - 0.3 * 0.38208857781
    >>> bool(abs(rule.weights @ improvement - exact) < abs(improvement.mean() - exact) / 5)
    True
    """
    nodes = np.ascontiguousarray(nodes, dtype=float)
    if nodes.ndim != 2 or 0 in nodes.shape:
        raise InputError("nodes", f"shape {nodes.shape}", "an array (N, d) with N, d ≥ 1")
    if not np.isfinite(nodes).all():
        raise InputError("nodes", "a node that is not finite", "finite standard normal points")
    if isinstance(kernel, Kernel):
        return _rule(
            nodes, repr(kernel), lambda z: _on_uniforms(z, kernel), _SETTINGS.strength_on_uniforms
        )
    if kernel not in KERNELS:
        raise unknown_name("kernel", kernel, KERNELS)
    return _cached_rule(nodes.tobytes(), nodes.shape, kernel)


@lru_cache(maxsize=64)
def _cached_rule(data: bytes, shape: tuple[int, int], name: str) -> NormalRule:
    nodes = np.frombuffer(data).reshape(shape)
    if name == "spline":
        return _rule(nodes, name, _spline, _SETTINGS.strength)
    return _rule(
        nodes, name, lambda z: _on_uniforms(z, _ON_UNIFORMS[name]), _SETTINGS.strength_on_uniforms
    )


def _rule(
    nodes: Array, name: str, centered: Callable[[Array], Array], strength: float
) -> NormalRule:
    n, dim = nodes.shape
    gram = centered(nodes)
    regularization = strength * dim**2.5 * (16.0 / n) ** (2.0 / dim)
    weights = _on_simplex(gram + regularization * np.mean(np.diagonal(gram)) * np.eye(n))
    weights.flags.writeable = False

    def error(w: Array) -> float:
        return float(np.sqrt(np.maximum(w @ gram @ w, 0.0)))

    zeros, equal = int(np.sum(weights == 0.0)), np.full(n, 1.0 / n)
    return NormalRule(weights, name, dim, regularization, zeros, error(weights), error(equal))


def _on_uniforms(nodes: Array, kernel: Kernel) -> Array:
    uniforms, law = ndtr(nodes), Uniform(0.0, 1.0, dim=nodes.shape[1])
    mean = np.asarray(mean_embedding(kernel, law, uniforms))
    double = float(double_embedding(kernel, law))
    return np.asarray(kernel(uniforms, uniforms) - mean[:, None] - mean + double)


def _spline(nodes: Array) -> Array:
    """Cubic spline and linear functions.

    |z - z'|³ is positive definite on the complement of linear functions. So it is projected, in
    both arguments, by f -> f - E[f(Z)] - z · E[Z f(Z)], and the linear functions are added as the
    kernel z · z'. The mean of both over the normal law is zero.

    Everything follows from M(z) = E|Z - z|³, a third moment of a noncentral χ: by Stein's identity
    E[Z |Z - z|³] = -∇M(z), and E[Z_1 Z'_1 |Z - Z'|³] is minus the mean second derivative,
    3 (d + 1)/d E|Z - Z'|.
    """
    n, dim = nodes.shape
    products = nodes @ nodes.T
    squares = np.diagonal(products)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * products, 0.0))
    scale = 2.0**1.5 * np.exp(gammaln((dim + 3) / 2) - gammaln(dim / 2))
    moment = scale * hyp1f1(-1.5, dim / 2, -squares / 2)
    slope = scale * 3.0 / dim * hyp1f1(-0.5, dim / 2 + 1, -squares / 2)  # ∇M(z) = slope × z
    mixed = -6.0 * (dim + 1) / dim * np.exp(gammaln((dim + 1) / 2) - gammaln(dim / 2))
    spline = distances * distances * distances - moment[:, None] - moment + 2.0**1.5 * scale
    spline += products * (slope[:, None] + slope + mixed)
    return np.asarray(spline * (n / np.trace(spline)) + products)


def _on_simplex(matrix: Array) -> Array:
    """The w ≥ 0 with Σ w = 1 that minimises w' A w.

    Without the bounds it is proportional to A⁻¹ 1. Where that is negative, nodes are left out until
    none of the rest is; usually they are the right ones. It is the minimum if the derivative at
    each node left out is no smaller than at the others, where it is w' A w.
    """
    kept = np.arange(len(matrix))
    while True:
        weights = _proportional(matrix[np.ix_(kept, kept)])
        if weights.min() >= 0.0:
            break
        kept = kept[weights > 0.0]
    full = np.zeros(len(matrix))
    full[kept] = weights
    derivative = matrix @ full
    level = float(full @ derivative)
    if np.delete(derivative, kept).min(initial=np.inf) < (1.0 - 1e-6) * level:
        full = _least_squares(matrix)
    return np.asarray(full / full.sum())


def _proportional(matrix: Array) -> Array:
    factor = factorize(matrix, 0.0)
    if factor is None:
        raise NumericalError(
            f"The Gram matrix of {len(matrix)} nodes is not positive definite. Check that the "
            "kernel is positive definite on the unit cube, and that the nodes are distinct."
        )
    weights = factor.solve(np.ones(len(matrix)))
    return np.asarray(weights / weights.sum())


def _least_squares(matrix: Array) -> Array:
    """Minimizer of w' A w on the simplex by non-negative least squares.

    With A = C'C it is the point of least norm among the convex combinations of the columns of C. A
    row of ones appended, and (0, …, 0, 1) asked for, turn that into non-negative least squares
    (Lawson and Hanson 1974, Solving least squares problems):
    x = t w leaves t² |C w|² + (t - 1)², whose minimum over t increases with |C w|.
    """
    n, size = len(matrix), np.sqrt(np.trace(matrix))  # neither columns nor row of ones dominate
    root = np.linalg.cholesky(matrix).T / size
    solution, _ = nnls(np.vstack([root, np.ones(n)]), np.append(np.zeros(n), 1.0))
    return np.asarray(solution)
