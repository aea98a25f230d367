"""Diagnosis of a proxy of J from residuals of fresh draws: bias, misses, faults, a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from nestquad._checks import whole
from nestquad._typing import Array
from nestquad.methods.learned import Errors, Fault, percent
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate, summary

# Share of the variance of J that a proxy may miss and still be called good: 5 % of the standard
# deviation of J.
_GOOD = 0.0025


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
        errors = tuple(
            Errors.of(theta, weights, predicted[:, c], [part[:, :, c] for part in parts])
            for c in range(predicted.shape[1])
        )
        draws = [e.summaries(float(v), rng) for e, v in zip(errors, spread, strict=True)]
        faults = tuple(e.faults(drawn) for e, drawn in zip(errors, draws, strict=True))
        bias, square, variance = np.stack(draws, axis=2).swapaxes(0, 1)  # each (1 + B, p)
        # A variance of J that the draws do not show, or that is rounding, divides nothing.
        size = np.mean(predicted**2, axis=0) + np.maximum(square[0], 0.0)
        least = np.maximum(variance[1:].std(axis=0), 1e-12 * size) + np.finfo(float).tiny
        share = np.clip((square - bias**2) / np.maximum(variance, least), 0.0, None)
        n = sum(part[..., 0].size for part in parts)

        def estimate(values: Array) -> Estimate:
            single = values.shape[1] == 1
            return Estimate.from_draws(
                values[0, 0] if single else values[0],
                values[1:],
                problem=replace(problem, exact=None),
                n_evaluations=n,
                n_outer=len(theta),
                n_inner=round(n / len(theta)),
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
        return cls(estimate(bias), estimate(share), faults, errors, rank, mean, noise)

    @property
    def n_outputs(self) -> int:
        return len(self.errors)

    @cached_property
    def verdict(self) -> str:
        """Faults of the proxy in words, the gravest first."""
        bias, share = (
            np.stack([np.ravel(end) for end in (estimate.value, *estimate.interval())], axis=1)
            for estimate in (self.bias, self.unexplained)
        )
        texts = []
        for c, faults in enumerate(self.faults):
            name = f"Output {c + 1}: " if self.n_outputs > 1 else ""
            misses, _, most = map(percent, share[c])
            words = [fault.sentence(*sorted(np.abs(bias[c, 1:]))) for fault in faults]
            words.append(f"The proxy misses {misses} of the variance of J (at most {most}).")
            texts.append(name + " ".join(words if faults else ["No fault seen.", *words]))
        return "\n".join(texts)

    @property
    def is_good(self) -> bool:
        """Whether no fault is seen, or the proxy misses next to nothing of the variance of J."""
        upper = np.atleast_1d(np.asarray(self.unexplained.interval()[1]))
        shift = any(fault.kind == "shift" for faults in self.faults for fault in faults)
        return bool((upper <= _GOOD).all()) and not shift

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


def check_sections(
    diagnosis: Diagnosis, lines: dict[str, str], notes: Sequence[str], name: str
) -> list[str]:
    """Sections of a page: verdict, numbers, figure, worst scenarios, notes."""
    from nestquad.pages import figure, grid, paragraphs, table
    from nestquad.plots import plot_proxy_errors

    verdict = lines.get("verdict", diagnosis.verdict)
    rows = [(key, text) for key, text in lines.items() if key != "verdict"]
    sections = ["<h2>Verdict</h2>", paragraphs(verdict.splitlines()), table(rows)]
    sections.append(
        figure(
            lambda ax: plot_proxy_errors(diagnosis, ax, name),
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
