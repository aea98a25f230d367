"""Certificate for anybody's proxy of J: an interval for E f(J), and a verdict on the proxy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from nestquad import clock
from nestquad._diagnosis import Diagnosis, Scenario, check_sections
from nestquad._frames import frame_of
from nestquad._notebook import pairs
from nestquad._progress import Progress, ProgressLike, as_progress
from nestquad._threads import one_blas_thread
from nestquad._typing import Array, RNGLike
from nestquad.errors import InputError, OutsideDomainError
from nestquad.estimate import as_budget, check_evaluation, validated
from nestquad.evaluate import Evaluations, Evaluator, Store
from nestquad.methods import Certificate, Goal, JointLattice, ModelOfJ
from nestquad.methods.learned import (
    CertificateSettings,
    ProxyModel,
    as_control,
    as_predictor,
)
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, plain

__all__ = ["ProxyCheck", "certify"]


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
    """

    learning: float = 0.5
    least_learning: int = 1024


SETTINGS = CertifySettings()


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
        rare = (
            "\nE f(J) depends on events that few evaluations have met, or none: most of its "
            "interval is for events that were not met."
        )
        return self.diagnosis.verdict + (rare if self._is_rare else "")

    @property
    def faults(self) -> tuple[str, ...]:
        """Kinds of faults, such as ``"shift"``; empty where none is seen."""
        kinds = (fault.kind for faults in self.diagnosis.faults for fault in faults)
        return tuple(dict.fromkeys(kinds))

    @property
    def is_good(self) -> bool:
        """Whether the proxy misses at most 0.25 % of the variance of J, with 95 % confidence.

        False also where more than 1 % of scenarios may be unlike the drawn ones, or where E f(J)
        depends on events that few evaluations have met.
        """
        return self.diagnosis.is_good and not self._is_rare

    @property
    def _is_rare(self) -> bool:
        """Whether events that were not met are the largest error of E f(J)."""
        parts = self.estimate.diagnostics["error_parts"]
        return bool(parts["events"] > parts["draws"])

    @property
    def n_evaluations(self) -> int:
        return self.estimate.n_evaluations

    def worst(self, n: int = 10) -> list[Scenario]:
        """The n scenarios drawn with the largest errors, each with its error."""
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
            "faults": [[asdict(fault) for fault in faults] for faults in self.diagnosis.faults],
            "worst": [plain(asdict(scenario)) for scenario in self.worst()],
            "n_evaluations": self.n_evaluations,
            "seconds": self.estimate.seconds,
            "notes": list(self.notes),
        }

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_frame(self, library: str = "pandas") -> Any:
        """The scenarios drawn, a row each, as a data frame; needs the extra ``frames``."""
        return frame_of(self.diagnosis.rows(), library)

    def plot(self, axes: Any = None) -> Any:
        """Draw observed against predicted, and errors along the proxy, with 95 % bands.

        `axes` are two, or None for new ones; returns them.
        """
        from nestquad.plots import plot_proxy

        return plot_proxy(self.diagnosis, axes, self.problem)

    def save(self, path: str | Path, *, command: str | None = None) -> Path:
        """Write a self-contained HTML page; returns the file."""
        from nestquad.pages import footer, write_page

        head = f"Check of a proxy: {self.problem}"
        sections = check_sections(self.diagnosis, self._lines(), self.notes, self.problem)
        return write_page(path, head, [f"<h1>{escape(head)}</h1>", *sections, footer(command)])


def certify(
    problem: NestedExpectation,
    proxy: Any,
    *,
    budget: int | None = None,
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
        ĝ(x, θ) (n,) or (n, p), such as a regression on x and θ: the less g − ĝ varies with x, the
        narrower the interval. Its mean over x may be wrong, since only its variation is used. None
        learns that from half of the evaluations.

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
    if budget is None:
        raise InputError("budget", "none", "evaluations of g", "For instance budget=2_000.")
    budget = as_budget(budget)
    validated(problem, budget, None, None, None)
    check_evaluation(problem, executor, 0)
    if budget < Certificate.fewest:
        given = f"{budget} evaluations"
        raise InputError("budget", given, f"at least {Certificate.fewest}", "Fewer show nothing.")
    base = _proxy_model(problem, proxy, control)
    opened = None if store is None else Store.open(store, problem, rng, True)
    evaluator = Evaluator(problem, executor, keep=True, store=opened, in_units=False)
    stream = Stream.from_rng(rng) if opened is None else opened.stream
    show = as_progress(progress)
    if progress is not False and progress is not None:
        evaluator.on_progress = lambda done: show(done, max(budget, done), "")
    try:
        with one_blas_thread():
            check = _checked(base, evaluator, stream, budget)
    except OutsideDomainError as error:
        given = f"one at whose predictions f has no value: {error.problem}"
        raise InputError("proxy", given, "J in the domain of f", "Bound the proxy.") from error
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


def _proxy_model(
    problem: NestedExpectation, proxy: Any, control: Callable[[Any, Any], Any] | None
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
    if control is not None:
        if not problem.inner_law(theta).has_transport:
            given = "one for x that can only be sampled"
            raise InputError("control", given, "an inner law that is a transport")
        control = as_control(control, predict(theta).shape[1])
    return ProxyModel(problem, predict, law.from_uniform, law.base_dim, control=control)


def _checked(base: ProxyModel, evaluator: Evaluator, stream: Stream, budget: int) -> ProxyCheck:
    problem, notes = evaluator.problem, []
    own = None
    if base.control is None and budget >= SETTINGS.least_learning:
        own = _learned(evaluator, stream, int(SETTINGS.learning * budget))
    if own is not None:
        notes.append(
            f"{evaluator.n_evaluations:,} evaluations taught how g varies with x: a control "
            "variate, whose own error does no harm"
        )
    elif base.control is None:
        notes.append("no control variate: the noise of x counts in full")
    model = replace(base, own=own)
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
    certificate.met = model.met_errors(certificate.average.f)
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
        model.n_met,
    )
    value = problem.finish(estimate.diagnostics["model_answers"])
    return ProxyCheck(
        problem.label,
        replace(estimate, problem=problem.label),
        float(value) if np.ndim(value) == 0 else value,
        diagnosis,
        tuple(notes),
    )


def _learned(evaluator: Evaluator, stream: Stream, n: int) -> ModelOfJ | None:
    """A model of g over θ and x from about n evaluations of a lattice, if x has a transport."""
    method, problem = JointLattice(), evaluator.problem
    law = problem.outer_law
    if not problem.inner_law(law.middle()).has_transport:
        return None
    design = method.sized(problem, Goal(stream, n), n, None)
    if design is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return method.fit(Evaluations(evaluator, design), None).model
