"""Learning in limited time: forecasts of turns, and the budget that ends in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nestquad.clock import LEARNING, TimePlan
from nestquad.evaluate import Design
from nestquad.methods._method import Turn, has_transports
from nestquad.methods.learned import LearnedDesign, n_draws
from nestquad.problem import NestedExpectation


def start_plan(problem: NestedExpectation, turn: Turn[Any] | None, seconds_of_g: float) -> TimePlan:
    """The forecast of turns that learn, after the first turn of any method."""
    law, sample = problem.outer_law, turn.estimate.sample if turn else None
    dim = law.base_dim + problem.inner_base_dim if has_transports(problem) else law.dim or 1
    # Each output has a model of its own.
    outputs = 1 if sample is None else max(sample.j[0].size, 1)
    cost = replace(LEARNING, fixed=LEARNING.fixed * outputs)
    return TimePlan.start((20.0 + dim) * outputs, seconds_of_g, cost)


def correct_plan(
    plan: TimePlan, turn: Turn[Any], before: Turn[Any] | None, seconds: float
) -> TimePlan:
    """The forecast after a turn that has taken `seconds`; unchanged without a fit."""
    if not isinstance(turn.design, LearnedDesign):
        return plan
    *sizes, fitted = _sizes(turn.design, before)
    return plan.corrected(seconds, *sizes, fitted=fitted)


def seconds_of(plan: TimePlan, design: Design, last: Turn[Any] | None = None) -> float:
    """Predicted seconds of a design, given the last turn."""
    *sizes, fitted = _sizes(design, last)
    return plan.seconds(*sizes, fitted=fitted)


def _sizes(design: Design, last: Turn[Any] | None) -> tuple[int, int, int, bool]:
    """Points of the fit, points of its check, new evaluations, and whether the fit is new."""
    n, new, learned = design.n_evaluations, design.n_evaluations, 0
    if isinstance(design, LearnedDesign):
        n = design.learning.n_evaluations
    if last is not None:
        new -= last.design.n_evaluations
        if isinstance(last.design, LearnedDesign):
            learned = last.design.learning.n_evaluations
    return n, design.n_evaluations - n, new, n > learned


def budget_in_time(
    plan: TimePlan,
    problem: NestedExpectation,
    last: Turn[Any] | None,
    left: float,
    most: float,
) -> int:
    """Evaluations, with those of the last turn, of a fit and its check that end within `left`."""
    # Seconds of g are known: only analyses need the room for errors of the forecast.
    plan = replace(plan, seconds_of_g=plan.share * plan.seconds_of_g)
    learned, draws = 0, 0
    if last is not None and isinstance(last.design, LearnedDesign):
        learned = last.design.learning.n_evaluations
        draws = last.design.n_evaluations - learned

    def takes(n: int) -> float:
        if not n:
            return 0.0
        checks = max(n_draws(problem, n), draws)
        return plan.seconds(n, 0, n - learned) + plan.seconds(n, checks, checks, fitted=False)

    n = max(plan.largest(takes, left, most), learned)
    if not n:
        return 0
    return int(min(max(n + n_draws(problem, n), learned + draws), most))
