"""Scrambled Halton points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nestquad._typing import Array
from nestquad.points._sequence import Sequence, set_shifts, shifted_modulo_one
from nestquad.points._stream import Stream

_MAX_POINTS = 1 << 32


@dataclass(frozen=True)
class Halton(Sequence):
    """Halton points with random digit permutations and a random shift for each set.

    Halton (1960), On the efficiency of certain quasi-random sequences of points; permutations as
    in Owen (2017), A randomized Halton algorithm in R.

    Coordinate j stratifies in the j-th prime: any b**k consecutive points from a
    multiple of b**k on are equally spaced, up to rotation. Unlike Sobol' points
    they have no preferred number of points. All sets of a stream share the
    permutations; each has its own uniform shift modulo 1.

    Notes
    -----
    Cost: O(log N) for each point and coordinate of one set, O(1) for further sets.

    Examples
    --------
    >>> import numpy as np
    >>> points = Halton().uniforms(Stream.from_rng(0), dim=2, sets=(0, 1), indices=(0, 9))
    >>> np.diff(np.sort(points[0, :, 1])).round(6)  # ninths in the coordinate of base 3
    array([0.111111, 0.111111, ...])
    """

    name: ClassVar[str] = "halton"
    _more_points: ClassVar[str] = "Use more sets, or iid points."

    @property
    def max_points(self) -> int:
        return _MAX_POINTS

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        generator = stream.child(0).generator()
        index = np.arange(*indices, dtype=np.int64)
        points = np.empty((len(index), dim))
        for coordinate, base in enumerate(_first_primes(dim)):
            points[:, coordinate] = _radical_inverse(index, indices[1], base, generator)
        return shifted_modulo_one(points, set_shifts(stream.child(1), dim, sets))


def _radical_inverse(
    index: NDArray[np.int64], stop: int, base: int, generator: np.random.Generator
) -> Array:
    """Mirror the permuted digits of `index` (all below `stop`) at the radix point."""
    n_digits = 1
    while base**n_digits < _MAX_POINTS:
        n_digits += 1
    permutations = generator.permuted(
        np.tile(np.arange(base, dtype=np.float64), (n_digits, 1)), axis=1
    )
    n_used = 0
    while base**n_used < stop:
        n_used += 1
    # From the last digit to the first; leading zeros are the same for all, hence one number. All
    # digits of the longest index are used, so that the bits do not depend on `stop`.
    tail = 0.0
    for digit in range(n_digits - 1, n_used - 1, -1):
        tail = (tail + float(permutations[digit, 0])) / base
    value = np.full(len(index), tail)
    for digit in range(n_used - 1, -1, -1):
        value += permutations[digit][index // base**digit % base]
        value /= base
    return value


@lru_cache(maxsize=32)
def _first_primes(count: int) -> tuple[int, ...]:
    primes: list[int] = []
    candidate = 2
    while len(primes) < count:
        if all(candidate % p for p in primes if p * p <= candidate):
            primes.append(candidate)
        candidate += 1
    return tuple(primes)
