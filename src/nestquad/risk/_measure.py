"""Front door: measures of risk of a problem, and the forecast of a tolerance."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, cast

import numpy as np

from nestquad import clock
from nestquad._checks import choice, listed, shown
from nestquad._progress import ProgressLike
from nestquad._tangent_problem import TangentProblem, with_tangents
from nestquad._typing import ArrayLike, RNGLike
from nestquad.distributions import Empirical
from nestquad.errors import InputError
from nestquad.estimate import check_evaluation, check_limits, solved, validated
from nestquad.evaluate import Evaluator, Store
from nestquad.methods import Turn, has_transports
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate
from nestquad.risk._certified import certified_ends
from nestquad.risk._contributions import greeks_of
from nestquad.risk._exposure import DefaultCurve, Exposure, dates_of, default_probabilities
from nestquad.risk._method import SETTINGS, RiskState, TailSampling
from nestquad.risk._prior import Memory
from nestquad.risk._report import RiskReport, Source, groups_of
from nestquad.risk._stresses import Stress, run_stresses, stress_points
from nestquad.risk._targets import Targets, Weighting, part_of


@dataclass(frozen=True)
class RunLimits:
    """Limits of a run and how g is evaluated, as in :func:`nestquad.estimate`."""

    budget: int | None = None
    tol: float | None = None
    rtol: float | None = None
    rng: RNGLike = None
    executor: Executor | None = None
    store: str | os.PathLike[str] | None = None
    progress: ProgressLike = False
    max_seconds: float | None = None
    retries: int = 0
    store_check: bool = True
    started: float = field(default_factory=clock.now)

    def checked(self, problem: object) -> RunLimits:
        """With a budget as a number; refused without a limit, and for a problem with f."""
        if isinstance(problem, NestedExpectation) and (problem.f or problem.combine):
            given, advice = "one with f or combine", "Measures of risk stand in place of f."
            raise InputError("problem", given, "one without: g is the loss", advice)
        if all(one is None for one in (self.budget, self.tol, self.rtol, self.max_seconds)):
            raise InputError(
                "budget",
                "neither a budget nor a tolerance nor a time",
                "one of them",
                "For instance budget=10_000, rtol=0.02 for each measure, or max_seconds=30; "
                "risk.forecast(problem, rtol=0.02) says what a tolerance takes.",
            )
        return replace(
            self, budget=check_limits(self.budget, self.tol, self.rtol, self.max_seconds)
        )

    def solve(self, problem: NestedExpectation, method: TailSampling) -> tuple[Estimate, RiskState]:
        """Measures of a problem in the time that is left, and the state behind them."""
        options = {
            one.name: getattr(self, one.name) for one in fields(self) if one.name != "started"
        }
        if self.max_seconds is not None:
            spent = clock.now() - self.started
            options["max_seconds"] = max(self.max_seconds - spent, 1e-9)
        turn: Turn[RiskState]
        found, turn = solved(problem, method=method, **options)
        return found, turn.state


def measure(
    problem: NestedExpectation | Callable[..., NestedExpectation],
    *,
    var: float | Sequence[float] = (0.99,),
    es: float | Sequence[float] | None = None,
    exceed: float | Sequence[float] = (),
    spectral: Weighting | Mapping[str, Weighting] | None = None,
    outputs: Sequence[Any] | None = None,
    portfolios: Mapping[str, Sequence[str]] | None = None,
    stresses: Mapping[str, ArrayLike] | None = None,
    exposure: bool = False,
    default_curve: DefaultCurve | None = None,
    recovery: float = 0.4,
    sensitivities: Mapping[str, Any] | None = None,
    certify: bool = False,
    prior: Any = None,
    budget: int | None = None,
    tol: float | None = None,
    rtol: float | None = None,
    rng: RNGLike = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: ProgressLike = False,
    max_seconds: float | None = None,
    retries: int = 0,
    store_check: bool = True,
) -> RiskReport:
    """Measure the risk of J(θ) = E[g(x, θ) | θ]: value at risk, shortfall, exceedance.

    Parameters
    ----------
    problem
        A problem without f: θ is the scenario, g the loss, x what is still open given θ. Several
        outputs of g (positions, desks, lines) are summed.
    var, es
        Levels of value at risk and of expected shortfall, such as 0.99; `es` is 0.975 unless given.
    exceed
        Thresholds c of P(J > c).
    spectral
        Weight function φ of a spectral measure ∫ φ(u) q(u) du of the quantiles q of J, vectorized
        over u in (0, 1), with integral 1; or several by name.
    outputs
        Names of the outputs of g; with `exposure`, their dates in years.
    portfolios
        Names of outputs by portfolio. ``report.portfolios`` has a report of each, from the same
        evaluations, and ``report.diversification`` the reduction by adding them up.
    stresses
        Scenarios θ by name. ``report.stresses`` has J there, its place in the law of J and the
        contributions of outputs, by a tenth of the budget.
    exposure
        Whether the outputs of g are values of a netting set at dates, to be analyzed each: expected
        exposures, and potential future exposure at the levels `var`.
    default_curve
        For CVA, with `exposure`: a flat hazard rate, cumulative default probabilities at the dates,
        or a function from dates to these. Values of g are discounted ones.
    recovery
        Share that is recovered on default.
    sensitivities
        Parameters by name, for derivatives of all measures in them; `problem` is then a function of
        them that returns a problem. Central differences in K components take 1 + 2 K evaluations at
        each point of a budget (see :func:`nestquad.sensitivity`).
    certify
        Whether ``report.certified`` has intervals that rest on fresh draws alone, whatever the
        model of J is worth: they are wider.
    prior
        The report of an earlier run of a similar problem, or the folder of its store: its values
        are control variates at the same uniforms, checked by evaluations of today's g there.
    budget, tol, rtol, rng, executor, store, progress, max_seconds, retries, store_check
        As in :func:`nestquad.estimate`; tolerances hold for each measure.

    Returns
    -------
    RiskReport
        Measures with intervals, the law of J, contributions, exposure.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad import risk
    >>> problem = nq.NestedExpectation(
    ...     nq.Normal(), lambda theta: nq.Normal(theta, 1.0), lambda x, theta: x[..., 0]
    ... )
    >>> report = risk.measure(problem, var=0.99, budget=1000, rng=0)
    >>> bool(abs(report.var[0.99].value - 2.3263) < 0.01)
    True
    """
    run = RunLimits(
        budget, tol, rtol, rng, executor, store, progress, max_seconds, retries, store_check
    ).checked(problem)
    choice("certify", certify, (True, False))
    others = {"es": es, "spectral": spectral, "portfolios": portfolios, "stresses": stresses}
    others |= {"sensitivities": sensitivities, "certify": certify or None}
    others["exceed"] = exceed if np.size(np.asarray(exceed, dtype=object)) else None
    unused = [name for name, given in others.items() if given is not None]
    if exposure and unused:
        given = "given with exposure=True"
        raise InputError(", ".join(unused), given, "not given", "Levels of PFE are in var.")
    joint, base = None, cast(NestedExpectation, problem)
    if sensitivities is not None:
        joint = _tangents(problem, sensitivities, run, spectral, stresses)
        base = joint.base
        run.checked(base)
    validated(base, run.budget, tol, rtol, max_seconds)
    # Problem without f on driving variables, with the outputs (g, dg/dφ).
    whole = base if joint is None else replace(joint.problem(), f=None, combine=None)
    targets = Targets.of(var, 0.975 if es is None else es, exceed, spectral)
    targets = Targets.exposure(var) if exposure else targets
    if outputs is not None:
        outputs = dates_of(outputs).tolist() if exposure else _names(outputs)
    _check_credit(default_curve, recovery, exposure, outputs)
    n_losses = None if joint is None else joint.f.n_outputs
    count = None if outputs is None else len(outputs)
    if joint is not None and count not in (None, n_losses):
        raise InputError("outputs", f"{count} of them", f"{n_losses}, one for each output of g")
    groups = groups_of(portfolios, outputs)
    memory = None if prior is None else _memory(prior, whole)
    if rng is not None or store is None:
        run = replace(run, rng=Stream.from_rng(rng))
    at_stresses: dict[str, Stress] = {}
    if stresses is not None:
        at_stresses, run = _stressed(base, stresses, run)
    if joint is not None and run.budget is not None:
        run = replace(run, budget=(run.budget - joint.n_spent) // joint.tangents.cost)
    # Towards a tolerance pairs may take ten seconds eight times over, and most of a limit.
    aimed = tol is not None or rtol is not None
    patience = float(np.clip((max_seconds or 160.0) / 20.0, 1.0, 8.0)) if aimed else 1.0
    names_of_g = None if joint is not None else count
    members = tuple(groups.values())
    method = TailSampling(
        targets, exposure, names_of_g, patience, members, memory, float(run.budget or 0), n_losses
    )
    found, state = run.solve(whole, method)
    if store is not None and state.memory is not None:
        state.memory.save(store)
    notes = tuple(found.diagnostics["notes"])
    if joint is not None:
        found = _in_evaluations(found, joint)
    spent = found.n_evaluations + sum(each.loss.n_evaluations for each in at_stresses.values())
    seconds, diagnostics = clock.now() - run.started, {**found.diagnostics, "notes": []}
    found = replace(found, n_evaluations=spent, seconds=seconds, diagnostics=diagnostics)
    report = RiskReport(whole.label, found, targets.keys, notes, details=state.details)
    if exposure:
        dates = np.arange(1.0, len(state.laws) + 1.0) if outputs is None else np.asarray(outputs)
        curve = None if default_curve is None else default_probabilities(default_curve, dates)
        return replace(report, exposure=Exposure.of(found, targets, dates, curve, 1.0 - recovery))
    n = state.draws.values.shape[2] if state.parts is not None else 1
    names = tuple(outputs or [f"output {k + 1}" for k in range(n_losses or n)])
    law, greeks = state.laws[0], None
    source = Source(method, state, found, names)
    if joint is not None and law.pairs is not None:
        greeks = greeks_of(state, targets, part_of(found, np.arange(len(targets.keys))), joint)
    report = replace(
        report,
        stresses={name: each.placed(law) for name, each in at_stresses.items()},
        certified=certified_ends(law, method.unused_pairs(state), targets) if certify else None,
        sensitivities=greeks,
    )
    each = {name: report.of_line(source, i + 1, name) for i, name in enumerate(groups)}
    return replace(report.of_line(source, 0, whole.label), source=source, portfolios=each)


@dataclass(frozen=True)
class Forecast:
    """Evaluations and seconds that a tolerance is expected to take.

    Attributes
    ----------
    n_evaluations, seconds
        Expected for the whole run; between `low` and `high` evaluations.
    low, high
        Evaluations if errors go on to fall as they did, and if they fall like 1/√n.
    spent
        Evaluations behind the forecast.
    reached
        Largest half-width over the tolerance so far.
    notes
        Remarks on the run so far.
    """

    n_evaluations: int
    seconds: float
    low: int
    high: int
    spent: int
    reached: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.reached <= 1.0:
            return f"the tolerance is met after {self.n_evaluations:,} evaluations"
        return (
            f"about {self.n_evaluations:,} evaluations ({self.low:,} … {self.high:,}) and "
            f"{self.seconds:.2g} s; after {self.spent:,} evaluations the widest interval is "
            f"{self.reached:.3g} times the tolerance"
        )

    @classmethod
    def of(cls, report: RiskReport, tol: float, rtol: float) -> Forecast | None:
        """From the turns of a run; None before the first interval.

        Errors fall like n^−r. Independent draws have r = 1/2, learning more; r is that of all turns
        so far, between 1/2 and 1, and the forecast is the geometric mean of both.
        """
        turns = []
        for step in report.estimate.trace:
            target = np.maximum(np.maximum(tol, rtol * np.abs(step.value)), 1e-300)
            turns.append((step.n_evaluations, float(np.max(step.half_width / target))))
        turns = [(n, ratio) for n, ratio in turns if np.isfinite(ratio)]
        if not turns:
            return None
        (first, before), (n, ratio) = turns[0], turns[-1]
        rate = 0.5
        if n > first and 0 < ratio < before:
            rate = float(np.clip(np.log(before / ratio) / np.log(n / first), 0.5, 1.0))
        low, high = (int(n * max(ratio, 1.0) ** (1.0 / r)) for r in (rate, 0.5))
        middle = int(np.sqrt(float(low) * float(high)))
        return cls(middle, report.seconds * middle / n, low, high, n, ratio, report.notes)


def forecast(
    problem: NestedExpectation | Callable[..., NestedExpectation],
    *,
    tol: float | None = None,
    rtol: float | None = None,
    budget: int = 4096,
    **options: Any,
) -> Forecast:
    """Forecast the evaluations and seconds that a tolerance takes, from the start of such a run.

    Parameters
    ----------
    problem
        As in :func:`measure`.
    tol, rtol
        The tolerance.
    budget
        Most evaluations for the forecast. With `store` in the options, a later run uses them.
    options
        All others of :func:`measure`.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad import risk
    >>> problem = nq.NestedExpectation(
    ...     nq.Normal(), lambda theta: nq.Normal(theta, 1.0), lambda x, theta: x[..., 0]
    ... )
    >>> risk.forecast(problem, rtol=0.05, rng=0).reached < 1
    True
    """
    if tol is None and rtol is None:
        raise InputError("rtol", "no tolerance", "tol or rtol", "For instance rtol=0.02.")
    report = measure(problem, tol=tol, rtol=rtol, budget=budget, **options)
    found = Forecast.of(report, tol or 0.0, rtol or 0.0)
    if found is None:
        given = f"{report.n_evaluations:,} evaluations without an interval"
        raise InputError("budget", given, "more of them")
    return found


def _in_evaluations(found: Estimate, joint: TangentProblem) -> Estimate:
    """Estimate with evaluations of g in place of points, each of which takes several."""
    spent, cost = joint.n_spent, joint.tangents.cost
    steps = (replace(step, n_evaluations=spent + cost * step.n_evaluations) for step in found.trace)
    return replace(found, n_evaluations=spent + cost * found.n_evaluations, trace=tuple(steps))


def _tangents(
    make_problem: Any,
    parameters: Mapping[str, Any],
    run: RunLimits,
    spectral: object,
    stresses: object,
) -> TangentProblem:
    """The problem whose outputs are losses and then their derivatives."""
    if spectral is not None:
        advice = "Derivatives are those of var, es and exceed."
        raise InputError("spectral", "given with sensitivities", "one of them", advice)
    if stresses is not None and run.store is not None:
        given = "given with sensitivities and a store"
        raise InputError("stresses", given, "two of them", "A store has values of one problem.")
    if isinstance(make_problem, NestedExpectation):
        raise InputError(
            "problem",
            "a problem, with sensitivities",
            "a function of the parameters that returns a problem",
            "For instance risk.measure(book, sensitivities={'vol': 0.2}) with def book(vol).",
        )
    return with_tangents(make_problem, parameters, budget=run.budget)


def _stressed(
    problem: NestedExpectation, stresses: Mapping[str, ArrayLike], run: RunLimits
) -> tuple[dict[str, Stress], RunLimits]:
    """J at stress scenarios, and the run with what is left of its budget."""
    check_evaluation(problem, run.executor, run.retries)
    points = stress_points(problem, stresses)
    opened = None
    if run.store is not None:
        opened = Store.open(run.store, problem, run.rng, run.store_check)
        run = replace(run, rng=opened.stream)
    evaluator = Evaluator(
        problem,
        run.executor,
        keep=True,
        deadline=np.inf if run.max_seconds is None else run.started + run.max_seconds,
        retries=run.retries,
        store=opened,
        in_units=False,
    )
    stream = Stream.from_rng(run.rng).child(60)
    tolerances = run.tol or 0.0, run.rtol or 0.0
    found = run_stresses(evaluator, points, stream, run.budget, *tolerances, run.max_seconds)
    evaluator.close()
    left = None if run.budget is None else run.budget - evaluator.n_evaluations
    return found, replace(run, budget=None if left is None else max(left, SETTINGS.fewest))


def _check_credit(curve: Any, recovery: Any, exposure: bool, dates: Any) -> None:
    """Refuse a default curve or a recovery before the budget is spent."""
    if not isinstance(recovery, Real) or not 0 <= float(recovery) <= 1:
        raise InputError("recovery", repr(recovery), "a share between 0 and 1")
    if curve is not None and not exposure:
        raise InputError("default_curve", "a curve without exposure", "exposure=True")
    if curve is not None:
        default_probabilities(curve, None if dates is None else np.array(dates))


def _names(outputs: Any) -> list[str]:
    expected = "different names, one for each output of g, such as ['rates', 'credit']"
    names = [str(one) for one in listed("outputs", outputs, expected)]
    if len({*names}) < len(names) or not names:
        raise InputError("outputs", shown(names), expected)
    return names


def _memory(prior: Any, problem: NestedExpectation) -> Memory:
    """The memory of an earlier run whose laws have equal numbers of drivers."""
    memory, law = Memory.of(prior), problem.outer_law
    dims = 0, 0
    if has_transports(problem) and not isinstance(law, Empirical):
        dims = law.base_dim, problem.inner_base_dim
    if dims != memory.dims:
        given = "a run with {} drivers of θ and {} of x".format(*memory.dims)
        raise InputError("prior", given, "as many as today: {} and {}".format(*dims))
    return memory
