"""Inner rules: J(θ) from the values of g at one θ, and from fewer of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nestquad import limits
from nestquad._typing import Array
from nestquad.accuracy import takes
from nestquad.evaluate import InnerPoints, InnerRule, Span, call_f, f_or_nan
from nestquad.gp import median_lengthscale
from nestquad.problem import NestedExpectation
from nestquad.quadrature import KernelQuadrature, nodes_on


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
        return max(1, limits.GRAM_NUMBERS // self.sizes[0] ** 2)

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
) -> list[Array]:
    """Changes of f(J) (T, q) that the noise of J may hide, from means of two halves of the points.

    The first is to a J shrunk by its noise, of log J where f needs J > 0: noise is relative then.
    The second is for an f with steps, and is the mean of f at J moved up and down by its noise: if
    J has an atom next to a step, the noise carries half of it across.
    """
    half, other = halves
    positive = min(half.min(), other.min()) > 0 and not takes(problem, -full)
    j = np.exp(_shrunk(*np.log([half, other, full]))) if positive else _shrunk(half, other, full)
    changes = [call_f(problem, j, theta, require_finite=False) - f_values]
    steps = np.array([_has_steps(column) for column in f_values.T])
    if steps.any():
        noise = np.atleast_1d(np.sqrt(np.mean((half - other) ** 2, axis=0)) / 2.0)
        moves = np.diag(noise) if full.ndim > 1 else noise
        sides = [[f_or_nan(problem, full + s * move) for s in (1, -1)] for move in moves]
        spread = np.sum([(up + down) / 2.0 - f_values for up, down in sides], axis=0)
        changes.append(np.where(steps, spread, 0.0))
    return [np.where(np.isfinite(change), change, 0.0) for change in changes]


def _has_steps(f_values: Array) -> bool:
    """Whether f(J) (T,) differs from its usual value by few different amounts, if it does."""
    events = f_values[f_values != np.median(f_values)]
    return bool(np.unique(events).size <= events.size / 4)


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
