"""Independent points."""

from __future__ import annotations

import numpy as np
from scipy import stats

from nestquad.points import IID, Stream


def test_no_number_is_used_twice():
    # Overlapping runs would show here: sets and indices on both sides of the tile borders.
    points = IID().uniforms(Stream.from_rng(0), 2, (0, 200), (0, 400))
    assert len(np.unique(points)) == points.size


def test_points_are_uniform_and_uncorrelated():
    points = IID().uniforms(Stream.from_rng(1), 2, (0, 500), (0, 200))
    n = points.size
    assert stats.kstest(points.ravel(), "uniform").pvalue > 1e-3
    centred = points - 0.5
    for axis in range(3):
        ahead = np.take(centred, np.arange(1, points.shape[axis]), axis=axis)
        behind = np.take(centred, np.arange(points.shape[axis] - 1), axis=axis)
        # A product of two independent centred uniforms has standard deviation 1/12.
        assert abs(np.mean(ahead * behind)) < 5 / 12 / np.sqrt(n / 2)


def test_set_means_have_the_variance_of_independence():
    points = IID().uniforms(Stream.from_rng(2), 1, (0, 2000), (0, 100))
    ratio = points.mean(axis=(1, 2)).var() * 12 * 100
    assert abs(ratio - 1.0) < 5 * np.sqrt(2 / 2000)
