"""The methods as the paper configures them, ours beside, each under one name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from nestquad import MLKQ, MLMC, NKQ, NMC, NQMC, NestedExpectation, estimate
from nestquad.methods import Method
from nestquad.problems import finance, health, synthetic
from studies.paper.part import Series
from studies.runner.ledger import Outcome, Task

# (T, N) as a function of the one size n, by the name that figures give the ratio.
RATIOS: dict[str, Callable[[int], tuple[int, int]]] = {
    "N=√T": lambda n: (n * n, n),
    "N=T": lambda n: (n, n),
    "N=2T": lambda n: (n, 2 * n),
    "N=T²": lambda n: (n, n * n),
}


@lru_cache
def problem_named(name: str) -> NestedExpectation:
    """The paper's problems by name; ``synthetic5`` is the synthetic one with d = 5."""
    if match := re.fullmatch(r"synthetic(\d*)", name):
        return synthetic(int(match[1] or 1))
    return {"finance": finance, "health": health}[name]()


def run_method(
    task: Task, rng: np.random.SeedSequence, method: str | Method, budget: int | None = None
) -> Outcome:
    """One estimate and its error against the exact value."""
    problem = problem_named(task.problem)
    answer = estimate(problem, method=method, budget=budget, rng=rng)
    value = float(np.ravel(answer.value)[0])
    return Outcome(abs(value - _exact(problem)), answer.n_evaluations, value)


def published_nkq(problem: NestedExpectation, n_outer: int, n_inner: int, **how: Any) -> NKQ:
    """NKQ as published on one of the paper's problems."""
    return NKQ.as_published(problem, n_outer=n_outer, n_inner=n_inner, **how)


def _exact(problem: NestedExpectation) -> float:
    return float(np.ravel(np.asarray(problem.exact, dtype=float))[0])


def _nested(
    name: str, label: str, method: Callable[[NestedExpectation, int, int], Method], ratio: str
) -> Series:
    sizes = RATIOS[ratio]

    def run(task: Task, rng: np.random.SeedSequence) -> Outcome:
        return run_method(task, rng, method(problem_named(task.problem), *sizes(task.size)))

    def seconds(n: int) -> float:
        n_outer, n_inner = sizes(n)
        if name.startswith("nkq"):
            return float(0.015 + 1.8e-7 * n_outer * n_inner**1.85 + 1.5e-10 * n_outer**3)
        return 0.003 + 1e-7 * n_outer * n_inner

    return Series(name, label, run, seconds)


def _budgeted(
    name: str,
    label: str,
    method: Callable[[NestedExpectation], Method | str],
    seconds: tuple[float, float],
) -> Series:
    """`size` is the number of evaluations; `seconds` are for a run, and for a million of them."""

    def run(task: Task, rng: np.random.SeedSequence) -> Outcome:
        return run_method(task, rng, method(problem_named(task.problem)), task.size)

    return Series(name, label, run, lambda n: seconds[0] + seconds[1] * n / 1e6)


def _published_mlkq(problem: NestedExpectation) -> MLKQ:
    spaces: dict[str, Any] = {}
    if problem.label == "health":
        spaces = {"inner_space": "normal", "outer_space": "normal"}
    return MLKQ.as_published(problem, **spaces)


def _all() -> list[Series]:
    results = []
    for ratio in RATIOS:
        results += [
            _nested(
                f"nmc {ratio}", f"NMC, {ratio}", lambda p, t, n: NMC(n_outer=t, n_inner=n), ratio
            ),
            _nested(f"nkq {ratio}", f"NKQ, {ratio}", lambda p, t, n: published_nkq(p, t, n), ratio),
        ]
    results += [
        _nested("nqmc N=√T", "NQMC, N=√T", lambda p, t, n: NQMC(n_outer=t, n_inner=n), "N=√T"),
        _nested(
            "nkq-qmc N=T",
            "NKQ (QMC)",
            lambda p, t, n: published_nkq(p, t, n, points="sobol"),
            "N=T",
        ),
        # The appendix has antithetic differences, the equation of the text and the code plain ones.
        _budgeted(
            "mlmc antithetic", "MLMC", lambda p: MLMC.as_published(antithetic=True), (0.01, 0.4)
        ),
        _budgeted(
            "mlmc plain", "MLMC, plain", lambda p: MLMC.as_published(antithetic=False), (0.01, 0.4)
        ),
        _budgeted("mlmc", "MLMC, ours", lambda p: MLMC(), (0.01, 0.3)),
        _budgeted("mlkq published", "MLKQ", _published_mlkq, (0.1, 50.0)),
        _budgeted("mlkq", "MLKQ, ours", lambda p: MLKQ(), (0.1, 20.0)),
        _budgeted("auto", "ours (auto)", lambda p: "auto", (0.6, 60.0)),
    ]
    return results


SERIES: dict[str, Series] = {series.name: series for series in _all()}
