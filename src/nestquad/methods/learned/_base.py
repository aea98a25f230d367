"""Base of learned methods: learn J, check the model by fresh draws, average f(Ĵ)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

import nestquad.methods.learned._posterior as _posterior
from nestquad._typing import Array
from nestquad.accuracy import finite_average, order_near, size_of
from nestquad.errors import EvaluationError, InputError
from nestquad.evaluate import Design, Evaluations
from nestquad.methods._events import (
    HEAVY_TAIL,
    NO_VARIATION,
    floor_directions,
    heavy_errors,
    unreached_errors,
    unseen_errors,
)
from nestquad.methods._method import Goal, Method, Turn, require_transports
from nestquad.methods.learned._average import AVERAGE, DenseAverage
from nestquad.methods.learned._evidence import Check, LearnedDesign, check_grid
from nestquad.methods.learned._model import ModelOfJ
from nestquad.methods.learned._posterior import (
    Calibration,
    Functional,
    FunctionalDraws,
    PathEffects,
    PosteriorOfJ,
    shape_errors,
)
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate

M = TypeVar("M", bound=ModelOfJ)
AVERAGING = "the error is that of the average over theta: more evaluations of g cannot help"


@dataclass(frozen=True)
class LearningSettings:
    """Tuning numbers of all learned methods.

    Attributes
    ----------
    share
        Share of the evaluations that are fresh draws: 8 to 17 % did as well in the prototype.
    most_draws, fewest_draws
        Largest and smallest number of fresh draws: 256 pairs show a variance to 9 %, and eight
        show very little.
    unlearned
        Share of the variance of J beyond which a note says that J is hardly learned.
    pair_numbers, enough_draws
        Predictions at fresh draws by all points of a fit, a part of a second, and the number of
        fresh draws that is worth any time.
    log2_size
        Base-2 logarithm of the largest lattice of θ towards a tolerance.
    """

    share: float = 0.14
    most_draws: int = 512
    fewest_draws: int = 16
    unlearned: float = 0.5
    pair_numbers: int = 1 << 27
    enough_draws: int = 64
    log2_size: int = 22


LEARNING = LearningSettings()


@dataclass(frozen=True, eq=False)
class Fit(Generic[M]):
    """A model of J, and the evaluations behind it.

    Attributes
    ----------
    model
        The model.
    scalar
        Whether g has a single output.
    n_outer, n_inner
        Numbers of θ, and of x for each of them.
    reliable
        Whether the model can be trusted to know its error; if not, the bar is infinite.
    """

    model: M
    scalar: bool
    n_outer: int
    n_inner: int
    reliable: bool = True
    calibrations: dict[M, Calibration] = field(default_factory=dict, init=False)
    dense: dict[tuple[ModelOfJ, int], Array] = field(default_factory=dict, init=False)


@dataclass(frozen=True, eq=False)
class Learned(Generic[M]):
    """State of a learned method.

    Attributes
    ----------
    fit, model
        Fit of the models, and the model that was chosen.
    answers
        The q expectations.
    parts, rate
        Sizes of the error's parts, and the power of n at which they fall.
    check
        Fresh draws, if there are any.
    """

    fit: Fit[M]
    model: M
    answers: Array
    parts: dict[str, float]
    rate: float
    check: Check | None

    @property
    def scalar(self) -> bool:
        return self.fit.scalar


@dataclass(frozen=True, eq=False)
class LearnedAnswer(Generic[M]):
    """Answer of one model.

    Attributes
    ----------
    model, average
        The model of J, and the average of f(Ĵ).
    answers
        The q expectations.
    value, draws
        Final answers (k,), and draws (K, k) of them.
    parts
        Standard deviations of the error by cause, the largest over the answers.
    rate
        Power of n at which the posterior narrows.
    notes
        Sentences for the user.
    """

    model: M
    average: DenseAverage
    answers: Array
    value: Array
    draws: Array
    parts: dict[str, float]
    rate: float
    notes: tuple[str, ...] = ()


class LearnedMethod(Method[Learned[M]], Generic[M]):
    """Learn J from evaluations of g, then average f(Ĵ) over θ, which costs none.

    A method supplies designs (`sized`) and models (`fit`). Planning, the check by fresh draws,
    average and error bar are written here.
    """

    sequential: ClassVar[bool] = True
    start: ClassVar[int] = 512
    """Evaluations of the first turn where a tolerance decides."""
    fewest: ClassVar[int]
    stepwise: ClassVar[bool] = False
    """Whether the learning of a fixed budget, too, takes several turns."""
    longest_turn: ClassVar[float] = np.inf
    """The factor by which a turn of a fixed budget grows at most."""

    @abstractmethod
    def sized(
        self, problem: NestedExpectation, goal: Goal, n: int, last: Turn[Learned[M]] | None
    ) -> Design | None:
        """The design of about n evaluations that contains the last one; None if there is none."""

    @abstractmethod
    def fit(self, evaluations: Evaluations, last: Turn[Learned[M]] | None) -> Fit[M]:
        """Models of J from the evaluations of a design."""

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Learned[M]] | None = None
    ) -> Design | None:
        require_transports(problem, self.name)
        known = 0 if last is None or last.state.check is None else last.state.check.n_draws
        reserved = 0 if goal.budget is None else max(n_draws(problem, goal.budget), known)
        own = replace(goal, budget=None if goal.budget is None else goal.budget - reserved)
        if last is None:
            stepwise = goal.adaptive or goal.budget is None or self.stepwise
            n = (goal.pilot or self.start) if stepwise else own.budget
            assert n is not None
            design = self.sized(problem, own, min(n, own.budget or n), None)
            if design is None or design.n_evaluations > (own.budget or np.inf):
                least = self.fewest if design is None else design.n_evaluations
                raise InputError(
                    "budget",
                    f"{goal.budget} evaluations",
                    f"at least {least + reserved} for method {self.name!r} on this problem",
                )
            return LearnedDesign.of(design, ())
        present, half = last.design, NORMAL_95 * float(np.max(last.estimate.std_error))
        assert isinstance(present, LearnedDesign)
        if goal.adaptive and last.final:
            return self._more_theta(problem, goal, last)
        unchecked = last.state.check is None and goal.adaptive and half <= (goal.half_width or 0.0)
        learning = None if unchecked else self._larger(problem, own, last)
        bounded = goal.budget is not None and not goal.adaptive
        more = AVERAGE.log2_more if bounded and goal.seconds is None else 0
        if learning is not None and not goal.adaptive:
            return LearnedDesign.of(learning, present.checks, more)
        n = (learning or present.learning).n_evaluations
        left = np.inf if goal.budget is None else goal.budget - n
        share = max(n_draws(problem, n / (1.0 - LEARNING.share)), 2 * LEARNING.fewest_draws)
        wanted = min(left, most_draws(problem, n) if bounded else share) - known
        if wanted >= max(LEARNING.fewest_draws, 0.5 * known):
            design = self.checked(problem, last, int(wanted), learning)
            return replace(design, log2_more=more)
        return None if learning is None else LearnedDesign.of(learning, present.checks)

    def _more_theta(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Learned[M]]
    ) -> LearnedDesign | None:
        """The last design with four times the θ of its dense average, free of g."""
        assert isinstance(last.design, LearnedDesign)
        average = DenseAverage(problem, last.state.scalar, goal.stream)
        left = LEARNING.log2_size - average.affordable(last.state.model) - last.design.log2_more
        more = last.design.log2_more + min(left, 2)
        return replace(last.design, log2_more=more) if left > 0 else None

    def checked(
        self,
        problem: NestedExpectation,
        last: Turn[Learned[M]],
        n: int,
        learning: Design | None = None,
    ) -> LearnedDesign:
        """The last design, or a larger one to learn from, with n more draws for the check."""
        present = last.design
        assert isinstance(present, LearnedDesign)
        size = (learning or present.learning).n_evaluations * last.state.model.sketch.j.shape[1]
        n = min(n, most_draws(problem, size))
        stream = present.grids[0].stream.child(7, present.n_checks)
        average = self.average(problem, last.state.scalar, stream)
        grid = check_grid(average, last.state.model, n, stream)
        return LearnedDesign.of(learning or present.learning, (*present.checks, grid))

    def first_check(
        self, problem: NestedExpectation, last: Turn[Learned[M]]
    ) -> LearnedDesign | None:
        """The last design with the first pairs of fresh draws; None if it has some."""
        n = max(n_draws(problem, last.design.n_evaluations), 2 * LEARNING.fewest_draws)
        return self.checked(problem, last, n) if last.state.check is None else None

    def _larger(
        self, problem: NestedExpectation, goal: Goal, last: Turn[Learned[M]]
    ) -> Design | None:
        """The next design to learn from; None if it cannot grow."""
        assert isinstance(last.design, LearnedDesign)
        last = replace(last, design=last.design.learning)
        n = last.design.n_evaluations
        factor = self._growth(goal, last)
        # Few new points agree with the old ones, also where the model is wrong.
        design = self.sized(problem, goal, round(n * factor), last) if factor >= 1.1 else None
        return design if design is not None and design.n_evaluations > n else None

    def _growth(self, goal: Goal, last: Turn[Learned[M]]) -> float:
        """Growth factor of the number of evaluations in the next turn."""
        room = np.inf if goal.budget is None else goal.budget / last.design.n_evaluations
        if not goal.adaptive and goal.budget is not None:
            # As few turns as possible, of equal factors.
            turns = np.ceil(np.log(max(room, 1.0)) / np.log(self.longest_turn) - 0.2)
            return float(room ** (1.0 / max(turns, 1.0)))
        half = NORMAL_95 * float(np.max(last.estimate.std_error))
        factor = 2.0
        if goal.half_width and 0 < half < np.inf:
            needed = np.log(1.1) + np.log(half / goal.half_width) / last.state.rate
            factor = float(np.exp(np.clip(needed, np.log(1.6), np.log(4.0))))
        return min(factor, room)

    def analyze(
        self, evaluations: Evaluations, last: Turn[Learned[M]] | None = None
    ) -> Turn[Learned[M]]:
        problem, design = evaluations.problem, evaluations.design
        assert isinstance(design, LearnedDesign)
        learning, stream = design.learning, design.grids[0].stream.child(design.grids[0].level, 6)
        before: Turn[Learned[M]] | None = None
        if last is not None:
            assert isinstance(last.design, LearnedDesign)
            before = replace(last, design=last.design.learning)
        for level, grid in enumerate(learning.grids):
            evaluations.values(grid.n_outer, level)
        check = Check.of(evaluations, design)
        with np.errstate(over="ignore", invalid="ignore"):
            if before is not None and before.design == learning:
                fit = before.state.fit
            else:
                fit = self.fit(Evaluations(evaluations.evaluator, learning), before)
            found = self.answer(problem, fit, check, stream, design.log2_more)
        parts = found.parts if fit.reliable else {**found.parts, "unreliable": np.inf}
        inner = [size for name, size in parts.items() if name != "average"]
        estimate = Estimate.from_draws(
            found.value.reshape(np.shape(problem.finish(found.answers))),
            found.draws if np.isfinite(list(parts.values())).all() else None,
            problem=problem,
            diagnostics={
                "answers": found.answers,
                "error_parts": parts,
                "error_inner": float(np.sqrt(sum(size**2 for size in inner))),
                "error_outer": parts["average"],
                **_described(found, check),
            },
            n_evaluations=design.n_evaluations,
            n_outer=fit.n_outer,
            n_inner=fit.n_inner,
            method=self.name,
            sample=found.average.sample(found.model.sketch),
        )
        estimate.diagnostics["notes"].extend(found.notes)
        state = Learned(fit, found.model, found.answers, parts, found.rate, check)
        if not np.isfinite(parts["unseen"]):
            estimate.diagnostics["notes"].append(NO_VARIATION)
        if parts["tail"]:
            estimate.diagnostics["notes"].append(HEAVY_TAIL)
        final = check is not None and parts["average"] ** 2 > 0.9 * sum(
            size**2 for size in parts.values()
        )
        if final:
            estimate.diagnostics["notes"].append(AVERAGING)
        return Turn(design, estimate, state, final)

    def average(self, problem: NestedExpectation, scalar: bool, stream: Stream) -> DenseAverage:
        """Averages of f(Ĵ), at no evaluation of g."""
        return DenseAverage(problem, scalar, stream)

    def answer(
        self,
        problem: NestedExpectation,
        fit: Fit[M],
        check: Check | None,
        stream: Stream,
        log2_more: int,
    ) -> LearnedAnswer[M]:
        """The answer of the model, with 2^`log2_more` times the θ of a dense average at most."""
        average = self.average(problem, fit.scalar, stream)
        average = replace(average, log2_more=log2_more, computed=fit.dense)
        return _answer(average, fit.model, check, fit.calibrations)


def _answer(
    average: DenseAverage, model: M, check: Check | None, calibrations: dict[M, Calibration]
) -> LearnedAnswer[M]:
    """Average of f(Ĵ) and draws of the answer: posterior of J, dense average, unseen events.

    `calibrations` keeps calibrations, which do not depend on the check, for the next turn.
    """
    base, rng = model.sketch, average.stream.child(5).generator()
    plain_f, share = average.f(base.j), base.weights / base.weights.sum()
    plain = finite_average(plain_f, base.weights)

    def functional(j: Array) -> Array:
        """The answers (k,) for J (M, p) at the sketch."""
        return average.final(finite_average(average.f(j), base.weights))

    def by_shape(j: Array, other: Array) -> Array:
        """Errors (k,) by the unknown shape of J given Ĵ, carried through combine."""
        errors = shape_errors(average.f(j), average.f(other), plain_f, share, smooth=order == 2)
        directions = floor_directions(average.problem, plain, errors)
        return np.asarray(np.sqrt((directions**2).sum(axis=1)))

    order = order_near(average.problem, average.argument(base.j))
    if model not in calibrations:
        effects = PathEffects(model, functional, _posterior.DEFAULT)
        calibrations[model] = effects.calibration(average.stream.child(9).generator())
    posterior = PosteriorOfJ(model, check, rng, _posterior.DEFAULT)
    drawn = posterior.draws(functional, calibrations[model], by_shape, crossed=order > 0)
    by_replicate = average.of(model, drawn.sd)
    answers = by_replicate.mean(axis=0)
    others = {
        "average": average.errors(by_replicate),
        "unseen": unseen_errors(model, check, average, answers),
        "tail": heavy_errors(model, average.final(answers).size),
        "events": unreached_errors(model, check, average, answers, has_jumps=order == 0),
        "rounding": rounding_errors(functional, base.j),
    }
    return complete_answer(average, model, answers, drawn, others, rng)


def rounding_errors(functional: Functional, j: Array) -> Array:
    """Direction (k, 1) of the error of a functional of J (M, p) by rounding of values of g.

    Values are rounded, and a fit of many of them by a little more.
    """
    return (functional(j * (1.0 + 8.0 * np.finfo(float).eps)) - functional(j))[:, None]


def complete_answer(
    average: DenseAverage,
    model: M,
    answers: Array,
    drawn: FunctionalDraws,
    others: dict[str, Array],
    rng: np.random.Generator,
) -> LearnedAnswer[M]:
    """Answer from draws of the posterior and directions (k, m) of all other errors."""
    deviations = np.sqrt(sum((one**2).sum(axis=1) for one in others.values()))
    value = average.final(answers)
    if not np.isfinite(value).all():
        raise EvaluationError(f"combine returned {value} for I = {answers}")
    noise = np.where(np.isfinite(deviations), deviations, 0.0)
    draws = value + drawn.values + noise * rng.standard_normal(drawn.values.shape)
    value = value + drawn.correction
    parts = {"posterior": drawn.sd, **{name: size_of(one) for name, one in others.items()}}
    return LearnedAnswer(model, average, answers, value, draws, parts, drawn.rate)


def most_draws(problem: NestedExpectation, n: float) -> int:
    """Largest number of fresh draws for n evaluations, within the time they take."""
    dim = problem.outer_law.base_dim + problem.inner_base_dim
    return int(
        np.clip(LEARNING.pair_numbers / max(n * dim, 1), LEARNING.enough_draws, LEARNING.most_draws)
    )


def n_draws(problem: NestedExpectation, n: float) -> int:
    """Fresh draws among n evaluations; none where they would be too few to show anything."""
    wanted = min(int(LEARNING.share * n), most_draws(problem, n))
    return wanted - wanted % 2 if wanted >= LEARNING.fewest_draws else 0


def _described(found: LearnedAnswer[Any], check: Check | None) -> dict[str, Any]:
    """Description of the model and of the check."""
    about: dict[str, Any] = found.model.describe()
    if check is None:
        return about
    share = check.unexplained_share(found.model)
    notes = [f"checked with {check.n_draws} fresh draws"]
    if share > LEARNING.unlearned:
        notes.append(
            f"the model leaves {share:.0%} of the variance of J unexplained: another "
            "parametrization of theta, in which g is smoother, would help, or more evaluations"
        )
    return {
        **about,
        "check": {"n_draws": check.n_draws, "share": share},
        "notes": [*about["notes"], *notes],
    }
