"""Tail sampling: learn J, draw pairs of x where the measures depend on J, correct its law."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from nestquad import clock
from nestquad._threads import one_blas_thread
from nestquad._typing import Array, Indices
from nestquad.clock import TimePlan
from nestquad.errors import EvaluationError, InputError
from nestquad.evaluate import Design, Evaluations, Grid
from nestquad.methods import Goal, LearnedDesign, Method, ModelOfJ, Turn, has_transports
from nestquad.methods.learned import Check, DenseSet, Pairs, RegressionModel
from nestquad.methods.nested import NO_VARIATION
from nestquad.points import IID, PeriodicLattice
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate
from nestquad.risk._forecast import Outlook
from nestquad.risk._law import LawOfJ
from nestquad.risk._prior import Memory
from nestquad.risk._scenarios import REPLICATES, RIDGE_POINTS, Scenarios, scenarios_of
from nestquad.risk._stacking import StackedModel, is_same_model, stacking_weights, student_score
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
    scenarios, models, model, parts
        Where θ comes from, models of the losses, their average, and a model of each output of g.
    dense, laws
        Dense θ with Ĵ, and the law of each loss.
    draws
        The pairs, with all outputs of g.
    affordable
        Evaluations that further pairs may take.
    time
        Forecast of the seconds of turns; None before the first.
    evaluations
        Values of g with their points, for losses of other positions.
    details
        Description of the model, in words of the method.
    memory
        Values for a later run; None where points cannot be repeated.
    helps, n_replayed
        Whether values of an earlier run help, and the evaluations that decided it.
    """

    scenarios: Scenarios
    models: list[ModelOfJ]
    model: ModelOfJ
    parts: ModelOfJ | None
    dense: DenseSet
    laws: tuple[LawOfJ, ...]
    draws: Check
    affordable: float
    evaluations: Evaluations
    details: tuple[str, ...] = ()
    time: TimePlan | None = None
    memory: Memory | None = None
    helps: bool = True
    n_replayed: int = 0

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
    groups: tuple[tuple[int, ...], ...] = ()
    """Outputs of portfolios, each a loss of its own beside the sum of all outputs."""
    memory: Memory | None = field(default=None, compare=False)
    """Values of an earlier run, which are control variates."""
    outlook: Outlook | None = field(default=None, compare=False)
    """Record of turns towards a tolerance."""
    n_losses: int | None = None
    """Leading outputs that are losses, if not all: others are averaged given the loss."""

    def lines(self, values: Array) -> Array:
        """Losses (…, L) from outputs (…, p)."""
        values = values[..., : self.n_losses]
        if self.each:
            return values
        sums = [values.sum(axis=-1), *(values[..., list(one)].sum(axis=-1) for one in self.groups)]
        return np.stack(sums, axis=-1)

    def fit(self, scenarios: Scenarios, learning: Evaluations) -> list[ModelOfJ]:
        """Models of the losses; draws will choose."""
        return scenarios.fit(learning, self.lines)

    # Plan.

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[RiskState] | None = None
    ) -> Design | None:
        if (goal.budget or FEWEST) < FEWEST:
            raise InputError("budget", f"{goal.budget} evaluations", f"at least {FEWEST}")
        if self.memory is not None and (last is None or last.state.helps):
            return self._replay(self.memory, goal, last)
        if last is not None and last.state.n_replayed:
            spent = last.state.n_replayed
            goal = replace(goal, budget=None if goal.budget is None else goal.budget - spent)
            last = last if isinstance(last.design, LearnedDesign) else None
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

    def _replay(self, memory: Memory, goal: Goal, last: Turn[RiskState] | None) -> Design | None:
        """Points of an earlier run: a few to see whether its values help, then as many as asked."""
        chosen, points = memory.settings, memory.rows[0]
        spent = 0 if last is None else last.design.n_evaluations
        n = float(goal.budget or points.max_points)
        if last is None:
            n = min(chosen.fewest if goal.adaptive else max(chosen.share * n, chosen.fewest), n)
        elif goal.adaptive:
            n = min(2 * spent, n)
        rows = chosen.block * int(min(n, points.max_points) // chosen.block)
        if rows <= spent:
            return None
        return Design((Grid(rows, 1, points, points, None, goal.stream, joint=True),))

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
        stream = design.grids[0].stream
        scenarios = scenarios_of(problem, stream) if last is None else last.state.scenarios
        learning = Evaluations(evaluations.evaluator, Design(design.grids[:1]))
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
        replayed: Replayed | None = None
        if isinstance(design, LearnedDesign):
            n = len(design.grids)
            draws = scenarios.pairs(evaluations, range(n - design.n_checks, n))
            same = last is not None and last.design.grids[0] == design.grids[0]
            lattice = isinstance(design.grids[0].outer_points, PeriodicLattice)
            memory = Memory(design.grids[0], raw[:, 0].reshape(len(raw), -1), draws)
        else:
            assert self.memory is not None
            replayed = Replayed.of(self.memory, raw[:, 0].reshape(len(raw), -1), scenarios)
            memory, draws, same, lattice = replayed.memory, replayed.memory.draws, False, True
            learning = memory.evaluations(evaluations.evaluator, raw.ndim == 2)
            raw = learning.values(len(memory.raw))
        with one_blas_thread():
            if same and last is not None:
                models, parts = last.state.models, last.state.parts
            else:
                models = self.fit(scenarios, learning)
                parts = scenarios.parts(learning) if raw.ndim == 3 and not self.each else None
            model = self.stacked(models, draws)
            # A pilot only shows where pairs should be.
            started_anew = last is None or not isinstance(last.design, LearnedDesign)
            pilot = design.seconds is not None and started_anew
            if (
                last is not None
                and same
                and last.state.n_pairs
                and is_same_model(model, last.state.model)
            ):
                model, dense = last.state.model, last.state.dense
            else:
                n = _PILOT_REPLICATES if pilot else REPLICATES
                dense = scenarios.dense(model, n, stream.child(8))
            room = self._affordable(model, draws) - 2 * len(draws.weights)
            details = tuple(str(note) for note in model.describe()["notes"])
            state = RiskState(
                scenarios,
                models,
                model,
                parts,
                dense,
                (),
                draws,
                max(room, 0.0),
                evaluations,
                details,
            )
            if last is not None:
                state = replace(state, n_replayed=last.state.n_replayed, helps=last.state.helps)
            state = replace(state, memory=memory if lattice else None)
            estimate, state = self._estimate(problem, state, raw, design, replayed)
        if self.outlook is not None:
            value, half = np.atleast_1d(estimate.value), np.atleast_1d(estimate.half_width)
            self.outlook.add(evaluations.evaluator.n_evaluations, value, half)
        if isinstance(design, LearnedDesign):
            seconds = clock.now() - started
            plan = self._timed(evaluations, last, state.model, seconds, same=same)
            state = replace(state, time=plan)
        return Turn(design, estimate, state)

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
        m, before = design.n_evaluations - n, 0
        if last is not None and isinstance(last.design, LearnedDesign):
            before = last.design.n_evaluations
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

    def stacked(self, models: list[ModelOfJ], draws: Check) -> ModelOfJ:
        """Average of a lattice and a regression, weighted by residuals of the first pairs."""
        stacked: ModelOfJ
        if len(models) < 2 or not len(draws.values):
            return models[-1]
        check = self.summed(draws, _MOST_CHOOSING)
        lattice, regression = models
        rests = check.residuals(lattice), check.residuals(regression)
        means = lattice.mean(check.uniform), regression.mean(check.uniform)
        weights, inner = stacking_weights(means, rests)
        if (weights == 1.0).all() and (inner == 1.0).all():
            stacked = lattice
        else:
            stacked = StackedModel(lattice, regression, weights, inner)
        # The square of a bar falls with the number of pairs, of which a regression affords more.
        most = (1.0 / _LEARNING - 1.0) * lattice.n_points
        scores = [
            student_score(check.residuals(one).reshape(-1, len(weights))).sum()
            - 0.5 * len(weights) * np.log(min(self._affordable(one, draws), most))
            for one in (stacked, regression)
        ]
        return stacked if scores[0] <= scores[1] else regression

    def unused_pairs(self, state: RiskState) -> Pairs:
        """Pairs of the sum that had no part in the choice of its model."""
        pairs, first = state.laws[0].pairs, _MOST_CHOOSING if len(state.models) > 1 else 0
        if pairs is None:
            return Pairs(np.empty(0), np.empty((0, 2)), np.empty(0), np.empty(0))
        rest = slice(first, None)
        return Pairs(pairs.s[rest], pairs.r[rest], pairs.weights[rest], pairs.expected[rest])

    def _affordable(self, model: ModelOfJ, draws: Check) -> float:
        """Evaluations of pairs within the limit of time: ĝ may cost a sum over all points."""
        if isinstance(model, RegressionModel):
            return _MOST_PAIRS
        each = model.n_points * (model.dim + draws.inner.shape[2])
        return float(min(_NUMBERS * self.patience / each, _MOST_PAIRS))

    def _estimate(
        self,
        problem: NestedExpectation,
        state: RiskState,
        raw: Array,
        design: Design,
        replayed: Replayed | None,
    ) -> tuple[Estimate, RiskState]:
        dense, model, draws = state.dense, state.model, state.draws
        assert dense.owner is not None
        which = state.scenarios.which(draws.uniform)
        dim = model.dim if which is None else np.inf
        same = np.unique(draws.uniform, axis=0, return_inverse=True)[1].ravel()
        laws = [LawOfJ.of_model(s, dense.weights, dense.owner, dim, len(raw)) for s in dense.j.T]
        notes: list[str] = []
        constant = np.ptp(self.lines(raw[:, 0].reshape(len(raw), -1)), axis=0) == 0
        if state.n_pairs:
            constant &= np.ptp(self.lines(draws.values), axis=(0, 1)) == 0
            s = model.mean(draws.uniform)
            blocks = range(0, state.n_pairs, _ROWS)
            claimed = [model.sd(draws.uniform[start : start + _ROWS]) for start in blocks]
            expected = np.concatenate(claimed) ** 2
            check = self.summed(draws)
            r, values = check.residuals(model), check.values
            for c, law in enumerate(laws):
                node = same if which is None else law.node[which]
                pairs = Pairs(s[:, c], r[:, :, c], draws.weights, expected[:, c], node)
                # The same stream for all: errors of dates go together.
                rng = design.grids[0].stream.child(9).generator()
                laws[c] = law.corrected(pairs, rng, values=values[:, :, c])
                if replayed is not None:
                    at, left = replayed.pairs, self.lines(replayed.residuals)
                    error = self.lines(replayed.claimed)[:, c]
                    fresh = Pairs(s[at, c], left[:, :, c], draws.weights[at], error**2, same[at])
                    laws[c] = laws[c].shifted(fresh, rng)
            if replayed is not None:
                unexplained = float((self.lines(replayed.residuals)[:, :, 0] ** 2).mean())
                own, total = float((r[:, :, 0] ** 2).mean()), float(values[:, :, 0].var())
                helps = unexplained <= replayed.memory.settings.helpful * own
                state = replace(state, helps=helps, n_replayed=design.n_evaluations)
                known = 1.0 - unexplained / max(total, 1e-300)
                notes.append(
                    f"values of the earlier run explain {known:.2%} of the variance of today's loss"
                    + ("" if helps else ", too little to help: they are not used")
                )
            elif state.n_replayed:
                notes.append("values of the earlier run explain too little, and are not used")
            rest = float(laws[0].weights @ laws[0].v[0])
            share = rest / max(rest + laws[0].variance, 1e-300)
            notes.extend(_said(state, share))
            text = f"{state.n_pairs:,} pairs of fresh draws: the model leaves {share:.1%} of the "
            text += "variance of the loss unexplained, which the law of the loss accounts for"
            state = replace(state, details=(*state.details, text))
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


@dataclass(frozen=True, eq=False)
class Replayed:
    """Values of an earlier run with a model of their change, and fresh evidence against it.

    Attributes
    ----------
    memory
        Earlier values plus the predicted change.
    pairs
        Numbers (m,) of the pairs that were evaluated again.
    residuals
        Values there less earlier ones and the change (m, 2, p), predicted from other pairs.
    claimed
        Errors (m, p) of the predicted mean change that its regression expects.
    """

    memory: Memory
    pairs: Indices
    residuals: Array
    claimed: Array

    @classmethod
    def of(cls, memory: Memory, values: Array, scenarios: Scenarios) -> Replayed:
        n = len(values) // memory.settings.block * memory.settings.block
        if values.shape[1] != memory.raw.shape[1]:
            outputs = f"a run with {memory.raw.shape[1]} outputs of g"
            raise InputError("prior", outputs, f"one with {values.shape[1]}, as today")
        given, known, number = memory.rows
        points, change, number = given.points[:n], values[:n] - known[:n], number[:n]
        d, rest = memory.dims[0], change.copy()
        again = number >= 0
        half = np.full(n, -1)
        half[again] = np.arange(again.sum()) // 2 % 2
        for k in (0, 1):
            model = scenarios.ridge(points[half != k], change[half != k], d, None)
            rows = half == k
            rest[rows] -= model.at(points[rows, :d], points[rows, d:])
        whole = scenarios.ridge(points, change, d, None)
        theta = points[again, :d][::2]
        residuals = rest[again].reshape(len(theta), 2, -1)
        return cls(memory.with_change(whole), number[again][::2], residuals, whole.sd(theta))


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


def _said(state: RiskState, share: float) -> Iterator[str]:
    if share > 0.5:
        yield (
            f"{share:.0%} of the variance of the loss is not explained by the scenario's "
            "coordinates: others, in which the loss is smoother, would help"
        )
    if state.affordable < 2 * _FEWEST_PAIRS:
        yield (
            f"more than {2 * state.n_pairs:,} evaluations near the answer would take too long: a "
            "larger budget is not spent in full, and a tolerance may not be met"
        )
