"""The study of families: coverage, tolerances, error and cost by family, and the worst problems.

A run is a problem (family and seed), a method, a goal and a replicate. A goal of at least one is a
budget. A smaller goal is a tolerance, relative to the exact value (method ``auto rtol``) or a part
of the problem's scale (method ``auto tol``), with at most a million evaluations. The method
``certified`` is auto with ``certify=True``, judged by the certified interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from nestquad.methods import Certificate
from nestquad.plots import AVERAGE, INK, method_styles, new_axes
from studies import families
from studies.promises.cells import (
    Cell,
    Key,
    beside_foreseen,
    best_single,
    notes_of,
    provenance,
    ratio,
)
from studies.promises.measure import ALL_METHODS, CERTIFIED, ROUNDING, measure, warm_up
from studies.runner.collect import in_processes, say
from studies.runner.figures import BAND, name_axis
from studies.runner.ledger import Outcome, Run, Task, by_goal
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import PARITY, geometric, of_parity

_MOST_EVALUATIONS = 1_000_000
_MOST_SECONDS = 120.0
_KINDS = ("tol", "rtol")
# What the documentation promises; rare events and noise may need more than a million.
_COVERAGE, _LEAST_COVERAGE, _ENOUGH_RUNS = 0.93, 0.80, 20
_KEPT, _CONVERGED, _HARD = 0.95, 0.80, ("rare", "noisy")
_BESIDE_BEST, _WORST_BESIDE_BEST = 1.5, 4.0
_NARROWER, _PLAIN = 5.0, ("nqmc", "mlmc")
_TOGETHER = f"all but {' and '.join(_HARD)}"
_SHOWN_WORST = 15
_LEVELS = (50, 80, 90, 95, 99)  # per cent
_OURS = ("auto", CERTIFIED)
METHODS = (*_OURS, *ALL_METHODS[1:])
_MOST_RATIO = 1e6  # of an error to its half-width, which may be zero


@dataclass(frozen=True)
class Selection:
    """What to run, and what the tables are made of."""

    families: tuple[str, ...] = families.families()
    seeds: tuple[int, ...] = tuple(range(11))
    parity: str = "odd"
    budgets: tuple[float, ...] = (1e3, 1e4, 1e5)
    tolerances: tuple[float, ...] = (1e-2, 1e-3)
    methods: tuple[str, ...] = METHODS
    runs: int = 2

    @property
    def chosen(self) -> tuple[int, ...]:
        """The seeds of problems that are of the parity asked for."""
        return of_parity(self.seeds, self.parity)

    def problems(self) -> Iterator[str]:
        for family in self.families:
            yield from (f"{family}-{seed}" for seed in self.chosen)

    def tasks(self) -> Iterator[Task]:
        for replicate in range(self.runs):
            for name in self.problems():
                for method in self.methods:
                    # A certificate refuses fewer.
                    least = 2 * Certificate.fewest if method == CERTIFIED else 0
                    for budget in (one for one in self.budgets if one >= least):
                        yield Task(name, method, budget, replicate)
                for kind in _KINDS if "auto" in self.methods else ():
                    for tolerance in self.tolerances:
                        yield Task(name, f"auto {kind}", tolerance, replicate)


def report(selection: Selection, out: Path, jobs: int, fresh: bool, command: str) -> None:
    """Run what the ledger lacks, and write page, figure and data."""
    settings = Settings(jobs=jobs, fresh=False, data=out / "data")
    name = {"odd": "families", "even": "families_even", "both": "families_all"}[selection.parity]
    study = Study(
        name=name,
        title="Families of random problems",
        about=_about(selection),
        run=lambda settings: _run(selection, settings, fresh),
        drawings=(Drawing("", "Coverage and sharpness of auto by family.", _draw),)
        if selection.budgets and "auto" in selection.methods
        else (),
        command=command,
    )
    study.write(settings, out / f"{name}.md", _head(selection))


def _run(selection: Selection, settings: Settings, fresh: bool) -> Result:
    _remember(selection, settings.jobs)
    tasks = selection.tasks()
    runs = settings.runs_of("families", tasks, _measure, fresh=fresh, warm_up=warm_up)
    return tabulate(sorted(runs, key=by_goal), selection)


def _remember(selection: Selection, jobs: int) -> None:
    """Compute the exact values that are not in the cache."""
    todo = families.missing(selection.families, selection.chosen)
    if todo:
        say(f"  {len(todo)} exact values to compute")
    batch = []
    for one in in_processes(_exact, todo, jobs):
        batch.append(one)
        if len(batch) % 20 == 0:
            families.remember(batch)
    if batch:
        families.remember(batch)


def _exact(which: tuple[str, int]) -> tuple[str, int, families.Truth]:
    return (*which, families.truth(*which))


def _measure(task: Task) -> Outcome:
    family, _, seed = task.problem.rpartition("-")
    truth = families.truth(family, int(seed))
    limits: dict[str, float | None] = {"budget": int(task.goal), "max_seconds": _MOST_SECONDS}
    method, _, kind = task.method.partition(" ")
    if kind:
        scale = truth.scale if kind == "tol" else 1.0
        limits |= {"budget": _MOST_EVALUATIONS, kind: task.goal * scale}
    try:
        problem = families.draw(family, int(seed))
        # The exact value has an error of its own.
        return measure(problem, method, task.seed, slack=_slack(task.problem), **limits)
    except Exception as error:
        return Outcome.failure(error)


def tabulate(runs: list[Run], selection: Selection) -> Result:
    """Tables and verdicts from the runs that are there."""
    cells = _cells(runs)
    problems = [_problem_row(key, cell, cells) for key, cell in cells.items()]
    budgets = [
        _family_row(family, method, budget, problems)
        for budget in selection.budgets
        for method in selection.methods
        for family in (*selection.families, "all")
    ]
    tolerances = [
        _tolerance_row(family, kind, tolerance, problems)
        for tolerance in selection.tolerances
        for kind in _KINDS
        for family in (*selection.families, "all")
    ]
    budgets, tolerances = ([row for row in rows if row["runs"]] for rows in (budgets, tolerances))
    narrower = [
        _narrower_row(family, goal, cells)
        for goal in selection.budgets
        for family in (*selection.families, _TOGETHER, "all")
    ]
    narrower = [row for row in narrower if any(row[f"{method}_known"] for method in _PLAIN)]
    missed = [row for row in problems if row["method"] == "auto" and row["coverage"] < 1]
    worst = sorted(missed, key=lambda row: (row["coverage"], -row["beyond"]))[:_SHOWN_WORST]
    tables = (
        Table(
            "families",
            "Fixed budgets. Errors are parts of the problem's scale, half-widths parts of the "
            "error: both geometric means over problems of medians over runs. “Beside the best” "
            "is the error over that of the best single method that was run, in hindsight: the "
            "smallest of several means over few runs is luck in part. “Beside the foreseen” "
            "takes the method that was best in the other runs. Infinite half-widths cover, are "
            "counted, and are left out of half-width / error.",
            columns(
                "goal = evaluations: count; family; method; problems: count; runs: count; "
                "coverage = 95 % interval covers: percent; worst = worst problem; "
                "relative = error / scale: error; sharpness = half-width / error: error; "
                "infinite: count; "
                "ratio = beside the best: error; ratio_worst = at worst: error; "
                "foreseen = beside the foreseen: error; "
                "seconds = CPU beyond g: seconds; failed: count"
            ),
            tuple(row for row in budgets if row["method"] in _OURS),
        ),
        Table(
            "levels",
            "Quantiles of |error| / half-width over all runs of `auto`, beside those of a Student "
            "variable with one degree of freedom, which intervals at levels other than 95 % "
            "assume for learned models.",
            columns(
                "goal = evaluations: cell; runs: count; "
                + "; ".join(f"q{level} = {level} %: error" for level in _LEVELS)
            ),
            _level_rows(runs, selection.budgets),
        ),
        Table(
            "certified",
            "Half-widths of plain methods over the certified half-width at equal budgets, which "
            "is by how much the certified interval is narrower: geometric means over problems of "
            "medians over runs, and their smallest. Problems where a median is infinite are left "
            "out and counted.",
            columns(
                "goal = evaluations: count; family; nqmc = NQMC / certified: error; "
                "nqmc_least = at least: error; nqmc_out = left out: count; "
                "mlmc = MLMC / certified: error; mlmc_least = at least: error; "
                "mlmc_out = left out: count"
            ),
            tuple(narrower),
        ),
        Table(
            "tolerances",
            "Tolerances with at most a million evaluations: tol is a part of the scale, rtol "
            "of the exact value. “Kept” is the share of the converged runs whose error is "
            "within the tolerance.",
            columns(
                "goal = tolerance: cell; kind; family; runs: count; "
                "converged: percent; kept: percent; worst = worst problem; "
                "used = error / tolerance: error; evaluations: count; "
                "seconds = CPU beyond g: seconds; failed: count"
            ),
            tuple(tolerances),
        ),
        Table(
            "methods",
            "Single methods at fixed budgets, as `auto` above.",
            columns(
                "goal = evaluations: count; family; method; runs: count; "
                "coverage = 95 % interval covers: percent; relative = error / scale: error; "
                "sharpness = half-width / error: error; infinite: count; "
                "seconds = CPU beyond g: seconds; failed: count"
            ),
            tuple(row for row in budgets if row["method"] not in _OURS),
        ),
        Table(
            "worst",
            "The problems that are covered least, at fixed budgets. Error over half-width is the "
            "largest of the runs, cut at a million.",
            columns(
                "problem; goal = evaluations: count; coverage = covers: percent; "
                "exact = exact value: cell; relative = error / scale: error; "
                "beyond = error / half-width: error; chosen; about"
            ),
            tuple(worst),
        ),
        Table("problems", "", (), tuple(problems)),
    )
    return Result(
        tables=tuple(table for table in tables if table.rows),
        verdicts=(
            *_budget_verdicts(budgets, problems),
            *_certified_verdicts(budgets, narrower),
            *_tolerance_verdicts(tolerances),
            *_failure_verdict(problems),
        ),
        notes=notes_of(cells),
        **provenance(runs),
    )


def _level_rows(runs: list[Run], budgets: Iterable[float]) -> tuple[dict[str, Any], ...]:
    """Quantiles of errors in units of the half-width, by budget, and those that are assumed."""
    rows: list[dict[str, Any]] = []
    for budget in budgets:
        mine = [run for run in runs if (run.method, run.goal) == ("auto", budget)]
        done = [run for run in mine if run.half_width > 0 and not run.failed]
        if done:
            found = np.percentile([run.error / run.half_width for run in done], _LEVELS)
            row = {"goal": f"{budget:,.0f}", "runs": len(done)}
            rows.append(row | {f"q{k}": float(q) for k, q in zip(_LEVELS, found, strict=True)})
    if not rows:
        return ()
    assumed = stdtrit(1.0, 0.5 + np.array(_LEVELS) / 200.0) / stdtrit(1.0, 0.975)
    student = {f"q{k}": float(q) for k, q in zip(_LEVELS, assumed, strict=True)}
    return (*rows, {"goal": "Student", "runs": 0} | student)


def _cells(runs: Iterable[Run]) -> dict[Key, Cell]:
    grouped: dict[Key, list[Run]] = {}
    for run in runs:
        grouped.setdefault((run.problem, run.method, run.goal), []).append(run)
    return {key: Cell(tuple(mine), _slack(key[0])) for key, mine in grouped.items()}


def _slack(problem: str) -> float:
    """Errors below that of the exact value are equal to it in comparisons."""
    truth = _truth(problem)
    return truth.error + _rounding(problem)


def _rounding(problem: str) -> float:
    """Rounding of the terms that are averaged, where the answer itself may be zero."""
    truth = _truth(problem)
    return ROUNDING * max(abs(truth.value), truth.scale)


def _truth(problem: str) -> families.Truth:
    family, _, seed = problem.rpartition("-")
    return families.truth(family, int(seed))


def _problem_row(key: Key, cell: Cell, cells: dict[Key, Cell]) -> dict[str, Any]:
    problem, method, goal = key
    family, _, seed = problem.rpartition("-")
    truth, done = _truth(problem), cell.finished
    errors = np.array([max(run.error, cell.floor) for run in done])
    halves = np.nan_to_num([run.half_width for run in done], nan=0.0, posinf=np.inf)
    halves = np.maximum(halves, errors / _MOST_RATIO)
    known = np.isfinite(halves)
    row = {
        **cell.row(),
        "family": family,
        "runs": len(cell.runs),
        "exact": f"{truth.value:.6g}",
        "about": families.sketch(family, int(seed)).about,
        "relative": float(np.median(errors)) / truth.scale if done else math.nan,
        "sharpness": float(np.median(halves[known]) / np.median(errors[known]))
        if known.any()
        else math.nan,
        "infinite": int((~known).sum()),
        "beyond": float((errors / halves).max()) if done else _MOST_RATIO,
    }
    best = best_single(cells, problem, goal) if method == "auto" and goal >= 1 else None
    if best is not None and done:  # failures have a column and a verdict of their own
        row["best"], row["ratio"] = best.runs[0].method, ratio(cell, best)[0]
        row["foreseen"] = beside_foreseen(cells, problem, goal)
    if goal < 1:
        limit = goal * (truth.scale if method.endswith(" tol") else abs(truth.value)) + cell.floor
        converged = [run for run in done if run.status == "converged"]
        row["converged"] = len(converged)
        row["kept"] = sum(run.error <= limit for run in converged)
        row["used"] = float(np.mean([run.error / limit for run in done])) if done else math.nan
    return row


def _mine(family: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if family in ("all", row["family"])]


def _family_row(
    family: str, method: str, goal: float, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    mine = [r for r in _mine(family, rows) if (r["method"], r["goal"]) == (method, goal)]
    runs = sum(row["runs"] for row in mine)
    row = {"family": family, "method": method, "goal": goal, "problems": len(mine), "runs": runs}
    if not runs:
        return row
    lowest = min(mine, key=lambda one: (one["coverage"], -one["beyond"]))
    ratios = [one["ratio"] for one in mine if "ratio" in one]
    return {
        **row,
        "coverage": sum(one["coverage"] * one["runs"] for one in mine) / runs,
        "worst": f"{lowest['problem']} {100 * lowest['coverage']:.0f} %",
        "relative": geometric(one["relative"] for one in mine),
        "sharpness": geometric(one["sharpness"] for one in mine),
        "ratio": geometric(ratios),
        "ratio_worst": max(ratios, default=math.nan),
        "foreseen": geometric(one.get("foreseen", math.nan) for one in mine),
        "infinite": sum(one["infinite"] for one in mine),
        **_costs(mine),
    }


def _narrower_row(family: str, goal: float, cells: dict[Key, Cell]) -> dict[str, Any]:
    """Half-widths of plain methods over that of the certificate."""
    row: dict[str, Any] = {"family": family, "goal": goal}
    for method in _PLAIN:
        ratios = []
        for problem, name, at in cells:
            mine = family in ("all", problem.rpartition("-")[0])
            mine |= family == _TOGETHER and problem.rpartition("-")[0] not in _HARD
            other = cells.get((problem, method, goal))
            if mine and (name, at) == (CERTIFIED, goal) and other is not None:
                ratios.append(_half_width(other) / _half_width(cells[problem, name, at]))
        known = [one for one in ratios if math.isfinite(one) and one > 0]
        row[method], row[f"{method}_least"] = geometric(known), min(known, default=math.nan)
        row[f"{method}_out"] = len(ratios) - len(known)
        row[f"{method}_known"] = len(known)
    return row


def _half_width(cell: Cell) -> float:
    """Median of the finished runs, at least rounding."""
    halves = [max(run.half_width, _rounding(run.problem)) for run in cell.finished]
    return float(np.median(halves)) if halves else math.nan


def _tolerance_row(
    family: str, kind: str, goal: float, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    mine = [r for r in _mine(family, rows) if (r["method"], r["goal"]) == (f"auto {kind}", goal)]
    runs = sum(row["runs"] for row in mine)
    row = {"family": family, "kind": kind, "goal": f"{goal:g}", "runs": runs}
    if not runs:
        return row
    converged = sum(one["converged"] for one in mine)
    broken = max(mine, key=lambda one: one["converged"] - one["kept"])
    missed = broken["converged"] - broken["kept"]
    return {
        **row,
        "converged": converged / runs,
        "kept": sum(one["kept"] for one in mine) / converged if converged else math.nan,
        "worst": f"{broken['problem']}, {missed} of {broken['converged']}" if missed else "–",
        "used": geometric(one["used"] for one in mine),
        **_costs(mine),
    }


def _costs(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    done = [row for row in rows if row["evaluations"] is not None]
    return {
        "evaluations": round(float(np.mean([row["evaluations"] for row in done])))
        if done
        else None,
        "seconds": float(np.mean([row["seconds"] for row in done])) if done else math.nan,
        "failed": sum(row["failed"] for row in rows),
    }


def _every(
    claim: str, target: str, rows: list[dict[str, Any]], key: str, good: Callable[[float], bool]
) -> Verdict:
    """A promise for every family: who keeps it, and the numbers of those who do not."""
    known = [
        row for row in rows if row["family"] != "all" and math.isfinite(row.get(key, math.nan))
    ]
    missed = [row for row in known if not good(row[key])]
    text = f"{len(known) - len(missed)} of {len(known)}"
    if missed:
        text += "; not " + ", ".join(f"{row['family']} {row[key]:.2f}" for row in missed)
    return Verdict.of(claim, target, text if known else "–", not missed if known else None)


def _budget_verdicts(
    rows: list[dict[str, Any]], problems: list[dict[str, Any]]
) -> Iterator[Verdict]:
    for goal in sorted({row["goal"] for row in rows}):
        mine = [row for row in rows if row["goal"] == goal and row["method"] == "auto"]
        at = f"{goal:,.0f} evaluations"
        claim = f"coverage of auto in every family, {at}"
        yield _every(claim, f"≥ {_COVERAGE}", mine, "coverage", lambda v: v >= _COVERAGE)
        many = [
            row
            for row in problems
            if (row["method"], row["goal"]) == ("auto", goal) and row["runs"] >= _ENOUGH_RUNS
        ]
        low = [
            f"{r['problem']} {r['coverage']:.2f}" for r in many if r["coverage"] < _LEAST_COVERAGE
        ]
        if many:
            kept = f"{len(many) - len(low)} of {len(many)}"
            yield Verdict.of(
                f"coverage of auto on every problem with {_ENOUGH_RUNS} runs, {at}",
                f"≥ {_LEAST_COVERAGE}",
                kept + ("; not " + ", ".join(low) if low else ""),
                not low,
            )
        if not any(math.isfinite(row["ratio"]) for row in mine):
            continue  # no other method was run
        claim = f"error of auto beside the best single method, {at}"
        yield _every(f"{claim}, geometric mean", f"≤ {_BESIDE_BEST}", mine, "ratio",
                     lambda v: v <= _BESIDE_BEST)  # fmt: skip
        yield _every(f"{claim}, worst problem", f"≤ {_WORST_BESIDE_BEST}", mine, "ratio_worst",
                     lambda v: v <= _WORST_BESIDE_BEST)  # fmt: skip


def _certified_verdicts(
    rows: list[dict[str, Any]], narrower: list[dict[str, Any]]
) -> Iterator[Verdict]:
    for goal in sorted({row["goal"] for row in rows if row["method"] == CERTIFIED}):
        mine = [row for row in rows if (row["goal"], row["method"]) == (goal, CERTIFIED)]
        at = f"{goal:,.0f} evaluations"
        claim = f"coverage of certified intervals in every family, {at}"
        yield _every(claim, f"≥ {_COVERAGE}", mine, "coverage", lambda v: v >= _COVERAGE)
        for row in narrower:
            for method in _PLAIN if (row["goal"], row["family"]) == (goal, _TOGETHER) else ():
                if row[f"{method}_known"]:
                    yield Verdict.of(
                        f"half-width of {method} over the certified one, geometric mean over "
                        f"{_TOGETHER}, {at}",
                        f"≥ {_NARROWER:g}",
                        f"{row[method]:.1f} ({row[f'{method}_known']} problems)",
                        row[method] >= _NARROWER,
                    )


def _failure_verdict(problems: list[dict[str, Any]]) -> Iterator[Verdict]:
    mine = [row for row in problems if row["method"].partition(" ")[0] in _OURS]
    if mine:
        broken = [f"{row['problem']} {row['failed']}" for row in mine if row["failed"]]
        runs, failed = (sum(row[name] for row in mine) for name in ("runs", "failed"))
        text = f"{failed} of {runs:,}" + (f": {', '.join(broken)}" if broken else "")
        yield Verdict.of("runs of auto that fail", "0", text, not failed)


def _tolerance_verdicts(rows: list[dict[str, Any]]) -> Iterator[Verdict]:
    for kind, goal in sorted({(row["kind"], row["goal"]) for row in rows}):
        mine = [row for row in rows if (row["kind"], row["goal"]) == (kind, goal)]
        yield _every(f"{kind} {goal} kept by converged runs", f"≥ {_KEPT}", mine, "kept",
                     lambda v: v >= _KEPT)  # fmt: skip
        easy = [row for row in mine if row["family"] not in _HARD]
        yield _every(f"{kind} {goal}: runs that converge, without {' and '.join(_HARD)}",
                     f"≥ {_CONVERGED}", easy, "converged", lambda v: v >= _CONVERGED)  # fmt: skip


def _draw(result: Result) -> Figure:
    rows = [r for r in result.table("families").rows if r["method"] == "auto" and r["runs"]]
    dots = [r for r in result.table("problems").rows if r["method"] == "auto" and r["goal"] >= 1]
    names = list(dict.fromkeys(row["family"] for row in rows))[::-1]
    budgets = sorted({row["goal"] for row in rows})
    shifts = np.linspace(0.2, -0.2, len(budgets)) if len(budgets) > 1 else np.zeros(len(budgets))
    look = method_styles(["auto"])["auto"]
    figure, (left, right) = new_axes(12.0, 0.5 * len(names) + 1.2, columns=2)
    for budget, shift in zip(budgets, shifts, strict=True):
        face = look.color if budget == budgets[-1] else "white"
        style = {"marker": "o", "color": look.color, "markerfacecolor": face, "linestyle": ""}
        mine = [row for row in rows if row["goal"] == budget]
        heights = [names.index(row["family"]) + shift for row in mine]
        label = f"{budget:,.0f} evaluations"
        left.plot([100 * row["coverage"] for row in mine], heights, **style, label=label)
        at = [row for row in dots if row["goal"] == budget and row["sharpness"] is not None]
        for row in at:
            width = min(max(row["sharpness"], 1e-3), 1e3)
            right.plot(width, names.index(row["family"]) + shift, **style, alpha=0.5, markersize=4)
    left.axvspan(100 * _COVERAGE, 100, color=BAND, alpha=0.5, zorder=0)
    left.set_xlim(right=102)
    left.set_xlabel("runs whose 95 % interval covers the exact value (%)")
    right.axvline(1.0, color=INK, linewidth=1.0, linestyle=AVERAGE)
    right.set_xscale("log")
    right.set_xlabel("half-width / error, a dot for each problem (log scale)")
    for ax in (left, right):
        name_axis(ax, names, shown=ax is left)
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=len(budgets), frameon=False)
    return figure


def _head(selection: Selection) -> str:
    return (
        "<!-- Written by `python -m studies families`; change studies/families, not this. -->\n"
        f"# Families\n\n{PARITY[selection.parity]}\n"
    )


def _about(selection: Selection) -> str:
    listed = "\n".join(f"* {name}: {families.ABOUT[name]}" for name in selection.families)
    shown = ", ".join(map(str, selection.chosen))
    return (
        f"A family and a seed make a problem with its exact value, by closed forms, enumeration "
        f"and quadrature that use no estimator of nestquad. {PARITY[selection.parity]} Here: "
        f"seeds {shown}; runs of each: {selection.runs}.\n\n{listed}\n\n"
        "Every run stands in `data/families_runs.csv.gz` with the hash of the sources, every exact "
        "value with its own error in `studies/families/truths.csv`."
    )
