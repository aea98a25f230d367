"""Table 1 as measured: evaluations that each method needs for a given error."""

from __future__ import annotations

import numpy as np

from nestquad.plots import End, MethodStyle, label_ends, new_axes, title
from studies.paper.applications import qmc_sizes
from studies.paper.curves import Cost
from studies.paper.figures import look
from studies.paper.multilevel import COMPARED, PROBLEMS, comparison_tasks
from studies.paper.part import Effort, Part, Runs
from studies.paper.series import problem_named
from studies.runner.ledger import Task, cells
from studies.runner.result import Drawing, Figure, Finding, Status, Verdict
from studies.runner.text import count

DELTAS = (0.1, 0.03, 0.01, 0.003)
# Methods are ranked at these errors, and costs this close are not told apart.
_RANKED, _SAME = (0.01, 0.003), 1.25
_METHODS = {s: n for s, n in COMPARED.items() if s not in ("mlkq", "mlmc plain")}
_METHODS["nkq-qmc N=T"] = "NKQ (QMC)"
# NKQ beside its rivals with points of the same kind.
_PAIRS = {"NKQ": ("NMC", "MLMC"), "NKQ (QMC)": ("NQMC",)}
_MARKS = {"measured": "", "at most": "≤ ", "extrapolated": "≈ "}


def _tasks(effort: Effort) -> list[Task]:
    """Those of the comparison, and NKQ with QMC points where that has none."""
    qmc = cells("synthetic", "nkq-qmc N=T", qmc_sizes(effort), effort.runs(36))
    return [*comparison_tasks(effort), *qmc]


def _analyze(runs: Runs) -> list[Finding]:
    costs: dict[tuple[str, str], dict[float, Cost]] = {}
    for problem in PROBLEMS:
        exact = abs(float(problem_named(problem).exact))
        for series, label in _METHODS.items():
            curve = runs.curve(problem, series)
            costs[problem, label] = {delta: curve.cost_of(delta * exact) for delta in DELTAS}
    return [
        Finding(
            text=(
                "The paper's Table 1 has exponents; these are evaluations of g until the mean "
                "error stays below Δ. The three answers differ in size (0.41, 3.07, 248), so "
                "Δ is measured in units of the answer. NKQ with i.i.d. points stands beside "
                "NMC and MLMC, which have such points too, and NKQ with QMC points beside NQMC. "
                "Numbers after ≈ lie beyond the sizes that were run: they are extrapolated with "
                "the fitted exponent, and may be far off. After ≤ the smallest run did it."
            ),
            drawing=Drawing(
                "rates",
                "Evaluations of g until the mean error is below the given part of the answer. "
                "Hollow markers are extrapolated; arrows are upper bounds, where the smallest run "
                "was enough.",
                lambda: _draw(costs),
            ),
            verdicts=tuple(
                ranking(p, delta, {m: costs[p, m][delta] for m in _METHODS.values()}, own)
                for p in PROBLEMS
                for own in _PAIRS
                for delta in _RANKED
            ),
        )
    ]


def _words(cost: Cost) -> str:
    return _MARKS[cost.how] + count(cost.evaluations)


def ranking(problem: str, delta: float, costs: dict[str, Cost], name: str = "NKQ") -> Verdict:
    """Whether NKQ needs fewer evaluations than those of Table 1 with the same kind of points."""
    own, rivals = costs[name], {m: costs[m] for m in _PAIRS[name]}
    best = min(rivals, key=lambda m: rivals[m].evaluations)
    most = rivals[best].evaluations
    ours = costs["ours (auto)"]
    claim = f"{problem}: {name} needs fewer evaluations than {' and '.join(rivals)} "
    claim += f"for a relative error of {delta:g}"
    words = f"{name} {_words(own)}, {best} {_words(rivals[best])}, ours {_words(ours)}"
    reason = f"Costs within a factor of {_SAME:g} are not told apart."
    reason += " Our default needs fewer still." if ours.evaluations < own.evaluations else ""
    status: Status = "cannot tell"
    if own.evaluations * _SAME < most:
        status = "holds"
    elif own.evaluations > _SAME * most and np.isfinite(most):
        status = "does not hold"
    if own.how == "extrapolated" and rivals[best].how == "extrapolated":
        status = "cannot tell"
        reason += " Both are extrapolated."
    return Verdict(claim, "smallest exponent", words, status, reason)


def dashes(style: MethodStyle) -> dict[str, object]:
    """A line without markers in the look of a method."""
    return {"color": style.color, "linestyle": style.dashes, "linewidth": 1.3}


def _draw(costs: dict[tuple[str, str], dict[float, Cost]]) -> Figure:
    figure, axes = new_axes(8.0, 3.8 * len(PROBLEMS), rows=len(PROBLEMS))
    for ax, problem in zip(axes, PROBLEMS, strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ends = []
        for series, label in _METHODS.items():
            style = look(series)
            known = {d: c for d, c in costs[problem, label].items() if c.evaluations < 1e16}
            if not known:
                continue
            # Where the smallest run was enough, its size is a bound: a mark, and no line.
            line = {d: c.evaluations for d, c in known.items() if c.how != "at most"}
            ax.plot(*zip(*line.items(), strict=True), **dashes(style)) if line else None
            for delta, cost in known.items():
                bound = cost.how == "at most"
                look_ = {
                    "color": style.color,
                    "markerfacecolor": "white" if cost.how == "extrapolated" else style.color,
                    "markersize": 9 if bound else 6,
                }
                marker = r"$\downarrow$" if bound else style.marker
                ax.plot(delta, cost.evaluations, marker=marker, **look_)
            last = known[min(known)]
            name = f"{label} ≤ {count(last.evaluations)}" if last.how == "at most" else label
            ends.append(End(last.evaluations, name, style.color, min(known)))
        ax.set_xticks(DELTAS, [f"{d:g}" for d in DELTAS])
        ax.minorticks_off()
        ax.invert_xaxis()
        ax.set_xlabel("Δ / I, mean error in units of the answer (log scale)")
        ax.set_ylabel("evaluations of g (log scale)")
        label_ends(ax, ends)
        title(ax, "", problem)
    return figure


PARTS = (
    Part(
        name="rates",
        title="Evaluations for a given error",
        source="Table 1",
        about="Read off the curves of the figures above, between sizes that were run.",
        tasks=_tasks,
        analyze=_analyze,
    ),
)
