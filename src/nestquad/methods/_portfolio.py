"""Several methods side by side: their designs, how they stand, and who is continued."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nestquad._typing import Array
from nestquad.errors import NestquadError
from nestquad.evaluate import Design
from nestquad.methods._method import Goal, Method
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["Portfolio", "Race", "Standing", "leader", "scaled", "touching"]

# How fast a half-width falls with the number of evaluations, until two sizes have shown it.
_USUAL_RATE = 1.2
_PLAIN = ("nmc", "nqmc")
# These know f(J) only where they have been, so what they have not seen is not in their bars.
_SAMPLED = (*_PLAIN, "mlkq")
_RATES = {"joint": 1.5, "lsmc": 0.6, "nqmc": 0.6, "nmc": 0.4, "mlmc": 0.5}
# A runner-up whose prediction is this close is given a second chance, up to a share of the budget
# or of what the leader has. Pilots further away than that are left as small as they are.
_CLOSE, _SECOND_SHARE = 30.0, 0.09
# The best is continued to the end at once if its half-width is this small beside the spread of
# f(J); else by this factor, before it is compared again.
_STEADY, _STEP = 0.1, 4
# A pilot that is smaller than this share of what it may be is worth another turn.
_SMALL_PILOT = 0.6
# What a rival has to promise, relative to the leader, when the leader cannot grow any more.
_WORTHWHILE = 0.7
# A bar that is small by luck must not decide: it has to be this much smaller than that of the
# candidate that was continued, or tried first, and rest on this share of its number.
_UPSET, _ENOUGH = 0.5, 0.1


@dataclass(frozen=True)
class Portfolio(Design):
    """The designs of several methods, each with a stream of its own.

    `selected` if a small error bar will end the growth.
    """

    parts: tuple[tuple[Method, Design], ...] = field(default=())
    selected: bool = False

    @classmethod
    def of(cls, parts: tuple[tuple[Method, Design], ...], selected: bool) -> Portfolio:
        return cls(tuple(grid for _, design in parts for grid in design.grids), parts, selected)

    def grown(self, method: Method, design: Design) -> Portfolio:
        """The same with another design for one of the methods."""
        parts = tuple((m, design if m is method else before) for m, before in self.parts)
        return Portfolio.of(parts, self.selected)


@dataclass(frozen=True)
class Standing:
    """A candidate, what it has evaluated, and what it makes of it."""

    method: Method
    design: Design
    estimate: Estimate

    @property
    def n(self) -> int:
        return self.design.n_evaluations

    @property
    def half_width(self) -> float:
        """Of the 95 % interval; the largest of several answers.

        Bars of plain averages are differences, which vanish by accident: of T points no better is
        believed than an error of 1/T. Nothing is believed if f(J) was the same at all of them, as
        that of a rare loss is.
        """
        found = _half_width(self.estimate.std_error)
        if self.method.name not in _SAMPLED or self.estimate.sample is None:
            return found
        if np.ptp(self.estimate.sample.f, axis=0).max() == 0.0:
            return np.inf
        if self.method.name not in _PLAIN:
            return found
        return max(found, self.spread / max(self.estimate.n_outer, 1))

    @property
    def spread(self) -> float:
        """The standard deviation of f(J) over θ, the largest of several."""
        sample = self.estimate.sample
        if sample is None:
            return 0.0
        total = sample.weights.sum(axis=0)
        mean = (sample.weights * sample.f).sum(axis=0) / total
        variance = (sample.weights * (sample.f - mean) ** 2).sum(axis=0) / total
        return float(np.sqrt(np.nan_to_num(np.maximum(variance, 0.0)).max()))

    @property
    def steady(self) -> bool:
        """Whether much was learned: if not, the bar may be wrong about itself as well."""
        return self.half_width <= _STEADY * self.spread

    @property
    def rate(self) -> float:
        """The exponent at which the half-width falls: half from experience, half from theory."""
        usual = _RATES.get(self.method.name, _USUAL_RATE)
        steps = [(step.n_evaluations, _half_width(step.std_error)) for step in self.estimate.trace]
        steps = [(n, half) for n, half in steps if 0 < half < np.inf]
        if len(steps) < 2:
            return usual
        # Over a factor of at least two, or chance decides: a smaller one counts for less.
        n, half = steps[-1]
        n_before, before = next((s for s in steps[-2::-1] if 2 * s[0] <= n), steps[0])
        doublings = np.log2(n / n_before)
        seen = np.clip(np.log2(before / half) / doublings, 0.5 * usual, 1.5 * usual)
        return float(usual + 0.5 * min(1.0, doublings) * (seen - usual))

    def predicted(self, n: int) -> float:
        """The half-width to expect with n evaluations."""
        return float(self.half_width * (self.n / max(n, self.n)) ** self.rate)

    def needed(self, half_width: float) -> float:
        """The evaluations to expect until the half-width is as small as this."""
        ratio = max(self.half_width / max(half_width, 1e-300), 1.0)
        return float(self.n * min(ratio ** (1.0 / self.rate), 1e30))

    def next_design(
        self, problem: NestedExpectation, goal: Goal, most: int, *, in_one_go: bool
    ) -> Design | None:
        """What the method would evaluate next, within so many evaluations of its own.

        With `in_one_go` all of them may be spent at once; else the method grows as it does
        towards a tolerance.
        """
        own = replace(goal, stream=self.design.grids[0].stream, budget=most, adaptive=not in_one_go)
        larger = self.method.plan(problem, own, (self.design, self.estimate))
        return None if larger is None or larger.n_evaluations <= self.n else larger


def _half_width(std_error: float | Array) -> float:
    return float(np.nan_to_num(1.959964 * np.atleast_1d(std_error), nan=np.inf).max())


@dataclass(frozen=True)
class Race:
    """Who is to be continued, and how far.

    A pilot is to have `pilot` evaluations, unless the best does well and others have had their
    `share` of the budget.
    """

    problem: NestedExpectation
    goal: Goal
    standings: list[Standing]
    spent: int
    pilot: int
    share: float

    def toward_budget(self) -> tuple[Method, Design] | None:
        """Pilots up to their share, the runner-up if it is close, then the best to the end."""
        budget = self.goal.budget
        if budget is None:
            return None
        left = budget - self.spent
        best, *rivals = sorted(self.standings, key=lambda s: self._promise(s, left))
        promise = best.predicted(best.n + left)
        room = self.share * budget - (self.spent - best.n) if best.steady else left
        for standing in self.standings[1:]:
            hopeless = best.steady and standing.predicted(standing.n + left) > _CLOSE * promise
            if standing.n <= _SMALL_PILOT * self.pilot and not hopeless:
                step = self._step(standing, min(self.pilot, standing.n + max(int(room), 0)))
                if step is not None:
                    return step
        for rival in rivals[:1]:
            if rival.predicted(rival.n + left) < _CLOSE * promise:
                step = self._step(rival, min(int(_SECOND_SHARE * budget), rival.n + left))
                if step is not None:
                    return step
        most = best.n + left if best.steady else min(best.n + left, _STEP * best.n)
        step = self._step(best, most, in_one_go=True)
        if step is not None:
            return step
        for rival in rivals:
            if rival.predicted(rival.n + left) < _WORTHWHILE * best.half_width:
                step = self._step(rival, rival.n + left, in_one_go=True)
                if step is not None:
                    return step
        return None

    def _promise(self, standing: Standing, left: int) -> float:
        """The half-width to expect in the end; half of it for the first, if it learned something.

        The smallest of several predictions is too good to be true, unless a rival has come twice
        as far already with no more evaluations.
        """
        found = standing.predicted(standing.n + left)
        if standing is not self.standings[0] or not standing.steady:
            return found
        outdone = any(
            rival.n <= standing.n and rival.half_width < _UPSET * standing.half_width
            for rival in self.standings[1:]
        )
        return found if outdone else _UPSET * found

    def toward_tolerance(self) -> tuple[Method, Design] | None:
        """The candidate that needs the fewest more; rivals that are close are kept in sight."""
        target = self.goal.half_width or 0.0
        left = 2**62 if self.goal.budget is None else self.goal.budget - self.spent
        best, *rivals = sorted(self.standings, key=lambda s: s.needed(target) - s.n)
        close = [
            rival
            for rival in rivals
            if rival.n < _SECOND_SHARE * best.n
            and rival.needed(target) < _CLOSE * best.needed(target)
        ]
        for standing in [*close, best, *rivals]:
            step = self._step(standing, standing.n + left)
            if step is not None:
                return step
        return None

    def _step(
        self, standing: Standing, most: int, *, in_one_go: bool = False
    ) -> tuple[Method, Design] | None:
        if most <= standing.n:
            return None
        try:
            larger = standing.next_design(self.problem, self.goal, most, in_one_go=in_one_go)
        except NestquadError:  # it says why it cannot go on when it is asked for by name
            return None
        return None if larger is None else (standing.method, larger)


def leader(standings: list[Standing]) -> Standing:
    """The smallest bar, unless it rests on too few evaluations or is hardly smaller.

    Nor if most of the others contradict it: bars made of differences vanish by accident.
    """
    continued = max(standings, key=lambda s: s.n)
    enough = [s for s in standings if s.n >= _ENOUGH * continued.n and not _alone(s, standings)]
    smallest = min(enough, key=lambda s: s.half_width, default=continued)
    return smallest if smallest.half_width < _UPSET * continued.half_width else continued


def _alone(standing: Standing, standings: list[Standing]) -> bool:
    """Whether its interval is apart from those of most others, of whom there are two at least."""
    others = [other for other in standings if other is not standing]
    apart = [_contradict(standing.estimate, other.estimate) for other in others]
    return len(others) > 1 and sum(apart) > len(others) / 2


def _contradict(one: Estimate, other: Estimate) -> bool:
    distance = np.abs(np.asarray(one.value) - np.asarray(other.value))
    reach = 1.959964 * (np.asarray(one.std_error) + np.asarray(other.std_error))
    return bool((distance > reach).any())


def touching(best: Standing, others: list[Standing]) -> Estimate:
    """The best estimate, with an interval that reaches those of plain averages.

    Models can be wrong about themselves; averages over random points have the bars that sampling
    gives them, wide as they are. Where twice such a bar does not reach the best estimate, the
    latter's bar is the one to doubt.
    """
    found = best.estimate
    value, error = np.asarray(found.value), np.asarray(found.std_error)
    reach = error
    for other in others:
        if other.method.name in _PLAIN and np.isfinite(other.half_width):
            apart = np.abs(value - np.asarray(other.estimate.value)) / 1.959964
            reach = np.fmax(reach, apart - 2.0 * np.asarray(other.estimate.std_error))
    if not (reach > error).any():
        return found
    factor = np.atleast_1d(reach / np.where(error > 0, error, 1.0))
    covariance = found.covariance
    return replace(
        found,
        std_error=float(reach) if reach.ndim == 0 else reach,
        covariance=None if covariance is None else covariance * np.outer(factor, factor),
    )


def scaled(found: Estimate, factor: float) -> Estimate:
    """The estimate with error bars multiplied by a factor."""
    covariance = None if found.covariance is None else found.covariance * factor**2
    return replace(found, std_error=found.std_error * factor, covariance=covariance)
