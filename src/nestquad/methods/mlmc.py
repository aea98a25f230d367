"""Multilevel Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from nestquad._typing import Array
from nestquad.accuracy import linearized_covariance
from nestquad.errors import EvaluationError, InputError, NumericalError
from nestquad.evaluate import Design, Evaluations, Grid, call_f
from nestquad.methods._inner import MeanRule
from nestquad.methods._levels import (
    Decay,
    best_sizes,
    decay,
    remaining_bias,
    steady_variances,
)
from nestquad.methods._method import Goal, Method
from nestquad.points import IID
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate, OuterSample

__all__ = ["MLMC"]

_MOST_SAMPLE_ROWS = 4096
# The first turn towards a tolerance: so many θ on level 0, half as many on each of the next.
_PILOT_OUTER, _PILOT_LEVELS = 512, 4
# A level gets at least so many θ, or its variance is anybody's guess.
_FEWEST_OUTER = 16
# One turn aims at no less than this part of the error so far: estimates of variances come from
# small samples at first, and must not send the whole budget the wrong way.
_STEEPEST = 1.0 / 3.0
_MOST_NEW_LEVELS = 2
# Rates of nested expectations: bias 1/N for smooth and for kinked f, variance of antithetic
# corrections between N^-1.5 (kinked) and N^-2 (smooth).
_ALPHA, _BETA = (1.0, 0.25), (1.5, 0.5)
# The bias of a nested expectation decreases no faster than 1/N; much slower than this, levels
# do not help.
_ALPHA_RANGE = (0.1, 1.0)
_LEVELS_TO_JUDGE = 5
_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class MLMC(Method):
    """Multilevel Monte Carlo: a telescoping sum over numbers of inner draws.

    Level l has N_l = `n_coarsest` 2^l inner draws and estimates what doubling N changes; most θ
    are spent where that is cheap. Towards a tolerance, variances and rates are estimated level by
    level, θ are distributed by Giles' optimal allocation, and levels are added until the bias
    that is left is small; the coarsest level that pays is found as well. For a budget alone the
    sizes come from theory.

    Parameters
    ----------
    antithetic
        Correct by f(J) - (f(J') + f(J''))/2 with the means J', J'' of the two halves of the inner
        draws, which cancels what is linear. False: by f(J) - f(J'), the plain form.
    n_coarsest
        N_0, inner draws for each θ on level 0.
    n_levels
        How many levels; None adapts it. A fixed number leaves a bias that no budget removes.
    decay
        For a budget alone, T_l ∝ 2^(-decay l).

    Notes
    -----
    *Error bar.* The variances of all levels, and the square of the bias that is left: the last
    corrections continued as a geometric series.

    *Memory.* A few numbers for each θ, none for x, when a budget alone is given; all values
    (8 bytes an evaluation) while working towards a tolerance.

    References
    ----------
    M. B. Giles, "Multilevel Monte Carlo methods", Acta Numerica 24 (2015), sections 3 and 9.

    Examples
    --------
    >>> import nestquad as nq
    >>> from nestquad.methods.mlmc import MLMC
    >>> problem = nq.problems.synthetic()
    >>> est = nq.estimate(problem, tol=0.05, method=MLMC(), rng=1)
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
        fewest = {"n_coarsest": 1, "n_levels": 2}
        for argument, least in fewest.items():
            size = getattr(self, argument)
            if size is None and argument == "n_levels":
                continue
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < least:
                raise InputError(argument, repr(size), f"an integer of at least {least}")
        if not (np.isreal(self.decay) and 0 < self.decay < np.inf):
            raise InputError("decay", repr(self.decay), "a positive number")

    @classmethod
    def as_published(cls, *, antithetic: bool = False, n_coarsest: int = 1) -> MLMC:
        """The paper's configuration: levels 0 to 5, and T_l ∝ 2^(-2l).

        Its equation for MLMC is the plain form and its appendix the antithetic one; the released
        code is plain. The top level is fixed, so the bias of N = 32 inner draws always remains.
        """
        return cls(antithetic=antithetic, n_coarsest=n_coarsest, n_levels=6, decay=2.0)

    # Planning.

    def plan(
        self,
        problem: NestedExpectation,
        goal: Goal,
        so_far: tuple[Design, Estimate] | None = None,
    ) -> Design | None:
        if so_far is not None:
            return self._grown(goal, *so_far)
        if goal.adaptive or goal.budget is None:
            levels = np.arange(self.n_levels or _PILOT_LEVELS)
            sizes = np.maximum(_PILOT_OUTER // 2**levels, _FEWEST_OUTER)
            if goal.budget is None or 2 * self._cost(sizes) <= goal.budget:
                return self._design(goal, sizes)
        return self._design(goal, self._sizes_for(goal.budget))

    def _sizes_for(self, budget: int) -> Array:
        """T_l ∝ 2^(-decay l) up to the level where bias and noise should balance."""
        n_levels = self.n_levels
        if n_levels is None:
            # Noise is a few times budget^-1/2 and bias 1/N, in units of the spread of f(J).
            finest = np.sqrt(budget) / 4.0
            n_levels = max(2, 1 + int(np.ceil(np.log2(max(finest / self.n_coarsest, 1.0)))))
        shape = 2.0 ** (-self.decay * np.arange(n_levels))
        first = budget / self._cost(shape)
        while True:
            sizes = np.maximum(np.floor(first * shape), 2).astype(int)
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
        return sizes

    def _inner_sizes(self, n_levels: int) -> Array:
        return self.n_coarsest * 2 ** np.arange(n_levels)

    def _cost(self, sizes: Array) -> float:
        return float(sizes @ self._inner_sizes(len(sizes)))

    def _design(self, goal: Goal, sizes: Array) -> Design:
        return Design(
            tuple(
                Grid(int(n_outer), int(n_inner), IID(), IID(), None, goal.stream, level)
                for level, (n_outer, n_inner) in enumerate(
                    zip(sizes, self._inner_sizes(len(sizes)), strict=True)
                )
            )
        )

    def _grown(self, goal: Goal, design: Design, estimate: Estimate) -> Design | None:
        """More θ where variance is dear, and a new level where bias is."""
        found = estimate.diagnostics
        _refuse_levels_that_do_not_converge(found)
        have = np.array([grid.n_outer for grid in design.grids])
        error = np.atleast_1d(estimate.std_error)
        half_width = getattr(goal, "half_width", None)
        target = error / 2 if half_width is None else np.asarray(half_width) / _NORMAL_95
        target = np.maximum(np.broadcast_to(target, error.shape), _STEEPEST * error)
        if not (target > 0).all():
            return None
        new = 0 if self.n_levels is not None else _MOST_NEW_LEVELS
        ahead = 2.0 ** -np.outer(np.arange(1, new + 1), [found["beta"]])
        by_level = np.stack([level["variance"] for level in found["levels"]]) / target**2
        by_level = steady_variances(by_level, found["beta"])
        own = np.stack([level["own_variance"] for level in found["levels"]]) / target**2
        steps = np.arange(1 - have.size, new + 1)[:, None]
        bias = found["bias"] / target * 2.0 ** (-found["alpha"] * steps)
        wanted = best_sizes(
            np.concatenate([own.max(axis=1), np.repeat(own[-1:].max(axis=1), new)]),
            np.concatenate([by_level.max(axis=1), (by_level[-1:] * ahead).max(axis=1)]),
            self._inner_sizes(have.size + new).astype(float),
            bias.max(axis=1),
            have.size,
        )
        sizes = np.maximum(1.02 * wanted.n_outer, _FEWEST_OUTER)
        have = np.concatenate([have, np.zeros(sizes.size - have.size, dtype=int)])
        grown = self._within(goal.budget, have, np.maximum(have, np.ceil(sizes)).astype(int))
        return None if grown is None else self._design(goal, grown)

    def _within(self, budget: int | None, have: Array, wanted: Array) -> Array | None:
        """The same step, shortened to what the budget leaves; None if that is next to nothing."""
        if (wanted == have).all():
            if self.n_levels is not None:
                return None  # what is left is bias, which more θ do not lower
            wanted = have + have // 4 + 1
        if budget is None or self._cost(wanted) <= budget:
            return wanted
        left = budget - self._cost(have)
        step = (wanted - have) * (left / self._cost(wanted - have))
        sizes = have + np.floor(step).astype(int)
        # A level with a handful of θ is not worth starting.
        while sizes.size and have[sizes.size - 1] == 0 and sizes[-1] < _FEWEST_OUTER:
            sizes, have = sizes[:-1], have[:-1]
        gained = self._cost(sizes) - self._cost(have)
        return sizes if gained > 0.01 * budget else None

    # Analysis.

    def analyze(self, evaluations: Evaluations) -> Estimate:
        problem = evaluations.problem
        levels, sample, notes = self._moments(evaluations)
        answers = _telescoped(levels, 0)
        # In the order of levels: per-θ variances of the final answers, (L, k).
        own = np.stack([_variance(problem, answers, level.own_covariance) for level in levels])
        corrections = np.stack([_variance(problem, answers, level.covariance) for level in levels])
        n_outer = np.array([[level.n_outer] for level in levels])
        base = _best_base(own / n_outer, corrections / n_outer)
        answers = _telescoped(levels, base)
        value = np.atleast_1d(problem.finish(answers))
        changes = np.stack(
            [value - np.atleast_1d(problem.finish(answers - level.mean)) for level in levels]
        )
        beta = _pooled_beta(corrections[1:], n_outer[1:])
        noise = np.sqrt(steady_variances(corrections, beta.rate) / n_outer)
        alphas = [decay(np.abs(c), s, *_ALPHA) for c, s in zip(changes[1:].T, noise[1:].T, strict=True)]
        rates = np.clip([alpha.rate for alpha in alphas], *_ALPHA_RANGE)
        bias = np.array(
            [
                remaining_bias(c, s, rate)
                for c, s, rate in zip(changes[1:].T, noise[1:].T, rates, strict=True)
            ]
        )
        covariance = _covariance(problem, answers, levels, base) + np.diag(bias**2)
        std_error = np.sqrt(np.diagonal(covariance))
        scalar = problem.finish(answers).ndim == 0
        return Estimate(
            value=float(value[0]) if scalar else value,
            std_error=float(std_error[0]) if scalar else std_error,
            n_evaluations=sum(level.n_outer * level.n_inner for level in levels),
            n_outer=int(n_outer.sum()),
            n_inner=levels[-1].n_inner,
            method=self.name,
            diagnostics={
                "answers": answers,
                "error_inner": float(bias.max()),
                "error_outer": float(np.sqrt(np.diagonal(covariance) - bias**2).max()),
                "bias": bias,
                "alpha": rates,
                "alpha_measured": [alpha.measured for alpha in alphas],
                "alpha_std_error": [alpha.std_error for alpha in alphas],
                "beta": beta.rate,
                "beta_measured": beta.measured,
                "base_level": base,
                "levels": [
                    {
                        "n_inner": level.n_inner,
                        "n_outer": level.n_outer,
                        "change": change,
                        "change_std_error": error,
                        "variance": variance,
                        "own_variance": own_variance,
                    }
                    for level, change, error, variance, own_variance in zip(
                        levels, changes, noise, corrections, own, strict=True
                    )
                ],
                "notes": notes,
            },
            covariance=None if scalar else covariance,
            problem=problem.label,
            exact=_float_or_array(problem.exact),
            sample=sample,
        )

    def _moments(
        self, evaluations: Evaluations
    ) -> tuple[list[_LevelMoments], OuterSample, list[str]]:
        """Means and covariances by level; of the finest level, a few θ for plots."""
        levels: list[_LevelMoments] = []
        sample, notes = None, []
        for index, grid in enumerate(evaluations.design.grids):
            try:
                j = evaluations.fold(MeanRule(grid.n_inner), index)
            except EvaluationError:
                if evaluations.evaluator.stopped is None or index < 2:
                    raise
                notes.append(f"time ended before level {index}: the bias is that of level {index - 1}")
                break
            theta = evaluations.outer(index).theta[: j.shape[0]]
            f_full = call_f(evaluations.problem, j[:, 0], theta)
            change = f_full
            if index > 0:
                halves = j[:, 1:] if self.antithetic else j[:, 1:2]
                coarse = [call_f(evaluations.problem, h, theta) for h in np.moveaxis(halves, 1, 0)]
                change = f_full - np.mean(coarse, axis=0)
            levels.append(_LevelMoments.of(grid.n_inner, f_full, change))
            step = -(-theta.shape[0] // _MOST_SAMPLE_ROWS)
            f_kept = f_full[::step].copy()
            weights = np.full(f_kept.shape, 1.0 / f_kept.shape[0])
            sample = OuterSample(theta[::step].copy(), j[::step, 0].copy(), f_kept, weights)
        assert sample is not None
        return levels, sample, notes


@dataclass(frozen=True)
class _LevelMoments:
    """Means (q,) and covariances (q, q) over θ of f(J) and of its correction, on one level."""

    n_outer: int
    n_inner: int
    own_mean: Array
    own_covariance: Array
    mean: Array
    covariance: Array

    @classmethod
    def of(cls, n_inner: int, f_values: Array, change: Array) -> _LevelMoments:
        return cls(
            f_values.shape[0],
            n_inner,
            f_values.mean(axis=0),
            np.atleast_2d(np.cov(f_values, rowvar=False)),
            change.mean(axis=0),
            np.atleast_2d(np.cov(change, rowvar=False)),
        )


def _telescoped(levels: list[_LevelMoments], base: int) -> Array:
    """f(J) on the base level and all corrections above it."""
    return levels[base].own_mean + sum(level.mean for level in levels[base + 1 :])


def _variance(problem: NestedExpectation, answers: Array, covariance: Array) -> Array:
    """What a covariance of the q expectations means for the final answers, (k,)."""
    directions = linearized_covariance(problem.finish, answers, covariance)
    return np.asarray((directions**2).sum(axis=1))


def _covariance(
    problem: NestedExpectation, answers: Array, levels: list[_LevelMoments], base: int
) -> Array:
    total = levels[base].own_covariance / levels[base].n_outer
    for level in levels[base + 1 :]:
        total = total + level.covariance / level.n_outer
    directions = linearized_covariance(problem.finish, answers, total)
    return np.asarray(directions @ directions.T)
