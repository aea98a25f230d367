"""The study of designs: errors, coverage and tolerances of `nestquad.design.eig`, and rivals."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import design
from nestquad.errors import NestquadError
from nestquad.plots import series_styles
from studies.design import families, problems, rivals
from studies.promises.cells import provenance
from studies.runner.figures import line_figure
from studies.runner.ledger import Outcome, Run, Task
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import of_parity

# Mean errors to reach at 1,000 and 10,000 likelihoods.
_TARGETS = {
    "linear": (0.005, 0.002),
    "psychometric": (0.025, 0.006),
    "death": (0.01, 0.002),
    "sources": (0.2, 0.05),
    "ab_test": (0.02, 0.006),
    "pharmacokinetics": (0.03, 0.006),
}
_BUDGETS = (1e3, 1e4)
_COVERAGE, _KEPT, _WIDEST = 0.90, 0.95, 4.0  # half-width over mean error
_OURS, _TOLERANCE, _COMPARE = "nestquad", "nestquad tol", "nestquad compare"
_TIMES, _IN_ALL, _REGRET = "13 blood times", 20_000, 0.01
_RIVAL_RUNS = 2  # they show the order of magnitude
# The error of exact values by quadrature over simulated data: 3·10⁻⁴, and 10⁻³ for two sources.
_SLACK = {"sources": 1e-3, "linear": 1e-12, "psychometric": 1e-6, "death": 1e-9, "ab_test": 1e-6}
_DEFAULT_SLACK = 3e-4


@dataclass(frozen=True)
class Selection:
    """What to run, and what the tables are made of."""

    problems: tuple[str, ...] = tuple(_TARGETS)
    families: tuple[str, ...] = tuple(families.FAMILIES)
    seeds: tuple[int, ...] = (1, 3, 5, 7, 9)
    parity: str = "odd"
    budgets: tuple[float, ...] = _BUDGETS
    tolerances: tuple[float, ...] = (0.02,)
    runs: int = 100
    rivals: tuple[str, ...] = ()

    @property
    def drawn(self) -> tuple[str, ...]:
        seeds = of_parity(self.seeds, self.parity)
        return tuple(f"{family}-{seed}" for family in self.families for seed in seeds)

    def tasks(self) -> Iterator[Task]:
        for replicate in range(self.runs):
            for goal in self.budgets:
                yield from (Task(name, _OURS, goal, replicate) for name in self.problems)
        # Families have many problems, and need few runs of each.
        few = max(2, self.runs // 20)
        for name in (*self.problems, *self.drawn):
            for replicate in range(few):
                if name in self.drawn:
                    yield from (Task(name, _OURS, goal, replicate) for goal in self.budgets)
                yield from (Task(name, _TOLERANCE, goal, replicate) for goal in self.tolerances)
        if self.problems:
            yield from (Task(_TIMES, _COMPARE, _IN_ALL, r) for r in range(few))
        for goal in rivals.GOALS:
            for name in self.problems:
                fitting = [rival for rival in self.rivals if rivals.fits(rival, name, goal)]
                yield from (Task(name, one, goal, r) for one in fitting for r in range(_RIVAL_RUNS))


def case_of(name: str) -> problems.Case:
    family, _, seed = name.rpartition("-")
    return families.draw(family, int(seed)) if family else problems.case(name)


def _compared(seed: int) -> Outcome:
    """Thirteen designs: the regret of the chosen one, and the share of intervals that cover."""
    experiment, times, exact = problems.blood_times()
    started = time.process_time()
    found = design.compare(experiment, times, budget=_IN_ALL, rng=seed)
    halves = np.array([est.half_width for est in found.estimates])
    return Outcome(
        value=float(found.values[found.best]),
        error=float(exact.max() - exact[found.best]),
        half_width=float(np.median(halves)),
        covered=float(np.mean(np.abs(found.values - exact) <= halves + _DEFAULT_SLACK)),
        evaluations=found.n_evaluations,
        seconds=round(time.process_time() - started, 4),
        chosen=f"{times[found.best]:g}",
    )


def _measure(task: Task) -> Outcome:
    if task.method == _COMPARE:
        return _compared(2 * task.seed + 1)
    case = case_of(task.problem)
    seed, started = 2 * task.seed + 1, time.process_time()  # even ones are to develop on
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if task.method == _OURS:
                found = design.eig(case.experiment, case.design, budget=task.size, rng=seed)
            elif task.method == _TOLERANCE:
                found = design.eig(
                    case.experiment, case.design, tol=task.goal, budget=200_000, rng=seed
                )
            else:
                found = rivals.run(task.method, task.problem, case, task.size, seed)
    except (NestquadError, ArithmeticError, RuntimeError, ValueError) as error:
        return Outcome.failure(error, seconds=time.process_time() - started)
    error = abs(float(found.value) - case.exact)
    slack = _SLACK.get(task.problem.partition("-")[0], _DEFAULT_SLACK)
    return Outcome(
        value=float(found.value),
        error=error,
        half_width=float(found.half_width),
        covered=float(error <= found.half_width + slack),
        evaluations=found.n_evaluations,
        seconds=round(time.process_time() - started, 4),
        status=found.status,
        chosen=f"K={found.diagnostics.get('components', '')}",
    )


def report(selection: Selection, out: Path, jobs: int, fresh: bool, command: str) -> None:
    """Run what the ledger lacks, and write page and data."""
    settings = Settings(jobs=jobs, data=out / "data")
    name = "design_study" if selection.parity == "odd" else f"design_study_{selection.parity}"

    def run(settings: Settings) -> Result:
        runs = settings.runs_of("design", selection.tasks(), _measure, fresh=fresh)
        return tabulate(runs, selection)

    drawings = (Drawing("rivals", "Mean error over the number of likelihoods.", _draw),)
    study = Study(
        name=name,
        title="Information gain",
        about=_ABOUT,
        run=run,
        drawings=drawings if selection.rivals else (),
        command=command,
    )
    study.write(settings, out / f"{name}.md", _HEAD)


def tabulate(runs: list[Run], selection: Selection) -> Result:
    budgets, tolerances, choices, others = [], [], [], []
    groups: dict[tuple[str, str, float], list[Run]] = {}
    for run in runs:
        family = run.problem.rpartition("-")[0]
        name = f"random {family}" if family else run.problem
        groups.setdefault((name, run.method, run.goal), []).append(run)
    for (name, method, goal), mine in groups.items():
        errors = np.array([run.error for run in mine])
        row: dict[str, Any] = {
            "problem": name,
            "goal": goal,
            "runs": len(mine),
            "error": float(np.nanmean(errors)),
            "half": float(np.nanmedian([run.half_width for run in mine])),
            "ratio": float(np.nanmedian([run.half_width for run in mine]) / np.nanmean(errors)),
            "coverage": float(np.mean([run.covered for run in mine])),
            "evaluations": round(float(np.mean([run.evaluations for run in mine]))),
            "seconds": float(np.median([run.seconds for run in mine])),
            "failed": sum(run.failed for run in mine),
        }
        if method == _OURS:
            at = _BUDGETS.index(goal) if goal in _BUDGETS else None
            row["target"] = "" if at is None or name not in _TARGETS else f"{_TARGETS[name][at]:g}"
            budgets.append(row)
        elif method == _TOLERANCE:
            done = [run for run in mine if run.status == "converged"]
            row["converged"] = len(done) / len(mine)
            row["kept"] = float(np.mean([run.error <= goal for run in done])) if done else math.nan
            tolerances.append(row)
        elif method == _COMPARE:
            choices.append({**row, "chosen": ", ".join(sorted({run.chosen for run in mine}))})
        else:
            others.append({**row, "method": method})
    rivals_of = {row["problem"] for row in others}
    others += [{**row, "method": _OURS} for row in budgets if row["problem"] in rivals_of]
    tables = (
        Table(
            "budgets",
            "Fixed numbers of likelihoods, fresh simulations and proposals in each run.",
            columns(
                "goal = likelihoods: count; problem; runs: count; error = mean error: error; "
                "target = to reach: cell; half = median half-width: error; "
                "ratio = half-width / error: number; coverage = 95 % interval covers: percent; "
                "seconds = CPU: seconds; failed: count"
            ),
            tuple(sorted(budgets, key=lambda row: row["goal"])),
        ),
        Table(
            "tolerances",
            "Tolerances, at most 200,000 likelihoods.",
            columns(
                "goal = tolerance: cell; problem; runs: count; converged: percent; kept: percent; "
                "error = mean error: error; evaluations = likelihoods: count; "
                "seconds = CPU: seconds"
            ),
            tuple(tolerances),
        ),
        Table(
            "choices",
            "The best of 13 times of one blood sample (hours), with common random numbers.",
            columns(
                "goal = likelihoods in all: count; problem; runs: count; error = mean regret: "
                "error; chosen; half = median half-width: error; "
                "coverage = 95 % intervals cover: percent; seconds = CPU: seconds"
            ),
            tuple(choices),
        ),
        Table(
            "rivals",
            "Other estimators of the same gain. nestquad's proposals also take up to 65,536 "
            "simulations a run, which are not among the likelihoods; the others take one for each "
            "of their outer draws. Nested Monte Carlo and MLMC draw θ from the prior; Laplace is a "
            "double loop with importance sampling around the mode, written here; vnmc trains a "
            "normal guide, linear in the data and not tuned to the problem, with at least 18,000 "
            "likelihoods; Pyro's Laplace takes 100 steps from the prior mean to the mode of "
            "each of 99 data, and its own error is that of the approximation. So few runs of them "
            "show the order of magnitude.",
            columns(
                "problem; method; evaluations = likelihoods: count; runs: count; "
                "error = mean error: error; seconds = CPU: seconds; failed: count"
            ),
            tuple(sorted(others, key=lambda row: (row["problem"], row["method"], row["goal"]))),
        ),
    )
    states = Counter(run.sources for run in runs)
    listed = ", ".join(f"{count:,} with {name}" for name, count in states.most_common())
    notes = (f"The runs come from {len(states)} states of the code (hashes): {listed}.",)
    return Result(
        notes=notes if len(states) > 1 else (),
        tables=tuple(table for table in tables if table.rows),
        verdicts=tuple(_verdicts(budgets, tolerances, choices)),
        **provenance(runs),
    )


def _draw(result: Result) -> Figure:
    rows = result.table("rivals").rows
    names = list(dict.fromkeys(row["method"] for row in rows))
    styles = dict(zip(names, series_styles(len(names)), strict=True))
    panels: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: row["goal"]):
        if row["error"] == 0.0:  # Laplace is exact for a normal posterior
            continue
        panels.setdefault(row["problem"], {}).setdefault(row["method"], []).append(
            (row["evaluations"], row["error"])
        )
    lines = {
        problem: [(name, *zip(*curve, strict=True), styles[name]) for name, curve in curves.items()]
        for problem, curves in panels.items()
        if problem in ("linear", "psychometric", "pharmacokinetics")
    }
    return line_figure(lines, "likelihoods", "mean error (nats)", width=4.4, height=3.6)


def _verdicts(
    budgets: list[dict[str, Any]], tolerances: list[dict[str, Any]], choices: list[dict[str, Any]]
) -> Iterator[Verdict]:
    for row in choices:
        found = f"{row['error']:.2g} in the mean of {row['runs']} runs"
        met = row["error"] <= _REGRET
        yield Verdict.of(f"regret, {row['problem']}", f"≤ {_REGRET:g}", found, met)
    for row in budgets:
        what = f"{row['problem']}, {row['goal']:,.0f} likelihoods"
        if row["target"]:
            met = row["error"] <= float(row["target"]) if row["runs"] >= 6 else None
            yield Verdict.of(
                f"mean error, {what}", f"≤ {row['target']}", f"{row['error']:.2g}", met
            )
        met = row["ratio"] <= _WIDEST if row["runs"] >= 14 else None
        yield Verdict.of(f"half-width / error, {what}", "≤ 4", f"{row['ratio']:.2g}", met)
        met = row["coverage"] >= _COVERAGE if row["runs"] >= 14 else None
        share = f"{100 * row['coverage']:.0f} % of {row['runs']}"
        yield Verdict.of(f"coverage, {what}", f"≥ {100 * _COVERAGE:.0f} %", share, met)
    if tolerances:
        weights = [row["converged"] * row["runs"] for row in tolerances]
        known = [(row["kept"], w) for row, w in zip(tolerances, weights, strict=True) if w]
        kept = sum(k * w for k, w in known) / sum(w for _, w in known) if known else math.nan
        share = f"{100 * kept:.0f} % of {sum(weights):.0f} converged"
        yield Verdict.of(
            "tolerance kept, all problems", f"≥ {100 * _KEPT:.0f} %", share, kept >= _KEPT
        )


_HEAD = (
    "<!-- Written by `python -m studies design`; change studies/design, not this. -->\n"
    "# Information gain: the study\n"
)
_ABOUT = """
`nestquad.design.eig` on six experiments and on random families of linear, logistic, binomial,
nonlinear-regression and heavy-tailed experiments, whose gain is known by closed form, enumeration
or dense quadrature (`studies/design/problems.py`, `studies/design/families.py`). Runs at one budget
have simulations, proposals and random numbers of their own, with odd seeds; even seeds were to
develop on. Likelihoods are counted; simulations are not, and are at most 65,536 a run.
"""
