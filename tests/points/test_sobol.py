"""Sobol' points are digital nets, also after scramble and shift."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import qmc

from nestquad.errors import InputError
from nestquad.points import Sobol, Stream


def cell_counts(points, digits):
    """How many points lie in each box of sides 2**-digits[j]."""
    cells = np.zeros(len(points), dtype=int)
    for column, k in zip(points.T, digits, strict=True):
        cells = cells * 2**k + np.floor(column * 2**k).astype(int)
    return np.bincount(cells, minlength=2 ** sum(digits))


@pytest.mark.parametrize("log2_n", [0, 1, 4, 9])
def test_every_set_is_a_net_in_each_coordinate(log2_n):
    n = 2**log2_n
    points = Sobol().uniforms(Stream.from_rng(0), 20, (0, 10), (0, n))
    for one_set in points:
        for column in one_set.T:
            assert (cell_counts(column[:, None], [log2_n]) == 1).all()


@pytest.mark.parametrize("block", [0, 1, 5, 1000])
def test_first_two_coordinates_are_a_perfect_net(block):
    # t = 0 in base 2, for each aligned run of 2**m points and each shape of the boxes.
    m = 7
    points = Sobol().uniforms(Stream.from_rng(1), 2, (0, 6), (block * 2**m, (block + 1) * 2**m))
    for one_set, k in itertools.product(points, range(m + 1)):
        assert (cell_counts(one_set, [k, m - k]) == 1).all()


@pytest.mark.parametrize("pair", [(0, 2), (1, 2), (3, 7), (8, 11), (20, 39)])
def test_other_pairs_keep_the_balance_of_plain_sobol_points(pair):
    m, dim = 8, 40
    plain = qmc.Sobol(dim, scramble=False).random_base2(m)[:, pair]
    points = Sobol().uniforms(Stream.from_rng(2), dim, (0, 5), (0, 2**m))[:, :, pair]
    for k in range(m + 1):
        for total in range(m - k + 1):
            expected = np.sort(cell_counts(plain, [k, total]))
            for one_set in points:
                counts = np.sort(cell_counts(one_set, [k, total]))
                np.testing.assert_array_equal(counts, expected)


def test_scrambles_differ_between_streams_and_are_shared_by_sets():
    m = 5
    nets = []
    for seed in range(3):
        points = Sobol().uniforms(Stream.from_rng(seed), 2, (0, 3), (0, 2**m))
        integers = np.floor(points * 2.0**32).astype(np.uint64)
        difference = integers[:, :, :] ^ integers[:, :1, :]  # removes the shift of the set
        np.testing.assert_array_equal(difference[0], difference[1])
        np.testing.assert_array_equal(difference[0], difference[2])
        nets.append(difference[0])
    assert not np.array_equal(nets[0], nets[1])
    assert not np.array_equal(nets[0], nets[2])


def test_points_are_middles_of_cells():
    points = Sobol().uniforms(Stream.from_rng(0), 3, (0, 4), (0, 33)) * 2.0**32
    np.testing.assert_array_equal(points % 1.0, 0.5)


def test_convergence_is_faster_than_one_over_n():
    # ∫ u e^u du = 1; the mean square error of a scrambled net is o(1/n²) for smooth integrands.
    sizes = 2 ** np.arange(3, 11)
    points = Sobol().uniforms(Stream.from_rng(3), 1, (0, 100), (0, int(sizes[-1])))
    values = (points * np.exp(points))[..., 0]
    rmse = [np.sqrt(np.mean((values[:, :n].mean(axis=1) - 1.0) ** 2)) for n in sizes]
    assert np.polyfit(np.log(sizes), np.log(rmse), 1)[0] < -0.95


def test_too_many_coordinates_or_points_are_refused():
    with pytest.raises(InputError, match="21201"):
        Sobol().uniforms(Stream.from_rng(0), 21202, (0, 1), (0, 1))
    with pytest.raises(InputError, match="at most 4294967296"):
        Sobol().uniforms(Stream.from_rng(0), 1, (0, 1), (0, 2**32 + 1))
