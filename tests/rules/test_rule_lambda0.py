"""λ_0 against refits."""

from __future__ import annotations

import numpy as np
import pytest

from nestquad.kernels import Matern
from nestquad.rules import best_lambda0, scheduled_lambda


def leave_one_out_error(kernel, nodes, values, lambda0):
    """Refit N times, once without each node, with the ridge of the whole set."""
    n, d = nodes.shape
    y = (values - values.mean(axis=0)) / values.std(axis=0)
    ridge = n * scheduled_lambda(lambda0, n, kernel.smoothness(d), d)
    total = 0.0
    for i in range(n):
        rest = np.delete(np.arange(n), i)
        gram = kernel(nodes[rest], nodes[rest]) + ridge * np.eye(n - 1)
        predicted = kernel(nodes[[i]], nodes[rest]) @ np.linalg.solve(gram, y[rest])
        total += float(np.mean((y[i] - predicted) ** 2))
    return total / n


@pytest.mark.parametrize("kernel", [Matern(0.5, 0.2), Matern(1.5, 0.5)])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5, 2.0])
def test_lambda0_has_the_smallest_leave_one_out_error(kernel, noise):
    nodes = np.random.default_rng(1).random((30, 1))
    smooth = np.sin(6 * nodes) + np.array([[0.0, 5.0]])
    values = smooth + noise * np.random.default_rng(2).standard_normal((30, 2))
    grid = (1e-4, 0.01, 1.0, 100.0)
    errors = [leave_one_out_error(kernel, nodes, values, lambda0) for lambda0 in grid]
    assert best_lambda0(kernel, [(nodes, values)], grid) == grid[int(np.argmin(errors))]


def test_noise_moves_the_choice():
    nodes = np.random.default_rng(1).random((40, 1))
    noise = np.random.default_rng(2).standard_normal((40, 1))
    grid = (1e-6, 1.0, 1e4)
    smooth = best_lambda0(Matern(1.5, 0.3), [(nodes, np.sin(6 * nodes))], grid)
    rough = best_lambda0(Matern(1.5, 0.3), [(nodes, noise)], grid)
    assert smooth < rough


def test_errors_of_several_groups_add_up():
    grid = (1e-4, 0.01, 1.0, 100.0)
    kernel, rng = Matern(1.5, 0.3), np.random.default_rng(5)
    groups = []
    for noise in (0.0, 0.3, 1.0):
        nodes = rng.random((25, 1))
        groups.append((nodes, np.sin(6 * nodes) + noise * rng.standard_normal((25, 1))))
    errors = [
        sum(leave_one_out_error(kernel, nodes, values, lambda0) for nodes, values in groups)
        for lambda0 in grid
    ]
    assert best_lambda0(kernel, groups, grid) == grid[int(np.argmin(errors))]
