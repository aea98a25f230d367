"""From a surrogate of J to answers with error bars, without evaluating g."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array
from nestquad.evaluate import Grid, call_f, outer_points
from nestquad.gp import Surrogate
from nestquad.methods._dense import DenseSet, dense_sets, scores_of
from nestquad.methods._inner_means import InnerMeans
from nestquad.methods._magnify import magnification
from nestquad.points import Sobol, Stream
from nestquad.problem import NestedExpectation

__all__ = ["Answer", "SurrogateAnswers"]

_PATHS = 64
_SKETCH = 256
_FORECAST = 128
_TAIL, _TAIL_POINTS = 3.0, 64
_FORECAST_OUTER = 256
# Each part of the error alone is too small in some cases; these factors made the sum cover.
_PATH_FACTOR = 1.8
_BIAS_FACTOR = 1.8
# Two grids half a step apart have opposite errors at a kink, c B₂(x) and c B₂(x + ½): their mean
# has 0.26 of the root mean square of half their difference.
_OPPOSITE = 0.7
# Student's t for the few sets that there are.
_DENSE_FACTOR = 3.2
# Where f cannot take Ĵ, θ of less weight than this are left out.
_NEGLIGIBLE = 1e-9
# A larger dense set is taken while it is more than this share of the error.
_DENSE_SHARE = 0.1
# Ways to grow that are compared: factors of T and N.
_GROWTH = ((1, 2), (2, 1), (1, 8), (2, 4), (4, 2), (8, 1))


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

    def stream(self, key: int) -> Stream:
        """Randomness of this method's own, apart from that of the points."""
        return self.grid.stream.child(self.grid.level, key)

    @cached_property
    def sketch(self) -> DenseSet:
        """A small set of the same kind, for error estimates that need many averages."""
        dim = self.problem.outer_law.base_dim
        uniform = Sobol().uniforms(self.stream(9), dim, (0, 1), (0, _SKETCH))[0]
        scores = scores_of(self.problem.outer_law, uniform)
        return DenseSet(scores, np.full(_SKETCH, 1.0 / _SKETCH))

    def apply_f(self, j: Array) -> Array:
        """f at (n, p) as (n, q); NaN where f cannot take it."""
        argument = j[:, 0] if self.scalar else j
        return call_f(self.problem, argument, argument.reshape(len(j), -1), require_finite=False)

    def accepts(self, j: Array) -> bool:
        """Whether f takes J (T, p) everywhere."""
        return bool(np.isfinite(self.apply_f(j)).all())

    def plausible(self, surrogate: Surrogate, j: Array) -> bool:
        """Whether f(Ĵ) stays near what was seen: a surrogate that runs away does not."""
        dense = self.apply_f(surrogate.mean(self.sketch.scores))
        seen = self.apply_f(j)
        if not np.isfinite(dense).all() or not np.isfinite(seen).all():
            return False
        if self.problem.outer_law.base == "normal":
            # Averages reach further into the tails, where f has to take what is extrapolated.
            tails = surrogate.mean(_TAIL * self.sketch.scores[:_TAIL_POINTS])
            if not np.isfinite(self.apply_f(tails)).all():
                return False
        low, high = seen.min(axis=0), seen.max(axis=0)
        margin = 2.0 * (high - low) + 1e-12 * np.abs(high)
        return bool(((dense >= low - margin) & (dense <= high + margin)).all())

    def answer(
        self, surrogate: Surrogate, sceptic: Surrogate, means: InnerMeans, uniform: Array
    ) -> Answer:
        """Averages and error bars; `sceptic` is a rougher model, whose doubts count as well."""
        paths = self._path_covariance(surrogate)
        if sceptic is not surrogate:
            doubts = self._path_covariance(sceptic)
            paths = max(paths, doubts, key=lambda covariance: float(np.trace(covariance)))
        js = surrogate.can_model(means.j)
        for dense in dense_sets(self.problem.outer_law, self.stream(7)):
            by_set = np.stack([self._averages(surrogate, js, part) for part in dense])
            answers = by_set[:, 0].mean(axis=0)
            finals = np.stack([self._final(a) for a in by_set[:, 0]])
            dense_covariance = _covariance(finals) / len(dense)
            if len(dense) == 2 and self.problem.outer_law.base == "normal":
                dense_covariance *= _OPPOSITE**2
            bias = self._bias(by_set.mean(axis=0), means)
            half_squared = _PATH_FACTOR**2 * paths + _BIAS_FACTOR**2 * np.outer(bias, bias)
            allowed = _DENSE_SHARE**2 * np.diagonal(half_squared)
            if np.all(np.diagonal(dense_covariance) <= allowed):
                break
        misfit = self._misfit(surrogate, means, uniform, answers)
        half_squared = half_squared + np.diag(misfit**2) + _DENSE_FACTOR**2 * dense_covariance
        parts = {
            "surrogate": float(np.sqrt(np.diagonal(paths).max())),
            "inner": float(np.abs(bias).max()),
            "misfit": float(misfit.max()),
            "dense": float(np.sqrt(np.diagonal(dense_covariance).max())),
        }
        return Answer(
            self._final(answers),
            answers,
            half_squared / 1.959964**2,
            parts,
            error_inner=parts["inner"],
            error_outer=float(np.hypot(parts["surrogate"], parts["misfit"])),
        )

    def forecast(
        self, surrogate: Surrogate, means: InnerMeans, final: Answer
    ) -> list[tuple[int, int, float]]:
        """Predicted errors with more points: (factor of T, factor of N, error)."""
        shrink = 2.0**-means.expected_rate
        noisier = self.predicted_variance(surrogate, noise_ratio=shrink**-2)
        # Half as many inner points also have more noise; only the rest of the change is bias.
        bias = max(final.error_inner**2 - noisier, 0.0)
        misfit = max(final.parts["misfit"] ** 2 - noisier, 0.0)
        found = []
        for outer, inner in _GROWTH:
            less = shrink ** (2 * np.log2(inner))
            variance = self._grown_variance(surrogate, outer, less)
            # What the dense set leaves no design can lower: designs that only do so are equal.
            rest = final.parts["dense"] ** 2
            error = np.sqrt(variance + misfit / outer**2 + less * bias + rest)
            found.append((outer, inner, float(error)))
        return found

    def _grown_variance(self, surrogate: Surrogate, outer: int, noise_ratio: float) -> float:
        """The predicted variance with T multiplied by `outer`."""
        more = replace(self.grid, n_outer=outer * self.grid.n_outer)
        if outer == 1 or more.n_outer > _FORECAST_OUTER:
            # Among many points, more of them are like less noise in each.
            return self.predicted_variance(surrogate, noise_ratio=noise_ratio / outer)
        uniform = outer_points(self.problem, more, 0, more.n_outer).uniform
        assert uniform is not None
        design = scores_of(self.problem.outer_law, uniform)
        return self.predicted_variance(surrogate, design=design, noise_ratio=noise_ratio)

    def predicted_variance(
        self, surrogate: Surrogate, *, design: Array | None = None, noise_ratio: float = 1.0
    ) -> float:
        """Variance of the final answer with another design or less noise, to first order."""
        z = self.sketch.scores[:_FORECAST]
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
        return np.asarray(np.einsum("kq,nqp->knp", gradient, by_answer))

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
        paths = surrogate.paths(self.sketch.scores, _PATHS, self.stream(8).generator())
        center = surrogate.mean(self.sketch.scores)
        seen = center[:, 0] if self.scalar else center
        factor = magnification(self.problem, seen, paths - center)
        if factor > 1.0:
            paths = center + factor * (paths - center)
        f_values = self.apply_f(paths.reshape(-1, paths.shape[2])).reshape(*paths.shape[:2], -1)
        usable = np.asarray(np.isfinite(f_values).all(axis=2))
        kept = np.where(usable[:, :, None], f_values, 0.0).sum(axis=1)
        averages = kept / np.maximum(usable.sum(axis=1), 1)[:, None]
        return _covariance(np.stack([self._final(average) for average in averages])) / factor**2

    def _bias(self, averages: Array, means: InnerMeans) -> Array:
        """What halving the inner points changes, (k,): the larger of the last two halvings.

        `averages` (views, q) come from N, N/2 and N/4 inner points.
        """
        finals = [self._final(average) for average in averages]
        if len(finals) < 2:
            return np.abs(finals[0])
        bias = np.abs(finals[0] - finals[1])
        if len(finals) > 2:
            bias = np.maximum(bias, 2.0**-means.rate * np.abs(finals[1] - finals[2]))
        bias = means.left * bias
        return np.asarray(np.nan_to_num(bias, nan=float(np.abs(finals[0]).max())))

    def _misfit(
        self, surrogate: Surrogate, means: InnerMeans, uniform: Array, answers: Array
    ) -> Array:
        """Standard error of the mean of f(J_t) - f(J predicted from the others), (k,).

        Design points are weighted by how likely the law makes them, since the design is wider.
        """
        weights = self.design_weights(uniform)
        residual = self.apply_f(means.j[0]) - self.apply_f(surrogate.leave_one_out())
        spread = np.sqrt((weights[:, None] ** 2 * np.nan_to_num(residual) ** 2).sum(axis=0))
        return np.asarray(np.sqrt(self._gradient(answers) ** 2 @ spread**2))

    def design_weights(self, uniform: Array) -> Array:
        """How likely the law makes each design point, (T,), summing to one."""
        stretch = self.grid.outer_scale
        weights = np.exp(-0.5 * (1.0 - stretch**-2) * (ndtri(uniform) ** 2).sum(axis=1))
        return np.asarray(weights / weights.sum())

    def _averages(self, surrogate: Surrogate, js: Array, dense: DenseSet) -> Array:
        """Averages (views, q) of f(Ĵ) by the model of J, fed with each of js (views, T, p)."""
        predicted = surrogate.means(dense.scores, js)
        f_values = np.stack([self.apply_f(j) for j in predicted])
        lost = ~np.isfinite(f_values).all(axis=(0, 2))
        if lost.any() and dense.weights[lost].sum() < _NEGLIGIBLE:
            f_values[:, lost] = 0.0
        return np.stack([dense.average(values) for values in f_values])

    def _final(self, answers: Array) -> Array:
        return np.atleast_1d(self.problem.finish(answers))


def _covariance(samples: Array) -> Array:
    return np.atleast_2d(np.cov(samples, rowvar=False))
