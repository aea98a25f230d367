"""Rules on a line, for the pairs of kernel and law whose weights cost O(N log N)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nestquad._typing import Array, Indices
from nestquad.distributions import Law, Normal, Uniform
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.kernels import Matern
from nestquad.rules._banded import LineSolution, line_solutions
from nestquad.rules._exactness import Exactness
from nestquad.rules._grid import LineLaws, grid_sizes
from nestquad.rules._markov import markov_solution
from nestquad.rules._rule import Rule

__all__ = ["line_laws", "line_rules"]

# A chain is made for so many points at a time: enough to hide what a call of NumPy costs, and few
# enough to stay in the cache.
_POINTS = 2**14
# Normal laws end so many standard deviations from their mean: 2e-17 of the mass lies beyond.
_REACH = 8.5
# Quadrature integrates a normal density over so many standard deviations to rounding.
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
                markov_solution(
                    nodes[i, :m, 0], float(scales[i]), boxes[i], means[i, :m], float(doubles[i])
                )
                for m in sizes
            ],
        )


def _boxes(law: Law, count: int) -> list[tuple[float, float] | None]:
    """The interval of each of so many uniform laws; None for laws of another kind."""
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
    """One law or so many, as densities on a line; None for other kinds than uniform and normal."""

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
    """The largest grid for N nodes that is worth its while.

    Measured in batches on one core: 4.5 µs a point, and 250 + N²/55 µs for dense weights; up to 1.5
    times the latter is a fair price for weights without a ridge. Where there are so many points
    between the nodes, the Gram matrix is well conditioned. The second bound is for memory.
    """
    return min(80.0 + n * n / 170.0, 4.0 * n + 1e5)


def _blocks(sets: Indices, points: Array) -> Iterator[Indices]:
    """Indices of sets in blocks whose chains have about as many points as they should."""
    if sets.size:
        filled = np.cumsum(points[sets]) // _POINTS
        yield from np.split(sets, np.flatnonzero(np.diff(filled)) + 1)
