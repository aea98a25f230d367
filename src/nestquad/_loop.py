"""Plan → evaluate → analyse, turn after turn, until something says stop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluator, OutOfTimeError
from nestquad.methods import Goal, Method
from nestquad.result import Estimate, Step

__all__ = ["Loop"]

# Differences between few points are small by luck now and then. A half-width below the tolerance
# counts only if the one before it was at least within this factor of it.
_STEADY = 6.0


@dataclass
class Loop:
    """One estimation, from the first plan to the last answer.

    `design` and `message` describe the turn under way, for whoever shows progress.
    """

    method: Method
    goal: Goal
    evaluator: Evaluator
    tol: float | None = None
    rtol: float | None = None
    design: Design | None = None
    message: str = ""
    _found: Estimate | None = None
    _half: Array = field(default_factory=lambda: np.asarray(np.inf))
    _trace: list[Step] = field(default_factory=list)

    def run(self) -> Estimate:
        """The last complete answer; Ctrl-C ends the loop and keeps it."""
        self.design = self.method.plan(self.evaluator.problem, self.goal)
        status = "done"
        try:
            while self.design is not None:
                status = self._turn(self.design)
                if status != "go on":
                    break
                status = "budget" if self.goal.adaptive else "done"
                assert self._found is not None
                so_far = (self.design, self._found)
                self.design = self.method.plan(self.evaluator.problem, self.goal, so_far)
        except KeyboardInterrupt:
            if self._found is None:
                raise
            status = "interrupted"
        if self._found is None:
            raise InputError("method", repr(self.method), "a method that plans an evaluation")
        return replace(self._found, status=status, trace=tuple(self._trace))

    def _turn(self, design: Design) -> str:
        """Evaluate and analyse one design; what to do next."""
        before, previous = self._half, self._found
        try:
            found = self.method.analyze(self.evaluator.evaluate(design))
        except OutOfTimeError:
            if previous is None:
                raise
            found = previous
        stopped = self.evaluator.stopped
        if previous is not None and stopped is not None and found.n_outer < previous.n_outer:
            found = previous  # cut off by time: the design before it was larger, and complete
        found = replace(found, n_evaluations=self.evaluator.n_evaluations)
        self._found = found
        self._trace.append(Step(found.n_evaluations, found.value, found.std_error))
        self._half = 1.959964 * np.asarray(found.std_error)
        self.message = found.summary
        if stopped is not None:
            return stopped
        if self.goal.adaptive:
            target = np.maximum(self.tol or 0.0, (self.rtol or 0.0) * np.abs(found.value))
            if np.all(self._half <= target) and np.all(before <= _STEADY * target):
                return "converged"
            self.goal = replace(self.goal, half_width=float(np.min(target)))
        return "go on" if self.goal.adaptive or self.method.sequential else "done"
