"""Stacking of two models of J: a convex combination, weighted by residuals of fresh draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

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
    """

    weights: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    degrees: float = 4.0
    n_scales: int = 30


DEFAULT = StackingSettings()


@dataclass(frozen=True, eq=False)
class LossDraws(Check):
    """Pairs of losses, with residuals that earlier pairs have: ĝ may cost a sum over all points."""

    known: dict[ModelOfJ, Array] = field(default_factory=dict)

    def first(self, n: int) -> LossDraws:
        """The first n pairs."""
        both = self.uniform[:n], self.weights[:n]
        return LossDraws(*both, self.inner[:n], self.values[:n], self.known)

    def residuals(self, model: ModelOfJ) -> Array:
        """g − ĝ (m, 2, L), computed at pairs that are new."""
        found = self.known.get(model, self.values[:0])
        if len(found) < len(self.values):
            each = (self.uniform, self.weights, self.inner, self.values)
            rest = Check(*(one[len(found) :] for one in each))
            found = self.known[model] = np.concatenate([found, rest.residuals(model)])
        return found[: len(self.values)]


def stack(first: ModelOfJ, second: ModelOfJ, check: Check) -> Model:
    """Average of two models, with weights in Ĵ and in the control variates ĝ − Ĵ for each loss.

    Differences of the residuals of a pair are free of errors of Ĵ and choose the second; with these
    control variates, means of pairs choose the first. Breiman (1996), Stacked regressions, with the
    log score of a Student law (Yao and others 2018, Using stacking to average Bayesian predictive
    distributions).
    """
    grid = np.array(DEFAULT.weights)

    def best(one: Array, other: Array) -> Array:
        scores = [student_score(w * one + (1.0 - w) * other) for w in grid]
        return np.asarray(grid[np.argmin(scores, axis=0)])

    models = (first, second)
    residuals = [check.residuals(model) for model in models]
    means = [model.mean(check.uniform) for model in models]
    inner = best(*(r[:, 0] - r[:, 1] for r in residuals))
    observed = [r.mean(axis=1) + m for r, m in zip(residuals, means, strict=True)]
    seen = inner * observed[0] + (1.0 - inner) * observed[1]
    weights = best(seen - means[0], seen - means[1])
    alone = (weights == 1.0).all() and (inner == 1.0).all()
    return first if alone else StackedModel(first, second, weights, inner)


def student_score(residuals: Array) -> Array:
    """Mean negative log density (L,) of residuals (n, L) under a Student law of the best scale."""
    nu, square = DEFAULT.degrees, residuals**2
    least = 1e-30 * square.max(axis=0) + 1e-300
    scale = np.median(square, axis=0) + least
    for _ in range(DEFAULT.n_scales):  # expectation-maximization
        scale = ((nu + 1.0) * square / (nu + square / scale)).mean(axis=0) + least
    density = 0.5 * (nu + 1.0) * np.log1p(square / (nu * scale))
    return np.asarray(0.5 * np.log(scale) + density.mean(axis=0))


@dataclass(frozen=True, eq=False)
class StackedModel:
    """Convex combination of two models: weights (L,) of the first in Ĵ, and in ĝ − Ĵ."""

    first: ModelOfJ
    second: ModelOfJ
    weights: Array
    inner: Array

    @property
    def dim(self) -> int:
        return self.first.dim

    @property
    def n_points(self) -> int:
        return self.first.n_points

    @property
    def cost(self) -> int:
        return self.first.cost + self.second.cost

    def mean(self, uniform: Array) -> Array:
        """Ĵ (T, L) at uniforms (T, d_θ) of θ."""
        return self._mixed(self.first.mean(uniform), self.second.mean(uniform))

    def sd(self, uniform: Array) -> Array:
        """Standard deviations of both, and the distance between them: either may be right."""
        w, away = self.weights, self.first.mean(uniform) - self.second.mean(uniform)
        square = self._mixed(self.first.sd(uniform) ** 2, self.second.sd(uniform) ** 2)
        return np.asarray(np.sqrt(square + w * (1.0 - w) * away**2))

    def residuals(self, check: Check) -> Array:
        """g − ĝ (m, 2, L) at fresh draws, from residuals of both."""
        observed = np.zeros_like(check.values)
        for model, weight in ((self.first, self.inner), (self.second, 1.0 - self.inner)):
            if weight.any():
                mean = model.mean(check.uniform)[:, None]
                observed += weight * (check.residuals(model) + mean)
        return np.asarray(observed - self.mean(check.uniform)[:, None])

    def describe(self) -> dict[str, Any]:
        """Description of both fits; sentences under ``"notes"``."""
        notes = [str(note) for one in (self.first, self.second) for note in one.describe()["notes"]]
        shares = [
            f"{a:.0%} in J and {b:.0%} in x" for a, b in zip(self.weights, self.inner, strict=True)
        ]
        return {"notes": [*notes, f"average; weight of the first model: {', '.join(shares)}"]}

    def replicates(self, n: int, log2_size: int, stream: Stream) -> Iterator[DenseSet]:
        """Blocks of n independently shifted lattices of θ with Ĵ."""
        for block in self.first.replicates(n, log2_size, stream):
            yield replace(block, j=self._mixed(block.j, self.second.mean(block.uniform)))

    def _mixed(self, first: Array, second: Array) -> Array:
        return np.asarray(self.weights * first + (1.0 - self.weights) * second)


Model: TypeAlias = ModelOfJ | StackedModel


def residuals_of(model: Model, check: Check) -> Array:
    """g − ĝ (m, 2, L) at fresh draws."""
    return model.residuals(check) if isinstance(model, StackedModel) else check.residuals(model)


def is_same_model(model: Model, other: Model) -> bool:
    """Whether two models are one, or averages of the same models with the same weights."""
    if isinstance(model, StackedModel) and isinstance(other, StackedModel):
        parts = model.first is other.first and model.second is other.second
        same = (model.weights == other.weights) & (model.inner == other.inner)
        return parts and bool(same.all())
    return model is other
