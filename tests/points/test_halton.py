"""Halton points are stratified in the prime of each coordinate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nestquad.errors import InputError
from nestquad.points import Halton, Stream
from nestquad.points._sequence import set_shifts

PRIMES = (2, 3, 5, 7, 11)


def strata(column, n_strata):
    """Which of the equal arcs of the circle each point lies in, up to rotation.

    The points of an aligned run share their later digits, so that they are all
    at the same place within their arc.
    """
    position = (column - column[0]) * n_strata
    nearest = np.rint(position)
    np.testing.assert_allclose(position, nearest, atol=1e-9 * n_strata)
    return nearest.astype(int) % n_strata


@pytest.mark.parametrize("block", [0, 1, 13])
def test_each_coordinate_is_equally_spaced(block):
    for coordinate, prime in enumerate(PRIMES):
        for power in range(1, 4):
            n = prime**power
            points = Halton().uniforms(
                Stream.from_rng(0), len(PRIMES), (0, 3), (block * n, (block + 1) * n)
            )
            for one_set in points:
                assert set(strata(one_set[:, coordinate], n)) == set(range(n))


@pytest.mark.parametrize("powers", [(3, 2), (1, 3), (4, 1)])
@pytest.mark.parametrize("pair", list(itertools.combinations(range(3), 2)))
def test_pairs_of_coordinates_fill_every_box_once(pair, powers):
    sides = [PRIMES[c] ** k for c, k in zip(pair, powers, strict=True)]
    n = sides[0] * sides[1]
    stream = Stream.from_rng(1)
    points = Halton().uniforms(stream, 3, (0, 4), (0, n))
    # Undo the rotation of each set; the tiny number keeps points on a border where they belong.
    shifts = set_shifts(stream.child(1), 3, (0, 4))
    points = (points - shifts[:, None] + 1e-11) % 1.0
    for one_set in points:
        boxes = np.floor(one_set[:, pair] * sides).astype(int)
        assert len(set(map(tuple, boxes))) == n


def test_shifts_are_uniform_rotations_of_one_set():
    points = Halton().uniforms(Stream.from_rng(2), 2, (0, 5), (0, 30))
    rotation = (points - points[:1]) % 1.0
    offset = rotation - rotation[:, :1]
    np.testing.assert_allclose((offset + 0.5) % 1.0, 0.5, atol=1e-12)


def test_permutations_break_the_link_between_high_coordinates():
    # Without scrambling, coordinates 19 and 20 (bases 67 and 71) of few points lie on lines.
    n = 60
    correlations = []
    for seed in range(20):
        points = Halton().uniforms(Stream.from_rng(seed), 20, (0, 1), (0, n))[0]
        correlations.append(np.corrcoef(points[:, 18], points[:, 19])[0, 1])
    plain = (np.arange(n)[:, None] / [67, 71]).T
    assert np.corrcoef(plain)[0, 1] > 0.99
    assert np.mean(np.abs(correlations)) < 0.25


def test_too_many_points_are_refused():
    with pytest.raises(InputError, match="at most 4294967296"):
        Halton().uniforms(Stream.from_rng(0), 1, (0, 1), (2**32, 2**32 + 1))
