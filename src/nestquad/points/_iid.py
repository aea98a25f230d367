"""Independent uniform points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nestquad._typing import Array
from nestquad.points._sequence import Sequence
from nestquad.points._shift import SMALLEST
from nestquad.points._stream import RandomRuns, Stream

__all__ = ["IID"]

# Multilevel and plain Monte Carlo ask for very many sets of a few points, an outer stage for one
# set of very many. So the first _HEAD points of _GROUP neighbouring sets share one run, point by
# point, and a jump serves them all; the later points of a set have a run of their own.
_HEAD = 64
_GROUP = 64


@dataclass(frozen=True)
class IID(Sequence):
    """Independent uniform points: Monte Carlo.

    Notes
    -----
    Cost: O(1) for each number, plus a few µs for 64 sets (first 64 points) and
    for each set (later points). At most 64 times more numbers than needed are
    drawn for a single set, and for its first 64 points only.

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
        runs = RandomRuns(stream)
        head = max(min(stop, _HEAD) - start, 0)  # how many of the points asked for are early ones
        if head:
            for group in range(a // _GROUP, (b - 1) // _GROUP + 1):
                base = group * _GROUP
                lo, hi = max(a, base), min(b, base + _GROUP)
                block = np.empty((head, _GROUP, dim))
                runs.fill(2 * group, start * _GROUP * dim, block)
                out[lo - a : hi - a, :head] = block[:, lo - base : hi - base].swapaxes(0, 1)
        if start + head < stop:
            for s in range(a, b):
                runs.fill(2 * s + 1, (start + head - _HEAD) * dim, out[s - a, head:])
        return np.maximum(out, SMALLEST, out=out)
