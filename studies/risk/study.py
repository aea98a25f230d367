"""The study of risk: `risk.measure` beside rivals on random books, by family and measure.

A run is a case (family and seed), a method, a goal and a replicate. A goal of at least one is a
budget; a smaller one is a relative tolerance of the door, for VaR 99, ES 97.5 and P 1 at once and
with at most a million evaluations. One run answers all measures, which stand in its trace: value
and 95 % interval by measure for the door, values by measure and setting for rivals. The best
setting of a rival is chosen in hindsight, for each family, measure and budget.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nestquad.plots import method_styles
from studies import risk
from studies.promises.cells import provenance
from studies.promises.measure import warm_up
from studies.risk.rivals import RIVALS
from studies.risk.seconds import table_rows
from studies.runner.collect import in_processes, say
from studies.runner.figures import line_figure
from studies.runner.ledger import Outcome, Run, Task, by_goal
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import PARITY, of_parity

DOOR = "risk.measure"
METHODS = (DOOR, *RIVALS)
_NAMES = {"nmc": "NMC", "mlmc": "MLMC", "lsmc": "LSMC"}
_MOST_EVALUATIONS, _MOST_SECONDS = 1_000_000, 120.0
# Budgets from which on runs take minutes, and the number of seeds that they are run on.
_LARGE, _FEW_SEEDS = 100_000, 2
# Measures that a tolerance is asked for: the deepest tail needs more than a million evaluations.
_TOLERATED = ("VaR 99", "ES 97.5", "P 1")
# Promises: RMSE at 10,000 evaluations by family, coverage of each measure, tolerances kept.
_PROMISED_AT = 10_000.0
_PROMISED = {
    "book5": {"VaR 99": 0.03, "ES 97.5": 0.03, "P 1": 0.10},
    "book5-exotic": {"VaR 99": 0.03, "ES 97.5": 0.03, "P 1": 0.10},
    "book12": {"VaR 99": 0.06, "ES 97.5": 0.06, "P 1": 0.25},
}
_COVERAGE, _KEPT = 0.90, 0.95
_SHOWN = ("VaR 99", "P 1")
_DRAWN = ("book1", "book5", "book12", "insurer")
# RMSE falls like budget^−rate: nested Monte Carlo at its best split (Gordy and Juneja, 2010),
# multilevel Monte Carlo up to logarithms, regression at best, if its basis had no bias.
_RATES = {"nmc": 1 / 3, "mlmc": 1 / 2, "lsmc": 1 / 2}


@dataclass(frozen=True)
class Selection:
    """What to run, and what the tables are made of."""

    families: tuple[str, ...] = risk.families()
    seeds: tuple[int, ...] = tuple(range(11))
    parity: str = "odd"
    budgets: tuple[float, ...] = (1e3, 1e4, 1e5)
    tolerances: tuple[float, ...] = (0.05,)
    methods: tuple[str, ...] = METHODS
    runs: int = 4

    @property
    def chosen(self) -> tuple[int, ...]:
        """The seeds of cases that are of the parity asked for."""
        return of_parity(self.seeds, self.parity)

    def tasks(self) -> Iterator[Task]:
        for replicate in range(self.runs):
            for name in (f"{family}-{seed}" for family in self.families for seed in self.chosen):
                for method in self.methods:
                    goals = self.budgets + (self.tolerances if method == DOOR else ())
                    yield from (
                        Task(name, method, goal, replicate)
                        for goal in goals
                        if self._wanted(name, goal, replicate)
                    )

    def _wanted(self, name: str, goal: float, replicate: int) -> bool:
        """Large budgets and tolerances take minutes: the first seeds alone, once each."""
        few = [str(seed) for seed in self.chosen[:_FEW_SEEDS]]
        slow = goal < 1 or goal >= _LARGE
        return not slow or (replicate == 0 and name.rpartition("-")[2] in few)


def report(selection: Selection, out: Path, jobs: int, fresh: bool, command: str) -> None:
    """Run what the ledger lacks, and write page, figures and data."""
    settings = Settings(jobs=jobs, data=out / "data")
    suffix = {"odd": "", "even": "_even", "both": "_all"}[selection.parity]
    drawings = tuple(
        Drawing(
            measure.replace(" ", "").lower(),
            f"Relative RMSE of {measure} by evaluations; rivals at their best setting in "
            "hindsight.",
            lambda result, measure=measure: _draw(result, measure),
        )
        for measure in _SHOWN
    )
    study = Study(
        name=f"risk{suffix}",
        title="Risk measures on random books",
        about=_about(selection),
        run=lambda settings: _run(selection, settings, fresh),
        drawings=drawings if len(selection.budgets) > 1 else (),
        command=command,
    )
    study.write(settings, out / f"risk_benchmarks{suffix}.md", _head(selection))


def _run(selection: Selection, settings: Settings, fresh: bool) -> Result:
    _remember(selection, settings.jobs)
    tasks = selection.tasks()
    runs = settings.runs_of("risk", tasks, measure, fresh=fresh, warm_up=warm_up)
    return tabulate(sorted(runs, key=by_goal), selection)


def _remember(selection: Selection, jobs: int) -> None:
    """Compute the truths that are not in the cache."""
    todo = risk.missing(selection.families, selection.chosen)
    if todo:
        say(f"  truths of {len(todo)} cases to compute")
        risk.remember(in_processes(_truth, todo, jobs))


def _truth(which: tuple[str, int]) -> tuple[str, int, dict[str, risk.Truth]]:
    return (*which, risk.truth(*which))


def measure(task: Task) -> Outcome:
    """One run; one that raises is a failed run."""
    case = risk.case_of(task.problem)
    try:
        if task.method == DOOR:
            return _door(case, task)
        start = time.process_time()
        answers, settings = RIVALS[task.method](
            case.problem, case.levels, int(task.goal), task.seed
        )
    except Exception as error:
        return Outcome.failure(error)
    spent = (time.process_time() - start) / settings
    best = [
        min(abs(v / case.truth[name].value - 1) for v in of.values())
        for name, of in answers.items()
        if of
    ]
    trace = {m: {s: float(f"{v:.6g}") for s, v in of.items()} for m, of in answers.items()}
    return Outcome(
        max(best, default=math.inf if answers else 0.0),
        int(task.goal),
        seconds=round(spent, 4),
        trace=json.dumps(trace, separators=(",", ":")),
    )


def _door(case: risk.Case, task: Task) -> Outcome:
    from nestquad import risk as door

    wanted = tuple(risk.MEASURES) if task.goal >= 1 else _TOLERATED
    kinds = {
        kind: tuple(risk.MEASURES[name][1] for name in wanted if risk.MEASURES[name][0] == kind)
        for kind in ("var", "es")
    }
    limits: dict[str, float] = {"budget": int(task.goal)}
    if task.goal < 1:
        limits = {"budget": _MOST_EVALUATIONS, "rtol": task.goal, "max_seconds": _MOST_SECONDS}
    start = time.process_time()
    found = door.measure(
        case.problem,
        **kinds,
        exceed=tuple(case.levels[name] for name in wanted if name in case.levels),
        rng=task.seed,
        **limits,
    )
    spent = time.process_time() - start
    trace, errors, covered, states, used = {}, [], [], set(), 0
    for name in wanted:
        kind, p = risk.MEASURES[name]
        estimates = {"var": found.var, "es": found.es, "p": found.exceed}[kind]
        one, truth = estimates[case.levels.get(name, p)], case.truth[name]
        low, high = (float(end) for end in one.interval(0.95))
        trace[name] = [float(one.value), low, high]
        errors.append(abs(float(one.value) / truth.value - 1))
        covered.append(low - truth.error <= truth.value <= high + truth.error)
        states.add(one.status)
        used = max(used, one.n_evaluations)
    return Outcome(
        max(errors),
        used,
        covered=float(np.mean(covered)),
        seconds=round(spent, 4),
        status=states.pop() if len(states) == 1 else "mixed",
        trace=json.dumps(trace, separators=(",", ":")),
    )


def tabulate(runs: Iterable[Run], selection: Selection) -> Result:
    """Tables and verdicts from the runs that are there."""
    runs = list(runs)
    rows = [
        row
        for goal in selection.budgets
        for family in selection.families
        for measure in risk.MEASURES
        for method in selection.methods
        if (row := _row(runs, family, measure, method, goal)) is not None
    ]
    tolerances = [
        row
        for goal in selection.tolerances
        for family in selection.families
        for measure in _TOLERATED
        if (row := _tolerance_row(runs, family, measure, goal)) is not None
    ]
    same = [row for family in selection.families for row in _same_error(rows, family)]
    tables = (
        Table(
            "same",
            f"Evaluations for the RMSE that {DOOR} has at {_PROMISED_AT:,.0f}. Beyond the largest "
            "budget that was run they are extrapolated at the rates of theory: 1/3 for NMC, 1/2 "
            "for MLMC and, as if its basis had no bias, for LSMC.",
            columns(
                "family; measure; error = RMSE: percent1; "
                "nmc = NMC: evaluations; mlmc = MLMC: evaluations; lsmc = LSMC: evaluations"
            ),
            tuple(same),
        ),
        Table(
            "measures",
            f"Fixed budgets: relative RMSE over cases and runs. {DOOR} has 95 % intervals, whose "
            "coverage and median half-width (a part of the truth) stand beside; rivals have their "
            "best setting in hindsight, and no interval here.",
            columns(
                "goal = evaluations: count; family; measure; rmse = RMSE: percent1; "
                "coverage = covers: percent; width = half-width: percent1; "
                "nmc = NMC: percent1; mlmc = MLMC: percent1; lsmc = LSMC: percent1; "
                "setting = their settings"
            ),
            tuple(_beside(rows)),
        ),
        Table(
            "cost",
            "Evaluations and CPU seconds, those of g included, of a run that answers all measures "
            "(of a rival: in one setting).",
            columns(
                "goal = budget: count; family; method; runs: count; evaluations: count; "
                "seconds: seconds; failed: count"
            ),
            tuple(_costs(rows)),
        ),
        Table("budgets", "", (), tuple(rows)),
        Table(
            "seconds",
            "Equal CPU seconds, those of g included: relative RMSE over one run of each of several "
            "books (`python -m studies.risk.seconds`). Rivals learn from a pilot how many "
            "evaluations fit; seconds are the median of those spent.",
            columns(
                "limit = seconds: count; method; runs: count; evaluations: count; spent: seconds; "
                + "; ".join(f"m{k} = {name}: percent1" for k, name in enumerate(risk.MEASURES))
            ),
            tuple(table_rows()),
        ),
        Table(
            "tolerances",
            f"Relative tolerances for {', '.join(_TOLERATED)} at once, with at most a million "
            "evaluations. “Kept” is the share of converged runs whose error is within it.",
            columns(
                "goal = rtol: cell; family; measure; runs: count; converged: percent; "
                "kept: percent; rmse = RMSE: percent1; evaluations: count; seconds: seconds"
            ),
            tuple(tolerances),
        ),
    )
    return Result(
        tables=tuple(table for table in tables if table.rows),
        verdicts=(
            *_error_verdicts(rows),
            *_coverage_verdicts(rows),
            *_tolerance_verdicts(tolerances),
            *_failure_verdict(runs),
        ),
        **provenance(runs),
    )


def _chosen(runs: Iterable[Run], family: str, method: str, goal: float) -> list[Run]:
    return [
        run
        for run in runs
        if (run.method, run.goal) == (method, goal) and run.problem.rpartition("-")[0] == family
    ]


def _row(
    runs: Iterable[Run], family: str, measure: str, method: str, goal: float
) -> dict[str, Any] | None:
    mine = _chosen(runs, family, method, goal)
    done = [(run, json.loads(run.trace)) for run in mine if not run.failed and run.trace]
    if not mine or not any(measure in trace for _, trace in done):
        return None
    row: dict[str, Any] = {
        "goal": goal,
        "family": family,
        "measure": measure,
        "method": _NAMES.get(method, method),
        "runs": len(mine),
        "failed": sum(run.failed for run in mine),
        "evaluations": float(np.mean([run.evaluations for run, _ in done])),
        "seconds": float(np.mean([run.seconds for run, _ in done])),
    }
    truths = [_truth_of(run, measure) for run, _ in done]
    if method == DOOR:
        found = np.array([trace[measure] for _, trace in done])
        exact = np.array([one.value for one in truths])
        slack = np.array([one.error for one in truths])
        covers = (found[:, 1] - slack <= exact) & (exact <= found[:, 2] + slack)
        # A run that failed has no interval: it does not cover.
        row["coverage"] = float(covers.sum()) / len(mine)
        row["width"] = float(np.median((found[:, 2] - found[:, 1]) / 2 / exact))
        row["rmse"] = _rmse(found[:, 0], exact)
        return row
    errors: dict[str, list[float]] = {}
    for (_, trace), one in zip(done, truths, strict=True):
        for setting, value in trace[measure].items():
            errors.setdefault(setting, []).append(value / one.value - 1)
    # Settings that some cases do not allow, such as a degree, are not theirs.
    full = {s: math.sqrt(np.mean(np.square(e))) for s, e in errors.items() if len(e) == len(done)}
    if not full:
        return None
    row["setting"] = min(full, key=lambda setting: full[setting])
    row["rmse"] = full[row["setting"]]
    return row


def _beside(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A line for each budget, family and measure: the door and its rivals side by side."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["goal"], row["family"], row["measure"])
        line = lines.setdefault(key, dict(zip(("goal", "family", "measure"), key, strict=True)))
        if row["method"] == DOOR:
            line |= {name: row[name] for name in ("rmse", "coverage", "width")}
        else:
            line[row["method"].lower()] = row["rmse"]
            line["setting"] = "; ".join(filter(None, (line.get("setting"), row["setting"])))
    yield from lines.values()


def _costs(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The cost of a run does not depend on the measure."""
    yield from {(r["goal"], r["family"], r["method"]): r for r in rows}.values()


def _rmse(values: np.ndarray, exact: np.ndarray) -> float:
    return math.sqrt(np.mean(np.square(values / exact - 1)))


def _truth_of(run: Run, measure: str) -> risk.Truth:
    family, _, seed = run.problem.rpartition("-")
    return risk.truth(family, int(seed))[measure]


def _tolerance_row(
    runs: Iterable[Run], family: str, measure: str, goal: float
) -> dict[str, Any] | None:
    mine = [run for run in _chosen(runs, family, DOOR, goal) if not run.failed]
    if not mine:
        return None
    values = np.array([json.loads(run.trace)[measure][0] for run in mine])
    truths = [_truth_of(run, measure) for run in mine]
    exact, slack = np.array([t.value for t in truths]), np.array([t.error for t in truths])
    done = np.array([run.status == "converged" for run in mine])
    kept = np.abs(values - exact) <= goal * np.abs(exact) + slack
    return {
        "goal": f"{goal:g}",
        "family": family,
        "measure": measure,
        "runs": len(mine),
        "converged": float(done.mean()),
        "kept": float(kept[done].mean()) if done.any() else math.nan,
        "rmse": _rmse(values, exact),
        "evaluations": float(np.mean([run.evaluations for run in mine])),
        "seconds": float(np.mean([run.seconds for run in mine])),
    }


def _same_error(rows: Iterable[Mapping[str, Any]], family: str) -> Iterator[dict[str, Any]]:
    """Evaluations of each rival for the error of the door."""
    for measure in risk.MEASURES:
        mine = [r for r in rows if (r["family"], r["measure"]) == (family, measure)]
        door = [r for r in mine if (r["method"], r["goal"]) == (DOOR, _PROMISED_AT)]
        if door:
            row: dict[str, Any] = {"family": family, "measure": measure, "error": door[0]["rmse"]}
            for method, name in _NAMES.items():
                curve = [(r["goal"], r["rmse"]) for r in mine if r["method"] == name]
                if curve:
                    row[method] = needed(curve, door[0]["rmse"], _RATES[method])
            yield row


def needed(curve: Iterable[tuple[float, float]], error: float, rate: float) -> float:
    """Evaluations for an error, from budgets and errors.

    The first crossing on lines between logarithms; beyond the largest budget at a known rate, since
    a slope between errors of few runs is noise.
    """
    points = [(math.log(budget), math.log(at)) for budget, at in sorted(curve)]
    wanted = math.log(error)
    if points[0][1] <= wanted:
        return math.exp(points[0][0])
    for (left, high), (right, low) in pairwise(points):
        if low <= wanted:
            return math.exp(right - (wanted - low) * (right - left) / (high - low))
    last, reached = points[-1]
    return math.exp(last + (reached - wanted) / rate)


def _error_verdicts(rows: Iterable[Mapping[str, Any]]) -> Iterator[Verdict]:
    for family, promised in _PROMISED.items():
        for measure, limit in promised.items():
            for row in rows:
                where = (row["family"], row["measure"], row["method"], row["goal"])
                if where == (family, measure, DOOR, _PROMISED_AT):
                    yield Verdict.of(
                        f"relative RMSE of {measure} on {family}, {_PROMISED_AT:,.0f} evaluations",
                        f"≤ {100 * limit:.0f} %",
                        f"{100 * row['rmse']:.1f} %",
                        row["rmse"] <= limit,
                    )


def _coverage_verdicts(rows: Iterable[Mapping[str, Any]]) -> Iterator[Verdict]:
    mine = [row for row in rows if row["method"] == DOOR]
    for goal in sorted({row["goal"] for row in mine}):
        yield _every(
            f"coverage in each family of each measure, {goal:,.0f} evaluations",
            _COVERAGE,
            [row for row in mine if row["goal"] == goal],
            "coverage",
        )


def _tolerance_verdicts(rows: Iterable[Mapping[str, Any]]) -> Iterator[Verdict]:
    rows = list(rows)
    for goal in sorted({row["goal"] for row in rows}):
        mine = [row for row in rows if row["goal"] == goal and math.isfinite(row["kept"])]
        yield _every(f"rtol {goal} kept by converged runs", _KEPT, mine, "kept")


def _every(claim: str, least: float, rows: list[Mapping[str, Any]], key: str) -> Verdict:
    low = [row for row in rows if row[key] < least]
    text = f"{len(rows) - len(low)} of {len(rows)}"
    if low:
        names = (f"{row['family']} {row['measure']} {row[key]:.2f}" for row in low)
        text += "; not " + ", ".join(names)
    return Verdict.of(claim, f"≥ {least}", text, not low if rows else None)


def _failure_verdict(runs: Iterable[Run]) -> Iterator[Verdict]:
    mine = [run for run in runs if run.method == DOOR]
    if mine:
        failed = [run for run in mine if run.failed]
        text = f"{len(failed)} of {len(mine):,}"
        if failed:
            text += f": {failed[0].problem}, {failed[0].chosen}"
        yield Verdict.of(f"runs of {DOOR} that fail", "0", text, not failed)


def _draw(result: Result, measure: str) -> Figure:
    rows = [row for row in result.table("budgets").rows if row["measure"] == measure]
    names = list(dict.fromkeys(row["method"] for row in rows))
    # Rivals look as their namesakes in other figures, the door as auto.
    looks = method_styles(["auto" if name == DOOR else name.lower() for name in names])
    styles: dict[str, Any] = dict(zip(names, looks.values(), strict=True))
    families = list(dict.fromkeys(row["family"] for row in rows))
    shown = [family for family in _DRAWN if family in families] or families[:4]
    panels: dict[str, list[tuple[str, list[float], list[float], Any]]] = {}
    for family in shown:
        lines = []
        for name in names:
            curve = [(row["goal"], row["rmse"]) for row in rows
                     if (row["family"], row["method"]) == (family, name)]  # fmt: skip
            if curve:
                x, y = zip(*sorted(curve), strict=True)
                lines.append((name, list(x), list(y), styles[name]))
        panels[f"{measure}, {family}"] = lines
    return line_figure(panels, "evaluations", "relative RMSE", width=4.2, height=3.6)


def _head(selection: Selection) -> str:
    return (
        "<!-- Written by `python -m studies risk`; change studies/risk, not this. -->\n"
        f"# Risk benchmarks\n\n{PARITY[selection.parity]}\n"
    )


def _about(selection: Selection) -> str:
    listed = "\n".join(f"* {name}: {risk.ABOUT[name]}" for name in selection.families)
    shown = ", ".join(map(str, selection.chosen))
    few = ", ".join(map(str, selection.chosen[:_FEW_SEEDS]))
    return (
        f"A family and a seed make a book, whose loss given a scenario θ has a closed-form mean "
        f"J(θ). Truths of VaR, expected shortfall (ES) and exceedance (P 1 is P(J > c) near 1 %) "
        f"come from J and dense quasi-Monte Carlo. Seeds {shown}; runs of each: "
        f"{selection.runs}. Budgets of {_LARGE:,} and tolerances (at most {_MOST_SECONDS:.0f} "
        f"seconds): seeds {few}, one run. Tables are of the runs that are finished, which the "
        "tables of costs and of tolerances count: rivals may have fewer seeds than the door.\n\n"
        f"{listed}\n\n"
        "Rivals: nested Monte Carlo (NMC) at the best of all splits; multilevel Monte Carlo for "
        "the indicator with adaptive inner sampling (MLMC; Giles and Haji-Ali, 2019), at its best "
        "N_0 and number of levels, for exceedances; least-squares Monte Carlo with one loss a "
        "scenario and all polynomials of the best degree up to three (LSMC). “Best” is in "
        "hindsight, for each family, measure and budget: the smallest of several errors over few "
        "runs is luck in part, in favor of the rivals.\n\n"
        "Every run stands in `data/risk_runs.csv.gz`, every truth with its error in "
        "`studies/risk/truths.csv`."
    )
