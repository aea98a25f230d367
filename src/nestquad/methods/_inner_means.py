"""J at the design points by the best of several rules, judged on the same values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array
from nestquad.evaluate import Evaluations
from nestquad.methods._control import ControlVariates, tiers
from nestquad.methods._inner import weighted_sum
from nestquad.quadrature import KernelQuadrature, Space, default_kernel, nodes_on

__all__ = ["InnerMeans", "inner_means"]

# A rule with more freedom has to earn it: it replaces the simpler one only if it brings the change
# from N/2 to N below this share.
_GAIN = 0.8
# Kernel weights see nothing of a function of more coordinates than this.
_MOST_KERNEL_COORDINATES = 3
_MOST_KERNEL_NODES = 1024
_ROWS_FOR_TUNING = 8
_SETS_FOR_CHOICE = 4
_SPACES: tuple[Space, ...] = ("uniform", "normal")


@dataclass(frozen=True)
class InnerMeans:
    """J at T points by rules of N, N/2 and N/4 values, (views, T, p), and which rule it was."""

    j: Array
    rule: str

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


def inner_means(
    evaluations: Evaluations,
    design_weights: Array,
    usable: Callable[[Array], bool],
    level: int = 0,
) -> InnerMeans:
    """Try the mean, kernel weights and control variates; keep what changes least from N/2 to N.

    `design_weights` (T,) say how much each θ counts; `usable` tells whether f can take J (T, p):
    weights of both signs may make J negative where the mean is not.
    """
    grid = evaluations.design.grids[level]
    outer = evaluations.outer(level)
    values = evaluations.values(grid.n_outer, level)
    values = values.reshape(*values.shape[:2], -1)
    rows = values.shape[0]
    spread = values.reshape(-1, values.shape[-1]).std(axis=0)
    judge = _Judge(design_weights[:rows], np.where(spread > 0, spread, 1.0))
    sizes = [n for n in (grid.n_inner, grid.n_inner // 2, grid.n_inner // 4) if n >= 1]
    weights = {"mean": _mean_weights(sizes, grid.n_inner)}
    uniform = evaluations.inner(outer.theta[:rows], (0, rows), level).uniform
    few = uniform is not None and uniform.shape[-1] <= _MOST_KERNEL_COORDINATES
    if few and 8 <= grid.n_inner <= _MOST_KERNEL_NODES and grid.n_sets is not None:
        assert uniform is not None
        used = uniform[:rows]  # with few θ not every set of the pool is taken
        weights["kernel"] = _kernel_weights(used, values, sizes, judge)
    candidates = {name: _apply(w, values) for name, w in weights.items()}
    if uniform is not None and outer.uniform is not None and grid.n_inner >= 4:
        scores = nodes_on("normal", outer.uniform[:rows], outer.theta[:rows])
        functions = tiers(uniform.shape[-1], scores.shape[1], values.shape[0] * values.shape[1])
        if functions is not None:
            corrected = _with_controls(functions, uniform, scores, values, weights, candidates)
            candidates |= corrected
    best = "mean"
    for name, j in candidates.items():
        if usable(j[0]) and judge.change(j) < _GAIN * judge.change(candidates[best]):
            best = name
    return InnerMeans(candidates[best], best)


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


def _kernel_weights(uniform: Array, values: Array, sizes: list[int], judge: _Judge) -> Array:
    """Weights (views, S, N) for the S different point sets, with the kernel that changes least."""
    n_sets, n, _ = uniform.shape
    rows = values[::n_sets][:_ROWS_FOR_TUNING]
    spread = rows.std(axis=(0, 1))
    columns = np.moveaxis(rows / np.where(spread > 0, spread, 1.0), 0, -1).reshape(n, -1)
    recipes = [
        KernelQuadrature(default_kernel(uniform.shape[-1], nu), space).tuned([(nodes, columns)])
        for space in _SPACES
        for nodes in [nodes_on(space, uniform[0], uniform[0])]
        for nu in (1.5, 2.5)
    ]
    trial = min(_SETS_FOR_CHOICE, n_sets)
    sample = slice(0, trial)  # the first rows use the first sets

    def change(recipe: KernelQuadrature) -> float:
        weights = _weights_of(recipe, uniform[:trial], sizes)
        return judge.change(_apply(weights, values[:trial]), sample)

    return _weights_of(min(recipes, key=change), uniform, sizes)


def _weights_of(recipe: KernelQuadrature, uniform: Array, sizes: list[int]) -> Array:
    n_sets, n, _ = uniform.shape
    weights = np.zeros((len(sizes), n_sets, n))
    usable = [size for size in sizes if size >= 2]
    for s in range(n_sets):
        nodes = nodes_on(recipe.space, uniform[s], uniform[s])
        for view, rule in enumerate(recipe.rules(nodes, usable)):
            weights[view, s, : usable[view]] = rule.weights
    for view in range(len(usable), len(sizes)):
        weights[view, :, : sizes[view]] = 1.0 / sizes[view]
    return weights


def _apply(weights: Array, values: Array) -> Array:
    """(views, S, N) and (T, N, k) → (views, T, k)."""
    rows = values.shape[0]
    sets = np.arange(rows) % weights.shape[1]
    return np.stack([weighted_sum(values, view[sets]) for view in weights])


def _with_controls(
    functions: ControlVariates,
    uniform: Array,
    scores: Array,
    values: Array,
    weights: dict[str, Array],
    plain: dict[str, Array],
) -> dict[str, Array]:
    """Each rule applied to what is left of g after regression on functions of mean zero.

    Coefficients are pooled over all θ, since one θ alone has too few values. They are found from
    deviations within each θ, so that J itself does not disturb them.
    """
    rows, n, n_out = values.shape
    count = functions.count(uniform.shape[-1], scores.shape[1])
    normal = np.zeros((count, count))
    right = np.zeros((count, n_out))
    sums = {name: np.empty((w.shape[0], rows, count)) for name, w in weights.items()}
    block = max(1, 2_000_000 // (n * count))
    for t0 in range(0, rows, block):
        t1 = min(t0 + block, rows)
        sets = np.arange(t0, t1) % uniform.shape[0]
        psi = functions.matrix(uniform[sets], scores[t0:t1])
        for name, w in weights.items():
            own = np.arange(t0, t1) % w.shape[1]
            sums[name][:, t0:t1] = np.stack([np.einsum("tnk,tn->tk", psi, v[own]) for v in w])
        centred = (psi - psi.mean(axis=1, keepdims=True)).reshape(-1, count)
        target = (values[t0:t1] - values[t0:t1].mean(axis=1, keepdims=True)).reshape(-1, n_out)
        normal += centred.T @ centred
        right += centred.T @ target
    normal[np.diag_indices(count)] *= 1.0 + 1e-10
    normal[np.diag_indices(count)] += 1e-300
    coefficients = np.linalg.lstsq(normal, right, rcond=1e-12)[0]
    return {
        f"{name} after control variates": plain[name] - sums[name] @ coefficients
        for name in weights
    }


def _size(change: Array) -> float:
    return float(np.sqrt(np.mean(change**2)))
