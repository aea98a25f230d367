"""Progress bars in the terminal and in notebooks, with a running estimate.

Written here instead of taken from tqdm, since it has to work with numpy and scipy alone.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeAlias

import numpy as np

from nestquad import clock
from nestquad._checks import choice
from nestquad._typing import Array
from nestquad.errors import EvaluationError, NestquadError
from nestquad.evaluate import Grid
from nestquad.problem import NestedExpectation
from nestquad.result import summary

ProgressLike: TypeAlias = bool | Callable[[int, int, str], None]

# Groups of θ behind the running estimate, and seconds between two of them.
_GROUPS = 16
_RUNNING_SECONDS = 0.5


@dataclass
class Progress:
    """One line in the terminal: share done, rate, time left, and the estimate so far."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    interval: float = 0.1
    unit: str = "evaluations"
    _started: float = field(default_factory=clock.now)
    _written: float = 0.0
    _width: int = 0

    def __call__(self, done: int, total: int, message: str) -> None:
        now = clock.now()
        if now - self._written < self.interval and done < total:
            return
        self._written = now
        self.show(done, total, described(done, total, now - self._started, self.unit), message)

    def show(self, done: int, total: int, text: str, message: str) -> None:
        share = min(done / total, 1.0) if total else 1.0
        bar = "█" * round(20 * share) + "·" * (20 - round(20 * share))
        self._write(f"{bar} {text} {message}")

    def close(self) -> None:
        """Clear the line before the answer is printed."""
        self._write("")
        self.stream.write("\r")
        self.stream.flush()

    def _write(self, line: str) -> None:
        self.stream.write("\r" + line.ljust(self._width))
        self.stream.flush()
        self._width = len(line)


@dataclass
class NotebookProgress(Progress):
    """Progress as an element of a notebook, removed at the end."""

    interval: float = 0.25
    display: Any = None

    def show(self, done: int, total: int, text: str, message: str) -> None:
        from IPython.display import HTML, display

        content = HTML(
            f"<progress value='{min(done, total)}' max='{max(total, 1)}' style='width:16em'>"
            "</progress> "
            f"<code>{html.escape(f'{text} {message}')}</code>"
        )
        if self.display is None:
            self.display = display(content, display_id=True)
        else:
            self.display.update(content)

    def close(self) -> None:
        from IPython.display import HTML

        if self.display is not None:
            self.display.update(HTML(""))


def described(done: int, total: int, seconds: float, unit: str = "evaluations") -> str:
    """How much is done, rate and time left.

    Examples
    --------
    >>> described(1_000, 61_000, 2.0)
    '1,000/61,000 evaluations, 500/s, 2 min left'
    """
    rate = done / seconds if seconds > 0 else 0.0
    left = f", {duration((total - done) / rate)} left" if rate and done < total else ""
    return f"{done:,}/{total:,} {unit}, {rate:,.0f}/s{left}"


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


@dataclass
class _Guarded:
    """The user's function; its errors are marked, to be distinguished from errors of g."""

    function: Callable[[int, int, str], Any]

    def __call__(self, done: int, total: int, message: str) -> None:
        try:
            self.function(done, total, message)
        except NestquadError:
            raise
        except Exception as error:
            raise EvaluationError(
                f"progress raised {type(error).__name__}: {error}",
                advice="It is called with (done, total, message).",
            ) from error


def as_progress(
    progress: ProgressLike, unit: str = "evaluations"
) -> Callable[[int, int, str], None]:
    """Display for True, the callable (done, total, message) itself, or no display for False."""
    if callable(progress):
        return _Guarded(progress)
    choice("progress", progress, (True, False, None))
    if not progress:
        return lambda done, total, message: None
    return NotebookProgress(unit=unit) if _in_notebook() else Progress(unit=unit)


def _in_notebook() -> bool:
    module = sys.modules.get("IPython")  # not imported: then this is no notebook
    shell = None if module is None else module.get_ipython()
    return hasattr(shell, "kernel")  # Jupyter, VS Code and Colab have different shells


@dataclass
class Running:
    """Rough estimate before the first answer.

    The mean of f(J) over the θ that are complete, with an error from groups of them. It serves
    the display alone: the answer has other weights, and an error bar that includes the inner bias.
    """

    problem: NestedExpectation
    message: str = ""
    _next: float = 0.0

    def __call__(self, grid: Grid, rows: list[Array]) -> None:
        now = clock.now()
        if now < self._next or grid.outer_scale != 1.0 or grid.joint:
            return
        n = sum(map(len, rows))
        if n < 2 * _GROUPS:
            return
        self.message = self._summary(np.concatenate([block[:, 0] for block in rows]))
        # However many rows there are, looking at them takes a small part of the time.
        self._next = now + max(_RUNNING_SECONDS, 50.0 * (clock.now() - now))

    def _summary(self, j: Array) -> str:
        try:
            with np.errstate(all="ignore"):
                f = self.problem.apply_f(j)
                groups = np.array([part.mean(axis=0) for part in np.array_split(f, _GROUPS)])
                value = self.problem.finish(f.mean(axis=0))
                # The groups one by one in place of the mean: how much each may change it.
                shifts = f.mean(axis=0) + (groups - groups.mean(axis=0)) / np.sqrt(_GROUPS)
                spread = np.array([self.problem.finish(shift) for shift in shifts]) - value
                error = np.sqrt((spread**2).sum(axis=0) / (_GROUPS - 1))
                return f"≈ {summary(value, error)}" if np.isfinite(error).all() else ""
        except Exception:  # f has not been seen by anyone yet; it is reported where it counts
            return ""
