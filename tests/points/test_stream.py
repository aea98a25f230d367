"""Streams: reproducible, splittable, never overlapping by accident of spelling."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest

from nestquad.errors import InputError
from nestquad.points import Stream


def first_numbers(stream: Stream, n: int = 8) -> tuple[float, ...]:
    return tuple(stream.generator().random(n))


@pytest.mark.parametrize(
    "rng", [0, 12345678901234567890, [1, 2, 3], np.random.SeedSequence(5)], ids=str
)
def test_a_seed_gives_the_same_stream_each_time(rng):
    assert Stream.from_rng(rng) == Stream.from_rng(rng)


def test_a_generator_is_advanced():
    rng = np.random.default_rng(0)
    streams = {Stream.from_rng(rng) for _ in range(5)}
    assert len(streams) == 5
    assert Stream.from_rng(np.random.default_rng(0)) in streams


def test_none_gives_a_new_stream():
    assert Stream.from_rng() != Stream.from_rng(None)


def test_a_stream_passes_through():
    stream = Stream.from_rng(3)
    assert Stream.from_rng(stream) is stream


@pytest.mark.parametrize("rng", ["seed", -1, 1.5, object()])
def test_what_is_not_a_seed_is_refused(rng):
    with pytest.raises(InputError, match="rng: got"):
        Stream.from_rng(rng)


@pytest.mark.parametrize("entropy", [(-1,), (2**64,)])
def test_entropy_out_of_range_is_refused(entropy):
    with pytest.raises(InputError, match="entropy"):
        Stream(entropy)


def test_children_compose_and_differ():
    root = Stream.from_rng(1)
    assert root.child(1).child(2) == root.child(1, 2)
    paths = [p for n in range(4) for p in itertools.product(range(4), repeat=n)]
    assert len({first_numbers(root.child(*path)) for path in paths}) == len(paths)


def test_spelling_cannot_make_streams_coincide():
    # A plain SeedSequence of these integers would confuse several of them.
    entropies = [(1,), (1, 0), (1, 0, 0), (2**32,), (0, 1), (0, 0, 1), (2**32 + 1,), (1, 1), ()]
    assert len({first_numbers(Stream(e)) for e in entropies}) == len(entropies)


def test_numpy_integers_become_plain_ones():
    stream = Stream.from_rng(0).child(np.int64(3))
    assert stream == Stream.from_rng(0).child(3)
    json.dumps(stream.entropy)


def test_a_stream_survives_pickling_and_is_hashable():
    stream = Stream.from_rng(4).child(7)
    copy = pickle.loads(pickle.dumps(stream))
    assert copy == stream
    assert hash(copy) == hash(stream)
    assert first_numbers(copy) == first_numbers(stream)


def test_streams_are_uncorrelated():
    n = 4000
    root = Stream.from_rng(9)
    numbers = np.stack([root.child(i).generator().random(n) for i in range(20)])
    correlations = np.corrcoef(numbers)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(n)
