"""What a method is: a plan for evaluating g, and an analysis of the values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from nestquad.evaluate import Design, Evaluations
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["Goal", "Method"]


@dataclass(frozen=True)
class Goal:
    """What the user asked for.

    `budget` is the number of evaluations that must not be exceeded. With `adaptive` a tolerance
    decides when to stop: start small, and grow where the error is. `half_width` is what the
    half-width of the 95 % interval has to come down to; it is known from the second turn on.
    `pilot` is how many evaluations a first design may take of a budget that is spent later.
    """

    stream: Stream
    budget: int | None = None
    adaptive: bool = False
    half_width: float | None = None
    pilot: int | None = None


class Method(ABC):
    """A way of estimating nested expectations.

    A method never calls g. It says where g is to be evaluated (`plan`) and makes an answer of the
    values (`analyze`); everything between is written once, for all methods.
    """

    name: ClassVar[str]
    sequential: ClassVar[bool] = False
    """Whether a fixed budget, too, is spent in several turns, each planned from the last."""

    @abstractmethod
    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None = None,
    ) -> Design | None:
        """The design to evaluate next, which contains the one so far; None if it cannot grow.

        Towards a tolerance (`goal.adaptive`) it grows by a step, else by all that is left.
        """

    @abstractmethod
    def analyze(self, evaluations: Evaluations) -> Estimate:
        """The answer from a design's evaluations."""
