"""Nested Monte Carlo for repeated expectations: loops of all depths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from nestquad import limits
from nestquad._scale import require_size
from nestquad._typing import Array
from nestquad.accuracy import replicate_errors, size_of
from nestquad.errors import InputError
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError
from nestquad.methods._events import NO_VARIATION
from nestquad.methods._method import Goal, Method, Turn
from nestquad.methods.nested._stages import MeanRule
from nestquad.points import IID, Sequence, Stream
from nestquad.problem import NestedExpectation
from nestquad.repeated import RepeatedExpectation
from nestquad.result import Estimate, OuterSample

__all__ = ["RepeatedNMC"]


@dataclass(frozen=True)
class TreePoints(Sequence):
    """Independent uniforms behind y_0, y_1, …: each y_k has `sizes[k + 1]` different y_{k+1}.

    `dims` are the numbers of uniforms of each level.
    """

    name: ClassVar[str] = "tree"

    sizes: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def max_points(self) -> int:
        return int(np.prod(self.sizes))

    def _uniforms(
        self, stream: Stream, dim: int, sets: tuple[int, int], indices: tuple[int, int]
    ) -> Array:
        rows, parts = np.arange(*indices), []
        for level, size in enumerate(self.dims):
            node = rows // int(np.prod(self.sizes[level + 1 :]))
            span = (int(node[0]), int(node[-1]) + 1) if rows.size else (0, 0)
            parts.append(IID().uniforms(stream.child(level), size, (0, 1), span)[0][node - span[0]])
        return np.concatenate(parts, axis=1)[None]


@dataclass(frozen=True)
class TreeState:
    """Evaluations of all trees so far."""

    n_spent: int


@dataclass(frozen=True)
class RepeatedNMC(Method[TreeState]):
    """Nested Monte Carlo: independent draws in loops of all depths.

    With n_0 draws of y_0 and n of each further level, the mean square error is of the order
    1/n_0 + 1/n² for smooth f, so that n = √n_0 is optimal (Rainforth and others 2018, On nesting
    Monte Carlo estimators): n_0 = B^(2/(D+1)) of a budget B. The bias is estimated by means of half
    equal numbers of draws at every level but the first.

    Parameters
    ----------
    levels
        The repeated expectation.
    """

    name: ClassVar[str] = "nmc"
    plain: ClassVar[bool] = True
    averages: ClassVar[bool] = False
    start: ClassVar[int] = 4096
    """Evaluations of the first tree where a tolerance decides."""
    growth: ClassVar[int] = 4
    """Growth of trees: each has new draws, and the earlier ones are then a third of it."""

    levels: RepeatedExpectation = field(repr=False)

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[TreeState] | None = None
    ) -> Design | None:
        if last is not None and not goal.adaptive:
            return None
        spent = 0 if last is None else last.state.n_spent
        left = np.inf if goal.budget is None else goal.budget - spent
        size = self.growth * last.design.n_evaluations if last is not None else self.start
        if not goal.adaptive:
            size = goal.budget or size
        if last is not None and left < 2 * last.design.n_evaluations:
            return None
        sizes = self.split(int(min(size, left)))
        tree = TreePoints(sizes[:-1], self.levels.base_dims[:-1])
        stream = goal.stream.child(60, spent)
        return Design((Grid(tree.max_points, sizes[-1], tree, IID(), None, stream),))

    def split(self, budget: int) -> tuple[int, ...]:
        """Numbers of draws n_0, n, …, n of the levels."""
        depth = self.levels.depth
        n = max(2, round(budget ** (1.0 / (depth + 1))))
        first = budget // n ** (depth - 1)
        if first < 2:
            n, first = 2, budget // 2 ** (depth - 1)
        if first < 2:
            raise InputError(
                "budget", f"{budget} evaluations", f"at least {2**depth} for {depth} levels"
            )
        return first, *[n] * (depth - 1)

    def analyze(
        self, evaluations: Evaluations, last: Turn[TreeState] | None = None
    ) -> Turn[TreeState]:
        (grid,) = evaluations.design.grids
        assert isinstance(grid.outer_points, TreePoints)
        reduced = evaluations.fold(MeanRule(grid.n_inner))
        require_size(reduced)
        sizes = grid.outer_points.sizes
        each = int(np.prod(sizes[1:]))
        first = len(reduced) // each
        if first < 2:
            raise OutOfTimeError("time ran out before two y_0 were complete")
        theta, rows = evaluations.outer().theta[: first * each], first * each
        views = [self._tops(reduced[:rows, view], theta, sizes, view) for view in range(3)]
        (top, j), bias = views[0], (views[1][0] + views[2][0]) / 2.0 - views[0][0]
        answers, shift = top.mean(axis=0), bias.mean(axis=0)
        errors = np.concatenate([replicate_errors(top.T), shift[:, None]], axis=1)
        notes = [f"{first:,} draws of y0, and {grid.n_inner} of each further level"]
        if not np.ptp(top, axis=0).any():
            errors, notes = np.full((answers.size, 1), np.inf), [*notes, NO_VARIATION]
        shown = slice(None, None, -(-first // limits.PLOT_ROWS))
        n_spent = grid.n_outer * grid.n_inner
        y0 = self.levels.split(theta[::each])[0]
        weights = np.full(top[shown].shape, 1.0 / first)
        estimate = Estimate.from_directions(
            answers if answers.size > 1 else answers.reshape(()),
            errors,
            problem=evaluations.problem,
            diagnostics={
                "answers": answers,
                "error_parts": {"outer": size_of(errors[:, :-1]), "bias": size_of(shift[:, None])},
                "sizes": (*sizes, grid.n_inner),
                "notes": notes,
            },
            n_evaluations=n_spent,
            n_outer=grid.n_outer,
            n_inner=grid.n_inner,
            method=self.name,
            sample=OuterSample(y0[shown], j[shown], top[shown], weights),
        )
        before = 0 if last is None else last.state.n_spent
        return Turn(evaluations.design, estimate, TreeState(before + n_spent))

    def _tops(
        self, j: Array, theta: Array, sizes: tuple[int, ...], view: int
    ) -> tuple[Array, Array]:
        """f_0 (n_0, q) and J_1 at each y_0; views 1 and 2 take one half of the draws each."""
        y = self.levels.split(theta)
        for k in reversed(range(len(sizes))):
            values = self.levels.apply_f(k, j, y, finite=view == 0)
            if k == 0:
                return values.reshape(len(values), -1), j
            by_parent = values.reshape(-1, sizes[k], *values.shape[1:])
            half = sizes[k] // 2
            part = (slice(None), slice(half), slice(half, None))[view]
            j = by_parent[:, part].mean(axis=1)
            y = [level[:: sizes[k]] for level in y[:k]]
        raise AssertionError("a repeated expectation has at least one level above g")
