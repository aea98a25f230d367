"""Independent uniform points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nestquad._typing import Array
from nestquad.points._sequence import SMALLEST, Sequence
from nestquad.points._stream import RandomRuns, Stream

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
    and for each set (later points). What the other sets of a tile were given is
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
                one, last = max(a, base), min(b, base + together)
                tile = np.empty((hi - lo, together, dim))
                runs.fill(len(_TILES) * group + level, (lo - first) * together * dim, tile)
                here = tile[:, one - base : last - base].swapaxes(0, 1)
                out[one - a : last - a, lo - start : hi - start] = here
        return np.maximum(out, SMALLEST, out=out)
