"""Ablation: coverage, error, width and CPU of the posterior of J with each device switched off.

A device stays if it raises coverage by a point, or cuts error or width by a tenth. Only even seeds
are used; odd seeds are to report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nestquad.methods.learned import _posterior
from studies import families
from studies.promises.measure import measure
from studies.runner.collect import in_processes, say
from studies.runner.ledger import Outcome

DEVICES = {
    "calibration by groups": {"calibrated": False},
    "prior of the calibration": {"prior_dof": 0.0},
    "discrepancy": {"discrepant": False},
    "shape of the discrepancy": {"shaped": False},
    "Student's factor": {"student": False},
    "random sign of biases": {"decisive": 0.0},
    "step at jumps of f": {"visible": 0.0},
}


@dataclass(frozen=True)
class Trial:
    """One estimate: problem, method, budget, run, and the device that is switched off."""

    family: str
    seed: int
    method: str
    budget: int
    run: int
    without: str


def outcome(trial: Trial) -> tuple[Trial, Outcome, float]:
    """The estimate with other settings of the posterior, and the scale of the problem."""
    truth = families.truth(trial.family, trial.seed)
    before = _posterior.DEFAULT
    _posterior.DEFAULT = replace(before, **DEVICES.get(trial.without, {}))
    try:
        problem = families.draw(trial.family, trial.seed)
        slack = truth.error + 1e-12 * max(abs(truth.value), truth.scale)
        seed = 1000 * trial.run + trial.seed
        return trial, measure(problem, trial.method, seed, slack=slack, budget=trial.budget), slack
    finally:
        _posterior.DEFAULT = before


def ablate(
    names: Sequence[str],
    seeds: Sequence[int],
    budgets: Sequence[float],
    runs: int,
    out: Path,
    jobs: int,
    command: str,
) -> None:
    """Run all trials and write docs/ablation.md."""
    variants = ("", *DEVICES)
    trials = [
        Trial(family, seed, method, int(budget), run, without)
        for budget in budgets
        for run in range(runs)
        for family in names
        for seed in seeds
        for method, without in [*(("joint", v) for v in variants), ("auto", "")]
    ]
    say(f"  {len(trials)} estimates")
    results = {
        (t.budget, t.method, t.without, t.family, t.seed, t.run): (o, slack)
        for t, o, slack in in_processes(outcome, trials, jobs)
    }
    lines = [
        "# Ablation of the posterior of J",
        "",
        f"Written by `{command}`. Even seeds; the joint lattice alone with each device switched "
        "off, beside all of them, and `auto`, which adds pilots of a plain rule. Errors and widths "
        "are geometric means of ratios to the first row of a budget, over common runs.",
        "",
        "| evaluations | without | runs | covers | error | width | width / error | CPU s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for budget in budgets:
        base = {k[3:]: v for k, v in results.items() if k[:3] == (int(budget), "joint", "")}
        for method, without in [("joint", v) for v in variants] + [("auto", "")]:
            mine = {k[3:]: v for k, v in results.items() if k[:3] == (int(budget), method, without)}
            label = without or "nothing"
            lines.append(
                _row(int(budget), label if method == "joint" else "nothing, auto", mine, base)
            )
    (out / "ablation.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    say("\n".join(lines))


Results = dict[tuple[str, int, int], tuple[Outcome, float]]


def _row(budget: int, label: str, mine: Results, base: Results) -> str:
    covered, errors, widths, sharp, seconds = [], [], [], [], []
    for key, (own, slack) in mine.items():
        other = base[key][0]
        covered.append(own.covered)
        seconds.append(own.seconds)
        if not (math.isfinite(own.half_width) and math.isfinite(other.half_width)):
            continue
        mine_error, error = max(own.error, slack), max(other.error, slack)
        errors.append(math.log(mine_error / error))
        widths.append(math.log(max(own.half_width, slack) / max(other.half_width, slack)))
        sharp.append(math.log(max(own.half_width, slack) / mine_error))
    ratios = (float(np.exp(np.mean(one))) for one in (errors, widths, sharp))
    cells = " | ".join(f"{one:.2f}" for one in ratios)
    return (
        f"| {budget:,} | {label} | {len(covered)} | {np.mean(covered):.1%} | {cells} "
        f"| {np.median(seconds):.2f} |"
    )
