"""Dense average of f(Ĵ) over θ, at no evaluation of g."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nestquad._typing import Array
from nestquad.accuracy import propagated, replicate_errors, size_of
from nestquad.clock import tick
from nestquad.evaluate import call_f
from nestquad.methods.learned._model import DenseSet, ModelOfJ
from nestquad.points import Stream
from nestquad.problem import NestedExpectation
from nestquad.result import OuterSample


@dataclass(frozen=True)
class AverageSettings:
    """Tuning numbers of dense averages.

    Attributes
    ----------
    replicates
        Independently shifted lattices of θ: their spread is the error of their mean for any f, and
        sixteen show it to a sixth.
    log2_first
        Base-2 logarithm of the θ of the smallest lattices.
    share
        Share of the standard deviation of the posterior at which an average is accurate enough:
        answers are often more accurate than their posteriors claim.
    numbers, log2_size
        Numbers that the first average computes, a part of a second, and base-2 logarithm of its
        largest lattices.
    enough, log2_more
        Share from which a larger average does not pay, and base-2 logarithm of the factor by which
        the last average of a budget may be larger: `health` then has a fiftieth of the error.
    """

    replicates: int = 16
    log2_first: int = 10
    share: float = 0.05
    numbers: int = 1 << 24
    log2_size: int = 16
    enough: float = 0.2
    log2_more: int = 2


AVERAGE = AverageSettings()


@dataclass(frozen=True)
class DenseAverage:
    """Averages f(Ĵ) over dense θ, at no evaluation of g; `scalar` if g has one output.

    `log2_more` is the base-2 logarithm of the factor by which lattices may be larger than a part of
    a second allows. `computed` has averages of models by the size of their lattices, for the next
    turn.
    """

    problem: NestedExpectation
    scalar: bool
    stream: Stream
    log2_more: int = 0
    computed: dict[tuple[ModelOfJ, int], Array] = field(default_factory=dict, compare=False)

    def of(self, model: ModelOfJ, limit: float) -> Array:
        """The q expectations by each lattice, (R, q), with θ enough for the accuracy.

        θ are free of g, so their number grows until the error of the final answers is small
        relative to `limit`, the standard deviation of the posterior, or until time ends it.
        """
        free = self.affordable(model)
        most = free + self.log2_more
        found = self._once(model, AVERAGE.log2_first)
        for log2_size in sorted({*range(AVERAGE.log2_first + 2, most, 2), free, most}):
            share = AVERAGE.share if log2_size <= free else AVERAGE.enough
            if log2_size == AVERAGE.log2_first or size_of(self.errors(found)) <= share * limit:
                break
            found = self._once(model, log2_size)
        return found

    def _once(self, model: ModelOfJ, log2_size: int) -> Array:
        if (model, log2_size) not in self.computed:
            self.computed[model, log2_size] = self.by_replicate(model, log2_size)
        return self.computed[model, log2_size]

    def affordable(self, model: ModelOfJ) -> int:
        """Base-2 logarithm of the θ of a lattice that half a second allows."""
        log2_size = (AVERAGE.numbers // (AVERAGE.replicates * model.cost)).bit_length() - 1
        return max(min(log2_size, AVERAGE.log2_size), AVERAGE.log2_first)

    def by_replicate(self, model: ModelOfJ, log2_size: int) -> Array:
        """The q expectations by each lattice, (R, q)."""
        total: list[Array] = []
        for points in model.replicates(AVERAGE.replicates, log2_size, self.stream):
            tick()
            assert points.owner is not None
            f = self.f(points.j)
            if not np.isfinite(f).all():  # raises, naming a θ; quantile functions may be slow
                theta = self.problem.outer_law.from_uniform(points.uniform)
                call_f(self.problem, self.argument(points.j), theta)
            columns = [points.weights, *(points.weights * column for column in f.T)]
            sums = [np.bincount(points.owner, column, AVERAGE.replicates) for column in columns]
            total.append(np.stack(sums, axis=1))
        found = np.sum(total, axis=0)
        return np.asarray(found[:, 1:] / found[:, :1])

    def errors(self, by_replicate: Array) -> Array:
        """Directions (k, R) of the error of the final answers."""
        center = by_replicate.mean(axis=0)
        return replicate_errors(propagated(self.problem, center, by_replicate - center).T)

    def final(self, answers: Array) -> Array:
        return np.atleast_1d(self.problem.finish(answers))

    def f(self, j: Array, uniform: Array | None = None) -> Array:
        """Values (…, q) of f at J (…, p); NaN where f cannot take it.

        `uniform` (…, d_θ) belong to θ, for an f that depends on θ as well.
        """
        flat = j.reshape(-1, j.shape[-1])
        values = call_f(self.problem, self.argument(flat), flat, require_finite=False)
        return values.reshape(*j.shape[:-1], -1)

    def argument(self, j: Array) -> Array:
        return j[:, 0] if self.scalar else j

    def sample(self, points: DenseSet) -> OuterSample:
        """A few thousand θ with Ĵ and f(Ĵ), for plots."""
        rows = slice(None, None, -(-len(points.j) // 4096))
        some = DenseSet(points.uniform[rows], points.weights[rows], points.j[rows])
        f = self.f(some.j)
        theta = self.problem.outer_law.from_uniform(some.uniform)
        weights = np.repeat(some.weights[:, None] / some.weights.sum(), f.shape[1], axis=1)
        return OuterSample(theta, self.argument(some.j), f, weights)
