"""J at the design points by the best of several rules, judged on the same values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, UnsupportedError
from nestquad.evaluate import Evaluations
from nestquad.methods._control import ControlVariates, fit_controls
from nestquad.methods._inner_kernel import KernelChoice, kernel_choices
from nestquad.methods._polynomials import Score
from nestquad.methods.nested import weighted_sum
from nestquad.quadrature import Space

__all__ = ["MOST_KERNEL_NODES", "InnerMeans", "inner_means"]

# A rule with more freedom has to earn it: it replaces the simpler one only if it brings the change
# from N/2 to N below this share.
_GAIN = 0.8
# Faster rates than this are seen among few points, and do not last.
_BELIEVED_RATE = 1.5
# Kernel weights see nothing of a function of more coordinates than this.
_MOST_KERNEL_COORDINATES = 3
_LEAST_KERNEL_NODES = 8
MOST_KERNEL_NODES = 1024
# Kernels are compared on so many point sets, of at most so many points.
_TRIAL_SETS = 3
_TRIAL_NODES = 256
_TRIALS = 2
_TUNING_ROWS = 2


@dataclass(frozen=True)
class InnerMeans:
    """J at T points by rules of N, N/2 and N/4 values, (views, T, p), and which rule it was.

    `variance` (T, p) is the posterior variance of J where it was asked for.
    """

    j: Array
    rule: str
    dim: int
    variance: Array | None = None

    @property
    def change(self) -> Array:
        """J_N - J_{N/2}, (T, p)."""
        return np.asarray(self.j[0] - self.j[1])

    @property
    def rate(self) -> float:
        """The observed exponent of N at which changes shrink, between ½ and 3."""
        if self.j.shape[0] < 3:
            return 0.5
        now, before = _size(self.j[0] - self.j[1]), _size(self.j[1] - self.j[2])
        return float(np.clip(np.log2(max(before, 1e-300) / max(now, 1e-300)), 0.5, 3.0))

    @property
    def left(self) -> float:
        """What is left of the error, as a share of the last change.

        At rate r the change is 2^r - 1 times as large. Slow rates are those of noise, for which
        half the points err by as much more as all of them.
        """
        return float(min(1.0, 1.0 / (2.0 ** min(self.rate, _BELIEVED_RATE) - 1.0)))

    @property
    def expected_rate(self) -> float:
        """The exponent to plan with: what was observed, drawn to that of low-discrepancy points.

        Few points show less of the rate than many will; in many dimensions neither shows much.
        """
        return 0.5 * (self.rate + 1.0) if self.dim <= _MOST_KERNEL_COORDINATES else self.rate


def inner_means(
    evaluations: Evaluations,
    design_weights: Array,
    usable: Callable[[Array], bool],
    level: int = 0,
    bayesian: bool = False,
) -> InnerMeans:
    """Try the mean, kernel weights and control variates; keep what changes least from N/2 to N.

    `design_weights` (T,) say how much each θ counts; `usable` tells whether f can take J (T, p):
    weights of both signs may make J negative where the mean is not. With `bayesian` J comes by
    kernel weights whatever happens, and with its posterior variance.
    """
    grid = evaluations.design.grids[level]
    outer = evaluations.outer(level)
    values = evaluations.values(grid.n_outer, level)
    values = values.reshape(*values.shape[:2], -1)
    rows = values.shape[0]
    spread = values.reshape(-1, values.shape[-1]).std(axis=0)
    judge = _Judge(design_weights[:rows], np.where(spread > 0, spread, 1.0))
    sizes = [n for n in (grid.n_inner, grid.n_inner // 2, grid.n_inner // 4) if n >= 1]
    plain = _mean_weights(sizes, grid.n_inner)
    candidates = {"mean": _apply(plain, values)}
    inner = evaluations.inner(outer.theta[:rows], (0, rows), level)
    controls: ControlVariates | None = None
    if bayesian:
        return _bayesian(inner.uniform, values, sizes, inner.x.shape[-1])
    if inner.uniform is not None and outer.uniform is not None:
        uniform = inner.uniform[:rows]  # with few θ not every set of the pool is taken
        in_theta = evaluations.problem.outer_law.base
        # A law written in uniforms may still be normal, and g in normals may have bounds.
        scores: list[tuple[Score, Score]] = [("uniform", in_theta), ("normal", in_theta)]
        if grid.n_inner >= 4:
            controls = fit_controls(uniform, outer.uniform[:rows], values, scores)
        spaces: tuple[Space, ...] = ("uniform", "normal")
        work = _Work(uniform, outer.uniform[:rows], values, controls, judge, spaces)
        if controls is not None:
            candidates["mean after control variates"] = work.apply(plain, True)
        few = uniform.shape[-1] <= _MOST_KERNEL_COORDINATES and grid.n_sets is not None
        if few and _LEAST_KERNEL_NODES <= grid.n_inner <= MOST_KERNEL_NODES:
            choice, residual = work.best_kernel(sizes)
            name = "kernel after control variates" if residual else "kernel"
            candidates[name] = work.apply(choice.weights(uniform, sizes), residual)
    best = "mean"
    for name, j in candidates.items():
        if usable(j[0]) and judge.change(j) < _GAIN * judge.change(candidates[best]):
            best = name
    return InnerMeans(candidates[best], best, inner.x.shape[-1])


def _bayesian(uniform: Array | None, values: Array, sizes: list[int], dim: int) -> InnerMeans:
    """Bayesian quadrature with the likeliest kernel, and its posterior variances."""
    if uniform is None:
        raise UnsupportedError(
            "noise='stage1' needs an inner law that is driven by uniforms. Use noise='fitted'."
        )
    if not 4 <= sizes[0] <= MOST_KERNEL_NODES:
        raise InputError(
            "noise",
            f"'stage1' with {sizes[0]} inner points",
            f"4 to {MOST_KERNEL_NODES} of them, since their Gram matrices are factorized",
            "Fix n_inner, lower the budget, or use noise='fitted'.",
        )
    sets = uniform[: len(values)]
    rows = min(_TUNING_ROWS, len(sets))
    (choice,) = kernel_choices(sets, values[:rows], ("uniform", "normal"), 1)
    j = _apply(choice.weights(sets, sizes), values)
    return InnerMeans(j, "kernel", dim, choice.posterior_variance(sets, values))


@dataclass(frozen=True)
class _Work:
    """Values at T points (T, N, p), the S point sets behind them, and control variates."""

    uniform: Array
    outer: Array
    values: Array
    controls: ControlVariates | None
    judge: _Judge
    spaces: tuple[Space, ...]

    def apply(self, weights: Array, residual: bool) -> Array:
        """J (views, T, p) by weights (views, S or 1, N) on g, or on what controls leave of it."""
        j = _apply(weights, self.values)
        if not residual or self.controls is None:
            return j
        return np.asarray(j - self.controls.integrals(self.uniform, weights, self.outer))

    def best_kernel(self, sizes: list[int]) -> tuple[KernelChoice, bool]:
        """The kernel that changes J least, and whether on g itself or on what controls leave."""
        few = slice(0, min(_TRIAL_SETS, len(self.uniform)))
        n = min(sizes[0], _TRIAL_NODES)
        parts = [n, n // 2, n // 4]
        trials = []
        for residual in (False, True) if self.controls is not None else (False,):
            values = self._sample(residual)
            for choice in kernel_choices(self.uniform, values, self.spaces, _TRIALS):
                weights = choice.weights(self.uniform[few, :n], parts)
                small = replace(
                    self,
                    uniform=self.uniform[few, :n],
                    outer=self.outer[few],
                    values=self.values[few, :n],
                )
                change = self.judge.change(small.apply(weights, residual), few)
                trials.append((change, choice, residual))
        _, choice, residual = min(trials, key=lambda trial: trial[0])
        return choice, residual

    def _sample(self, residual: bool) -> Array:
        """g at a few θ, or what controls leave of it."""
        rows = range(min(_TUNING_ROWS, len(self.uniform), len(self.values)))
        if not residual or self.controls is None:
            return self.values[: len(rows)]
        fitted = [self.controls.values(self.uniform[t], self.outer[t], t) for t in rows]
        return np.asarray(self.values[: len(rows)] - np.stack(fitted))


@dataclass(frozen=True)
class _Judge:
    """Measures how much J changes from N/2 to N, over all θ by their weight and in units of g."""

    weights: Array
    scale: Array

    def change(self, j: Array, rows: slice = slice(None)) -> float:
        if j.shape[0] < 2:
            return float("inf")
        relative = ((j[0] - j[1]) / self.scale) ** 2
        weights = self.weights[rows]
        return float(np.sqrt((weights[:, None] * relative).sum() / weights.sum()))


def _mean_weights(sizes: list[int], n: int) -> Array:
    weights = np.zeros((len(sizes), 1, n))
    for view, size in enumerate(sizes):
        weights[view, :, :size] = 1.0 / size
    return weights


def _apply(weights: Array, values: Array) -> Array:
    """(views, S, N) and (T, N, k) → (views, T, k)."""
    rows = values.shape[0]
    sets = np.arange(rows) % weights.shape[1]
    return np.stack([weighted_sum(values, view[sets]) for view in weights])


def _size(change: Array) -> float:
    return float(np.sqrt(np.mean(change**2)))
