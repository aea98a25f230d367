"""Points of the user's own."""

from __future__ import annotations

import numpy as np
import pytest

from nestquad.errors import InputError
from nestquad.points import Given, Stream

STREAM = Stream.from_rng(0)


def test_shared_points_are_the_same_in_every_set():
    points = np.random.default_rng(0).random((5, 2))
    out = Given(points).uniforms(STREAM, 2, (3, 7), (1, 4))
    assert out.shape == (4, 3, 2)
    for one_set in out:
        np.testing.assert_array_equal(one_set, points[1:4])


def test_points_for_each_set():
    points = np.random.default_rng(0).random((4, 5, 2))
    np.testing.assert_array_equal(
        Given(points).uniforms(STREAM, 2, (1, 3), (2, 5)), points[1:3, 2:5]
    )


def test_native_points_come_as_they_are():
    points = np.array([[-3.0], [0.0], [150.0]])
    sequence = Given(points, space="native")
    assert sequence.space == "native"
    np.testing.assert_array_equal(sequence.uniforms(STREAM, 1, (0, 1), (0, 3))[0], points)


def test_neither_input_nor_output_shares_memory():
    points = np.full((2, 1), 0.5)
    sequence = Given(points)
    points[0] = 0.1
    out = sequence.uniforms(STREAM, 1, (0, 2), (0, 2))
    out[0] = 0.9
    np.testing.assert_array_equal(sequence.uniforms(STREAM, 1, (0, 1), (0, 2)), 0.5)
    with pytest.raises(ValueError, match="read-only"):
        sequence.points[0] = 0.3


def test_equal_points_are_equal_sequences():
    a, b = Given([[0.0], [1.0]], "native"), Given([[-0.0], [1.0]], "native")
    assert a == b
    assert hash(a) == hash(b)
    assert a != Given([[0.0], [2.0]], "native")
    assert a != "given"
    assert "(2, 1)" in repr(a)


def test_capacity():
    assert Given([[0.5], [0.6]]).max_points == 2
    assert Given([[0.5], [0.6]]).max_sets is None
    assert Given(np.full((3, 2, 1), 0.5)).max_sets == 3


@pytest.mark.parametrize(
    ("points", "space", "message"),
    [
        ([[0.5], [1.0]], "uniform", r"\[1.0\] in row 1"),
        ([[0.0, 0.5]], "uniform", r"\[0.0, 0.5\] in row 0.*native"),
        ([[0.5], [0.5], [np.nan]], "uniform", "row 2"),
        ([[[0.5], [0.5]], [[0.5], [7.0]]], "uniform", "row 1 of set 1"),
        ([[1.0], [np.inf]], "native", "row 1.*finite"),
        ([[np.nan]], "native", "row 0.*finite"),
        ([0.5, 0.6], "uniform", r"shape \(2,\).*points\[:, None\]"),
        (0.5, "uniform", r"shape \(\)"),
        (np.empty((0, 2)), "uniform", r"shape \(0, 2\)"),
        ([["a"]], "uniform", "array of numbers"),
        ([[0.1], [0.2, 0.3]], "uniform", "array of numbers"),
        ([[0.5]], "unifrom", "Did you mean 'uniform'"),
    ],
)
def test_unusable_points_are_refused(points, space, message):
    with pytest.raises(InputError, match=message):
        Given(points, space)


def test_too_few_points_sets_or_coordinates():
    sequence = Given(np.full((2, 3, 1), 0.5))
    with pytest.raises(InputError, match="4 points a set; expected at most 3"):
        sequence.uniforms(STREAM, 1, (0, 2), (0, 4))
    with pytest.raises(InputError, match="got 2 sets; expected at least 3"):
        sequence.uniforms(STREAM, 1, (0, 3), (0, 3))
    with pytest.raises(InputError, match="got 1 coordinates; expected 2"):
        sequence.uniforms(STREAM, 2, (0, 2), (0, 3))
