"""How many points to evaluate in one go: as many as take a fraction of a second."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace", "task_seconds"]

# A step up or down is at most this factor: the first calls of a function are often slow, and what
# a call costs beyond its points shows only in larger ones. From very short chunks a step may be
# larger, as long as it leads to no more than this part of the target.
_STEP, _PART = 8.0, 0.25
# Of tasks of an executor: what they should take, and what is too little to be worth handing out.
# One client feeds all workers, in milliseconds a task, so both grow with their number.
_TASK, _LEAST = 0.5, 0.05
_TASK_BY_WORKER, _LEAST_BY_WORKER = 0.01, 0.002


def task_seconds(workers: int) -> tuple[float, float]:
    """What a task should take, and at least, for so many workers.

    Examples
    --------
    >>> task_seconds(2), task_seconds(1_000)
    ((0.5, 0.05), (10.0, 2.0))
    """
    return max(_TASK, _TASK_BY_WORKER * workers), max(_LEAST, _LEAST_BY_WORKER * workers)


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
        ratio = self.seconds / max(seconds, 1e-9)
        factor = min(max(ratio, 1.0 / _STEP), max(_STEP, _PART * ratio))
        self.points = min(max(int(size * factor), 1), self.most)
