"""Averages of f(Ĵ) over lattices of θ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nestquad._typing import Array
from nestquad.evaluate import call_f
from nestquad.methods._joint_model import ConditionalMeans, JointModel
from nestquad.methods._siblings import replicate_errors, siblings
from nestquad.problem import NestedExpectation

__all__ = ["LatticeAverage"]

# Points that are looked at together.
_BLOCK = 1 << 15


@dataclass(frozen=True, eq=False)
class LatticeAverage:
    """Averages f(Ĵ) over lattices of about 2**log2_size θ, each moved by one of shifts (R, d_θ).

    Each lattice is made of copies of that of g, on which Ĵ is one FFT. Independent shifts make
    independent averages, whose spread is their error, whatever f is like.
    """

    problem: NestedExpectation
    scalar: bool
    log2_size: int
    shifts: Array

    def by_shift(self, model: JointModel) -> Array:
        """The q expectations by each shift, (R, q)."""
        averages = []
        for number, shift in enumerate(self.shifts):
            total, weight = np.zeros(1), 0.0
            for means in self._blocks(model, shift, number):
                f = self.f(means, require_finite=True)
                total, weight = total + means.weights @ f, weight + float(means.weights.sum())
            averages.append(total / weight)
        return np.stack(averages)

    def errors(self, by_shift: Array) -> Array:
        """Directions (k, R) of the error of the final answers from the mean over the shifts."""
        return replicate_errors(np.stack([self.final(answers) for answers in by_shift], axis=1))

    def siblings(self, means: ConditionalMeans) -> Array:
        """The q expectations and others like them, (S, q)."""
        f = self.f(means, require_finite=False)
        return siblings(f, means.weights, means.periodic)

    def sketch(self, model: JointModel) -> Array:
        """Siblings (S, q) from one lattice of 2**log2_size θ."""
        return self.siblings(model.conditional(self._copies(model, 0)))

    def changes(self, base: ConditionalMeans, others: Array) -> Array:
        """What other J (m, M, p) at the same θ change in the siblings, (m, S, q)."""
        center = self.siblings(base)
        changed = np.stack([self.siblings(replace(base, j=j)) for j in others])
        return np.asarray(np.nan_to_num(changed - center))

    def final(self, answers: Array) -> Array:
        return np.atleast_1d(self.problem.finish(answers))

    def f(self, means: ConditionalMeans, *, require_finite: bool) -> Array:
        theta = means.uniform
        if require_finite:  # it only serves the message
            theta = self.problem.outer_law.from_uniform(theta)
        j = means.j[:, 0] if self.scalar else means.j
        return call_f(self.problem, j, theta, require_finite=require_finite)

    def _blocks(self, model: JointModel, shift: Array, number: int) -> Iterator[ConditionalMeans]:
        # Kinks of f may be in step with a lattice: all shifts of it then have the same error, but
        # for a few with a large one. So each lattice has a step of its own.
        copies = self._copies(model, number)
        together = max(1, _BLOCK // model.size)
        for start in range(0, len(copies), together):
            yield model.conditional((copies[start : start + together] + shift) % 1.0)

    def _copies(self, model: JointModel, more: int) -> Array:
        """Offsets (C, d_θ) of copies of the model's lattice that together are a finer one."""
        n_copies = max(1, (1 << self.log2_size) // model.size) + more
        vector = model.geometry.vector[: model.geometry.n_theta]
        return np.asarray(np.arange(n_copies)[:, None] * vector / (n_copies * model.size) % 1.0)
