"""The study of few evaluations: 32 to 256 evaluations of g, on random and shipped problems.

`JointProcess` chooses its points turn by turn, and its sizes do not depend on the budget. So one
run of the largest budget passes through the answers of all smaller ones, which stand in its trace.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import nestquad as nq
from nestquad.plots import method_styles
from studies import families
from studies.promises.cells import provenance
from studies.runner.figures import line_figure
from studies.runner.ledger import Outcome, Run, Task
from studies.runner.result import Drawing, Figure, Result, Table, Verdict, columns
from studies.runner.study import Settings, Study
from studies.runner.text import geometric

FAMILIES = ("books", "experiments", "decisions", "insurance", "rough", "rare", "smooth", "kinks")
# Shipped problems: relative errors to reach, by number of evaluations.
SHIPPED = {
    "health": {64: 0.05, 128: 0.01},
    "finance": {64: 0.08, 128: 0.05},
    "rainforth": {64: 0.01},
}
BUDGETS = (32, 64, 128, 256)
METHODS = ("process", "sobol", "former auto", "nkq", "nqmc")
_LABELS = {
    "process": "process",
    "sobol": "process, Sobol' points",
    "former auto": "lattice and NQMC",
    "nkq": "nkq",
    "nqmc": "nqmc",
}
# Errors relative to the scale of the answer below this are as good as none.
_FLOOR = 1e-6
_MOST_OUTER, _MOST_INNER, _EACH, _LAST_SEED = 3, 12, 5, 80


@dataclass(frozen=True)
class Selection:
    """What to run: seeds of one parity, problems of each family, replicates of shipped problems."""

    parity: str = "odd"
    each: int = _EACH
    runs: int = 5
    budgets: tuple[int, ...] = BUDGETS

    @property
    def drawn(self) -> tuple[str, ...]:
        """The first problems of each family in 1–3 + 1–12 dimensions with a kept exact value."""
        found: list[tuple[int, str]] = []
        for family in FAMILIES:
            mine = (f"{family}-{seed}" for seed in self._seeds() if _is_small(family, seed))
            found += [(rank, name) for rank, name in zip(range(self.each), mine, strict=False)]
        # One of each family after the other: a study that is cut short has all families.
        return tuple(name for _, name in sorted(found, key=lambda pair: pair[0]))

    def _seeds(self) -> range:
        return range(self.parity == "odd", _LAST_SEED, 2)

    def tasks(self) -> Iterator[Task]:
        for name in self.drawn:
            for method in METHODS:
                yield from (Task(name, method, budget, 0) for budget in self.budgets)
        for name, targets in SHIPPED.items():
            for seed in range(self.runs):
                for method in ("process", "sobol", "former auto"):
                    yield from (Task(name, method, budget, seed) for budget in targets)


def _is_small(family: str, seed: int) -> bool:
    if families.missing([family], [seed]):
        return False
    problem = families.sketch(family, seed).problem
    return problem.outer_law.base_dim <= _MOST_OUTER and problem.inner_base_dim <= _MOST_INNER


def _problem(name: str) -> tuple[nq.NestedExpectation, float, float]:
    """The problem, the scale of its answer, and the error of its exact value."""
    if name in SHIPPED:
        problem = nq.problems.get(name)
        return problem, abs(float(problem.exact)), 0.0
    family, _, seed = name.rpartition("-")
    truth = families.truth(family, int(seed))
    return families.draw(family, int(seed)), truth.scale, truth.error


def _rng(task: Task) -> int:
    """Odd problems have odd seeds of points, so that nothing was tuned on them."""
    odd = task.problem in SHIPPED or int(task.problem.rpartition("-")[2]) % 2
    return 2 * task.seed + int(bool(odd))


@lru_cache(maxsize=8)
def _trace(name: str, rng: int, budget: int) -> dict[int, tuple[float, float]]:
    """Value and half-width by number of evaluations, of one run of the largest budget."""
    problem, _, _ = _problem(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = nq.estimate(problem, method="process", budget=budget, rng=rng)
    half = 1.959964
    return {s.n_evaluations: (float(s.value), half * float(s.std_error)) for s in found.trace}


def _measure(task: Task, largest: int) -> Outcome:
    problem, scale, slack = _problem(task.problem)
    start = time.process_time()
    try:
        if task.method == "process":
            most = max(SHIPPED.get(task.problem, (largest,)))
            value, half = _trace(task.problem, _rng(task), most)[task.size]
        else:
            method: Any = {
                "sobol": nq.JointProcess(active=0.0, first=task.size),
                "former auto": nq.Auto((nq.JointLattice(), nq.NQMC())),
            }.get(task.method, task.method)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = nq.estimate(problem, method=method, budget=task.size, rng=_rng(task))
            value, half = float(found.value), float(found.half_width)
    except Exception as error:
        return Outcome.failure(error, seconds=time.process_time() - start)
    error = abs(value - float(problem.exact))
    return Outcome(
        error=error / scale,
        evaluations=task.size,
        value=value,
        half_width=half / scale,
        covered=float(error <= half + slack),
        seconds=round(time.process_time() - start, 4),
        trace=json.dumps({"scale": scale}),
    )


def _errors(runs: Iterable[Run], method: str, budget: int, problems: Iterable[str]) -> np.ndarray:
    """Relative errors by problem, floored; a failed run is off by the whole scale."""
    found = {(run.problem, run.method, run.goal): run.error for run in runs}
    keys = ((name, method, float(budget)) for name in problems)
    return np.array([max(np.nan_to_num(found.get(key, 1.0), nan=1.0), _FLOOR) for key in keys])


def tabulate(runs: list[Run], selection: Selection) -> Result:
    """Tables and verdicts."""
    drawn, rows, verdicts = selection.drawn, [], []
    pooled: dict[str, list[np.ndarray]] = {"former": [], "best": []}
    for budget in selection.budgets:
        errors = {m: _errors(runs, m, budget, drawn) for m in METHODS}
        mine = [
            r for r in runs if r.method == "process" and r.goal == budget and r.problem in drawn
        ]
        rivals = ("sobol", "nkq", "nqmc")
        best = min((errors[m] for m in rivals), key=geometric)
        oracle = np.min([errors[m] for m in rivals], axis=0)
        pooled["former"].append(errors["process"] / errors["former auto"])
        pooled["best"].append(errors["process"] / best)
        rows.append(
            {"budget": budget, **{m: geometric(errors[m]) for m in METHODS}}
            | {
                "former_ratio": geometric(pooled["former"][-1]),
                "best_ratio": geometric(pooled["best"][-1]),
                "oracle_ratio": geometric(errors["process"] / oracle),
                "sobol_ratio": geometric(errors["process"] / errors["sobol"]),
                "covered": float(np.mean([run.covered for run in mine])),
                "width": float(np.median([r.half_width / max(r.error, _FLOOR) for r in mine])),
            }
        )
    former, best = (geometric(np.concatenate(pooled[key])) for key in ("former", "best"))
    covered = [r.covered for r in runs if r.method == "process" and r.problem in drawn]
    verdicts = [
        Verdict.of("error over that of the former auto, geometric mean", "≤ .5",
                   f"{former:.2f}", former <= 0.5),
        Verdict.of("error over that of the best rival in the geometric mean", "≤ 1.1",
                   f"{best:.2f}", best <= 1.1),
        Verdict.of("coverage of 95 % intervals", "≥ .9",
                   f"{np.mean(covered):.2f} of {len(covered)}", np.mean(covered) >= 0.9),
    ]  # fmt: skip
    if 128 in selection.budgets:
        ratio = next(row["sobol_ratio"] for row in rows if row["budget"] == 128)
        claim = "error of chosen points over that of Sobol' points, 128 evaluations"
        verdicts.append(Verdict.of(claim, "≤ .7", f"{ratio:.2f}", ratio <= 0.7))
    shipped = []
    for name, targets in SHIPPED.items():
        for budget, target in targets.items():
            means = {
                m: float(np.sqrt(np.mean([r.error**2 for r in runs if (r.problem, r.method, r.goal)
                                          == (name, m, budget)])))
                for m in ("process", "sobol", "former auto")
            }  # fmt: skip
            shipped.append({"problem": name, "budget": budget, "target": target, **means})
            claim = f"{name}, {budget} evaluations, relative root mean square error"
            met = means["process"] <= target
            verdicts.append(Verdict.of(claim, f"≤ {target:g}", f"{means['process']:.2g}", met))
    each = [
        {"problem": name, "dimensions": _dimensions(name)}
        | {f"{m} {b}": _errors(runs, m, b, [name])[0] for b in selection.budgets for m in METHODS}
        for name in drawn
    ]
    heads = columns(
        "budget = evaluations: count; process: number; sobol = Sobol' points: number; "
        "former auto: number; nkq: number; nqmc: number; former_ratio = / former auto: number; "
        "best_ratio = / best rival: number; oracle_ratio = / best on each problem: number; "
        "sobol_ratio = / Sobol' points: number; covered: percent; "
        "width = half-width / error, median: number"
    )
    of_shipped = columns(
        "problem; budget = evaluations: count; target: number; process: number; "
        "sobol = Sobol' points: number; former auto: number"
    )
    failed = sum(run.failed for run in runs)
    return Result(
        tables=(
            Table("summary", f"Geometric means of relative errors, {len(drawn)} random problems.",
                  heads, tuple(rows)),
            Table("shipped", "Shipped problems: relative root mean square errors.", of_shipped,
                  tuple(shipped)),
            Table("problems", "", (), tuple(each)),
        ),
        verdicts=tuple(verdicts),
        notes=(f"{failed} runs failed; they count as an error of the whole scale.",),
        **provenance(runs),
    )  # fmt: skip


def _dimensions(name: str) -> str:
    problem = _problem(name)[0]
    return f"{problem.outer_law.base_dim} + {problem.inner_base_dim}"


def _figure(result: Result) -> Figure:
    rows, looks = result.table("summary").rows, method_styles(METHODS)
    x = [row["budget"] for row in rows]
    lines = [(_LABELS[m], x, [row[m] for row in rows], looks[m]) for m in METHODS]
    return line_figure({"": lines}, "evaluations of g", "relative error, geometric mean")


def report(selection: Selection, out: Path, jobs: int, fresh: bool, command: str) -> None:
    """Run what the ledger lacks, and write page, figure and data."""
    name = "few" if selection.parity == "odd" else "few_even"

    def run(settings: Settings) -> Result:
        each = partial(_measure, largest=max(selection.budgets))
        runs = settings.runs_of(name, selection.tasks(), each, fresh=fresh)
        return tabulate(runs, selection)

    caption = "Error by number of evaluations, geometric mean over random problems."
    study = Study(name, "Few evaluations", _ABOUT, run, (Drawing("", caption, _figure),), command)
    settings = Settings(jobs=jobs, data=out / "data")
    study.write(settings, out / f"{name}_study.md", _HEAD)


_HEAD = (
    "<!-- Written by `python -m studies few`; change studies/few.py, not this. -->\n"
    "# Few evaluations, measured\n"
)
_ABOUT = """
Few evaluations of g on random problems of eight families in 1–3 + 1–12 dimensions, one run
each: the first problems of each family that have so few. `JointProcess` with chosen points, the
same with Sobol' points, the candidates of `auto` for larger budgets (lattice and NQMC), NKQ and
NQMC. Errors are relative to the scale of the answer. Even seeds were used for development, odd
seeds are reported. Every run stands in `data/few_runs.csv.gz`.
"""
