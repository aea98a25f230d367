"""Random streams: reproducible, splittable, with random access."""

from __future__ import annotations

import operator
import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nestquad._checks import generator
from nestquad._typing import Array, RNGLike
from nestquad.errors import InputError

# How far apart runs begin on the circle of 2**128 states: the golden section of it, since states
# that are a power of two apart share their lower bits.
_STRIDE = 0x9E3779B97F4A7C15F39CC0605CEDC835


@dataclass(frozen=True)
class Stream:
    """A name for an infinite supply of random numbers.

    A stream holds no state: asking twice gives the same numbers twice. It is a
    few integers, so a plan that refers to random points can travel to a worker
    instead of the points themselves.

    Parameters
    ----------
    entropy
        Integers in [0, 2**64) that identify the stream. Different tuples give
        independent streams, also for different lengths.

    Examples
    --------
    >>> stream = Stream.from_rng(7)
    >>> stream == Stream.from_rng(7)
    True
    >>> bool(stream.generator().random() == stream.generator().random())
    True
    >>> stream.child(3).child(5) == stream.child(3, 5)
    True
    """

    entropy: tuple[int, ...]

    def __post_init__(self) -> None:
        # Plain integers, so that a stream can be written to JSON wherever its parts came from.
        entropy = tuple(operator.index(number) for number in self.entropy)
        if any(not 0 <= number < 2**64 for number in entropy):
            raise InputError("entropy", repr(entropy), "integers in [0, 2**64)")
        object.__setattr__(self, "entropy", entropy)

    @classmethod
    def from_rng(cls, rng: RNGLike = None) -> Stream:
        """Stream from anything that `numpy.random.default_rng` takes.

        An integer (or SeedSequence) gives the same stream each time, None a new
        one, and a Generator is advanced, so that it gives another one next time.
        """
        if isinstance(rng, Stream):
            return rng
        return cls(tuple(int(n) for n in generator(rng).integers(2**64, size=2, dtype=np.uint64)))

    def child(self, *path: int) -> Stream:
        """Independent stream named by a path of non-negative integers."""
        return Stream(self.entropy + path)

    def generator(self) -> np.random.Generator:
        """Fresh PCG-64 DXSM generator at the beginning of the stream (O'Neill 2014, PCG).

        Notes
        -----
        Cost: about 30 µs.
        """
        # SeedSequence pads with zeros and spells large integers with more words, so that (1,) and
        # (1, 0), or 2**32 and (0, 1), would coincide: hence the length and two words for each.
        words = [len(self.entropy)]
        for number in self.entropy:
            words += [number & 0xFFFFFFFF, number >> 32]
        return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(words)))


class RandomRuns:
    """Random access to the uniforms of a stream.

    The stream is cut into runs of numbers, each long enough never to meet another.
    Any stretch of any run is filled by moving one generator, which is ten times
    cheaper than making a generator for it. One object serves one thread.
    """

    def __init__(self, stream: Stream) -> None:
        self._generator = stream.generator()
        self._start = self._generator.bit_generator.state
        self._position: int | None = 0

    @classmethod
    def of(cls, stream: Stream) -> RandomRuns:
        """The runs of a stream, with the generator that this thread has for it."""
        return _KEPT.runs(stream)

    def fill(self, run: int, offset: int, out: Array) -> None:
        """Write numbers `offset`, `offset` + 1, … of a run into a contiguous array.

        Notes
        -----
        Cost: a jump of about 3 µs, then some 3 ns for each number. Zeros occur.
        """
        target = run * _STRIDE + offset
        # Where the generator is is not known while it moves: Ctrl-C may come in between.
        position, self._position = self._position, None
        if position is None:
            self._generator.bit_generator.state = self._start
            position = 0
        self._generator.bit_generator.advance(  # type: ignore[attr-defined]
            (target - position) % 2**128
        )
        self._generator.random(out=out)
        self._position = target + out.size


class _Kept(threading.local):
    """The generators that a thread used last, since chunks of a grid share theirs."""

    def __init__(self) -> None:
        self.runs = lru_cache(maxsize=8)(RandomRuns)


_KEPT = _Kept()
