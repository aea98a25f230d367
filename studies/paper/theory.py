"""The allocation of Corollary 1, tried: whether the N and T it suggests reach the error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad import allocate
from nestquad.plots import AVERAGE, INK, End, label_ends, new_axes, title
from studies.paper.curves import Array, Curve
from studies.paper.figures import draw_lines, look
from studies.paper.part import Effort, Part, Runs
from studies.paper.series import problem_named
from studies.runner.ledger import Task, cells
from studies.runner.result import Drawing, Figure, Finding, Verdict
from studies.runner.text import number

_LINES = {"nkq": "nkq N=T", "nmc": "nmc N=√T"}
_LABELS = {"nkq": "NKQ", "nmc": "NMC"}


@dataclass(frozen=True)
class Trial:
    """Runs with the sizes that theory suggests for an error of `delta`."""

    delta: float
    errors: Array


_DELTAS: dict[tuple[str, str], tuple[float, ...]] = {
    ("synthetic", "nkq"): (0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4),
    ("synthetic", "nmc"): (0.3, 0.1, 0.03, 0.01),
    ("finance", "nkq"): (0.3, 0.1, 0.03, 0.01),
    ("finance", "nmc"): (0.3, 0.1, 0.03, 0.01),
}


def _size(problem: str, method: str, delta: float) -> int:
    """n of N = T = n for NKQ, of N = √T = n for NMC: what the corollary suggests."""
    s_x, s_theta = problem_named(problem).smoothness or (1.0, 1.0)
    result = allocate(delta, method, s_x=s_x, s_theta=s_theta)
    assert result.n_inner is not None
    return max(result.n_inner, 2)


def _tasks(effort: Effort) -> list[Task]:
    return [
        task
        for (problem, method), deltas in _DELTAS.items()
        for delta in (deltas[:3] if effort.tiny else deltas)
        for task in cells(
            problem, _LINES[method], (_size(problem, method, delta),), effort.runs(50)
        )
    ]


def _analyze(runs: Runs) -> list[Finding]:
    trials = {}
    for (problem, method), deltas in _DELTAS.items():
        errors = runs.errors(problem, _LINES[method])
        sizes = {delta: _size(problem, method, delta) for delta in deltas}
        trials[problem, method] = [
            Trial(delta, errors[n]) for delta, n in sizes.items() if n in errors
        ]
    results = [keeps_pace(p, _LABELS[method], list_) for (p, method), list_ in trials.items()]
    return [
        Finding(
            text=(
                "Corollary 1 gives N and T up to constants and logarithms, which it leaves "
                "open. Here the constant is 1: N = T = Δ^(−1/2) on the synthetic problem and "
                "Δ^(−1) on finance; for NMC N = √T = Δ^(−1). The corollary holds if error / Δ "
                "does not grow as Δ falls, whatever its size."
            ),
            drawing=Drawing(
                "theory",
                "Error with the suggested sizes, in units of the Δ asked for: mean, and the "
                "range from the 5 % to the 95 % quantile. On or below the dashed line Δ is "
                "reached.",
                lambda: _draw(trials),
            ),
            verdicts=tuple(results),
        )
    ]


def keeps_pace(problem: str, method: str, trials: list[Trial]) -> Verdict:
    """Whether the error falls at least as fast as Δ: error / Δ does not grow."""
    claim = f"{problem}: with the suggested sizes the error of {method} is of order Δ"
    ratios = np.array([trial.errors.mean() / trial.delta for trial in trials])
    ours = f"error / Δ from {number(ratios[0])} to {number(ratios[-1])}"
    deltas = [trial.delta for trial in trials]
    paper = "N × T suffices for |error| ≤ Δ"
    if len(trials) < 3:
        return Verdict(claim, paper, ours, "cannot tell", "Too few Δ.")
    rng = np.random.default_rng(0)
    slopes = []
    for _ in range(300):
        means = [rng.choice(trial.errors, trial.errors.size).mean() for trial in trials]
        slopes.append(np.polyfit(np.log(deltas), np.log(means), 1)[0])
    low, high = np.quantile(slopes, [0.025, 0.975])
    reason = f"error ∝ Δ^a with a from {low:.2f} to {high:.2f} (95 %); of order Δ is a = 1."
    if high < 0.9:
        return Verdict(claim, paper, ours, "does not hold", reason)
    if low > 1.1 and ratios[-1] <= 1:  # a faster rate alone does not reach Δ
        return Verdict(claim, paper, ours, "holds better", reason)
    return Verdict(claim, paper, ours, "holds", reason)


def _draw(trials: dict[tuple[str, str], list[Trial]]) -> Figure:
    figure, axes = new_axes(8.0, 7.6, rows=2)
    for ax, problem in zip(axes, ("synthetic", "finance"), strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        lines = [
            (
                _LABELS[method],
                Curve(
                    np.array([trial.delta for trial in trials[problem, method]]),
                    tuple(trial.errors / trial.delta for trial in trials[problem, method]),
                ),
                look(method),
            )
            for method in _LINES
        ]
        ends = draw_lines(ax, lines, exponents=False, band=(0.05, 0.95))
        ax.axhline(1.0, color=INK, linewidth=0.9, linestyle=AVERAGE)
        ends.append(End(1.0, "error = Δ", INK))
        ax.invert_xaxis()
        ax.set_xlabel("Δ asked for (log scale)")
        ax.set_ylabel("|error| / Δ (log scale)")
        label_ends(ax, ends)
        title(ax, "", problem)
    return figure


PARTS = (
    Part(
        name="theory",
        title="The corollary's sizes",
        source="Corollary 1, and the choice of N and T in the experiments",
        about="For a given Δ the suggested N and T are taken, and the error is compared with Δ.",
        tasks=_tasks,
        analyze=_analyze,
    ),
)
