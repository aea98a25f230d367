"""Tail sampling: learn J, draw pairs of x where the measures depend on J, correct its law."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from nestquad._threads import one_blas_thread
from nestquad._typing import Array
from nestquad.errors import EvaluationError, InputError
from nestquad.evaluate import Design, Evaluations, Grid
from nestquad.methods import Goal, LearnedDesign, Method, ModelOfJ, Turn
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
    evaluations
        Values of g with their points, for losses of other positions.
    details
        Description of the model, in words of the method.
    seconds
        Those of the analysis.
    """

    scenarios: Scenarios
    models: list[ModelOfJ]
    parts: ModelOfJ | None
    kept: tuple[int, ...]
    dense: DenseSet
    laws: tuple[LawOfJ, ...]
    draws: Check
    affordable: float
    evaluations: Evaluations
    details: tuple[str, ...] = ()
    seconds: float = 0.0

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
    groups: tuple[tuple[int, ...], ...] = ()
    """Outputs of portfolios, each a loss of its own beside the sum of all outputs."""

    def lines(self, values: Array) -> Array:
        """Losses (…, L) from outputs (…, p)."""
        if self.each:
            return values
        sums = [values.sum(axis=-1), *(values[..., list(one)].sum(axis=-1) for one in self.groups)]
        return np.stack(sums, axis=-1)

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
            return None if design is None else LearnedDesign.of(design, ())
        assert isinstance(last.design, LearnedDesign)
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
                and (goal.seconds is None or 2 * factor * state.seconds < goal.seconds)
            ):
                return LearnedDesign.of(larger, last.design.checks)
        else:
            wanted = max(present, 0.6 * n_learned - present)
        n = int(min(wanted, left, state.affordable)) // 2
        if n < _FEWEST_PAIRS:
            return None
        grid = self._pairs(state, n, goal)
        return LearnedDesign.of(learning, (*last.design.checks, grid))

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
        started = time.perf_counter()
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
                models = scenarios.fit(learning, self.lines)
                parts = scenarios.parts(learning) if raw.ndim == 3 and not self.each else None
            kept = self._kept(models, draws)
            if last is not None and same and kept[0] == last.state.kept[0]:
                dense = last.state.dense
            else:
                dense = scenarios.dense(models[kept[0]], REPLICATES, stream.child(8))
            room = self._affordable(models[kept[0]], draws) - 2 * len(draws.weights)
            details = tuple(str(note) for note in models[kept[0]].describe()["notes"])
            state = RiskState(
                scenarios, models, parts, kept, dense, (), draws, max(room, 0.0), evaluations, details
            )
            estimate, state = self._estimate(problem, state, raw, design)
        seconds = time.perf_counter() - started
        return Turn(design, estimate, replace(state, seconds=seconds))

    def _lines(self, draws: Check, most: int | None = None) -> Check:
        """The first pairs, with the losses that are analyzed."""
        each = (draws.uniform, draws.weights, draws.inner, self.lines(draws.values))
        return Check(*(one[:most] for one in each))

    def _kept(self, models: list[ModelOfJ], draws: Check) -> tuple[int, ...]:
        """Models that the first pairs do not refute; first the one with the smallest bar.

        Its square is that of what the model leaves of g, over the pairs that it can afford.
        """
        if len(models) < 2 or not len(draws.values):
            return (len(models) - 1,)
        check = self._lines(draws, _MOST_CHOOSING)
        left = [
            float((check.residuals(model) ** 2).mean())
            / min(self._affordable(model, draws), (1.0 / _LEARNING - 1.0) * models[0].n_points)
            for model in models
        ]
        return tuple(sorted(check.unrefuted(models), key=left.__getitem__))

    def unused_pairs(self, state: RiskState) -> Pairs:
        """Pairs of the sum that had no part in the choice of its model."""
        pairs, first = state.laws[0].pairs, _MOST_CHOOSING if len(state.models) > 1 else 0
        if pairs is None:
            return Pairs(np.empty(0), np.empty((0, 2)), np.empty(0), np.empty(0))
        return Pairs(*(one[first:] for one in (pairs.s, pairs.r, pairs.weights, pairs.expected)))

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
        notes: list[str] = []
        constant = np.ptp(self.lines(raw[:, 0].reshape(len(raw), -1)), axis=0) == 0
        if state.n_pairs:
            constant &= np.ptp(self.lines(draws.values), axis=(0, 1)) == 0
            s, expected = model.mean(draws.uniform), _expected(state)
            check = self._lines(draws)
            r, values = check.residuals(model), check.values
            for c, law in enumerate(laws):
                node = same if which is None else law.node[which]
                pairs = Pairs(s[:, c], r[:, :, c], draws.weights, expected[:, c], node)
                # The same stream for all: errors of dates go together.
                rng = design.grids[0].stream.child(9).generator()
                laws[c] = law.corrected(pairs, rng, values=values[:, :, c])
            rest = float(laws[0].weights @ laws[0].v[0])
            share = rest / max(rest + laws[0].variance, 1e-300)
            notes.extend(_said(state, share))
            known = f"{state.n_pairs:,} pairs of fresh draws: the model leaves {share:.1%} of the "
            known += "variance of the loss unexplained, which the law of the loss accounts for"
            state = replace(state, details=(*state.details, known))
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


def _expected(state: RiskState) -> Array:
    """Squares (m, L) of errors of Ĵ that are expected before values of the pairs are seen.

    Those that the model expects itself, and half the square of its distance to another that no
    pair refutes: either of them may be right.
    """
    found = []
    for start in range(0, state.n_pairs, _ROWS):
        some = state.draws.uniform[start : start + _ROWS]
        square = state.model.sd(some) ** 2
        for k in state.kept[1:]:
            square += 0.5 * (state.models[k].mean(some) - state.model.mean(some)) ** 2
        found.append(square)
    return np.concatenate(found)


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
