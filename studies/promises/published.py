"""The paper's own configuration: its errors, and how they fall with cost."""

from __future__ import annotations

from typing import Any

import numpy as np

import nestquad as nq
from nestquad.compare import Row
from nestquad.plots import new_axes, plot_comparison
from studies.promises.measure import Replicates, replicate
from studies.runner.result import Column, Drawing, Figure, Result, Table, Verdict
from studies.runner.study import Settings, Study
from studies.runner.text import limit, number

_SIZES = (10, 18, 32, 56, 100, 178, 316)
# One system for each θ is O(N⁴) in all with N = T: the largest size gets a fifth of the seeds.
_LARGE = 300
# The size with a target gets more: now and then i.i.d. points leave a gap at the end of the
# interval, and those few seeds decide the mean.
_GATE, _MORE_SEEDS = 100, 4
_NMC_SIZES = (10, 18, 32, 56, 100)

IID, SOBOL, DEFAULT, NMC = "nkq as published", "nkq as published, Sobol", "nkq", "nmc"


def _run(settings: Settings) -> Result:
    rows: list[dict[str, Any]] = []
    errors: dict[int, np.ndarray] = {}

    def measure(label: str, problem: nq.NestedExpectation, method: Any, seeds: int) -> None:
        runs: Replicates = replicate(problem, method, seeds)
        if (problem.label, label) == ("synthetic", IID):
            errors[method.n_inner] = runs.errors
        rows.append(
            {
                "problem": problem.label,
                "method": label,
                "n_outer": method.n_outer,
                "n_inner": method.n_inner,
                **runs.row(),
            }
        )

    for problem in (nq.problems.synthetic(), nq.problems.finance()):
        sizes = _SIZES if problem.label == "synthetic" else _SIZES[:-1]
        for n in sizes[:4] if settings.quick else sizes:
            seeds = settings.seeds if n < _LARGE else max(settings.seeds // 5, 2)
            at = {"n_outer": n, "n_inner": n}
            more = _MORE_SEEDS if n == _GATE else 1
            measure(IID, problem, nq.NKQ.as_published(problem, **at), more * seeds)
            measure(SOBOL, problem, nq.NKQ.as_published(problem, points="sobol", **at), seeds)
            measure(DEFAULT, problem, nq.NKQ(**at), seeds)
        for n in _NMC_SIZES[:2] if settings.quick else _NMC_SIZES:
            measure(NMC, problem, nq.NMC(n_outer=n * n, n_inner=n), settings.seeds)
    rows.sort(key=lambda row: (row["problem"] != "synthetic", row["method"], row["evaluations"]))
    wide = _wide(rows)
    exponent = next(
        row["r"] for row in wide.rows if (row["problem"], row["method"]) == ("synthetic", IID)
    )
    low, high = _bootstrap(errors)
    return Result(
        tables=(wide, Table("runs", "", (), tuple(rows))),
        verdicts=(
            _within("synthetic", IID, rows, 2e-4),
            Verdict.of(
                "cost exponent r on synthetic, as published, N = T = 10 … 316",
                "≤ 1.0",
                f"{exponent:.2f} (95 % bootstrap interval {low:.2f} … {high:.2f})",
                None if settings.quick else exponent <= 1.0,
            ),
            _within("finance", IID, rows, 0.025),
        ),
        notes=() if _GATE not in errors else (_tail_note(errors[_GATE], settings.seeds),),
    )


def _tail_note(errors: np.ndarray, seeds: int) -> str:
    blocks = errors.reshape(-1, seeds).mean(axis=1)
    median, largest = float(np.median(errors)), float(errors.max())
    return (
        f"Errors of i.i.d. designs have heavy tails: on synthetic at N = T = {_GATE} the median is "
        f"{number(median)} and the largest {number(largest)}, and means over {seeds} seeds "
        f"at a time are {', '.join(number(block) for block in blocks)}."
    )


def _within(problem: str, method: str, rows: list[dict[str, Any]], target: float) -> Verdict:
    claim = f"{problem}, {method}, N = T = 100, mean error"
    for row in rows:
        if (row["problem"], row["method"], row["n_inner"]) == (problem, method, 100):
            measured = f"{number(row['error'])} ± {number(row['error_se'])}, {row['seeds']} seeds"
            return Verdict.of(claim, f"≤ {limit(target)}", measured, row["error"] <= target)
    return Verdict.of(claim, f"≤ {limit(target)}", "–", None)


def fit_exponent(evaluations: Any, errors: Any) -> float:
    """r of cost ∝ Δ^-r: least squares of log cost on log error."""
    return -float(np.polyfit(np.log(errors), np.log(evaluations), 1)[0])


def _bootstrap(errors: dict[int, np.ndarray], draws: int = 1000) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    costs = [n * n for n in errors]
    means = [rng.choice(e, (draws, e.size)).mean(axis=1) for e in errors.values()]
    fits = [fit_exponent(costs, column) for column in np.transpose(means)]
    low, high = np.quantile(fits, [0.025, 0.975])
    return float(low), float(high)


def _wide(rows: list[dict[str, Any]]) -> Table:
    """One line a method, one column a size."""
    sizes = sorted({row["n_inner"] for row in rows})
    lines = []
    for problem, method in dict.fromkeys((row["problem"], row["method"]) for row in rows):
        chosen = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
        line: dict[str, Any] = {"problem": problem, "method": method}
        line |= {str(row["n_inner"]): row["error"] for row in chosen}
        line["r"] = fit_exponent(
            [row["evaluations"] for row in chosen], [row["error"] for row in chosen]
        )
        lines.append(line)
    heads = (
        Column("problem", "problem"),
        Column("method", "method"),
        *(Column(str(n), f"N = {n}", "error") for n in sizes),
        Column("r", "r", "number"),
    )
    caption = (
        "Mean error at T = N (nmc: T = N²), and r of cost ∝ Δ^−r, the regression of log "
        "evaluations on log mean error."
    )
    return Table("errors", caption, heads, tuple(lines))


def _draw(result: Result) -> Figure:
    rows = result.table("runs").rows
    figure, axes = new_axes(14.0, 4.2, columns=2)
    for ax, problem in zip(axes, ("synthetic", "finance"), strict=True):
        chosen = [
            Row(
                row["method"],
                row["evaluations"],
                row["evaluations"],
                float("nan"),
                row["error"],
                None,
                float("nan"),
                float("nan"),
                None,
                row["seconds"],
            )
            for method in (DEFAULT, SOBOL, IID, NMC)  # the first nkq gets the colour of NKQ
            for row in rows
            if (row["problem"], row["method"]) == (problem, method)
        ]
        plot_comparison(nq.Comparison(problem, None, _usual(rows), (*chosen,)), ax)
    return figure


def _usual(rows: tuple[dict[str, Any], ...]) -> int:
    return int(np.median([row["seeds"] for row in rows]))


STUDY = Study(
    name="published",
    title="The paper's configuration",
    about="""
`nq.NKQ.as_published(problem)` is the paper to the letter: i.i.d. points of its own for each θ (or
Sobol points, the variant that it calls QMC), lengthscales by the median heuristic, scheduled λ,
kernels by smoothness (Matérn-3/2 on synthetic, Matérn-1/2 on finance). Beside it the default
`nq.NKQ()` at the same sizes and `nq.NMC` with T = N². N = T = 316 runs with a fifth of the seeds,
because one system of equations for each θ makes it slow; the numbers with a target, N = T = 100
with i.i.d. points, rest on four times as many.
""",
    run=_run,
    drawings=(
        Drawing(
            "", "Mean error against evaluations of g; the exponent of each line beside it.", _draw
        ),
    ),
)
