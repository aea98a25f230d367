"""Forecast: evaluations and seconds that a tolerance takes, revised as a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from nestquad import clock
from nestquad._typing import Array


@dataclass(frozen=True)
class Forecast:
    """Evaluations and seconds that a tolerance is expected to take.

    Attributes
    ----------
    n_evaluations, seconds
        Expected for the whole run; between `low` and `high` evaluations.
    low, high
        Evaluations if errors go on to fall as they did, and if they fall like 1/√n.
    spent
        Evaluations behind the forecast.
    reached
        Largest half-width over the tolerance so far.
    notes
        Remarks on the run so far.
    """

    n_evaluations: int
    seconds: float
    low: int
    high: int
    spent: int
    reached: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.reached <= 1.0:
            return f"the tolerance is met after {self.n_evaluations:,} evaluations"
        return (
            f"about {self.n_evaluations:,} evaluations ({self.low:,} … {self.high:,}) and "
            f"{self.seconds:.2g} s; after {self.spent:,} evaluations the widest interval is "
            f"{self.reached:.3g} times the tolerance"
        )


@dataclass
class Outlook:
    """Turns of a run towards a tolerance, each with its evaluations and widths of intervals."""

    tol: float
    rtol: float
    started: float = field(default_factory=clock.now)
    turns: list[tuple[int, float, float]] = field(default_factory=list)

    def add(self, n_evaluations: int, value: Array, half_width: Array) -> None:
        target = np.maximum(self.tol, self.rtol * np.abs(value))
        ratio = float(np.max(half_width / np.maximum(target, 1e-300)))
        if np.isfinite(ratio):
            self.turns.append((n_evaluations, ratio, clock.now() - self.started))

    def forecast(self, notes: tuple[str, ...] = ()) -> Forecast | None:
        """None before the first interval.

        Errors fall like n^−r. Independent draws have r = 1/2, learning more; r is that of all turns
        so far, between 1/2 and 1, and the forecast is the geometric mean of both.
        """
        if not self.turns:
            return None
        (first, before, _), (n, ratio, seconds) = self.turns[0], self.turns[-1]
        rate = 0.5
        if n > first and 0 < ratio < before:
            rate = float(np.clip(np.log(before / ratio) / np.log(n / first), 0.5, 1.0))
        low, high = (int(n * max(ratio, 1.0) ** (1.0 / r)) for r in (rate, 0.5))
        middle = int(np.sqrt(float(low) * float(high)))
        return Forecast(middle, seconds * middle / n, low, high, n, ratio, notes)

    def watched(self, show: Callable[[int, int, str], None]) -> Callable[[int, int, str], None]:
        """Progress with the forecast in its message."""

        def shown(done: int, total: int, message: str) -> None:
            found = self.forecast()
            if found is None or found.reached <= 1.0:
                show(done, total, message)
                return
            text = f"about {found.n_evaluations:,} evaluations, {found.seconds:.0f} s in all"
            show(done, max(total, found.n_evaluations), f"{message}; {text}")

        return shown
