"""The estimators written out with numpy alone, on the points that the library would use."""

from __future__ import annotations

import numpy as np

from nestquad.embeddings import mean_embedding
from nestquad.evaluate import inner_points, outer_points
from nestquad.methods import Goal
from nestquad.points import Stream


def points_of(problem, method, seed):
    """θ and x, with the uniforms behind them, of an estimate with this seed: (T, …), (T, N, …)."""
    (grid,) = method.plan(problem, Goal(Stream.from_rng(seed))).grids
    outer = outer_points(problem, grid, 0, grid.n_outer)
    inner = inner_points(problem, grid, outer.theta, grid.span)
    rows = np.arange(grid.n_outer) % (grid.n_sets or grid.n_outer)
    uniform = None if inner.uniform is None else inner.uniform[rows % len(inner.uniform)]
    x = np.broadcast_to(inner.x, (grid.n_outer, *inner.x.shape[1:]))
    return outer.theta, outer.uniform, x, uniform


def values_of(problem, theta, x):
    """g one pair (θ_t, x_n) at a time: (T, N, p)."""
    return np.array(
        [
            [np.atleast_1d(problem.g(x[t, n][None], theta[t][None])[0]) for n in range(x.shape[1])]
            for t in range(len(theta))
        ]
    )


def finish(problem, j, weights):
    """f of J (T, p) row by row, the outer sum, and combine."""
    single = j.shape[1] == 1
    f = [np.ravel(problem.f(row[:1] if single else row[None])) for row in j]
    answers = weights @ np.array(f)
    return problem.combine(answers) if problem.combine else answers


def weights(kernel, law, nodes, lam, *, standardize=False, exact_constant=False):
    """μ(x)ᵀ (K + N λ I)⁻¹, the paper's equation."""
    n = len(nodes)
    gram = kernel(nodes, nodes) + n * lam * np.eye(n)
    w = np.linalg.solve(gram, mean_embedding(kernel, law, nodes))
    if standardize:  # Σ w (y - ȳ) + ȳ
        w = w + (1 - w.sum()) / n
    if exact_constant:
        one = np.linalg.solve(gram, np.ones(n))
        w = w + one * (1 - w.sum()) / one.sum()
    return w


def schedule(lambda0, n, s, d):
    return lambda0 * n ** (-2 * s / d) * np.log(n) ** ((2 * s + 2) / d)


def leave_one_out(kernel, nodes, values, lam):
    """Mean squared error over all nodes of a ridge regression that leaves each out."""
    n = len(nodes)
    y = values - values.mean(axis=0)
    y = y / y.std(axis=0)
    inverse = np.linalg.inv(kernel(nodes, nodes) + n * lam * np.eye(n))
    return np.mean((inverse @ y / np.diagonal(inverse)[:, None]) ** 2)
