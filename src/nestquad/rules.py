"""Quadrature rules: nodes, kernel and law → weights, with diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from scipy.linalg import lapack

from nestquad import limits
from nestquad._checks import choice, number, shown
from nestquad._typing import Array
from nestquad.distributions import Law, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.errors import InputError, NumericalError
from nestquad.kernels import Kernel, Matern


@dataclass(frozen=True)
class Factor:
    """Lower Cholesky factor of one symmetric positive definite matrix.

    Shapes
    ------
    lower: (N, N); `solve` takes (N,) or (N, k).

    Cost
    ----
    N³/3 flops to make, 2N² a right-hand side.
    """

    lower: Array

    def solve(self, rhs: Array) -> Array:
        solution, _ = lapack.dpotrs(self.lower, rhs, lower=1)
        return np.asarray(solution).reshape(rhs.shape)

    def leave_one_out(self, values: Array) -> Array:
        """Leave-one-out residuals of values (N, k). Cost N³/3.

        Dubrule (1983), Cross validation of kriging in a unique neighborhood.
        """
        half, _ = lapack.dtrtri(self.lower, lower=1)
        half = np.tril(half)
        return np.asarray(self.solve(values) / np.einsum("ij,ij->j", half, half)[:, None])

    def condition(self) -> float:
        """Lower bound of the condition number from the pivots, usually of its order. Cost O(N)."""
        pivots = np.diagonal(self.lower)
        return float((pivots.max() / pivots.min()) ** 2)

    def leading(self, size: int) -> Factor:
        """Factor of the leading block, that of a prefix of the nodes. Free."""
        return Factor(self.lower[:size, :size])


def factorize(gram: Array, ridge: float) -> Factor | None:
    """Factor of ``gram + ridge * I``, or None where that is not positive definite.

    Only the upper triangle of `gram` (N, N) is read.
    """
    matrix = np.array(gram, order="C")
    matrix.reshape(-1)[:: matrix.shape[0] + 1] += ridge
    # A symmetric matrix is its own transpose, and the transpose is contiguous for LAPACK.
    lower, info = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    return Factor(lower) if info == 0 else None


Exactness = Literal["none", "constant"]
"""Polynomials that a rule integrates exactly, whatever the kernel."""


@dataclass(frozen=True)
class Rule:
    """Weights at given nodes, with diagnostics.

    Attributes
    ----------
    nodes
        Where the integrand is evaluated, (N, d).
    weights
        One weight a node, (N,).
    ridge
        Ridge on the diagonal of the Gram matrix (N λ in the paper); 0 for equal weights.
    condition
        Estimated condition number of the regularised Gram matrix; 1 for equal weights, NaN for
        Matérn-1/2 on a line, which needs no such matrix.
    worst_case_error
        Largest error over the unit ball of the kernel's space; NaN for equal weights.
    posterior_variance
        Variance of the integral given the values, for an integrand of unit amplitude; NaN for
        equal weights.
    """

    nodes: Array
    weights: Array
    ridge: float = 0.0
    condition: float = 1.0
    worst_case_error: float = float("nan")
    posterior_variance: float = float("nan")

    @property
    def sum_abs_weights(self) -> float:
        """Σ|w|: how much noise in the values is amplified; 1 for positive weights."""
        return float(np.abs(self.weights).sum())

    def integrate(self, values: Array) -> Array:
        """Σ w_n h(x_n) for values (N,) or (N, p)."""
        values = np.asarray(values, dtype=float)
        if values.shape[:1] != self.weights.shape:
            raise InputError(
                "values",
                f"an array of shape {values.shape}",
                f"one value for each of the {self.weights.size} nodes, shape "
                f"({self.weights.size},) or ({self.weights.size}, p)",
            )
        return np.asarray(np.tensordot(self.weights, values, axes=(0, 0)))


def equal_weights(nodes: Array) -> Rule:
    """The Monte Carlo and quasi-Monte Carlo rule: 1/N at each node.

    Examples
    --------
    >>> import numpy as np
    >>> equal_weights(np.array([[0.25], [0.75]])).integrate(np.array([1.0, 3.0]))
    array(2.)
    """
    n = nodes.shape[0]
    return Rule(nodes, np.full(n, 1.0 / n))


@dataclass(frozen=True)
class Jitter:
    """The smallest ridge that keeps Σ|w| below a limit.

    Starts from `start` (relative to the kernel's diagonal) and multiplies by ten until the
    matrix factorises and Σ|w| ≤ `limit`. Weights that cancel each other amplify every error in
    the values, so a little bias is the better bargain.
    """

    start: float = 1e-12
    limit: float = 2.0

    def __post_init__(self) -> None:
        number("start", self.start, "a relative ridge between 0 and 1", below=1.0)
        bound = "a bound above 1, since weights that sum to one have Σ|w| ≥ 1"
        if not (isinstance(self.limit, float) and self.limit == np.inf):
            number("limit", self.limit, bound, above=1.0)


@dataclass(frozen=True)
class Schedule:
    """The paper's λ = λ_0 N^(-2s/d) (log N)^((2s+2)/d), with λ_0 from a grid.

    With several values of `grid`, tuning picks the value with the smallest leave-one-out error; see
    :func:`nestquad.rules.best_lambda0`. A kernel of infinite smoothness has no schedule and gets
    the jitter instead.
    """

    grid: tuple[float, ...] = (0.01, 0.1, 1.0)

    def __post_init__(self) -> None:
        expected = "a non-empty tuple of positive numbers"
        if not isinstance(self.grid, tuple | list) or not self.grid:
            raise InputError("grid", shown(self.grid), expected)
        for value in self.grid:
            number("grid", value, expected)


Regularization: TypeAlias = Jitter | Schedule | float
"""A float is λ itself: the ridge is N λ."""


def scheduled_lambda(lambda0: float, n: int, smoothness: float, dim: int) -> float:
    """Regularization of theorem 1 for N nodes; 0 for infinite smoothness.

    It is at most λ_0 for s ≥ 0.6: (log N)^(2s+2) / N^(2s) has its maximum (1 + 1/s)^(2s+2)
    e^(−2s−2) at log N = 1 + 1/s.

    Examples
    --------
    >>> round(scheduled_lambda(1.0, 100, smoothness=2.0, dim=1), 8)
    9.538e-05
    """
    if n < 2 or not np.isfinite(smoothness):
        return 0.0
    log_lambda = (
        np.log(lambda0)
        - 2.0 * smoothness / dim * np.log(n)
        + (2.0 * smoothness + 2.0) / dim * np.log(np.log(n))
    )
    return float(np.exp(log_lambda))


def regularized(
    gram: Array,
    regularization: Regularization,
    smoothness: float,
    dim: int,
    size: Callable[[Factor], float],
) -> tuple[Factor, float]:
    """Factor of a regularized Gram matrix (N, N), and its ridge.

    `size` is Σ|w| of the weights that a factor gives.
    """
    n = len(gram)
    scale = float(np.mean(np.diagonal(gram)))
    if isinstance(regularization, Schedule) and not np.isfinite(smoothness):
        regularization = Jitter()
    if isinstance(regularization, Jitter):
        return _guarded(regularization, scale, gram, size)
    if isinstance(regularization, Schedule):
        lam = scheduled_lambda(regularization.grid[0], n, smoothness, dim)
    elif isinstance(regularization, int | float | np.number) and regularization >= 0:
        lam = float(regularization)
    else:
        raise InputError(
            "regularization", repr(regularization), "a number λ ≥ 0, a Jitter or a Schedule"
        )
    factor = factorize(gram, n * lam)
    if factor is not None:
        return factor, n * lam
    # Too little for this matrix: the guard continues from this ridge.
    start = min(max(n * lam / scale, Jitter().start), 0.5)
    return _guarded(Jitter(start, limit=np.inf), scale, gram, size)


def _guarded(
    jitter: Jitter, scale: float, gram: Array, size: Callable[[Factor], float]
) -> tuple[Factor, float]:
    """Raise the ridge until the matrix factorizes and Σ|w| is below the limit."""
    relative, tamest = jitter.start, None
    while relative < 1.0:
        factor = factorize(gram, relative * scale)
        if factor is not None:
            tamest = factor, relative * scale
            if size(factor) <= jitter.limit:
                break
        relative *= 10.0
    if tamest is None:
        raise NumericalError(
            f"The Gram matrix of {len(gram)} nodes is not positive definite even "
            "with a ridge as large as its diagonal. Check that the kernel is positive definite "
            "on these nodes."
        )
    return tamest  # where no ridge tames the weights, sum_abs_weights shows it


def best_lambda0(
    kernel: Kernel, groups: Sequence[tuple[Array, Array]], grid: tuple[float, ...]
) -> float:
    """The λ_0 of the grid with the smallest leave-one-out error of kernel ridge regression.

    The paper searches a grid but does not say by which criterion; leave-one-out error needs
    no truth. Groups are as in :func:`fit_lengthscale`, and the first 256 nodes of each count:
    optima are flat, and the cost is N³ for each group and entry of the grid. Values are
    standardized column by column, as in the paper.
    """
    if len(grid) == 1:
        return grid[0]
    few = slice(0, 256)
    errors = [
        sum(_leave_one_out(kernel, nodes[few], values[few], lambda0) for nodes, values in groups)
        for lambda0 in grid
    ]
    return grid[int(np.argmin(errors))]


def _leave_one_out(kernel: Kernel, nodes: Array, values: Array, lambda0: float) -> float:
    n, dim = nodes.shape
    centred = values - values.mean(axis=0)
    scale = centred.std(axis=0)
    centred = centred / np.where(scale > 0, scale, 1.0)
    factor = factorize(
        kernel(nodes, nodes), n * scheduled_lambda(lambda0, n, kernel.smoothness(dim), dim)
    )
    if factor is None:
        return float("inf")
    return float(np.mean(factor.leave_one_out(centred) ** 2))


def _line_rules(
    kernel: Matern, law: Law, nodes: Array, sizes: Sequence[int], exact: Exactness
) -> list[list[Rule]]:
    """Rules on prefixes for each of T node sets (T, N, 1), in O(T N log N) for sorting."""
    count, n, _ = nodes.shape
    means = np.broadcast_to(mean_embedding(kernel, law, nodes), (count, n))
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    scales = np.broadcast_to(np.reshape(kernel.lengthscale, (-1,)), (count,))
    boxes = np.full((count, 2), np.nan)  # no box: every comparison with a node is false
    if isinstance(law, Uniform):
        boxes[:] = np.concatenate([law.low, law.high], axis=-1)
    return [
        [
            _line_rule(nodes[i, :m], float(scales[i]), boxes[i], means[i, :m], doubles[i], exact)
            for m in sizes
        ]
        for i in range(count)
    ]


def _line_rule(
    nodes: Array, lengthscale: float, box: Array, mean: Array, double: float, exact: Exactness
) -> Rule:
    """Solve with the Matérn-1/2 Gram matrix of distinct nodes, whose inverse is tridiagonal.

    The interpolant is local, so on a uniform law each gap between neighbours contributes the same
    ℓ tanh(Δ/2ℓ) to both its ends: no system is solved, no digits cancel and every weight is
    positive for all N and ℓ. Other laws go through the tridiagonal inverse. `box` is the interval
    of a uniform law, NaN for any other.

    Shapes
    ------
    nodes (N, 1), mean (N,) the kernel mean at the nodes, double its mean.
    """
    order = np.argsort(nodes[:, 0], kind="stable")
    x, mu = nodes[order, 0], mean[order]
    gaps = np.diff(x) / lengthscale
    half = np.tanh(0.5 * gaps)

    # K⁻¹1 is ½(tanh + tanh) inside; each end of the line contributes the missing ½.
    ones = np.zeros(x.size)
    ones[:-1] += 0.5 * half
    ones[1:] += 0.5 * half
    ones[0] += 0.5
    ones[-1] += 0.5

    low, high = box
    if low <= x[0] and x[-1] <= high:
        scale = lengthscale / (high - low)
        weights = np.zeros(x.size)
        weights[:-1] += scale * half
        weights[1:] += scale * half
        weights[0] -= scale * np.expm1(-(x[0] - low) / lengthscale)
        weights[-1] -= scale * np.expm1(-(high - x[-1]) / lengthscale)
    else:
        decay = np.exp(-gaps)
        spread = -np.expm1(-2.0 * gaps)
        weights = np.array(mu)
        weights[:-1] += (mu[:-1] - decay * mu[1:]) / spread - mu[:-1]
        weights[1:] += (mu[1:] - decay * mu[:-1]) / spread - mu[1:]

    # A difference, known to eps × double.
    variance = max(double - float(mu @ weights), np.finfo(float).eps * double)
    if exact == "constant":
        missing = 1.0 - float(weights.sum())
        weights += ones * (missing / ones.sum())
        variance += missing**2 / ones.sum()
    given = np.empty_like(weights)
    given[order] = weights
    # Without a ridge the constrained minimum of the worst-case error is the posterior variance.
    return Rule(nodes, given, 0.0, float("nan"), float(np.sqrt(variance)), float(variance))


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
    integrating constants exactly where `exact` asks for it.

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
        ``"none"`` or ``"constant"``.

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
    choice("exact", exact, get_args(Exactness))
    count, n, dim = nodes.shape
    regularization = Jitter() if regularization is None else regularization
    free = isinstance(regularization, Jitter)  # a ridge would destroy the structure
    if free and isinstance(kernel, Matern) and kernel.nu == 0.5 and dim == 1:
        return _line_rules(kernel, law, nodes, sizes, exact)
    if n > limits.DENSE_NODES:
        raise InputError(
            "nodes",
            f"{n} nodes",
            f"at most {limits.DENSE_NODES} for dense weights",
            "Use fewer inner points and more outer ones. In one dimension Matern(0.5) has weights "
            "in O(N log N) for any law.",
        )
    means = np.broadcast_to(mean_embedding(kernel, law, nodes), (count, n))
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    by_set = []
    for i, gram in enumerate(_upper_gram(kernel, nodes)):
        system = _DenseSystem(nodes[i], means[i], float(doubles[i]), exact == "constant")
        factor, ridge = regularized(
            gram, regularization, kernel.smoothness(dim), dim, system.sum_abs_weights
        )
        by_set.append([system.rule(factor, ridge, m) for m in sizes])
    return by_set


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
        given = f"duplicate nodes (rows {i} and {j}, {same.size} pair(s) in all)"
        advice = "Merge duplicates; a discrete law has distinct nodes in the transported space."
        raise InputError("nodes", given, "distinct nodes", advice)


def _upper_gram(kernel: Kernel, nodes: Array) -> Array:
    """Upper triangles of Gram matrices (T, N, N) of nodes (T, N, d): `factorize` reads no more."""
    count, n, _ = nodes.shape
    if n <= limits.BLOCK_ROWS:
        return kernel(nodes, nodes)
    out = np.zeros((count, n, n))
    for start in range(0, n, limits.BLOCK_ROWS):
        out[:, start : start + limits.BLOCK_ROWS, start:] = kernel(
            nodes[:, start : start + limits.BLOCK_ROWS], nodes[:, start:]
        )
    return out


@dataclass(frozen=True)
class _DenseSystem:
    """Right-hand sides of the weights of one node set: nodes (N, d), kernel mean (N,), its mean."""

    nodes: Array
    mean: Array
    double: float
    exact: bool

    def sum_abs_weights(self, factor: Factor) -> float:
        """Σ|w| of the weights at all nodes."""
        return float(np.abs(self._weights(factor, len(self.nodes))[0]).sum())

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
        mean, functions = self.mean[:size], np.ones((size, int(self.exact)))
        if size < self.nodes.shape[0]:
            factor = factor.leading(size)
        solved = factor.solve(np.column_stack([mean, functions]))
        weights, inverse_functions = solved[:, 0], solved[:, 1:]
        variance = self.double - float(mean @ weights)
        if not self.exact:
            return weights, variance, mean
        missing = 1.0 - functions.T @ weights
        coefficients = np.linalg.solve(functions.T @ inverse_functions, missing)
        return (
            weights + inverse_functions @ coefficients,
            variance + float(missing @ coefficients),
            mean + functions @ coefficients,
        )
