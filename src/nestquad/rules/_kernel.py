"""Optimal weights in the space of a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

import numpy as np

from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.errors import InputError, unknown_name
from nestquad.kernels import Kernel, Matern
from nestquad.rules._dense import DenseSystem, upper_gram
from nestquad.rules._exactness import Exactness, basis, basis_means
from nestquad.rules._guard import Jitter, Regularization
from nestquad.rules._line import line_rules
from nestquad.rules._rule import Rule

__all__ = ["kernel_rule", "kernel_rules", "prefix_rules"]

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
    O(N³); O(N log N) for Matérn kernels in one dimension without explicit regularisation, on nodes
    as evenly spread as Sobol points (any nodes for Matérn-1/2) of a uniform or normal law.

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
    sizes = np.shape(nodes)[1:2]
    found = prefix_rules(kernel, law, nodes, sizes, regularization=regularization, exact=exact)
    return [rules[0] for rules in found]


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

    The ridge is that of the whole set. A leading block of a Cholesky factor is the factor of the
    leading block, so prefixes cost next to nothing; where weights cost O(N log N), they cost that.

    Shapes
    ------
    nodes (T, N, d); sizes at most N. Returns T lists of ``len(sizes)`` rules.
    """
    nodes = _validated(nodes)
    if exact not in get_args(Exactness):
        raise unknown_name("exact", exact, get_args(Exactness))
    count, n, dim = nodes.shape
    kernel = kernel.for_law(law)
    regularization = Jitter() if regularization is None else regularization
    found: list[list[Rule] | None] = [None] * count
    if isinstance(kernel, Matern) and dim == 1 and isinstance(regularization, Jitter):
        found = line_rules(kernel, law, nodes, sizes, exact, regularization.limit)
    rest = [i for i, rules in enumerate(found) if rules is None]
    if rest and n > _DENSE_LIMIT:
        raise InputError(
            "nodes",
            f"{n} nodes",
            f"at most {_DENSE_LIMIT} for dense weights",
            "Use fewer inner points and more outer ones. In one dimension Matern kernels have "
            "weights in O(N log N): for uniform and normal laws on nodes as evenly spread as Sobol "
            "points, and with Matern(0.5) for all laws and nodes.",
        )
    if rest:
        systems = _systems(kernel, law, nodes, exact, rest)
        for i, system in zip(rest, systems, strict=True):
            factor, ridge = system.factorized(regularization, kernel.smoothness(dim))
            found[i] = [system.rule(factor, ridge, m) for m in sizes]
    return [rules for rules in found if rules is not None]


def _systems(
    kernel: Kernel, law: Law, nodes: Array, exact: Exactness, sets: Sequence[int]
) -> Iterator[DenseSystem]:
    """The dense systems of some of T node sets (T, N, d)."""
    count, n, _ = nodes.shape
    means = np.broadcast_to(mean_embedding(kernel, law, nodes), (count, n))
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    functions = [basis(exact, nodes[i]) for i in sets]
    moments = np.broadcast_to(basis_means(exact, law), (count, functions[0].shape[1]))
    if kernel.batch_shape and len(sets) < count:
        kernel = kernel.with_lengthscale(np.asarray(kernel.lengthscale)[sets])
    grams = upper_gram(kernel, nodes[sets])
    for i, gram, known in zip(sets, grams, functions, strict=True):
        yield DenseSystem(nodes[i], gram, means[i], float(doubles[i]), known, moments[i])


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
