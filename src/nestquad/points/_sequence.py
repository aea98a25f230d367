"""Point sequences: their base class, random shifts of sets, and independent points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.points._stream import RandomRuns, Stream


class Sequence(ABC):
    """A rule that places points in the open unit cube.

    Points come in sets (one for each θ, say), and a set is an infinite sequence
    of which the first N are used. Point `index` of set `set` is a pure function
    of (stream, set, index): it does not matter in which chunk it is made, nor by
    which worker. Sets of one stream are independent given the scramble or generating
    vector that they share.

    Sequences are immutable, comparable and hashable.
    """

    name: ClassVar[str]

    @property
    def space(self) -> str:
        """Where the points live: "uniform" (the unit cube) or "native" (the law's own space)."""
        return "uniform"

    @property
    def max_points(self) -> int | None:
        """How many points a set has at most; None where there is no limit."""
        return None

    def uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        """Points strictly inside (0, 1), a new array that the caller may change.

        `sets` (a, b) and `indices` (i, j) are half-open ranges, which give (b - a, j - i, dim).

        Examples
        --------
        >>> from nestquad.points import Sobol
        >>> stream = Stream.from_rng(0)
        >>> whole = Sobol().uniforms(stream, dim=2, sets=(0, 3), indices=(0, 8))
        >>> part = Sobol().uniforms(stream, dim=2, sets=(1, 2), indices=(4, 8))
        >>> bool((whole[1:2, 4:8] == part).all())
        True
        """
        if dim < 1:
            raise InputError("dim", str(dim), "at least one coordinate")
        for argument, (first, last) in (("sets", sets), ("indices", indices)):
            if not 0 <= first <= last:
                raise InputError(
                    argument, f"({first}, {last})", "a half-open range (a, b) with 0 <= a <= b"
                )
        if self.max_points is not None and indices[1] > self.max_points:
            raise InputError(
                "indices",
                f"a request for {indices[1]} points a set",
                f"at most {self.max_points}, all that {self.name!r} points have here",
                self._more_points,
            )
        return self._uniforms(stream, dim, sets, indices)

    @abstractmethod
    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        """`uniforms` with arguments that are known to be valid."""

    # Advice when there are too few points.
    _more_points: ClassVar[str] = ""


# Replaces a zero. Random doubles are multiples of 2**-53, so this is the middle of the first cell.
SMALLEST = 2.0**-54

_CACHED = 1 << 15  # numbers that stay in the fast cache between two passes over them


def set_shifts(stream: Stream, dim: int, sets: tuple[int, int]) -> Array:
    """One uniform in [0, 1) for each set (a ≤ s < b) and coordinate, (b - a, dim)."""
    a, b = sets
    shifts = np.empty((b - a, dim))
    RandomRuns.of(stream).fill(0, a * dim, shifts)
    return shifts


def blocks(n_sets: int, numbers_per_set: int) -> list[slice]:
    """Cut sets into slices small enough for the cache, where several passes follow."""
    step = max(1, _CACHED // max(1, numbers_per_set))
    return [slice(i, min(i + step, n_sets)) for i in range(0, n_sets, step)]


def shifted_modulo_one(points: Array, shifts: Array) -> Array:
    """Points (N, d) shifted by each of (S, d), wrapped into the open unit cube: (S, N, d)."""
    out = np.empty((len(shifts), *points.shape))
    for block in blocks(len(shifts), points.size):
        part = out[block]
        np.add(points, shifts[block, None], out=part)
        part -= part >= 1.0  # exact, unlike a remainder
        np.maximum(part, SMALLEST, out=part)
    return out


# Points [first, stop) of `together` neighbouring sets share a run of random numbers and its jump:
# Monte Carlo asks for many sets of a few points, an outer stage for one long set.
_TILES = ((0, 64, 64), (64, 512, 16), (512, 4096, 4), (4096, None, 1))


@dataclass(frozen=True)
class IID(Sequence):
    """Independent uniform points: Monte Carlo.

    Notes
    -----
    Cost: about 5 ns for each number and 5 µs for each jump, of which there is one
    for 64 sets (their first 64 points), for 16 (up to 512), for 4 (up to 4096)
    and for each set (later points). Numbers of the other sets of a tile are
    thrown away, so a single set of a few points costs more.

    Examples
    --------
    >>> IID().uniforms(Stream.from_rng(0), dim=2, sets=(0, 5), indices=(0, 10)).shape
    (5, 10, 2)
    """

    name: ClassVar[str] = "iid"

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        (a, b), (start, stop) = sets, indices
        out = np.empty((b - a, stop - start, dim))
        if out.size == 0:
            return out
        runs = RandomRuns.of(stream)
        for level, (first, end, together) in enumerate(_TILES):
            lo, hi = max(start, first), stop if end is None else min(stop, end)
            if lo >= hi:
                continue
            for group in range(a // together, (b - 1) // together + 1):
                base = group * together
                first_set, last = max(a, base), min(b, base + together)
                tile = np.empty((hi - lo, together, dim))
                runs.fill(len(_TILES) * group + level, (lo - first) * together * dim, tile)
                here = tile[:, first_set - base : last - base].swapaxes(0, 1)
                out[first_set - a : last - a, lo - start : hi - start] = here
        return np.maximum(out, SMALLEST, out=out)
