"""Sizes of a sparse tensor grid: many θ with few x, few θ with many x."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad import limits
from nestquad._typing import Array
from nestquad.errors import InputError


@dataclass(frozen=True)
class Staircase:
    """The first T_l of the θ have at least N_l inner points, on each level l.

    Inner sizes double from level to level, and outer sizes decrease. Points are nested, so a level
    adds only points that the coarser levels lack.

    Examples
    --------
    >>> Staircase((16, 8, 4), (4, 8, 16)).n_evaluations
    128
    """

    n_outer: tuple[int, ...]
    n_inner: tuple[int, ...]

    @property
    def n_evaluations(self) -> int:
        steps = np.diff(self.n_inner, prepend=0)
        return int(steps @ np.array(self.n_outer))

    def steps(self) -> list[StaircaseStep]:
        """Every way to grow by one step: twice the θ of a level, or one more level.

        Coarser levels never have fewer θ, so they grow as well where needed.
        """
        steps: list[StaircaseStep] = []
        for level, size in enumerate(self.n_outer):
            if 2 * size <= limits.STAIRCASE_POINTS:
                sizes = tuple(max(n, 2 * size) for n in self.n_outer[: level + 1])
                levels = [i for i, n in enumerate(sizes) if n > self.n_outer[i]]
                stairs = Staircase((*sizes, *self.n_outer[level + 1 :]), self.n_inner)
                steps.append(
                    StaircaseStep(stairs, levels, stairs.n_evaluations - self.n_evaluations)
                )
        if 2 * self.n_inner[-1] <= limits.STAIRCASE_POINTS:
            sizes = (*self.n_outer, min(self.n_outer[-1], 8))  # a level starts with 8 θ
            taller = Staircase(sizes, (*self.n_inner, 2 * self.n_inner[-1]))
            steps.append(StaircaseStep(taller, [len(self.n_inner)], sizes[-1] * self.n_inner[-1]))
        return steps

    def grown(
        self,
        outer: Array,
        inner: float,
        shrink: tuple[float, float],
        target: float | None,
        budget: int | None,
    ) -> Staircase | None:
        """Take the steps that remove most error for each evaluation, until the target is met.

        Parameters
        ----------
        outer
            The outer error of each level.
        inner
            The inner error.
        shrink
            Factors by which a step reduces the outer and the inner error.
        target
            The error to reach; None is as small as the rest allows.
        budget
            The largest number of evaluations.
        """
        capped = [
            e
            for e, size in zip(outer, self.n_outer, strict=True)
            if 2 * size > limits.STAIRCASE_POINTS
        ]
        if target is not None and np.linalg.norm(capped) > target:
            return None  # levels that cannot grow exceed the target alone
        # At most three times the evaluations in a turn: measured rates are better than guesses.
        limit = 3.0 * self.n_evaluations
        limit = limit if budget is None else min(limit, budget)
        stairs, errors = self, [float(e) for e in outer]
        while stairs == self or np.hypot(np.linalg.norm(errors), inner) > (target or 0.0):
            steps = [step for step in stairs.steps() if step.stairs.n_evaluations <= limit]
            if not steps:
                break
            left = np.array([*errors, inner])
            best = max(steps, key=lambda step: float((left[step.levels] ** 2).sum()) / step.cost)
            stairs = best.stairs
            if best.levels == [len(errors)]:  # a new one: its correction is known from a few θ only
                errors.append(inner)
                inner *= shrink[1]
            else:
                errors = [e * shrink[0] if i in best.levels else e for i, e in enumerate(errors)]
        return None if stairs == self else stairs


@dataclass(frozen=True)
class StaircaseStep:
    """A larger staircase, the levels that grew, and its extra evaluations."""

    stairs: Staircase
    levels: list[int]
    cost: int


def smallest_staircase(smallest: int) -> Staircase:
    """Two levels, the fewest that show an inner error."""
    return _balanced(smallest, smallest, 1)


def staircase_for(budget: int, smallest: int) -> Staircase:
    """The balanced staircase of a budget: T_l N_l is the same on all levels.

    It has all levels that fit, with `smallest` inner points on the coarsest and `smallest` θ on
    the finest, until weights become too expensive; then fewer and broader levels.
    """
    best = smallest_staircase(smallest)
    if best.n_evaluations > budget:
        raise InputError(
            "budget",
            f"{budget} evaluations",
            f"at least {best.n_evaluations} for method 'mlkq' with n_coarsest={smallest}",
        )
    size = smallest
    while 2 * size <= limits.STAIRCASE_POINTS:
        top = int(np.log2(limits.STAIRCASE_POINTS / size))
        fitting = [
            stairs
            for stairs in (_balanced(size, size, level) for level in range(1, top + 1))
            if stairs.n_evaluations <= budget
        ]
        best = max([best, *fitting], key=lambda stairs: stairs.n_evaluations)
        if len(fitting) < top:
            break
        size *= 2
    # The rest goes to more θ on all levels: the outer error is the larger one as a rule.
    top, size = len(best.n_inner) - 1, best.n_inner[0]
    wide = min(budget * size // best.n_evaluations, limits.STAIRCASE_POINTS // 2**top)
    return _balanced(size, max(wide, size), top)


def _balanced(n_inner: int, n_outer: int, top: int) -> Staircase:
    return Staircase(
        tuple(n_outer * 2 ** (top - level) for level in range(top + 1)),
        tuple(n_inner * 2**level for level in range(top + 1)),
    )
