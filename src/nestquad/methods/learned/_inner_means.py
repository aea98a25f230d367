"""Inner stage of CKQ: J at the design points by means, kernel weights, control variates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.evaluate import Evaluations
from nestquad.methods.nested import weighted_sum
from nestquad.quadrature import KernelQuadrature, nodes_on
from nestquad.regression import ControlVariates, Score, fit_controls


@dataclass(frozen=True)
class InnerSettings:
    """Tuning numbers of inner rules.

    Attributes
    ----------
    nodes
        Most inner points of kernel weights, whose cost is N³.
    coordinates
        Coordinates of x beyond which kernel weights do not gain.
    tuned
        θ on which a kernel is tuned.
    """

    nodes: int = 1_024
    coordinates: int = 3
    tuned: int = 2


INNER = InnerSettings()


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
        return 0.5 * (self.rate + 1.0) if self.dim <= INNER.coordinates else self.rate


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
    sizes = [n for n in (grid.n_inner, grid.n_inner // 2, grid.n_inner // 4) if n >= 1]
    mean = _mean_weights(sizes, grid.n_inner)
    candidates = {"mean": _apply(mean, values)}
    inner = evaluations.inner(outer.theta[:rows], (0, rows))
    controls: ControlVariates | None = None
    rest = values
    if inner.uniform is not None and outer.uniform is not None:
        uniform = inner.uniform[:rows]  # with few θ not every set of the pool is taken
        in_theta = evaluations.problem.outer_law.base
        # A law written in uniforms may still be normal, and g in normals may have bounds.
        scores: list[tuple[Score, Score]] = [("uniform", in_theta), ("normal", in_theta)]
        if grid.n_inner >= 4:
            controls = fit_controls(uniform, outer.uniform[:rows], values, scores)
        if controls is not None:
            rest = _residuals(controls, uniform, outer.uniform, values)
        rules = {"mean": mean}
        few = uniform.shape[-1] <= INNER.coordinates and grid.n_sets is not None
        if few and 8 <= grid.n_inner <= INNER.nodes:
            rules["kernel"] = _kernel_weights(uniform, rest, sizes)
        for name, weights in rules.items():
            if controls is None:
                candidates[name] = _apply(weights, values)
            else:
                known = controls.integrals(uniform, weights, outer.uniform)
                candidates[f"{name} after control variates"] = _apply(weights, values) - known
    spread = values.reshape(-1, values.shape[-1]).std(axis=0)
    unit = np.where(spread > 0, spread, 1.0)
    best, least = "mean", _change(candidates["mean"] / unit, design_weights[:rows])
    for name, j in candidates.items():
        change = _change(j / unit, design_weights[:rows])
        if usable(scale * j[0]) and change < 0.8 * least:
            best, least = name, change
    if controls is not None:
        controls = replace(controls, coefficients=scale * controls.coefficients)
    return InnerMeans(
        scale * candidates[best],
        best,
        inner.x.shape[-1],
        scale * (rest - rest.mean(axis=1, keepdims=True)),
        controls=controls,
    )


def _residuals(controls: ControlVariates, uniform: Array, outer: Array, values: Array) -> Array:
    """g less its control variates at the first 32 θ."""
    some = range(min(len(values), 32))
    fitted = [controls.values(uniform[t % len(uniform)], outer[t], t) for t in some]
    return np.asarray(values[: len(some)] - np.stack(fitted))


def _kernel_weights(uniform: Array, values: Array, sizes: list[int]) -> Array:
    """Weights (views, S, N) of kernel quadrature on prefixes of the S point sets (S, N, d).

    The kernel is the likeliest for values (t, N, p) at the first θ.
    """
    spread = values.std(axis=(0, 1))
    columns = values / np.where(spread > 0, spread, 1.0)
    rows = min(INNER.tuned, len(uniform), len(values))
    recipe = KernelQuadrature().tuned([(uniform[t], columns[t]) for t in range(rows)])
    nodes = nodes_on(recipe.space, uniform, uniform)
    n_sets, n, _ = uniform.shape
    weights = np.zeros((len(sizes), n_sets, n))
    block = max(1, 2**21 // n**2)  # 16 MB of Gram matrices
    for first in range(0, n_sets, block):
        for s, rules in enumerate(recipe.rules_by_set(nodes[first : first + block], sizes), first):
            for view, rule in enumerate(rules):
                weights[view, s, : sizes[view]] = rule.weights
    return weights


def _change(j: Array, weights: Array) -> float:
    """Root mean square change of J (views, T, p) from N/2 to N, over θ by their weights."""
    if j.shape[0] < 2:
        return float("inf")
    return float(np.sqrt((weights[:, None] * (j[0] - j[1]) ** 2).sum() / weights.sum()))


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
