"""`auto` beside every single method, on every shipped problem: errors, error bars, time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import nestquad as nq
from studies.promises.cells import (
    Cell,
    beside_best,
    best_single,
    cells_of,
    enough,
    every,
    notes_of,
    provenance,
)
from studies.promises.figures import coverage_dots, error_lines
from studies.promises.measure import ALL_METHODS, measure, warm_up
from studies.runner.ledger import Outcome, Task
from studies.runner.result import Column, Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import limit, number, seconds, short

# The joint process is for 256 evaluations at most: `python -m studies few`.
_METHODS = tuple(name for name in ALL_METHODS if name != "process")
_SMALL, _MIDDLE, _LARGE = 1_000, 10_000, 100_000
_BUDGETS = (_SMALL, _MIDDLE, _LARGE)
# At the largest budget models and kernel rules take seconds: half of the seeds, and on all problems
# but that of the first page the default and the usual methods alone.
_USUAL, _SHOWN, _FEWER = ("nmc", "nqmc", "mlmc"), "finance", 0.5

_ERRORS = {
    "synthetic": 1e-6,
    "synthetic10": 1e-2,
    "finance": 5e-4,
    "health": 0.5,
    "rainforth": 2e-5,
    "eig-linear": 3e-4,
}
_MOST_RATIO, _LEAST_COVERAGE, _MOST_SHARPNESS = 2.0, 0.9, 5.0
_MOST_SECONDS = {_MIDDLE: 2.0, _LARGE: 10.0}

Cells = Mapping[tuple[str, str, float], Cell]


def _run(settings: Settings) -> Result:
    runs = settings.collect(settings.ledger("accuracy"), _tasks(settings), _measure, warm_up)
    exact = {p.label: p.exact for p in nq.problems.all()}
    return tabulate(cells_of(runs, exact))


def _tasks(settings: Settings) -> Iterator[Task]:
    for budget in _BUDGETS[:1] if settings.quick else _BUDGETS:
        for name in nq.problems.names():
            every_method = budget < _LARGE or name == _SHOWN
            for method in _METHODS if every_method else ("auto", *_USUAL):
                fewer = budget == _LARGE and method not in _USUAL
                seeds = settings.share(_FEWER if fewer else 1.0)
                yield from (Task(name, method, float(budget), seed) for seed in range(seeds))


def _measure(task: Task) -> Outcome:
    problem = nq.problems.get(task.problem)
    return measure(problem, task.method, task.seed, budget=int(task.goal))


def tabulate(cells: Cells) -> Result:
    """Tables and verdicts."""
    compared = [_compared(cells, row) for row in beside_best(cells)]
    rows = tuple(cell.row() for cell in cells.values())
    return Result(
        tables=(
            Table(
                "auto",
                "`auto` at each budget, and the single method that does best there. Time is CPU "
                "time beyond g.",
                columns(
                    "problem; goal = budget: count; seeds: count; error = mean error: error; "
                    "best = best single method; best_error = its mean error: error; "
                    "ratio: number; "
                    "coverage = 95 % interval covers: percent; "
                    "sharpness = median half-width / mean error: number; evaluations: count; "
                    "seconds = time: seconds; chosen"
                ),
                tuple(compared),
            ),
            _wide(cells, "errors", "Mean error of every method.", _error_text),
            _wide(
                cells,
                "bars",
                "How often the 95 % interval covers, and in brackets the median half-width over "
                "the mean error.",
                lambda cell, _: f"{100 * cell.coverage:.0f} % ({short(cell.sharpness)})",
            ),
            _wide(
                cells,
                "times",
                "Mean CPU time beyond g.",
                lambda cell, _: seconds(cell.row()["seconds"]),
            ),
            Table("cells", "", (), rows),
        ),
        verdicts=(*_error_verdicts(cells), *_verdicts(compared)),
        notes=notes_of(cells),
        **provenance(run for cell in cells.values() for run in cell.runs),
    )


def _best(cells: Cells, problem: str, goal: float) -> Cell | None:
    """The best single method; none where the usual methods alone were run."""
    best = best_single(cells, problem, goal)
    return None if best is None or best.runs[0].method in _USUAL else best


def _compared(cells: Cells, row: dict[str, Any]) -> dict[str, Any]:
    if _best(cells, row["problem"], row["goal"]) is not None:
        return row
    return {name: value for name, value in row.items() if name[:4] not in ("best", "rati")}


def _wide(cells: Cells, name: str, caption: str, text: Callable[[Cell, Cell | None], str]) -> Table:
    """One line for each problem and budget, one column for each method."""
    lines: dict[tuple[str, float], dict[str, Any]] = {}
    for (problem, method, goal), cell in cells.items():
        line = lines.setdefault((problem, goal), {"problem": problem, "goal": goal})
        if not cell.failed:
            line[method] = text(cell, _best(cells, problem, goal))
    heads = (
        Column("problem", "problem"),
        Column("goal", "budget", "count"),
        *(Column(method, method, "cell") for method in _METHODS),
    )
    order = {problem: i for i, (problem, _, _) in enumerate(cells)}
    ordered = sorted(lines.values(), key=lambda line: (order[line["problem"]], line["goal"]))
    return Table(name, caption, heads, tuple(ordered))


def _error_text(cell: Cell, best: Cell | None) -> str:
    text = number(cell.error)
    return f"**{text}**" if cell is best else text


def _error_verdicts(cells: Cells) -> Iterator[Verdict]:
    for problem, most in _ERRORS.items():
        cell = cells.get((problem, "auto", float(_MIDDLE)))
        claim = f"{problem}, auto, {_MIDDLE:,} evaluations, mean error"
        if cell is None or not cell.finished:
            yield Verdict.of(claim, f"≤ {limit(most)}", "–", None)
            continue
        measured = f"{number(cell.error)} ± {number(cell.error_se)}, {len(cell.runs)} seeds"
        met = cell.error <= most and not cell.failed if enough(cell.row()) else None
        yield Verdict.of(claim, f"≤ {limit(most)}", measured, met)


def _verdicts(compared: list[dict[str, Any]]) -> Iterator[Verdict]:
    for budget in (_SMALL, _MIDDLE):
        yield every(
            len(nq.problems.names()),
            f"error of auto beside the best single method, {budget:,} evaluations",
            f"≤ {_MOST_RATIO:.0f} ×",
            _at(compared, budget),
            value=lambda row: row.get("ratio", math.nan),
            text=lambda row: f"{short(row['ratio'])} ± {short(row['ratio_se'])} ×",
            good=lambda value: value <= _MOST_RATIO,
        )
    for budget in (_SMALL, _MIDDLE):
        yield every(
            len(nq.problems.names()),
            f"coverage of the 95 % interval of auto, {budget:,} evaluations",
            f"≥ {100 * _LEAST_COVERAGE:.0f} %",
            _at(compared, budget),
            value=lambda row: 1 - row["coverage"],
            text=lambda row: f"{100 * row['coverage']:.0f} %",
            good=lambda value: value <= 1 - _LEAST_COVERAGE + 1e-9,
        )
    for budget in (_SMALL, _MIDDLE):
        yield every(
            len(nq.problems.names()),
            f"median half-width over mean error of auto, {budget:,} evaluations",
            f"≤ {_MOST_SHARPNESS:.0f} ×",
            _at(compared, budget),
            value=lambda row: row["sharpness"],
            text=lambda row: f"{short(row['sharpness'])} ×",
            good=lambda value: value <= _MOST_SHARPNESS,
        )
    for budget, most in _MOST_SECONDS.items():
        yield every(
            len(nq.problems.names()),
            f"mean CPU time of auto beyond g, {budget:,} evaluations",
            f"≤ {most:.0f} s",
            _at(compared, budget),
            value=lambda row: row["seconds"],
            text=lambda row: f"{seconds(row['seconds'])}, slowest run {seconds(row['slowest'])}",
            good=lambda value, most=most: value <= most,
        )


def _at(rows: list[dict[str, Any]], budget: float) -> list[dict[str, Any]]:
    return [row for row in rows if row["goal"] == budget]


def _draw_errors(result: Result) -> Figure:
    return error_lines(result.table("cells").rows, _METHODS)


def _draw_coverage(result: Result) -> Figure:
    return coverage_dots(result.table("cells").rows, _METHODS, (_SMALL, _MIDDLE))


STUDY = Study(
    name="accuracy",
    title="auto beside every method",
    about="""
`nq.estimate(problem, budget=…)` with `method="auto"` and with each single method as it comes, on
every shipped problem; every run stands in `data/accuracy_runs.csv.gz`. Errors are absolute (of
several answers the largest), and the ratio of two mean errors has the standard error that follows
from those of both means; the verdict goes by the ratio itself. The best single method is the best
of the same runs, and the smallest of several noisy means is a little too small: the comparison
leans against `auto`. Errors below 10⁻¹² of the exact value are rounding, and count as equal. Time
is CPU time of the whole estimate less that spent inside g, in a process with one BLAS thread.
Verdicts need ten seeds. With 100,000 evaluations learners and kernel rules have half of the seeds,
and but for `finance` the usual methods alone stand beside `auto`.
""",
    run=_run,
    drawings=(
        Drawing("errors", "Mean error against evaluations of g, by method.", _draw_errors),
        Drawing(
            "coverage",
            "How often 95 % intervals cover (the band is 90–100 %), and the median half-width "
            "over the mean error (the line is at 5).",
            _draw_coverage,
        ),
    ),
)
