"""Tail sampling: learn J, draw pairs of x where the measures depend on J, correct its law."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from nestquad import clock
from nestquad._threads import one_blas_thread
from nestquad._typing import Array
from nestquad.clock import TimePlan
from nestquad.errors import EvaluationError, InputError
from nestquad.evaluate import Design, Evaluations, Grid
from nestquad.methods import Goal, LearnedDesign, Method, ModelOfJ, Turn, has_transports
from nestquad.methods.learned import Check, DenseSet, Pairs, RegressionModel
from nestquad.methods.nested import NO_VARIATION
from nestquad.points import IID
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate
from nestquad.risk._law import LawOfJ
from nestquad.risk._scenarios import REPLICATES, RIDGE_POINTS, Scenarios, scenarios_of
from nestquad.risk._targets import Targets

# Shares of the evaluations: learning (a lattice takes the power of two below), and the pairs by
# which a model is chosen; their fewest and most.
_LEARNING, _CHOOSING, _FEWEST_PAIRS, _MOST_CHOOSING = 0.62, 0.08, 16, 256
# Evaluations of the first turn towards a tolerance.
_START = 1024
# Share of the pairs whose θ come from their law, wherever the answer is.
_EVERYWHERE = 0.15
# Limits of time: numbers that may be computed for ĝ at all pairs (ten seconds), and rows at a time.
_NUMBERS, _ROWS = 1 << 30, 4096
# Limits of memory: evaluations to learn from, and those of pairs.
_MOST_LEARNING, _MOST_PAIRS = 1 << 20, 1 << 22
# Sizes of losses whose fourth powers, and products of a few of those, are in range.
SIZES = (1e-60, 1e60)
FEWEST = 128
_PILOT_REPLICATES = 4
_SHAPE = (
    "the loss given the model is far from normal, as at a jump of J in the scenario, and noise of "
    "x hides its shape: most of an interval is due to that. A coordinate that says on which side "
    "of the jump a scenario is, or the jump as a position of its own, would help"
)


@dataclass(frozen=True, eq=False)
class RiskState:
    """State of tail sampling.

    Attributes
    ----------
    scenarios, models, parts
        Where θ comes from, models of the losses, and one of each output of g.
    kept, dense, laws
        Positions of models that no pairs refute, the best first, dense θ with Ĵ, and the law of
        each loss.
    draws
        The pairs, with all outputs of g.
    affordable
        Evaluations that further pairs may take.
    time
        Forecast of the seconds of turns; None before the first.
    """

    scenarios: Scenarios
    models: list[ModelOfJ]
    parts: ModelOfJ | None
    kept: tuple[int, ...]
    dense: DenseSet
    laws: tuple[LawOfJ, ...]
    draws: Check
    affordable: float
    time: TimePlan | None = None

    @property
    def model(self) -> ModelOfJ:
        return self.models[self.kept[0]]

    @property
    def n_pairs(self) -> int:
        return len(self.draws.weights)


@dataclass(frozen=True)
class TailSampling(Method[RiskState]):
    """Two stages: a model Ĵ from one x for each θ, then pairs of x where the measures depend on J.

    Pairs show the mean, the variance and the shape of J given Ĵ, which make posterior draws of the
    law of J over dense θ. They are fresh: intervals do not rest on errors that the model claims.
    """

    name: ClassVar[str] = "tail sampling"
    sequential: ClassVar[bool] = True
    averages: ClassVar[bool] = False

    targets: Targets
    each: bool = False
    """Whether the outputs of g are analyzed each, as exposures by date, or their sum."""
    names: int | None = None
    """The number of outputs that g should have, if known."""
    patience: float = 1.0
    """How many times as long as usual pairs may take."""

    n_losses: int | None = None
    """Leading outputs that are losses, if not all: others are averaged given the loss."""

    def lines(self, values: Array) -> Array:
        values = values[..., : self.n_losses]
        return values if self.each else values.sum(axis=-1, keepdims=True)

    def fit(self, scenarios: Scenarios, learning: Evaluations) -> list[ModelOfJ]:
        """Models of the losses; draws will choose."""
        return scenarios.fit(learning, self.lines)

    # Plan.

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[RiskState] | None = None
    ) -> Design | None:
        if (goal.budget or FEWEST) < FEWEST:
            raise InputError("budget", f"{goal.budget} evaluations", f"at least {FEWEST}")
        first = min(int(_LEARNING * (goal.budget or _START / _LEARNING)), _MOST_LEARNING)
        # Where time is limited, as towards a tolerance, there is an answer with a bar at each size.
        growing = goal.adaptive or goal.seconds is not None
        if growing:
            first = min(first, _START if goal.seconds is None else FEWEST)
        if last is None:
            scenarios = scenarios_of(problem, goal.stream)
            # Wrong names are noticed early.
            n = first if self.names is None else min(first, FEWEST)
            design = scenarios.design(n, goal, None)
            if design is None:
                return None
            # A pilot, if time is limited: the loop is not to ask whether it ends in time.
            return replace(
                LearnedDesign.of(design, ()), seconds=None if goal.seconds is None else 0.0
            )
        assert isinstance(last.design, LearnedDesign)
        if goal.seconds is not None and not goal.half_width:
            return self._in_time(problem, goal, last)
        learning, state = last.design.learning, last.state
        left = np.inf if goal.budget is None else goal.budget - last.design.n_evaluations
        present = 2 * state.n_pairs
        n_learned = learning.n_evaluations
        if not present and n_learned < first:
            larger = state.scenarios.design(first, goal, learning)
            if larger is not None and n_learned < larger.n_evaluations <= n_learned + left:
                return LearnedDesign.of(larger, ())
        if not present:
            total = n_learned / _LEARNING if growing else goal.budget or 0
            wanted = np.clip(_CHOOSING * total, 2 * _FEWEST_PAIRS, 2 * _MOST_CHOOSING)
        elif not growing:
            wanted = left
        elif present >= 0.6 * n_learned:
            wanted = present
            # Where seconds count, so do turns.
            factor = 2 if goal.seconds is None else 4
            larger = state.scenarios.design(factor * n_learned, goal, learning)
            # Neither a lattice with fewer pairs is progress, nor one that a ridge does not use, nor
            # one whose analysis does not end in time.
            if (
                larger is not None
                and n_learned < larger.n_evaluations <= n_learned + left
                and factor * present <= (present + state.affordable) / factor
                and not (isinstance(state.model, RegressionModel) and n_learned >= RIDGE_POINTS)
                and self._ends_in_time(state, larger, goal)
            ):
                return LearnedDesign.of(larger, last.design.checks)
        else:
            wanted = max(present, 0.6 * n_learned - present)
        n = int(min(wanted, left, state.affordable)) // 2
        if n < _FEWEST_PAIRS:
            return None
        grid = self._pairs(state, n, goal)
        return LearnedDesign.of(learning, (*last.design.checks, grid))

    def _ends_in_time(self, state: RiskState, larger: Design, goal: Goal) -> bool:
        """Whether a larger fit, and then as many pairs as at present, end in time."""
        if goal.seconds is None or state.time is None:
            return True
        n, m, plan = larger.n_evaluations, 2 * state.n_pairs, state.time
        return plan.fits(
            plan.seconds(n, m, n) + plan.seconds(n, 2 * m, m, fitted=False), goal.seconds
        )

    def _in_time(
        self, problem: NestedExpectation, goal: Goal, last: Turn[RiskState]
    ) -> Design | None:
        """One large step to the lattice whose analysis and pairs fit, then all pairs that fit.

        Time that is left after these goes to a larger lattice, if it ends in time with its pairs.
        """
        assert isinstance(last.design, LearnedDesign)
        learning, state, seconds = last.design.learning, last.state, goal.seconds or 0.0
        plan = state.time
        assert plan is not None
        n, present = learning.n_evaluations, 2 * state.n_pairs
        left = np.inf if goal.budget is None else goal.budget - last.design.n_evaluations
        ratio = 1.0 / _LEARNING - 1.0
        if not present or present >= 0.9 * ratio * n:
            larger = self._largest(problem, goal, last, left)
            if larger is not None:
                m = larger.n_evaluations
                first = int(np.clip(_CHOOSING * m, 2 * _FEWEST_PAIRS, 2 * _MOST_CHOOSING))
                checks = last.design.checks or (self._pairs(state, first // 2, goal),)
                takes = plan.seconds(m, present or first, m - n)
                return replace(LearnedDesign.of(larger, checks), seconds=takes)

        def takes_in_all(more: int) -> float:
            return plan.seconds(n, present + more, more, fitted=False)

        # Pairs beyond four times the points of the fit would be better spent on the fit.
        most = min(left, 4.0 * n - present, _MOST_PAIRS - present)
        m = plan.largest(takes_in_all, seconds, most)
        if m < max(2 * _FEWEST_PAIRS, present // 2):
            return None
        grid = self._pairs(state, m // 2, goal)
        design = LearnedDesign.of(learning, (*last.design.checks, grid))
        return replace(design, seconds=takes_in_all(m))

    def _largest(
        self, problem: NestedExpectation, goal: Goal, last: Turn[RiskState], left: float
    ) -> Design | None:
        """The largest design to learn from that ends in time together with its pairs."""
        assert isinstance(last.design, LearnedDesign)
        learning, state, plan = last.design.learning, last.state, last.state.time
        assert plan is not None
        n, present = learning.n_evaluations, 2 * state.n_pairs
        if isinstance(state.model, RegressionModel) and n >= RIDGE_POINTS:
            return None
        ratio, best = 1.0 / _LEARNING - 1.0, None
        while True:
            wanted = 2 * (best or learning).n_evaluations
            own = replace(goal, budget=wanted, adaptive=True)
            larger = state.scenarios.design(wanted, own, best or learning)
            if larger is None or larger.n_evaluations <= (best or learning).n_evaluations:
                return best
            size = larger.n_evaluations
            pairs = max(ratio * size, float(present))
            new = size - n + pairs - present
            choosing = max(present, min(_CHOOSING * size, 2.0 * _MOST_CHOOSING))
            takes = plan.seconds(size, choosing, size - n)
            takes += plan.seconds(size, pairs, new - (size - n), fitted=False)
            if (
                size > _MOST_LEARNING
                or size - n > left
                or not plan.fits(takes, goal.seconds or 0.0)
            ):
                return best
            best = larger

    def _pairs(self, state: RiskState, n: int, goal: Goal) -> Grid:
        """n θ with two x each: some from the law, others where the measures depend on J."""
        stream = goal.stream.child(7, state.n_pairs)
        dense = state.dense
        mass = dense.weights / dense.weights.sum()
        # Where either model has an answer, until one is chosen.
        share = np.zeros(len(mass))
        for c, law in enumerate(state.laws):
            found = self.targets.interest(law, dense.j[:, c])
            share += mass * found / max(float(mass @ found), 1e-300)
        share = share / share.sum() if share.any() else mass
        chance = _EVERYWHERE * mass + (1.0 - _EVERYWHERE) * share
        upper = np.cumsum(chance)
        at = np.searchsorted(upper[:-1], upper[-1] * stream.generator().random(n), "right")
        points = DenseSet(dense.uniform[at], mass[at] / chance[at], dense.j[at], at)
        # Twice the θ with one x: g may have outputs of θ alone, whose shape is right only then.
        return Grid(2 * n, 1, state.scenarios.given(points), IID(), None, stream)

    # Analyze.

    def analyze(
        self, evaluations: Evaluations, last: Turn[RiskState] | None = None
    ) -> Turn[RiskState]:
        started = clock.now()
        problem, design = evaluations.problem, evaluations.design
        assert isinstance(design, LearnedDesign)
        stream = design.grids[0].stream
        learning = Evaluations(evaluations.evaluator, design.learning)
        raw = learning.values(design.grids[0].n_outer)
        outputs = raw.shape[2] if raw.ndim == 3 else 1
        if self.names not in (None, outputs):
            found = f"{self.names} of them"
            raise InputError("outputs", found, f"{outputs}, one for each output of g")
        size = float(np.abs(raw).max())
        if size and not SIZES[0] < size < SIZES[1]:
            raise EvaluationError(
                f"g has values of size {size:.2g}; expected sizes between {SIZES[0]:g} and "
                f"{SIZES[1]:g}",
                advice="State losses in another unit of money.",
            )
        scenarios = scenarios_of(problem, stream) if last is None else last.state.scenarios
        n = len(design.grids)
        draws = scenarios.pairs(evaluations, range(n - design.n_checks, n))
        with one_blas_thread():
            same = last is not None and last.design.grids[0] == design.grids[0]
            if same and last is not None:
                models, parts = last.state.models, last.state.parts
            else:
                models = self.fit(scenarios, learning)
                parts = scenarios.parts(learning) if raw.ndim == 3 and not self.each else None
            kept = self._kept(models, draws)
            pilot = design.seconds is not None and last is None
            if last is not None and same and kept[0] == last.state.kept[0] and last.state.n_pairs:
                dense = last.state.dense
            else:
                # A pilot only shows where pairs should be.
                n = _PILOT_REPLICATES if pilot else REPLICATES
                dense = scenarios.dense(models[kept[0]], n, stream.child(8))
            room = self._affordable(models[kept[0]], draws) - 2 * len(draws.weights)
            state = RiskState(scenarios, models, parts, kept, dense, (), draws, max(room, 0.0))
            estimate, state = self._estimate(problem, state, raw, design)
        plan = self._timed(evaluations, last, state.model, clock.now() - started, same=same)
        return Turn(design, estimate, replace(state, time=plan))

    def _timed(
        self,
        evaluations: Evaluations,
        last: Turn[RiskState] | None,
        model: ModelOfJ,
        seconds: float,
        *,
        same: bool,
    ) -> TimePlan:
        """The forecast of turns, corrected by the seconds of the last."""
        problem, design = evaluations.problem, evaluations.design
        assert isinstance(design, LearnedDesign)
        each = evaluations.evaluator.seconds_per_evaluation
        n = design.learning.n_evaluations
        m, before = design.n_evaluations - n, 0 if last is None else last.design.n_evaluations
        if last is None or last.state.time is None:
            # ĝ is a sum over θ and x, Ĵ at both models one over θ.
            inner = problem.inner_base_dim if has_transports(problem) else 0
            plan = TimePlan.start(1.5 * model.dim + inner, each)
        else:
            plan = replace(last.state.time, seconds_of_g=each)
        return plan.corrected(seconds, n, m, design.n_evaluations - before, fitted=not same)

    def summed(self, draws: Check, most: int | None = None) -> Check:
        """The first pairs, with the losses that are analyzed."""
        each = (draws.uniform, draws.weights, draws.inner, self.lines(draws.values))
        return Check(*(one[:most] for one in each))

    def _kept(self, models: list[ModelOfJ], draws: Check) -> tuple[int, ...]:
        """Models that the first pairs do not refute; first the one with the smallest bar.

        Its square is that of what the model leaves of g, over the pairs that it can afford.
        """
        if len(models) < 2 or not len(draws.values):
            return (len(models) - 1,)
        check = self.summed(draws, _MOST_CHOOSING)
        left = [
            float((check.residuals(model) ** 2).mean())
            / min(self._affordable(model, draws), (1.0 / _LEARNING - 1.0) * models[0].n_points)
            for model in models
        ]
        return tuple(sorted(check.unrefuted(models), key=left.__getitem__))

    def _affordable(self, model: ModelOfJ, draws: Check) -> float:
        """Evaluations of pairs within the limit of time: ĝ may cost a sum over all points."""
        if isinstance(model, RegressionModel):
            return _MOST_PAIRS
        each = model.n_points * (model.dim + draws.inner.shape[2])
        return float(min(_NUMBERS * self.patience / each, _MOST_PAIRS))

    def _estimate(
        self, problem: NestedExpectation, state: RiskState, raw: Array, design: LearnedDesign
    ) -> tuple[Estimate, RiskState]:
        dense, model, draws = state.dense, state.model, state.draws
        assert dense.owner is not None
        which = state.scenarios.which(draws.uniform)
        dim = model.dim if which is None else np.inf
        same = np.unique(draws.uniform, axis=0, return_inverse=True)[1].ravel()
        laws = [LawOfJ.of_model(s, dense.weights, dense.owner, dim, len(raw)) for s in dense.j.T]
        notes = [str(note) for note in model.describe()["notes"]]
        constant = np.ptp(self.lines(raw[:, 0].reshape(len(raw), -1)), axis=0) == 0
        if state.n_pairs:
            constant &= np.ptp(self.lines(draws.values), axis=(0, 1)) == 0
            s = model.mean(draws.uniform)
            expected = _expected(state, s)
            check = self.summed(draws)
            r, values = check.residuals(model), check.values
            for c, law in enumerate(laws):
                node = same if which is None else law.node[which]
                pairs = Pairs(s[:, c], r[:, :, c], draws.weights, expected[:, c], node)
                # The same stream for all: errors of dates go together.
                rng = design.grids[0].stream.child(9).generator()
                laws[c] = law.corrected(pairs, rng, values=values[:, :, c])
            notes.extend(_said(state, laws[0]))
        else:
            notes.append("no fresh draws yet: the error is unknown")
        if constant.any():
            notes.append(NO_VARIATION)
        for c in np.flatnonzero(constant).tolist():  # of what never varied nothing is known
            laws[c] = replace(laws[c], pairs=None)
        measured = [self.targets.measured(law) for law in laws]
        estimate = _combined(
            measured,
            problem=problem,
            diagnostics={"model": type(model).__name__, "notes": notes},
            n_evaluations=design.n_evaluations,
            n_outer=len(raw) + state.n_pairs,
            n_inner=1,
            method=self.name,
        )
        errors = np.atleast_1d(estimate.std_error)[: len(self.targets.keys)]
        if self.targets.shows_shape(laws[0], errors):
            notes.append(_SHAPE)
        return estimate, replace(state, laws=tuple(laws))


def _combined(
    measured: Sequence[tuple[Array, Array | None]], problem: NestedExpectation, **fields: Any
) -> Estimate:
    """The measures of all losses as one estimate; those without draws have infinite errors."""
    value = np.concatenate([one for one, _ in measured])
    known = [draws for _, draws in measured if draws is not None]
    if len(known) == len(measured):
        return Estimate.from_draws(value, np.concatenate(known, axis=1), problem=problem, **fields)
    n = len(known[0]) if known else 1
    errors = [
        np.full((n, len(one)), np.inf) if draws is None else (draws - one) / np.sqrt(n)
        for one, draws in measured
    ]
    return Estimate.from_directions(
        value, np.concatenate(errors, axis=1).T, problem=problem, **fields
    )


def _expected(state: RiskState, s: Array) -> Array:
    """Squares (m, L) of errors of Ĵ, `s`, that are expected before values of the pairs are seen.

    Those that the model expects itself, and half the square of its distance to another that no
    pair refutes: either of them may be right.
    """
    found = []
    for start in range(0, state.n_pairs, _ROWS):
        some = state.draws.uniform[start : start + _ROWS]
        square = state.model.sd(some) ** 2
        for k in state.kept[1:]:
            square += 0.5 * (state.models[k].mean(some) - s[start : start + _ROWS]) ** 2
        found.append(square)
    return np.concatenate(found)


def _said(state: RiskState, law: LawOfJ) -> Iterator[str]:
    rest = float(law.weights @ law.v[0])
    share = rest / max(rest + law.variance, 1e-300)
    text = (
        f"{state.n_pairs:,} pairs of fresh draws: the model leaves {share:.1%} of the variance "
        "of the loss unexplained, which the law of the loss accounts for"
    )
    if share > 0.5:
        text += "; other coordinates of the scenario, in which the loss is smoother, would help"
    yield text
    if state.affordable < 2 * _FEWEST_PAIRS:
        yield (
            f"more than {state.n_pairs:,} pairs would take too long with a lattice of "
            f"{state.model.n_points:,} points: a larger budget is not spent in full, and a "
            "tolerance may not be met"
        )
