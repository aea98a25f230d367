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
    task: Task,
    rng: np.random.SeedSequence,
    method: str | Method,
    budget: int | None = None,
    problem: NestedExpectation | None = None,
) -> Outcome:
    """One estimate and its error against the exact value."""
    problem = problem or problem_named(task.problem)
    answer = estimate(problem, method=method, budget=budget, rng=rng)
    value = float(np.ravel(answer.value)[0])
    exact = float(np.ravel(np.asarray(problem.exact, dtype=float))[0])
    return Outcome(abs(value - exact), answer.n_evaluations, value)


def published_nkq(problem: NestedExpectation, n_outer: int, n_inner: int, **how: Any) -> NKQ:
    """NKQ as published on one of the paper's problems."""
    return NKQ.as_published(problem, n_outer=n_outer, n_inner=n_inner, **how)


def _nested(
    name: str, method: Callable[[NestedExpectation, int, int], Method], ratio: str
) -> Series:
    def run(task: Task, rng: np.random.SeedSequence) -> Outcome:
        sizes = RATIOS[ratio](task.size)
        return run_method(task, rng, method(problem_named(task.problem), *sizes))

    return Series(f"{name} {ratio}", run)


def _budgeted(name: str, method: Callable[[NestedExpectation], Method | str]) -> Series:
    """A method whose size is the number of evaluations."""

    def run(task: Task, rng: np.random.SeedSequence) -> Outcome:
        return run_method(task, rng, method(problem_named(task.problem)), task.size)

    return Series(name, run)


def _published_mlkq(problem: NestedExpectation) -> MLKQ:
    spaces: dict[str, Any] = {}
    if problem.label == "health":
        spaces = {"inner_space": "normal", "outer_space": "normal"}
    return MLKQ.as_published(problem, **spaces)


_ALL = [
    *(_nested("nmc", lambda p, t, n: NMC(n_outer=t, n_inner=n), ratio) for ratio in RATIOS),
    *(_nested("nkq", published_nkq, ratio) for ratio in RATIOS),
    _nested("nqmc", lambda p, t, n: NQMC(n_outer=t, n_inner=n), "N=√T"),
    _nested("nkq-qmc", lambda p, t, n: published_nkq(p, t, n, points="sobol"), "N=T"),
    # The appendix has antithetic differences, the equation of the text and the code plain ones.
    _budgeted("mlmc antithetic", lambda p: MLMC.as_published(antithetic=True)),
    _budgeted("mlmc plain", lambda p: MLMC.as_published(antithetic=False)),
    _budgeted("mlmc", lambda p: MLMC()),
    _budgeted("mlkq published", _published_mlkq),
    _budgeted("mlkq", lambda p: MLKQ()),
    _budgeted("auto", lambda p: "auto"),
]
SERIES: dict[str, Series] = {series.name: series for series in _ALL}
