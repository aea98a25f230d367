"""Averages of f(Ĵ) over scrambled Sobol θ, for a J that is a regression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array
from nestquad.evaluate import call_f
from nestquad.methods._siblings import siblings
from nestquad.points import Sobol, Stream
from nestquad.problem import NestedExpectation
from nestquad.regression import Regression, Score, ScoreTable
from nestquad.result import OuterSample

__all__ = ["RegressionAverage"]

# f(Ĵ) is averaged over so many scrambles of so many θ.
_SCRAMBLES, _LOG2_DENSE = 8, 14
# θ on which coefficients are compared, and that a sample holds.
_SKETCH = 4096


@dataclass(frozen=True)
class RegressionAverage:
    """Scrambled Sobol θ over which f(Ĵ) is averaged."""

    problem: NestedExpectation
    scalar: bool
    scores: tuple[Score, ...]
    stream: Stream

    def answers(self, models: Sequence[Regression]) -> Array:
        """The q expectations by each scramble, (scrambles, q)."""
        return np.stack([self._average(models, s) for s in range(_SCRAMBLES)])

    def sketch(
        self, models: Sequence[Regression], coefficients: Sequence[Array] | None = None
    ) -> Array:
        """The answers and their siblings (S, q) on fewer θ, perhaps with other coefficients."""
        uniform = self._uniform(0, _SKETCH)
        j = self._j(models, uniform, coefficients)
        f = call_f(self.problem, j, uniform, require_finite=False)
        return siblings(f, np.ones(_SKETCH), uniform)

    def positive(self, model: Regression) -> bool:
        return all(
            model.j(ScoreTable(self._uniform(s, 1 << _LOG2_DENSE), self.scores)).min() > 0
            for s in range(_SCRAMBLES)
        )

    def sample(self, models: Sequence[Regression]) -> OuterSample:
        uniform = self._uniform(0, _SKETCH)
        j = self._j(models, uniform, None)
        theta = self.problem.outer_law.from_uniform(uniform)
        f = call_f(self.problem, j, theta, require_finite=False)
        return OuterSample(theta, j, f, np.full(f.shape, 1.0 / len(f)))

    def conditional_at(self, models: Sequence[Regression], uniform: Array) -> Array:
        """Ĵ at any uniforms (T, d_θ) of θ: (T, p)."""
        return self._j(models, uniform, None).reshape(len(uniform), -1)

    def final(self, answers: Array) -> Array:
        return np.atleast_1d(self.problem.finish(answers))

    def _uniform(self, scramble: int, size: int) -> Array:
        # Another matrix scramble for each, not only another shift.
        stream = self.stream.child(scramble)
        return np.asarray(Sobol().uniforms(stream, len(self.scores), (0, 1), (0, size))[0])

    def _j(
        self,
        models: Sequence[Regression],
        uniform: Array,
        coefficients: Sequence[Array] | None,
    ) -> Array:
        table = ScoreTable(uniform, self.scores)
        used = [None] * len(models) if coefficients is None else coefficients
        columns = [model.j(table, c) for model, c in zip(models, used, strict=True)]
        return columns[0] if self.scalar else np.stack(columns, axis=1)

    def _average(self, models: Sequence[Regression], scramble: int) -> Array:
        uniform = self._uniform(scramble, 1 << _LOG2_DENSE)
        theta = self.problem.outer_law.from_uniform(uniform)
        f = call_f(self.problem, self._j(models, uniform, None), theta)
        return np.asarray(f.mean(axis=0))
