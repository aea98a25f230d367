"""Certificate: a model-assisted difference estimator with a multilevel correction.

I = E f(Ĵ) + E[f(J) − f(Ĵ)] (Särndal, Swensson and Wretman 1992, Model assisted survey sampling;
Cochran 1977, Sampling techniques). The first term is a dense average, free of g. The second is a
mean of fresh independent draws at θ from a mixture of their law and of the region where f(Ĵ) is
sensitive, with known weights. The interval rests on the draws alone, whatever the model is worth.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.accuracy import degrees_of_freedom, propagated, size_of, tail_index
from nestquad.evaluate import Evaluator
from nestquad.methods._events import rare_event_errors
from nestquad.methods._method import Turn, assembled
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._base import Learned
from nestquad.methods.learned._differences import (
    CertificateSettings,
    Differences,
    Levels,
    Residuals,
)
from nestquad.methods.learned._model import ModelOfJ
from nestquad.methods.learned._sensitive import pool_size
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, Estimate


@dataclass(eq=False)
class Certificate:
    """Interval for I from fresh draws; `model` is the model of J, None for none.

    Draws come in batches with streams of their own; `seen` are the residuals of all batches by
    level, `planned` the levels of the last.
    """

    evaluator: Evaluator
    stream: Stream
    model: ModelOfJ | None
    settings: CertificateSettings = field(default_factory=CertificateSettings)
    seen: list[Residuals] = field(default_factory=list)
    planned: Levels = field(default_factory=lambda: Levels((), ()))
    n_batches: int = 0
    n_evaluations: int = 0

    fewest: ClassVar[int] = 512
    """Evaluations below which there is too little to see."""

    @property
    def problem(self) -> NestedExpectation:
        return self.evaluator.problem

    @cached_property
    def differences(self) -> Differences:
        return Differences(self.evaluator, self.stream, self.model, self.settings)

    @property
    def average(self) -> DenseAverage:
        return self.differences.average

    @property
    def pilot(self) -> Array:
        """Values of g (T, N[, p])."""
        return self.differences.pilot

    def levels(self, n_evaluations: int) -> Levels:
        """Sizes of levels for about that many evaluations."""
        return self.differences.levels(n_evaluations)

    def draw(self, n_evaluations: int) -> None:
        """One more batch of about that many evaluations.

        Levels telescope only if all batches have the same N_l. Other sizes begin anew, and only
        for more evaluations than were drawn with these.
        """
        levels, last = self.levels(n_evaluations), self.planned
        if self.seen and levels.n_inner != last.n_inner:
            counts = [len(level.center) for level in self.seen]
            share = n_evaluations / float(np.dot(counts, last.n_inner))
            fewer = tuple(max(int(share * count), 2) for count in counts)
            levels = levels if share > 1 else replace(last, n_outer=fewer)
        before = self.evaluator.n_evaluations
        drawn = self.differences.sample(levels, self.stream.child(4, self.n_batches))
        if self.seen and levels.n_inner == last.n_inner:
            drawn = [a.with_others(b) for a, b in zip(self.seen, drawn, strict=True)]
        self.seen, self.planned, self.n_batches = drawn, levels, self.n_batches + 1
        self.n_evaluations += self.evaluator.n_evaluations - before

    def estimate(self) -> Estimate:
        """The interval from all batches."""
        drawn = [self.differences.of(level, k == 0) for k, level in enumerate(self.seen)]
        values, counts = [value for value, _ in drawn], [len(value) for value, _ in drawn]
        answers = np.sum([value.mean(axis=0) for value in values], axis=0)
        parts: dict[str, Array] = {}
        notes = [f"{self.n_evaluations:,} fresh evaluations of g at {sum(counts):,} theta"]
        diagnostics: dict[str, Any] = {"n_by_level": counts, "notes": notes}
        shared = 0.0
        if self.model is not None:
            error = max(float((v.std(axis=0) / np.sqrt(len(v))).max()) for v in values)
            dense = self.average.of(self.model, error)
            answers = answers + dense.mean(axis=0)
            parts["average"] = self.average.errors(dense)
            diagnostics["model_answers"] = dense.mean(axis=0)
            shared = 1.0 / pool_size(self.model)
        if not np.isfinite(answers).all():
            notes.append(
                "f is not finite at means of few values of g: no certificate; another "
                "parametrization, or a g that keeps J in the domain of f, would help"
            )
            answers = np.nan_to_num(answers, posinf=0.0, neginf=0.0)
            parts["domain"] = np.full((np.size(self.problem.finish(answers)), 1), np.inf)
            return self._assembled(answers, parts, diagnostics, np.inf)
        # Draws of a level share a pool of θ, whose own variance is that of a draw over its size.
        influence = [
            np.sqrt(1.0 + shared * len(v))
            * propagated(self.problem, answers, (v - v.mean(axis=0)) / len(v)).T
            for v in values
        ]
        dof = degrees_of_freedom(influence)
        # As for rare events there may be three more as large as the largest, or one beyond it: the
        # mean of a tail of index α beyond a bound is α/(α − 1) times the bound.
        residuals = [level.rest.reshape(-1, level.rest.shape[2]) for level in self.seen]
        alpha = max(tail_index(np.concatenate(residuals)), 1.1)
        largest = np.max([np.abs(one).max(axis=1) for one in influence], axis=0)
        unseen = max(np.sqrt(3.0), alpha / (alpha - 1.0)) * largest[:, None]
        student = float(stdtrit(dof, 0.975)) / NORMAL_95
        parts["draws"] = student * np.concatenate([*influence, unseen], axis=1)

        def directions(sizes: Array) -> Array:
            return np.asarray(propagated(self.problem, answers, np.diag(sizes)).T)

        # The pilot may see more bias than differences continue, but no more than the last level.
        last, noise = values[-1], values[-1].std(axis=0) / np.sqrt(counts[-1])
        most = np.abs(last.mean(axis=0)) + 2.0 * noise
        rest = self.differences.rest(*drawn[-1], counts[-1], alpha)
        rest = np.maximum(rest, np.minimum(self.planned.beyond, most))
        parts["levels"] = np.abs(directions(rest))
        events = directions(self._unseen(values[0]))
        if size_of(events) > size_of(parts["draws"]):
            notes.append("few or no draws changed f: the interval bounds what was not seen")
            parts["events"] = events
        # Values of g are rounded, and sums of them.
        j = self.differences.tried[0].j
        shifted = self.average.f(j * (1.0 + 32.0 * np.finfo(float).eps)) - self.average.f(j)
        parts["rounding"] = directions(np.nan_to_num(np.abs(shifted).mean(axis=0)))
        return self._assembled(answers, parts, diagnostics, dof)

    def _unseen(self, values: Array) -> Array:
        """Standard errors (q,) for changes of f that draws (n, q) may have missed.

        A continuous f changes as little as J does, unless it was the same at all of them.
        """
        first = self.seen[0]
        j = first.center + first.rest.mean(axis=1)
        f = self.average.f(j)
        if self.differences.order > 0 and np.ptp(f, axis=0).all():
            return np.zeros(f.shape[1])
        changes = np.where(values.any(axis=0), values, np.median(f, axis=0))
        equal = np.full(f.shape, 1.0 / len(f))
        errors = rare_event_errors(self.problem, self.average.argument(j), changes, equal)
        # Beside sensitive ones, θ from the law are half of the draws.
        return errors if values.any() or self.model is None else 2.0 * errors

    def _assembled(
        self, answers: Array, parts: dict[str, Array], diagnostics: dict[str, Any], dof: float
    ) -> Estimate:
        n_outer = sum(diagnostics["n_by_level"])
        estimate = assembled(
            self.problem,
            answers,
            parts,
            diagnostics,
            n_evaluations=self.n_evaluations,
            n_outer=n_outer,
            n_inner=max(1, round(self.n_evaluations / n_outer)),
            method="certificate",
        )
        # Degrees of freedom of a sum of independent errors (Welch 1947, Satterthwaite 1946).
        variances = {name: size_of(part) ** 2 for name, part in parts.items()}
        total, drawn = sum(variances.values()), variances.get("draws", 0.0)
        return replace(estimate, dof=dof * (total / drawn) ** 2 if 0 < drawn < np.inf else np.inf)


def model_of(turn: Turn[Any]) -> ModelOfJ | None:
    """The learned model behind an answer; of several candidates', that of the smallest bar."""
    if isinstance(turn.state, Learned):
        model: ModelOfJ = turn.state.model
        return model
    candidates = getattr(turn.state, "candidates", ())
    learned = [c for c in candidates if c.turn and isinstance(c.turn.state, Learned)]
    learned.sort(key=lambda candidate: candidate.half_width)
    return model_of(learned[0].turn) if learned else None
