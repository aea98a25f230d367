"""Random shifts and the border of the cube."""

from __future__ import annotations

import numpy as np

from nestquad.points import Stream
from nestquad.points._sequence import set_shifts, shifted_modulo_one


def test_what_would_be_zero_or_one_is_inside():
    below_one = 1.0 - 2.0**-53
    points = np.array([[0.0], [0.5], [2.0**-53], [below_one]])
    shifts = np.array([[0.0], [0.5], [2.0**-53], [below_one]])
    out = shifted_modulo_one(points, shifts)
    assert out.min() > 0.0
    assert out.max() < 1.0
    np.testing.assert_allclose(
        np.cos(2 * np.pi * out), np.cos(2 * np.pi * (points + shifts[:, None]))
    )


def test_shifts_do_not_depend_on_the_range():
    stream = Stream.from_rng(0)
    whole = set_shifts(stream, 3, (0, 100))
    np.testing.assert_array_equal(set_shifts(stream, 3, (17, 42)), whole[17:42])
    assert len(np.unique(whole)) == whole.size
