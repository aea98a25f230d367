"""Optimal weights in the space of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.errors import InputError, NumericalError
from nestquad.kernels import Kernel, Matern
from nestquad.rules._cholesky import Factor, factorize
from nestquad.rules._exactness import Exactness, basis, basis_means
from nestquad.rules._guard import Jitter, Regularization, Schedule, scheduled_lambda
from nestquad.rules._markov import markov_solve
from nestquad.rules._rule import Rule

__all__ = ["kernel_rule", "kernel_rules"]

# Above this a dense Gram matrix no longer fits comfortably in memory (3.2 GB).
_DENSE_LIMIT = 20_000


def kernel_rule(
    kernel: Kernel,
    law: Law,
    nodes: Array,
    *,
    regularization: Regularization | None = None,
    exact: Exactness = "constant",
) -> Rule:
    """Kernel quadrature weights for the integral of h under `law`.

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
    O(N³); O(N log N) for Matérn-1/2 in one dimension without explicit regularisation.

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
    return kernel_rules(
        kernel, law, np.asarray(nodes)[None], regularization=regularization, exact=exact
    )[0]


def kernel_rules(
    kernel: Kernel,
    law: Law,
    nodes: Array,
    *,
    regularization: Regularization | None = None,
    exact: Exactness = "constant",
) -> list[Rule]:
    """One rule for each of T node sets (T, N, d), whose laws (one, or T) may differ.

    Cost
    ----
    T times that of :func:`kernel_rule`, and T N² numbers of memory: call it in blocks.
    """
    nodes = _validated(nodes)
    count, n, dim = nodes.shape
    kernel = kernel.for_law(law)
    regularization = Jitter() if regularization is None else regularization
    means = np.broadcast_to(mean_embedding(kernel, law, nodes), (count, n))
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    if _is_markov(kernel, dim) and isinstance(regularization, Jitter) and exact != "linear":
        scales = np.broadcast_to(np.reshape(kernel.lengthscale, (-1,)), (count,))
        return [
            _markov_rule(float(scales[i]), law, nodes[i], means[i], float(doubles[i]), exact)
            for i in range(count)
        ]
    if n > _DENSE_LIMIT:
        raise InputError(
            "nodes",
            f"{n} nodes",
            f"at most {_DENSE_LIMIT} for dense weights",
            "Use fewer inner points and more outer ones, or Matern(0.5) in one dimension, "
            "whose weights cost O(N).",
        )
    grams = kernel(nodes, nodes)
    moments = np.broadcast_to(basis_means(exact, law), (count, basis(exact, nodes[0]).shape[1]))
    smoothness = kernel.smoothness(dim)
    return [
        _dense_rule(
            _System(grams[i], means[i], float(doubles[i]), basis(exact, nodes[i]), moments[i]),
            nodes[i],
            regularization,
            smoothness,
        )
        for i in range(count)
    ]


@dataclass(frozen=True)
class _System:
    """All that the weights of one node set depend on."""

    gram: Array
    mean: Array
    double: float
    functions: Array
    moments: Array


def _dense_rule(
    system: _System, nodes: Array, regularization: Regularization, smoothness: float
) -> Rule:
    n, dim = nodes.shape
    scale = float(np.mean(np.diagonal(system.gram)))
    if isinstance(regularization, Schedule) and not np.isfinite(smoothness):
        regularization = Jitter()
    if isinstance(regularization, Jitter):
        return _guarded(system, nodes, regularization, scale)
    lam = (
        scheduled_lambda(regularization.grid[0], n, smoothness, dim)
        if isinstance(regularization, Schedule)
        else float(regularization)
    )
    if not lam >= 0:
        raise InputError("regularization", repr(lam), "a number λ ≥ 0, a Jitter or a Schedule")
    factor = factorize(system.gram, n * lam)
    if factor is not None:
        return _rule(system, nodes, factor, n * lam)
    # Too little for this matrix: hand over to the guard, from where the request left off.
    start = min(max(n * lam / scale, Jitter().start), 0.5)
    return _guarded(system, nodes, Jitter(start, limit=np.inf), scale)


def _guarded(system: _System, nodes: Array, jitter: Jitter, scale: float) -> Rule:
    relative, rule = jitter.start, None
    while relative < 1.0:
        factor = factorize(system.gram, relative * scale)
        if factor is not None:
            rule = _rule(system, nodes, factor, relative * scale)
            if rule.sum_abs_weights <= jitter.limit:
                return rule
        relative *= 10.0
    if rule is None:
        raise NumericalError(
            f"The Gram matrix of {nodes.shape[0]} nodes is not positive definite even with a ridge "
            "as large as its diagonal. Check that the kernel is positive definite on these nodes."
        )
    return rule  # as tame as it gets; sum_abs_weights and ridge say so


def _rule(system: _System, nodes: Array, factor: Factor, ridge: float) -> Rule:
    mean, functions = system.mean, system.functions
    solved = factor.solve(np.column_stack([mean, functions]))
    weights, inverse_functions = solved[:, 0], solved[:, 1:]
    variance = system.double - float(mean @ weights)
    if functions.shape[1]:
        missing = system.moments - functions.T @ weights
        try:
            coefficients = np.linalg.solve(functions.T @ inverse_functions, missing)
        except np.linalg.LinAlgError as error:
            raise InputError(
                "exact",
                f"{functions.shape[1]} functions to integrate exactly on {nodes.shape[0]} nodes",
                "fewer functions than nodes, and nodes that do not lie in a plane",
                "Use exact='constant' or more nodes.",
            ) from error
        weights = weights + inverse_functions @ coefficients
        variance += float(missing @ coefficients)
    worst_squared = (
        system.double - 2.0 * float(weights @ mean) + float(weights @ (system.gram @ weights))
    )
    # Rounding leaves differences of order eps × double: below that nothing is known.
    floor = np.finfo(float).eps * abs(system.double)
    return Rule(
        nodes,
        weights,
        ridge,
        factor.condition(),
        float(np.sqrt(max(worst_squared, floor))),
        float(max(variance, floor)),
    )


def _markov_rule(
    lengthscale: float, law: Law, nodes: Array, mean: Array, double: float, exact: Exactness
) -> Rule:
    solution = markov_solve(nodes[:, 0], lengthscale, law, mean)
    weights = solution.inverse_mean
    variance = double - float(mean @ weights)
    if exact == "constant":
        missing = 1.0 - float(weights.sum())
        total = float(solution.inverse_one.sum())
        weights = weights + solution.inverse_one * (missing / total)
        variance += missing**2 / total
    variance = max(variance, np.finfo(float).eps * double)
    # With no ridge the constrained minimum of the worst-case error is the posterior variance.
    return Rule(nodes, weights, 0.0, float("nan"), float(np.sqrt(variance)), float(variance))


def _is_markov(kernel: Kernel, dim: int) -> bool:
    return isinstance(kernel, Matern) and kernel.nu == 0.5 and dim == 1


def _validated(nodes: Array) -> Array:
    nodes = np.asarray(nodes, dtype=float)
    if nodes.ndim != 3 or 0 in nodes.shape:
        raise InputError("nodes", f"shape {nodes.shape[1:]}", "an array (N, d) with N, d ≥ 1")
    if not np.all(np.isfinite(nodes)):
        where = np.argwhere(~np.isfinite(nodes).all(axis=-1))[0]
        raise InputError("nodes", f"a node that is not finite (row {where[-1]})", "finite numbers")
    for one in nodes:
        _refuse_duplicates(one)
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
