"""Inner stage of CKQ: J at the design points by means, kernel weights, control variates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nestquad import limits
from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.evaluate import Evaluations
from nestquad.gp import fit_lengthscale, median_lengthscale
from nestquad.kernels import Gaussian, Kernel, Matern
from nestquad.methods.nested import weighted_sum
from nestquad.quadrature import KernelQuadrature, Space, default_kernel, nodes_on
from nestquad.regression import ControlVariates, Score, fit_controls


@dataclass(frozen=True)
class InnerMeans:
    """J at T points by rules of N, N/2 and N/4 values, (views, T, p), and which rule it was.

    `controls` are the control variates that were fitted, whether the rule uses them or not; `rest`
    (t, N, p) is the remainder of g at some θ, less its mean there.
    """

    j: Array
    rule: str
    dim: int
    rest: Array
    controls: ControlVariates | None = None

    @property
    def by_kernel(self) -> bool:
        return self.rule.startswith("kernel")

    @property
    def noise(self) -> Array:
        """The standard deviation (p,) of g at a θ after control variates."""
        count = self.rest.shape[1]
        scale = scale_of(self.rest.reshape(-1, self.rest.shape[2]))
        variance = ((self.rest / scale) ** 2).mean(axis=(0, 1)) * count / max(count - 1, 1)
        return np.asarray(scale * np.sqrt(variance))

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
        """Remaining error, as a share of the last change.

        At rate r the change is 2^r - 1 times as large. Slow rates come from noise, for which
        the error with half of the points is larger by about that of all points.
        """
        return float(min(1.0, 1.0 / (2.0 ** min(self.rate, 1.5) - 1.0)))

    @property
    def expected_rate(self) -> float:
        """The exponent for planning: the observed one, shrunk to that of low-discrepancy points.

        Few points show less of the rate than many will; in many dimensions neither shows much.
        """
        return 0.5 * (self.rate + 1.0) if self.dim <= limits.INNER_COORDINATES else self.rate


def inner_means(
    evaluations: Evaluations,
    design_weights: Array,
    usable: Callable[[Array], bool],
) -> InnerMeans:
    """Select among mean, kernel weights and control variates: least change from N/2 to N.

    `design_weights` (T,) say how much each θ counts; `usable` tells whether f can take J (T, p):
    weights of both signs may make J negative where the mean is not.
    """
    (grid,) = evaluations.design.grids
    outer = evaluations.outer()
    values = evaluations.values(grid.n_outer)
    values = values.reshape(*values.shape[:2], -1)
    scale = scale_of(values.reshape(-1, values.shape[-1]))
    values = values / scale  # squares of values may be out of range
    rows = values.shape[0]
    spread = values.reshape(-1, values.shape[-1]).std(axis=0)
    judge = _Judge(design_weights[:rows], np.where(spread > 0, spread, 1.0))
    sizes = [n for n in (grid.n_inner, grid.n_inner // 2, grid.n_inner // 4) if n >= 1]
    plain = _mean_weights(sizes, grid.n_inner)
    candidates = {"mean": _apply(plain, values)}
    inner = evaluations.inner(outer.theta[:rows], (0, rows))
    controls: ControlVariates | None = None
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
        few = uniform.shape[-1] <= limits.INNER_COORDINATES and grid.n_sets is not None
        if few and 8 <= grid.n_inner <= limits.INNER_NODES:
            choice, residual = work.best_kernel(sizes)
            name = "kernel after control variates" if residual else "kernel"
            candidates[name] = work.apply(choice.weights(uniform, sizes), residual)
    best = "mean"
    for name, j in candidates.items():
        if usable(scale * j[0]) and judge.change(j) < 0.8 * judge.change(candidates[best]):
            best = name
    left = values if controls is None else work.residuals(controls, min(rows, 32))
    if controls is not None:
        controls = replace(controls, coefficients=scale * controls.coefficients)
    return InnerMeans(
        scale * candidates[best],
        best,
        inner.x.shape[-1],
        scale * _centered(left),
        controls=controls,
    )


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
        """J (views, T, p) by weights (views, S or 1, N) on g, or on residuals of the controls."""
        j = _apply(weights, self.values)
        if not residual or self.controls is None:
            return j
        return np.asarray(j - self.controls.integrals(self.uniform, weights, self.outer))

    def best_kernel(self, sizes: list[int]) -> tuple[KernelChoice, bool]:
        """The kernel that changes J least, and whether on g or on residuals of the controls."""
        few = slice(0, min(limits.TRIED_ROWS, len(self.uniform)))
        n = min(sizes[0], limits.TRIED_NODES)
        parts = [n, n // 2, n // 4]
        trials = []
        for residual in (False, True) if self.controls is not None else (False,):
            values = self._sample(residual)
            for choice in kernel_choices(self.uniform, values, self.spaces, 2):
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
        """g at a few θ, or its control-variate residuals."""
        rows = min(limits.TUNED_ROWS, len(self.uniform), len(self.values))
        if not residual or self.controls is None:
            return self.values[:rows]
        return self.residuals(self.controls, rows)

    def residuals(self, controls: ControlVariates, rows: int) -> Array:
        """g less its control variates at the first θ."""
        some = range(rows)
        sets = len(self.uniform)
        fitted = [controls.values(self.uniform[t % sets], self.outer[t], t) for t in some]
        return np.asarray(self.values[:rows] - np.stack(fitted))


@dataclass(frozen=True)
class KernelChoice:
    """A tuned recipe, and how likely it makes the values."""

    recipe: KernelQuadrature
    likelihood: float

    def weights(self, uniform: Array, sizes: list[int]) -> Array:
        """Weights (views, S, N) on prefixes of the S point sets (S, N, d)."""
        n_sets, n, _ = uniform.shape
        weights = np.zeros((len(sizes), n_sets, n))
        usable = [size for size in sizes if size >= 2]
        nodes = nodes_on(self.recipe.space, uniform, uniform)
        block = max(1, 2**21 // n**2)  # 16 MB of Gram matrices
        for s in range(0, n_sets, block):
            found = self.recipe.rules_by_set(nodes[s : s + block], usable)
            for i, rules in enumerate(found, start=s):
                for view, rule in enumerate(rules):
                    weights[view, i, : usable[view]] = rule.weights
        for view in range(len(usable), len(sizes)):
            weights[view, :, : sizes[view]] = 1.0 / sizes[view]
        return weights


def kernel_choices(
    uniform: Array, values: Array, spaces: tuple[Space, ...], most: int
) -> list[KernelChoice]:
    """The likeliest kernels for values (T, N, p) at the first T of the sets (S, N, d).

    Kernels of finite smoothness for g with kinks or ends, the Gaussian for g without.
    """
    dim = uniform.shape[-1]
    spread = values.std(axis=(0, 1))
    columns = (values / np.where(spread > 0, spread, 1.0))[:, : limits.TUNED_NODES]
    kernels: list[Kernel] = [default_kernel(dim, 1.5), default_kernel(dim, 2.5)]
    if dim <= 2:
        kernels += [Matern(3.5), Gaussian()]
    choices = []
    for space in spaces:
        nodes = nodes_on(space, uniform, uniform)[: len(columns), : limits.TUNED_NODES]
        groups = list(zip(nodes, columns, strict=True))
        scale = median_lengthscale(nodes[0])
        for kernel in kernels:
            tuned, likelihood = fit_lengthscale(kernel.with_lengthscale(scale), groups)
            recipe = KernelQuadrature(tuned, space, "fixed")
            choices.append(KernelChoice(recipe, likelihood))
    return sorted(choices, key=lambda choice: -choice.likelihood)[:most]


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


def _centered(values: Array) -> Array:
    """Values (t, N, p) less their means over N."""
    return np.asarray(values - values.mean(axis=1, keepdims=True))


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
    scale = float(scale_of(change.reshape(-1)))
    return scale * float(np.sqrt(np.mean((change / scale) ** 2)))
