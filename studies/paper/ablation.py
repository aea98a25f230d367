"""What λ_0, the lengthscale and the kernel change, as in the appendix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from nestquad import NKQ, Gaussian, KernelQuadrature, Matern
from nestquad.kernels import Kernel
from nestquad.rules import Schedule, scheduled_lambda
from studies.paper.curves import Curve, common_cost, gain
from studies.paper.figures import error_figure, line_looks, look
from studies.paper.part import Effort, Part, Runs, Series
from studies.paper.series import problem_named, published_nkq, run_method
from studies.paper.verdicts import above_one, with_sensitivity
from studies.runner.ledger import Outcome, Task, cells
from studies.runner.result import Drawing, Finding, Status, Verdict
from studies.runner.text import factor, number

Change = Callable[[KernelQuadrature, int], KernelQuadrature]
"""A stage as published and its number of points → the stage with one setting changed."""

_LAMBDAS = (0.001, 0.01, 0.1, 1.0, 10.0)
_LENGTHSCALES = (0.01, 0.1, 1.0, 10.0)
# All kernels of a panel have the same λ_0; a Gaussian kernel has no s, so it has that of
# Matérn-3/2, or the smallest ridge that keeps its weights tame.
_KERNELS: dict[str, Kernel] = {"Matérn-1/2": Matern(0.5), "Matérn-3/2": Matern(1.5)}
_SAME_LAMBDA, _RIDGE = "Gaussian, λ of s = 2", "Gaussian, smallest ridge"

# Claims of the appendix: the first setting is worse than the second.
_WORSE = (
    ("A λ_0 that is too big (10) converges more slowly", "λ_0 = 10", "λ_0 = 1"),
    (
        "A λ_0 that is too small (0.001) is worse (the paper: numerical issues)",
        *("λ_0 = 0.001", "λ_0 = 1"),
    ),
    ("A lengthscale that is too big (10) is worse than the median", "γ = 10", "median"),
    ("A lengthscale that is too small (1) is worse than the median", "γ = 1", "median"),
    ("A much smaller lengthscale (0.01) is worse than the median", "γ = 0.01", "median"),
    ("Matérn-1/2 is worse than Matérn-3/2", "Matérn-1/2", "Matérn-3/2"),
)


def _changes() -> dict[str, dict[str, Change]]:
    """By panel and label; what is not there is the published configuration itself."""
    kernels: dict[str, Change] = {
        n: _setting(kernel=kernel, regularization=Schedule((1.0,)))
        for n, kernel in _KERNELS.items()
    }
    kernels[_SAME_LAMBDA] = _gaussian_with_schedule
    kernels[_RIDGE] = _setting(kernel=Gaussian())
    return {
        "λ_0": {f"λ_0 = {v:g}": _setting(regularization=Schedule((v,))) for v in _LAMBDAS},
        "lengthscale": {
            f"γ = {v:g}": _setting(kernel=Matern(1.5, v), lengthscale="fixed")
            for v in _LENGTHSCALES
        },
        "kernel": kernels,
    }


def _setting(**changes: Any) -> Change:
    return lambda stage, n: replace(stage, **changes)


def _gaussian_with_schedule(stage: KernelQuadrature, n: int) -> KernelQuadrature:
    """The Gaussian kernel with the λ that Matérn-3/2 has for λ_0 = 1."""
    lam = scheduled_lambda(1.0, n, smoothness=2.0, dim=1)
    return replace(stage, kernel=Gaussian(), regularization=lam)


def _run(change: Change) -> Callable[[Task, np.random.SeedSequence], Outcome]:
    def run(task: Task, rng: np.random.SeedSequence) -> Outcome:
        method: NKQ = published_nkq(problem_named(task.problem), task.size, task.size)
        assert isinstance(method.outer, KernelQuadrature)
        inner, outer = (change(stage, task.size) for stage in (method.inner, method.outer))
        return run_method(task, rng, replace(method, inner=inner, outer=outer))

    return run


def _tasks(effort: Effort) -> list[Task]:
    names = [f"ablation {label}" for panel in _changes().values() for label in panel]
    sizes, reps = effort.sizes(10, 18, 32, 56, 100), effort.runs(24)
    return [
        *cells("synthetic", [*names, "nkq N=T"], sizes, reps),
        *cells("synthetic", "nmc N=√T", effort.sizes(5, 10, 18), reps),
    ]


def _analyze(runs: Runs) -> list[Finding]:
    nmc, median = runs.curve("synthetic", "nmc N=√T"), runs.curve("synthetic", "nkq N=T")
    panels: dict[str, dict[str, Curve]] = {
        panel: {label: runs.curve("synthetic", f"ablation {label}") for label in labels}
        for panel, labels in _changes().items()
    }
    panels["lengthscale"]["median"] = median
    titles = {
        "λ_0": "regularization λ_0 (both stages)",
        "lengthscale": "lengthscale γ (both stages)",
        "kernel": "kernel (both stages, λ_0 = 1)",
    }
    drawn = {
        titles[panel]: [
            *((name, c, s) for (name, c), s in zip(curves.items(), line_looks(6), strict=False)),
            ("NMC", nmc, look("nmc")),
        ]
        for panel, curves in panels.items()
    }
    lambdas, _, kernels = panels.values()
    curves = {label: curve for own in panels.values() for label, curve in own.items()}
    return [
        Finding(
            drawing=Drawing(
                "ablation",
                "NKQ as published on the synthetic problem, one setting changed at a time; "
                "mean absolute error and 25–75 % bands, NMC for comparison.",
                lambda: error_figure(drawn),
            ),
            verdicts=(
                best_are(
                    "λ_0 = 1 and 0.1 give the best performance", lambdas, ("λ_0 = 1", "λ_0 = 0.1")
                ),
                *(worse_than(claim, curves[one], curves[other]) for claim, one, other in _WORSE),
                with_sensitivity(
                    similar(kernels[_SAME_LAMBDA], kernels["Matérn-3/2"]),
                    "the smallest ridge for the Gaussian kernel",
                    similar(kernels[_RIDGE], kernels["Matérn-3/2"]),
                ),
            ),
        )
    ]


def best_are(claim: str, curves: dict[str, Curve], named: tuple[str, ...]) -> Verdict:
    """Whether the settings named have the smallest errors at the largest size."""
    last = {name: float(curve.means[-1]) for name, curve in curves.items()}
    ranked = sorted(last, key=lambda name: last[name])
    ours = ", ".join(f"{name}: {number(last[name])}" for name in ranked)
    paper = " and ".join(named)
    reason = f"Errors at the largest size, the smallest first; {ranked[0]} is the best."
    if set(ranked[: len(named)]) == set(named):
        return Verdict(claim, paper, ours, "holds", reason)
    cost = common_cost(*(curves[name] for name in ranked[:2]))
    lead = max(gain(curves[ranked[0]], curves[name], cost, paired=True).low for name in named)
    status = "does not hold" if lead > 1 else "cannot tell"
    return Verdict(claim, paper, ours, status, reason)


def worse_than(claim: str, one: Curve, other: Curve) -> Verdict:
    """Whether the first setting has the clearly larger error at the largest size."""
    ratio = gain(other, one, common_cost(one, other), paired=True)
    ours = _words(ratio.value)
    reason = f"Ratio of errors at the largest size, on the same points: {ratio}."
    return above_one(claim, "worse", ours, ratio, reason)


def _words(ratio: float) -> str:
    return f"{factor(ratio)} the error" if ratio >= 1 else f"{factor(1 / ratio)} smaller error"


def similar(gaussian: Curve, matern: Curve) -> Verdict:
    """Whether the errors at the largest size are within a factor of 3 of each other."""
    ratio = gain(gaussian, matern, common_cost(gaussian, matern), paired=True)
    claim = "A Gaussian kernel performs similarly to Matérn-3/2"
    ours = f"{_words(1 / ratio.value)} with the Gaussian"
    reason = f"Ratio of errors at the largest size: {ratio}; similar is a factor of at most 3."
    status: Status = "holds" if 1 / 3 <= ratio.value <= 3 else "cannot tell"
    if ratio.low > 3 or ratio.high < 1 / 3:
        status = "does not hold"
    return Verdict(claim, "similar", ours, status, reason)


PARTS = (
    Part(
        name="ablation",
        title="Regularization, lengthscale and kernel",
        source="Appendix, figure “Further ablation studies in the synthetic experiment”",
        about=(
            "The synthetic problem with N = T. The schedule of λ is λ_0 N^(−2s/d) "
            "(log N)^((2s+2)/d). Kernels are compared at λ_0 = 1. A Gaussian kernel has no finite "
            "s: it is run with the λ of s = 2, as Matérn-3/2 has, and with the smallest ridge that "
            "keeps its weights tame. All settings have the same points, and all computations here "
            "are in double precision."
        ),
        tasks=_tasks,
        analyze=_analyze,
        series=tuple(
            Series(f"ablation {label}", _run(change), "nkq N=T")
            for panel in _changes().values()
            for label, change in panel.items()
        ),
    ),
)
