"""EVPPI of a model by regression on a table of its runs, which all sets share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._progress import ProgressLike
from nestquad.result import NORMAL_95, Estimate
from nestquad.voi.table import evppi

if TYPE_CHECKING:
    import pandas as pd

_PROBE, _PILOT, _DEFAULT, _MOST = 20, 1_000, 10_000, 200_000
# Below this the runs cost less than the regression on them.
_CHEAP_SECONDS = 1.0


@dataclass(frozen=True)
class Goal:
    """What is asked for, as in `nestquad.estimate`."""

    tol: float | None
    rtol: float | None
    budget: int | None
    max_seconds: float | None
    started: float = field(default_factory=time.perf_counter)

    @property
    def ends(self) -> float:
        """When the time is over."""
        return np.inf if self.max_seconds is None else self.started + self.max_seconds

    @property
    def has_tolerance(self) -> bool:
        return self.tol is not None or self.rtol is not None

    @property
    def may_be_cheap(self) -> bool:
        """No budget: runs may be many, and time is what counts."""
        return self.budget is None and (self.has_tolerance or self.max_seconds is not None)

    def left(self, frame: pd.DataFrame) -> float:
        """Half-width over what is asked for, the worst of the rows; 0 without a tolerance."""
        half = _half_width(frame)
        asked = np.zeros(len(half)) if self.tol is None else np.full(len(half), self.tol)
        if self.rtol is not None:
            asked = np.maximum(asked, self.rtol * frame["evppi"].abs())
        if not self.has_tolerance:
            return 0.0
        return float(np.max(half / np.maximum(asked, np.finfo(float).tiny)))


@dataclass(frozen=True)
class Answered:
    """A table of EVPPI, the runs behind it, and how it ended."""

    frame: pd.DataFrame
    n: int
    runs: int
    status: str
    seconds: float
    enough: bool

    def estimate(self, name: str) -> Estimate:
        """The only row as an estimate."""
        row = self.frame.iloc[0]
        said = f"regression on a table of {self.n:,} runs"
        notes = [said, *([f"flags: {row['flags']}"] if row["flags"] else [])]
        return Estimate.from_directions(
            float(row.evppi),
            np.array([[float(_half_width(self.frame).iloc[0]) / NORMAL_95]]),
            n_evaluations=self.runs,
            n_outer=self.n,
            n_inner=1,
            method="table",
            status=self.status,
            seconds=self.seconds,
            diagnostics={"notes": notes, "table": self.frame.to_dict("records")},
            problem=f"{name}, EVPPI of {row.pars}",
        )


def _half_width(frame: pd.DataFrame) -> Any:
    upper = frame["upper"] - frame["evppi"]
    return upper.where(upper > frame["evppi"] - frame["lower"], frame["evppi"] - frame["lower"])


def by_table(
    sample: Callable[[int, Any], Any],
    sets: Mapping[str, tuple[str, ...]],
    goal: Goal,
    seed: int,
    progress: ProgressLike,
    *,
    decided: bool,
) -> tuple[Answered | None, int]:
    """EVPPI of all sets from runs of the model, more of them until the tolerance is met.

    Returns an answer and the runs made for it. Unless it is `decided` that there is no other way,
    the answer is not `enough` where the runs that the tolerance needs are not cheap, and missing
    where even a pilot is not; time without a tolerance is used for a quarter.
    """
    started = time.perf_counter()
    limit = goal.budget or _MOST
    n = min(_DEFAULT if decided and not goal.may_be_cheap else _PILOT, limit)
    ends = goal.ends
    runs = 0
    if not decided:
        # The first call of a law or a model sets things up, and other work disturbs some.
        turns = []
        for _ in range(4):
            turn = time.perf_counter()
            sample(_PROBE, seed)
            turns.append(time.perf_counter() - turn)
            if sum(turns) > _CHEAP_SECONDS:
                break
        runs += _PROBE * len(turns)
        if min(turns) * n / _PROBE > _CHEAP_SECONDS:
            return None, runs
        if not goal.has_tolerance:
            ends = started + (goal.ends - started) / 4
    while True:
        turn = time.perf_counter()
        outputs, inputs = sample(n, seed)
        ran, runs = time.perf_counter() - turn, runs + n
        wanted = {label: list(members) for label, members in sets.items()}
        frame = evppi(outputs, inputs, wanted, rng=seed + 1, progress=progress)
        now = time.perf_counter()
        left = goal.left(frame)
        # A fifth more than the square-root law asks for, so that the next table is the last.
        needed = 1.2 * n * left**2 if goal.has_tolerance else 10 * n * (not decided)
        more = int(min(needed, limit))
        dear = needed > limit or ran * needed / n > _CHEAP_SECONDS
        in_time = now + (now - turn) * more / n <= ends
        met = goal.has_tolerance and left <= 1.0
        if met or more <= n or not in_time or (dear and not decided):
            status = "converged" if met else "time" if more > n else "budget"
            status = status if goal.has_tolerance else "done"
            return Answered(frame, n, runs, status, now - started, decided or met), runs
        n = more
