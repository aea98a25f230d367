"""Terms of multilevel kernel quadrature: the contribution of each level, and its error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from nestquad._typing import Array
from nestquad.evaluate import Design, Evaluations, InnerPoints, OuterPoints, call_f
from nestquad.kernels import Kernel
from nestquad.methods.multilevel._levels import remaining_error
from nestquad.methods.nested import (
    KernelRuleByTheta,
    describe_rules,
    weighted_sum,
)
from nestquad.problem import NestedExpectation
from nestquad.quadrature import KernelQuadrature, nodes_on
from nestquad.result import OuterSample
from nestquad.rules import Rule

Finish = Callable[[Array], Array]


@dataclass(frozen=True)
class StaircaseSettings:
    """Numbers of multilevel kernel quadrature.

    Attributes
    ----------
    pilot
        Evaluations of the first turn towards a tolerance.
    fewest
        Fewer evaluations do not show convergence: 256 are 32 θ on the coarsest of three levels.
    stretch
        Additional spread of θ in one dimension, over the squared dimension: it sees the tails,
        which are otherwise missed by a bias that no subset reveals.
    aim
        Share of the requested half-width at which a turn aims.
    halvings
        The error of a level is judged by half of its θ, a quarter and an eighth.
    rate, rate_independent
        A doubling of points divides errors by 2^rate: order one for points that levels share, and
        that of Monte Carlo for independent ones.
    tuning_rows, tuning_columns
        θ and x whose values tune the inner kernel.
    """

    pilot: int = 768
    fewest: int = 256
    stretch: float = 0.25
    aim: float = 0.9
    halvings: int = 3
    rate: float = 1.0
    rate_independent: float = 0.5
    tuning_rows: int = 8
    tuning_columns: int = 64


STAIRS = StaircaseSettings()


@dataclass(frozen=True)
class LevelTerm:
    """Contribution of a level to the q expectations: answers (m, q) from all θ, half, a quarter."""

    n_outer: int
    n_inner: int
    answers: Array


@dataclass(frozen=True)
class Terms:
    """All levels, descriptions of the rules, and the θ of the base level.

    `values` (n[, p]) are values of g at the inner points of the finest level: means over its θ
    where they share the points, J where they do not.
    """

    levels: list[LevelTerm]
    values: Array
    inner: dict[str, Any]
    outer: dict[str, Any]
    sample: OuterSample
    notes: list[str]
    sum_abs_weights: dict[str, float]


@dataclass(frozen=True)
class Assembled:
    """The sum of the terms with its errors, for k final answers.

    Attributes
    ----------
    answers
        The q expectations.
    change
        Effect of each level on the final answers, (L, k).
    outer
        Directions of the error from the finite numbers of θ, one for each level, (k, L): the effect
        of halving them, continued.
    inner
        Direction of the error of the finest level's inner rule, (k, 1).
    missed
        Error from values of g that no inner point has shown, (k, q).
    """

    answers: Array
    change: Array
    outer: Array
    inner: Array
    missed: Array


def assemble(levels: Sequence[LevelTerm], finish: Finish, rate: float = STAIRS.rate) -> Assembled:
    """Add up the levels.

    The error of a level is judged by the effect of halving its θ, that of the inner rules by the
    effect of the last doublings of N. A doubling is taken to divide both by 2^rate.
    """
    answers = np.sum([level.answers[0] for level in levels], axis=0)
    value = np.atleast_1d(finish(answers))

    def effect(part: Array) -> Array:
        return np.atleast_1d(value - finish(answers - part))

    change = np.stack([effect(level.answers[0]) for level in levels])
    halved = np.zeros((STAIRS.halvings, len(levels), value.size))
    for i, level in enumerate(levels):
        for j, part in enumerate(level.answers[1:]):
            halved[j, i] = effect(level.answers[0] - part)
    outer = remaining_error(np.sqrt((halved**2).sum(axis=1))[::-1], rate)
    inner = remaining_error(np.abs(change[1:]), rate)
    last = np.sqrt((halved[0] ** 2).sum(axis=0))
    columns = halved[0].T * (outer / np.where(last > 0, last, 1.0))[:, None]
    columns[:, 0] += np.where(last > 0, 0.0, outer)  # halves that agree by accident have no shares
    signs = np.where(change[-1:].T < 0, -1.0, 1.0)
    missed = np.zeros((value.size, 1))
    return Assembled(answers, change, columns, inner[:, None] * signs, missed)


def shared_terms(
    evaluations: Evaluations, inner: KernelQuadrature, outer: KernelQuadrature
) -> Terms:
    """Levels that share one sequence of θ and one of inner points.

    Differences between levels are then smooth in θ, and one factorisation for θ and one for x
    give all weights.
    """
    problem = evaluations.problem
    # Levels are grids on the same points, so common points are evaluated once. The finest comes
    # first: if time runs out there, the coarser ones still have its rows.
    grids = evaluations.design.grids
    views = [Evaluations(evaluations.evaluator, Design((grid,))) for grid in grids]
    for view, grid in zip(reversed(views), reversed(grids), strict=True):
        view.values(grid.n_outer)
    values = [view.values(grid.n_outer) for view, grid in zip(views, grids, strict=True)]
    points = views[0].outer()
    inner_points = views[-1].inner(points.theta[:1], (0, 1))
    inner, inner_rules, j = min(
        (_fit_inner(part, inner_points, values) for part in _on_each_space(inner)),
        key=_unsteadiness,
    )
    f = [call_f(problem, part, points.theta[: len(part)], require_finite=False) for part in j]
    base = _first_usable(problem, j, f, points.theta)
    sizes = sorted({m for part in f[base:] for m in halvings(len(part))}, reverse=True)
    n = sizes[0]
    points = _first(points, n)
    spread = f[base].std(axis=0)
    scaled = f[base] / np.where(spread > 0, spread, 1.0)
    outer = outer.tuned([(nodes_on(outer.space, points.uniform, points.theta), scaled)])
    at = nodes_on(outer.space, points.uniform, points.theta)
    rules = dict(zip(sizes, outer.rules(at, sizes, problem.outer_law), strict=True))
    levels = []
    for level in range(base, len(f)):
        change = f[level] if level == base else f[level] - f[level - 1][: len(f[level])]
        levels.append(_term(grids[level].n_inner, change, rules))
    # Plots show the best J that is known of each θ.
    best_j, best_f = j[base].copy(), f[base].copy()
    for level in range(base + 1, len(f)):
        best_j[: len(j[level])] = j[level]
        best_f[: len(f[level])] = f[level]
    return Terms(
        levels,
        values[-1].mean(axis=0),
        {"kernel": f"{inner.kernel!r} on {inner.space}", **describe_rules([inner_rules[-1]])},
        {"kernel": f"{outer.kernel!r} on {outer.space}", **describe_rules([rules[n]])},
        OuterSample(points.theta, best_j, best_f, _repeated(rules[n].weights, best_f)),
        []
        if base == 0
        else [f"f is not finite on the {base} coarsest level(s), which are left out"],
        {"inner": inner_rules[-1].sum_abs_weights, "outer": rules[n].sum_abs_weights},
    )


def _on_each_space(recipe: KernelQuadrature) -> list[KernelQuadrature]:
    """The recipe on both scales where it leaves the choice to the levels."""
    if recipe.space != "auto" or recipe.kernel is not None:
        return [recipe]
    return [replace(recipe, space="uniform"), replace(recipe, space="normal")]


def _fit_inner(
    recipe: KernelQuadrature, points: InnerPoints, values: Sequence[Array]
) -> tuple[KernelQuadrature, list[Rule], list[Array]]:
    """The tuned recipe, its rules on all levels, and J (T_l[, p]) by level.

    It is tuned on a few rows of the coarsest level that has enough columns, or the most columns.
    """
    nodes = nodes_on(recipe.space, points.uniform, points.x)[0]
    enough = min(STAIRS.tuning_columns, values[-1].shape[1])
    block = next(block for block in values if block.shape[1] >= enough)
    block = block[: STAIRS.tuning_rows, :enough]
    block = block.reshape(*block.shape[:2], -1)
    spread = block.std(axis=(0, 1))
    block = block / np.where(spread > 0, spread, 1.0)
    columns = np.moveaxis(block, 0, -1).reshape(enough, -1)
    recipe = recipe.tuned([(nodes[:enough], columns)])
    nodes = nodes_on(recipe.space, points.uniform, points.x)[0]
    rules = recipe.rules(nodes, [block.shape[1] for block in values])
    j = [weighted_sum(block, rule.weights) for block, rule in zip(values, rules, strict=True)]
    return recipe, rules, j


def _unsteadiness(fit: tuple[KernelQuadrature, list[Rule], list[Array]]) -> float:
    """Size of the changes of J by the last two doublings of N, over all θ that saw them."""
    j = fit[2][-3:]
    # Where θ has no influence there is no spread to compare with, but J itself.
    spread = np.maximum(np.std(j[0], axis=0), 1e-8 * np.abs(j[0]).mean(axis=0)) + 1e-300
    changes = [(more - fewer[: len(more)]) / spread for fewer, more in pairwise(j)]
    return float(np.sum([2.0 * np.log(_rms(change) + 1e-150) for change in changes]))


def _rms(change: Array) -> float:
    largest = float(np.abs(change).max())
    return largest * float(np.sqrt(np.mean((change / max(largest, 1e-300)) ** 2)))


def _first_usable(
    problem: NestedExpectation, j: Sequence[Array], f: Sequence[Array], theta: Array
) -> int:
    """The coarsest level from which on f is finite: weights may be negative, and J with them."""
    for level in range(len(f) - 1, -1, -1):
        if not np.isfinite(f[level]).all():
            if level == len(f) - 1:
                call_f(problem, j[level], theta[: len(j[level])])  # raises, saying where
            return level + 1
    return 0


def _term(n_inner: int, change: Array, rules: Mapping[int, Rule]) -> LevelTerm:
    parts = [rules[m].integrate(change[:m]) for m in halvings(len(change))]
    return LevelTerm(len(change), n_inner, np.stack(parts))


def halvings(n: int) -> list[int]:
    return [n >> j for j in range(STAIRS.halvings + 1) if n >> j]


def _first(points: OuterPoints, n: int) -> OuterPoints:
    return OuterPoints(points.theta[:n], None if points.uniform is None else points.uniform[:n])


def _repeated(weights: Array, like: Array) -> Array:
    return np.repeat(weights[:, None], like.shape[1], axis=1)


def independent_terms(
    evaluations: Evaluations, inner: KernelQuadrature, outer: KernelQuadrature
) -> Terms:
    """Levels as published: independent θ for each level, independent inner points for each θ."""
    problem = evaluations.problem
    grids = evaluations.design.grids
    last = len(grids) - 1
    theta = evaluations.outer(last).theta[:8]  # rows on which the inner λ_0 is chosen
    points = evaluations.inner(theta, (0, len(theta)), last)
    node_sets = nodes_on(inner.space, points.uniform, points.x)
    rows = zip(node_sets, evaluations.values(len(theta), last), strict=False)
    recipe = inner.tuned([(nodes, row.reshape(len(row), -1)) for nodes, row in rows])
    levels: list[LevelTerm] = []
    described: list[Rule] = []
    sample: OuterSample | None = None
    for level, grid in enumerate(grids):
        sizes = (grid.n_inner,) if level == 0 else (grid.n_inner, grids[level - 1].n_inner)
        j = evaluations.fold(KernelRuleByTheta(recipe, sizes, True), level)
        outer_points = _first(evaluations.outer(level), len(j))
        f = [call_f(problem, part, outer_points.theta) for part in np.moveaxis(j, 1, 0)]
        nodes = nodes_on(outer.space, outer_points.uniform, outer_points.theta)
        tuned = outer.tuned([(nodes, f[0])])
        assert tuned.kernel is not None
        n, dim = nodes.shape
        tuned = replace(tuned, regularization=_outer_lambda(tuned.kernel, n, dim))
        parts = halvings(n)
        rules = dict(zip(parts, tuned.rules(nodes, parts, problem.outer_law), strict=True))
        levels.append(_term(grid.n_inner, f[0] - f[1] if level else f[0], rules))
        described.append(rules[n])
        if sample is None:
            weights = _repeated(rules[n].weights, f[0])
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
