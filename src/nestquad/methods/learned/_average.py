"""The average of f(Ĵ) over θ, which costs no evaluation of g."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array
from nestquad.accuracy import replicate_errors
from nestquad.evaluate import call_f
from nestquad.methods.learned._model import DenseSet, ModelOfJ
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import OuterSample

__all__ = ["DenseAverage"]

# Independently shifted lattices of θ: their spread is the error of their mean, whatever f is.
_REPLICATES = 16
# Numbers that may be computed for the average: at first (a tenth of a second), and where the
# average limits the answer.
_NUMBERS, _MOST_NUMBERS = 1 << 22, 1 << 24
_LOG2_SIZES = (9, 13, 16)  # θ of a lattice: fewest, most at first, most


@dataclass(frozen=True)
class DenseAverage:
    """Averages f(Ĵ) over dense θ, on which Ĵ is free of g; `scalar` if g has one output."""

    problem: NestedExpectation
    scalar: bool
    stream: Stream

    def first_size(self, model: ModelOfJ) -> int:
        """The base-2 logarithm of the number of θ of a lattice to begin with."""
        return self._affordable(model, _NUMBERS, _LOG2_SIZES[1])

    def last_size(self, model: ModelOfJ) -> int:
        return self._affordable(model, _MOST_NUMBERS, _LOG2_SIZES[2])

    def _affordable(self, model: ModelOfJ, numbers: int, most: int) -> int:
        size = numbers // (_REPLICATES * max(model.cost, 1))
        return int(np.clip(size.bit_length() - 1, _LOG2_SIZES[0], most))

    def by_replicate(self, model: ModelOfJ, log2_size: int) -> Array:
        """The q expectations by each lattice, (R, q)."""
        averages = []
        for blocks in model.replicates(_REPLICATES, log2_size, self.stream):
            total, weight = np.zeros(1), 0.0
            for block in blocks:
                total = total + block.weights @ self.f(block, require_finite=True)
                weight += float(block.weights.sum())
            averages.append(total / weight)
        return np.stack(averages)

    def errors(self, by_replicate: Array) -> Array:
        """Directions (k, R) of the error of the final answers."""
        return replicate_errors(np.stack([self.final(answers) for answers in by_replicate], axis=1))

    def final(self, answers: Array) -> Array:
        return np.atleast_1d(self.problem.finish(answers))

    def f(self, points: DenseSet, *, require_finite: bool) -> Array:
        """Values (M, q) of f; where f cannot take Ĵ, NaN or, if required to be finite, an error."""
        theta = points.uniform
        if require_finite:  # θ only serves the message
            theta = self.problem.outer_law.from_uniform(theta)
        j = points.j[:, 0] if self.scalar else points.j
        return call_f(self.problem, j, theta, require_finite=require_finite)

    def sample(self, points: DenseSet) -> OuterSample:
        """A few thousand θ with Ĵ and f(Ĵ), for plots."""
        rows = slice(None, None, -(-len(points.j) // 4096))
        some = DenseSet(points.uniform[rows], points.weights[rows], points.j[rows])
        f = self.f(some, require_finite=False)
        theta = self.problem.outer_law.from_uniform(some.uniform)
        weights = np.repeat(some.weights[:, None] / some.weights.sum(), f.shape[1], axis=1)
        return OuterSample(theta, some.j[:, 0] if self.scalar else some.j, f, weights)
