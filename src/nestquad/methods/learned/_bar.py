"""Error bar of learned methods: calibrated posterior paths, and alternatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from nestquad._typing import Array
from nestquad.accuracy import (
    calibration_factor,
    harmonic_averages,
    order_of_smoothness,
    propagated,
    step_size,
    takes,
)
from nestquad.errors import NumericalError
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._model import DenseSet, ModelOfJ

_PATHS = 24
# Prior weight of the model's own bar, in comparisons, and a safety factor for having few.
_PRIOR, _SAFETY = 0.5, 1.6


@dataclass(frozen=True, eq=False)
class ErrorBar:
    """Error of E f(Ĵ), as directions (k, m) of each of its parts.

    Attributes
    ----------
    average
        The average of f(Ĵ).
    model
        The model of J.
    """

    average: DenseAverage
    model: ModelOfJ

    def parts(self, rng: np.random.Generator) -> tuple[dict[str, Array], float]:
        """Directions by cause, and the rate: the power of n at which the posterior narrows."""
        paths, rate = self._paths(rng)
        parts = {"paths": paths}
        # Values of g are rounded, and a fit of many of them by a little more.
        rounding = 8.0 * np.finfo(float).eps * np.abs(self.model.sketch.j).max(axis=0)
        doubts = {**self.model.alternatives(), "rounding": [self.model.sketch.j + rounding]}
        changes = self._felt(
            self.model, np.stack([j for others in doubts.values() for j in others])
        )
        for cause, others in doubts.items():
            own, changes = np.abs(changes[: len(others), 0]), changes[len(others) :]
            parts[cause] = own.max(axis=0)[:, None]
        return parts, rate

    @cached_property
    def answers(self) -> Array:
        """The q expectations at which `combine` is linearized."""
        return np.asarray(self._averages(self.model.sketch)[0])

    @cached_property
    def _order(self) -> int:
        """The smoothness of f where J can be, and a little beyond: a jump may be in a tail."""
        j = self.model.sketch.j
        wide = np.concatenate([j, 2.0 * j - j.mean(axis=0)])
        problem, scalar = self.average.problem, self.average.scalar
        j, wide = (j[:, 0], wide[:, 0]) if scalar else (j, wide)
        positive = j[(j > 0).reshape(len(j), -1).all(axis=1)]
        if j.min() >= 0 and len(positive) > 32 and not takes(problem, -j):
            return order_of_smoothness(problem, positive, logarithmic=True)
        return order_of_smoothness(problem, wide if takes(problem, wide) else j)

    def _paths(self, rng: np.random.Generator) -> tuple[Array, float]:
        """Posterior paths pushed through f, times a calibration factor.

        A posterior expects what further points will change, and its variance falls by just that.
        So the same model from a half and a quarter of the points shows by how much it is too
        careful (g is smoother than the kernel, or errors at single θ cancel) or not enough.
        """
        models = [self.model, *self._smaller()]
        paths = [model.paths(_PATHS, rng) for model in models]
        if self._order == 0:
            return self._shifts(models, paths)
        changes = [self._felt(model, drawn) for model, drawn in zip(models, paths, strict=True)]
        variances = [np.mean(change**2, axis=0) for change in changes]
        averages = [self._averages(self._compared(model)) for model in models]
        steps = [self._final(more - fewer) for more, fewer in pairwise(averages)]
        factor = calibration_factor(steps, variances, _PRIOR, _SAFETY)
        directions = factor[:, None] * changes[0][:, 0].T / np.sqrt(_PATHS)
        return directions, _rate([float(variance.mean()) for variance in variances])

    def _shifts(self, models: list[ModelOfJ], paths: list[Array]) -> tuple[Array, float]:
        """The same for an f with jumps: what a shift of J by its standard deviation changes.

        An answer changes by whole θ then, and only because of J at a few of them, perhaps far in a
        tail. So errors are calibrated on J itself, and felt on many θ at once.
        """
        few = self.model.sketch.uniform[:: -(-len(self.model.sketch.j) // 512)]
        js = [model.mean(few) for model in models]
        moved = [np.sqrt(np.median((a - b) ** 2, axis=0))[None] for a, b in pairwise(js)]
        spreads = [
            np.median(np.mean((drawn - model.sketch.j) ** 2, axis=0), axis=0)[None]
            for model, drawn in zip(models, paths, strict=True)
        ]
        factor = calibration_factor(moved, spreads, _PRIOR, _SAFETY)
        base = self._compared(self.model)
        deviations = factor * self.model.sd(base.uniform)
        step = step_size(base.j, deviations[None])
        changes = []
        for c in range(base.j.shape[1]):
            by_step = []
            for size in sorted({1.0, step}):
                shift = size * deviations * (np.arange(base.j.shape[1]) == c)
                sides = [self.model.bounded(base.j + s, base.uniform) for s in (shift, -shift)]
                up, down = self._averages(replace(base, j=np.stack(sides)))[:, 0]
                by_step.append(self._final(np.nan_to_num(up - down) / (2.0 * size)))
            changes.append(_larger(by_step))
        return np.stack(changes, axis=1), _rate([float(spread.mean()) for spread in spreads])

    def _compared(self, model: ModelOfJ) -> DenseSet:
        """The model on a lattice of θ that is the same for all models."""
        log2_size = max(14 if self._order == 0 else 12, (len(self.model.sketch.j) - 1).bit_length())
        parts = list(model.replicates(1, log2_size, self.average.stream))
        return DenseSet(
            np.concatenate([part.uniform for part in parts]),
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.j for part in parts]),
        )

    def _smaller(self) -> list[ModelOfJ]:
        """The same model from a half and a quarter of the points."""
        models: list[ModelOfJ] = []
        for halvings in (1, 2):
            try:
                models.append(self.model.refitted(self.model.n_points >> halvings))
            except NumericalError:  # too few points for the terms
                break
        return models

    def _felt(self, model: ModelOfJ, others: Array) -> Array:
        """Changes (m, S, k) of final answers by other J (m, M, p) at the θ of the sketch."""
        base = model.sketch
        step = step_size(base.j, others - base.j) if self._order == 0 else 1.0
        found = []
        for size in sorted({1.0, max(step, 1.0)}):
            moved = base.j + size * (others - base.j)
            center, *changed = self._averages(
                replace(base, j=np.concatenate([base.j[None], moved]))
            )
            found.append(self._final(np.nan_to_num(np.stack(changed) - center) / size))
        return _larger(found)

    def _averages(self, points: DenseSet) -> Array:
        """Averages (…, S, q) of f at J (…, M, p), with those modulated by waves over θ."""
        return harmonic_averages(self.average.f(points.j), points.weights, points.uniform)

    def _final(self, changes: Array) -> Array:
        return propagated(self.average.problem, self.answers, changes)


def _larger(changes: list[Array]) -> Array:
    """The larger of changes by steps of different sizes.

    They agree where J has a density at the jump of f. Where it has an atom, a small step moves all
    of it, and a change for each unit of a large step would be next to nothing.
    """
    return (
        changes[0]
        if len(changes) == 1
        else np.where(np.abs(changes[0]) >= np.abs(changes[1]), changes[0], changes[1])
    )


def _rate(variances: list[float]) -> float:
    """The power of n at which standard deviations fall, from variances at n and n/2."""
    if len(variances) < 2 or not min(variances[:2]) > 0:
        return 1.0
    return float(np.clip(0.5 * np.log2(variances[1] / variances[0]), 0.5, 3.0))
