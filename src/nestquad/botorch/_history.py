"""Evaluating the black box, and keeping every value from the moment it is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.botorch._trace import Trace
from nestquad.errors import EvaluationError

__all__ = ["History"]

_RETURN = {
    False: "It is given one point (d,) and returns one number; vectorized=True gives it (q, d).",
    True: "With vectorized=True it is given points (q, d) and returns values (q,).",
}
_FINITE = (
    "Return a low but finite value where there is nothing to gain, or keep such points out of the "
    "bounds. What was done before is in this error's .trace, and initial=error.trace goes on."
)


@dataclass
class History:
    """What was evaluated so far, when, and what there is to say about it."""

    objective: Callable[[Array], Any]
    vectorized: bool
    known: Trace

    def __post_init__(self) -> None:
        known = self.known
        self.dim = known.X.shape[1]
        self.x: list[Array] = list(known.X)
        self.y: list[float] = known.Y.tolist()
        self.notes: list[str] = list(known.notes)
        self._iterations: list[int] = known.iteration.tolist()
        self._wall: list[float] = known.seconds.tolist()
        self._cpu: list[float] = known.cpu_seconds.tolist()
        # A run that goes on from another counts its time too.
        self._wall_start = time.perf_counter() - max(self._wall, default=0.0)
        self._cpu_start = time.process_time() - max(self._cpu, default=0.0)

    @property
    def count(self) -> int:
        return len(self.y)

    @property
    def iteration(self) -> int:
        """The last one that was begun; 0 is the initial design."""
        return max(self._iterations, default=0)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._wall_start

    def evaluate(self, points: Array, iteration: int) -> None:
        """Call the objective at points (n, d)."""
        for block in [points] if self.vectorized else points[:, None]:
            values = self._call(block)
            n = len(values)
            self.x.extend(block)
            self.y.extend(values.tolist())
            self._iterations.extend([iteration] * n)
            self._wall.extend([self.seconds] * n)
            self._cpu.extend([time.process_time() - self._cpu_start] * n)

    def _call(self, block: Array) -> Array:
        """Values (n,) at points (n, d), which are one where the objective takes one at a time."""
        try:
            # A copy: an objective that changes its argument must not change what is recorded.
            given = self.objective(block.copy() if self.vectorized else block[0].copy())
        except Exception as error:
            what = f"objective raised {type(error).__name__}: {error}"
            raise self._failure(what, block, "") from error
        try:
            values = np.asarray(given, dtype=float)
        except (TypeError, ValueError) as error:
            what = f"objective returned {type(given).__name__}, which is not a number"
            raise self._failure(what, block, _RETURN[self.vectorized]) from error
        n = len(block)
        # A trailing axis of one output is common where people come from BoTorch.
        allowed = [(n,), (n, 1)] if self.vectorized else [(), (1,), (1, 1)]
        if values.shape not in allowed:
            what = f"objective returned an array of shape {values.shape}"
            raise self._failure(what, block, _RETURN[self.vectorized])
        values = values.reshape(n)
        if not np.isfinite(values).all():
            bad = int(np.flatnonzero(~np.isfinite(values))[0])
            raise self._failure(f"objective returned {values[bad]}", block[bad : bad + 1], _FINITE)
        return values

    def _failure(self, what: str, block: Array, advice: str) -> EvaluationError:
        x = block[0] if len(block) == 1 else block
        error = EvaluationError(what, x=x, n_completed=self.count, advice=advice)
        error.trace = self.trace("failed")
        return error

    def trace(self, status: str) -> Trace:
        """All of it, frozen."""
        return Trace(
            np.array(self.x, dtype=float).reshape(self.count, self.dim),
            np.array(self.y, dtype=float),
            np.array(self._iterations, dtype=np.int64),
            np.array(self._wall, dtype=float),
            np.array(self._cpu, dtype=float),
            status,
            tuple(self.notes),
        )
