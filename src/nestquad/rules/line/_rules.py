"""Rules on a line, for the pairs of kernel and law whose weights cost O(N log N)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nestquad._typing import Array, Indices
from nestquad.distributions import Law, Normal, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.kernels import Matern
from nestquad.rules._rule import Exactness, Rule
from nestquad.rules.line._banded import LineSolution, line_solutions
from nestquad.rules.line._grid import LineLaws, grid_sizes

# Points of a chain made at a time: enough to hide the cost of a call of NumPy, few enough for the
# cache.
_POINTS = 2**14
# Where normal laws end, in standard deviations from the mean: 2e-17 of the mass lies beyond.
_REACH = 8.5
# Standard deviations over which quadrature integrates a normal density to rounding.
_WIDTH = 0.75


def line_rules(
    kernel: Matern, law: Law, nodes: Array, sizes: Sequence[int], exact: Exactness, limit: float
) -> list[list[Rule] | None]:
    """For each of T node sets (T, N, 1) rules on prefixes, or None where it takes dense weights.

    That is where Σ|w| of the largest rule exceeds `limit`, so that a ridge is needed; where nodes
    are so close that rounding decides; where gaps are so much longer than the lengthscale that
    dense weights are cheaper; for laws other than uniform and normal, nodes outside the former,
    and more than constants to be exact for. Matérn-1/2 knows none of these but the last.

    Cost
    ----
    O(T N log N).
    """
    count = nodes.shape[0]
    found: list[list[Rule] | None] = [None] * count
    if exact == "linear":
        return found
    mean_embedding(kernel, law, nodes[:, :1])  # refuses what does not fit together
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    problems = _chain_solutions if kernel.nu > 0.5 else _exponential_solutions
    for i, solutions in problems(kernel, law, nodes, sizes):
        rules = [
            _rule(nodes[i, :size], solution, float(doubles[i]), exact)
            for size, solution in zip(sizes, solutions, strict=True)
        ]
        largest = max(rules, key=lambda rule: rule.weights.size)
        if kernel.nu == 0.5 or largest.sum_abs_weights <= limit:
            found[i] = rules
    return found


def _exponential_solutions(
    kernel: Matern, law: Law, nodes: Array, sizes: Sequence[int]
) -> Iterator[tuple[int, list[LineSolution]]]:
    count, n, _ = nodes.shape
    means = np.broadcast_to(mean_embedding(kernel, law, nodes), (count, n))
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    scales = np.broadcast_to(np.reshape(kernel.lengthscale, (-1,)), (count,))
    boxes = _boxes(law, count)
    for i in range(count):
        yield (
            i,
            [
                _markov_solution(
                    nodes[i, :m, 0], float(scales[i]), boxes[i], means[i, :m], float(doubles[i])
                )
                for m in sizes
            ],
        )


def _boxes(law: Law, count: int) -> list[tuple[float, float] | None]:
    """The intervals of `count` uniform laws; None for other laws."""
    if not isinstance(law, Uniform):
        return [None] * count
    low, high = (np.broadcast_to(end.ravel(), (count,)) for end in (law.low, law.high))
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def _chain_solutions(
    kernel: Matern, law: Law, nodes: Array, sizes: Sequence[int]
) -> Iterator[tuple[int, list[LineSolution]]]:
    x = nodes[..., 0]
    count, n = x.shape
    laws = line_laws(law, count)
    if laws is None:
        return
    rate = np.broadcast_to(np.reshape(kernel.rate(0), (-1,)), (count,))
    order = round(kernel.nu + 0.5)
    points = grid_sizes(x, rate, laws)
    inside = (laws.low <= x.min(axis=1)) & (x.max(axis=1) <= laws.high) | (laws.curve > 0)
    for sets in _blocks(np.flatnonzero(inside & (points <= _most_points(n))), points):
        prefixes = [x[sets, :m] for m in sizes]
        for i, found in zip(
            sets, line_solutions(order, rate[sets], prefixes, laws.of(sets)), strict=True
        ):
            solutions = [solution for solution in found if solution is not None]
            if len(solutions) == len(sizes):
                yield int(i), solutions


def _rule(nodes: Array, solution: LineSolution, double: float, exact: Exactness) -> Rule:
    weights, variance = solution.inverse_mean, solution.variance
    if exact == "constant":
        missing = 1.0 - float(weights.sum())
        weights = weights + solution.inverse_one * (missing / solution.total)
        variance += missing**2 / solution.total
    # Below this even exact weights leave rounding in the sum over the values.
    variance = max(variance, np.finfo(float).eps ** 2 * double)
    # With no ridge the constrained minimum of the worst-case error is the posterior variance.
    return Rule(nodes, weights, 0.0, float("nan"), float(np.sqrt(variance)), float(variance))


def line_laws(law: Law, count: int) -> LineLaws | None:
    """One law or `count` laws as densities on a line; None unless uniform or normal."""

    def column(values: Array) -> Array:
        return np.broadcast_to(np.reshape(values, (-1,)), (count,))

    nothing = np.zeros(count)
    if isinstance(law, Uniform):
        low, high = column(law.low), column(law.high)
        return LineLaws(low, high, 1.0 / (high - low), nothing, nothing, np.full(count, np.inf))
    if isinstance(law, Normal):
        deviation = law.sd if law.sd is not None else law.chol
        assert deviation is not None  # a normal law has the one or the other
        mean, sd = column(law.loc), np.abs(column(deviation))
        if not sd.all():
            return None
        height = 1.0 / (np.sqrt(2.0 * np.pi) * sd)
        reach = _REACH * sd
        return LineLaws(mean - reach, mean + reach, height, mean, 1.0 / sd, _WIDTH * sd)
    return None


def _most_points(n: int) -> float:
    """The largest grid for N nodes that is cheaper than dense weights.

    Measured in batches on one core: 4.5 µs a point, and 250 + N²/55 µs for dense weights. Up to 1.5
    times the latter is accepted for weights without a ridge. With more points between the nodes
    the Gram matrix is well conditioned. The second bound is for memory.
    """
    return min(80.0 + n * n / 170.0, 4.0 * n + 1e5)


def _blocks(sets: Indices, points: Array) -> Iterator[Indices]:
    """Indices of sets in blocks whose chains have about as many points as they should."""
    if sets.size:
        filled = np.cumsum(points[sets]) // _POINTS
        yield from np.split(sets, np.flatnonzero(np.diff(filled)) + 1)


def _markov_solution(
    nodes: Array, lengthscale: float, box: tuple[float, float] | None, mean: Array, double: float
) -> LineSolution:
    """Solve with the Matérn-1/2 Gram matrix of distinct nodes, whose inverse is tridiagonal.

    The interpolant is local, so on a uniform law each gap between neighbours contributes the same
    ℓ tanh(Δ/2ℓ) to both its ends: no system is solved, nothing cancels and every weight is
    positive, whatever N and ℓ. Other laws go through the tridiagonal inverse. `box` is the interval
    of a uniform law, None for any other.

    Shapes
    ------
    nodes (N,), mean (N,) the kernel mean at the nodes, double its mean.

    Cost
    ----
    O(N log N), for sorting.
    """
    order = np.argsort(nodes, kind="stable")
    x, mu = nodes[order], mean[order]
    gaps = np.diff(x) / lengthscale
    half = np.tanh(0.5 * gaps)

    # K⁻¹1 is ½(tanh + tanh) inside; each end of the line contributes the missing ½.
    ones = np.zeros(x.size)
    ones[:-1] += 0.5 * half
    ones[1:] += 0.5 * half
    ones[0] += 0.5
    ones[-1] += 0.5

    low, high = (np.nan, np.nan) if box is None else box
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

    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    # A difference: below eps × double nothing is known.
    variance = max(double - float(mu @ weights), np.finfo(float).eps * double)
    return LineSolution(weights[back], ones[back], float(ones.sum()), variance)
