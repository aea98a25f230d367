"""Repeated expectations by learning: J of the innermost level, then each level from the one below.

Only the innermost level needs g. Draws of its posterior go through all levels above, so that the
bar has the errors of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

import nestquad.methods.learned._posterior as _posterior
from nestquad._scale import require_size
from nestquad._typing import Array
from nestquad.accuracy import is_discontinuous
from nestquad.evaluate import Design, Evaluations
from nestquad.methods._events import heavy_errors, unseen_errors
from nestquad.methods._method import Goal, Turn
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._base import (
    Fit,
    Learned,
    LearnedAnswer,
    LearnedMethod,
    complete_answer,
    rounding_errors,
)
from nestquad.methods.learned._evidence import Check
from nestquad.methods.learned._joint_model import JointModel
from nestquad.methods.learned._levels import DEFAULT, Cascade, LevelAverage, LevelSettings
from nestquad.methods.learned._model import ModelOfJ
from nestquad.methods.learned._posterior import (
    Calibration,
    PathEffects,
    PosteriorOfJ,
)
from nestquad.methods.learned.joint import JointLattice
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.repeated import RepeatedExpectation
from nestquad.result import NORMAL_95

__all__ = ["RepeatedLattice"]


@dataclass(frozen=True)
class RepeatedLattice(LearnedMethod[ModelOfJ]):
    """Learn the innermost J on a joint lattice, and each level above from the one below.

    Parameters
    ----------
    levels
        The repeated expectation. Designs and evaluations belong to its innermost two levels.
    learner
        Learns the innermost J.
    settings
        Sizes of the lattices of the levels above.
    """

    name: ClassVar[str] = "repeated"
    fewest: ClassVar[int] = JointLattice.fewest
    averages: ClassVar[bool] = False
    n_inner: ClassVar[int] = 1

    levels: RepeatedExpectation = field(repr=False)
    learner: JointLattice = field(default_factory=JointLattice)
    settings: LevelSettings = DEFAULT

    @property
    def n_outer(self) -> int | None:
        return self.learner.n_outer

    def sized(
        self, problem: NestedExpectation, goal: Goal, n: int, last: Turn[Learned[ModelOfJ]] | None
    ) -> Design | None:
        return self.learner.sized(problem, goal, n, last)

    def fit(self, evaluations: Evaluations, last: Turn[Learned[ModelOfJ]] | None) -> Fit[ModelOfJ]:
        # A ridge has no lattice on which the levels above could be learned.
        found = self.learner.fit(evaluations, last)
        assert isinstance(found.model, JointModel)
        require_size(found.model.data.values)
        # Levels above are learned at all points.
        model = replace(found.model, most_sketched=found.n_outer)
        return LevelFit(model, found.scalar, found.n_outer, found.n_inner, found.reliable)

    def average(self, problem: NestedExpectation, scalar: bool, stream: Stream) -> LevelAverage:
        plain = replace(problem, f=None)
        return LevelAverage(plain, scalar, stream, levels=self.levels, settings=self.settings)

    def answer(
        self,
        problem: NestedExpectation,
        fit: Fit[ModelOfJ],
        check: Check | None,
        stream: Stream,
        log2_more: int,
    ) -> LearnedAnswer[ModelOfJ]:
        assert isinstance(fit, LevelFit)
        assert isinstance(fit.model, JointModel)
        if fit.model not in fit.level_averages:
            average = self.average(problem, fit.scalar, stream)
            fit.level_averages[fit.model] = average.at_sketch(fit.model)
        return _answer(fit.level_averages[fit.model], fit.model, check, fit.calibrations)


@dataclass(frozen=True, eq=False)
class LevelFit(Fit[ModelOfJ]):
    """A model of the innermost J, and the levels above it, which do not depend on checks."""

    level_averages: dict[ModelOfJ, LevelAverage] = field(default_factory=dict, init=False)


def _answer(
    average: LevelAverage,
    model: JointModel,
    check: Check | None,
    calibrations: dict[ModelOfJ, Calibration],
) -> LearnedAnswer[ModelOfJ]:
    """Average over all levels, and its draws: posterior of the innermost J, levels, events."""
    cascade, base, rng = average.cascade, model.sketch, average.stream.child(5).generator()
    assert cascade is not None

    def functional(j: Array) -> Array:
        """The answers (q,) for the innermost J (M, p) at the sketch."""
        return average.averages(cascade.top(j))

    jumps = _has_jumps(cascade, base.j)
    if model not in calibrations:
        effects = PathEffects(model, functional, _posterior.DEFAULT)
        calibrations[model] = effects.calibration(average.stream.child(9).generator())
    posterior = PosteriorOfJ(model, check, rng, _posterior.DEFAULT)
    drawn = posterior.draws(functional, calibrations[model], crossed=not jumps)
    dense = average.of_levels(model, float(drawn.values.std(axis=0).max()))
    means = base.weights @ base.j / base.weights.sum()
    innermost = DenseAverage(average.problem, average.scalar, average.stream)
    unseen = unseen_errors(model, check, innermost, means)
    others = {
        "average": dense.errors,
        "unseen": _carried(unseen, functional, base.j),
        "tail": heavy_errors(model, dense.answers.size),
        "events": _event_errors(average, cascade, base.j, model.n_points),
        "rounding": rounding_errors(functional, base.j),
    }
    answer: LearnedAnswer[ModelOfJ] = complete_answer(
        average, model, dense.answers, drawn, others, rng
    )
    return replace(answer, notes=_notes(dense.shares, average.settings))


def _carried(directions: Array, functional: _posterior.Functional, j: Array) -> Array:
    """Directions (q, m) of the answers from directions (p, m) of J at all θ."""
    if not np.isfinite(directions).all():
        return np.full((functional(j).size, 1), np.inf)
    sides = [[functional(j + s * step) for s in (1.0, -1.0)] for step in directions.T]
    return np.stack([np.nan_to_num(up - down) / 2.0 for up, down in sides], axis=1)


def _has_jumps(cascade: Cascade, j: Array) -> bool:
    """Whether some f_k jumps where its argument can be, at medians of y."""
    levels, inner = cascade.levels, cascade.levels.innermost
    law = inner.outer_law
    median = law.middle()
    for k, (below, scalar) in enumerate(cascade.arguments(j)):

        def f(j: Array, k: int = k) -> Array:
            y = levels.split(np.broadcast_to(median, (len(j), median.shape[1])))
            return levels.apply_f(k, j, y)

        if is_discontinuous(replace(inner, f=f), below[:, 0] if scalar else below):
            return True
    return False


def _event_errors(average: LevelAverage, cascade: Cascade, j: Array, n: int) -> Array:
    """Directions (q, m) for events of some f_k that no point has reached.

    Where f_k is flat about J_{k+1} at all points, an event takes a value of J_{k+1} beyond them.
    By the rule of three (Hanley and Lippman-Hand 1983, If nothing goes wrong, is everything all
    right?) its probability is below 3/n, and by Cantelli's inequality at most 1/(1 + s²) for s
    standard deviations.
    """
    arguments, directions = cascade.arguments(j), []
    for k, (below, scalar) in enumerate(arguments):
        f, sd = cascade.f(k, below, scalar)[0], below.std(axis=0)

        def change(
            step: Array, k: int = k, f: Array = f, j: Array = below, s: bool = scalar
        ) -> Array:
            return np.asarray(np.abs(cascade.f(k, j + step, s)[0] - f))

        local = average.settings.local * sd
        if not sd.any() or np.ptp(f, axis=0).any() or (change(local) + change(-local)).any():
            continue
        bound = np.zeros(f.shape[1])
        for step in 2.0 ** np.arange(14.0):
            chance = min(3.0 / n, 1.0 / (1.0 + step**2))
            for side in (step, -step):
                bound = np.maximum(bound, chance * change(side * sd).mean(axis=0) / NORMAL_95)
        if k:
            mean, single = arguments[k - 1]
            tops = [cascade.top(one, single, k - 1) for one in (mean + bound, mean)]
            bound = np.subtract(*(average.averages(top) for top in tops))
        directions.append(bound)
    q = average.averages(cascade.top(j)).size
    return np.stack(directions, axis=1) if directions else np.zeros((q, 1))


def _notes(shares: tuple[float, ...], settings: LevelSettings) -> tuple[str, ...]:
    return tuple(
        f"level {k}: lattices of two sizes disagree about {share:.0%} of the variance of its "
        "conditional mean, which is hardly learned; the interval is as wide as their answers differ"
        for k, share in enumerate(shares, start=1)
        if share > settings.unlearned
    )
