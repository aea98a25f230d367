"""The study of seconds: how long a relative tolerance takes, for a g of any cost.

`auto` without a budget minimizes time, and its way depends on the cost of g: each cost is a run
that really waits. Single methods take the same way whatever g costs: they are run once, and their
time at another cost is what they spend outside g plus the cost of their evaluations.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import nestquad as nq
from studies import families
from studies.promises.cells import provenance
from studies.promises.measure import ROUNDING, chosen_by, warm_up
from studies.runner.ledger import Outcome, Run, Task
from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study, run_studies
from studies.runner.text import duration

FAMILIES = ("books", "decisions", "insurance", "smooth")
# Seconds that an evaluation of g takes at least; a shipped g takes less than the first.
COSTS = (1e-7, 1e-6, 1e-4, 1e-2)
_SINGLE = ("nqmc", "mlmc", "joint", "ckq", "lsmc", "mlkq")
_MOST_EVALUATIONS, _MOST_SECONDS = 10_000_000, 60.0
# `auto` is compared where the fastest single method takes at most so long; beyond four times as
# long it has missed every target, and is stopped.
_LONGEST = 30.0
_AUTO_SECONDS = 4 * _LONGEST
_BUSY = 1e-4  # seconds; shorter waits are loops, since sleeping has a granularity of about this
_GEOMETRIC, _WORST = 1.5, 3.0


@dataclass(frozen=True)
class Selection:
    """What to run, and what the tables are made of."""

    problems: tuple[str, ...]
    parity: str = "odd"
    tolerances: tuple[float, ...] = (1e-2, 1e-3)
    costs: tuple[float, ...] = COSTS
    runs: int = 3

    def single_tasks(self, replicates: Iterable[int]) -> Iterator[Task]:
        for replicate in replicates:
            for name in self.problems:
                for rtol in self.tolerances:
                    for method in _SINGLE:
                        yield Task(name, method, rtol, replicate)


def default_problems(parity: str) -> tuple[str, ...]:
    """All shipped problems, and two of each of four families."""
    seeds = (1, 3) if parity == "odd" else (2, 4)
    drawn = (f"{family}-{seed}" for family in FAMILIES for seed in seeds)
    return (*nq.problems.names(), *drawn)


def report(selection: Selection, out: Path, jobs: int, fresh: bool, command: str) -> None:
    """Run what the ledger lacks, and write page and data."""
    settings = Settings(jobs=jobs, data=out / "data")
    name = "seconds" if selection.parity == "odd" else f"seconds_{selection.parity}"
    study = Study(
        name=name,
        title="Seconds to a tolerance",
        about=_ABOUT,
        run=lambda settings: _run(selection, settings, fresh),
        command=command,
    )
    run_studies([study], [study], settings, out / f"{name}.md", _HEAD, command)


def _run(selection: Selection, settings: Settings, fresh: bool) -> Result:
    ledger = settings.ledger("seconds")
    if fresh:
        ledger.retire(lambda run: run.problem in selection.problems)

    def collect(tasks: Iterable[Task]) -> list[Run]:
        tasks = list(tasks)
        settings.collect(ledger, tasks, _measure, warm_up)
        return [ledger.runs[task] for task in tasks]

    # A method that misses the tolerance once is out of the comparison.
    first = collect(selection.single_tasks(range(1)))
    able = {(run.problem, run.method, run.goal) for run in first if kept(run)}
    rest = selection.single_tasks(range(1, selection.runs))
    runs = first + collect(t for t in rest if (t.problem, t.method, t.goal) in able)
    auto = [
        Task(name, _auto(cost), rtol, replicate)
        for cost in selection.costs
        for replicate in range(selection.runs)
        for name in selection.problems
        for rtol in selection.tolerances
        if fastest(runs, name, rtol, cost, selection.runs)[1] <= _LONGEST
    ]
    return tabulate(runs + collect(auto), selection)


def _auto(cost: float) -> str:
    return f"auto {cost:g}"


class Costly:
    """A g whose evaluations take `cost` seconds at least, with the time and number of them."""

    def __init__(self, g: Callable[..., Any], cost: float) -> None:
        self.g, self.cost = g, cost
        self.seconds, self.evaluations = 0.0, 0

    def __call__(self, x: np.ndarray, theta: np.ndarray) -> Any:
        start = time.perf_counter()
        values = self.g(x, theta)
        n = math.prod(np.broadcast_shapes(x.shape[:-1], theta.shape[:-1]))
        end = start + n * self.cost
        if self.cost > _BUSY:
            time.sleep(max(end - time.perf_counter(), 0.0))
        while time.perf_counter() < end:
            pass
        self.evaluations += n
        self.seconds += time.perf_counter() - start
        return values


def _measure(task: Task) -> Outcome:
    """One estimate: wall seconds outside g and inside."""
    problem = _problem(task.problem)
    method, _, cost = task.method.partition(" ")
    g = Costly(problem.g, float(cost or 0.0))
    limits: dict[str, Any] = {"budget": _MOST_EVALUATIONS, "max_seconds": _MOST_SECONDS}
    if method == "auto":
        limits = {"max_seconds": _AUTO_SECONDS}  # without a budget it minimizes time
    start = time.perf_counter()
    try:
        found = nq.estimate(
            replace(problem, g=g), method=method, rtol=task.goal, rng=task.seed, **limits
        )
    except Exception as error:  # a method that breaks on one problem must not end the study
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        spent = time.perf_counter() - start
        return Outcome(math.nan, g.evaluations, covered=0.0, seconds=spent - g.seconds,
                       g_seconds=g.seconds, status="failed", chosen=reason)  # fmt: skip
    spent = time.perf_counter() - start
    error, half_width = abs(found.value - problem.exact), float(found.half_width)
    return Outcome(
        value=float(found.value),
        error=float(error),
        half_width=half_width,
        covered=float(error <= half_width + _slack(task.problem)),
        evaluations=found.n_evaluations,
        seconds=round(spent - g.seconds, 6),
        g_seconds=round(g.seconds, 6),
        status=found.status,
        chosen=chosen_by(found),
    )


def _problem(name: str) -> nq.NestedExpectation:
    shipped = name in nq.problems.names()
    return nq.problems.get(name) if shipped else families.problem_of(name)


@lru_cache
def _exact(name: str) -> float:
    return float(_problem(name).exact)


@lru_cache
def _slack(name: str) -> float:
    """The error of the exact value, and rounding."""
    family, _, seed = name.rpartition("-")
    error = families.truth(family, int(seed)).error if family in families.families() else 0.0
    return error + ROUNDING * abs(_exact(name))


def kept(run: Run) -> bool:
    """Whether a run converged, and to what it was asked for."""
    within = run.error <= run.goal * abs(_exact(run.problem)) + _slack(run.problem)
    return run.status == "converged" and within


def seconds_at(run: Run, cost: float) -> float:
    """Wall seconds of a run, if evaluations take `cost` seconds at least."""
    return run.seconds + max(run.g_seconds, cost * run.evaluations)


def fastest(
    runs: Iterable[Run], problem: str, rtol: float, cost: float, count: int
) -> tuple[str, float]:
    """The single method with the smallest median time, of those whose runs all kept `rtol`."""
    times: dict[str, list[float]] = {}
    for run in runs:
        if (run.problem, run.goal) == (problem, rtol) and run.method in _SINGLE and kept(run):
            times.setdefault(run.method, []).append(seconds_at(run, cost))
    medians = {name: float(np.median(mine)) for name, mine in times.items() if len(mine) == count}
    return min(medians.items(), key=lambda item: item[1], default=("", math.inf))


def tabulate(runs: list[Run], selection: Selection) -> Result:
    """Tables and verdicts from the runs that are there."""
    rows = [
        row
        for cost in selection.costs
        for rtol in selection.tolerances
        for name in selection.problems
        if (row := _row(runs, name, rtol, cost, selection.runs)) is not None
    ]
    known = [row for row in rows if "ratio" in row]
    summary = [
        _summary(cost, rtol, rows)
        for cost in selection.costs
        for rtol in (*selection.tolerances, None)
    ]
    failed = Counter(run.method for run in runs if run.failed)
    heads = columns(
        "cost = g takes: cell; rtol: cell; problems = compared: count; of: count; "
        "ratio = geometric mean: number; ratio_worst = worst: number; worst = where; "
        "kept = auto keeps it: percent; missed = auto does not converge: count"
    )
    each = columns(
        "cost = g takes: cell; rtol: cell; problem; best = fastest single; "
        "best_seconds = its time: seconds; seconds = auto's: seconds; ratio: number; "
        "evaluations = auto's evaluations: count; chosen = auto chose"
    )
    return Result(
        tables=(
            Table(
                "summary",
                "Time of auto over that of the fastest single method that keeps the tolerance. "
                f"Compared are problems where the latter takes at most {_LONGEST:.0f} s.",
                heads,
                tuple(summary),
            ),
            Table("problems", "Each problem, medians of runs.", each, tuple(known)),
        ),
        verdicts=tuple(_verdicts(selection, summary)),
        notes=tuple(f"{count} runs of {name} failed." for name, count in failed.items()),
        **provenance(runs),
    )


def _cost_text(cost: float) -> str:
    if cost < 1e-3:
        return f"{1e6 * cost:g} µs"
    return f"{1e3 * cost:g} ms"


def _row(runs: list[Run], name: str, rtol: float, cost: float, count: int) -> dict[str, Any] | None:
    row: dict[str, Any] = {"problem": name, "rtol": f"{rtol:g}", "cost": _cost_text(cost)}
    best, best_seconds = fastest(runs, name, rtol, cost, count)
    task = (name, _auto(cost), rtol)
    mine = [run for run in runs if (run.problem, run.method, run.goal) == task]
    if not mine or not best:
        return row
    # A run that gave up is as slow as the slowest that is allowed.
    times = [
        run.seconds + run.g_seconds if run.status == "converged" else _AUTO_SECONDS for run in mine
    ]
    converged = [run for run in mine if run.status == "converged"]
    chosen = Counter(run.chosen for run in mine).most_common()
    return row | {
        "best": best,
        "best_seconds": best_seconds,
        "seconds": float(np.median(times)),
        "ratio": float(np.median(times)) / best_seconds,
        "evaluations": round(float(np.median([run.evaluations for run in mine]))),
        "chosen": ", ".join(f"{name} {n}" if len(chosen) > 1 else name for name, n in chosen),
        "converged": len(converged),
        "kept": sum(map(kept, converged)),
        "missed": len(mine) - len(converged),
    }


def _summary(cost: float, rtol: float | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
    asked = [
        row
        for row in rows
        if row["cost"] == _cost_text(cost) and (rtol is None or row["rtol"] == f"{rtol:g}")
    ]
    mine = [row for row in asked if "ratio" in row]
    found = {
        "cost": _cost_text(cost),
        "rtol": "all" if rtol is None else f"{rtol:g}",
        "problems": len(mine),
        "of": len(asked),
    }
    if not mine:
        return found
    slowest = max(mine, key=lambda row: row["ratio"])
    converged = sum(row["converged"] for row in mine)
    return found | {
        "ratio": float(np.exp(np.mean(np.log([row["ratio"] for row in mine])))),
        "ratio_worst": slowest["ratio"],
        "worst": f"{slowest['problem']}, rtol {slowest['rtol']}",
        "kept": sum(row["kept"] for row in mine) / converged if converged else math.nan,
        "missed": sum(row["missed"] for row in mine),
    }


def _verdicts(selection: Selection, summary: list[dict[str, Any]]) -> Iterator[Verdict]:
    for row in (row for row in summary if row["rtol"] == "all"):
        claim = f"seconds of auto over the fastest single method's, g of {row['cost']}"
        compared = f"{row['problems']} of {row['of']}"
        enough = selection.runs >= 3 and row["problems"] > 0
        for key, most, words in (
            ("ratio", _GEOMETRIC, "geometric mean"),
            ("ratio_worst", _WORST, "worst problem"),
        ):
            text = f"{row[key]:.2f} ({compared})" if row["problems"] else "–"
            if row["problems"] and key == "ratio_worst":
                text = f"{row[key]:.2f}, {row['worst']}"
            met = row[key] <= most if enough else None
            yield Verdict.of(f"{claim}, {words}", f"≤ {most:g}", text, met)


_HEAD = (
    "<!-- Written by `python -m studies seconds`; change studies/families, not this. -->\n"
    "# Seconds\n"
)
_ABOUT = f"""
`nq.estimate(problem, rtol=…)` without a budget, which makes `auto` minimize time, beside the single
methods with the same tolerance, at most {_MOST_EVALUATIONS:,} evaluations and
{duration(_MOST_SECONDS)}. Every evaluation of g takes at least .1 µs, 1 µs, 100 µs or 10 ms: for
`auto` by waiting, since its way depends on it, and for single methods by addition. A single method
counts if all of its runs converge and keep the tolerance. Times are wall times, medians of runs;
use one process on a machine that does nothing else. Every run stands in `data/seconds_runs.csv.gz`:
`seconds` outside g, `g_seconds` inside.
"""
