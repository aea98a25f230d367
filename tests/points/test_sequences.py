"""What holds for every sequence."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nestquad.errors import InputError
from nestquad.points import IID, Given, Lattice, Sequence, Sobol, Stream, as_sequence

RANDOM = [IID(), Sobol(), Lattice(log2_max=10)]
LOW_DISCREPANCY = RANDOM[1:]
every = pytest.mark.parametrize("sequence", RANDOM, ids=lambda s: s.name)
every_low_discrepancy = pytest.mark.parametrize("sequence", LOW_DISCREPANCY, ids=lambda s: s.name)


def assert_chunks_agree(sequence: Sequence, dim: int, sets: list[int], indices: list[int]):
    """Compare the whole box with the chunks between all neighbouring cuts."""
    stream = Stream.from_rng(0)
    whole = sequence.uniforms(stream, dim, (sets[0], sets[-1]), (indices[0], indices[-1]))
    assert whole.shape == (sets[-1] - sets[0], indices[-1] - indices[0], dim)
    for a, b in itertools.pairwise(sets):
        for i, j in itertools.pairwise(indices):
            chunk = sequence.uniforms(stream, dim, (a, b), (i, j))
            expected = whole[a - sets[0] : b - sets[0], i - indices[0] : j - indices[0]]
            np.testing.assert_array_equal(chunk, expected)


def cuts(limit: int):
    # Small numbers as often as large ones: both sides of the borders between iid runs.
    number = st.integers(0, limit) | st.integers(0, 70)
    return st.lists(number, min_size=2, max_size=5).map(sorted)


@settings(max_examples=100, deadline=None)
@given(sequence=st.sampled_from(RANDOM), dim=st.integers(1, 5), sets=cuts(200), indices=cuts(300))
def test_points_do_not_depend_on_the_chunk(sequence, dim, sets, indices):
    assert_chunks_agree(sequence, dim, sets, indices)


@every
@pytest.mark.parametrize("dim", [1, 3])
def test_points_do_not_depend_on_the_chunk_at_powers_of_two(sequence, dim):
    borders = [0, 1, 2, 5, 31, 32, 63, 64, 65, 127, 128, 150]
    assert_chunks_agree(sequence, dim, borders, borders)
    assert_chunks_agree(sequence, dim, borders[3:], borders[4:])


@every
def test_chunks_far_out_agree_as_well(sequence):
    stream = Stream.from_rng(0)
    stop = 1024 if sequence.max_points == 1024 else 100_000
    whole = sequence.uniforms(stream, 3, (999_999, 1_000_001), (stop - 200, stop))
    part = sequence.uniforms(stream, 3, (1_000_000, 1_000_001), (stop - 77, stop - 3))
    np.testing.assert_array_equal(part, whole[1:, 123:197])


@every
def test_same_stream_same_bits_other_stream_other_points(sequence):
    box = (2, (0, 3), (0, 50))
    points = sequence.uniforms(Stream.from_rng(1), *box)
    np.testing.assert_array_equal(points, sequence.uniforms(Stream.from_rng(1), *box))
    other = sequence.uniforms(Stream.from_rng(1).child(0), *box)
    assert len(np.intersect1d(points, other)) == 0


@every
@pytest.mark.parametrize("dim", [1, 6])
def test_points_are_strictly_inside(sequence, dim):
    points = sequence.uniforms(Stream.from_rng(5), dim, (0, 300), (0, 500))
    assert points.dtype == np.float64
    assert points.min() > 0.0
    assert points.max() < 1.0
    assert np.isfinite(stats.norm.ppf(points)).all()


@every
def test_the_caller_may_write_into_the_points(sequence):
    stream = Stream.from_rng(5)
    points = sequence.uniforms(stream, 2, (0, 2), (0, 4))
    before = points.copy()
    points[:] = 0.5
    np.testing.assert_array_equal(sequence.uniforms(stream, 2, (0, 2), (0, 4)), before)


@every
@pytest.mark.parametrize("index", [0, 1, 100])
def test_each_point_is_uniform_over_the_sets(sequence, index):
    points = sequence.uniforms(Stream.from_rng(11), 3, (0, 4000), (index, index + 1))[:, 0]
    for coordinate in points.T:
        assert stats.kstest(coordinate, "uniform").pvalue > 1e-4
    correlations = np.corrcoef(points.T)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(4000)


@every
def test_sets_are_independent_of_each_other(sequence):
    # Neighbouring sets, and sets 64 apart, which iid points draw from different runs.
    points = sequence.uniforms(Stream.from_rng(12), 1, (0, 4000), (3, 4))[:, 0, 0]
    for lag in (1, 2, 64):
        assert abs(np.corrcoef(points[lag:], points[:-lag])[0, 1]) < 5 / np.sqrt(4000)


def integrand(u):
    """Smooth, not symmetric, with interactions; its integral is 1."""
    return np.prod(u * np.exp(u), axis=-1)  # ∫ u e^u du = 1


@every
def test_means_are_unbiased(sequence):
    points = sequence.uniforms(Stream.from_rng(13), 3, (0, 3000), (0, 8))
    means = integrand(points).mean(axis=1)
    assert abs(means.mean() - 1.0) < 4 * means.std() / np.sqrt(len(means))


@every_low_discrepancy
@pytest.mark.parametrize(("dim", "gain"), [(1, 300), (3, 8), (6, 1.5)])
def test_mean_square_error_beats_iid(sequence, dim, gain):
    points = sequence.uniforms(Stream.from_rng(14), dim, (0, 200), (0, 512))
    error = np.mean((integrand(points).mean(axis=1) - 1.0) ** 2)
    variance = ((np.e**2 - 1) / 4) ** dim - 1.0  # ∫ u² e^2u du = (e² - 1) / 4
    assert error < variance / 512 / gain


@every
@pytest.mark.parametrize(
    ("dim", "sets", "indices", "argument"),
    [
        (0, (0, 1), (0, 1), "dim"),
        (1, (-1, 1), (0, 1), "sets"),
        (1, (2, 1), (0, 1), "sets"),
        (1, (0, 1), (-1, 1), "indices"),
        (1, (0, 1), (3, 2), "indices"),
    ],
)
def test_impossible_requests_are_refused(sequence, dim, sets, indices, argument):
    with pytest.raises(InputError) as info:
        sequence.uniforms(Stream.from_rng(0), dim, sets, indices)
    assert info.value.argument == argument


@every
def test_sequences_are_values(sequence):
    assert sequence == type(sequence)(**vars(sequence))
    assert len({sequence, type(sequence)(**vars(sequence))}) == 1
    assert sequence.space == "uniform"


@pytest.mark.parametrize("name", ["iid", "sobol", "lattice", "Sobol", "IID"])
def test_names(name):
    assert as_sequence(name).name == name.lower()


def test_a_sequence_names_itself():
    sequence = Lattice(log2_max=5)
    assert as_sequence(sequence) is sequence
    assert as_sequence(Given([[0.5]])).name == "given"


def test_an_unknown_name_gets_the_nearest_match():
    with pytest.raises(InputError, match="Did you mean 'sobol'"):
        as_sequence("sobel", argument="inner_points")


@pytest.mark.parametrize(
    ("points", "advice"), [(np.ones((3, 1)), r"Given\(points\)"), (Sobol, "parentheses")]
)
def test_what_is_not_a_sequence_is_refused(points, advice):
    with pytest.raises(InputError, match=advice):
        as_sequence(points)


def test_importing_points_is_cheap():
    code = "import sys, nestquad.points; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
