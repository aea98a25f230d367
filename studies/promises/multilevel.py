"""The multilevel methods at the sizes that were promised for them."""

from __future__ import annotations

import numpy as np

import nestquad as nq
from studies.promises.cells import cells_of, enough, notes_of, provenance
from studies.promises.measure import measure, warm_up
from studies.runner.ledger import Outcome, Run, Task
from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import limit, number

# MLMC on finance: root mean square error, and evaluations. MLKQ on synthetic: budget, and error.
_RMSE, _MOST_EVALUATIONS = 0.01, 1.5e7
_BUDGET, _MOST_ERROR = 8_000.0, 1e-7
_NORMAL_95 = 1.959964


def _run(settings: Settings) -> Result:
    ledger = settings.ledger("multilevel")
    rmse = 10 * _RMSE if settings.quick else _RMSE
    tasks = [Task("synthetic", "mlkq", _BUDGET, seed) for seed in range(settings.seeds)]
    tasks += [Task("finance", "mlmc", rmse, seed) for seed in range(settings.seeds)]
    return tabulate(settings.collect(ledger, tasks, _measure, warm_up))


def _measure(task: Task) -> Outcome:
    problem = nq.problems.get(task.problem)
    if task.method == "mlmc":
        return measure(problem, "mlmc", task.seed, tol=_NORMAL_95 * task.goal, budget=50_000_000)
    return measure(problem, task.method, task.seed, budget=int(task.goal))


def tabulate(runs: list[Run]) -> Result:
    """One line for each method, and its promise."""
    exact = {name: nq.problems.get(name).exact for name in ("finance", "synthetic")}
    cells = cells_of(runs, exact)
    rows = []
    for (_, method, goal), cell in cells.items():
        row = cell.row()
        asked = f"error ≤ {limit(goal)}" if method == "mlmc" else f"{goal:,.0f} evaluations"
        squares = [run.error**2 for run in cell.finished]
        row |= {"asked": asked, "rmse": float(np.sqrt(np.mean(squares))) if squares else None}
        rows.append(row)
    heads = columns(
        "problem; method; asked = asked for; seeds: count; "
        "evaluations = mean evaluations: count; error = mean error: error; "
        "rmse = root mean square error: error; "
        "coverage = 95 % interval covers: percent; seconds = time beyond g: seconds"
    )
    return Result(
        tables=(Table("multilevel", "Multilevel methods.", heads, tuple(rows)),),
        verdicts=(_mlmc(rows), _mlkq(rows)),
        notes=notes_of(cells),
        **provenance(runs),
    )


def _mlmc(rows: list[dict]) -> Verdict:
    claim = f"evaluations of MLMC for a root mean square error of {_RMSE} on finance"
    target = f"≤ {limit(_MOST_EVALUATIONS)}"
    for row in rows:
        if (row["method"], row["goal"]) == ("mlmc", _RMSE) and row["rmse"] is not None:
            kept = row["evaluations"] <= _MOST_EVALUATIONS and row["rmse"] <= _RMSE
            measured = f"{limit(row['evaluations'])}, with {number(row['rmse'])}"
            met = kept and not row["failed"] if enough(row) else None
            return Verdict.of(claim, target, f"{measured}, {row['seeds']} seeds", met)
    return Verdict.of(claim, target, "–", None)


def _mlkq(rows: list[dict]) -> Verdict:
    claim = f"mean error of MLKQ on synthetic with at most {_BUDGET:,.0f} evaluations"
    target = f"≤ {limit(_MOST_ERROR)}"
    for row in rows:
        if row["method"] == "mlkq" and row["evaluations"] is not None:
            measured = f"{number(row['error'])} ± {number(row['error_se'])}"
            kept = row["error"] <= _MOST_ERROR and row["evaluations"] <= _BUDGET
            met = kept and not row["failed"] if enough(row) else None
            detail = f"{row['evaluations']:,} evaluations, {row['seeds']} seeds"
            return Verdict.of(claim, target, f"{measured} with {detail}", met)
    return Verdict.of(claim, target, "–", None)


STUDY = Study(
    name="multilevel",
    title="Multilevel methods",
    about="""
`nq.MLMC` towards a root mean square error (antithetic, with adaptive levels) and `nq.MLKQ` (shared,
nested inner points) at a budget, each as it comes. Every run stands in `data/multilevel_runs.csv`.
""",
    run=_run,
)
