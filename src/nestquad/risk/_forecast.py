"""Forecast: evaluations and seconds that a tolerance takes, from the turns of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad.risk._report import RiskReport


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

    @classmethod
    def of(cls, report: RiskReport, tol: float, rtol: float) -> Forecast | None:
        """From the turns of a run; None before the first interval.

        Errors fall like n^−r. Independent draws have r = 1/2, learning more; r is that of all turns
        so far, between 1/2 and 1, and the forecast is the geometric mean of both.
        """
        turns = []
        for step in report.estimate.trace:
            target = np.maximum(np.maximum(tol, rtol * np.abs(step.value)), 1e-300)
            turns.append((step.n_evaluations, float(np.max(step.half_width / target))))
        turns = [(n, ratio) for n, ratio in turns if np.isfinite(ratio)]
        if not turns:
            return None
        (first, before), (n, ratio) = turns[0], turns[-1]
        rate = 0.5
        if n > first and 0 < ratio < before:
            rate = float(np.clip(np.log(before / ratio) / np.log(n / first), 0.5, 1.0))
        low, high = (int(n * max(ratio, 1.0) ** (1.0 / r)) for r in (rate, 0.5))
        middle = int(np.sqrt(float(low) * float(high)))
        return cls(middle, report.seconds * middle / n, low, high, n, ratio, report.notes)
