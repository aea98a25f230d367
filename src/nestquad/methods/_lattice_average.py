"""Averages of f(Ĵ) over lattices of θ, and what they leave uncertain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nestquad._typing import Array
from nestquad.evaluate import call_f
from nestquad.methods._joint_model import FLOOR, ConditionalMeans, JointModel
from nestquad.problem import NestedExpectation

__all__ = ["CopySums", "LatticeAverage"]

# The answer with this floor under a positive Ĵ is compared with that with the usual one.
_HIGH_FLOOR = 30.0 * FLOOR


@dataclass(frozen=True, eq=False)
class CopySums:
    """Weighted sums of f (C, q) and of weights (C,) over C copies of the lattice."""

    sums: Array
    weights: Array

    def mean(self, step: int = 1) -> Array:
        """The average over every `step`-th copy: a coarser lattice."""
        return np.asarray(self.sums[::step].sum(axis=0) / self.weights[::step].sum())


@dataclass(frozen=True)
class LatticeAverage:
    """Averages f(Ĵ) over the lattice of 2**log2_size θ that contains that of g.

    The finer lattice is made of copies of the coarser one, on each of which Ĵ is one FFT.
    """

    problem: NestedExpectation
    scalar: bool
    log2_size: int

    def by_copy(self, model: JointModel, *, require_finite: bool = True) -> CopySums:
        n_copies = (1 << self.log2_size) // model.size
        step = model.geometry.vector[: model.geometry.n_theta] / (1 << self.log2_size)
        parts = [
            self._sum(model.conditional(np.asarray(copy * step % 1.0)), require_finite)
            for copy in range(n_copies)
        ]
        return CopySums(np.stack([total for total, _ in parts]), np.array([w for _, w in parts]))

    def twin(self, model: JointModel | None) -> Array:
        """The final answers of a model that only serves the error bar; NaN where there is none."""
        if model is None:
            return np.array([np.nan])
        return self.final(self.by_copy(model, require_finite=False).mean())

    def changes(self, base: ConditionalMeans, others: Array) -> Array:
        """What other J (m, M, p) at the same θ change in the final answers, (k, m)."""
        center = self._final_of(base)
        finals = np.stack([self._final_of(replace(base, j=j)) for j in others], axis=1)
        return np.asarray(np.nan_to_num(finals - center[:, None]))

    def of_floor(self, model: JointModel, base: ConditionalMeans) -> Array:
        """What a higher floor under a positive Ĵ changes in the final answers, (k,)."""
        higher = model.conditional(floor=_HIGH_FLOOR)
        return self._final_of(higher) - self._final_of(base)

    def final(self, answers: Array) -> Array:
        return np.atleast_1d(self.problem.finish(answers))

    def f(self, means: ConditionalMeans, *, require_finite: bool) -> Array:
        theta = self.problem.outer_law.from_uniform(means.uniform)
        j = means.j[:, 0] if self.scalar else means.j
        return call_f(self.problem, j, theta, require_finite=require_finite)

    def _final_of(self, means: ConditionalMeans) -> Array:
        total, weight = self._sum(means, require_finite=False)
        return self.final(total / weight)

    def _sum(self, means: ConditionalMeans, require_finite: bool) -> tuple[Array, float]:
        f = self.f(means, require_finite=require_finite)
        # Twins that only serve the error bar may leave the domain of f at a few θ.
        usable = np.asarray(np.isfinite(f).all(axis=1))
        weights = np.where(usable, means.weights, 0.0)
        return weights @ np.where(usable[:, None], f, 0.0), float(weights.sum())
