"""Weights of Matérn kernels on a line in O(N log N), from one banded system.

Given the states (value and m - 1 derivatives) at all nodes, the integral is a sum over gaps;
derivatives given values solve a banded system. No kernel mean and no Gram matrix appears, so that
no digits cancel: quadrature by splines, stable where K has lost all its digits. For ν = 1/2 the
state is the value, and no system is solved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from nestquad import limits
from nestquad._typing import Array, Indices, Mask
from nestquad.distributions import Law, Normal, Uniform, standard_deviation
from nestquad.embeddings import double_embedding, mean_embedding
from nestquad.kernels import Matern
from nestquad.rules._rule import Exactness, Rule
from nestquad.rules._state_space import (
    LineLaws,
    StateChain,
    grid_sizes,
    joined,
    line_chain,
    line_grid,
    stationary,
)

# Where normal laws end, in standard deviations from the mean: 2e-17 of the mass lies beyond.
_REACH = 8.5
# Standard deviations over which quadrature integrates a normal density to rounding.
_WIDTH = 0.75
# The part of Σ|w| that rounding may move.
_SETTLED = 1e-7


def line_rules(
    kernel: Matern, law: Law, nodes: Array, sizes: Sequence[int], exact: Exactness, limit: float
) -> list[list[Rule] | None]:
    """For each of T node sets (T, N, 1) rules on prefixes, or None where it takes dense weights.

    That is where Σ|w| of the largest rule exceeds `limit`, so that a ridge is needed; where nodes
    are so close that rounding decides; where gaps are long compared with the lengthscale and
    dense weights are cheaper; for laws other than uniform and normal, nodes outside the former,
    and more than constants to be exact for. Matérn-1/2 knows none of these but the last.

    Cost
    ----
    O(T N log N).
    """
    count = nodes.shape[0]
    by_set: list[list[Rule] | None] = [None] * count
    if exact == "linear":
        return by_set
    mean_embedding(kernel, law, nodes[:, :1])  # refuses a law and nodes of different dimension
    doubles = np.broadcast_to(double_embedding(kernel, law), (count,))
    problems = _chain_solutions if kernel.nu > 0.5 else _exponential_solutions
    for i, solutions in problems(kernel, law, nodes, sizes):
        rules = [
            _rule(nodes[i, :size], solution, float(doubles[i]), exact)
            for size, solution in zip(sizes, solutions, strict=True)
        ]
        largest = max(rules, key=lambda rule: rule.weights.size)
        if kernel.nu == 0.5 or largest.sum_abs_weights <= limit:
            by_set[i] = rules
    return by_set


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
        for i, prefix_solutions in zip(
            sets, line_solutions(order, rate[sets], prefixes, laws.of(sets)), strict=True
        ):
            solutions = [solution for solution in prefix_solutions if solution is not None]
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
        mean, sd = column(law.loc), column(standard_deviation(law))
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
    """Indices of sets in blocks whose chains have about `limits.CHAIN_POINTS` points."""
    if sets.size:
        filled = np.cumsum(points[sets]) // limits.CHAIN_POINTS
        yield from np.split(sets, np.flatnonzero(np.diff(filled)) + 1)


def _markov_solution(
    nodes: Array, lengthscale: float, box: tuple[float, float] | None, mean: Array, double: float
) -> LineSolution:
    """Solve with the Matérn-1/2 Gram matrix of distinct nodes, whose inverse is tridiagonal.

    The interpolant is local, so on a uniform law each gap between neighbours contributes the same
    ℓ tanh(Δ/2ℓ) to both its ends: no system is solved, no digits cancel and every weight is
    positive for all N and ℓ. Other laws go through the tridiagonal inverse. `box` is the interval
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
    # A difference, known to eps × double.
    variance = max(double - float(mu @ weights), np.finfo(float).eps * double)
    return LineSolution(weights[back], ones[back], float(ones.sum()), variance)


@dataclass(frozen=True)
class LineSolution:
    """The solution for one set of nodes, in their given order.

    Attributes
    ----------
    inverse_mean, inverse_one
        K⁻¹μ and K⁻¹1, (N,).
    total
        1ᵀK⁻¹1, a sum of squares.
    variance
        Of the integral given the values, a sum of squares.
    """

    inverse_mean: Array
    inverse_one: Array
    total: float
    variance: float


def line_solutions(
    order: int, rate: Array, groups: Sequence[Array], laws: LineLaws
) -> list[list[LineSolution | None]]:
    """For each of T laws one solution for each group of node sets, None where rounding decides.

    All sets form one chain: a large number of small sets is as fast as a few large ones. The
    order is m = ν + 1/2; rates (T,) lead from x to z; groups (T, N) differ in N.

    Cost
    ----
    O(T N log N): sorting, and a few microseconds for each point of the grid.
    """
    sortings = [np.argsort(nodes, axis=1, kind="stable") for nodes in groups]
    ordered = (np.take_along_axis(x, by, axis=1) for x, by in zip(groups, sortings, strict=True))
    grid = joined([line_grid(x, rate, laws) for x in ordered])
    chain = line_chain(order, grid, rate, laws)
    solved = _projected(chain, grid.known)
    if solved is None:
        if rate.size == 1:
            return [[None] * len(groups)]
        alone = [np.array([i]) for i in range(rate.size)]  # one of them is to blame
        return [
            line_solutions(order, rate[i], [x[i] for x in groups], laws.of(i))[0] for i in alone
        ]
    noise, weights, moved = solved

    intensity = 1.0 / stationary(order)[0, 0]  # of the noise that gives f unit variance
    missed = noise[..., 0] - chain.noise
    sums = np.stack(
        [
            np.einsum("ni,ni->n", missed, missed) + chain.rest,
            np.einsum("ni,ni->n", noise[..., 1], noise[..., 1]),
            np.abs(weights[:, 0]) * grid.known,
            moved * grid.known,
        ]
    )
    variance, total, size, error = np.add.reduceat(sums, grid.first, axis=1)
    variance = (variance + chain.ends) * intensity
    precise = error <= _SETTLED * size
    at_nodes = weights[grid.known] / (1.0, intensity)
    by_law: list[list[LineSolution | None]] = [[] for _ in range(rate.size)]
    begin, s = 0, 0
    for sorting in sortings:
        for own, by in zip(by_law, sorting, strict=True):
            given = np.empty((by.size, 2))
            given[by] = at_nodes[begin : begin + by.size]
            mean, ones = given.T.copy()
            solution = LineSolution(mean, ones, float(total[s] / intensity), float(variance[s]))
            own.append(solution if precise[s] else None)
            begin, s = begin + by.size, s + 1
    return by_law


def _projected(chain: StateChain, known: Mask) -> tuple[Array, Array, Array] | None:
    """Contribution of each η to the integral given the values, and to K⁻¹1.

    With B the steps, the integral is Σ u·η + Σ a·s for every u that adds up to the same integral:
    Bᵀu = -a for all that is not known, and the u closest to the noise has the least variance. The
    weights are then a + Bᵀu at the values. With the η of the function 1 and a = 0 they are K⁻¹1.

    Returns
    -------
    u (n, m, 2), the weights at all points (n, 2), and the possible effect of rounding on the
    weights of the integral, (n,). None where BᵀB is not positive definite to rounding.
    """
    n, order = chain.start.shape
    free = np.ones((n, order, 1))
    free[known, 0] = 0.0
    to, back = chain.to * free.transpose(0, 2, 1), chain.back.copy()
    back[1:] *= free[:-1].transpose(0, 2, 1)
    factor = _factor(to, back, known)
    if factor is None:
        return None

    def shift(rhs: Array) -> Array:
        """B (BᵀB)⁻¹ rhs."""
        solved, _ = lapack.dpbtrs(factor, rhs.reshape(n * order, -1), lower=1)
        states = solved.reshape(rhs.shape)
        image = to @ states
        image[1:] += back[1:] @ states[:-1]
        return np.asarray(image)

    fixed = np.zeros((n, order, 2))
    fixed[..., 0] = chain.start * chain.units
    u = np.stack([chain.noise, chain.one], axis=-1)
    # Refinement makes the normal equations as good as an orthogonal factorisation. The number of
    # turns is fixed, so that the weights of a set do not depend on the other sets.
    for _ in range(2 if order < 4 else 3):
        u -= shift((fixed + _adjoint(to, back, u)) * free)

    # The remaining residual and, as a probe, rounding errors in it of alternating sign.
    left = fixed[..., :1] + _adjoint(to, back, u[..., :1])
    size = np.abs(fixed[..., :1]) + _adjoint(np.abs(to), np.abs(back), np.abs(u[..., :1]))
    size[::2] *= np.finfo(float).eps
    size[1::2] *= -np.finfo(float).eps
    moved = shift(np.concatenate([left, size], axis=-1) * free)

    every = np.concatenate([u, moved], axis=-1)
    image = _adjoint(chain.to[:, :, :1], chain.back[:, :, :1], every)[:, 0] / chain.units[:, :1]
    image[:, 0] += chain.start[:, 0]
    return u, image[:, :2], np.abs(image[:, 2:]).sum(axis=1)


def _adjoint(to: Array, back: Array, u: Array) -> Array:
    """Bᵀu, (n, m, r)."""
    image = to.transpose(0, 2, 1) @ u
    image[:-1] += back[1:].transpose(0, 2, 1) @ u[1:]
    return np.asarray(image)


def _factor(to: Array, back: Array, known: Mask) -> Array | None:
    """Banded Cholesky factor of BᵀB as LAPACK stores it, with ones in place of known values."""
    n, order, _ = to.shape
    diagonal = to.transpose(0, 2, 1) @ to
    diagonal[:-1] += back[1:].transpose(0, 2, 1) @ back[1:]
    diagonal[known, 0, 0] = 1.0
    below = to[1:].transpose(0, 2, 1) @ back[1:]
    band = np.zeros((n, order, 2 * order))
    for j in range(order):
        band[:, j, : order - j] = diagonal[:, j:, j]
        band[:-1, j, order - j : 2 * order - j] = below[:, :, j]
    factor, info = lapack.dpbtrf(band.reshape(-1, 2 * order).T, lower=1, overwrite_ab=1)
    return factor if info == 0 else None
