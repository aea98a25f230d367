"""Extensible rank-1 lattices with a random shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.points._cbc import MAX_LOG2_SIZE, lattice_vector
from nestquad.points._sequence import Sequence
from nestquad.points._shift import set_shifts, shifted_modulo_one
from nestquad.points._stream import Stream

__all__ = ["Lattice"]


@dataclass(frozen=True)
class Lattice(Sequence):
    """Rank-1 lattice points in van der Corput order, with a random shift for each set.

    The first 2**m points of a set are a shifted lattice for every m up to
    `log2_max`, with a generating vector made to be good at all of these sizes
    (see `lattice_vector`). All sets share the vector.

    Parameters
    ----------
    log2_max
        Base-2 logarithm of the largest number of points. Another value gives
        other points, as the vector is made for it.
    weights
        Importance of each coordinate, at least as many as there are
        coordinates; all the same when None.

    Notes
    -----
    Cost: O(1) for each number; the vector is made once in a process.

    Examples
    --------
    >>> import numpy as np
    >>> points = Lattice().uniforms(Stream.from_rng(0), dim=2, sets=(0, 1), indices=(0, 4))
    >>> np.diff(np.sort(points[0], axis=0), axis=0)  # quarters in each coordinate
    array([[0.25, 0.25], [0.25, 0.25], [0.25, 0.25]])
    """

    log2_max: int = 16
    weights: tuple[float, ...] | None = None

    name: ClassVar[str] = "lattice"
    _more_points: ClassVar[str] = "Raise log2_max, as in Lattice(log2_max=20), or use more sets."

    def __post_init__(self) -> None:
        if not 0 <= self.log2_max <= MAX_LOG2_SIZE:
            raise InputError(
                "log2_max", str(self.log2_max), f"an integer from 0 to {MAX_LOG2_SIZE}"
            )
        if self.weights is not None:  # a list would make the dataclass unhashable
            object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))

    @property
    def max_points(self) -> int:
        return 1 << self.log2_max

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        vector = lattice_vector(dim, self.log2_max, self.weights)
        multiples = _reversed_bits(np.arange(*indices, dtype=np.int64), self.log2_max)
        residues = multiples[:, None] * vector & (self.max_points - 1)
        return shifted_modulo_one(residues / self.max_points, set_shifts(stream, dim, sets))


def _reversed_bits(index: NDArray[np.int64], n_bits: int) -> NDArray[np.int64]:
    """Mirror the `n_bits` binary digits, so that prefixes of 2**k are evenly spread."""
    mirrored = np.zeros_like(index)
    for bit in range(n_bits):
        mirrored |= (index >> bit & 1) << (n_bits - 1 - bit)
    return mirrored
