"""Problems that nothing was tuned on, as they come out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from studies import unseen
from studies.promises.cells import Cell, beside_best, best_single, cells_of, notes_of, provenance
from studies.promises.figures import errors_and_coverage
from studies.promises.measure import ALL_METHODS, measure, warm_up
from studies.runner.ledger import Outcome, Run, Task
from studies.runner.result import Drawing, Figure, Result, Table, columns
from studies.runner.study import Settings, Study

_BUDGETS = (1_000, 10_000)
# What everybody has today, beside `auto`; the others are run to find the best of them.
_SHOWN = ("nmc", "nqmc")
_BEST = "best single method"


def _run(settings: Settings) -> Result:
    ledger = settings.ledger("unseen")
    return tabulate(settings.collect(ledger, _tasks(settings), _measure, warm_up))


def _tasks(settings: Settings) -> Iterator[Task]:
    for budget in _BUDGETS[:1] if settings.quick else _BUDGETS:
        for name in unseen.names():
            for method in ALL_METHODS:
                cheap = method in _SHOWN or budget == _BUDGETS[0]
                others = settings.share(1.0 if cheap else 0.5, settings.other_seeds)
                seeds = settings.seeds if method == "auto" else others
                yield from (Task(name, method, float(budget), seed) for seed in range(seeds))


def _measure(task: Task) -> Outcome:
    return measure(unseen.get(task.problem), task.method, task.seed, budget=int(task.goal))


def tabulate(runs: list[Run]) -> Result:
    """Tables from the runs that are there; there are no targets to meet."""
    exact = {name: unseen.get(name).exact for name in unseen.names()}
    cells = cells_of(runs, exact)
    rows = beside_best(cells)
    for row in rows:
        row["field"] = unseen.FIELDS[row["problem"]]
        for method in _SHOWN:
            cell = cells.get((row["problem"], method, row["goal"]))
            if cell is not None and not cell.failed:
                row[method], row[f"{method}_se"] = cell.error, cell.error_se
    heads = columns(
        "problem; field; exact = exact value: cell; goal = budget: count; "
        "seeds: count; error = auto: error; nqmc: error; nmc: error; "
        "best = best single method; best_error = its error: error; "
        "ratio = auto / best: number; "
        "coverage = auto's 95 % interval covers: percent; "
        "sharpness = median half-width / mean error: number; "
        "seconds = time beyond g: seconds; chosen"
    )
    caption = "Mean errors of auto, of what is common today, and of the best single method."
    shown = tuple({**row, "exact": f"{exact[row['problem']]:.6g}"} for row in rows)
    return Result(
        tables=(
            Table("unseen", caption, heads, shown),
            Table("dots", "", (), tuple(_dots(cells, exact))),
            Table("cells", "", (), tuple(cell.row() for cell in cells.values())),
        ),
        verdicts=(),
        notes=(*_counts(rows), *notes_of(cells)),
        **provenance(runs),
    )


def _counts(rows: list[dict[str, Any]]) -> Iterator[str]:
    for budget in _BUDGETS:
        mine = [row for row in rows if row["goal"] == budget and "ratio" in row]
        if not mine:
            continue
        within = sum(row["ratio"] <= 2 for row in mine)
        better = [row for row in mine if row.get("nqmc") is not None]
        wins = sum(row["error"] <= row["nqmc"] for row in better)
        covers = sum(row["coverage"] >= 0.9 for row in mine)
        yield (
            f"At {budget:,} evaluations auto has at most twice the error of the best single method "
            f"on {within} of {len(mine)} problems, at most the error of nqmc on {wins} of "
            f"{len(better)}, and covers in at least 90 % of the runs on {covers} of {len(mine)}."
        )


def _dots(cells: dict[tuple[str, str, float], Cell], exact: dict[str, Any]) -> Iterator[dict]:
    for (problem, method, goal), cell in cells.items():
        if method not in ("auto", *_SHOWN) or not cell.finished:
            continue
        drawn = {method: cell}
        best = best_single(cells, problem, goal) if method == "auto" else None
        if best is not None:
            drawn[_BEST] = best
        for name, one in drawn.items():
            relative = max(one.error, one.floor) / abs(exact[problem])
            row = {**one.row(), "method": name, "budget": goal, "relative": relative}
            yield row


def _draw(result: Result) -> Figure:
    return errors_and_coverage(result.table("dots").rows, ("auto", _BEST, "nqmc", "nmc"))


STUDY = Study(
    name="unseen",
    title="Problems that nothing was tuned on",
    about="""
Thirteen problems of `studies/unseen` with exact values, from finance, insurance, experimental
design and health, one where θ has no influence and one where g is all noise. They were written down
before any method was run on them, and nothing is tuned on them: what stands here is what a user
with a new problem may expect, good or bad. Every run stands in `data/unseen_runs.csv`.
""",
    run=_run,
    drawings=(Drawing("", "Errors and coverage on problems that nothing was tuned on.", _draw),),
)
