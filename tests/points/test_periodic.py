"""Periodized lattices: integrals, inverses, chunks."""

import numpy as np
import pytest

from nestquad.points import PERIODIZATIONS, PeriodicLattice, Stream, density, moved, periodic


@pytest.mark.parametrize("periodization", PERIODIZATIONS)
def test_periodization_preserves_integrals(periodization):
    nodes, weights = np.polynomial.legendre.leggauss(40)
    # The tent has a kink in the middle: integrate both halves.
    v = np.concatenate([(nodes + 1) / 4, (nodes + 3) / 4])
    half = np.concatenate([weights, weights]) / 4
    u, by = moved(periodization, v), density(periodization, v[:, None])
    assert ((u > 0) & (u < 1)).all()
    for power in range(6):
        np.testing.assert_allclose(half @ (u**power * by), 1 / (power + 1), rtol=1e-12)


@pytest.mark.parametrize("periodization", PERIODIZATIONS)
def test_points_do_not_depend_on_the_chunk(periodization):
    points = PeriodicLattice(12, periodization)
    stream = Stream.from_rng(3)
    whole = points.uniforms(stream, 4, (0, 1), (0, 64))
    part = points.uniforms(stream, 4, (0, 1), (17, 40))
    assert np.array_equal(whole[:, 17:40], part)
    assert np.array_equal(whole[0], moved(periodization, points.periodic(stream, 4, 64)))
    assert whole.min() > 0
    assert whole.max() < 1


@pytest.mark.parametrize("periodization", PERIODIZATIONS)
def test_periodic_inverts_moved(periodization):
    u = np.concatenate([np.linspace(0.001, 0.999, 97), [1e-9, 0.5, 1 - 1e-9]])
    np.testing.assert_allclose(moved(periodization, periodic(periodization, u)), u, rtol=1e-6)
