"""Plan → evaluate → analyse, turn after turn, until something says stop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import EvaluationError, InputError
from nestquad.evaluate import Design, Evaluations, Evaluator, OutOfTimeError
from nestquad.methods import Goal, Method, Turn
from nestquad.result import NORMAL_95, Estimate, Step

__all__ = ["Loop"]

# Differences between few points are small by luck now and then. A half-width below the tolerance
# counts only if the one before it was within this factor of it, times that by which the number of
# evaluations has grown since.
_STEADY = 6.0


@dataclass
class Loop:
    """One estimation, from the first plan to the last answer.

    `design` is what is to be evaluated next, None at the end; `last` is the last complete turn.
    """

    method: Method[Any]
    goal: Goal
    evaluator: Evaluator
    tol: float | None = None
    rtol: float | None = None
    design: Design | None = None
    last: Turn[Any] | None = None
    status: str = "done"
    _half: Array = field(default_factory=lambda: np.asarray(np.inf))
    _trace: list[Step] = field(default_factory=list)

    def run(self) -> Estimate:
        """The last complete answer; Ctrl-C ends the loop and keeps it."""
        self.start()
        try:
            while self.design is not None:
                self.turn()
        except KeyboardInterrupt:
            if self.found is None:
                raise
            self.status = "interrupted"
        except EvaluationError as error:
            error.estimate = None if self.found is None else self.answer("failed")
            raise
        return self.answer(self.status)

    def start(self) -> None:
        """Plan the first design."""
        self.design = self.method.plan(self.evaluator.problem, self.goal)

    def turn(self) -> None:
        """Evaluate and analyse the design, and plan the next one."""
        assert self.design is not None
        self.status, self.design = self._evaluated(self.design), None
        if self.status == "go on":
            self.status = "budget" if self.goal.adaptive else "done"
            self.design = self.method.plan(self.evaluator.problem, self.goal, self.last)

    @property
    def found(self) -> Estimate | None:
        """The answer so far."""
        return None if self.last is None else self.last.estimate

    def answer(self, status: str) -> Estimate:
        if self.found is None:
            raise InputError("method", repr(self.method), "a method that plans an evaluation")
        return replace(self.found, status=status, trace=tuple(self._trace))

    def _evaluated(self, design: Design) -> str:
        """Evaluate and analyse one design; what to do next."""
        before, last, previous = self._half, self.last, self.found
        try:
            turn = self.method.analyze(Evaluations(self.evaluator, design), last)
        except OutOfTimeError:
            if last is None:
                raise
            turn = last
        stopped = self.evaluator.stopped
        if last is not None and stopped is not None:
            if turn.estimate.n_outer < last.estimate.n_outer:
                turn = last  # cut off by time: the last design was larger, and complete
        found = replace(turn.estimate, n_evaluations=self.evaluator.n_evaluations)
        self.last = replace(turn, estimate=found)
        self._trace.append(Step(found.n_evaluations, found.value, found.std_error))
        self._half = NORMAL_95 * np.asarray(found.std_error)
        if stopped is not None:
            return stopped
        if self.goal.adaptive:
            target = np.maximum(self.tol or 0.0, (self.rtol or 0.0) * np.abs(found.value))
            growth = found.n_evaluations / max(previous.n_evaluations, 1) if previous else 1.0
            if np.all(self._half <= target) and np.all(before <= _STEADY * growth * target):
                return "converged"
            self.goal = replace(self.goal, half_width=float(np.min(target)))
        return "go on" if self.goal.adaptive or self.method.sequential else "done"
