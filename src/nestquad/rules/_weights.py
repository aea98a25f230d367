"""Kernel quadrature rules: optimal weights in the space of a kernel, from a dense system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from nestquad import limits
from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.errors import InputError, unknown_name
from nestquad.kernels import Kernel, Matern
from nestquad.rules._cholesky import Factor
from nestquad.rules._line import line_rules
from nestquad.rules._regularization import Jitter, Regularization, regularized
from nestquad.rules._rule import Exactness, Rule

_BLOCK = 128


def kernel_rule(
    kernel: Kernel,
    law: Law,
    nodes: Array,
    *,
    regularization: Regularization | None = None,
    exact: Exactness = "constant",
) -> Rule:
    """Kernel quadrature weights for the integral of h under `law`.

    Bayesian quadrature (O'Hagan 1991, Bayes–Hermite quadrature).

    The weights minimise the worst-case error over the unit ball of the kernel's space, subject to
    integrating constants (or linear functions) exactly where `exact` asks for it.

    Parameters
    ----------
    kernel
        Any kernel that has an embedding for `law`.
    law
        A single law.
    nodes
        Distinct points (N, d).
    regularization
        `Jitter()` (default), a `Schedule`, or λ as a number (the ridge is N λ).
    exact
        ``"none"``, ``"constant"`` or ``"linear"``.

    Cost
    ----
    O(N³); O(N log N) for the Matérn-1/2 kernel in one dimension without explicit regularization.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.distributions import Uniform
    >>> from nestquad.kernels import Matern
    >>> nodes = (np.arange(8)[:, None] + 0.5) / 8
    >>> rule = kernel_rule(Matern(1.5, 0.5), Uniform(), nodes)
    >>> bool(abs(rule.integrate(np.exp(nodes[:, 0])) - (np.e - 1)) < 2e-3)
    True
    """
    one_set = np.asarray(nodes)[None]
    sizes = one_set.shape[1:2]
    by_set = prefix_rules(kernel, law, one_set, sizes, regularization=regularization, exact=exact)
    return by_set[0][0]


def prefix_rules(
    kernel: Kernel,
    law: Law,
    nodes: Array,
    sizes: Sequence[int],
    *,
    regularization: Regularization | None = None,
    exact: Exactness = "constant",
) -> list[list[Rule]]:
    """For each of T node sets, rules on its first nodes: all, half of them, and so on.

    Laws (one, or T) and lengthscales may differ between the sets. Memory is T N² numbers: call it
    in blocks.

    The ridge is that of the whole set. A leading block of a Cholesky factor is the factor of the
    leading block, so prefixes are nearly free.

    Shapes
    ------
    nodes (T, N, d); sizes at most N. Returns T lists of ``len(sizes)`` rules.
    """
    nodes = _validated(nodes)
    if exact not in get_args(Exactness):
        raise unknown_name("exact", exact, get_args(Exactness))
    n, dim = nodes.shape[1:]
    regularization = Jitter() if regularization is None else regularization
    if (
        (isinstance(kernel, Matern) and kernel.nu == 0.5 and dim == 1)
        and isinstance(regularization, Jitter)
        and exact != "linear"
    ):
        return line_rules(kernel, law, nodes, sizes, exact)
    if n > limits.DENSE_NODES:
        raise InputError(
            "nodes",
            f"{n} nodes",
            f"at most {limits.DENSE_NODES} for dense weights",
            "Use fewer inner points and more outer ones. In one dimension Matern(0.5) has weights "
            "in O(N log N) for any law.",
        )
    by_set = []
    for system in _systems(kernel, law, nodes, exact):
        factor, ridge = system.factorized(regularization, kernel.smoothness(dim))
        by_set.append([system.rule(factor, ridge, m) for m in sizes])
    return by_set


def _systems(kernel: Kernel, law: Law, nodes: Array, exact: Exactness) -> Iterator[_DenseSystem]:
    """The dense systems of T node sets (T, N, d)."""
    count, n, _ = nodes.shape
    means = np.broadcast_to(mean_embedding(kernel, law, nodes), (count, n))
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    functions = _basis(exact, nodes)
    # A law needs a mean only where linear functions are to be exact.
    center = np.atleast_1d(law.mean()) if exact == "linear" else np.empty(0)
    moments = np.broadcast_to(_basis(exact, center), (count, functions.shape[-1]))
    for i, gram in enumerate(_upper_gram(kernel, nodes)):
        yield _DenseSystem(nodes[i], gram, means[i], float(doubles[i]), functions[i], moments[i])


def _validated(nodes: Array) -> Array:
    nodes = np.asarray(nodes, dtype=float)
    if nodes.ndim != 3 or 0 in nodes.shape:
        raise InputError("nodes", f"shape {nodes.shape[1:]}", "an array (N, d) with N, d ≥ 1")
    if not np.all(np.isfinite(nodes)):
        where = np.argwhere(~np.isfinite(nodes).all(axis=-1))[0]
        raise InputError("nodes", f"a node that is not finite (row {where[-1]})", "finite numbers")
    for node_set in nodes:
        _refuse_duplicates(node_set)
    return nodes


def _refuse_duplicates(nodes: Array) -> None:
    order = np.lexsort(nodes.T)
    ordered = nodes[order]
    same = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
    if same.size:
        i, j = sorted((int(order[same[0]]), int(order[same[0] + 1])))
        raise InputError(
            "nodes",
            f"duplicate nodes (rows {i} and {j}, {same.size} pair(s) in all)",
            "distinct nodes",
            "Merge duplicates; for a discrete law use the transported space, where nodes differ.",
        )


def _upper_gram(kernel: Kernel, nodes: Array) -> Array:
    """Gram matrices (T, N, N) of nodes (T, N, d), of which only the upper triangle is made.

    That is all that a Cholesky factorisation reads, and evaluating the kernel is half its cost.
    """
    count, n, _ = nodes.shape
    if n <= _BLOCK:
        return kernel(nodes, nodes)
    out = np.zeros((count, n, n))
    for start in range(0, n, _BLOCK):
        out[:, start : start + _BLOCK, start:] = kernel(
            nodes[:, start : start + _BLOCK], nodes[:, start:]
        )
    return out


@dataclass(frozen=True)
class _DenseSystem:
    """All that the weights of one node set depend on.

    Shapes
    ------
    nodes (N, d), gram (N, N) of which the upper triangle counts, mean (N,), functions (N, k) with
    their moments (k,).
    """

    nodes: Array
    gram: Array
    mean: Array
    double: float
    functions: Array
    moments: Array

    def factorized(self, regularization: Regularization, smoothness: float) -> tuple[Factor, float]:
        """The factor of the regularised Gram matrix, and the ridge that it took."""
        n, dim = self.nodes.shape

        def size(factor: Factor) -> float:
            return float(np.abs(self._weights(factor, n)[0]).sum())

        return regularized(self.gram, regularization, smoothness, dim, size)

    def rule(self, factor: Factor, ridge: float, size: int) -> Rule:
        """The rule on the first `size` nodes."""
        weights, variance, image = self._weights(factor, size)
        # The image is (K + ridge) w, known from the equations that w solves.
        worst = self.double - 2.0 * float(weights @ self.mean[:size]) + float(weights @ image)
        worst -= ridge * float(weights @ weights)
        # Rounding leaves differences of order eps × double.
        floor = np.finfo(float).eps * abs(self.double)
        return Rule(
            self.nodes[:size],
            weights,
            ridge,
            factor.condition(),
            float(np.sqrt(max(worst, floor))),
            float(max(variance, floor)),
        )

    def _weights(self, factor: Factor, size: int) -> tuple[Array, float, Array]:
        """Optimal weights subject to exactness, the posterior variance, and K w with the ridge."""
        mean, functions = self.mean[:size], self._functions(size)
        if size < self.nodes.shape[0]:
            factor = factor.leading(size)
        solved = factor.solve(np.column_stack([mean, functions]))
        weights, inverse_functions = solved[:, 0], solved[:, 1:]
        variance = self.double - float(mean @ weights)
        if not functions.shape[1]:
            return weights, variance, mean
        missing = self.moments[: functions.shape[1]] - functions.T @ weights
        coefficients = np.linalg.solve(functions.T @ inverse_functions, missing)
        return (
            weights + inverse_functions @ coefficients,
            variance + float(missing @ coefficients),
            mean + functions @ coefficients,
        )

    def _functions(self, size: int) -> Array:
        """Columns that the first `size` nodes integrate exactly, (size, k)."""
        functions = self.functions[:size]
        wanted = functions.shape[1]
        if wanted < 2 or np.linalg.matrix_rank(functions) == wanted:
            return functions
        if size < self.nodes.shape[0]:
            return functions[:, :1]  # too few nodes of a larger rule: constants only
        raise InputError(
            "exact",
            f"{wanted} functions to integrate exactly on {size} nodes",
            "fewer functions than nodes, and nodes that do not lie in a plane",
            "Use exact='constant' or more nodes.",
        )


def _basis(exact: Exactness, x: Array) -> Array:
    """Exactly integrated functions at points (…, d), (…, k); at a mean, their expectations."""
    if exact == "none":
        return np.empty((*x.shape[:-1], 0))
    constant = np.ones((*x.shape[:-1], 1))
    return constant if exact == "constant" else np.concatenate([constant, x], axis=-1)
