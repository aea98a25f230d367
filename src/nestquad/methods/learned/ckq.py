"""Conditional kernel quadrature: a Gaussian process of J from estimates at a few θ."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from nestquad._checks import whole
from nestquad._typing import Array
from nestquad.accuracy import propagated
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError, call_f, outer_points
from nestquad.methods._method import Goal, Turn
from nestquad.methods.learned._base import Fit, Learned, LearnedMethod
from nestquad.methods.learned._inner_means import INNER, inner_means
from nestquad.methods.learned._surrogate_model import (
    KindSearch,
    SurrogateModel,
    fit_surrogate_model,
    scores_of,
)
from nestquad.points import Sequence, as_sequence
from nestquad.problem import NestedExpectation

__all__ = ["CKQ"]


@dataclass(frozen=True)
class CKQ(LearnedMethod[SurrogateModel]):
    """Conditional kernel quadrature with a dense outer average.

    J is smooth even where f has kinks or jumps. So J is estimated well at a few θ, a Gaussian
    process with nugget learns it over all θ, and f(Ĵ) is averaged over any number of θ,
    which costs no evaluation of g.

    Parameters
    ----------
    n_outer, n_inner
        T and N; where None, both grow where the error is predicted to fall most.
    positive
        Model log J (True), J (False), or whichever predicts left-out points better (None).

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.finance()
    >>> est = nq.estimate(problem, method="ckq", budget=2048, rng=0)
    >>> bool(abs(est.value - problem.exact) < 0.02)
    True
    """

    name: ClassVar[str] = "ckq"
    stepwise: ClassVar[bool] = True
    fewest: ClassVar[int] = 24
    most_outer: ClassVar[int] = 256  # θ of a dense process: more are slower than most g
    longest_turn: ClassVar[float] = 9.0

    n_outer: int | None = None
    n_inner: int | None = None
    positive: bool | None = None

    def __post_init__(self) -> None:
        for argument, least in (("n_outer", 6), ("n_inner", 2)):
            if (size := getattr(self, argument)) is not None:
                expected = f"an integer of at least {least}"
                whole(argument, size, expected, least=least, below=np.inf)

    def sized(
        self,
        problem: NestedExpectation,
        goal: Goal,
        n: int,
        last: Turn[Learned[SurrogateModel]] | None,
    ) -> Design | None:
        if last is not None:
            (grid,) = last.design.grids
            n_outer, n_inner = self._split(problem, grid, n, last.state)
            n_outer = min(n_outer, grid.outer_points.max_points or n_outer)
            n_inner = min(n_inner, grid.inner_points.max_points or n_inner)
            if n_outer * n_inner < 1.1 * grid.span.size:
                return None
            return Design((replace(grid, n_outer=n_outer, n_inner=n_inner),))
        dim, inner_dim = problem.outer_law.base_dim, problem.inner_base_dim
        # Few enough θ to leave most of a small budget to the inner stage.
        n_outer = self.n_outer or (12 if dim == 1 else 2 ** int(np.ceil(np.log2(2 * dim + 12))))
        n_inner = self.n_inner or max(2, min(8, (goal.budget or 8 * n_outer) // n_outer))
        grid = Grid(
            n_outer,
            n_inner,
            _sequence(dim),
            _sequence(inner_dim),
            32 if inner_dim <= 3 else None,  # kernel weights need few different point sets
            goal.stream,
            # Without a stretch of the scores of θ the surrogate extrapolates in the tails, and that
            # is where the error then comes from.
            outer_scale=1.0 + 0.4 / dim**0.5,
        )
        return Design((grid,))

    def _split(
        self, problem: NestedExpectation, grid: Grid, n: int, state: Learned[SurrogateModel]
    ) -> tuple[int, int]:
        """T and N, whose product is about n and whose predicted error is least."""
        if self.n_outer is not None and self.n_inner is not None:
            return grid.n_outer, grid.n_inner
        if self.n_outer is not None:
            return grid.n_outer, n // grid.n_outer
        if self.n_inner is not None:
            return max(grid.n_outer, min(n // grid.n_inner, CKQ.most_outer)), grid.n_inner
        kernel = state.model.means.by_kernel
        factors = ((1, 2), (2, 1)) if n < 4 * grid.span.size else ((1, 8), (2, 4), (4, 2), (8, 1))
        forecast = _SplitForecast(problem, grid, state)
        for outer, inner in sorted(factors, key=lambda pair: forecast.error(*pair)):
            # Inner points double, since sequences are even at powers of two; T takes the rest.
            n_inner = grid.n_inner * inner
            if kernel and outer == 1:
                n_inner = n // grid.n_outer  # weights make up for uneven points
            if kernel and n_inner > INNER.nodes:
                continue
            n_outer = n // n_inner
            if grid.n_outer <= n_outer <= CKQ.most_outer:
                return n_outer, n_inner
        n_outer = min(max(grid.n_outer, n // grid.n_inner), CKQ.most_outer)
        return n_outer, n // n_outer

    def fit(
        self, evaluations: Evaluations, last: Turn[Learned[SurrogateModel]] | None
    ) -> Fit[SurrogateModel]:
        problem = evaluations.problem
        (grid,) = evaluations.design.grids
        uniform = evaluations.outer().uniform
        assert uniform is not None
        scalar = evaluations.values(1).ndim == 2

        def f(j: Array) -> Array:
            argument = j[:, 0] if scalar else j
            return call_f(problem, argument, argument.reshape(len(j), -1), require_finite=False)

        # The design is wider than the law of θ.
        stretch = 0.5 * (1.0 - grid.outer_scale**-2)
        weights = np.exp(-stretch * (ndtri(uniform) ** 2).sum(axis=1))
        means = inner_means(
            evaluations,
            weights / weights.sum(),
            lambda j: bool(np.isfinite(f(j)).all()),
        )
        rows = means.j.shape[1]
        if rows < 6:  # time may have ended before all rows were there
            raise OutOfTimeError(f"time ran out after {rows} theta", advice="Raise max_seconds.")
        search = KindSearch() if last is None else deepcopy(last.state.model.search)
        model = fit_surrogate_model(
            problem.outer_law,
            uniform[:rows],
            weights[:rows] / weights[:rows].sum(),
            means,
            f,
            self.positive,
            search,
        )
        return Fit(model, scalar, rows, grid.n_inner, reliable=model.plausible)


@dataclass(frozen=True, eq=False)
class _SplitForecast:
    """Predicted errors of the final answer with more θ, or more x for each θ."""

    problem: NestedExpectation
    grid: Grid
    state: Learned[SurrogateModel]

    def error(self, outer: int, inner: int) -> float:
        """Error with T times `outer` and N times `inner`; more θ also cost time."""
        model, parts = self.state.model, self.state.parts
        if not model.plausible:  # a surrogate needs better values first
            return float(outer)
        shrink = 2.0**-model.means.expected_rate
        noisier = self._variance(1, shrink**-2)
        less = shrink ** (2 * np.log2(inner))
        # Half of the inner points also have more noise; only the rest of the change is bias.
        bias = max(self._inner_change() ** 2 - noisier, 0.0)
        # No design lowers the error of the dense average.
        total = self._variance(outer, less) + less * bias
        error = np.sqrt(total + parts["average"] ** 2)
        return float(error * (1.0 + 0.05 * np.log2(outer)))

    def _inner_change(self) -> float:
        """Change of the final answers by the last halvings of the inner points, the largest."""
        model, scalar = self.state.model, self.state.scalar
        base = model.sketch
        moved = [base.j, *(base.j + change for change in model.inner_changes())]
        averages = [
            call_f(self.problem, j[:, 0] if scalar else j, j, require_finite=False).mean(axis=0)
            for j in moved
        ]
        changes = np.nan_to_num(np.array([one - averages[0] for one in averages]))
        return float(np.abs(propagated(self.problem, self.state.answers, changes)).max())

    def _variance(self, outer: int, noise_ratio: float) -> float:
        """Variance of the answer to first order, with other noise and more design points."""
        model = self.state.model
        design: Array | None = None
        n_outer = outer * self.grid.n_outer
        if outer > 1 and n_outer <= CKQ.most_outer:
            points = outer_points(self.problem, replace(self.grid, n_outer=n_outer), 0, n_outer)
            assert points.uniform is not None
            design = scores_of(model.law, points.uniform)
        elif outer > 1:  # among many points, more of them are like less noise in each
            noise_ratio /= outer
        uniform = model.sketch.uniform[::2]
        z, slopes = scores_of(model.law, uniform), self._slopes(uniform)
        total = np.zeros(len(slopes))
        for c, gp in enumerate(model.surrogate.outputs):
            covariance = gp.covariance(z, design, noise_ratio)
            total += np.einsum("kn,nm,km->k", slopes[:, :, c], covariance, slopes[:, :, c])
        return float(np.maximum(total, 0.0).max())

    def _slopes(self, uniform: Array) -> Array:
        """Derivative of the final answers in the modelled values at θ, (k, n, p)."""
        surrogate = self.state.model.surrogate
        z = scores_of(self.state.model.law, uniform)
        mean = surrogate.mean(z)
        step = np.maximum(surrogate.sd(z), 1e-7 * (np.abs(mean).mean(axis=0) + 1e-300))
        slopes = []
        for c in range(mean.shape[1]):
            shift = step * (np.arange(mean.shape[1]) == c)
            sides = [mean + shift, mean - shift]
            if self.state.scalar:
                sides = [side[:, 0] for side in sides]
            up, down = (call_f(self.problem, j, uniform, require_finite=False) for j in sides)
            scale = mean[:, c] if surrogate.kind.logarithm else surrogate.scale[c]
            slope = np.nan_to_num((up - down) / (2.0 * step[:, c] / scale)[:, None])
            slopes.append(propagated(self.problem, self.state.answers, slope / len(z)))
        return np.moveaxis(np.stack(slopes, axis=-1), 1, 0)


def _sequence(dim: int) -> Sequence:
    """A shifted grid in one dimension, Sobol' points beyond."""
    return as_sequence("lattice" if dim == 1 else "sobol")
