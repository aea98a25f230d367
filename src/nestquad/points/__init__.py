"""Point sequences in the unit cube.

Every sequence is a pure function of (stream, set, index), so a chunk of points
is described by a few integers and made where it is needed, with the same bits.
To add one: a class here with a `Sequence` base, its name in `as_sequence`, a test.
"""

from __future__ import annotations

from nestquad._checks import choice
from nestquad.errors import InputError
from nestquad.points._lattice import PERIODIZATIONS as PERIODIZATIONS
from nestquad.points._lattice import Lattice as Lattice
from nestquad.points._lattice import PeriodicLattice as PeriodicLattice
from nestquad.points._lattice import Periodization as Periodization
from nestquad.points._lattice import density as density
from nestquad.points._lattice import lattice_vector as lattice_vector
from nestquad.points._lattice import moved as moved
from nestquad.points._lattice import periodic as periodic
from nestquad.points._lattice import reversed_bits as reversed_bits
from nestquad.points._sequence import IID as IID
from nestquad.points._sequence import Given as Given
from nestquad.points._sequence import Sequence as Sequence
from nestquad.points._sequence import Sobol as Sobol
from nestquad.points._sequence import Stream as Stream

_NAMED: dict[str, type[Sequence]] = {cls.name: cls for cls in (IID, Sobol, Lattice)}


def as_sequence(points: str | Sequence, *, argument: str = "points") -> Sequence:
    """Sequence from its name ("iid", "sobol", "lattice", in any case) or itself.

    Errors call it `argument`.

    Examples
    --------
    >>> as_sequence("sobol")
    Sobol()
    """
    if isinstance(points, Sequence):
        return points
    if isinstance(points, str):
        choice(argument, points.lower(), _NAMED)
        return _NAMED[points.lower()]()
    advice = "Wrap an array of points in Given(points)."
    if isinstance(points, type) and issubclass(points, Sequence):
        advice = f"Write {points.__name__}(…) with parentheses."
    raise InputError(
        argument,
        f"a {type(points).__name__}",
        f"a point sequence or one of {', '.join(map(repr, sorted(_NAMED)))}",
        advice,
    )
