"""Ablation: coverage, error and width of the posterior of J with each device switched off.

A device stays if it raises coverage by a point, or cuts error or width by a tenth. Only even seeds
are used; odd seeds are to report. Each run of the joint lattice is analyzed again without each
device: points, model, paths and pairs are the same, so that differences are those of the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import nestquad as nq
from nestquad.methods import JointLattice
from nestquad.methods.learned import JointModel, _base, _posterior
from studies import families
from studies.runner.collect import in_processes, say

DEVICES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "calibration by groups": {"calibrated": False},
    "discrepancy": {"discrepant": False},
    "shape of the discrepancy": {"shaped": False},
    "cross-fitting": {"crossed": False},
    "Student's factor": {"student": False},
    "unseen values of g": {},
    "events of f that few points reach": {},
}
# Functions that return errors of zero instead.
SILENCED = {
    "unseen values of g": "unseen_errors",
    "events of f that few points reach": "unreached_errors",
}


@dataclass(frozen=True)
class Trial:
    """One estimate by the joint lattice."""

    family: str
    seed: int
    budget: int
    run: int


@dataclass(frozen=True)
class Outcome:
    """Error and half-width of a run without a device, and whether the interval covers."""

    error: float
    half_width: float
    covered: bool


def outcomes(trial: Trial) -> tuple[Trial, dict[str, Outcome]]:
    """Outcomes of an estimate by the device that is switched off."""
    problem = families.draw(trial.family, trial.seed)
    truth = families.truth(trial.family, trial.seed)
    slack = truth.error + 1e-12 * max(abs(truth.value), truth.scale)
    turns: list[Any] = []
    analyze, paths, known = JointLattice.analyze, JointModel.paths, {}

    def kept(self: JointLattice, evaluations: Any, last: Any = None) -> Any:
        turns.append((self, evaluations, analyze(self, evaluations, last)))
        return turns[-1][2]

    def once(self: JointModel, n_paths: int, rng: np.random.Generator) -> Any:
        if id(self) not in known:
            known[id(self)] = paths(self, n_paths, rng)
        return known[id(self)]

    results = {}
    with patch.object(JointModel, "paths", once):
        with patch.object(JointLattice, "analyze", kept):
            try:
                nq.estimate(problem, method="joint", budget=trial.budget, rng=seed_of(trial))
            except nq.NestquadError:  # a lattice may leave the domain of f
                return trial, {}
        method, evaluations, turn = turns[-1]
        for device, settings in DEVICES.items():
            turn.state.fit.calibrations.clear()
            with ExitStack() as stack:
                chosen = replace(_posterior.DEFAULT, **settings)
                stack.enter_context(patch.object(_posterior, "DEFAULT", chosen))
                if device in SILENCED:
                    stack.enter_context(patch.object(_base, SILENCED[device], no_errors))
                answer = analyze(method, evaluations, turn).estimate
            error = float(np.max(np.abs(answer.value - truth.value)))
            half = float(np.max(answer.half_width))
            low, high = answer.interval(0.95)
            covered = bool(np.all((low - slack <= truth.value) & (truth.value <= high + slack)))
            results[device] = Outcome(max(error, slack), max(half, slack), covered)
    return trial, results


def seed_of(trial: Trial) -> int:
    return 1000 * trial.run + trial.seed


def no_errors(model: Any, check: Any, average: Any, answers: Any, **_: Any) -> np.ndarray:
    """Directions of no error."""
    return np.zeros((average.final(answers).size, 1))


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
    trials = [
        Trial(family, seed, int(budget), run)
        for budget in budgets
        for run in range(runs)
        for family in names
        for seed in seeds
    ]
    say(f"  {len(trials)} estimates, each analyzed {len(DEVICES)} times")
    found = list(in_processes(outcomes, trials, jobs))
    lines = [
        "# Ablation of the posterior of J",
        "",
        f"Written by `{command}`. Even seeds; the joint lattice alone, each run analyzed again "
        "with each device switched off. Errors and widths are geometric means of ratios to the "
        "first row of a budget, over runs whose interval is finite in both.",
        "",
        "| evaluations | without | runs | covers | error | width | width / error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for budget in budgets:
        mine = [results for trial, results in found if trial.budget == int(budget) and results]
        lines += [_row(int(budget), device, mine) for device in DEVICES]
    (out / "ablation.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    say("\n".join(lines))


def _row(budget: int, device: str, runs: Sequence[dict[str, Outcome]]) -> str:
    pairs = [(results[device], results["nothing"]) for results in runs]
    covered = np.mean([own.covered for own, _ in pairs])
    finite = [
        (own, all_of)
        for own, all_of in pairs
        if math.isfinite(own.half_width) and math.isfinite(all_of.half_width)
    ]
    columns = [
        [math.log(own.error / all_of.error) for own, all_of in finite],
        [math.log(own.half_width / all_of.half_width) for own, all_of in finite],
        [math.log(own.half_width / own.error) for own, _ in finite],
    ]
    ratios = " | ".join(f"{np.exp(np.mean(column)):.2f}" for column in columns)
    return f"| {budget:,} | {device} | {len(pairs)} | {covered:.1%} | {ratios} |"
