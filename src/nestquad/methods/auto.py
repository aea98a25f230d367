"""Automatic choice of a method: run pilots, continue the best."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from nestquad.accuracy import characteristics
from nestquad.errors import (
    InputError,
    NestquadError,
    NumericalError,
    OutsideDomainError,
    UnsupportedError,
)
from nestquad.evaluate import Design, Evaluations, OutOfTimeError
from nestquad.methods._method import Goal, Method, Turn
from nestquad.methods.learned import CKQ, JointLattice
from nestquad.methods.multilevel import MLKQ, MLMC
from nestquad.methods.nested import NKQ, NMC
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate

__all__ = ["Auto"]

# The first candidate goes on alone if its half-width is this small beside the spread of f(J).
_CONVINCING = 0.01
# Share of a budget for the pilot of each other candidate, which has at least 128 evaluations.
_PILOT_SHARE = 0.04


@dataclass(frozen=True)
class Portfolio(Design):
    """The designs of several methods, each with a stream of its own."""

    parts: tuple[tuple[Method[Any], Design], ...] = field(default=())

    @classmethod
    def of(cls, parts: tuple[tuple[Method[Any], Design], ...]) -> Portfolio:
        return cls(tuple(grid for _, design in parts for grid in design.grids), parts)


@dataclass(frozen=True)
class Candidate:
    """A method with its last turn; or with what kept it from having one."""

    method: Method[Any]
    turn: Turn[Any] | None
    failure: NestquadError | None = None

    @property
    def n(self) -> int:
        return 0 if self.turn is None else self.turn.design.n_evaluations

    @property
    def half_width(self) -> float:
        """Of the 95 % interval; the largest of several answers."""
        if self.turn is None:
            return np.inf
        error = np.atleast_1d(self.turn.estimate.std_error)
        return float(NORMAL_95 * np.where(np.isnan(error), np.inf, error).max())

    @property
    def spread(self) -> float:
        """The standard deviation of f(J) over θ, the largest of several."""
        sample = None if self.turn is None else self.turn.estimate.sample
        if sample is None:
            return 0.0
        weights = sample.weights / sample.weights.sum(axis=0)
        mean = (weights * sample.f).sum(axis=0)
        variance = (weights * (sample.f - mean) ** 2).sum(axis=0)
        return float(np.sqrt(np.nan_to_num(np.maximum(variance, 0.0)).max()))

    def promise(self, left: float) -> float:
        """The half-width to expect after that many more evaluations: the error falls like 1/n."""
        return self.half_width * self.n / (self.n + left) if self.n else np.inf

    def needs(self, half_width: float) -> float:
        """More evaluations to expect until the half-width is that small."""
        return self.n * max(self.half_width / max(half_width, 1e-300) - 1.0, 0.0)


@dataclass(frozen=True)
class Auto(Method[tuple[Candidate, ...]]):
    """Try several methods on a part of the budget; continue the most promising.

    The promise of a candidate is its own half-width, extrapolated to the evaluations that remain
    at the rate 1/n. Candidates are compared again after each turn.

    Parameters
    ----------
    candidates
        The methods to choose from, the likeliest first; None takes `JointLattice`, `CKQ` and
        `MLKQ`, or `NMC` and `MLMC` where a law can only be sampled.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.finance()
    >>> est = nq.estimate(problem, budget=5000, rng=0)
    >>> bool(abs(est.value - problem.exact) < 0.01), len(est.candidates)
    (True, 3)
    """

    name: ClassVar[str] = "auto"
    sequential: ClassVar[bool] = True

    candidates: tuple[Method[Any], ...] | None = None

    def __post_init__(self) -> None:
        if self.candidates is None:
            return
        names = [getattr(method, "name", None) for method in self.candidates]
        if not names or None in names or len(set(names)) < len(names) or self.name in names:
            raise InputError(
                "candidates", repr(self.candidates), "configured methods of different kinds"
            )

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        last: Turn[tuple[Candidate, ...]] | None = None,
    ) -> Design | None:
        methods = self.candidates or _candidates(problem)
        if last is None:
            return self._first(problem, goal, methods)
        portfolio = last.design
        assert isinstance(portfolio, Portfolio)
        if len(portfolio.parts) == 1 and portfolio.parts[0][0] in methods:
            pilots = _pilots(problem, goal, methods, last.state[0])
            if pilots:
                return Portfolio.of((*portfolio.parts, *pilots))
        standing = [candidate for candidate in last.state if candidate.turn is not None]
        if not standing:
            assert last.state[0].failure is not None
            raise last.state[0].failure
        left = np.inf if goal.budget is None else goal.budget - portfolio.n_evaluations
        if goal.adaptive:
            standing.sort(key=lambda candidate: candidate.needs(goal.half_width or 0.0))
        else:
            standing.sort(key=lambda candidate: candidate.promise(left))
        for candidate in standing:
            if not goal.adaptive and candidate.promise(left) > standing[0].half_width:
                break
            design = _continued(problem, goal, candidate, left)
            if design is not None:
                return Portfolio.of(
                    tuple(
                        (method, design if method is candidate.method else before)
                        for method, before in portfolio.parts
                    )
                )
        return None

    def _first(
        self, problem: NestedExpectation, goal: Goal, methods: tuple[Method[Any], ...]
    ) -> Portfolio:
        """The pilot of the first candidate that applies."""
        refusal: NestquadError | None = None
        share = 96 if goal.adaptive or goal.budget is None else _pilot_size(goal, 512, 0.4)
        for i, method in enumerate(methods):
            try:
                design = method.plan(problem, _own_goal(goal, i, share))
            except (InputError, UnsupportedError) as error:
                refusal = refusal or error
                continue
            if design is not None:
                return Portfolio.of(((method, design),))
        if self.candidates is not None and refusal is not None:
            raise refusal
        # Too small a budget for a choice.
        last = NKQ() if _is_transported(problem) else NMC()
        design = last.plan(problem, goal)
        assert design is not None
        return Portfolio.of(((last, design),))

    def analyze(
        self, evaluations: Evaluations, last: Turn[tuple[Candidate, ...]] | None = None
    ) -> Turn[tuple[Candidate, ...]]:
        portfolio = evaluations.design
        assert isinstance(portfolio, Portfolio)
        known = {} if last is None else {one.method.name: one for one in last.state}
        state = tuple(
            _analyzed(evaluations, method, design, known.get(method.name))
            for method, design in portfolio.parts
        )
        standing = [candidate for candidate in state if candidate.turn is not None]
        if not standing:
            failure = state[0].failure
            assert failure is not None
            if isinstance(failure, OutOfTimeError) or len(state) > 1:
                raise failure
            # The other candidates have not been asked yet; if that is too late, `plan` raises.
            unknown = Estimate(np.nan, np.inf, 0, 0, 0, self.name)
            return Turn(portfolio, unknown, state)
        most = max(candidate.n for candidate in standing)
        enough = [candidate for candidate in standing if candidate.n >= 0.1 * most]
        best = min(enough, key=lambda candidate: candidate.half_width)
        assert best.turn is not None
        found = best.turn.estimate
        notes = [
            _reason(best, standing),
            *(f"{one.method.name} dropped out: {one.failure}" for one in state if one.failure),
            *characteristics(evaluations.problem, found),
            *found.diagnostics.get("notes", []),
        ]
        estimate = replace(
            found,
            n_evaluations=portfolio.n_evaluations,
            candidates={one.method.name: one.turn.estimate for one in standing if one.turn},
            diagnostics={**found.diagnostics, "chosen": best.method.name, "notes": notes},
        )
        return Turn(portfolio, estimate, state)


def _candidates(problem: NestedExpectation) -> tuple[Method[Any], ...]:
    if _is_transported(problem):
        return (JointLattice(), CKQ(), MLKQ())
    return (NMC(), MLMC())


def _is_transported(problem: NestedExpectation) -> bool:
    """Whether points can be placed: low-discrepancy points and kernels need that."""
    law = problem.outer_law
    if not law.has_transport:
        return False
    theta = law.from_uniform(np.full((1, law.base_dim), 0.5))
    return problem.inner_law(theta).has_transport


def _pilot_size(goal: Goal, least: int, most: float) -> int:
    """A share of the budget: at least so many, but no more than a part of it."""
    assert goal.budget is not None
    return max(int(_PILOT_SHARE * goal.budget), min(least, int(most * goal.budget)))


def _own_goal(goal: Goal, i: int, size: int) -> Goal:
    return replace(
        goal, stream=goal.stream.child(40, i), adaptive=True, half_width=None, pilot=size
    )


def _pilots(
    problem: NestedExpectation, goal: Goal, methods: tuple[Method[Any], ...], first: Candidate
) -> tuple[tuple[Method[Any], Design], ...]:
    """Pilots of the other candidates, unless the first convinces or is still small."""
    convincing = first.half_width <= _CONVINCING * first.spread
    bounded = goal.budget is not None and not goal.adaptive
    if convincing or (not bounded and first.failure is None and first.n < 512):
        return ()
    size = _pilot_size(goal, 128, 0.13) if bounded else 128
    left = np.inf if goal.budget is None else 0.4 * goal.budget
    parts: list[tuple[Method[Any], Design]] = []
    for i, method in enumerate(methods):
        if method is first.method:
            continue
        try:
            design = method.plan(problem, _own_goal(goal, i, size))
        except (InputError, UnsupportedError):
            continue
        if design is not None and design.n_evaluations <= left:
            parts.append((method, design))
            left -= design.n_evaluations
    # Lattices double: just short of a power of two, pilots would cost half of the points.
    if bounded and first.half_width <= 0.1 * first.spread:
        rest = (goal.budget or 0) - first.n
        cost = sum(design.n_evaluations for _, design in parts)
        alone, beside = (_continued(problem, goal, first, left) for left in (rest, rest - cost))
        if alone and alone.n_evaluations > 1.5 * (beside.n_evaluations if beside else first.n):
            return ()
    return tuple(parts)


def _continued(
    problem: NestedExpectation, goal: Goal, candidate: Candidate, left: float
) -> Design | None:
    """What a candidate would evaluate next, within what is left of the budget."""
    assert candidate.turn is not None
    own = replace(
        goal,
        stream=candidate.turn.design.grids[0].stream,
        budget=None if goal.budget is None else int(candidate.n + left),
    )
    try:
        design = candidate.method.plan(problem, own, candidate.turn)
    except NestquadError:  # it says why it cannot go on when it is asked for by name
        return None
    return None if design is None or design.n_evaluations <= candidate.n else design


def _analyzed(
    evaluations: Evaluations, method: Method[Any], design: Design, known: Candidate | None
) -> Candidate:
    """The candidate's turn; only the one whose design has grown is analysed again."""
    last = None if known is None else known.turn
    if known is not None and (known.failure is not None or (last and last.design == design)):
        return known
    try:
        turn = method.analyze(Evaluations(evaluations.evaluator, design), last)
    except (NumericalError, UnsupportedError, OutsideDomainError, OutOfTimeError) as error:
        if isinstance(error, OutOfTimeError) and last is not None:
            return Candidate(method, last)
        return Candidate(method, None, error)
    return Candidate(method, turn)


def _reason(best: Candidate, standing: list[Candidate]) -> str:
    """Why the best is the best, in words."""
    if len(standing) == 1:
        why = (
            "its error bar was small enough for comparisons to be a waste"
            if best.half_width <= _CONVINCING * best.spread
            else "no other candidate applies or fits into the budget"
        )
        return f"auto chose {best.method.name}: {why}"
    opinions = "; ".join(
        f"{one.method.name} {one.turn.estimate.summary} with {one.n:,} evaluations"
        for one in sorted(standing, key=lambda one: one.half_width)
        if one.turn is not None
    )
    return f"auto chose {best.method.name}: the smallest error bar ({opinions})"
