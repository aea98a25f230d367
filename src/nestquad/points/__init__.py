"""Point sequences in the unit cube.

Every sequence is a pure function of (stream, set, index), so a chunk of points
is described by a few integers and made where it is needed, with the same bits.
To add one: a file here with a `Sequence`, its name in `as_sequence`, a test.
"""

from __future__ import annotations

from nestquad.points._given import Given
from nestquad.points._halton import Halton
from nestquad.points._iid import IID
from nestquad.points._lattice import Lattice, lattice_vector
from nestquad.points._names import as_sequence
from nestquad.points._periodic import (
    PERIODIZATIONS,
    PeriodicLattice,
    Periodization,
    density,
    moved,
    periodic,
)
from nestquad.points._sequence import Sequence
from nestquad.points._sobol import Sobol
from nestquad.points._stream import Stream

__all__ = [
    "IID",
    "PERIODIZATIONS",
    "Given",
    "Halton",
    "Lattice",
    "PeriodicLattice",
    "Periodization",
    "Sequence",
    "Sobol",
    "Stream",
    "as_sequence",
    "density",
    "lattice_vector",
    "moved",
    "periodic",
]
