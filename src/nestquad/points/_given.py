"""Points given by the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nestquad._checks import choice
from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError
from nestquad.points._sequence import Sequence
from nestquad.points._stream import Stream


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Given(Sequence):
    """Points of the user's own, used in the order in which they come.

    Parameters
    ----------
    points
        One set shared by all, or one for each set. Copied.
    space
        "uniform": points of the open unit cube, transported by the law.
        "native": points of the law itself, used as they are.

    Notes
    -----
    Shapes: (N, d) or (S, N, d).

    Examples
    --------
    >>> midpoints = Given([[0.25], [0.75]])
    >>> midpoints.uniforms(Stream.from_rng(0), dim=1, sets=(0, 3), indices=(0, 2)).shape
    (3, 2, 1)
    """

    points: Array
    space: str = "uniform"

    name: ClassVar[str] = "given"
    _more_points: ClassVar[str] = "Give more points, or ask for fewer."

    def __init__(self, points: ArrayLike, space: str = "uniform") -> None:
        choice("space", space, ("uniform", "native"))
        object.__setattr__(self, "points", _checked(points, space))
        object.__setattr__(self, "space", space)

    @property
    def max_points(self) -> int:
        return int(self.points.shape[-2])

    @property
    def max_sets(self) -> int | None:
        """How many sets there are; None where all share the points."""
        return None if self.points.ndim == 2 else len(self.points)

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        if dim != self.points.shape[-1]:
            raise InputError(
                "points",
                f"{self.points.shape[-1]} coordinates",
                f"{dim}, the number of variables that drive the law",
            )
        if self.max_sets is not None and sets[1] > self.max_sets:
            raise InputError(
                "points",
                f"{self.max_sets} sets",
                f"at least {sets[1]}, one for each set asked for",
                "Points of shape (N, d) are shared by all sets.",
            )
        (a, b), (start, stop) = sets, indices
        if self.points.ndim == 2:
            return np.repeat(self.points[None, start:stop], b - a, axis=0)
        return self.points[a:b, start:stop].copy()

    def __repr__(self) -> str:
        return f"Given(<points of shape {self.points.shape}>, space={self.space!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Given):
            return NotImplemented
        return self.space == other.space and np.array_equal(self.points, other.points)

    def __hash__(self) -> int:
        # Adding 0 turns -0.0, which equals 0.0, into the same bytes.
        return hash((self.space, self.points.shape, (self.points + 0.0).tobytes()))


def _checked(points: ArrayLike, space: str) -> Array:
    try:
        array = np.array(points, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            "points", f"a {type(points).__name__}", "an array of numbers, (N, d) or (S, N, d)"
        ) from error
    if array.ndim not in (2, 3) or array.size == 0:
        raise InputError(
            "points",
            f"an array of shape {array.shape}",
            "shape (N, d), shared by all sets, or (S, N, d)",
            "Write points[:, None] for a single coordinate." if array.ndim == 1 else "",
        )
    usable = (array > 0.0) & (array < 1.0) if space == "uniform" else np.isfinite(array)
    if not usable.all():
        row = tuple(int(i) for i in np.argwhere(~usable)[0][:-1])
        where = f"row {row[-1]}" if len(row) == 1 else f"row {row[1]} of set {row[0]}"
        inside = space == "uniform"
        raise InputError(
            "points",
            f"{array[row].tolist()} in {where}",
            "numbers strictly between 0 and 1" if inside else "finite numbers",
            'Use space="native" for points of the law itself.' if inside else "",
        )
    array.flags.writeable = False
    return array
