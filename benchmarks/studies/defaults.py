"""The methods as they come: errors, error bars and time on every shipped problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nestquad as nq
from benchmarks._figures import errors_and_coverage
from benchmarks._measure import replicate
from benchmarks._page import error, limit
from benchmarks._study import Column, Drawing, Result, Settings, Study, Table, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TARGETS = {"synthetic": 2e-5, "finance": 6e-3, "health": 6.0}
_BUDGETS = (1_000, 10_000)
_METHODS = ("nmc", "nqmc", "nkq")


def _run(settings: Settings) -> Result:
    fixed, verdicts = _fixed_sizes(settings)
    rows = []
    for problem in nq.problems.all():
        for budget in _BUDGETS[:1] if settings.quick else _BUDGETS:
            for method in _METHODS:
                runs = replicate(problem, method, settings.seeds, budget)
                relative = runs.mean_error / abs(problem.exact)
                name = {"problem": problem.label, "method": method, "budget": budget}
                rows.append({**name, **runs.row(), "relative": relative})
    columns = (
        Column("problem", "problem"),
        Column("method", "method"),
        Column("evaluations", "evaluations", "count"),
        Column("error", "mean error", "error"),
        Column("relative", "relative", "error"),
        Column("coverage", "95 % interval covers", "percent"),
        Column("sharpness", "median half-width / mean error", "number"),
        Column("seconds", "median time", "seconds"),
    )
    caption = f"Every shipped problem at two budgets, {settings.seeds} seeds."
    return Result(
        (fixed, Table("budgets", caption, columns, tuple(rows))), verdicts, _coverage_notes(rows)
    )


def _fixed_sizes(settings: Settings) -> tuple[Table, tuple[Verdict, ...]]:
    rows, verdicts = [], []
    for name, target in _TARGETS.items():
        problem = nq.problems.get(name)
        runs = replicate(problem, nq.NKQ(n_outer=100, n_inner=100), settings.seeds)
        rows.append({"problem": name, **runs.row(), "target": target})
        verdicts.append(
            Verdict(
                f"{name}, default NKQ, N = T = 100, mean error",
                f"≤ {limit(target)}",
                f"{error(runs.mean_error)} ± {error(runs.mean_error_se)}, {settings.seeds} seeds",
                runs.mean_error <= target,
            )
        )
    columns = (
        Column("problem", "problem"),
        Column("seeds", "seeds", "count"),
        Column("error", "mean error", "error"),
        Column("largest", "largest error", "error"),
        Column("coverage", "95 % interval covers", "percent"),
        Column("sharpness", "median half-width / mean error", "number"),
        Column("seconds", "median time", "seconds"),
    )
    return Table("fixed", "Default NKQ at N = T = 100.", columns, tuple(rows)), tuple(verdicts)


def _coverage_notes(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    low = [row for row in rows if row["coverage"] < 0.9]
    if not low:
        return ("Every 95 % interval covers the exact value in at least 90 % of the runs.",)
    listed = ", ".join(
        f"{row['problem']} {row['method']} at {row['budget']:,} ({100 * row['coverage']:.0f} %)"
        for row in low
    )
    return (f"Intervals that cover the exact value in less than 90 % of the runs: {listed}.",)


def _draw(result: Result) -> Figure:
    return errors_and_coverage(result.table("budgets").rows, _METHODS)


STUDY = Study(
    name="defaults",
    title="The methods as they come",
    about="""
`nq.estimate(problem, method=…)` with no settings but the size: first NKQ at N = T = 100 on the
paper's three problems, then all methods on every shipped problem, each free to split the budget as
it likes. Coverage is the share of runs whose 95 % interval holds the exact value; the next column
is how wide the interval is beside the error that it stands for (1.96 / 0.8 ≈ 2.5 for a normal
error of known size).
""",
    run=_run,
    drawings=(
        Drawing(
            _draw,
            "Errors and coverage of all methods on every shipped problem; the band is 90–100 %.",
        ),
    ),
)
