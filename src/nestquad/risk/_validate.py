"""Validation of a proxy: measures of the corrected law of the loss and of the proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from nestquad._diagnosis import Diagnosis, check_sections
from nestquad._typing import Array
from nestquad.accuracy import replicate_errors
from nestquad.errors import InputError, unknown_name
from nestquad.evaluate import Evaluations
from nestquad.functionals import WeightedSample
from nestquad.methods import ModelOfJ
from nestquad.methods.learned import Check, ProxyModel, as_predictor
from nestquad.pages import grid as page_grid
from nestquad.pages import paragraphs
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, plain
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._law import LawOfJ
from nestquad.risk._measure import RunLimits
from nestquad.risk._method import RiskState, TailSampling
from nestquad.risk._report import RiskReport
from nestquad.risk._rows import cells_of
from nestquad.risk._scenarios import Scenarios
from nestquad.risk._stacking import StackedModel
from nestquad.risk._targets import Targets

Predictor = Callable[[Array], Array]


@dataclass(frozen=True)
class ProxySampling(TailSampling):
    """Tail sampling with a given Ĵ: learned models serve as control variates, or in its place."""

    predict: Predictor = field(default=lambda theta: theta)

    def fit(self, scenarios: Scenarios, learning: Evaluations) -> list[ModelOfJ]:
        predict = self.predict
        return [
            ProxyModel(
                scenarios.problem,
                lambda theta: predict(theta).sum(axis=1, keepdims=True),
                scenarios.theta_of,
                own.dim,
                own,
            )
            for own in super().fit(scenarios, learning)
        ]

    def proxy_of(self, models: list[ModelOfJ], check: Check) -> ProxyModel:
        """The proxy with the control variate of smaller residuals."""
        found = min(models, key=lambda one: float(np.square(check.residuals(one)).mean()))
        assert isinstance(found, ProxyModel)
        return found

    def stacked(
        self, models: list[ModelOfJ], check: Check, kept: RiskState | None = None
    ) -> StackedModel:
        """Proxy or learned model, by their errors where the measures depend on J.

        A proxy that is flat in its tail does not order scenarios there: the law of J given such an
        Ĵ is that of all of them, of which pairs show little.
        """
        if not len(check.values):
            return StackedModel.single(models[-1])
        learned = [one.own for one in models if isinstance(one, ProxyModel) and one.own is not None]
        both = StackedModel.single(self.proxy_of(models, check)), super().stacked(learned, check)
        return min(both, key=lambda one: float((one.residuals(check).mean(axis=1) ** 2).mean()))


@dataclass(frozen=True, eq=False)
class ValidationReport(RiskReport):
    """Measures of the risk of J and of a proxy, with a verdict.

    Attributes
    ----------
    proxy
        Measures (k,) of the law of the proxy's predictions, in the order of the others.
    proxy_error
        Their standard errors, by replicates of dense θ.
    diagnosis
        Bias, unexplained variance and faults of the proxy, from fresh pairs.
    """

    proxy: Array = field(default_factory=lambda: np.empty(0))
    proxy_error: Array = field(default_factory=lambda: np.empty(0))
    diagnosis: Diagnosis | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One for each measure: value, interval, that by the proxy, whether it is inside.

        Inside is within the error of the proxy's own measure, which is computed at many θ.
        """
        rows = []
        for row, value, error in zip(super().rows(), self.proxy, self.proxy_error, strict=True):
            low, high = row["low"] - NORMAL_95 * error, row["high"] + NORMAL_95 * error
            rows.append({**row, "proxy": float(value), "holds": bool(low <= value <= high)})
        return rows

    def _shown(self) -> list[dict[str, Any]]:
        """The rows with words for whether they hold."""
        rows = self.rows()
        for row in rows:
            row["proxy is"] = "inside" if row.pop("holds") else "outside"
        return rows

    @property
    def is_good(self) -> bool:
        """Whether the intervals hold all measures of the proxy."""
        return all(row["holds"] for row in self.rows())

    @property
    def verdict(self) -> str:
        """Measures that the proxy misses, and its faults, in words."""
        sentences = []
        for row in self.rows():
            if row["holds"]:
                continue
            side, end = ("low", "low") if row["proxy"] < row["low"] else ("high", "high")
            size = abs(row["proxy"] - row["value"])
            share = f" ({size / abs(row['value']):.1%})" if row["value"] else ""
            sentences.append(
                f"{row['measure']} by the proxy is {row['proxy']:.5g}, too {side} by {size:.3g}"
                f"{share}: the interval ends at {row[end]:.5g}."
            )
        if not sentences:
            sentences.append("All measures of the proxy are within the 95 % intervals.")
        if self.diagnosis is not None:
            sentences.append(self.diagnosis.verdict)
        return " ".join(sentences)

    def worst(self, n: int = 10) -> Any:
        """The n scenarios drawn with the largest errors, each with its error."""
        assert self.diagnosis is not None
        return self.diagnosis.worst(n)

    def to_dict(self) -> dict[str, Any]:
        found = {**super().to_dict(), "verdict": self.verdict, "good": self.is_good}
        for name in ("bias", "unexplained") if self.diagnosis is not None else ():
            each = getattr(self.diagnosis, name)
            found[name] = {"value": plain(each.value), "std_error": plain(each.std_error)}
        return found

    def _heading(self) -> str:
        return f"Validation of a proxy: {self.problem}"

    def _title(self) -> str:
        return f"Validation of a proxy: {super()._title()}"

    def _remarks(self) -> str:
        return self.verdict

    def _page(self) -> Iterator[str]:
        assert self.diagnosis is not None
        yield page_grid(
            *cells_of(self._shown()), "Measures of the loss J, corrected by fresh draws"
        )
        yield paragraphs(
            [
                "J is the expected loss given the scenario. Corrected measures are those of a law "
                "of J (of the proxy, or of a learned model where that is nearer) after its errors "
                "were observed in pairs of fresh draws, to which neither was fitted."
            ]
        )
        lines = {
            "verdict": self.verdict,
            "bias of the proxy": f"{self.diagnosis.bias.summary} (proxy less J, 95 %)",
            "unexplained variance": self.diagnosis.unexplained.summary,
            "evaluations of the loss": f"{self.n_evaluations:,}",
        }
        yield from check_sections(self.diagnosis, lines, self.notes, self.problem)


def validate(
    problem: NestedExpectation,
    proxy: Any,
    *,
    var: float | Sequence[float] = (0.995,),
    es: float | Sequence[float] = (0.99,),
    exceed: float | Sequence[float] = (),
    **run: Any,
) -> ValidationReport:
    """Validate a proxy of the loss J(θ) = E[g(x, θ) | θ] for measures of risk.

    Pairs of fresh draws show the mean and the variance of J given the proxy, which correct the law
    of its predictions; where a model learned from the other evaluations is nearer to J at these
    pairs, its law is corrected. The corrected measures stand next to the proxy's.

    Parameters
    ----------
    problem
        A problem without f: θ is the scenario, g the loss; several outputs of g are summed.
    proxy
        A function of θ (n, d_θ) that returns the loss as (n,), or the outputs as (n, p), or an
        object with ``.predict``.
    var, es, exceed
        As in :func:`measure`.
    run
        Limits of the run and how g is evaluated, as in :func:`measure`: ``budget``, ``tol``,
        ``rtol``, ``rng``, ``executor``, ``store``, ``progress``, ``max_seconds``, ``retries``,
        ``store_check``.

    Returns
    -------
    ValidationReport
        Corrected measures and the proxy's, with a verdict in words.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad import risk
    >>> problem = nq.NestedExpectation(
    ...     nq.Normal(), lambda theta: nq.Normal(theta, 1.0), lambda x, theta: x[..., 0]
    ... )
    >>> report = risk.validate(problem, lambda theta: theta[:, 0] - 0.5, budget=1000, rng=0)
    >>> report.is_good, bool(abs(report.var[0.995].value - 2.5758) < 0.02)
    (False, True)
    """
    if not isinstance(problem, NestedExpectation):
        raise InputError("problem", type(problem).__name__, "a nq.NestedExpectation")
    known = {one.name for one in fields(RunLimits)} - {"started"}
    for name in run:
        if name not in known:
            raise unknown_name("risk.validate", name, known)
    limits = RunLimits(**run).checked(problem)
    targets = Targets.of(var, es, exceed)
    law, random = problem.outer_law, np.random.default_rng(0)
    theta = law.sample(8, random) if not law.has_transport else None
    theta = law.from_uniform(random.random((8, law.base_dim))) if theta is None else theta
    method = ProxySampling(targets, predict=as_predictor(proxy, theta))
    found, state = limits.solve(problem, method)
    dense = state.dense
    assert dense.owner is not None
    outputs = state.draws.values.shape[2] if state.n_pairs else 1
    columns = method.predict(theta).shape[1]
    if columns not in (1, outputs):
        raise InputError("proxy", f"{columns} outputs", f"the sum, or {outputs} as g has")
    check = state.check if state.n_pairs else None
    model = state.models[-1] if check is None else method.proxy_of(state.models, check)
    kept = state.model.is_only(ProxyModel)
    base = "the proxy" if kept else "a model learned from the other evaluations"
    corrected = state.laws[0]
    notes = (
        f"{state.n_pairs:,} pairs of fresh draws, most of them where the measures look, correct "
        f"the law of {base}: it is the nearer to J there, and leaves "
        f"{corrected.unexplained_share:.2g} of its variance unexplained",
        *found.diagnostics["notes"],
    )
    predicted = model.mean(dense.uniform)[:, 0]
    alone = LawOfJ.of_model(predicted, dense.weights, dense.owner, corrected.dim)
    value, errors = _measured(alone, targets)
    diagnosis = None
    if check is not None and isinstance(model, ProxyModel) and model.own is not None:
        draws, predicted = state.draws, model.mean(state.draws.uniform)
        diagnosis = Diagnosis.of(
            problem,
            model.theta_of(draws.uniform),
            draws.weights,
            predicted,
            [check.residuals(model)],
            np.array([alone.variance]),
            np.random.default_rng(3),
            np.abs(model.own.mean(draws.uniform) - predicted)[:, 0],
            model.n_met,
        )
    return ValidationReport(
        problem.label,
        found,
        targets.keys,
        notes,
        distribution=LossDistribution(corrected),
        proxy=value,
        proxy_error=errors,
        diagnosis=diagnosis,
    )


def _measured(law: LawOfJ, targets: Targets) -> tuple[Array, Array]:
    """Measures (k,) of a law of predictions, and their standard errors by replicates of θ."""
    value = targets.values(law.center)
    if len(law.mass) == 1:  # given scenarios are all there are
        return value, np.zeros_like(value)
    each = [targets.values(WeightedSample(law.m, mass, law.steps)) for mass in law.mass]
    return value, np.linalg.norm(replicate_errors(np.stack(each, axis=1)), axis=1)
