"""A progress line for the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO, TypeAlias

__all__ = ["Progress", "ProgressLike", "as_progress"]


@dataclass
class Progress:
    """Rewrites one line: how far, how fast, how long to go, and the estimate so far."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    interval: float = 0.1
    unit: str = "evaluations"
    _started: float = field(default_factory=time.perf_counter)
    _written: float = 0.0
    _width: int = 0

    def __call__(self, done: int, total: int, message: str) -> None:
        now = time.perf_counter()
        if now - self._written < self.interval and done < total:
            return
        self._written = now
        elapsed = now - self._started
        rate = done / elapsed if elapsed > 0 else 0.0
        share = min(done / total, 1.0) if total else 1.0
        bar = "█" * round(20 * share) + "·" * (20 - round(20 * share))
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        self._write(f"{bar} {done:,}/{total:,} {self.unit}, {rate:,.0f}/s{left} {message}")

    def close(self) -> None:
        """Clear the line: what follows is the answer."""
        self._write("")
        self.stream.write("\r")
        self.stream.flush()

    def _write(self, line: str) -> None:
        self.stream.write("\r" + line.ljust(self._width))
        self.stream.flush()
        self._width = len(line)


ProgressLike: TypeAlias = bool | Callable[[int, int, str], None]


def as_progress(
    progress: ProgressLike, unit: str = "evaluations"
) -> Callable[[int, int, str], None]:
    """True: a terminal line; a callable (done, total, message): itself; False: nothing."""
    if callable(progress):
        return progress
    return Progress(unit=unit) if progress else lambda done, total, message: None
