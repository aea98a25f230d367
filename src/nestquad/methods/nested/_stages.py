"""Inner rules: J(θ) from values of g. Outer rules: the expectation of f(J), and its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import stdtrit

from nestquad import limits
from nestquad._typing import Array
from nestquad.accuracy import linearized_covariance
from nestquad.distributions import Law
from nestquad.evaluate import InnerPoints, InnerRule, OuterPoints, Span, call_f
from nestquad.gp import median_lengthscale
from nestquad.problem import NestedExpectation
from nestquad.quadrature import KernelQuadrature, nodes_on
from nestquad.result import NORMAL_95
from nestquad.rules import Rule, factorize


@dataclass(frozen=True)
class InnerFit:
    """A rule for the inner stage, and its description."""

    rule: InnerRule
    diagnostics: dict[str, Any]
    sum_abs_weights: float = 1.0


def weighted_sum(values: Array, weights: Array) -> Array:
    """Σ_n w_n v_n along axis 1, for values (T, N[, p]) and weights (N,) or (T, N).

    einsum without BLAS: the bits of a row then do not depend on the number of rows.
    """
    subscripts = "tn...,n->t..." if weights.ndim == 1 else "tn...,tn->t..."
    return np.asarray(np.einsum(subscripts, values, weights))


@dataclass(frozen=True)
class MeanRule:
    """Equal weights; also the means of both halves of the inner points."""

    n_inner: int

    @property
    def views(self) -> tuple[str, ...]:
        return ("full",) if self.n_inner < 2 else ("full", "half", "other half")

    @property
    def whole_rows(self) -> int | None:
        return None

    def reduce(self, values: Array, span: Span, points: InnerPoints | None) -> Array:
        middle = self.n_inner // 2
        cut = min(max(middle - span.n0, 0), values.shape[1])
        first, second = values[:, :cut].sum(axis=1), values[:, cut:].sum(axis=1)
        full = (first + second) / self.n_inner
        if self.n_inner < 2:
            return np.asarray(full[:, None])
        return np.stack([full, first / middle, second / (self.n_inner - middle)], axis=1)


@dataclass(frozen=True)
class WeightedRule:
    """Weights independent of θ: (views, S, N) for S point sets that θ_t takes in turn.

    A view of fewer nodes has zeros at the others, which are skipped.
    """

    weights: Array
    views: tuple[str, ...]

    @property
    def whole_rows(self) -> int | None:
        return None

    def reduce(self, values: Array, span: Span, points: InnerPoints | None) -> Array:
        n_sets = self.weights.shape[1]
        sets = np.arange(span.t0, span.t1) % n_sets
        parts = []
        for view in self.weights:
            used = 1 + int(np.max(np.nonzero(view.any(axis=0))[0], initial=-1))
            stop = min(max(used, span.n0), span.n1)
            block = view[:, span.n0 : stop]
            by_row = block[0] if n_sets == 1 else block[sets]
            parts.append(weighted_sum(values[:, : stop - span.n0], by_row))
        return np.stack(parts, axis=1)


@dataclass(frozen=True)
class KernelRuleByTheta:
    """Kernel weights for each θ, whose points or embeddings differ.

    `sizes` are the numbers of inner points of each view, the first points of each θ.
    """

    recipe: KernelQuadrature
    sizes: tuple[int, ...]
    median_by_theta: bool

    @property
    def views(self) -> tuple[str, ...]:
        return ("full", *(f"first {size}" for size in self.sizes[1:]))

    @property
    def whole_rows(self) -> int | None:
        return max(1, limits.KERNEL_NUMBERS // self.sizes[0] ** 2)

    def reduce(self, values: Array, span: Span, points: InnerPoints | None) -> Array:
        assert points is not None
        nodes = nodes_on(self.recipe.space, points.uniform, points.x)
        nodes = np.broadcast_to(nodes, (values.shape[0], *nodes.shape[1:]))
        fitted = self._recipe(nodes).rules_by_set(nodes, self.sizes, points.law)
        parts = [
            weighted_sum(values[:, :size], np.stack([rules[view].weights for rules in fitted]))
            for view, size in enumerate(self.sizes)
        ]
        return np.stack(parts, axis=1)

    def _recipe(self, nodes: Array) -> KernelQuadrature:
        """The recipe, with a lengthscale for each θ where it asks for the median."""
        if not self.median_by_theta:
            return self.recipe
        assert self.recipe.kernel is not None
        medians = np.array(
            [[median_lengthscale(node_set)] * node_set.shape[1] for node_set in nodes]
        )
        return replace(self.recipe, kernel=self.recipe.kernel.with_lengthscale(medians))


def noise_changes(
    problem: NestedExpectation, halves: Sequence[Array], full: Array, f_values: Array, theta: Array
) -> Array:
    """Changes of f(J) (T, q) to a J shrunk by its noise, from means of two halves of the points."""
    half, other = halves
    j = _shrunk(half, other, full)
    change = call_f(problem, j, theta, require_finite=False) - f_values
    return np.where(np.isfinite(change), change, 0.0)


def _shrunk(half: Array, other: Array, full: Array) -> Array:
    """J (T[, p]) moved towards its mean over θ until its noise is gone from its covariance.

    Half the difference of two means of independent points has the covariance of their mean's
    noise. The linear map closest to the identity that turns Cov J into Cov J − noise is applied
    (Louis 1984, Estimating a population of parameter values).
    """
    rows, noise = full.reshape(len(full), -1), (half - other).reshape(len(full), -1) / 2.0
    mean = rows.mean(axis=0)
    _, sizes, axes = np.linalg.svd(rows - mean, full_matrices=False)
    seen = sizes > 1e-10 * sizes.max(initial=0.0)
    scale, axes = sizes[seen], axes[seen]
    white = noise @ (axes.T / scale)
    share, turn = np.linalg.eigh(white.T @ white)
    kept = (turn * np.sqrt(np.clip(1.0 - share, 0.0, 1.0))) @ turn.T
    move = (axes.T / scale) @ kept @ (scale[:, None] * axes)
    return np.asarray((mean + (rows - mean) @ move).reshape(full.shape))


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
        recipe.tuned([(nodes_on(recipe.space, points.uniform, points.theta), scaled[:, column])])
        for recipe, column in zip(recipes, columns, strict=True)
    ]
    nodes = [nodes_on(recipe.space, points.uniform, points.theta) for recipe in tuned]
    sizes = [size for size in (n, n // 2, n // 4) if size == n or size >= 4]
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
        variances[column] = _interpolation_variance(recipe, rules[0], x, f_values[:, column])
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


def _interpolation_variance(
    recipe: KernelQuadrature, rule: Rule, nodes: Array, values: Array
) -> Array:
    """Variance (q,) of a kernel rule's integral of values (n, q): ¼ Σ w² r².

    The root mean square r of leave-one-out residuals is the part of a value that its neighbors do
    not predict, which acts as noise under any kernel. Errors of neighbors cancel in part: on
    families of random problems half of the error covers in 97 % of runs, at bars two thirds as wide
    as all of it. From 256 nodes: more change r little and cost n³.
    """
    few_nodes, few = nodes[:256], values[:256]
    assert recipe.kernel is not None
    gram = recipe.kernel(few_nodes, few_nodes)
    factor = factorize(gram, 1e-9 * float(np.mean(np.diagonal(gram))))
    if factor is None:
        return np.full(values.shape[1], np.nan)
    centered = few - few.mean(axis=0)
    left_out = np.mean(factor.leave_one_out(centered) ** 2, axis=0)
    unlearned = np.minimum(left_out, np.mean(centered**2, axis=0))
    return np.asarray(0.25 * (rule.weights @ rule.weights) * unlearned)


def _subset_directions(finals: Sequence[Array]) -> Array:
    """Differences between the answers of nested subsets of the outer points, (k, m).

    One difference may vanish by accident, so the step before it (a quarter against a half, scaled
    by the slowest rate that is plausible) is a second direction.
    """
    if len(finals) < 2:
        return np.abs(finals[0])[:, None]
    steps = [larger - smaller for larger, smaller in pairwise(finals)]
    return np.stack([0.5**i * step for i, step in enumerate(steps)], axis=1)
