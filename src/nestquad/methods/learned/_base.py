"""Base of learned methods: growth of the design, dense average, error bar."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from nestquad._typing import Array
from nestquad.accuracy import size_of
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations
from nestquad.methods._method import Goal, Method, Turn, assembled, require_transports
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._bar import ErrorBar
from nestquad.methods.learned._model import ModelOfJ
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95

M = TypeVar("M", bound=ModelOfJ)


@dataclass(frozen=True, eq=False)
class Fit(Generic[M]):
    """A model of J, and the evaluations behind it.

    Attributes
    ----------
    model
        The fitted model.
    scalar
        Whether g has a single output.
    n_outer, n_inner
        Numbers of θ, and of x for each of them.
    reliable
        Whether the model can be trusted to know its error; if not, the bar is infinite.
    """

    model: M
    scalar: bool
    n_outer: int
    n_inner: int
    reliable: bool = True


@dataclass(frozen=True, eq=False)
class Learned(Generic[M]):
    """State of a learned method: its model of J, the sizes of the error's parts, and their rate."""

    model: M
    scalar: bool
    answers: Array
    parts: dict[str, float]
    rate: float


class LearnedMethod(Method[Learned[M]], Generic[M]):
    """Learn J from evaluations of g, then average f(Ĵ) over θ, which costs none.

    A method supplies designs (`sized`) and a model (`fit`); planning, average and error bar are
    written here.
    """

    start: ClassVar[int] = 512
    """Evaluations of the first turn where a tolerance decides."""
    fewest: ClassVar[int]
    longest_turn: ClassVar[float] = np.inf
    """The factor by which a turn of a fixed budget grows at most."""

    @abstractmethod
    def sized(
        self, problem: NestedExpectation, goal: Goal, n: int, last: Turn[Learned[M]] | None
    ) -> Design | None:
        """The design of about n evaluations that contains the last one; None if there is none."""

    @abstractmethod
    def fit(self, evaluations: Evaluations, last: Turn[Learned[M]] | None) -> Fit[M]:
        """A model of J from the evaluations of a design."""

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Learned[M]] | None = None
    ) -> Design | None:
        if last is None:
            require_transports(problem, self.name)
            stepwise = goal.adaptive or goal.budget is None or self.sequential
            n = (goal.pilot or self.start) if stepwise else goal.budget
            assert n is not None
            design = self.sized(problem, goal, min(n, goal.budget or n), None)
            if design is None or design.n_evaluations > (goal.budget or np.inf):
                least = self.fewest if design is None else design.n_evaluations
                raise InputError(
                    "budget",
                    f"{goal.budget} evaluations",
                    f"at least {least} for method {self.name!r} on this problem",
                )
            return design
        n = last.design.n_evaluations
        factor = self._growth(goal, last)
        # Few new points would agree with the old ones whatever the truth.
        design = self.sized(problem, goal, round(n * factor), last) if factor >= 1.1 else None
        return design if design is not None and design.n_evaluations > n else None

    def _growth(self, goal: Goal, last: Turn[Learned[M]]) -> float:
        """Growth factor of the number of evaluations in the next turn."""
        room = np.inf if goal.budget is None else goal.budget / last.design.n_evaluations
        if not goal.adaptive and goal.budget is not None:
            # As few turns as possible, of equal factors.
            turns = np.ceil(np.log(room) / np.log(self.longest_turn) - 0.2)
            return float(room ** (1.0 / max(turns, 1.0)))
        half = NORMAL_95 * float(np.max(last.estimate.std_error))
        factor = 2.0
        if goal.half_width and 0 < half < np.inf:
            needed = np.log(1.1) + np.log(half / goal.half_width) / last.state.rate
            factor = float(np.exp(np.clip(needed, np.log(1.6), np.log(4.0))))
        return min(factor, room)

    def analyze(
        self, evaluations: Evaluations, last: Turn[Learned[M]] | None = None
    ) -> Turn[Learned[M]]:
        problem, grid = evaluations.problem, evaluations.design.grids[0]
        fit = self.fit(evaluations, last)
        model = fit.model
        average = DenseAverage(problem, fit.scalar, grid.stream.child(grid.level, 6))
        rng = grid.stream.child(grid.level, 5).generator()
        parts, rate = ErrorBar(average, model).parts(rng)
        by_replicate = average.of(model, max(map(size_of, parts.values())))
        parts["average"] = average.errors(by_replicate)
        answers = by_replicate.mean(axis=0)
        if not fit.reliable:
            parts["unreliable"] = np.full((len(parts["average"]), 1), np.inf)
        sizes = {name: size_of(part) for name, part in parts.items()}
        inner = [size for name, size in sizes.items() if name != "average"]
        estimate = assembled(
            problem,
            answers,
            parts,
            {
                "error_inner": float(np.sqrt(sum(known**2 for known in inner))),
                "error_outer": sizes["average"],
                **model.describe(),
            },
            n_evaluations=evaluations.design.n_evaluations,
            n_outer=fit.n_outer,
            n_inner=fit.n_inner,
            method=self.name,
            sample=average.sample(model.sketch),
        )
        state = Learned(model, fit.scalar, answers, sizes, rate)
        return Turn(evaluations.design, estimate, state)
