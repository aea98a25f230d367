"""Stacking of models of J: a convex combination, weighted by residuals of fresh draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.methods import ModelOfJ
from nestquad.methods.learned import Check, DenseSet
from nestquad.points import Stream


@dataclass(frozen=True)
class StackingSettings:
    """Tuning numbers of stacking.

    Attributes
    ----------
    weights
        Weights of the first model that are compared.
    degrees
        Degrees of freedom of the Student likelihood of residuals: few residuals are large, and a
        mean square would be decided by one of them. 4 as in Lange, Little and Taylor (1989), Robust
        statistical modeling using the t distribution.
    n_scales
        Steps of the fixed-point iteration for the scale.
    rows
        Rows at which a standard deviation is computed at a time.
    """

    weights: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    degrees: float = 4.0
    n_scales: int = 30
    rows: int = 4096


DEFAULT = StackingSettings()


@dataclass(frozen=True, eq=False)
class StackedModel:
    """Convex combination of models: weights (k, L) of each in Ĵ, and `inner` (k, L) in ĝ − Ĵ."""

    models: tuple[ModelOfJ, ...]
    weights: Array
    inner: Array

    @classmethod
    def single(cls, model: ModelOfJ) -> StackedModel:
        return cls((model,), np.ones((1, 1)), np.ones((1, 1)))

    @classmethod
    def of(
        cls,
        models: tuple[ModelOfJ, ...],
        mean: tuple[int, int],
        control: tuple[int, int],
        check: Check,
    ) -> StackedModel:
        """Average of two models in Ĵ, and of two as control variates, by the pairs of a check.

        Differences of the residuals of a pair are free of errors of Ĵ and choose the weights of
        control variates; with these, means of pairs choose controls in Ĵ. Breiman (1996), Stacked
        regressions, with the log score of a Student law (Yao and others 2018, Using stacking to
        average Bayesian predictive distributions).
        """
        grid = np.array(DEFAULT.weights)

        def best(which: tuple[int, int], one: Array, other: Array) -> Array:
            scores = [student_score(w * one + (1.0 - w) * other) for w in grid]
            found = np.zeros((len(models), one.shape[1]))
            found[which[0]] = grid[np.argmin(scores, axis=0)]
            found[which[1]] = 1.0 - found[which[0]]
            return found

        residuals = {i: check.residuals(models[i]) for i in control}
        inner = best(control, *(r[:, 0] - r[:, 1] for r in residuals.values()))
        observed = sum(
            inner[i] * (r.mean(axis=1) + check.means(models[i])) for i, r in residuals.items()
        )
        weights = best(mean, *(observed - check.means(models[i]) for i in mean))
        used = np.flatnonzero((weights + inner).any(axis=1))
        return cls(tuple(models[i] for i in used), weights[used], inner[used])

    def is_same(self, other: StackedModel) -> bool:
        """Whether it is an average of the same models with the same weights."""
        weights = np.array_equal(self.weights, other.weights)
        return self.models == other.models and weights and np.array_equal(self.inner, other.inner)

    def is_only(self, kind: type[ModelOfJ]) -> bool:
        """Whether all of its models are of a kind."""
        return all(isinstance(one, kind) for one in self.models)

    @property
    def dim(self) -> int:
        return self.models[0].dim

    @property
    def n_points(self) -> int:
        return self.models[0].n_points

    @property
    def cost(self) -> int:
        return sum(model.cost for model in self.models)

    def mean(self, uniform: Array) -> Array:
        """Ĵ (T, L) at uniforms (T, d_θ) of θ."""
        return self._mixed(model.mean(uniform) for model in self.models)

    def means(self, check: Check) -> Array:
        """Ĵ (m, L) at fresh draws."""
        return self._mixed(check.means(model) for model in self.models)

    def variances(self, check: Check) -> Array:
        """Variances (m, L) of all, and the distances between them: any may be right."""
        center = self.means(check)
        blocks = np.array_split(check.uniform, -(-len(check.uniform) // DEFAULT.rows))
        return self._mixed(
            np.concatenate([model.sd(block) for block in blocks]) ** 2
            + (check.means(model) - center) ** 2
            for model in self.models
        )

    def residuals(self, check: Check) -> Array:
        """g − ĝ (m, 2, L) at fresh draws, from residuals of each."""
        observed = np.zeros_like(check.values)
        for model, weight in zip(self.models, self.inner, strict=True):
            if weight.any():
                observed += weight * (check.residuals(model) + check.means(model)[:, None])
        return np.asarray(observed - self.means(check)[:, None])

    def describe(self) -> dict[str, Any]:
        """Description of the fits; sentences under ``"notes"``."""
        notes = [str(note) for model in self.models for note in model.describe()["notes"]]
        if len(self.models) > 1:
            both = zip(self.weights[:, 0], self.inner[:, 0], strict=True)
            shares = "; ".join(f"{a:.0%} in J and {b:.0%} in x" for a, b in both)
            notes.append(f"average; weights: {shares}")
        return {"notes": notes}

    def replicates(self, n: int, log2_size: int, stream: Stream) -> Iterator[DenseSet]:
        """Blocks of n independently shifted lattices of θ with Ĵ."""
        first, *others = self.models
        for block in first.replicates(n, log2_size, stream):
            rest = [model.mean(block.uniform) for model in others]
            yield replace(block, j=self._mixed([block.j, *rest]))

    def _mixed(self, each: Iterable[Array]) -> Array:
        return np.asarray(sum(w * one for w, one in zip(self.weights, each, strict=True)))


def student_score(residuals: Array) -> Array:
    """Mean negative log density (L,) of residuals (n, L) under a Student law of the best scale."""
    nu, square = DEFAULT.degrees, residuals**2
    least = 1e-30 * square.max(axis=0) + 1e-300
    scale = np.median(square, axis=0) + least
    for _ in range(DEFAULT.n_scales):  # expectation-maximization
        scale = ((nu + 1.0) * square / (nu + square / scale)).mean(axis=0) + least
    density = 0.5 * (nu + 1.0) * np.log1p(square / (nu * scale))
    return np.asarray(0.5 * np.log(scale) + density.mean(axis=0))
