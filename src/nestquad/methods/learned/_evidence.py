"""Evidence on learned models: pairs of fresh draws that no model was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._model import DenseSet, ModelOfJ, control_at
from nestquad.methods.learned._sensitive import pool_size, sensitive_set
from nestquad.points import IID, Given, Stream

# Most θ among which those where f is sensitive are sought.
_POOL = 1 << 14
# A score that is worse by this many standard errors refutes a model.
_REFUTED = 2.0


class FreshPoints(Given):
    """θ of a check, as uniforms (m, d), with weights (m,) that make them a sample of their law."""

    weights: Array

    def __init__(self, points: DenseSet) -> None:
        super().__init__(np.clip(points.uniform, 1e-15, 1.0 - 1e-15))
        object.__setattr__(self, "weights", points.weights)


@dataclass(frozen=True)
class LearnedDesign(Design):
    """Grids from which a model is learned, and after them the pairs by which it is checked.

    `log2_theta` is the base-2 logarithm of the most θ of each dense average, which cost no
    evaluation; zero leaves it to the time that the average takes.
    """

    n_checks: int = 0
    log2_theta: int = 0

    @property
    def learning(self) -> Design:
        return Design(self.grids[: len(self.grids) - self.n_checks])

    @property
    def checks(self) -> tuple[Grid, ...]:
        return self.grids[len(self.grids) - self.n_checks :]

    @classmethod
    def of(cls, learning: Design, checks: tuple[Grid, ...]) -> LearnedDesign:
        return cls((*learning.grids, *checks), len(checks))


def check_grid(average: DenseAverage, model: ModelOfJ, n: int, stream: Stream) -> Grid:
    """n evaluations at θ of which half are where f(Ĵ) is sensitive, two independent x at each."""
    points = sensitive_set(
        average, model, n // 2, stream.child(2), size=min(pool_size(model), _POOL)
    )
    return Grid(n // 2, 2, FreshPoints(points), IID(), None, stream)


@dataclass(frozen=True, eq=False)
class Check:
    """Fresh draws: θ (m, d_θ) and x (m, 2, d_x) as uniforms, weights (m,), g (m, 2, p)."""

    uniform: Array
    weights: Array
    inner: Array
    values: Array
    _residuals: dict[ModelOfJ, Array] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, evaluations: Evaluations, design: LearnedDesign) -> Check | None:
        """The draws of a design that are complete; None if there are none."""
        parts: list[tuple[Array, ...]] = []
        for level in range(len(design.grids) - design.n_checks, len(design.grids)):
            grid = design.grids[level]
            assert isinstance(grid.outer_points, FreshPoints)
            try:
                values = evaluations.values(grid.n_outer, level)
            except OutOfTimeError:
                break
            rows = len(values)
            outer = evaluations.outer(level)
            inner = evaluations.inner(outer.theta[:rows], (0, rows), level).uniform
            assert outer.uniform is not None
            assert inner is not None
            weights = grid.outer_points.weights[:rows]
            parts.append((outer.uniform[:rows], weights, inner, values.reshape(rows, 2, -1)))
        if not parts:
            return None
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(*columns)

    @cached_property
    def scale(self) -> Array:
        """The size (p,) of the values, whose squares may be out of range."""
        return scale_of(self.values.reshape(-1, self.values.shape[2]))

    @property
    def n_draws(self) -> int:
        return int(self.values.shape[0] * self.values.shape[1])

    def residuals(self, model: ModelOfJ) -> Array:
        """g − ĝ (m, 2, p), whose mean over x is J − Ĵ: independent for the two x at a θ."""
        if model not in self._residuals:
            self._residuals[model] = self.values - control_at(model, self.uniform, self.inner)
        return self._residuals[model]

    def unexplained_share(self, model: ModelOfJ) -> float:
        """Share of the variance of J that the model leaves unexplained, less a standard error.

        Two independent x at a θ: the mean product of their residuals is that of (J − Ĵ)².
        """
        weights = self.weights / self.weights.sum()
        rest = self.residuals(model) / self.scale
        products = rest[:, 0] * rest[:, 1]
        mean = weights @ products
        low = np.maximum(mean - np.sqrt(weights**2 @ (products - mean) ** 2), 0.0)
        variance = (model.sketch.j / self.scale).var(axis=0)
        return float(np.max(low / np.maximum(low + variance, np.finfo(float).tiny)))

    def losses(self, models: Sequence[ModelOfJ]) -> Array:
        """Squared errors (k, m) of Ĵ of each model at the draws, but for a common constant.

        The noise of the observed J is reduced by the control variate of the model that explains g
        best. Draws count equally: most are where f is sensitive.
        """
        spread = (self.values / self.scale).std(axis=(0, 1))
        scale = self.scale * np.where(spread > 0, spread, 1.0)
        rests = [self.residuals(model) / scale for model in models]
        best = int(np.argmin([(rest**2).mean() for rest in rests]))
        means = [model.mean(self.uniform) / scale for model in models]
        observed = means[best] + rests[best].mean(axis=1)
        return np.stack([((mean - observed) ** 2).sum(axis=1) for mean in means])

    def unrefuted(self, models: Sequence[ModelOfJ]) -> list[int]:
        """Positions of the models whose held-out score is not clearly worse than the best."""
        if len(models) < 2:
            return list(range(len(models)))
        losses = self.losses(models)
        excess = losses - losses[np.argmin(losses.mean(axis=1))]
        error = excess.std(axis=1) / np.sqrt(losses.shape[1])
        return [int(k) for k in np.flatnonzero(excess.mean(axis=1) <= _REFUTED * error)]
