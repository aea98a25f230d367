"""How wrong an answer from a joint lattice may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.methods._joint_model import FLOOR, ConditionalMeans, Data, JointModel
from nestquad.methods._lattice_average import LatticeAverage
from nestquad.methods._siblings import final_changes, trust

__all__ = ["JointErrors"]

_PATHS = 24
# How often the points are halved to learn how far the posterior can be trusted.
_HALVINGS = 2
_FEWEST = 8
_LEAST_RATE, _MOST_RATE = 0.5, 3.0
# The answer with this floor under a positive Ĵ is compared with that with the usual one.
_HIGH_FLOOR = 10.0 * FLOOR


@dataclass(frozen=True, eq=False)
class JointErrors:
    """What a model of g from a joint lattice leaves uncertain.

    Attributes
    ----------
    sketch
        A lattice of θ on which models are compared.
    model, data
        What was fitted to what.
    answers
        The q expectations, about which all is linear.
    """

    sketch: LatticeAverage
    model: JointModel
    data: Data
    answers: Array

    def parts(self, rng: np.random.Generator) -> tuple[dict[str, Array], float]:
        """Directions (k, m) of the error by what causes it, whose squares add up; and the rate.

        The rate is the power of the number of points with which the posterior gets narrower.
        """
        base = self.model.conditional()
        paths, rate = self._paths(base, rng)
        parts = {"paths": paths, "misfit": self._misfit(base), "floor": self._floor(base)}
        return parts, rate

    def _paths(self, base: ConditionalMeans, rng: np.random.Generator) -> tuple[Array, float]:
        """Posterior paths pushed through f, multiplied by what such paths turned out to be worth.

        A posterior expects what further points will change, and its variance falls by just that.
        So models of a half and of a quarter of the points show, in the answer and its siblings,
        by how much this posterior is too careful (g is smoother than the kernel, or errors at
        single θ cancel) or not careful enough.
        """
        models = [self.model, *self._smaller()]
        answers = [self.sketch.sketch(model) for model in models]
        changes = []
        for model in models:
            means = base if model is self.model else model.conditional()
            paths = model.paths(means, _PATHS, rng)
            changes.append(self._final(self.sketch.changes(means, paths)))  # (m, S, k)
        variances = [np.mean(change**2, axis=0) for change in changes]
        steps = [self._final(a - b) for a, b in pairwise(answers)]
        factor = trust(steps, variances)
        rate = _MOST_RATE
        if len(models) > 1 and (variances[0] > 0).any():
            rate = 0.5 * float(np.log2(variances[1].mean() / variances[0].mean()))
        directions = factor[:, None] * changes[0][:, 0].T / np.sqrt(_PATHS)
        return directions, float(np.clip(rate, _LEAST_RATE, _MOST_RATE))

    def _smaller(self) -> list[JointModel]:
        """The same terms and kernels, with coefficients from a half and a quarter of the points."""
        models = []
        n = self.data.weights.size
        for _ in range(_HALVINGS):
            n //= 2
            if n < _FEWEST:
                break
            try:
                models.append(self.model.refitted(self.data.first(n)))
            except NumericalError:  # too few points for so many terms
                break
        return models

    def _misfit(self, base: ConditionalMeans) -> Array:
        """By what the mean residual, as f feels it, exceeds its standard error, (k, 1).

        Each residual is what all other points predict wrongly. With the slope of f their mean
        estimates the error to first order, but with much noise.
        """
        order = self.model.order
        at_data = replace(
            base,
            periodic=base.periodic[order],
            uniform=base.uniform[order],
            weights=base.weights[order],
            j=base.j[order],
        )
        residuals = self.model.residuals()
        steps = self.model.spreads(at_data.weights)
        felt = np.zeros((residuals.shape[0], self.answers.size))
        for c in np.flatnonzero(steps.any(axis=0)):
            up, down = at_data.j.copy(), at_data.j.copy()
            up[:, c] += steps[:, c]
            down[:, c] -= steps[:, c]
            rise = self.sketch.f(replace(at_data, j=up), require_finite=False)
            rise = rise - self.sketch.f(replace(at_data, j=down), require_finite=False)
            slope = np.nan_to_num(rise, posinf=0.0, neginf=0.0) / (2.0 * steps[:, c])[:, None]
            felt += slope * residuals[:, c, None]
        weights = self.data.weights / self.data.weights.sum()
        mean = self._final(weights @ felt)
        noise = self._final(np.sqrt(weights**2 @ felt**2))
        return np.asarray(np.maximum(np.abs(mean) - np.abs(noise), 0.0)[:, None])

    def _floor(self, base: ConditionalMeans) -> Array:
        """What a higher floor under a positive Ĵ changes, (k, 1)."""
        higher = self.model.conditional(floor=_HIGH_FLOOR)
        if np.array_equal(higher.j, base.j):
            return np.zeros((self.sketch.final(self.answers).size, 1))
        change = self.sketch.siblings(higher)[0] - self.sketch.siblings(base)[0]
        return self._final(np.nan_to_num(change))[:, None]

    def _final(self, changes: Array) -> Array:
        return final_changes(self.sketch.problem.finish, self.answers, changes)
