"""Trace of an optimisation: points, values and times, kept from the moment they are known."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nestquad.errors import EvaluationError, InputError

Array: TypeAlias = NDArray[np.float64]

_RETURN = {
    False: "It is given one point (d,) and returns one number; vectorized=True gives it (q, d).",
    True: "With vectorized=True it is given points (q, d) and returns values (q,).",
}
_FINITE = (
    "Return a low but finite value where there is nothing to gain, or keep such points out of the "
    "bounds. What was done before is in this error's .trace, and initial=error.trace goes on."
)


@dataclass(frozen=True, eq=False)
class Trace:
    """Every evaluation of the objective, in order, and what it brought.

    Attributes
    ----------
    X, Y
        Points (n, d) and values (n,).
    iteration
        The iteration of each (n,); 0 is the initial design.
    seconds, cpu_seconds
        Wall-clock and CPU time since the start when its value was known (n,), the objective
        included.
    status
        ``"finished"``, ``"out of time"``, ``"interrupted"`` or ``"failed"``.
    notes
        Deviations from the plan: fits that failed and the like.

    Examples
    --------
    >>> trace = Trace.given([[0.1], [0.7], [0.4]], [1.0, 3.0, 2.0])
    >>> trace.best, trace.best_x
    (array([1., 3., 3.]), array([0.7]))
    """

    X: Array
    Y: Array
    iteration: NDArray[np.int64]
    seconds: Array
    cpu_seconds: Array
    status: str = "finished"
    notes: tuple[str, ...] = ()

    @classmethod
    def given(cls, X: ArrayLike, Y: ArrayLike) -> Trace:
        """Values that are known already, X (n, d) and Y (n,), for `optimize` to go on from."""
        x, y = np.asarray(X, dtype=float), np.asarray(Y, dtype=float)
        if x.ndim != 2 or y.shape != x.shape[:1]:
            raise InputError("X, Y", f"shapes {x.shape} and {y.shape}", "shapes (n, d) and (n,)")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise InputError("X, Y", "a value that is not finite", "finite numbers")
        zeros = np.zeros(len(y))
        return cls(x, y, np.zeros(len(y), dtype=np.int64), zeros, zeros)

    @property
    def best(self) -> Array:
        """The largest value so far, after each evaluation (n,)."""
        best: Array = np.maximum.accumulate(self.Y)
        return best

    @property
    def best_x(self) -> Array:
        """Where the largest value is (d,)."""
        best: Array = self.X[int(np.argmax(self.Y))]
        return best

    def __len__(self) -> int:
        return len(self.Y)

    def __str__(self) -> str:
        if not len(self):
            return f"no evaluations, {self.status}"
        where = np.array2string(self.best_x, precision=4, separator=", ", threshold=10)
        return (
            f"best {self.best[-1]:.6g} at {where}: {len(self)} evaluations in "
            f"{self.iteration[-1]} iterations, {self.seconds[-1]:.1f} s, {self.status}"
        )


@dataclass
class History:
    """Evaluations so far, with times and notes."""

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
        error.trace = self.trace("failed")  # for whoever wants to continue
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
