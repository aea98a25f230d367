"""The terms of multilevel kernel quadrature as the paper has them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nestquad._typing import Array
from nestquad.evaluate import Evaluations, InnerPoints, Span, call_f
from nestquad.gp import median_lengthscale
from nestquad.kernels import Kernel
from nestquad.methods._inner import weighted_sum
from nestquad.methods._level_terms import (
    LevelTerm,
    Terms,
    first_of,
    halvings,
    make_term,
    outer_nodes,
    repeated,
)
from nestquad.methods._outer import describe_rules
from nestquad.quadrature import KernelQuadrature, nodes_on
from nestquad.result import OuterSample
from nestquad.rules import Rule

__all__ = ["independent_terms"]

# Rows of values on which the inner λ_0 is chosen.
_TUNING_ROWS = 8
# Gram matrices of this many numbers are held at a time (128 MB).
_GRAM_NUMBERS = 2**24
# λ_0 of the outer regularisation, which the paper leaves open.
_LAMBDA0 = 0.01


def independent_terms(
    evaluations: Evaluations, inner: KernelQuadrature, outer: KernelQuadrature
) -> Terms:
    """Levels as published: each with θ of its own, and each θ with inner points of its own."""
    problem = evaluations.problem
    grids = evaluations.design.grids
    last = len(grids) - 1
    theta = evaluations.outer(last).theta[:_TUNING_ROWS]
    points = evaluations.inner(theta, (0, len(theta)), last)
    recipe = inner.tuned(
        [
            (nodes, block.reshape(len(block), -1))
            for nodes, block in zip(
                nodes_on(inner.space, points.uniform, points.x),
                evaluations.values(len(theta), last),
                strict=False,
            )
        ]
    )
    levels: list[LevelTerm] = []
    described: list[Rule] = []
    sample: OuterSample | None = None
    for level, grid in enumerate(grids):
        sizes = (grid.n_inner,) if level == 0 else (grid.n_inner, grids[level - 1].n_inner)
        j = evaluations.fold(_PrefixRuleByTheta(recipe, sizes), level)
        outer_points = first_of(evaluations.outer(level), len(j))
        f = [call_f(problem, one, outer_points.theta) for one in np.moveaxis(j, 1, 0)]
        nodes = outer_nodes(outer, outer_points)
        settled = outer.for_law(problem.outer_law).tuned([(nodes, f[0])])
        assert settled.kernel is not None
        n, dim = nodes.shape
        settled = replace(settled, regularization=_outer_lambda(settled.kernel, n, dim))
        parts = halvings(n)
        rules = dict(zip(parts, settled.rules(nodes, parts, problem.outer_law), strict=True))
        levels.append(make_term(grid.n_inner, f[0] - f[1] if level else f[0], rules))
        described.append(rules[n])
        if sample is None:
            weights = repeated(rules[n].weights, f[0])
            sample = OuterSample(outer_points.theta, j[:, 0], f[0], weights)
    assert sample is not None
    return Terms(
        levels,
        {"kernel": f"{recipe.kernel!r} on {recipe.space}, median lengthscale for each theta"},
        {"kernel": f"{outer.kernel!r} on {outer.space}", **describe_rules(described)},
        sample,
        [],
    )


@dataclass(frozen=True)
class _PrefixRuleByTheta:
    """Kernel weights for each θ on the first inner points, for several numbers of them."""

    recipe: KernelQuadrature
    sizes: tuple[int, ...]

    @property
    def views(self) -> tuple[str, ...]:
        return ("full", "coarse")[: len(self.sizes)]

    @property
    def whole_rows(self) -> int | None:
        return max(1, _GRAM_NUMBERS // self.sizes[0] ** 2)

    def reduce(self, values: Array, span: Span, points: InnerPoints | None) -> Array:
        assert points is not None
        assert self.recipe.kernel is not None
        nodes = nodes_on(self.recipe.space, points.uniform, points.x)
        nodes = np.broadcast_to(nodes, (values.shape[0], *nodes.shape[1:]))
        medians = np.array([[median_lengthscale(one)] * one.shape[1] for one in nodes])
        recipe = replace(self.recipe, kernel=self.recipe.kernel.with_lengthscale(medians))
        found = recipe.rules_by_set(nodes, self.sizes, points.law)
        parts = [
            weighted_sum(values[:, :size], np.stack([rules[view].weights for rules in found]))
            for view, size in enumerate(self.sizes)
        ]
        return np.stack(parts, axis=1)


def _outer_lambda(kernel: Kernel, n: int, dim: int) -> float:
    """λ_Θ ∝ T^(-2s/(2s + d)): more than for exact values, since corrections are noisy in θ."""
    s = kernel.smoothness(dim)
    exponent = 1.0 if np.isinf(s) else 2.0 * s / (2.0 * s + dim)
    return float(_LAMBDA0 * n**-exponent)
