"""The likelihood optimiser: bounds, starts, failures."""

import numpy as np
import pytest

from nestquad.gp import maximum_likelihood

FAILED = 1e26  # a loss that no parameters have

BOUNDS = np.array([[-3.0, 3.0], [0.5, 0.5], [-3.0, 0.0]])


def bowl(x):
    """Lowest at (1, ·, 2), where the last coordinate may not go."""
    away = x - np.array([1.0, 0.0, 2.0])
    return float(away @ away), 2.0 * away


def test_the_minimum_within_bounds():
    x, value = maximum_likelihood(bowl, [np.zeros(3)], BOUNDS, n_values=1, most_steps=50)
    np.testing.assert_allclose(x, [1.0, 0.5, 0.0], atol=1e-3)
    assert value == pytest.approx(4.25, abs=1e-5)


def test_the_best_start_is_taken_and_failures_are_stepped_back_from():
    def loss(x):
        return (FAILED, np.zeros(3)) if x[0] < 0 else bowl(x)

    starts = [np.full(3, -2.0), np.array([2.0, 0.0, 0.0])]
    x, _ = maximum_likelihood(loss, starts, BOUNDS, n_values=1, most_steps=50)
    np.testing.assert_allclose(x, [1.0, 0.5, 0.0], atol=1e-3)


def test_nothing_but_failures_is_none():
    found = maximum_likelihood(
        lambda x: (FAILED, np.zeros(3)), [np.zeros(3)], BOUNDS, n_values=1, most_steps=5
    )
    assert found is None
