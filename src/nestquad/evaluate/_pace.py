"""How many points to evaluate in one go: as many as take a fraction of a second."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace"]

# A step up or down is at most this factor: the first calls of a function are often slow, and what
# a call costs beyond its points shows only in larger ones.
_STEP = 8.0


@dataclass
class Pace:
    """Learns a chunk size from what chunks took.

    Small chunks lose time on calls, on tasks and on files; large ones let workers wait for the
    last, lose much when a process dies, and react late to Ctrl-C. What g costs is known only once
    it has run, so the size starts small. It has no influence on the answer.

    Parameters
    ----------
    points
        The size to start with.
    most
        The largest size.
    seconds
        What a chunk should take.

    Examples
    --------
    >>> pace = Pace(points=16, most=65_536, seconds=0.25)
    >>> pace.observe(16, 0.32)  # 20 ms a point
    >>> pace.points
    12
    """

    points: int
    most: int
    seconds: float
    per_point: float = 0.0

    def observe(self, size: int, seconds: float) -> None:
        """A chunk of this size took so long."""
        self.per_point = seconds / size
        if 2 * size < self.points and seconds < self.seconds:
            return  # what was left at the end of a row says nothing about larger chunks
        factor = min(max(self.seconds / max(seconds, 1e-9), 1.0 / _STEP), _STEP)
        self.points = min(max(int(size * factor), 1), self.most)
