"""Multilevel Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from nestquad import limits
from nestquad._checks import number, whole
from nestquad._typing import Array
from nestquad.errors import InputError, NumericalError
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError, call_f, outer_points
from nestquad.methods._events import (
    floor_directions,
    rare_event_errors,
    unseen_value_errors,
    without_variation,
)
from nestquad.methods._method import Goal, Method, Turn, assembled
from nestquad.methods.multilevel._levels import (
    LEVELS,
    LevelMoments,
    LevelSummary,
    best_sizes,
    decay_rate,
    steady_variances,
    summarize,
)
from nestquad.methods.nested import (
    MeanRule,
    WeightedRule,
    noise_changes,
)
from nestquad.points import IID
from nestquad.problem import NestedExpectation
from nestquad.result import NORMAL_95, OuterSample

__all__ = ["MLMC"]


@dataclass(frozen=True)
class MLMC(Method[LevelSummary]):
    """Multilevel Monte Carlo: a telescoping sum over numbers of inner draws.

    Level l has N_l = `n_coarsest` 2^l inner draws and estimates the change from N_l/2 to N_l; most
    θ are spent where that is cheap. Towards a tolerance, variances are estimated level by level, θ
    are distributed by Giles' optimal allocation, and levels are added until the remaining bias is
    small; the coarsest level that pays is found as well. For a budget alone the sizes come from
    theory.

    Parameters
    ----------
    antithetic
        Correct by f(J) - (f(J') + f(J''))/2 with the means J', J'' of the two halves of the inner
        draws, which cancels the linear part. False: by f(J) - f(J'), the plain form.
    n_coarsest
        N_0, inner draws for each θ on level 0.
    n_levels
        Number of levels; None adapts it. A fixed number leaves a bias that no budget removes.
    decay
        For a budget alone, T_l ∝ 2^(-decay l).

    Notes
    -----
    *Error bar.* The variances of all levels, and the square of the remaining bias: the last
    corrections continued as a geometric series at the rate of theory, or the effect of the noise of
    J on the finest level. A floor for values of g that no draw has shown.

    *Memory.* A few numbers for each θ, none for x.

    References
    ----------
    Giles (2015), Multilevel Monte Carlo methods, Acta Numerica 24, sections 3 and 9; antithetic
    differences: Giles and Haji-Ali (2019), Multilevel nested simulation for efficient risk
    estimation.

    Examples
    --------
    >>> import nestquad as nq
    >>> problem = nq.problems.synthetic()
    >>> est = nq.estimate(problem, tol=0.05, method=nq.MLMC(), rng=1)
    >>> est.status, bool(abs(est.value - problem.exact) < 0.05)
    ('converged', True)
    >>> [level["n_inner"] for level in est.diagnostics["levels"]][:4]
    [2, 4, 8, 16]
    """

    name: ClassVar[str] = "mlmc"
    antithetic: bool = True
    n_coarsest: int = 2
    n_levels: int | None = None
    decay: float = 1.5

    def __post_init__(self) -> None:
        whole("n_coarsest", self.n_coarsest, "an integer of at least 1", below=np.inf)
        if self.n_levels is not None:
            whole("n_levels", self.n_levels, "an integer of at least 2", least=2, below=np.inf)
        number("decay", self.decay)

    @classmethod
    def as_published(cls, *, antithetic: bool = False, n_coarsest: int = 1) -> MLMC:
        """The paper's configuration: levels 0 to 5, and T_l ∝ 2^(-2l).

        Its equation for MLMC is the plain form and its appendix the antithetic one; the released
        code is plain. The top level is fixed, so the bias of N = 32 inner draws always remains.
        """
        return cls(antithetic=antithetic, n_coarsest=n_coarsest, n_levels=6, decay=2.0)

    # Planning.

    def plan(
        self, problem: NestedExpectation, goal: Goal, last: Turn[LevelSummary] | None = None
    ) -> Design | None:
        if last is not None:
            return self._grown(goal, last)
        if goal.adaptive or goal.budget is None:
            pilot = LEVELS.pilot * np.ldexp(1.0, -np.arange(self.n_levels or 4))
            sizes = np.maximum(pilot, LEVELS.fewest_outer)
            if goal.budget is None or 2 * self._cost(sizes) <= goal.budget:
                return self._design(goal, sizes)
        assert goal.budget is not None
        return self._design(goal, self._sizes_for(goal.budget))

    def _sizes_for(self, budget: int) -> Array:
        """T_l ∝ 2^(-decay l) up to the level where bias and noise should balance."""
        n_levels = self.n_levels
        if n_levels is None:
            # Noise is a few times budget^-1/2 and bias 1/N, in units of the spread of f(J).
            finest = np.sqrt(budget) / 4.0
            n_levels = max(2, 1 + int(np.ceil(np.log2(max(finest / self.n_coarsest, 1.0)))))
        shape = np.power(2.0, -self.decay * np.arange(n_levels), dtype=np.float64)
        first = budget / self._cost(shape)
        while True:
            sizes = np.maximum(np.floor(first * shape), 2.0)
            if self._cost(sizes) <= budget:
                break
            if first < 2:
                least = int(2 * self._inner_sizes(n_levels).sum())
                raise InputError(
                    "budget",
                    f"{budget} evaluations",
                    f"at least {least} for method 'mlmc' with {n_levels} levels, the coarsest of "
                    f"{self.n_coarsest} inner points",
                )
            first *= 0.99
        sizes[0] += (budget - self._cost(sizes)) // self.n_coarsest
        return np.asarray(sizes)

    @property
    def _beta(self) -> float:
        """Rate at which variances of corrections decrease, by theory."""
        return LEVELS.beta if self.antithetic else LEVELS.beta_plain

    def _inner_sizes(self, n_levels: int) -> Array:
        return np.asarray(np.ldexp(float(self.n_coarsest), np.arange(n_levels)))

    def _cost(self, sizes: Array) -> float:
        return float(sizes @ self._inner_sizes(sizes.size))

    def _design(self, goal: Goal, sizes: Array) -> Design:
        return Design(
            tuple(
                Grid(int(n_outer), self.n_coarsest << level, IID(), IID(), None, goal.stream, level)
                for level, n_outer in enumerate(sizes)
            )
        )

    def _grown(self, goal: Goal, last: Turn[LevelSummary]) -> Design | None:
        """More θ where the variance is, and a new level where the bias is too large."""
        state, grids = last.state, last.design.grids
        _refuse_divergence(state)
        error = np.atleast_1d(last.estimate.std_error)
        target = error / 2 if goal.half_width is None else np.array(goal.half_width / NORMAL_95)
        if self.n_levels is not None:
            _refuse_too_few_levels(state, target, grids[-1].n_inner)
        # Variances of small samples must not misplace the whole budget.
        target = LEVELS.aim * np.maximum(target, error / 3.0)
        have = np.array([grid.n_outer for grid in grids], dtype=float)
        if not (target > 0).all() or have.size != len(state.change):
            return None
        new = np.arange(0 if self.n_levels is not None else 2) + 1.0  # levels to add in one turn
        own = steady_variances(state.own_variance / target**2, have, 0.5).max(axis=1)
        variance = (state.variance / target**2).max(axis=1)
        steps = np.arange(1.0 - have.size, new.size + 1.0)[:, None]
        bias = (state.bias / target * 2.0 ** (-LEVELS.alpha * steps)).max(axis=1)
        sizes = best_sizes(
            np.concatenate([own, np.full(new.size, own[-1])]),
            np.concatenate([variance, variance[-1] * 2.0 ** (-self._beta * new)]),
            self._inner_sizes(have.size + new.size),
            bias,
            have,
        )
        have = np.concatenate([have, np.zeros(sizes.size - have.size)])
        grown = self._within(goal.budget, have, sizes)
        return None if grown is None else self._design(goal, grown)

    def _within(self, budget: int | None, have: Array, wanted: Array) -> Array | None:
        """Sizes of the step shortened to the budget; None if hardly any of it remains."""
        if (wanted == have).all():
            if self.n_levels is not None:
                return None  # the error is bias, which more θ do not lower
            wanted = np.ceil(1.125 * have)
        if budget is None or self._cost(wanted) <= budget:
            return wanted
        share = (budget - self._cost(have)) / self._cost(wanted - have)
        sizes = have + np.floor(share * (wanted - have))
        # A level with a handful of θ is not worth starting.
        while have[sizes.size - 1] == 0 and sizes[-1] < LEVELS.fewest_outer:
            sizes = sizes[:-1]
        gained = self._cost(sizes) - self._cost(have)
        return sizes if gained > 0.01 * budget else None

    # Analysis.

    def analyze(
        self, evaluations: Evaluations, last: Turn[LevelSummary] | None = None
    ) -> Turn[LevelSummary]:
        problem = evaluations.problem
        levels: list[LevelMoments] = []
        rows: list[Array] = []
        notes: list[str] = []
        for index, grid in enumerate(evaluations.design.grids):
            n = grid.n_inner
            # Level 0 has most of the θ and needs no halves.
            mean = MeanRule(n) if index else WeightedRule(np.full((1, 1, n), 1.0 / n), ("full",))
            try:
                j = evaluations.fold(mean, index, remember=True)
            except OutOfTimeError:
                if len(levels) < 2:
                    raise
                notes.append(f"time ended before level {index}, whose bias remains")
                break
            # Draws are independent, so the first are as good a sample for plots as any.
            kept = min(j.shape[0], limits.PLOT_ROWS)
            theta = outer_points(problem, grid, 0, kept).theta
            f_values, change = self._values(problem, j, theta, corrected=index > 0)
            weights = np.full(f_values.shape, 1.0 / len(j))
            floor = None
            if np.isfinite(f_values).all():
                floor = rare_event_errors(problem, j[:, 0], f_values, weights)
            levels.append(LevelMoments.of(n, f_values, change, floor))
            rows.append(j[:, 0])
        state = summarize(levels, problem.finish, self._beta)
        # The bias that the noise of J on the finest level may hide.
        value = np.atleast_1d(problem.finish(state.answers))
        shift = noise_changes(problem, (j[:, 1], j[:, 2]), j[:, 0], f_values, theta).mean(axis=0)
        hidden = np.atleast_1d(problem.finish(state.answers + shift)) - value
        state = replace(state, bias=np.fmax(state.bias, np.abs(hidden)))
        # Values of g that no draw has shown.
        shares = np.concatenate([np.full(level.n_outer, float(level.n_inner)) for level in levels])
        errors = unseen_value_errors(
            problem,
            np.concatenate(rows),
            j[:, 0],
            f_values,
            weights,
            value_weights=shares / shares.sum(),
        )
        missed = floor_directions(problem, state.answers, errors)
        estimate = assembled(
            problem,
            state.answers,
            {
                "inner": np.concatenate([np.diag(state.bias), missed], axis=1),
                "outer": state.sampling,
            },
            {**state.describe(levels), "notes": [*notes, *without_variation(missed)]},
            n_evaluations=sum(level.n_outer * level.n_inner for level in levels),
            n_outer=sum(level.n_outer for level in levels),
            n_inner=levels[-1].n_inner,
            method=self.name,
            sample=OuterSample(
                theta, j[:kept, 0].copy(), f_values[:kept].copy(), weights[:kept] * len(j) / kept
            ),
        )
        return Turn(evaluations.design, estimate, state)

    def _values(
        self, problem: NestedExpectation, j: Array, theta: Array, *, corrected: bool
    ) -> tuple[Array, Array]:
        """f(J) (T, q) and its correction of the level before, from means j (T, views[, p]).

        With few inner draws J may leave the domain of f (a logarithm of zero); such a level serves
        neither as a base nor as a correction, and the next finer one is the base.
        """
        f_values = call_f(problem, j[:, 0], theta, require_finite=False)
        if not corrected:
            return f_values, f_values
        halves = np.moveaxis(j[:, 1:] if self.antithetic else j[:, 1:2], 1, 0)
        coarse = [call_f(problem, half, theta, require_finite=False) for half in halves]
        with np.errstate(invalid="ignore"):
            return f_values, f_values - sum(coarse) / len(coarse)


def _refuse_divergence(state: LevelSummary) -> None:
    """Stop where corrections decrease significantly too slowly for levels to help.

    Corrections within their noise do not contradict convergence; more θ will tell.
    """
    changes, noises = state.change[1:], state.noise[1:]
    if len(changes) < LEVELS.judged:
        return
    for change, noise in zip(changes.T, noises.T, strict=True):
        last = slice(-LEVELS.judged - 1, None)
        rate, std_error = decay_rate(np.abs(change)[last], noise[last])
        if rate + 2.0 * std_error < LEVELS.slowest:
            raise NumericalError(
                "MLMC cannot reach a tolerance here: doubling the inner draws changes the answer "
                f"by {', '.join(f'{size:.2g}' for size in change)} on levels 1 to {len(change)}, "
                f"which decreases like 2^(-{max(rate, 0.0):.2f} l) only; 2^-l is usual. "
                "Either the answer is infinite, or g has infinite variance given theta, or f is "
                "too steep near the values of J. Check f and g there; with budget= instead of a "
                "tolerance you get the estimate as it is, and method='nqmc' or 'nkq' may converge "
                "where plain averages do not."
            )


def _refuse_too_few_levels(state: LevelSummary, target: Array, n_inner: int) -> None:
    """Stop where the bias of a fixed finest level is known, and above the tolerance."""
    if (state.bias > target).any() and state.error_outer < 0.5 * state.error_inner:
        raise NumericalError(
            f"MLMC with n_levels={len(state.change)} cannot reach the tolerance: its finest "
            f"level has {n_inner} inner draws, whose bias of about "
            f"{state.error_inner:.2g} no number of outer draws removes. Use n_levels=None, "
            "which adds levels as they are needed."
        )
