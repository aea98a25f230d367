"""Terms of multilevel kernel quadrature in the paper's form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nestquad.evaluate import Evaluations, call_f
from nestquad.kernels import Kernel
from nestquad.methods.multilevel._terms import (
    LevelTerm,
    Terms,
    first_of,
    halvings,
    make_term,
    outer_nodes,
    repeated,
)
from nestquad.methods.nested import KernelRuleByTheta, describe_rules
from nestquad.quadrature import KernelQuadrature, nodes_on
from nestquad.result import OuterSample
from nestquad.rules import Rule


def independent_terms(
    evaluations: Evaluations, inner: KernelQuadrature, outer: KernelQuadrature
) -> Terms:
    """Levels as published: independent θ for each level, independent inner points for each θ."""
    problem = evaluations.problem
    grids = evaluations.design.grids
    last = len(grids) - 1
    theta = evaluations.outer(last).theta[:8]  # rows on which the inner λ_0 is chosen
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
        j = evaluations.fold(KernelRuleByTheta(recipe, sizes, True), level)
        outer_points = first_of(evaluations.outer(level), len(j))
        f = [call_f(problem, part, outer_points.theta) for part in np.moveaxis(j, 1, 0)]
        nodes = outer_nodes(outer, outer_points)
        tuned = outer.tuned([(nodes, f[0])])
        assert tuned.kernel is not None
        n, dim = nodes.shape
        tuned = replace(tuned, regularization=_outer_lambda(tuned.kernel, n, dim))
        parts = halvings(n)
        rules = dict(zip(parts, tuned.rules(nodes, parts, problem.outer_law), strict=True))
        levels.append(make_term(grid.n_inner, f[0] - f[1] if level else f[0], rules, tuned, nodes))
        described.append(rules[n])
        if sample is None:
            weights = repeated(rules[n].weights, f[0])
            sample = OuterSample(outer_points.theta, j[:, 0], f[0], weights)
    assert sample is not None
    return Terms(
        levels,
        sample.j,
        {"kernel": f"{recipe.kernel!r} on {recipe.space}, median lengthscale for each theta"},
        {"kernel": f"{outer.kernel!r} on {outer.space}", **describe_rules(described)},
        sample,
        [],
        {"outer": max(rule.sum_abs_weights for rule in described)},
    )


def _outer_lambda(kernel: Kernel, n: int, dim: int) -> float:
    """λ_Θ ∝ T^(-2s/(2s + d)): more than for exact values, since corrections are noisy in θ."""
    s = kernel.smoothness(dim)
    exponent = 1.0 if np.isinf(s) else 2.0 * s / (2.0 * s + dim)
    return float(0.01 * n**-exponent)  # the paper leaves λ_0 open
