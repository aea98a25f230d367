"""Messages of the logger ``nestquad``: problem, turns, choices of methods, seconds.

The logger is silent until an application configures it::

    logging.basicConfig(level=logging.INFO)                   # answers and choices
    logging.getLogger("nestquad").setLevel(logging.DEBUG)     # and turns and blocks of points

INFO has a line at the start and at the end of an estimation and one for each choice of a method;
DEBUG adds a line for each turn of plan → evaluate → analyze and for each block of points.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nestquad.problem import NestedExpectation
    from nestquad.result import Estimate

__all__ = ["log_answer", "log_choice", "log_points", "log_start", "log_turn"]

_ESTIMATE = logging.getLogger("nestquad.estimate")
_EVALUATE = logging.getLogger("nestquad.evaluate")


def log_start(problem: NestedExpectation, method: str, budget: int | None, goal: str = "") -> None:
    """Start of an estimation: the problem, the method asked for, and the goal."""
    limit = "no budget" if budget is None else f"budget {budget:,}"
    _ESTIMATE.info("%s: %s, %s%s", problem.label, method, limit, f", {goal}" if goal else "")


def log_choice(problem: NestedExpectation, chosen: str, reason: str) -> None:
    """Choice of a method or of a setting, with its reason."""
    _ESTIMATE.info("%s: chose %s: %s", problem.label, chosen, reason)


def log_turn(turn: int, estimate: Estimate, seconds: float) -> None:
    """Turn of plan → evaluate → analyze, with the answer after it, and seconds of an evaluation."""
    if _ESTIMATE.isEnabledFor(logging.DEBUG):
        _ESTIMATE.debug(
            "%s: turn %d, %s, %s evaluations, %.3g s each",
            estimate.problem,
            turn,
            estimate.summary,
            f"{estimate.n_evaluations:,}",
            seconds,
        )


def log_answer(estimate: Estimate) -> None:
    """End of an estimation: its summary in a line, and warnings at their own level."""
    if _ESTIMATE.isEnabledFor(logging.INFO):
        _ESTIMATE.info("%s", estimate)
    for text in estimate.warnings:
        _ESTIMATE.warning("%s: %s", estimate.problem, text)


def log_points(problem: NestedExpectation, text: str, seconds: float) -> None:
    """Block of points: its size, how many values came from a store, seconds of a value."""
    _EVALUATE.debug("%s: %s, %.3g s each", problem.label, text, seconds)
