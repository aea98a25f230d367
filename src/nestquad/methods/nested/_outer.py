"""Outer rules: the expectation of f(J) from T points, and its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.accuracy import linearized_covariance
from nestquad.distributions import Law
from nestquad.evaluate import OuterPoints
from nestquad.gp import amplitude, restricted_likelihood
from nestquad.quadrature import KernelQuadrature, nodes_on
from nestquad.result import NORMAL_95
from nestquad.rules import Rule, factorize

Finish = Callable[[Array], Array]


@dataclass(frozen=True)
class OuterFit:
    """Weights (T, q) of the θ, and directions (k, m) of the final answers' outer error.

    `interpolated` if the weights integrate an interpolant of f(J), not its plain average.
    """

    weights: Array
    directions: Array
    diagnostics: dict[str, Any]
    interpolated: bool = False
    sum_abs_weights: float = 1.0


def mean_outer(finish: Finish, f_values: Array, blocks: int | None = None) -> OuterFit:
    """Equal weights: the central limit theorem for θ, or for means of blocks of them.

    At independent θ each is a block. Blocks of a Sobol sequence are low-discrepancy sets
    themselves, and the whole is more even than independent sets would be, so that the spread of
    their means is an upper estimate. Differences of prefixes are smaller, but vanish by accident.
    """
    n = f_values.shape[0]
    answers = f_values.mean(axis=0)
    means = f_values
    if blocks is not None:
        parts = np.array_split(f_values, min(blocks, max(n // 2, 2), n))
        means = np.stack([part.mean(axis=0) for part in parts])
    if len(means) < 2:  # time ran out after one θ, which shows no spread
        directions = _subset_directions([np.atleast_1d(finish(answers))])
    else:
        covariance = np.atleast_2d(np.cov(means, rowvar=False)) / len(means)
        # Student's factor: a variance from few values is itself uncertain.
        covariance *= (stdtrit(len(means) - 1, 0.975) / NORMAL_95) ** 2
        directions = linearized_covariance(finish, answers, covariance)
    return OuterFit(np.full(f_values.shape, 1.0 / n), directions, {"rule": "mean"})


def kernel_outer(
    finish: Finish,
    recipes: Sequence[KernelQuadrature],
    points: OuterPoints,
    law: Law,
    f_values: Array,
) -> OuterFit:
    """Kernel weights: one recipe for all answers, or one each."""
    n, q = f_values.shape
    spread = f_values.std(axis=0)
    scaled = f_values / np.where(spread > 0, spread, 1.0)
    columns = [slice(0, q)] if len(recipes) == 1 else [slice(k, k + 1) for k in range(q)]
    tuned = [
        _tuned_on_the_roughest(recipe, points, scaled[:, column])
        for recipe, column in zip(recipes, columns, strict=True)
    ]
    nodes = [nodes_on(recipe.space, points.uniform, points.theta) for recipe in tuned]
    sizes = _subset_sizes(n)
    by_recipe = [recipe.rules(x, sizes, law) for recipe, x in zip(tuned, nodes, strict=True)]

    def answers(which: int) -> Array:
        parts = [
            rules[which].integrate(f_values[: sizes[which], column])
            for rules, column in zip(by_recipe, columns, strict=True)
        ]
        return np.concatenate(parts)

    weights = np.empty((n, q))
    variances = np.empty(q)
    for recipe, x, rules, column in zip(tuned, nodes, by_recipe, columns, strict=True):
        weights[:, column] = rules[0].weights[:, None]
        variances[column] = interpolation_variance(recipe, rules[0], x, f_values[:, column])
    return OuterFit(
        weights,
        np.concatenate(
            [
                _subset_directions([np.atleast_1d(finish(answers(i))) for i in range(len(sizes))]),
                linearized_covariance(finish, answers(0), np.diag(variances)),
            ],
            axis=1,
        ),
        {
            "rule": "kernel quadrature",
            "kernel": [f"{recipe.kernel!r} on {recipe.space}" for recipe in tuned],
            **describe_rules([rules[0] for rules in by_recipe]),
        },
        interpolated=True,
        sum_abs_weights=max(rules[0].sum_abs_weights for rules in by_recipe),
    )


def _tuned_on_the_roughest(
    recipe: KernelQuadrature, points: OuterPoints, values: Array
) -> KernelQuadrature:
    """One recipe for several answers (T, q), tuned on the least regular of them.

    Pooled likelihoods would follow the smooth answers, and their long lengthscales amplify
    roughness and noise of the others.
    """
    nodes = nodes_on(recipe.space, points.uniform, points.theta)
    if values.shape[1] == 1 or not recipe.needs_values:
        return recipe.tuned([(nodes, values)])

    def likelihood(candidate: KernelQuadrature, column: Array) -> float:
        assert candidate.kernel is not None
        few = slice(0, 48)  # a likelihood of 48 nodes tells rough from smooth, at no cost
        own = nodes_on(candidate.space, points.uniform, points.theta)
        return restricted_likelihood(candidate.kernel, own[few], column[few])

    columns = [column[:, None] for column in values.T if np.ptp(column) > 0] or [values[:, :1]]
    candidates = [(recipe.tuned([(nodes, column)]), column) for column in columns]
    return min(candidates, key=lambda candidate: likelihood(*candidate))[0]


def cancellation(method: str, **sum_abs_weights: float) -> tuple[str, ...]:
    """Warnings about stages whose weights cancel, which amplifies errors of the values."""
    return tuple(
        f"The {stage} weights of {method!r} cancel each other (their absolute values sum to "
        f"{size:.3g}), which amplifies every error in the values. Use Jitter() as regularization, "
        "a rougher kernel, or Sobol points."
        for stage, size in sum_abs_weights.items()
        if size > 10.0
    )


def describe_rules(rules: Sequence[Rule]) -> dict[str, object]:
    """The figures of merit of some rules, the worst of each, with a note where it matters."""
    worst = max(rule.sum_abs_weights for rule in rules)
    ridge = max(rule.ridge for rule in rules)
    report: dict[str, object] = {
        "sum_abs_weights": worst,
        "ridge": ridge,
        "condition": float(np.fmax.reduce([rule.condition for rule in rules])),
        "worst_case_error": max(rule.worst_case_error for rule in rules),
    }
    notes = []
    if worst > 2.0:
        notes.append(
            f"weights cancel each other (sum of absolute values {worst:.3g}): errors in the values "
            "are amplified"
        )
    if ridge > 1e-6:
        notes.append(f"a ridge of {ridge:.1g} was added to keep the weights tame")
    if notes:
        report["notes"] = notes
    return report


def interpolation_variance(
    recipe: KernelQuadrature, rule: Rule, nodes: Array, values: Array
) -> Array:
    """Variance (q,) of a kernel rule's integral of values (n, q).

    The larger of the posterior variance and ¼ Σ w² r², with the root mean square r of leave-one-out
    residuals: the part of a value that its neighbors do not predict acts as noise under any
    kernel. Errors of neighbors cancel in part. On families of random problems half of the error
    covers in 97 % of runs, at bars two thirds as wide as all of it.
    Both from 256 nodes: more change them little and cost n³.
    """
    few_nodes, few = nodes[:256], values[:256]
    assert recipe.kernel is not None
    gram = recipe.kernel(few_nodes, few_nodes)
    factor = factorize(gram, 1e-9 * float(np.mean(np.diagonal(gram))))
    if factor is None:
        return np.full(values.shape[1], np.nan)
    centered = few - few.mean(axis=0)
    residuals = factor.solve(centered) / factor.inverse_diagonal()[:, None]
    unlearned = np.minimum(np.mean(residuals**2, axis=0), np.mean(centered**2, axis=0))
    posterior = rule.posterior_variance * amplitude(factor, few)
    return np.asarray(np.fmax(posterior, 0.25 * (rule.weights @ rule.weights) * unlearned))


def _subset_sizes(n: int) -> list[int]:
    return [size for size in (n, n // 2, n // 4) if size == n or size >= 4]


def _subset_directions(finals: Sequence[Array]) -> Array:
    """Differences between the answers of nested subsets of the outer points, (k, m).

    One difference may vanish by accident, so the step before it (a quarter against a half, scaled
    by the slowest rate that is plausible) is a second direction.
    """
    if len(finals) < 2:
        return np.abs(finals[0])[:, None]
    steps = [larger - smaller for larger, smaller in pairwise(finals)]
    return np.stack([0.5**i * step for i, step in enumerate(steps)], axis=1)
