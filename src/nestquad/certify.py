"""Certificate for anybody's proxy of J: an interval for E f(J), and a verdict on the proxy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import clock
from nestquad._checks import whole
from nestquad._frames import columns_of, new_frame
from nestquad._notebook import pairs
from nestquad._progress import Progress, ProgressLike, as_progress
from nestquad._threads import one_blas_thread
from nestquad._typing import Array, RNGLike
from nestquad.errors import InputError
from nestquad.estimate import as_budget, check_evaluation, validated
from nestquad.evaluate import Evaluations, Evaluator, Store
from nestquad.methods import Certificate, Goal, JointLattice, ModelOfJ
from nestquad.methods.learned import (
    CertificateSettings,
    Errors,
    Fault,
    FaultSettings,
    ProxyModel,
    as_control,
    as_predictor,
    find_faults,
)
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate, plain, summary

__all__ = ["Diagnosis", "ProxyCheck", "certify"]


@dataclass(frozen=True)
class CertifySettings:
    """Tuning numbers of `certify`.

    Attributes
    ----------
    learning
        Share of the evaluations that a control variate is learned from, as in certified estimates:
        more of them reduce the residuals or their mean, and which of them more depends on g.
    least_learning
        Evaluations from which on there is a control variate: a half is enough for draws then.
    control_places
        θ and x (each) at which the mean of a given control is compared with the proxy.
    control_error
        Distance of that mean at which it is refused, in standard errors: one in 10⁸ by chance,
        for each of the places.
    good
        Share of the variance of J that a proxy may miss and still be called good: 5 % of the
        standard deviation of J.
    """

    learning: float = 0.5
    least_learning: int = 1024
    control_places: tuple[int, int] = (64, 1024)
    control_error: float = 6.0
    good: float = 0.0025


SETTINGS = CertifySettings()


@dataclass(frozen=True, eq=False)
class Scenario:
    """A scenario at which a proxy was observed.

    Attributes
    ----------
    theta
        θ (d_θ,).
    predicted, observed
        Ĵ by the proxy, and J by fresh draws: floats, or (p,) for several outputs.
    std_error
        Standard error of `observed`.
    """

    theta: Array
    predicted: float | Array
    observed: float | Array
    std_error: float | Array

    @property
    def error(self) -> float | Array:
        """Observed less predicted."""
        return self.observed - self.predicted

    def __str__(self) -> str:
        place = ", ".join(f"{value:.4g}" for value in self.theta)
        return (
            f"θ = ({place}): {summary(self.observed, self.std_error)}, proxy {self.predicted:.5g}"
        )


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Verdict on a proxy from fresh residuals.

    Attributes
    ----------
    bias
        E[Ĵ − J], positive where the proxy is too high: a float, or one for each output.
    unexplained
        Share of the variance of J that the proxy misses: Var(J − Ĵ) / Var J.
    faults
        Faults by output.
    errors
        Residuals by output.
    rank
        Scores (n,) by which `worst` selects scenarios, chosen without the residuals it shows.
    shown, shown_error
        J − Ĵ at the scenarios (n, p), and standard errors.
    """

    bias: Estimate
    unexplained: Estimate
    faults: tuple[tuple[Fault, ...], ...]
    errors: tuple[Errors, ...] = field(repr=False)
    rank: Array = field(repr=False)
    shown: Array = field(repr=False)
    shown_error: Array = field(repr=False)

    @classmethod
    def of(
        cls,
        problem: NestedExpectation,
        theta: Array,
        weights: Array,
        predicted: Array,
        parts: Sequence[Array],
        spread: Array,
        rng: np.random.Generator,
        rank: Array | None = None,
    ) -> Diagnosis:
        """From residuals (n_l, N_l, p) of levels l at θ (Σ n_l, d_θ) with weights and Ĵ (·, p).

        `spread` (p,) is the variance of Ĵ over θ. `rank` (Σ n_l,) is a size of errors that is known
        without these residuals; without it the first residual of each θ selects, and the others
        show the error.
        """
        own = FaultSettings()
        errors, faults, draws = [], [], []
        for c in range(predicted.shape[1]):
            found = Errors.of(theta, weights, predicted[:, c], [part[:, :, c] for part in parts])
            drawn = found.summaries(float(spread[c]), rng, own.n_bootstrap)
            lowest = float(np.quantile(drawn[1:, 1], 0.025))
            total = max(float(drawn[0, 1]), 1e-300)
            least = own.negligible * max(float(drawn[0, 2]), 1e-300)
            faults.append(find_faults(found, total, lowest - least, own))
            errors.append(found)
            draws.append(drawn)
        all_draws = np.stack(draws, axis=2)  # (1 + B, 3, p)
        bias, square, variance = (all_draws[:, i] for i in range(3))
        share = np.clip((square - bias**2) / np.maximum(variance, 1e-300), 0.0, None)
        single = predicted.shape[1] == 1

        def estimate(values: Array) -> Estimate:
            given = values[:, 0] if single else values
            return Estimate.from_draws(
                given[0],
                given[1:].reshape(len(values) - 1, -1),
                problem=replace(problem, exact=None),
                n_evaluations=sum(part[..., 0].size for part in parts),
                n_outer=len(theta),
                n_inner=round(sum(part[..., 0].size for part in parts) / len(theta)),
                method="fresh draws",
            )

        mean = np.stack([one.mean for one in errors], axis=1)
        noise = np.sqrt(np.stack([one.noise for one in errors], axis=1))
        if rank is None:
            first = np.concatenate([part[:, 0] for part in parts])
            count = np.repeat([p.shape[1] for p in parts], [len(p) for p in parts])[:, None]
            scale = np.sqrt(np.maximum(spread, 1e-300))
            rank = np.abs(first / scale).max(axis=1)
            mean = (count * mean - first) / (count - 1.0)
            noise = noise * np.sqrt(count / (count - 1.0))
        return cls(estimate(bias), estimate(share), tuple(faults), tuple(errors), rank, mean, noise)

    @property
    def n_outputs(self) -> int:
        return len(self.errors)

    @cached_property
    def verdict(self) -> str:
        """Faults of the proxy in words, the gravest first."""
        texts = []
        for c, faults in enumerate(self.faults):
            name = f"Output {c + 1}: " if self.n_outputs > 1 else ""
            bias, share = (
                replace(
                    one,
                    value=float(np.atleast_1d(one.value)[c]),
                    std_error=float(np.atleast_1d(one.std_error)[c]),
                    draws=None
                    if one.draws is None
                    else one.draws.reshape(-1, self.n_outputs)[:, c],
                )
                for one in (self.bias, self.unexplained)
            )
            texts.append(name + _sentences(faults, bias, share, self.errors[c].theta.shape[1]))
        return "\n".join(texts)

    @property
    def is_good(self) -> bool:
        """Whether no fault is seen, or the proxy misses next to nothing of the variance of J."""
        upper = np.atleast_1d(np.asarray(self.unexplained.interval()[1]))
        shift = any(fault.kind == "shift" for faults in self.faults for fault in faults)
        return bool((upper <= SETTINGS.good).all()) and not shift

    def worst(self, n: int = 10) -> list[Scenario]:
        """The n scenarios with the largest errors of those drawn, each with its error.

        They are selected by other evidence than the draws that show their errors, so that these
        are not exaggerated by the selection.
        """
        n = whole("n", n, "a number of scenarios, from 1 on")
        chosen = np.argsort(-self.rank, kind="stable")[:n]
        predicted = np.stack([one.predicted for one in self.errors], axis=1)

        def given(values: Array) -> float | Array:
            return float(values[0]) if self.n_outputs == 1 else values

        return [
            Scenario(
                self.errors[0].theta[i],
                given(predicted[i]),
                given(predicted[i] + self.shown[i]),
                given(self.shown_error[i]),
            )
            for i in chosen
        ]

    def rows(self) -> list[dict[str, Any]]:
        """All scenarios drawn: θ, prediction, observation and its standard error."""
        theta, n = self.errors[0].theta, self.n_outputs
        columns = {f"theta[{k}]": theta[:, k] for k in range(theta.shape[1])}
        for c, one in enumerate(self.errors):
            end = f" {c + 1}" if n > 1 else ""
            columns[f"predicted{end}"] = one.predicted
            columns[f"observed{end}"] = one.predicted + one.mean
            columns[f"std_error{end}"] = np.sqrt(one.noise)
        columns["weight"] = self.errors[0].weights
        return [
            {name: float(values[i]) for name, values in columns.items()} for i in range(len(theta))
        ]


def _sentences(faults: tuple[Fault, ...], bias: Estimate, share: Estimate, dim: int) -> str:
    """A verdict in words."""
    upper = share.interval()[1]
    misses = f"The proxy misses {_percent(float(share.value))} of the variance of J"
    limits = f"{misses} (at most {_percent(upper)})."
    if not faults:
        return f"No fault seen. {limits}"
    words = []
    for fault in faults:
        part = _percent(min(fault.share, 1.0))
        match fault.kind:
            case "shift":
                side = "low" if fault.size > 0 else "high"
                low, high = sorted(abs(end) for end in bias.interval())
                words.append(
                    f"Shift: the proxy is too {side} by {abs(fault.size):.3g} everywhere "
                    f"(95 %: {low:.3g} to {high:.3g})."
                )
            case "flattened tail":
                tail, side = ("upper", "low") if fault.side > 0 else ("lower", "high")
                words.append(
                    f"Flattened tail: in the {tail} {_percent(fault.tail)} of scenarios by its own "
                    f"predictions the proxy is too {side} by {abs(fault.size):.3g} on average; "
                    f"{part} of its mean square error is there."
                )
            case "scale":
                side = "too little" if fault.size > 1 else "too much"
                words.append(
                    f"Scale: the proxy varies {side}: J rises by {fault.size:.3g} for each unit "
                    f"of the proxy, which explains {part} of its mean square error."
                )
            case "missing factor":
                words.append(
                    f"Missing factor: errors depend on theta[{fault.coordinate}] (coordinate "
                    f"{(fault.coordinate or 0) + 1} of {dim}), which explains {part} of the mean "
                    "square error."
                )
            case "overfit":
                words.append(
                    "Overfit: errors follow no coordinate, and J rises by only "
                    f"{fault.size:.3g} for each unit of the proxy, as where a fit follows its own "
                    "noise; more data or a smoother fit would help."
                )
            case _:
                words.append(
                    f"Unexplained: {part} of the mean square error follows no single coordinate "
                    "and no tail: products of factors may be missing."
                )
    return " ".join([*words, limits])


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %" if share >= 0.0995 else f"{100.0 * share:.2g} %"


@dataclass(frozen=True, eq=False)
class ProxyCheck:
    """Certificate and verdict for a proxy of J(θ) = E[g | θ].

    Attributes
    ----------
    problem
        Name of the problem.
    estimate
        E f(J) with an interval that rests on fresh draws only: a wrong proxy makes it wide.
    proxy_value
        E f(Ĵ) by the proxy alone.
    diagnosis
        Residuals, and faults they show.
    notes
        How the answer was made, and what would improve it.
    """

    problem: str
    estimate: Estimate
    proxy_value: float | Array
    diagnosis: Diagnosis
    notes: tuple[str, ...] = ()

    @property
    def bias(self) -> Estimate:
        """E[Ĵ − J], positive where the proxy is too high; one for each output of g."""
        return self.diagnosis.bias

    @property
    def unexplained(self) -> Estimate:
        """Share of the variance of J that the proxy misses, Var(J − Ĵ) / Var J."""
        return self.diagnosis.unexplained

    @property
    def verdict(self) -> str:
        """Faults of the proxy in words, the gravest first."""
        return self.diagnosis.verdict

    @property
    def faults(self) -> tuple[str, ...]:
        """Kinds of faults, such as ``"shift"``; empty where none is seen."""
        kinds = (fault.kind for faults in self.diagnosis.faults for fault in faults)
        return tuple(dict.fromkeys(kinds))

    @property
    def is_good(self) -> bool:
        """Whether the proxy misses at most 0.25 % of the variance of J, with 95 % confidence."""
        return self.diagnosis.is_good

    @property
    def n_evaluations(self) -> int:
        return self.estimate.n_evaluations

    def worst(self, n: int = 10) -> list[Scenario]:
        """The n scenarios with the largest errors of those drawn, each with its error."""
        return self.diagnosis.worst(n)

    def _lines(self) -> dict[str, str]:
        return {
            "E f(J), certified": f"{self.estimate.summary} (95 %, fresh draws)",
            "by the proxy alone": f"{plain(self.proxy_value)}"
            if np.ndim(self.proxy_value)
            else f"{float(self.proxy_value):.6g}",
            "bias of the proxy": f"{self.bias.summary} (proxy less J)",
            "unexplained variance": self.unexplained.summary,
            "evaluations of g": f"{self.n_evaluations:,}",
            "verdict": self.verdict,
        }

    def __str__(self) -> str:
        lines = self._lines()
        width = max(map(len, lines))
        verdict = lines.pop("verdict")
        rows = [f"{name:<{width}}  {text}" for name, text in lines.items()]
        return "\n".join([f"Check of a proxy: {self.problem}", *rows, "", verdict])

    def _repr_html_(self) -> str:
        return pairs(f"Check of a proxy: {self.problem}", self._lines())

    def to_dict(self) -> dict[str, Any]:
        """All but single scenarios, as plain Python objects."""
        return {
            "problem": self.problem,
            "estimate": self.estimate.to_dict(),
            "proxy_value": plain(self.proxy_value),
            **{
                name: {
                    "value": plain(one.value),
                    "std_error": plain(one.std_error),
                    "interval": [plain(end) for end in one.interval()],
                }
                for name, one in (("bias", self.bias), ("unexplained", self.unexplained))
            },
            "good": self.is_good,
            "verdict": self.verdict,
            "faults": [
                [
                    {
                        "kind": fault.kind,
                        "share": fault.share,
                        "size": fault.size,
                        "coordinate": fault.coordinate,
                    }
                    for fault in faults
                ]
                for faults in self.diagnosis.faults
            ],
            "worst": [
                {
                    "theta": plain(one.theta),
                    "predicted": plain(one.predicted),
                    "observed": plain(one.observed),
                    "std_error": plain(one.std_error),
                }
                for one in self.worst()
            ],
            "n_evaluations": self.n_evaluations,
            "seconds": self.estimate.seconds,
            "notes": list(self.notes),
        }

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_frame(self, library: str = "pandas") -> Any:
        """The scenarios drawn, a row each, as a data frame; needs the extra ``frames``."""
        return new_frame(columns_of(self.diagnosis.rows()), library)

    def plot(self, axes: Any = None) -> Any:
        """Draw observed against predicted, and errors along the proxy, with 95 % bands.

        `axes` are two, or None for new ones; returns them.
        """
        from nestquad.plots import plot_proxy

        return plot_proxy(self.diagnosis, axes, self.problem)

    def save(self, path: str | Path, *, command: str | None = None) -> Path:
        """Write a self-contained HTML page; returns the file."""
        from nestquad.pages import write_page

        sections = check_sections(self.diagnosis, self._lines(), self.notes, self.problem)
        from nestquad.pages import footer

        head = f"<h1>Check of a proxy: {escape(self.problem)}</h1>"
        return write_page(
            path, f"Check of a proxy: {self.problem}", [head, *sections, footer(command)]
        )


def check_sections(
    diagnosis: Diagnosis, lines: dict[str, str], notes: Sequence[str], name: str
) -> list[str]:
    """Sections of a page: verdict, numbers, figure, worst scenarios, notes."""
    from nestquad.pages import figure, grid, paragraphs, table

    verdict = lines.get("verdict", diagnosis.verdict)
    rows = [(key, text) for key, text in lines.items() if key != "verdict"]
    sections = ["<h2>Verdict</h2>", paragraphs(verdict.splitlines()), table(rows)]
    sections.append(
        figure(
            lambda ax: diagnosis_figure(diagnosis, ax, name),
            "Errors of the proxy, observed less predicted, along its predictions. The band is the "
            "95 % interval of the mean error.",
            height=3.6,
        )
    )
    if diagnosis.n_outputs == 1:
        worst = [
            (
                ", ".join(f"{value:.4g}" for value in one.theta),
                f"{one.predicted:.5g}",
                f"{one.observed:.5g}",
                f"{one.error:.3g} ± {NORMAL_95 * float(one.std_error):.2g}",
            )
            for one in diagnosis.worst()
        ]
        sections.append("<h2>Scenarios where the proxy is worst</h2>")
        sections.append(grid(("θ", "proxy", "observed", "error (95 %)"), worst))
    sections += ["<h2>How it was checked</h2>", paragraphs(notes)]
    return sections


def diagnosis_figure(diagnosis: Diagnosis, ax: Any, name: str) -> None:
    """Errors along the predictions of the first output."""
    from nestquad.plots import plot_proxy_errors

    plot_proxy_errors(diagnosis, ax, name)


def certify(
    problem: NestedExpectation,
    proxy: Any,
    *,
    budget: int,
    rng: RNGLike = None,
    control: Callable[[Any, Any], Any] | None = None,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: ProgressLike = False,
) -> ProxyCheck:
    """Check a proxy of J(θ) = E[g(x, θ) | θ] by fresh draws, and certify E f(J) with it.

    The estimate is a model-assisted difference estimator: E f(Ĵ) over dense θ, plus the mean of
    f(J) − f(Ĵ) over fresh draws. The interval rests on the draws alone: a wrong proxy makes it
    wide, not wrong.

    Parameters
    ----------
    problem
        The problem whose J the proxy predicts.
    proxy
        A function of θ (n, d_θ) that returns J as (n,) or (n, p), or an object with ``.predict``
        such as a fitted regression of scikit-learn.
    budget
        Evaluations of g, at least 512.
    rng, executor, store, progress
        As in :func:`nestquad.estimate`.
    control
        ĝ(x, θ) (n,) or (n, p) whose mean over x is the proxy, such as a regression on x and θ: the
        less g − ĝ varies, the narrower the interval. None learns the part of g that varies with x
        from half of the evaluations.

    Returns
    -------
    ProxyCheck
        Estimate, bias, unexplained variance, worst scenarios, and a verdict in words.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.NestedExpectation(
    ...     nq.Normal(), lambda theta: nq.Normal(theta, 1.0), lambda x, theta: x[..., 0]
    ... )
    >>> check = nq.certify(problem, lambda theta: theta[:, 0] + 0.5, budget=2000, rng=0)
    >>> check.faults, bool(abs(check.estimate.value) <= check.estimate.half_width)
    (('shift',), True)
    """
    started = clock.now()
    budget = as_budget(budget)
    validated(problem, budget, None, None, None)
    check_evaluation(problem, executor, 0)
    if budget < Certificate.fewest:
        given = f"{budget} evaluations"
        raise InputError("budget", given, f"at least {Certificate.fewest}", "Fewer show nothing.")
    base = proxy_model(problem, proxy, control)
    opened = None if store is None else Store.open(store, problem, rng, True)
    evaluator = Evaluator(problem, executor, keep=True, store=opened, in_units=False)
    stream = Stream.from_rng(rng) if opened is None else opened.stream
    show = as_progress(progress)
    if progress is not False and progress is not None:
        evaluator.on_progress = lambda done: show(done, max(budget, done), "")
    try:
        with one_blas_thread():
            check = _checked(base, evaluator, stream, budget)
    finally:
        evaluator.close()
        if isinstance(show, Progress):
            show.close()
    reused = {"n_reused": evaluator.n_reused} if opened else {}
    estimate = replace(
        check.estimate,
        seconds=clock.now() - started,
        n_evaluations=evaluator.n_evaluations,
        diagnostics={**check.estimate.diagnostics, **reused},
    )
    return replace(check, estimate=estimate)


def proxy_model(
    problem: NestedExpectation,
    proxy: Any,
    control: Callable[[Any, Any], Any] | None = None,
) -> ProxyModel:
    """The proxy as a model of J over uniforms of θ, checked at a few of them."""
    law = problem.outer_law
    if not law.has_transport:
        raise InputError(
            "outer",
            "a law that can only be sampled",
            "a law that is a transport of uniforms, or given scenarios",
            "Draw scenarios once: outer=nq.Empirical(sample).",
        )
    theta = law.from_uniform(np.random.default_rng(0).random((8, law.base_dim)))
    predict = as_predictor(proxy, theta)
    model = ProxyModel(problem, predict, law.from_uniform, law.base_dim)
    if control is None:
        return model
    if not problem.inner_law(theta).has_transport:
        raise InputError(
            "control", "one for x that can only be sampled", "an inner law that is a transport"
        )
    model = replace(model, control=as_control(control, predict(theta).shape[1]))
    _check_control(model)
    return model


def _check_control(model: ProxyModel) -> None:
    """Refuse a control whose mean over x is not the proxy."""
    n, m = SETTINGS.control_places
    rng = np.random.default_rng(1)
    uniform = np.repeat(rng.random((n, model.dim)), m, axis=0)
    values = model.at(uniform, rng.random((n * m, model.problem.inner_base_dim)))
    values = values.reshape(n, m, -1)
    mean = model.mean(uniform[::m])
    error = values.std(axis=1) / np.sqrt(m) + 1e-9 * (np.abs(mean) + np.abs(values).mean(axis=1))
    distance = values.mean(axis=1) - mean
    away = np.abs(distance) / np.maximum(error, 1e-300)
    together = np.abs(distance.mean(axis=0)) / np.maximum(np.linalg.norm(error, axis=0) / n, 1e-300)
    if max(away.max(), together.max()) > SETTINGS.control_error:
        i, c = np.unravel_index(int(np.argmax(away)), away.shape)
        theta = model.theta_of(uniform[::m])[i].tolist()
        raise InputError(
            "control",
            f"one with mean {values[i, :, c].mean():.6g} ± {error[i, c]:.2g} over x at theta = "
            f"{theta}, where the proxy is {mean[i, c]:.6g}",
            "a function of x and theta whose mean over x is the proxy",
            "Subtract its mean over x and add the proxy.",
        )


def _checked(base: ProxyModel, evaluator: Evaluator, stream: Stream, budget: int) -> ProxyCheck:
    problem, notes = evaluator.problem, []
    model, own = base, None
    may_learn = base.control is None and budget >= SETTINGS.least_learning
    if may_learn and _has_transport(problem):
        own = _learned(evaluator, stream, int(SETTINGS.learning * budget))
    spent = evaluator.n_evaluations
    if own is not None:
        model = replace(base, own=own)
        notes.append(
            f"{spent:,} evaluations taught how g varies with x: a control variate, whose own "
            "error does no harm"
        )
    elif base.control is None:
        notes.append("no control variate: the noise of x counts in full")
    settings = CertificateSettings(least_inner=2)
    certificate = Certificate(evaluator, stream.child(50), model, settings)
    outputs = 1 if certificate.pilot.ndim == 2 else certificate.pilot.shape[2]
    if outputs != base.sketch.j.shape[1]:
        raise InputError(
            "proxy",
            f"one with {base.sketch.j.shape[1]} outputs",
            f"{outputs}, one for each output of g",
        )
    certificate.draw(budget - evaluator.n_evaluations)
    estimate = certificate.estimate()
    notes += estimate.diagnostics["notes"]
    seen = certificate.seen
    uniform, weights, j = (
        np.concatenate([getattr(level, name) for level in seen])
        for name in ("uniform", "weights", "center")
    )
    rank = None
    if own is not None:
        scale = np.sqrt(np.maximum(base.sketch.j.var(axis=0), 1e-300))
        rank = np.abs((own.mean(uniform) - j) / scale).max(axis=1)
    diagnosis = Diagnosis.of(
        problem,
        base.theta_of(uniform),
        weights[:, 0],
        j,
        [level.rest for level in seen],
        base.sketch.j.var(axis=0),
        stream.child(51).generator(),
        rank,
    )
    answers = estimate.diagnostics["model_answers"]
    value = problem.finish(answers)
    return ProxyCheck(
        problem.label,
        replace(estimate, problem=problem.label),
        float(value) if np.ndim(value) == 0 else value,
        diagnosis,
        tuple(notes),
    )


def _learned(evaluator: Evaluator, stream: Stream, n: int) -> ModelOfJ | None:
    """A model of g over θ and x from about n evaluations: a lattice, or a ridge on its points."""
    method, problem = JointLattice(), evaluator.problem
    design = method.sized(problem, Goal(stream, n), n, None)
    if design is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        models = method.fit(Evaluations(evaluator, design), None).models
    return min(models, key=lambda model: float((model.expected_rms() ** 2).sum()))


def _has_transport(problem: NestedExpectation) -> bool:
    law = problem.outer_law
    theta = law.from_uniform(np.full((1, law.base_dim), 0.5))
    return problem.inner_law(theta).has_transport
