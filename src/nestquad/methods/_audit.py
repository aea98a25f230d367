"""A second look at what a model says about J, with values that it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nestquad._typing import Array
from nestquad.evaluate import Evaluations, call_f
from nestquad.problem import NestedExpectation
from nestquad.result import Estimate

__all__ = ["audited", "unexplained"]

# How many standard errors from zero a discrepancy has to be before it counts.
_SIGNIFICANT = 2.5
_FEWEST_INNER = 4


def unexplained(evaluations: Evaluations, predict: Callable[[Array], Array]) -> Array:
    """Variance of J(θ) about a model of it, (p,), as far as noise cannot be the reason.

    The design is a grid whose θ are a sample of the law, each with several x. The squared
    distance of their mean from the prediction less the variance of that mean is an unbiased
    estimate of the squared error of the model at that θ; low-discrepancy x only make it smaller.
    A model that was fitted to one x for each θ cannot know this: to it, a J that jumps from θ to θ
    is noise in x.

    Parameters
    ----------
    predict
        J (T, p) at uniforms (T, d_θ).
    """
    (grid,) = evaluations.design.grids
    values = evaluations.values(grid.n_outer)
    values = values.reshape(*values.shape[:2], -1)
    rows, n = values.shape[:2]
    uniform = evaluations.outer().uniform
    if n < _FEWEST_INNER or rows < 2 or uniform is None:
        return np.zeros(values.shape[-1])
    residual = values.mean(axis=1) - predict(uniform[:rows])
    squares = residual**2 - values.var(axis=1, ddof=1) / n
    mean, error = squares.mean(axis=0), squares.std(axis=0, ddof=1) / np.sqrt(rows)
    return np.where(mean > _SIGNIFICANT * error, mean, 0.0)


def audited(problem: NestedExpectation, estimate: Estimate, variance: Array) -> Estimate:
    """The estimate with what a variance (p,) of J about its model may change in the answer."""
    sample = estimate.sample
    if sample is None or not (variance > 0).any():
        return estimate

    def answer(j: Array) -> Array:
        f = call_f(problem, j, sample.theta, require_finite=False)
        return np.atleast_1d(problem.finish((sample.weights * f).sum(axis=0)))

    scalar = sample.j.ndim == 1
    center = answer(sample.j)
    changes = []
    for c, shift in enumerate(np.sqrt(variance)):
        step = shift if scalar else shift * (np.arange(variance.size) == c)
        sides = np.stack([answer(sample.j + step), answer(sample.j - step)])
        # A logarithm may not take one of the two.
        sides = np.where(np.isfinite(sides), sides, np.nan)
        with np.errstate(invalid="ignore"):
            middle = np.where(np.isfinite(sides).all(axis=0), sides.mean(axis=0), sides[0])
        changes.append(np.nan_to_num(middle - center))
    directions = np.stack(changes, axis=1)
    covariance = directions @ directions.T
    own = estimate.std_error**2 if estimate.covariance is None else estimate.covariance
    whole = np.atleast_2d(own) + covariance
    errors = np.sqrt(np.diagonal(whole))
    single = np.ndim(estimate.std_error) == 0
    return replace(
        estimate,
        std_error=float(errors[0]) if single else errors,
        covariance=None if estimate.covariance is None else whole,
        diagnostics={**estimate.diagnostics, "unexplained_sd": np.sqrt(variance)},
    )
