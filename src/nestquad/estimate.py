"""Front door and loop: plan → evaluate → analyse until the tolerance or the budget is met."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from nestquad import clock, limits
from nestquad._checks import choice, number, whole
from nestquad._log import log_answer, log_choice, log_start, log_turn
from nestquad._progress import Progress, ProgressLike, Running, as_progress, duration
from nestquad._threads import one_blas_thread
from nestquad._typing import Array, RNGLike
from nestquad.accuracy import range_of
from nestquad.clock import Lateness, TimePlan, time_limit
from nestquad.errors import EvaluationError, InputError, NestquadWarning
from nestquad.evaluate import (
    Design,
    Evaluations,
    Evaluator,
    OutOfTimeError,
    Store,
    call_f,
)
from nestquad.methods import (
    Certificate,
    Goal,
    LearnedMethod,
    Method,
    Turn,
    as_method,
    as_repeated,
    budget_in_time,
    correct_plan,
    model_of,
    start_plan,
)
from nestquad.points import Given, Stream
from nestquad.problem import NestedExpectation
from nestquad.repeated import RepeatedExpectation
from nestquad.result import Estimate, Step

__all__ = [
    "DEFAULT_BUDGET",
    "Loop",
    "as_budget",
    "check_evaluation",
    "estimate",
    "in_two_levels",
    "settled",
    "solved",
    "validated",
]

# A tolerance without a budget stops here: minutes of a cheap g, and not a surprise bill.
DEFAULT_BUDGET = 10_000_000


def estimate(
    problem: NestedExpectation | RepeatedExpectation,
    *,
    budget: int | None = None,
    tol: float | None = None,
    rtol: float | None = None,
    method: str | Method[Any] = "auto",
    rng: RNGLike = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: ProgressLike = False,
    max_seconds: float | None = None,
    retries: int = 0,
    certify: bool = False,
    store_check: bool = True,
) -> Estimate:
    """Estimate a nested expectation.

    Parameters
    ----------
    problem
        The problem: two levels, or more of them (`RepeatedExpectation`).
    budget
        The most evaluations of g. Without a tolerance NMC, NQMC and NKQ plan them all at once;
        methods that learn spend them in turns.
    tol, rtol
        Stop when the half-width of the 95 % interval is at most `tol`, or `rtol` times the value;
        with several answers, for each of them. Without a budget, 10⁷ evaluations are the limit
        (with `max_seconds` 6.7 × 10⁷, half a gigabyte of values), and ``"auto"`` saves time instead
        of evaluations: its way then depends on how long g takes.
    method
        ``"auto"``, the name of a method, or a configured one such as ``nq.NKQ(n_inner=64)``.
    rng
        Anything that ``numpy.random.default_rng`` takes. The same seed gives the same bits.
    executor
        A ``concurrent.futures.Executor`` that evaluates chunks of g; None: in this thread.
    store
        A folder in which every chunk of values is written as soon as it is finished. The same call
        continues where it was ended for any reason, and another tolerance, budget, method or
        f uses what is there. A store belongs to one problem and one seed; with ``rng=None`` it
        continues with its own.
    progress
        True for a line in the terminal or an element of a notebook, or a callable
        ``(done, total, message)``.
    max_seconds
        Start no new chunk of evaluations after this time; what is complete is analysed, within
        1.1 times the limit and 0.3 s, or else the last answer is returned. Alone, it asks for the
        best answer in that time: a pilot measures g and the machine, and what fits is evaluated
        in one large step and a correction.
    retries
        Number of retries where g raises, or returns values that are not finite.
    certify
        Spend a half of the evaluations on fresh independent draws. ``est.certified`` is an
        estimate of its own, whose interval rests on them alone, whatever the method's model is
        worth. A tolerance is then met by the certified interval.
    store_check
        Evaluate g again at a few of the points in a store, and refuse the store if a value is
        another one now: files that g reads, or compiled code, may have changed.

    Returns
    -------
    Estimate
        Value, standard error, and how it was found. Ctrl-C returns the last complete one.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.synthetic()
    >>> est = nq.estimate(problem, tol=1e-3, rng=0)
    >>> est.status, bool(abs(est.value - problem.exact) < 1e-3)
    ('converged', True)
    """
    try:
        return solved(
            problem,
            budget=budget,
            tol=tol,
            rtol=rtol,
            method=method,
            rng=rng,
            executor=executor,
            store=store,
            progress=progress,
            max_seconds=max_seconds,
            retries=retries,
            certify=certify,
            store_check=store_check,
        )[0]
    except OutOfTimeError as error:
        glimpse: Estimate | None = error.estimate
        if glimpse is None:
            raise
        return glimpse


def solved(
    problem: NestedExpectation | RepeatedExpectation,
    *,
    budget: int | None,
    tol: float | None,
    rtol: float | None,
    method: str | Method[Any],
    rng: RNGLike,
    executor: Executor | None,
    store: str | os.PathLike[str] | None,
    progress: ProgressLike,
    max_seconds: float | None,
    retries: int,
    certify: bool = False,
    store_check: bool = True,
) -> tuple[Estimate, Turn[Any]]:
    """The answer of `estimate`, and the last turn, whose state has the learned model.

    Without a complete turn there is no model: an `OutOfTimeError` has the answer.
    """
    if max_seconds is not None:
        import_module("scipy.stats.qmc")  # Sobol' points import it, a second that is not for g
    started = clock.now()
    choice("certify", certify, (True, False))
    if certify and isinstance(problem, RepeatedExpectation):
        raise InputError(
            "certify",
            "True for a repeated expectation",
            "False",
            "Fresh draws would have to be nested at every level; the interval has the errors of "
            "all levels without them.",
        )
    stated = problem
    problem, method = in_two_levels(problem, method)
    budget = validated(problem, budget, tol, rtol, max_seconds)
    check_evaluation(problem, executor, retries)
    show = as_progress(progress)
    hurried = budget is None
    adaptive = tol is not None or rtol is not None or (hurried and max_seconds is not None)
    chosen, budget = settled(method, budget, adaptive, max_seconds)
    log_start(problem, chosen.name, budget)
    if certify and budget is not None and budget < 2 * Certificate.fewest:
        raise InputError(
            "budget",
            f"{budget} evaluations",
            f"at least {2 * Certificate.fewest} with certify=True",
            "Half of them are fresh draws, and fewer would show nothing.",
        )
    opened = None if store is None else Store.open(store, problem, rng, store_check)
    evaluator = Evaluator(
        problem,
        executor,
        keep=adaptive or chosen.sequential,
        deadline=np.inf if max_seconds is None else started + max_seconds,
        retries=retries,
        store=opened,
        in_units=chosen.averages,
    )
    stream = Stream.from_rng(rng) if opened is None else opened.stream
    kind = CertifiedLoop if certify else Loop
    goal = Goal(stream, budget, adaptive, hurried=hurried, seconds=max_seconds)
    loop = kind(chosen, goal, evaluator, tol, rtol)
    if max_seconds is not None:
        loop.limit = Lateness().end(started, max_seconds)
    if progress is not False and progress is not None:
        _watch(loop, show, budget if certify and budget and not adaptive else 0)
    try:
        found = loop.run()
    finally:
        evaluator.close()
        if isinstance(show, Progress):
            show.close()
    for text in found.warnings:
        warnings.warn(text, NestquadWarning, stacklevel=3)
    counts = {"n_reused": evaluator.n_reused, "n_checked": evaluator.n_checked}
    counts = {name: n for name, n in counts.items() if opened or n}
    answer = replace(
        found,
        seconds=clock.now() - started,
        diagnostics={**found.diagnostics, **counts},
    )
    if found.sample is not None and not isinstance(stated, RepeatedExpectation):
        with one_blas_thread():
            answer = replace(answer, bounds=range_of(problem, found.sample.j))
    if answer.candidates:
        log_choice(problem, answer.method, str(answer.diagnostics["notes"][0]))
    log_answer(answer)
    if loop.last is None:
        error = OutOfTimeError(
            "time ran out before the first design was complete",
            n_completed=evaluator.n_evaluations,
            advice="Raise max_seconds, or lower the budget.",
        )
        error.estimate = answer
        raise error
    return answer, loop.last


def in_two_levels(
    problem: NestedExpectation | RepeatedExpectation, method: str | Method[Any]
) -> tuple[NestedExpectation, str | Method[Any]]:
    """The problem with the innermost two levels, and a method for the others."""
    if isinstance(problem, RepeatedExpectation):
        return problem.innermost, as_repeated(method, problem)
    return problem, method


def settled(
    method: str | Method[Any],
    budget: int | None,
    adaptive: bool,
    max_seconds: float | None = None,
) -> tuple[Method[Any], int | None]:
    """The method as an object, and the budget with its default."""
    chosen = as_method(method)
    if adaptive and budget is None:
        budget = DEFAULT_BUDGET if max_seconds is None else limits.KEPT_EVALUATIONS
    if budget is None and not _has_sizes(chosen):
        raise InputError(
            "budget",
            "neither a budget nor a tolerance nor a time nor sizes",
            "one of them",
            "For instance budget=10_000, tol=1e-3, max_seconds=10, or "
            "method=nq.NKQ(n_outer=100, n_inner=100).",
        )
    return chosen, budget


def _watch(loop: Loop, show: Callable[[int, int, str], None], least: int) -> None:
    """Report every chunk: progress of this turn's design, and the estimate so far."""
    running = Running(loop.evaluator.given)
    design, total = loop.design, 0

    def progress(done: int) -> None:
        nonlocal design, total
        if loop.design is not None and loop.design is not design:
            design, total = loop.design, loop.design.n_evaluations
        message = loop.found.summary if loop.found else running.message
        if loop.forecast:
            message = f"{loop.forecast}: {message}"
        if loop.evaluator.waiting:
            message = f"waiting for a free worker {message}"
        show(done, max(total, done, least), message)

    loop.evaluator.on_progress = progress
    loop.evaluator.on_rows = running


def _has_sizes(method: Method[Any]) -> bool:
    """Whether both sizes are fixed, by numbers or by points that the user brings."""
    return all(
        getattr(method, f"n_{side}", None) is not None
        or isinstance(getattr(method, f"{side}_points", None), Given)
        for side in ("outer", "inner")
    )


def check_evaluation(problem: NestedExpectation, executor: object, retries: object) -> None:
    if problem.g is None:
        raise InputError(
            "problem",
            "one without g",
            "one whose g can be called",
            "Use nq.plan to write the points down, and nq.analyze for the values.",
        )
    if executor is not None and not callable(getattr(executor, "submit", None)):
        given = type(executor).__name__
        advice = "For Dask, client.get_executor()." if given == "Client" else ""
        raise InputError("executor", given, "a concurrent.futures.Executor, or None", advice)
    whole("retries", retries, "a whole number, 0 for none", least=0, below=np.inf)


def validated(
    problem: NestedExpectation,
    budget: int | None,
    tol: float | None,
    rtol: float | None,
    max_seconds: float | None,
) -> int | None:
    if not isinstance(problem, NestedExpectation):
        expected = "a nq.NestedExpectation"
        advice = ""
        if isinstance(problem, RepeatedExpectation):
            advice = "Repeated expectations are for nq.estimate and nq.plan."
        raise InputError("problem", type(problem).__name__, expected, advice)
    return check_limits(budget, tol, rtol, max_seconds)


def check_limits(
    budget: int | None, tol: float | None, rtol: float | None, max_seconds: float | None
) -> int | None:
    """Refuse inconsistent goals; return the budget as an integer."""
    for name, value in (("tol", tol), ("rtol", rtol), ("max_seconds", max_seconds)):
        if value is not None:
            number(name, value, "a positive number, or None")
    return None if budget is None else as_budget(budget)


def as_budget(budget: Any) -> int:
    """A number of evaluations as an integer; 2 outer × 2 inner are the fewest that make sense."""
    expected = "a whole number of at least 4 evaluations, and below 10¹⁵"
    value = number("budget", budget, expected, above=3, below=limits.BUDGET)
    if not value.is_integer():
        raise InputError("budget", repr(budget), expected)
    return int(value)


@dataclass(frozen=True)
class LoopSettings:
    """Tuning numbers of the loop.

    Attributes
    ----------
    steady
        A half-width below the tolerance counts only if the half-width of the turn before was within
        this factor of it, times the growth of the number of evaluations: differences between few
        points may be small by accident.
    hopeless
        Evaluations after which a run with an infinite half-width ends.
    learning, learning_time
        Shares of learning in the evaluations and in the time of a certified estimate: a half, since
        more evaluations reduce the residuals or their mean, and a larger share of the time, since
        models take time too.
    presumed
        Seconds of a draw with its control variate, until a batch has shown them.
    """

    steady: float = 6.0
    hopeless: int = 10_000
    learning: float = 0.5
    learning_time: float = 0.6
    presumed: float = 1e-3


LOOP = LoopSettings()
_WIDE = (
    "the 95 % interval is wider than f(J) varies over theta: more evaluations would help, or a "
    "proposal or another parametrization under which g varies less; nestquad.risk places its own "
    "evaluations for quantiles and exceedances, nestquad.design for likelihoods"
)


@dataclass
class Loop:
    """One estimation, from the first plan to the last answer.

    `design` is what is to be evaluated next, None at the end; `last` is the last complete turn.
    """

    method: Method[Any]
    goal: Goal
    evaluator: Evaluator
    tol: float | None = None
    rtol: float | None = None
    design: Design | None = None
    last: Turn[Any] | None = None
    status: str = "done"
    limit: float = np.inf
    started: float = field(default_factory=clock.now)
    forecast: str = ""
    time: TimePlan | None = None
    _before: Turn[Any] | None = None
    _half: Array = field(default_factory=lambda: np.asarray(np.inf))
    _trace: list[Step] = field(default_factory=list)
    _aimed: bool = field(init=False)

    def __post_init__(self) -> None:
        self._aimed = self.tol is not None or self.rtol is not None

    def run(self) -> Estimate:
        """The last complete answer; Ctrl-C ends the loop and keeps it."""
        self.start()
        try:
            while self.design is not None:
                # What has no other answer is analysed to the end, unless values are kept for one.
                kept = self.last is not None or self.evaluator.keep
                with time_limit(self.limit if kept else np.inf):
                    self.turn()
        except KeyboardInterrupt:
            if self.found is None:
                raise
            self.status = "interrupted"
        except OutOfTimeError:
            if self.last is None:
                return self._glimpse()
            self.status = "time"
        except EvaluationError as error:
            error.estimate = None if self.found is None else self.answer("failed")
            raise
        return self.answer(self.status)

    def _glimpse(self) -> Estimate:
        """f at the first values, where there was no time for more: an answer without a bar."""
        problem, j = self.evaluator.given, self.evaluator.glimpse
        if j is None:
            advice = "Raise max_seconds, and see whether workers of an executor are free"
            if self.method.averages:
                advice += "; 'nqmc' and 'nmc' need the least time for points"
            raise OutOfTimeError("time ran out before the first evaluation", advice=f"{advice}.")
        value = problem.finish(call_f(problem, j[None], j.reshape(1, -1))[0])
        note = (
            "time ran out before the first design was complete: the value is f at the first "
            "values of g; raise max_seconds, or lower the budget"
        )
        return Estimate(
            float(value) if value.ndim == 0 else value,
            np.inf if value.ndim == 0 else np.full(value.shape, np.inf),
            self.evaluator.n_evaluations,
            1,
            1,
            self.method.name,
            "time",
            diagnostics={"notes": [note]},
            problem=problem.label,
        )

    @one_blas_thread()
    def start(self) -> None:
        """Plan the first design."""
        problem, goal = self.evaluator.problem, self.goal
        if goal.seconds and goal.budget and isinstance(self.method, LearnedMethod):
            analysis = start_plan(problem, None, 0.0)
            if analysis.seconds(goal.budget, 0, 0) > goal.seconds:  # time decides, not the budget
                self.goal = replace(goal, adaptive=True, hurried=True)
        self.design = self.method.plan(problem, self.goal)

    @one_blas_thread()
    def turn(self) -> None:
        """Evaluate and analyse the design, and plan the next one."""
        assert self.design is not None
        started, before = clock.now(), self.design.n_evaluations
        self.status, self.design = self._evaluated(self.design), None
        if self.status != "go on":
            return
        now, deadline = clock.now(), self.evaluator.deadline
        if self.goal.hurried and now > deadline:
            self.status = "time"
            return
        if deadline < np.inf:
            self.goal = replace(self.goal, seconds=deadline - now)
        goal = self._in_time(now - started)
        self.design = self.method.plan(self.evaluator.problem, goal, self.last)
        if self.design is None:
            self.status = self._end()
            return
        promised = self.design.seconds
        if promised is None and len(self._trace) == 1:  # what is done once was in the first turn
            promised = self.evaluator.seconds_per_evaluation * self.design.n_evaluations
        elif promised is None:
            promised = (now - started) * self.design.n_evaluations / before
        self.forecast = self._forecast(self.design, promised)
        if self.goal.hurried and promised > deadline - now:
            # A budget is begun all the same: it was asked for, and what is complete in time is
            # analysed.
            self.status, self.design = "time", None

    def _in_time(self, seconds: float) -> Goal:
        """The request as the budget that ends in time, where a learner has only seconds."""
        alone = self.goal.hurried and self.goal.seconds is not None and not self._aimed
        if not alone or not isinstance(self.method, LearnedMethod) or self.last is None:
            return self.goal
        problem, each = self.evaluator.problem, self.evaluator.seconds_per_evaluation
        plan = replace(self.time or start_plan(problem, self.last, each), seconds_of_g=each)
        before = None if self.time is None else self._before
        self.time = correct_plan(plan, self.last, before, seconds)
        self._before = self.last
        left, most = self.goal.seconds or 0.0, float(self.goal.budget or np.inf)
        budget = budget_in_time(self.time, problem, self.last, left, most)
        return replace(self.goal, budget=budget, adaptive=False)

    def _forecast(self, design: Design, seconds: float) -> str:
        """Total seconds and relative half-width to expect, if errors fall like 1/n."""
        found = self.found
        if found is None or not np.isfinite(self._half).all():
            return ""
        n, new = found.n_evaluations, max(design.n_evaluations - found.n_evaluations, 1)
        value, half = float(np.max(np.abs(found.value))), float(np.max(self._half))
        if self._aimed and self.goal.half_width:
            target = float(np.min(self._target(found)))
            seconds *= max(n * (half / target - 1.0) / new, 1.0)
            half = min(half, target)
        else:
            half *= n / (n + new)
        total = clock.now() - self.started + seconds
        share = f", ± {100.0 * half / value:.2g} %" if value > 0 else ""
        return f"about {duration(total)}{share}"

    def _end(self) -> str:
        """The status of an estimation that has no further design."""
        spent, budget = self.evaluator.n_evaluations, self.goal.budget or 0
        if not self.goal.adaptive or _has_sizes(self.method):
            # With a limit on seconds, designs are no larger than the forecast allows.
            return "time" if self.goal.seconds is not None and spent < 0.5 * budget else "done"
        if spent >= 0.5 * budget and (self._aimed or not self.goal.hurried):
            return "budget"
        if self.goal.seconds is None or (self.last is not None and self.last.final):
            return "limit"
        if not self._aimed:
            return "time"
        # Whether a further design is missing or only too slow, the method says without a limit.
        patient = replace(self.goal, seconds=None)
        more = self.method.plan(self.evaluator.problem, patient, self.last)
        return "limit" if more is None else "time"

    @property
    def found(self) -> Estimate | None:
        """The answer so far."""
        return None if self.last is None else self.evaluator.units.natural(self.last.estimate)

    def answer(self, status: str) -> Estimate:
        if self.found is None:
            raise InputError("method", repr(self.method), "a method that plans an evaluation")
        found = replace(self.found, status=status, trace=tuple(self._trace))
        if status not in ("done", "budget", "limit", "time") or found.informative:
            return found
        # Methods say by themselves why a bar is infinite.
        advice = [_WIDE] if np.isfinite(self._half).all() else []
        notes = [*found.diagnostics.get("notes", []), *advice]
        diagnostics = {**found.diagnostics, "notes": notes}
        return replace(found, status="unreliable", diagnostics=diagnostics)

    def _evaluated(self, design: Design) -> str:
        """Evaluate and analyse one design; what to do next."""
        before, last, previous = self._half, self.last, self.found
        try:
            turn = self.method.analyze(Evaluations(self.evaluator, design), last)
        except OutOfTimeError:
            if last is None:
                raise
            turn = last
        stopped = self.evaluator.stopped
        if last and stopped and turn.estimate.n_outer < last.estimate.n_outer:
            turn = last  # cut off by time: the last design was larger, and complete
        seen = replace(turn.estimate, n_evaluations=self.evaluator.n_evaluations)
        self.last = replace(turn, estimate=seen)
        found = self.evaluator.units.natural(seen)
        self._trace.append(Step(found.n_evaluations, found.value, found.std_error))
        log_turn(len(self._trace), found, self.evaluator.seconds_per_evaluation)
        self._half = np.asarray(found.half_width)
        if stopped is not None:
            return stopped
        if self._aimed and np.isinf(self._half).all() and found.n_evaluations > LOOP.hopeless:
            return "limit"
        if self.goal.adaptive:
            target = self._ending(found)
            if found.sample is not None:  # an answer of zero has no relative error
                target = np.maximum(target, 1e-14 * np.abs(found.sample.f).max())
            growth = found.n_evaluations / max(previous.n_evaluations, 1) if previous else 1.0
            steady = turn.final or np.all(before <= LOOP.steady * growth * target)
            if steady and not turn.tentative and np.all(self._half <= target):
                return "converged"
            if self._aimed:
                self.goal = replace(self.goal, half_width=self._seen(target))
        return "go on" if self.goal.adaptive or self.method.sequential else "done"

    def _target(self, found: Estimate) -> Array:
        """Half-width of the 95 % interval to reach, for each answer."""
        return np.maximum(self.tol or 0.0, (self.rtol or 0.0) * np.abs(found.value))

    def _ending(self, found: Estimate) -> Array:
        """Half-width of the answer itself that ends the loop."""
        return self._target(found)

    def _seen(self, target: Array) -> float:
        """The smallest half-width, in the units of the method."""
        return float(np.min(target / self.evaluator.units.final_or_one))


@dataclass
class CertifiedLoop(Loop):
    """A loop that learns, and then certifies its answer by fresh independent draws.

    Towards a tolerance it learns until the certificate should need no more evaluations than were
    spent so far, and then draws until the certified interval is narrow enough.
    """

    def run(self) -> Estimate:
        total, deadline = self.goal.budget, self.evaluator.deadline
        if total is not None:
            self.goal = replace(self.goal, budget=int(LOOP.learning * total))
        if deadline < np.inf:
            now = clock.now()
            self.evaluator.deadline = now + LOOP.learning_time * max(deadline - now, 0.0)
        found = super().run()
        if self.status == "interrupted" or self.last is None:
            return found
        late = self.evaluator.stopped is not None
        self.evaluator.stopped, self.evaluator.deadline = None, deadline
        certificate = self._certificate()
        try:
            with time_limit(self.limit):
                certified = self._certified(certificate, total)
        except (KeyboardInterrupt, OutOfTimeError) as error:
            status = "time" if isinstance(error, OutOfTimeError) else "interrupted"
            warning = "there was no time for a certificate: raise max_seconds"
            found = replace(found, status=status, warnings=(*found.warnings, warning))
            return replace(found, n_evaluations=self.evaluator.n_evaluations)
        except EvaluationError as error:
            error.estimate = replace(found, status="failed")
            raise
        status = self.evaluator.stopped or ("time" if late else found.status)
        if self.goal.adaptive:
            met = np.all(certified.half_width <= self._target(certified))
            status = "converged" if met else "time" if self.evaluator.stopped else "budget"
        distance = np.abs(np.asarray(found.value) - certified.value)
        if np.any(distance > np.asarray(found.half_width) + certified.half_width):
            warning = f"the certified interval, {certified.summary}, contradicts {found.summary}"
            found = replace(found, warnings=(*found.warnings, warning))
        spent = self.evaluator.n_evaluations
        return replace(found, status=status, n_evaluations=spent, certified=certified)

    def _certificate(self) -> Certificate:
        assert self.last is not None
        return Certificate(self.evaluator, self.goal.stream.child(50), model_of(self.last))

    def _evaluated(self, design: Design) -> str:
        """Stop towards a tolerance by the certificate instead of the model's interval."""
        status = super()._evaluated(design)
        if not self._aimed or status == "time" or self.found is None:
            return status
        n = max(self.evaluator.n_evaluations, Certificate.fewest)
        enough = self._certificate().levels(n).half_width <= self._seen(self._target(self.found))
        return "converged" if enough else "go on"

    def _ending(self, found: Estimate) -> Array:
        return np.zeros(np.shape(found.value))

    def _certified(self, certificate: Certificate, total: int | None) -> Estimate:
        _ = certificate.pilot
        spent = self.evaluator.n_evaluations
        n = spent if total is None or self.goal.adaptive else total - spent
        found, each = None, LOOP.presumed
        while True:
            started = clock.now()
            room = np.inf if total is None else total - self.evaluator.n_evaluations
            affordable = 0.5 * (self.evaluator.deadline - started) / each
            if found is not None and (
                self.evaluator.stopped or min(room, affordable) < Certificate.fewest
            ):
                return found
            size = int(min(max(min(n, affordable), Certificate.fewest), room))
            try:
                certificate.draw(size)
                found = self.evaluator.units.natural(certificate.estimate())
            except OutOfTimeError:
                if found is None:
                    raise
                return found
            each = (clock.now() - started) / size
            if not self._aimed:
                if size >= min(n, room):
                    return found
                n -= size
                continue
            ratio = float(np.max(np.asarray(found.half_width) / self._target(found)))
            if ratio <= 1.0:
                return found
            # Independent draws: errors fall like 1/√n.
            n = int(certificate.n_evaluations * min(1.1 * ratio**2 - 1.0, 3.0)) + 1
