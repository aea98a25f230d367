"""Accuracy on demand: does `tol` keep its word, and what does it cost?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.plots import AVERAGE, INK, method_styles, new_axes
from studies.promises.cells import Cell, cells_of, enough, every, notes_of, provenance
from studies.promises.measure import measure, warm_up
from studies.runner.figures import BAND, name_axis
from studies.runner.ledger import Ledger, Outcome, Run, Task
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import limit


@dataclass(frozen=True)
class _Goal:
    loose: float
    tight: float
    why: str


_GOALS = {
    "synthetic": _Goal(4e-3, 4e-5, "1 % and 0.01 % of the answer"),
    "synthetic10": _Goal(0.3, 3e-3, "1 % and 0.01 % of the answer"),
    "finance": _Goal(0.03, 3e-3, "1 % and 0.1 % of the expected loss"),
    "health": _Goal(5.0, 0.5, "2 % and 0.2 % of the value of information"),
    "health-durations": _Goal(5.0, 0.5, "the same amounts of money as for the responses"),
    "rainforth": _Goal(1e-2, 1e-4, "1 % and 0.01 % of the log evidence, which is near 1"),
    "eig-linear": _Goal(1e-2, 1e-4, "of one nat, the unit in which designs are compared"),
    "gaussian-es": _Goal(2e-2, 2e-4, "1 % and 0.01 % of the shortfall"),
}
_KINDS = ("loose", "tight")
# Runs of `auto` end here at the latest; so do those of MLMC, which are then asked for less.
_AUTO_BUDGET, _MLMC_BUDGET = 1_000_000, 2_000_000
_STEP, _MOST_STEPS = 4.0, 8
_AUTO_SHARE, _MLMC_SHARE = 2.0, 0.25
_LEAST_WITHIN = 0.95
_AIM = (0.3, 0.5)
_NORMAL_95 = 1.959964


def _run(settings: Settings) -> Result:
    settings = replace(settings, budgets=())  # goals are tolerances here
    ledger = settings.ledger("tolerance")
    seeds = range(settings.share(_AUTO_SHARE))
    wanted = _wanted(settings)
    tasks = [Task(name, "auto", tol, seed) for name, tol in wanted for seed in seeds]
    settings.collect(ledger, tasks, _measure, warm_up)
    _climb(ledger, settings)
    return tabulate(list(ledger.runs.values()))


def _wanted(settings: Settings) -> list[tuple[str, float]]:
    kinds = _KINDS[:1] if settings.quick else _KINDS
    return [(name, getattr(goal, kind)) for kind in kinds for name, goal in _GOALS.items()]


def _measure(task: Task) -> Outcome:
    problem = nq.problems.get(task.problem)
    if task.method == "mlmc":  # its goal is a root mean square error, not a half-width
        limits = {"tol": _NORMAL_95 * task.goal, "budget": _MLMC_BUDGET}
    else:
        limits = {"tol": task.goal, "budget": _AUTO_BUDGET}
    return measure(problem, task.method, task.seed, **limits)


def _climb(ledger: Ledger, settings: Settings) -> None:
    """MLMC at the same root mean square error, or the next that it can afford.

    One seed tells whether an error is affordable, and the others follow where it is.
    """
    seeds = range(settings.share(_MLMC_SHARE, settings.other_seeds))
    wanted = _wanted(settings)
    for step in range(_MOST_STEPS):
        first = [Task(name, "mlmc", tol * _STEP**step, seeds[0]) for name, tol in wanted]
        settings.collect(ledger, first, _measure, warm_up)
        status = {run.task: run.status for run in ledger.runs.values()}
        reached = [task for task in first if status.get(task) == "converged"]
        rest = [replace(task, seed=seed) for task in reached for seed in seeds[1:]]
        settings.collect(ledger, rest, _measure, warm_up)
        # What failed or was not selected will not do better with a larger error.
        open_tasks = [task for task in first if status.get(task) in ("budget", "time")]
        wanted = [(task.problem, task.goal / _STEP**step) for task in open_tasks]
        if not wanted:
            return


def tabulate(runs: list[Run]) -> Result:
    """Tables and verdicts from the runs that are there."""
    exact = {name: nq.problems.get(name).exact for name in _GOALS}
    cells = cells_of(runs, exact)
    rows = [
        _row(name, kind, cell, cells)
        for kind in _KINDS
        for name, goal in _GOALS.items()
        if (cell := cells.get((name, "auto", getattr(goal, kind)))) is not None
    ]
    parts = [
        {"problem": row["problem"], "kind": row["kind"], "parts": row.pop("parts")} for row in rows
    ]
    return Result(
        tables=(
            Table(
                "tolerances",
                "The tolerances, on the scale of the answer.",
                columns("problem; exact = exact value: cell; loose; tight; why = why these"),
                tuple(
                    {
                        "problem": name,
                        "exact": f"{exact[name]:.6g}",
                        "loose": limit(goal.loose),
                        "tight": limit(goal.tight),
                        "why": goal.why,
                    }
                    for name, goal in _GOALS.items()
                ),
            ),
            Table(
                "kept",
                "`nq.estimate(problem, tol=…)`, and MLMC with a root mean square error as large as "
                "the tolerance (≈: extrapolated from a larger error, with cost ∝ error⁻²).",
                columns(
                    "problem; tol = tolerance: cell; seeds: count; within = within it: percent; "
                    "used = mean error / tolerance: number; "
                    "evaluations = mean evaluations: count; most: count; "
                    "mlmc = MLMC, evaluations: cell; gain = MLMC / auto: cell; "
                    "seconds = time beyond g: seconds; status = how it ended; chosen"
                ),
                tuple(rows),
            ),
            Table("parts", "", (), tuple(parts)),
        ),
        verdicts=tuple(_verdicts(rows)),
        notes=notes_of(cells),
        **provenance(runs),
    )


def _row(name: str, kind: str, cell: Cell, cells: dict[Any, Cell]) -> dict[str, Any]:
    tol = cell.runs[0].goal
    parts = [run.error / tol for run in cell.finished]
    statuses = Counter(run.status for run in cell.runs).most_common()
    row = {
        **cell.row(),
        "kind": kind,
        "tol": limit(tol),
        "within": sum(part <= 1.0 for part in parts) / len(cell.runs),
        "used": float(np.mean(parts)) if parts else None,
        "most": max((run.evaluations for run in cell.finished), default=None),
        "status": ", ".join(f"{status} {count}" for status, count in statuses),
        "parts": parts,
    }
    reference = _mlmc(name, tol, cells)
    if reference is not None:
        row["mlmc_evaluations"], row["extrapolated"] = reference
        sign = "≈ " if row["extrapolated"] else ""
        row["mlmc"] = sign + _large(row["mlmc_evaluations"])
        if cell.finished:
            row["gain"] = f"{sign}{_large(row['mlmc_evaluations'] / row['evaluations'])} ×"
    return row


def _mlmc(name: str, tol: float, cells: dict[Any, Cell]) -> tuple[float, bool] | None:
    """Mean evaluations of MLMC for this root mean square error, and whether extrapolated."""
    for step in range(_MOST_STEPS):
        cell = cells.get((name, "mlmc", tol * _STEP**step))
        reached = [] if cell is None else [run for run in cell.runs if run.status == "converged"]
        if reached:
            mean = float(np.mean([run.evaluations for run in reached]))
            return mean * _STEP ** (2 * step), step > 0
    return None


def _large(value: float) -> str:
    return f"{value:,.0f}" if value < 1e7 else limit(value)


def _verdicts(rows: list[dict[str, Any]]) -> Iterator[Verdict]:
    for kind in _KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        yield every(
            len(_GOALS),
            f"runs that end within the {kind} tolerance",
            f"≥ {100 * _LEAST_WITHIN:.0f} %",
            # A failed run is a run that does not end within it, and has been counted as such.
            [{**row, "failed": 0} for row in mine],
            value=lambda row: 1 - row["within"],
            text=lambda row: f"{100 * row['within']:.0f} %",
            good=lambda value: value <= 1 - _LEAST_WITHIN + 1e-9,
        )
    for kind in _KINDS:
        mine = [row for row in rows if row["kind"] == kind and row["used"] is not None]
        used = [row["used"] for row in mine]
        mean = float(np.mean(used)) if used else None
        complete = len(mine) == len(_GOALS) and all(map(enough, mine))
        yield Verdict.of(
            f"mean error / {kind} tolerance, average over the problems",
            f"{_AIM[0]} … {_AIM[1]}",
            "–" if mean is None else f"{mean:.2f} ({min(used):.2f} … {max(used):.2f})",
            None if mean is None or not complete else _AIM[0] <= mean <= _AIM[1],
        )


def _draw(result: Result) -> Figure:
    rows = result.table("kept").rows
    parts = {(r["problem"], r["kind"]): r["parts"] for r in result.table("parts").rows}
    lines = [f"{row['problem']}, {row['tol']}" for row in rows][::-1]
    looks = method_styles(["auto", "mlmc"])
    figure, (left, right) = new_axes(13.0, 0.3 * len(lines) + 1.2, columns=2)
    for row in rows:
        y = lines.index(f"{row['problem']}, {row['tol']}")
        shares = np.maximum(parts[row["problem"], row["kind"]], 1e-4)
        left.plot(shares, np.full(len(shares), y), "|", color=looks["auto"].color, alpha=0.35, ms=9)
        cost = row["evaluations"]
        if cost is not None:
            right.plot([cost, row["most"]], [y, y], color=looks["auto"].color, linewidth=1.2)
            right.plot(cost, y, looks["auto"].marker, color=looks["auto"].color, markersize=7)
        if row.get("mlmc_evaluations") is not None:
            face = "white" if row["extrapolated"] else looks["mlmc"].color
            dot = {"marker": looks["mlmc"].marker, "color": looks["mlmc"].color}
            right.plot(row["mlmc_evaluations"], y, **dot, markerfacecolor=face, markersize=7)
    left.axvline(1.0, color=INK, linewidth=1.0, linestyle=AVERAGE)
    left.axvspan(*_AIM, color=BAND, alpha=0.5, zorder=0)
    left.set_xscale("log")
    left.set_xlabel("error / tolerance of each run (log scale; the band is the aim for the mean)")
    right.set_xscale("log")
    right.set_xlabel("evaluations of g (log scale)")
    for name, face in (("auto", None), ("mlmc", None), ("mlmc, extrapolated", "white")):
        look = looks[name.partition(",")[0]]
        face = look.color if face is None else face
        right.plot([], [], look.marker, color=look.color, markerfacecolor=face, label=name)
    for ax in (left, right):
        name_axis(ax, lines, shown=ax is left)
    handles = right.get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper right", ncols=3, frameon=False)
    return figure


STUDY = Study(
    name="tolerance",
    title="Stopping at a tolerance",
    about=f"""
`nq.estimate(problem, tol=…)` until the half-width of the 95 % interval is at most the tolerance, or
until {_AUTO_BUDGET:,} evaluations. Every run stands in `data/tolerance_runs.csv`. An error of 0.15
tolerances on average is six times too careful; 0.3 to 0.5 is the aim. Beside it `nq.MLMC` with a
root mean square error as large as the tolerance, which is a weaker promise: to give the same
interval it needs 1.96² = 3.8 times as many. Where it needs more than {_MLMC_BUDGET:,} evaluations
it is asked for an error 4, 16, … times as large, and its cost extrapolated.
""",
    run=_run,
    drawings=(
        Drawing(
            "",
            "Left: the error of each run over the tolerance. Right: evaluations, mean and most of "
            "auto, and those of MLMC.",
            _draw,
        ),
    ),
)
