"""Progress bars of tqdm in the terminal and in notebooks, with a running estimate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nestquad import clock
from nestquad._checks import choice
from nestquad._typing import Array
from nestquad.errors import calling
from nestquad.evaluate import Grid
from nestquad.problem import NestedExpectation
from nestquad.result import summary

ProgressLike: TypeAlias = bool | Callable[[int, int, str], None]


class Progress:
    """One bar of tqdm: share done, rate, time left, and the estimate so far."""

    def __init__(self, unit: str = "evaluations") -> None:
        self._unit = unit
        self._bar: Any = None

    def __call__(self, done: int, total: int, message: str) -> None:
        if self._bar is None:
            with warnings.catch_warnings():  # a notebook without widgets gets a line of text
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm
            self._bar = tqdm(leave=False, unit=f" {self._unit}", dynamic_ncols=True)
        self._bar.total = total
        self._bar.set_postfix_str(message, refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Clear the line before the answer is printed."""
        if self._bar is not None:
            self._bar.close()


def duration(seconds: float) -> str:
    """Seconds as people say them.

    Examples
    --------
    >>> duration(40.2), duration(400.0)
    ('40 s', '7 min')
    """
    for size, name in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def as_progress(
    progress: ProgressLike, unit: str = "evaluations"
) -> Callable[[int, int, str], None]:
    """Display for True, the callable (done, total, message) itself, or no display for False."""
    if callable(progress):

        def show(done: int, total: int, message: str) -> None:
            with calling("progress", advice="It is called with (done, total, message)."):
                progress(done, total, message)

        return show
    choice("progress", progress, (True, False, None))
    if not progress:
        return lambda done, total, message: None
    return Progress(unit)


@dataclass
class Running:
    """Rough estimate before the first answer.

    The mean of f(J) over the θ that are complete, with an error from `groups` of them, updated
    every `seconds`. It serves the display alone: the answer has other weights, and an error bar
    that includes the inner bias.
    """

    problem: NestedExpectation
    message: str = ""
    groups: int = 16
    seconds: float = 0.5
    _next: float = 0.0

    def __call__(self, grid: Grid, rows: list[Array]) -> None:
        now = clock.now()
        if now < self._next or grid.outer_scale != 1.0 or grid.joint:
            return
        n = sum(map(len, rows))
        if n < 2 * self.groups:
            return
        self.message = self._summary(np.concatenate([block[:, 0] for block in rows]))
        # However many rows there are, looking at them takes a small part of the time.
        self._next = now + max(self.seconds, 50.0 * (clock.now() - now))

    def _summary(self, j: Array) -> str:
        try:
            with np.errstate(all="ignore"):
                f = self.problem.apply_f(j)
                groups = np.array([part.mean(axis=0) for part in np.array_split(f, self.groups)])
                value = self.problem.finish(f.mean(axis=0))
                # The groups one by one in place of the mean: how much each may change it.
                shifts = f.mean(axis=0) + (groups - groups.mean(axis=0)) / np.sqrt(self.groups)
                spread = np.array([self.problem.finish(shift) for shift in shifts]) - value
                error = np.sqrt((spread**2).sum(axis=0) / (self.groups - 1))
                return f"≈ {summary(value, error)}" if np.isfinite(error).all() else ""
        except Exception:  # f has not been seen by anyone yet; it is reported where it counts
            return ""
