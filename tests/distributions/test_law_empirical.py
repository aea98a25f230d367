"""Empirical: quantiles, weights and moments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import nestquad as nq
from nestquad.distributions import Empirical
from nestquad.errors import InputError

# So many tests of samples need a small level; 4000 draws keep them sharp.
FALSE_ALARM = 1e-6
SAMPLES = arrays(float, st.integers(1, 12), elements=st.integers(-4, 4).map(float))


@settings(max_examples=80, deadline=None)
@given(samples=SAMPLES, data=st.data())
def test_one_coordinate_is_the_quantile_function(samples, data):
    n = len(samples)
    weights = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), dtype=float)
    if not weights.any():
        weights[0] = 1.0
    law = Empirical(samples[:, None], weights)
    total = weights.sum()
    # Levels strictly between the jumps, so that rounding decides nothing.
    u = (np.arange(int(total)) + 0.5) / total
    x = law.from_uniform(u[:, None])[:, 0]
    # Whole weights are repeated samples: the k-th level gives the k-th of them in order.
    np.testing.assert_array_equal(x, np.sort(np.repeat(samples, weights.astype(int))))
    np.testing.assert_allclose(law.mean(), [np.average(samples, weights=weights)], atol=1e-14)
    np.testing.assert_allclose(law.weights.sum(), 1.0)
    assert (np.diff(law.samples[:, 0]) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 300))
def test_equal_weights_jump_exactly_at_k_over_n(n):
    law = Empirical(np.arange(n, dtype=float)[:, None])
    jumps = np.arange(1, n) / n
    if n > 1:
        np.testing.assert_array_equal(law.from_uniform(jumps[:, None])[:, 0], np.arange(n - 1))
        above = np.nextafter(jumps, 1.0)
        np.testing.assert_array_equal(law.from_uniform(above[:, None])[:, 0], np.arange(1, n))


def test_several_coordinates_keep_their_rows_and_frequencies():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(6, 3))
    weights = np.array([1.0, 0.0, 3.0, 2.0, 0.0, 4.0])
    law = Empirical(samples, weights)
    u = (np.arange(1000) + 0.5) / 1000
    x = law.from_uniform(u[:, None])
    counts = [(x == row).all(axis=1).sum() for row in samples]
    np.testing.assert_array_equal(counts, 100 * weights)
    np.testing.assert_allclose(law.mean(), x.mean(axis=0), atol=1e-12)
    np.testing.assert_array_equal(law.samples, samples)
    np.testing.assert_allclose(law.weights, weights / 10)


def test_samples_of_weight_zero_are_never_drawn():
    law = Empirical(np.arange(5.0)[:, None], [0.0, 0.1, 0.0, 0.7, 0.0])
    edge = [[5e-324], [np.nextafter(1.0, 0.0)]]
    np.testing.assert_array_equal(law.from_uniform(edge)[:, 0], [1.0, 3.0])


def test_a_batch_with_its_own_weights():
    rng = np.random.default_rng(1)
    samples, weights = rng.normal(size=(4, 50, 1)), rng.uniform(size=(4, 50))
    law = Empirical(samples, weights)
    assert (law.dim, law.base_dim, law.batch) == (1, 1, 4)
    assert law.weights.shape == (4, 50)
    u = (np.arange(4000) + 0.5)[:, None] / 4000
    x = law.from_uniform(u)
    for t in range(4):
        for level in (-1.0, 0.0, 1.0):
            mass = weights[t, samples[t, :, 0] <= level].sum() / weights[t].sum()
            assert np.mean(x[t] <= level) == pytest.approx(mass, abs=1 / 4000)
    expected = (weights[..., None] * samples).sum(axis=1) / weights.sum(axis=1)[:, None]
    np.testing.assert_allclose(law.mean(), expected, rtol=1e-12)


def test_draws_follow_the_weights():
    law = Empirical(np.arange(4.0)[:, None], [1, 2, 3, 4])
    x = law.sample(4000, np.random.default_rng(0))[:, 0]
    observed = np.bincount(x.astype(int), minlength=4)
    assert stats.chisquare(observed, 400.0 * np.array([1, 2, 3, 4])).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    ("samples", "weights", "message"),
    [
        (np.zeros(3), None, r"samples\[:, None\]"),
        (np.zeros((2, 2, 2, 2)), None, "samples: got shape"),
        (np.zeros((0, 2)), None, "empty"),
        ([[1.0], [np.nan]], None, r"not finite at index \[1, 0\]"),
        ([[1.0], [2.0]], [1.0, -0.5], r"negative weight at index \[1\]"),
        ([[1.0], [2.0]], [0.0, 0.0], "positive finite sum"),
        ([[1.0], [2.0]], [1.0, np.nan], "weights: got a value that is not finite"),
        ([[1.0], [2.0]], [1.0], r"weights: got shape \(1,\)"),
        ([[1.0], [2.0]], [[1.0, 2.0]], r"weights: got shape \(1, 2\)"),
        (
            np.zeros((3, 2, 1)),
            np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]),
            "positive finite sum",
        ),
        (np.zeros((3, 2, 1)), np.ones((2, 2)), r"\(2,\) or \(3, 2\)"),
    ],
)
def test_bad_samples_and_weights_are_refused(samples, weights, message):
    with pytest.raises(InputError, match=message):
        Empirical(samples, weights)


@pytest.mark.parametrize("method", ["nqmc", "auto"])
def test_weighted_scenarios_are_an_outer_law(method):
    rng = np.random.default_rng(2)
    scenarios, weights = rng.normal(size=(40, 3)), rng.uniform(0.2, 2.0, size=40)

    def loss(x, theta):
        return theta.sum(axis=-1) + x[..., 0]

    # J is the sum of a scenario: the answer is a weighted sum over all of them.
    exact = weights @ np.maximum(scenarios.sum(axis=1), 0.0) / weights.sum()
    problem = nq.NestedExpectation(
        Empirical(scenarios, weights), nq.Normal(), loss, lambda j: np.maximum(j, 0.0)
    )
    est = nq.estimate(problem, budget=20_000, method=method, rng=0)
    low, high = est.interval(0.999)
    assert low <= exact <= high
    assert est.value == pytest.approx(exact, rel=0.05)
