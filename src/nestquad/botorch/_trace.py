"""What an optimisation did: points, values, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError, MissingExtraError, unknown_name
from nestquad.plots import SOFT, End, axes_or_new, label_ends, series_styles, title

__all__ = ["Trace"]


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
        What went differently than it should have: fits that failed and the like.

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

    def to_frame(self) -> Any:
        """A row for each evaluation, as a pandas DataFrame; needs the extra ``frames``."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtraError("Trace.to_frame", "frames") from error
        points = {f"x_{k + 1}": column for k, column in enumerate(self.X.T)}
        times = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds}
        return pd.DataFrame(
            {"iteration": self.iteration, **points, "y": self.Y, "best": self.best, **times}
        )

    def plot(self, ax: Any = None, *, against: str = "evaluations") -> Any:
        """Draw all values and the best so far; needs the extra ``plot``.

        Parameters
        ----------
        ax
            Axes to draw on; None makes a figure with pyplot.
        against
            ``"evaluations"``, ``"iteration"`` or ``"seconds"``.

        Returns
        -------
        The axes.
        """
        places = {
            "evaluations": (np.arange(1, len(self) + 1), "evaluations"),
            "iteration": (self.iteration, "iteration"),
            "seconds": (self.seconds, "seconds"),
        }
        if against not in places:
            raise unknown_name("against", against, places)
        x, words = places[against]
        ax = axes_or_new(ax)
        look = series_styles(1)[0]
        ax.plot(x, self.Y, "o", color=SOFT, markersize=3.5, markerfacecolor="none")
        ax.plot(x, self.best, color=look.color, linewidth=1.6, drawstyle="steps-post")
        if len(self):
            label_ends(ax, [End(float(self.best[-1]), "best so far", look.color)])
            title(ax, "", f"best {self.best[-1]:.6g} after {len(self)} evaluations")
        if against != "seconds":
            ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel(words)
        ax.set_ylabel("objective")
        return ax
