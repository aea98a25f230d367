"""Front door: measures of risk from a problem, and from a table of nested simulations."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from numbers import Real
from typing import Any, cast

import numpy as np

from nestquad import clock
from nestquad._checks import choice, listed, numbers, shown
from nestquad._progress import Progress, ProgressLike, as_progress
from nestquad._tangent_problem import TangentProblem
from nestquad._typing import Array, ArrayLike, RNGLike
from nestquad.distributions import Empirical
from nestquad.errors import InputError
from nestquad.estimate import check_evaluation, solved, validated
from nestquad.evaluate import Evaluator, Store
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate
from nestquad.risk._certified import certified_ends
from nestquad.risk._forecast import Forecast, Outlook
from nestquad.risk._greeks import greeks_of, loss_with_tangents, tangent_loss
from nestquad.risk._method import FEWEST, RiskState, TailSampling
from nestquad.risk._portfolios import Source, scalar
from nestquad.risk._prior import Memory
from nestquad.risk._report import Exposure, RiskReport
from nestquad.risk._stresses import Stress, run_stresses, stress_points
from nestquad.risk._targets import Targets, Weighting

DefaultCurve = float | Sequence[float] | Callable[[Array], ArrayLike]


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
        evaluations, and ``report.diversification`` what they lose by being added up.
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
    _refuse_f(problem)
    others = {
        "es": es,
        "spectral": spectral,
        "portfolios": portfolios,
        "stresses": stresses,
        "sensitivities": sensitivities,
    }
    unused = [name for name, given in others.items() if given is not None]
    unused += ["exceed"] if np.size(np.asarray(exceed, dtype=object)) else []
    unused += ["certify"] if certify else []
    if exposure and unused:
        given = "given with exposure=True"
        raise InputError(", ".join(unused), given, "not given", "Levels of PFE are in var.")
    if all(limit is None for limit in (budget, tol, rtol, max_seconds)):
        raise InputError(
            "budget",
            "neither a budget nor a tolerance nor a time",
            "one of them",
            "For instance budget=10_000, rtol=0.02 for each measure, or max_seconds=30; "
            "risk.forecast(problem, rtol=0.02) says what a tolerance takes.",
        )
    choice("certify", certify, (True, False))
    started = clock.now()
    joint, base = None, cast(NestedExpectation, problem)
    if sensitivities is not None:
        if spectral is not None:
            advice = "Derivatives are those of var, es and exceed."
            raise InputError("spectral", "given with sensitivities", "one of them", advice)
        if stresses is not None and store is not None:
            given = "given with sensitivities and a store"
            raise InputError("stresses", given, "two of them", "A store has values of one problem.")
        joint, _ = loss_with_tangents(problem, sensitivities, budget)
        base = joint.base
        _refuse_f(base)
        problem = tangent_loss(joint)
    budget = validated(base, budget, tol, rtol, max_seconds)
    assert isinstance(problem, NestedExpectation)
    shortfall = (0.975,) if es is None else es
    targets = Targets.of(var, shortfall, exceed, spectral)
    targets = Targets.exposure(var) if exposure else targets
    if outputs is not None:
        outputs = _dates(outputs).tolist() if exposure else _names(outputs)
    if not isinstance(recovery, Real) or not 0 <= recovery <= 1:
        raise InputError("recovery", repr(recovery), "a share between 0 and 1")
    if default_curve is not None and not exposure:
        raise InputError("default_curve", "a curve without exposure", "exposure=True")
    if default_curve is not None:  # before the budget is spent
        n = 1 if callable(default_curve) else max(np.size(np.asarray(default_curve, object)), 1)
        _default(default_curve, np.arange(1.0, n + 1.0) if outputs is None else np.array(outputs))
    count, n_losses = None if outputs is None else len(outputs), None
    if joint is not None:
        n_losses = joint.f.n_outputs
        if count not in (None, n_losses):
            raise InputError("outputs", f"{count} of them", f"{n_losses}, one for each output of g")
        count = None
    groups = _groups(portfolios, outputs)
    memory = None if prior is None else _memory(prior, problem)
    if rng is not None or store is None:
        rng = Stream.from_rng(rng)
    at_stresses: dict[str, Stress] = {}
    if stresses is not None:
        check_evaluation(base, executor, retries)
        points = stress_points(base, stresses)
        opened = None if store is None else Store.open(store, base, rng, store_check)
        rng = rng if opened is None else opened.stream
        evaluator = Evaluator(
            base,
            executor,
            keep=True,
            deadline=np.inf if max_seconds is None else started + max_seconds,
            retries=retries,
            store=opened,
            in_units=False,
        )
        stream = Stream.from_rng(rng).child(60)
        at_stresses = run_stresses(evaluator, points, stream, budget, (tol, rtol), max_seconds)
        evaluator.close()
        budget = None if budget is None else max(budget - evaluator.n_evaluations, FEWEST)
    if max_seconds is not None:
        max_seconds = max(max_seconds - (clock.now() - started), 1e-9)
    if joint is not None and budget is not None:
        budget = (budget - joint.n_spent) // joint.tangents.cost
    # Towards a tolerance pairs may take ten seconds eight times over, and most of a limit.
    aimed = tol is not None or rtol is not None
    patience = float(np.clip((max_seconds or 160.0) / 20.0, 1.0, 8.0)) if aimed else 1.0
    outlook = Outlook(tol or 0.0, rtol or 0.0, started) if aimed else None
    show = as_progress(progress)
    method = TailSampling(
        targets,
        exposure,
        count,
        patience,
        tuple(groups.values()),
        memory,
        outlook,
        n_losses,
    )
    try:
        found, turn = solved(
            problem,
            budget=budget,
            tol=tol,
            rtol=rtol,
            method=method,
            rng=rng,
            executor=executor,
            store=store,
            progress=progress if outlook is None or not progress else outlook.watched(show),
            max_seconds=max_seconds,
            retries=retries,
            store_check=store_check,
        )
    finally:
        if outlook is not None and progress and isinstance(show, Progress):
            show.close()
    state: RiskState = turn.state
    if store is not None and state.memory is not None:
        state.memory.save(store)
    notes = tuple(found.diagnostics["notes"])
    if joint is not None:
        found = _in_evaluations(found, joint)
    spent = found.n_evaluations + sum(one.loss.n_evaluations for one in at_stresses.values())
    found = replace(
        found,
        n_evaluations=spent,
        seconds=clock.now() - started,
        diagnostics={**found.diagnostics, "notes": []},
    )
    if exposure:
        return _exposures(found, targets, state, outputs, default_curve, recovery, notes)
    n = state.draws.values.shape[2] if state.parts is not None else 1
    names = tuple(outputs or [f"output {k + 1}" for k in range(n_losses or n)])
    law, greeks = state.laws[0], None
    source = Source(method, state, found, names)
    if joint is not None and law.pairs is not None:
        whole = scalar(found, np.arange(len(targets.keys)))
        greeks = greeks_of(state, targets, whole, joint)
    ends = certified_ends(law, method.unused_pairs(state), targets) if certify else None
    report = RiskReport(
        problem.label,
        found,
        targets.keys,
        notes,
        details=state.details,
        stresses={name: one.placed(law, problem) for name, one in at_stresses.items()},
        certified=ends,
        sensitivities=greeks,
    )
    each = {name: source.report(i + 1, name, report) for i, name in enumerate(groups)}
    return replace(source.report(0, problem.label, report), source=source, portfolios=each)


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
    outlook = Outlook(tol or 0.0, rtol or 0.0)
    for step in report.estimate.trace:
        outlook.add(step.n_evaluations, np.atleast_1d(step.value), np.atleast_1d(step.half_width))
    found = outlook.forecast(report.notes)
    if found is None:
        given = f"{report.n_evaluations:,} evaluations without an interval"
        raise InputError("budget", given, "more of them")
    return replace(found, seconds=report.seconds * found.n_evaluations / found.spent)


def _in_evaluations(found: Estimate, joint: TangentProblem) -> Estimate:
    """The estimate with evaluations of g in place of points, each of which takes several."""
    spent, cost = joint.n_spent, joint.tangents.cost
    steps = (replace(one, n_evaluations=spent + cost * one.n_evaluations) for one in found.trace)
    return replace(found, n_evaluations=spent + cost * found.n_evaluations, trace=tuple(steps))


def _refuse_f(problem: Any) -> None:
    if isinstance(problem, NestedExpectation) and (problem.f or problem.combine):
        raise InputError(
            "problem",
            "one with f or combine",
            "one without: g is the loss",
            "Measures of risk stand in place of f.",
        )


def _exposures(
    found: Estimate,
    targets: Targets,
    state: RiskState,
    outputs: Sequence[Any] | None,
    curve: DefaultCurve | None,
    recovery: float,
    notes: tuple[str, ...],
) -> RiskReport:
    n, k = len(state.laws), len(targets.keys)
    dates = np.arange(1.0, n + 1.0) if outputs is None else np.asarray(outputs)
    columns = [scalar(found, np.arange(i, n * k, k)) for i in range(k)]
    ee, ene = columns[:2]
    pfe = {level: one for (_, level), one in zip(targets.keys[2:], columns[2:], strict=True)}
    steps = np.diff(dates, prepend=0.0)
    epe = _combined(ee, steps / steps.sum())
    cva = None
    if curve is not None:
        defaults = np.diff(_default(curve, dates), prepend=0.0)
        cva = _combined(ee, (1.0 - recovery) * defaults)
    exposure = Exposure(dates, ee, ene, pfe, epe, cva)
    return RiskReport(
        found.problem, found, targets.keys, notes, exposure=exposure, details=state.details
    )


def _combined(one: Estimate, weights: Array) -> Estimate:
    """A weighted sum of answers, whose errors are correlated."""
    covariance = np.atleast_2d(np.asarray(one.covariance))
    error = float(np.sqrt(max(float(weights @ covariance @ weights), 0.0)))
    draws = None
    if one.draws is not None:
        draws = one.draws @ weights
        low, high = np.quantile(draws, [0.025, 0.975])
        error = float(high - low) / (2.0 * NORMAL_95)
    value = float(weights @ one.value)
    return replace(one, value=value, std_error=error, covariance=None, draws=draws)


def _names(outputs: Any) -> list[str]:
    expected = "different names, one for each output of g, such as ['rates', 'credit']"
    names = [str(one) for one in listed("outputs", outputs, expected)]
    if len({*names}) < len(names) or not names:
        raise InputError("outputs", shown(names), expected)
    return names


def _memory(prior: Any, problem: NestedExpectation) -> Memory:
    """The memory of an earlier run whose laws have as many drivers."""
    memory, law = Memory.of(prior), problem.outer_law
    dims = 0, 0
    if law.has_transport and not isinstance(law, Empirical):
        theta = law.from_uniform(np.full((1, law.base_dim), 0.5))
        dims = law.base_dim, problem.inner_law(theta).base_dim
    if dims != memory.dims:
        given = "a run with {} drivers of θ and {} of x".format(*memory.dims)
        raise InputError("prior", given, "as many as today: {} and {}".format(*dims))
    return memory


def _groups(portfolios: Any, outputs: Sequence[Any] | None) -> dict[str, tuple[int, ...]]:
    """Positions of outputs by portfolio."""
    if portfolios is None:
        return {}
    expected = "a mapping from names to names of outputs, such as {'macro': ['rates', 'fx']}"
    if outputs is None or not isinstance(portfolios, Mapping) or not portfolios:
        advice = "Outputs have names by outputs=[…]."
        raise InputError("portfolios", shown(portfolios), expected, advice)
    found = {}
    for name, members in portfolios.items():
        given = [members] if isinstance(members, str) else listed("portfolios", members, expected)
        if not given or len({*given}) < len(given) or not {*given} <= {*outputs}:
            raise InputError("portfolios", f"{name!r}: {shown(members)}", expected)
        found[str(name)] = tuple(outputs.index(one) for one in given)
    return found


def _dates(outputs: Any) -> Array:
    expected = "dates in years, in increasing order, one for each output of g"
    try:
        dates = np.asarray(outputs, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError("outputs", repr(outputs), expected) from error
    rising = dates.ndim == 1 and dates.size > 0 and (np.diff(dates, prepend=0.0) >= 0).all()
    if not rising or dates[-1] <= 0 or not np.isfinite(dates).all():
        raise InputError("outputs", repr(outputs), expected)
    return dates


def _default(curve: DefaultCurve, dates: Array) -> Array:
    """Cumulative default probabilities at the dates."""
    try:
        found = numbers("default_curve", curve(dates) if callable(curve) else curve, "numbers")
    except InputError:
        raise
    except Exception as error:  # of the user's function
        given = f"a function that raised {type(error).__name__}: {error}"
        raise InputError("default_curve", given, "a function of an array of dates") from error
    if found.ndim == 0 and not callable(curve):
        if found < 0:
            raise InputError("default_curve", f"a hazard rate of {found:g}", "one of at least 0")
        with np.errstate(over="ignore"):
            found = -np.expm1(-found * dates)
    good = found.shape == dates.shape and ((found >= 0) & (found <= 1)).all()
    if not good or (np.diff(found) < 0).any():
        raise InputError(
            "default_curve",
            f"{found}",
            f"a hazard rate, or {len(dates)} cumulative default probabilities that do not fall",
        )
    return found
