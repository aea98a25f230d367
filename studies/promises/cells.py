"""Cells: runs of one method on one problem towards one goal, summed up, compared and judged."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from studies.promises.measure import CERTIFIED, ROUNDING
from studies.runner.ledger import Run
from studies.runner.result import Verdict

Key = tuple[str, str, float]
# With fewer seeds than this a mean or a coverage says too little for a verdict.
_ENOUGH_SEEDS = 10


@dataclass(frozen=True)
class Cell:
    """All runs of one method on one problem towards one goal.

    `floor` is what counts as rounding: errors below it are equal to it in comparisons.
    """

    runs: tuple[Run, ...]
    floor: float

    @property
    def failed(self) -> int:
        return sum(run.failed for run in self.runs)

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if not run.failed]

    @property
    def error(self) -> float:
        return self._mean("error")

    @property
    def error_se(self) -> float:
        """What another set of seeds may change."""
        errors = [run.error for run in self.finished]
        return float(np.std(errors, ddof=1) / math.sqrt(len(errors))) if len(errors) > 1 else 0.0

    @property
    def coverage(self) -> float:
        return float(np.mean([run.covered for run in self.runs]))

    @property
    def sharpness(self) -> float:
        """Median half-width of the 95 % interval over the mean error."""
        halves = [run.half_width for run in self.finished]
        return float(np.median(halves)) / max(self.error, self.floor) if halves else math.nan

    @property
    def chosen(self) -> str:
        counts = Counter(run.chosen for run in self.finished).most_common()
        return ", ".join(f"{name} {n}" if len(counts) > 1 else name for name, n in counts)

    def row(self) -> dict[str, Any]:
        first = self.runs[0]
        return {
            "problem": first.problem,
            "method": first.method,
            "goal": first.goal,
            "seeds": len(self.runs),
            "failed": self.failed,
            "error": self.error,
            "error_se": self.error_se,
            "coverage": self.coverage,
            "sharpness": self.sharpness,
            "evaluations": round(self._mean("evaluations")) if self.finished else None,
            "seconds": self._mean("seconds"),
            "slowest": max((run.seconds for run in self.finished), default=math.nan),
            "g_seconds": self._mean("g_seconds"),
            "chosen": self.chosen,
        }

    def _mean(self, name: str) -> float:
        values = [getattr(run, name) for run in self.finished]
        return float(np.mean(values)) if values else math.nan


Cells = Mapping[Key, Cell]


def cells_of(runs: Iterable[Run], exact: Mapping[str, Any]) -> dict[Key, Cell]:
    """Cells by problem, method and goal, in the order of the problems in `exact`."""
    grouped: dict[Key, list[Run]] = {}
    for run in runs:
        grouped.setdefault((run.problem, run.method, run.goal), []).append(run)
    order = list(exact)
    keys = sorted((key for key in grouped if key[0] in exact), key=lambda k: (order.index(k[0]),))
    return {
        key: Cell(tuple(grouped[key]), ROUNDING * float(np.abs(np.ravel(exact[key[0]])).min()))
        for key in keys
    }


def best_single(cells: Cells, problem: str, goal: float) -> Cell | None:
    """The method with the smallest mean error, `auto` and methods that failed left out."""
    return min(single_methods(cells, problem, goal), key=lambda cell: cell.error, default=None)


def single_methods(cells: Cells, problem: str, goal: float) -> list[Cell]:
    """What `auto` is compared with: all other methods that never failed."""
    return [
        cell
        for (name, method, at), cell in cells.items()
        if (name, at) == (problem, goal) and method not in ("auto", CERTIFIED) and not cell.failed
    ]


def ratio(one: Cell, other: Cell) -> tuple[float, float]:
    """Mean error of one over that of the other, and its standard error from that of both."""
    parts = [(max(cell.error, cell.floor), cell.error_se) for cell in (one, other)]
    value = parts[0][0] / parts[1][0]
    spread = math.hypot(*(se / mean for mean, se in parts))
    return value, value * spread


def beside_foreseen(cells: Cells, problem: str, goal: float) -> float:
    """Mean error of `auto` over that of the method that was best in the other runs.

    The best in hindsight owes a part of its small error to luck: of seven equal methods with two
    runs each, it has a third of the error that any of them has on average. A method chosen by the
    other runs has no such luck.
    """
    mine = {run.seed: run.error for run in cells[problem, "auto", goal].finished}
    rivals = [
        {run.seed: max(run.error, cell.floor) for run in cell.runs}
        for cell in single_methods(cells, problem, goal)
    ]
    shared = [seed for seed in mine if all(seed in errors for errors in rivals)]
    if len(shared) < 2 or not rivals:
        return math.nan
    chosen = [
        min(rivals, key=lambda errors: sum(errors[one] for one in shared if one != seed))[seed]
        for seed in shared
    ]
    floor = cells[problem, "auto", goal].floor
    return sum(max(mine[seed], floor) for seed in shared) / sum(chosen)


def beside_best(cells: Cells) -> list[dict[str, Any]]:
    """One row for each problem and goal: `auto` beside the best single method."""
    rows = []
    for (problem, method, goal), cell in sorted(cells.items(), key=lambda item: item[0][2]):
        if method != "auto":
            continue
        row = cell.row()
        best = best_single(cells, problem, goal)
        if best is not None and not cell.failed:
            row["best"] = best.runs[0].method
            row["best_error"], row["best_error_se"] = best.error, best.error_se
            row["ratio"], row["ratio_se"] = ratio(cell, best)
        rows.append(row)
    return rows


def provenance(runs: Iterable[Run]) -> dict[str, Any]:
    """What all the runs took, as arguments of `Result`."""
    runs = list(runs)
    return {
        "environment": {
            "runs": len(runs),
            "threads": {"OMP_NUM_THREADS": "1"},
            "sources": "/".join(sorted({run.sources for run in runs})),
        },
        "seconds": sum(run.seconds + run.g_seconds for run in runs),
    }


def notes_of(cells: Cells) -> tuple[str, ...]:
    """What a reader should know of the runs: which failed, and which are of earlier versions."""
    notes = []
    for (problem, method, goal), cell in cells.items():
        if cell.failed:
            reason = next(run.chosen for run in cell.runs if run.failed)
            count = f"{cell.failed} of {len(cell.runs)}"
            notes.append(f"{method} on {problem} at {goal:,g}: {count} runs failed ({reason}).")
    sources = Counter(run.sources for cell in cells.values() for run in cell.runs)
    if len(sources) > 1:
        listed = ", ".join(f"{count:,} with {name}" for name, count in sources.most_common())
        notes.append(f"The runs come from {len(sources)} states of the code (hashes): {listed}.")
    return tuple(notes)


def enough(row: Mapping[str, Any]) -> bool:
    return bool(row["seeds"] >= _ENOUGH_SEEDS)


def every(
    expected: int,
    claim: str,
    target: str,
    rows: list[dict[str, Any]],
    *,
    value: Callable[[dict[str, Any]], float],
    text: Callable[[dict[str, Any]], str],
    good: Callable[[float], bool],
) -> Verdict:
    """One promise for every problem: how many keep it, the worst of them, and who does not."""
    claim = f"{claim}, every problem"
    known = [row for row in rows if math.isfinite(value(row)) or row["failed"]]
    if not known:
        return Verdict.of(claim, target, "–", None)
    kept = [row for row in known if not row["failed"] and good(value(row))]
    missed = [row for row in known if row not in kept]
    broken = [row["problem"] for row in missed if row["failed"]]
    measured = [row for row in known if not row["failed"]]
    parts = [f"{len(kept)} of {len(known)}"]
    if measured:
        shown = [row for row in measured if row in missed] or [max(measured, key=value)]
        listed = ", ".join(f"{r['problem']} {text(r)}" for r in sorted(shown, key=value)[::-1])
        parts.append(f"{'not' if missed else 'worst:'} {listed}")
    if broken:
        parts.append(f"failed runs: {', '.join(broken)}")
    complete = len(known) == expected and all(map(enough, known))
    return Verdict.of(claim, target, "; ".join(parts), not missed if complete else None)
