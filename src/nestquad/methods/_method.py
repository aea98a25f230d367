"""The protocol of a method: plan, analyze, and the typed turn between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from nestquad import limits
from nestquad._typing import Array
from nestquad.accuracy import size_of
from nestquad.errors import EvaluationError, InputError
from nestquad.evaluate import Design, Evaluations
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

State = TypeVar("State")


@dataclass(frozen=True)
class Goal:
    """The request: a budget, a tolerance, or both.

    `budget` is the number of evaluations that must not be exceeded. With `adaptive` a tolerance
    decides when to stop: start small, and grow where the error is. `half_width` is the half-width
    of the 95 % interval to reach; it is known from the second turn on. `pilot` is the size of the
    first design where a budget is spent in several turns. With `hurried` time counts and not the
    number of evaluations; `seconds` is the remaining time, if it is limited.
    """

    stream: Stream
    budget: int | None = None
    adaptive: bool = False
    half_width: float | None = None
    pilot: int | None = None
    hurried: bool = False
    seconds: float | None = None


@dataclass(frozen=True)
class Turn(Generic[State]):
    """One turn of plan, evaluate, analyse.

    Attributes
    ----------
    design
        The evaluated design.
    estimate
        The answer, for the user. Its `diagnostics` are for people; no code reads them.
    state
        The method's own state for its next turn: error parts, rates, fitted models.
    final
        Whether more evaluations would not help, since other errors are larger.
    tentative
        Whether there are too few points to show that a tolerance is met.
    """

    design: Design
    estimate: Estimate
    state: State
    final: bool = False
    tentative: bool = False


class Method(ABC, Generic[State]):
    """A way of estimating nested expectations.

    A method never calls g. It says where g is to be evaluated (`plan`) and turns the values into
    an answer (`analyze`); everything between is written once, for all methods.
    """

    name: ClassVar[str]
    sequential: ClassVar[bool] = False
    """Whether a fixed budget, too, is spent in several turns, each planned from the last."""
    averages: ClassVar[bool] = True
    """Whether answers are averages of f(J), one unit for each; quantiles of a sum are not."""

    plain: ClassVar[bool] = False
    """Whether the answer is an average of f at means of g, with nothing learned."""
    most: ClassVar[int] = limits.BUDGET
    """The most evaluations that the method uses; larger budgets are for others."""

    @abstractmethod
    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[State] | None = None
    ) -> Design | None:
        """The next design, which contains that of the last turn; None if it cannot grow.

        Towards a tolerance (`goal.adaptive`) it grows by a step, else by the whole budget.
        """

    @abstractmethod
    def analyze(self, evaluations: Evaluations, last: Turn[State] | None = None) -> Turn[State]:
        """The answer from a design's evaluations; `last` only speeds up the fits."""


def assembled(
    problem: NestedExpectation,
    answers: Array,
    parts: Mapping[str, Array],
    diagnostics: Mapping[str, Any],
    **fields: Any,
) -> Estimate:
    """The estimate from q expectations, and directions (k, m) of each part of its error."""
    value = problem.finish(answers)
    if not np.isfinite(value).all():
        raise EvaluationError(f"combine returned {value} for I = {answers}")
    sizes = {name: size_of(part) for name, part in parts.items()}
    return Estimate.from_directions(
        value,
        np.concatenate(list(parts.values()), axis=1),
        problem=problem,
        diagnostics={"answers": answers, "error_parts": sizes, **diagnostics},
        **fields,
    )


def has_transports(problem: NestedExpectation) -> bool:
    """Whether both laws are transports, as low-discrepancy points and models of g require."""
    law = problem.outer_law
    if law.has_transport:
        law = problem.inner_law(law.middle())
    return law.has_transport


def require_transports(problem: NestedExpectation, method: str) -> None:
    """Refuse laws that can only be sampled: the method needs the uniforms behind θ and x."""
    if not has_transports(problem):
        raise InputError(
            "inner" if problem.outer_law.has_transport else "outer",
            "a law that can only be sampled",
            f"a law that is a transport of uniforms, in which method {method!r} models g",
            "Use method='nmc', or describe the simulator by nq.Transport.",
        )
