"""From a surrogate of J to answers with error bars, without evaluating g."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.evaluate import Grid, call_f
from nestquad.methods._inner_means import InnerMeans
from nestquad.points import Sobol
from nestquad.problem import NestedExpectation
from nestquad.surrogate import Surrogate

__all__ = ["Answer", "SurrogateAnswers", "scores_of"]

_SCRAMBLES = 4
_DENSE = 2**13
_PATHS = 64
_PATH_POINTS = 512
# Each part of the error alone is too small in some cases; these factors made the sum cover.
_PATH_FACTOR = 1.5
_BIAS_FACTOR = 1.5


def scores_of(law: Law, uniform: Array) -> Array:
    """Coordinates of θ in which J is learned, of about unit variance.

    Normal scores where the law is written in normals; otherwise the uniforms themselves, since a
    function that is tame on an interval runs away between the last point and the end of the
    normal scale.
    """
    if law.base == "normal":
        return np.asarray(ndtri(uniform))
    return np.asarray(np.sqrt(12.0) * (uniform - 0.5))


@dataclass(frozen=True)
class Answer:
    """The final answers (k,), the q expectations behind them, and the parts of the error."""

    value: Array
    answers: Array
    covariance: Array
    parts: dict[str, float]
    error_inner: float
    error_outer: float

    @property
    def std_error(self) -> Array:
        return np.sqrt(np.diagonal(self.covariance))


@dataclass(frozen=True)
class SurrogateAnswers:
    """Averages f(Ĵ) over dense sets of θ, described by their scores."""

    problem: NestedExpectation
    grid: Grid
    scalar: bool

    @cached_property
    def scores(self) -> Array:
        """Scores (scrambles, n, d) of dense θ, none of which costs an evaluation."""
        dim = self.problem.outer_law.base_dim
        stream = self.grid.stream.child(self.grid.level, 7)
        sets = [
            Sobol().uniforms(stream.child(r), dim, (0, 1), (0, _DENSE))[0]
            for r in range(_SCRAMBLES)
        ]
        return scores_of(self.problem.outer_law, np.stack(sets))

    def apply_f(self, j: Array) -> Array:
        """f at (n, p) as (n, q); NaN where f cannot take it."""
        argument = j[:, 0] if self.scalar else j
        return call_f(self.problem, argument, argument.reshape(len(j), -1), require_finite=False)

    def plausible(self, surrogate: Surrogate, j: Array) -> bool:
        """Whether f(Ĵ) stays near what was seen: a surrogate that runs away does not."""
        dense = self.apply_f(surrogate.mean(self.scores[0, :1024]))
        seen = self.apply_f(j)
        if not np.isfinite(dense).all() or not np.isfinite(seen).all():
            return False
        low, high = seen.min(axis=0), seen.max(axis=0)
        margin = 2.0 * (high - low) + 1e-12 * np.abs(high)
        return bool(((dense >= low - margin) & (dense <= high + margin)).all())

    def answer(
        self, surrogate: Surrogate, sceptic: Surrogate, means: InnerMeans, uniform: Array
    ) -> Answer:
        """Averages and error bars; `sceptic` is a rougher model, whose doubts count as well."""
        by_scramble = np.stack([self._average(surrogate, scores) for scores in self.scores])
        answers = by_scramble.mean(axis=0)
        value = self._final(answers)
        dense = np.stack([self._final(a) for a in by_scramble])
        dense_covariance = _covariance(dense) / _SCRAMBLES
        paths = self._path_covariance(surrogate)
        if sceptic is not surrogate:
            doubts = self._path_covariance(sceptic)
            paths = max(paths, doubts, key=lambda covariance: float(np.trace(covariance)))
        bias = self._bias(surrogate, means)
        misfit = self._misfit(surrogate, means, uniform)
        half_squared = (
            _PATH_FACTOR**2 * paths
            + _BIAS_FACTOR**2 * np.outer(bias, bias)
            + np.diag(misfit**2)
            + 1.96**2 * dense_covariance
        )
        parts = {
            "surrogate": float(np.sqrt(np.diagonal(paths).max())),
            "inner": float(np.abs(bias).max()),
            "misfit": float(misfit.max()),
            "dense": float(np.sqrt(np.diagonal(dense_covariance).max())),
        }
        return Answer(
            value,
            answers,
            half_squared / 1.959964**2,
            parts,
            error_inner=parts["inner"],
            error_outer=float(np.hypot(parts["surrogate"], parts["misfit"])),
        )

    def predicted_variance(
        self, surrogate: Surrogate, *, design: Array | None = None, noise_ratio: float = 1.0
    ) -> float:
        """Variance of the final answer with another design or less noise, to first order."""
        z = self.scores[0, :_PATH_POINTS]
        slopes = self._slopes(surrogate, z)
        total = np.zeros(slopes.shape[0])
        for c, gp in enumerate(surrogate.outputs):
            covariance = gp.covariance(z, design, noise_ratio)
            total += np.einsum("kn,nm,km->k", slopes[:, :, c], covariance, slopes[:, :, c])
        return float(np.maximum(total, 0.0).max())

    def _slopes(self, surrogate: Surrogate, z: Array) -> Array:
        """Derivative of the final answers in the modelled values at z, (k, n, p)."""
        mean, sd = surrogate.mean(z), surrogate.sd(z)
        step = np.maximum(sd, 1e-7 * (np.abs(mean).mean(axis=0) + 1e-300))
        answers = self.apply_f(mean).mean(axis=0)
        slopes = []
        for c in range(mean.shape[1]):
            shift = np.zeros_like(mean)
            shift[:, c] = step[:, c]
            difference = self.apply_f(mean + shift) - self.apply_f(mean - shift)
            scale = mean[:, c] if surrogate.kind.logarithm else 1.0
            slopes.append(difference / (2.0 * step[:, c] / scale)[:, None] / z.shape[0])
        by_answer = np.nan_to_num(np.stack(slopes, axis=-1))  # (n, q, p)
        gradient = self._gradient(answers)
        return np.einsum("kq,nqp->knp", gradient, by_answer)

    def _gradient(self, answers: Array) -> Array:
        """Derivative of the final answers in the q expectations, (k, q)."""
        step = 1e-6 * (np.abs(answers) + np.abs(answers).mean() + 1e-12)
        columns = []
        for q in range(answers.size):
            shift = np.zeros_like(answers)
            shift[q] = step[q]
            change = self._final(answers + shift) - self._final(answers - shift)
            columns.append(change / (2.0 * step[q]))
        return np.stack(columns, axis=1)

    def _path_covariance(self, surrogate: Surrogate) -> Array:
        """Covariance of the final answers over posterior paths pushed through f, (k, k)."""
        rng = self.grid.stream.child(self.grid.level, 8).generator()
        finals = []
        for path in surrogate.paths(self.scores[0, :_PATH_POINTS], _PATHS, rng):
            f_values = self.apply_f(path)
            usable = np.isfinite(f_values).all(axis=1)
            finals.append(self._final(f_values[usable].mean(axis=0)))
        return _covariance(np.stack(finals))

    def _bias(self, surrogate: Surrogate, means: InnerMeans) -> Array:
        """What halving the inner points changes, (k,): the larger of the last two halvings."""
        finals = [self._final(self._average(surrogate, self.scores[0, :2048]))]
        for j in means.j[1:]:
            if surrogate.kind.logarithm and not (j > 0).all():
                break
            outputs = tuple(
                replace(gp, y=np.log(j[:, c]) if surrogate.kind.logarithm else j[:, c])
                for c, gp in enumerate(surrogate.outputs)
            )
            twin = replace(surrogate, outputs=outputs)
            finals.append(self._final(self._average(twin, self.scores[0, :2048])))
        if len(finals) < 2:
            return np.abs(finals[0])
        bias = np.abs(finals[0] - finals[1])
        if len(finals) > 2:
            bias = np.maximum(bias, 2.0**-means.rate * np.abs(finals[1] - finals[2]))
        return np.asarray(np.nan_to_num(bias, nan=float(np.abs(finals[0]).max())))

    def _misfit(self, surrogate: Surrogate, means: InnerMeans, uniform: Array) -> Array:
        """Standard error of the mean of f(J_t) - f(J predicted from the others), (k,).

        Design points are weighted by how likely the law makes them, since the design is wider.
        """
        stretch = self.grid.outer_scale
        weights = np.exp(-0.5 * (1.0 - stretch**-2) * (ndtri(uniform) ** 2).sum(axis=1))
        weights /= weights.sum()
        residual = self.apply_f(means.j[0]) - self.apply_f(surrogate.leave_one_out())
        spread = np.sqrt((weights[:, None] ** 2 * np.nan_to_num(residual) ** 2).sum(axis=0))
        answers = self._average(surrogate, self.scores[0, :2048])
        return np.asarray(np.sqrt((self._gradient(answers) ** 2 @ spread**2)))

    def _average(self, surrogate: Surrogate, scores: Array) -> Array:
        return np.asarray(self.apply_f(surrogate.mean(scores)).mean(axis=0))

    def _final(self, answers: Array) -> Array:
        return np.atleast_1d(self.problem.finish(answers))


def _covariance(samples: Array) -> Array:
    return np.atleast_2d(np.cov(samples, rowvar=False))
