"""What a method is: a plan for evaluating g, and an analysis of the values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from nestquad.evaluate import Design, Evaluations
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["Goal", "Method", "State", "Turn"]

State = TypeVar("State")


@dataclass(frozen=True)
class Goal:
    """The request: a budget, a tolerance, or both.

    `budget` is the number of evaluations that must not be exceeded. With `adaptive` a tolerance
    decides when to stop: start small, and grow where the error is. `half_width` is the half-width
    of the 95 % interval to reach; it is known from the second turn on. `pilot` is the size of the
    first design where a budget is spent in several turns.
    """

    stream: Stream
    budget: int | None = None
    adaptive: bool = False
    half_width: float | None = None
    pilot: int | None = None


@dataclass(frozen=True)
class Turn(Generic[State]):
    """One turn of plan, evaluate, analyse.

    Attributes
    ----------
    design
        What was evaluated.
    estimate
        The answer, for the user. Its `diagnostics` are for people: nothing reads them back.
    state
        What the method carries to its next turn: error parts, rates, fitted models.
    """

    design: Design
    estimate: Estimate
    state: State


class Method(ABC, Generic[State]):
    """A way of estimating nested expectations.

    A method never calls g. It says where g is to be evaluated (`plan`) and turns the values into
    an answer (`analyze`); everything between is written once, for all methods.
    """

    name: ClassVar[str]
    sequential: ClassVar[bool] = False
    """Whether a fixed budget, too, is spent in several turns, each planned from the last."""

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
