"""Tail sampling: learn J, draw pairs of x where the measures depend on J, correct its law."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from nestquad import clock
from nestquad._scale import require_size
from nestquad._threads import one_blas_thread
from nestquad._typing import Array, Indices
from nestquad.clock import TimePlan
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid
from nestquad.methods import Goal, LearnedDesign, Method, ModelOfJ, Turn, has_transports
from nestquad.methods.learned import Check, DenseSet, Pairs, RegressionModel
from nestquad.methods.nested import NO_VARIATION
from nestquad.points import IID, PeriodicLattice, Stream
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate
from nestquad.risk._law import LawOfJ
from nestquad.risk._prior import Memory, Replayed
from nestquad.risk._scenarios import REPLICATES, RIDGE_POINTS, Scenarios, scenarios_of
from nestquad.risk._stacking import StackedModel, student_score
from nestquad.risk._targets import Targets


@dataclass(frozen=True)
class SamplingSettings:
    """Tuning numbers and limits of tail sampling.

    Attributes
    ----------
    learning, choosing
        Shares of the evaluations: those to learn from (a lattice takes the power of two below), and
        the pairs by which models are weighed.
    fewest, start
        Fewest evaluations in all, and in the first turn towards a tolerance.
    fewest_pairs, most_choosing
        Fewest pairs of a turn, and most pairs that weigh models.
    everywhere
        Share of the pairs whose θ come from their law, wherever the answer is.
    numbers
        Limit of time: numbers that may be computed for ĝ at all pairs, half a second.
    most_learning, most_pairs
        Limits of memory: evaluations to learn from, and in pairs.
    pilot_replicates
        Sets of dense θ before there are pairs, which only show where these should be.
    """

    learning: float = 0.62
    choosing: float = 0.08
    fewest: int = 128
    start: int = 1024
    fewest_pairs: int = 16
    most_choosing: int = 256
    everywhere: float = 0.15
    numbers: int = 1 << 29
    most_learning: int = 1 << 20
    most_pairs: int = 1 << 22
    pilot_replicates: int = 4

    @property
    def pairs_for_points(self) -> float:
        """Evaluations of pairs for each to learn from."""
        return 1.0 / self.learning - 1.0

    def n_choosing(self, total: float) -> int:
        """Evaluations of the pairs that weigh models."""
        return int(np.clip(self.choosing * total, 2 * self.fewest_pairs, 2 * self.most_choosing))


SETTINGS = SamplingSettings()


@dataclass(frozen=True, eq=False)
class RiskState:
    """State of tail sampling.

    Attributes
    ----------
    scenarios, models, model, parts
        Where θ comes from, models of the losses, their average, and a model of each output of g.
    dense, laws
        Dense θ with Ĵ, and the law of each loss.
    draws, check
        The pairs, with all outputs of g, and with the losses that are analyzed.
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
    model: StackedModel
    parts: ModelOfJ | None
    dense: DenseSet
    laws: tuple[LawOfJ, ...]
    draws: Check
    check: Check
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
    evaluations: float = 0.0
    """Those of the run, if they are limited."""
    n_losses: int | None = None
    """Leading outputs that are losses, if not all: others are averaged given the loss."""

    def lines(self, values: Array) -> Array:
        """Losses (…, L) from outputs (…, p)."""
        if not values.size:
            return values
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
        if (goal.budget or SETTINGS.fewest) < SETTINGS.fewest:
            expected = f"at least {SETTINGS.fewest}"
            raise InputError("budget", f"{goal.budget} evaluations", expected)
        if self.memory is not None and (last is None or last.state.helps):
            return self.memory.plan(goal, 0 if last is None else last.design.n_evaluations)
        if last is not None and last.state.n_replayed:
            if goal.budget is not None:
                rest = goal.budget - last.state.n_replayed
                if rest < SETTINGS.fewest:
                    return None
                goal = replace(goal, budget=rest)
            last = last if isinstance(last.design, LearnedDesign) else None
        # Where time is limited, as towards a tolerance, there is an answer with a bar at each size.
        hurried = goal.seconds is not None
        growing = goal.adaptive or hurried
        first = int(SETTINGS.learning * goal.budget) if goal.budget else SETTINGS.start
        first = min(first, SETTINGS.most_learning if growing else _enough(problem))
        if growing:
            first = min(first, SETTINGS.fewest if hurried else SETTINGS.start)
        if last is None:
            # Wrong names are noticed early.
            n = first if self.names is None else min(first, SETTINGS.fewest)
            design = scenarios_of(problem, goal.stream).design(n, goal, None)
            # A pilot, if time is limited: the loop is not to ask whether it ends in time.
            found = None if design is None else LearnedDesign.of(design, ())
            return None if found is None else replace(found, seconds=0.0 if hurried else None)
        assert isinstance(last.design, LearnedDesign)
        left = np.inf if goal.budget is None else goal.budget - last.design.n_evaluations
        n, present = last.design.learning.n_evaluations, 2 * last.state.n_pairs
        if not growing and not present and n < first:
            larger = last.state.scenarios.design(first, goal, last.design.learning)
            if larger is not None and n < larger.n_evaluations <= n + left:
                return LearnedDesign.of(larger, ())
        full = SETTINGS.pairs_for_points * n
        if growing and (present >= 0.9 * full or (hurried and not present)):
            grown = self._grown(last, goal, left)
            if grown is not None:
                return grown
        if hurried and not goal.half_width:
            return self._all_pairs(last, goal, left)
        wanted = max(present, full - present) if growing else left
        if not present:
            wanted = SETTINGS.n_choosing(n / SETTINGS.learning if growing else goal.budget or 0)
        return self._more_pairs(last, goal, min(wanted, left, last.state.affordable))

    def _more_pairs(
        self, last: Turn[RiskState], goal: Goal, evaluations: float
    ) -> LearnedDesign | None:
        assert isinstance(last.design, LearnedDesign)
        if evaluations // 2 < SETTINGS.fewest_pairs:
            return None
        grid = self._pairs(last.state, int(evaluations) // 2, goal)
        return LearnedDesign.of(last.design.learning, (*last.design.checks, grid))

    def _all_pairs(self, last: Turn[RiskState], goal: Goal, left: float) -> LearnedDesign | None:
        """All further pairs whose evaluation and analysis end in time."""
        assert isinstance(last.design, LearnedDesign)
        n, present, plan = (
            last.design.learning.n_evaluations,
            2 * last.state.n_pairs,
            last.state.time,
        )
        assert plan is not None

        def seconds(more: int) -> float:
            return plan.seconds(n, present + more, more, fitted=False)

        # Pairs beyond four times the points of the fit would be better spent on the fit.
        most = min(left, 4.0 * n - present, SETTINGS.most_pairs - present)
        m = plan.largest(seconds, goal.seconds or 0.0, most)
        design = self._more_pairs(last, goal, m) if m >= present // 2 else None
        return None if design is None else replace(design, seconds=seconds(m))

    def _grown(self, last: Turn[RiskState], goal: Goal, left: float) -> LearnedDesign | None:
        """The next size towards a tolerance, or the largest that ends in time with its pairs.

        Neither a lattice with fewer pairs is progress, nor one that a ridge does not use.
        """
        assert isinstance(last.design, LearnedDesign)
        state, plan, best, takes = last.state, last.state.time, None, 0.0
        n, present = last.design.learning.n_evaluations, 2 * state.n_pairs
        if state.model.is_only(RegressionModel) and n >= RIDGE_POINTS:
            return None
        most = min(n + left, SETTINGS.most_learning)
        if goal.half_width:  # where seconds count, so do turns
            factor = 2 if goal.seconds is None else 4
            most = (
                0.0
                if factor * present > (present + state.affordable) / factor
                else min(most, factor * n)
            )
        while True:
            before = last.design.learning if best is None else best
            wanted = 2 * before.n_evaluations
            own = replace(goal, budget=wanted, adaptive=True)
            larger = state.scenarios.design(wanted, own, before)
            if larger is None or not before.n_evaluations < larger.n_evaluations <= most:
                break
            size = larger.n_evaluations
            if goal.seconds is not None and plan is not None:
                checked = max(present, SETTINGS.n_choosing(size))
                pairs = max(SETTINGS.pairs_for_points * size, float(present))
                fit = plan.seconds(size, checked, size - n)
                rest = plan.seconds(size, pairs, pairs - present, fitted=False)
                if not plan.fits(fit + rest, goal.seconds):
                    break
                takes = fit
            best = larger
        if best is None:
            return None
        checks = last.design.checks
        if goal.seconds is not None and not checks:
            checks = (self._pairs(state, SETTINGS.n_choosing(best.n_evaluations) // 2, goal),)
        found = LearnedDesign.of(best, checks)
        return found if goal.half_width else replace(found, seconds=takes)

    def _pairs(self, state: RiskState, n: int, goal: Goal) -> Grid:
        """n θ with two x each: some from the law, others where the measures depend on J."""
        stream = goal.stream.child(7, state.n_pairs)
        dense = state.dense
        mass = dense.weights / dense.weights.sum()
        share = np.zeros(len(mass))
        for law in state.laws:
            found = law.interest(self.targets)[law.node]
            share += mass * found / max(float(mass @ found), 1e-300)
        share = share / share.sum() if share.any() else mass
        chance = SETTINGS.everywhere * mass + (1.0 - SETTINGS.everywhere) * share
        upper = np.cumsum(chance)
        at = np.searchsorted(upper[:-1], upper[-1] * stream.generator().random(n), "right")
        points = DenseSet(dense.uniform[at], mass[at] / chance[at], dense.j[at], at)
        # Twice the θ with one x: g may have outputs of θ alone, whose shape is right only then.
        return Grid(2 * n, 1, state.scenarios.given(points), IID(), None, stream)

    # Analyze.

    def analyze(
        self, evaluations: Evaluations, last: Turn[RiskState] | None = None
    ) -> Turn[RiskState]:
        started, design = clock.now(), evaluations.design
        grid, before = design.grids[0], None if last is None else last.state
        scenarios = (
            scenarios_of(evaluations.problem, grid.stream) if before is None else before.scenarios
        )
        learning: Evaluations = Evaluations(evaluations.evaluator, Design((grid,)))
        raw = self._checked(learning.values(grid.n_outer))
        replayed: Replayed | None = None
        if isinstance(design, LearnedDesign):
            n = len(design.grids)
            draws = scenarios.pairs(evaluations, range(n - design.n_checks, n))
            memory = Memory(grid, raw[:, 0].reshape(len(raw), -1), draws)
        else:
            assert self.memory is not None
            replayed = Replayed.of(self.memory, raw[:, 0].reshape(len(raw), -1), scenarios)
            memory, draws = replayed.memory, replayed.memory.draws
            learning = memory.evaluations(evaluations.evaluator, raw.ndim == 2)
            raw = learning.values(len(memory.raw))
        kept = None  # the state whose fit is that of today
        if last is not None and replayed is None and last.design.grids[0] == grid:
            kept = last.state
        with one_blas_thread():
            models = self.fit(scenarios, learning) if kept is None else kept.models
            several = raw.ndim == 3 and not self.each
            new = scenarios.parts(learning) if several and kept is None else None
            parts = new if kept is None else kept.parts
            check = replace(draws, values=self.lines(draws.values))
            model = self.stacked(models, check, kept)
            if kept is not None and kept.n_pairs and model.is_same(kept.model):
                model, dense = kept.model, kept.dense
            else:  # without pairs it only shows where pairs should be
                n = REPLICATES if len(draws.weights) else SETTINGS.pilot_replicates
                dense = scenarios.dense(model, n, grid.stream.child(8))
            repeatable = replayed is not None or isinstance(grid.outer_points, PeriodicLattice)
            state = RiskState(
                scenarios,
                models,
                model,
                parts,
                dense,
                (),
                draws,
                check,
                max(self._affordable(model, draws) - 2.0 * len(draws.weights), 0.0),
                evaluations,
                tuple(str(note) for note in model.describe()["notes"]),
                memory=memory if repeatable else None,
                helps=before is None or before.helps,
                n_replayed=0 if before is None else before.n_replayed,
            )
            estimate, state = self._estimate(evaluations.problem, state, raw, replayed)
        if replayed is None:
            plan = self._timed(evaluations, last, model, clock.now() - started, kept is None)
            state = replace(state, time=plan)
        return Turn(design, estimate, state)

    def _checked(self, raw: Array) -> Array:
        """Values of g, if they are as many as there are names, and of sizes in range."""
        outputs = raw.shape[2] if raw.ndim == 3 else 1
        if self.names not in (None, outputs):
            expected = f"{outputs}, one for each output of g"
            raise InputError("outputs", f"{self.names} of them", expected)
        require_size(raw)
        return raw

    def _timed(
        self,
        evaluations: Evaluations,
        last: Turn[RiskState] | None,
        model: StackedModel,
        seconds: float,
        fitted: bool,
    ) -> TimePlan:
        """The forecast of turns, corrected by the seconds of the last."""
        problem, design = evaluations.problem, evaluations.design
        assert isinstance(design, LearnedDesign)
        each = evaluations.evaluator.seconds_per_evaluation
        n, total = design.learning.n_evaluations, design.n_evaluations
        known = last is not None and isinstance(last.design, LearnedDesign)
        before = last.design.n_evaluations if known and last is not None else 0
        if last is None or last.state.time is None:
            # ĝ is a sum over θ and x, Ĵ at both models one over θ.
            inner = problem.inner_base_dim if has_transports(problem) else 0
            plan = TimePlan.start(1.5 * model.dim + inner, each)
        else:
            plan = replace(last.state.time, seconds_of_g=each)
        return plan.corrected(seconds, n, total - n, total - before, fitted=fitted)

    def stacked(
        self, models: list[ModelOfJ], check: Check, kept: RiskState | None = None
    ) -> StackedModel:
        """Average of a lattice and a regression, weighted by residuals of the first pairs.

        Regressions may give the control variates alone, or all: their cost at a pair is that of a
        few terms, and a lattice takes all of its points. A state that is `kept` may have the same.
        """
        if kept is not None and kept.n_pairs >= SETTINGS.most_choosing:
            return kept.model
        if len(models) < 2 or not len(check.values):
            return StackedModel.single(models[-1])
        check, last = check.first(SETTINGS.most_choosing), len(models) - 1
        outputs = check.values.shape[2]

        def score(model: StackedModel) -> float:
            # The square of a bar falls with the number of pairs, of which regressions afford more.
            n = models[0].n_points
            most = max(SETTINGS.pairs_for_points * n, self.evaluations - n)
            size = 0.5 * outputs * np.log(min(self._affordable(model, check), most))
            return float(student_score(model.residuals(check).reshape(-1, outputs)).sum() - size)

        lattice, cheap = (0, last), (last - 1, last)
        ways = {(lattice, lattice), (lattice, cheap), (cheap, cheap)}
        found = (StackedModel.of(tuple(models), *way, check) for way in sorted(ways))
        return min(found, key=score)

    def unused_pairs(self, state: RiskState) -> Pairs | None:
        """Pairs of the sum that had no part in the choice of its model."""
        pairs = state.laws[0].pairs
        several = len(state.models) > 1
        return pairs and pairs.after(SETTINGS.most_choosing if several else 0)

    def _affordable(self, model: StackedModel, draws: Check) -> float:
        """Evaluations of pairs within the limit of time: a lattice sums over all its points."""
        # Two x share the Ĵ of their θ.
        each = sum(
            one.n_points * (one.dim + draws.inner.shape[2] if inner.any() else 0.5 * one.dim)
            for one, inner in zip(model.models, model.inner, strict=True)
            if not isinstance(one, RegressionModel)
        )
        numbers = SETTINGS.numbers * self.patience
        return float(min(numbers / max(each, 1.0), SETTINGS.most_pairs))

    def _estimate(
        self,
        problem: NestedExpectation,
        state: RiskState,
        raw: Array,
        replayed: Replayed | None,
    ) -> tuple[Estimate, RiskState]:
        dense, design = state.dense, state.evaluations.design
        assert dense.owner is not None
        which = state.scenarios.which(state.draws.uniform)
        dim = state.model.dim if which is None else np.inf
        theta = dense.uniform[:, 0] if dim == 1 else None
        laws = [
            LawOfJ.of_model(s, dense.weights, dense.owner, dim, len(raw), theta) for s in dense.j.T
        ]
        notes: list[str] = []
        constant = np.ptp(self.lines(raw[:, 0].reshape(len(raw), -1)), axis=0) == 0
        if state.n_pairs:
            constant &= np.ptp(state.check.values, axis=(0, 1)) == 0
            rng = design.grids[0].stream.child(9)
            laws = self._corrected(laws, state, which, rng, replayed)
            share = laws[0].unexplained_share
            notes.extend(_remarks(state, share))
            text = f"{state.n_pairs:,} pairs of fresh draws: the model leaves {share:.1%} of the "
            text += "variance of the loss unexplained, which the law of the loss accounts for"
            state = replace(state, details=(*state.details, text))
        else:
            notes.append("no fresh draws yet: the error is unknown")
        if replayed is not None and laws[0].pairs is not None:
            helps, text = replayed.verdict(laws[0].pairs.r, self.lines)
            notes.append(text)
            state = replace(state, helps=helps, n_replayed=design.n_evaluations)
        elif state.n_replayed:
            notes.append("values of the earlier run explain too little, and are not used")
        if constant.any():
            notes.append(NO_VARIATION)
        for c in np.flatnonzero(constant).tolist():  # of what never varied nothing is known
            laws[c] = replace(laws[c], pairs=None)
        estimate = _combined(
            [law.measured(self.targets) for law in laws],
            problem=problem,
            diagnostics={"model": _name(state.model), "notes": notes},
            n_evaluations=design.n_evaluations,
            n_outer=len(raw) + state.n_pairs,
            n_inner=1,
            method=self.name,
        )
        return estimate, replace(state, laws=tuple(laws))

    def _corrected(
        self,
        laws: Sequence[LawOfJ],
        state: RiskState,
        which: Indices | None,
        stream: Stream,
        replayed: Replayed | None,
    ) -> list[LawOfJ]:
        """Laws corrected by pairs: J given Ĵ."""
        model, draws, found = state.model, state.check, []
        same = np.unique(draws.uniform, axis=0, return_inverse=True)[1].ravel()
        s, r, expected = model.means(draws), model.residuals(draws), model.variances(draws)
        for c, law in enumerate(laws):
            node = same if which is None else law.node[which]
            along = draws.uniform[:, 0] if law.by_theta else None
            pairs = Pairs(s[:, c], r[:, :, c], draws.weights, expected[:, c], node, along=along)
            rng = stream.generator()  # the same for all: errors of dates go together
            law = law.corrected(pairs, rng, values=draws.values[:, :, c])
            if replayed is not None:
                law = law.shifted(replayed.evidence(s[:, c], c, same, self.lines), rng)
            found.append(law)
        return found


def _enough(problem: NestedExpectation) -> int:
    """Points of a lattice beyond which its pairs take too long: evaluations serve better there."""
    if not has_transports(problem):
        return RIDGE_POINTS
    dim = problem.outer_law.base_dim + problem.inner_base_dim
    return max(RIDGE_POINTS, int((SETTINGS.numbers / (SETTINGS.pairs_for_points * dim)) ** 0.5))


def _name(model: StackedModel) -> str:
    return " and ".join(type(one).__name__ for one in model.models)


def _combined(
    measured: Sequence[tuple[Array, Array | None]], problem: NestedExpectation, **fields: Any
) -> Estimate:
    """The measures of all losses as one estimate; infinite errors without draws."""
    value = np.concatenate([best for best, _ in measured])
    known = [draws for _, draws in measured if draws is not None]
    if len(known) == len(measured):
        return Estimate.from_draws(value, np.concatenate(known, axis=1), problem=problem, **fields)
    n = len(known[0]) if known else 1
    errors = [
        np.full((n, len(best)), np.inf) if draws is None else (draws - best) / np.sqrt(n)
        for best, draws in measured
    ]
    return Estimate.from_directions(
        value, np.concatenate(errors, axis=1).T, problem=problem, **fields
    )


def _remarks(state: RiskState, share: float) -> Iterator[str]:
    if share > 0.5:
        yield (
            f"{share:.0%} of the variance of the loss is not explained by the scenario's "
            "coordinates: others, in which the loss is smoother, would help"
        )
    if state.affordable < 2 * SETTINGS.fewest_pairs:
        yield (
            f"more than {2 * state.n_pairs:,} evaluations near the answer would take too long: a "
            "larger budget is not spent in full, and a tolerance may not be met"
        )
