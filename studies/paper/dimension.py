"""NKQ and NMC as the dimension grows, and where they cross."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nestquad import NMC, NQMC, NestedExpectation
from nestquad.methods import Method
from nestquad.plots import label_ends, new_axes, title
from studies.paper.curves import Curve, Interval
from studies.paper.figures import draw_lines, look
from studies.paper.part import Effort, Part, Runs, Series
from studies.paper.series import problem_named, published_nkq, run_method
from studies.runner.ledger import Outcome, Task, cells
from studies.runner.result import Drawing, Figure, Finding, Verdict
from studies.runner.text import factor

# 4,096 evaluations each: N = T = 64 for NKQ, N = √T = 16 for NMC.
_BUDGET = 4096
_LINES = {
    "dimension nmc": "NMC",
    "dimension nqmc": "NQMC",
    "dimension nkq": "NKQ, i.i.d.",
    "dimension nkq-qmc": "NKQ, QMC",
    "dimension auto": "ours (auto)",
}
_DIMENSIONS = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20)


def _method(name: str, problem: NestedExpectation, budget: int) -> Method | str:
    root, inner = round(budget**0.5), round(budget ** (1 / 3))
    if name == "nmc":
        return NMC(n_outer=budget // inner, n_inner=inner)
    if name == "nqmc":
        return NQMC(n_outer=budget // inner, n_inner=inner)
    if name == "auto":
        return name
    return published_nkq(problem, root, root, points="iid" if name == "nkq" else "sobol")


def _run(series: str) -> Callable[[Task, np.random.SeedSequence], Outcome]:
    name = series.removeprefix("dimension ")

    def run(task: Task, rng: np.random.SeedSequence) -> Outcome:
        method = _method(name, problem_named(task.problem), task.size)
        return run_method(task, rng, method, task.size if name == "auto" else None)

    return run


def _tasks(effort: Effort) -> list[Task]:
    tasks: list[Task] = []
    for dim in _DIMENSIONS[:3] if effort.tiny else _DIMENSIONS:
        for series in _LINES:
            count = effort.runs(3 if series.endswith("auto") else 24)
            tasks += cells(f"synthetic{dim}", series, (_BUDGET,), count)
    return tasks


def _analyze(runs: Runs) -> list[Finding]:
    dims = [dim for dim in _DIMENSIONS if runs.sizes(f"synthetic{dim}", "dimension nkq")]
    lines = {label: _line(runs, series, dims) for series, label in _LINES.items()}
    nmc, nkq, ours = (lines[label] for label in ("NMC", "NKQ, i.i.d.", "ours (auto)"))
    return [
        Finding(
            drawing=Drawing(
                "dimension",
                f"Mean absolute error in units of the answer, {_BUDGET:,} evaluations of g for "
                "every method and dimension; bands from the 25 % to the 75 % quantile.",
                lambda: _draw(lines),
            ),
            verdicts=(gap_closes(nkq, nmc), crossing("NKQ", nkq, nmc), _best_default(ours, lines)),
        )
    ]


def _line(runs: Runs, series: str, dims: list[int]) -> Curve:
    """Relative errors, with the dimension in the place of the cost."""
    errors = []
    for dim in dims:
        name = f"synthetic{dim}"
        exact = float(problem_named(name).exact)
        errors.append(runs.errors(name, series)[_BUDGET] / exact)
    return Curve(np.array(dims, dtype=float), tuple(errors))


def _ratios(nkq: Curve, nmc: Curve) -> list[Interval]:
    """Error of NMC over that of NKQ, by dimension."""
    draws = nmc.resampled(0) / nkq.resampled(1)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    value = nmc.means / nkq.means
    return [Interval(*map(float, numbers)) for numbers in zip(value, low, high, strict=True)]


def gap_closes(nkq: Curve, nmc: Curve) -> Verdict:
    """Whether NKQ wins clearly in the lowest dimension and its lead shrinks towards the highest."""
    first, *_, last = _ratios(nkq, nmc)
    claim = "NKQ outperforms NMC by a huge margin in low dimensions; the gap closes as d grows"
    ours = f"{factor(first.value)} at d = {nkq.costs[0]:.0f}, "
    ours += f"{factor(last.value)} at d = {nkq.costs[-1]:.0f}"
    reason = f"Ratio of errors NMC / NKQ: {first} first, {last} last."
    if first.low > 3 and last.high < first.low / 2:
        return Verdict(claim, "gap closes", ours, "holds", reason)
    if first.high < 1 or last.low > first.high:
        return Verdict(claim, "gap closes", ours, "does not hold", reason)
    return Verdict(claim, "gap closes", ours, "cannot tell", reason)


def crossing(name: str, one: Curve, nmc: Curve) -> Verdict:
    """From which dimension on NMC is at least as good; the paper speaks of no crossing."""
    ratios = _ratios(one, nmc)
    claim = f"Dimension from which on NMC is better than {name}"
    ahead = [d for d, r in zip(one.costs, ratios, strict=True) if r.low > 1]
    behind = [d for d, r in zip(one.costs, ratios, strict=True) if r.high < 1]
    reason = f"Clearly ahead at d = {_listed(ahead)}; clearly behind at d = {_listed(behind)}."
    ours = f"d = {min(behind):.0f}" if behind else "no crossing"
    return Verdict(claim, "–", ours, "ours", reason)


def _best_default(ours: Curve, lines: dict[str, Curve]) -> Verdict:
    others = [curve for label, curve in lines.items() if label != "ours (auto)"]
    best = np.min([curve.means for curve in others], axis=0)
    ratio = best / ours.means
    claim = "Our default beside the best of the others, over all dimensions"
    words = f"{factor(ratio.min())} to {factor(ratio.max())} smaller error"
    worst = float(ours.costs[int(ratio.argmin())])
    reason = f"Ratio of mean errors; the smallest is at d = {worst:.0f}."
    return Verdict(claim, "–", words, "ours", reason)


def _listed(dims: list[float]) -> str:
    return ", ".join(f"{d:.0f}" for d in dims) or "none"


def _draw(lines: dict[str, Curve]) -> Figure:
    figure, (ax,) = new_axes(8.0, 4.6)
    ax.set_yscale("log")
    looks = [look(series.removeprefix("dimension ")) for series in _LINES]
    drawn = [(*line, style) for line, style in zip(lines.items(), looks, strict=True)]
    ends = draw_lines(ax, drawn, exponents=False)
    ax.set_xlabel("dimension d of θ and of x")
    ax.set_ylabel("mean |error| / answer (log scale)")
    ax.set_xticks(lines["NMC"].costs)
    label_ends(ax, ends)
    title(ax, "", "synthetic problem in d dimensions")
    return figure


PARTS = (
    Part(
        name="dimension",
        title="More dimensions",
        source="Experiments, “Synthetic Experiment”, figure “Bottom”",
        about=(
            "g = Σ x_i^2.5 + Σ θ_i^2.5 with d coordinates of each. As published, the kernel is a "
            "product over coordinates, and the number of evaluations is the same for all."
        ),
        tasks=_tasks,
        analyze=_analyze,
        series=tuple(Series(name, _run(name)) for name in _LINES),
    ),
)
