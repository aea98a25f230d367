"""Level statistics: decay rates, variances, remaining bias, optimal sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.accuracy import linearized_covariance, size_of
from nestquad.errors import EvaluationError
from nestquad.result import NORMAL_95

Finish = Callable[[Array], Array]


@dataclass(frozen=True)
class MultilevelSettings:
    """Numbers of multilevel Monte Carlo.

    Attributes
    ----------
    fewest_outer
        The fewest θ of a level: the standard deviation of 16 values is known to 18 %.
    pilot
        θ on level 0 in the first turn towards a tolerance, halved from level to level.
    alpha
        Bias is taken to fall like 2^(-alpha l), a little slower than the 1/N of theory for smooth
        and for kinked f: coarse levels are not asymptotic. On even seeds 0-18 of the families .8
        covers in 96-98 % of runs.
    beta, beta_plain
        Rates of the variance of antithetic corrections, N^-1.5 for kinked f, and of plain ones;
        Giles and Haji-Ali (2019).
    recent
        Corrections that are continued beyond the last level; coarser ones are not asymptotic.
    prior_outer
        θ that the prior of a level's variance counts for.
    judged, slowest
        Convergence is judged from `judged` corrections. If they decrease more slowly than
        2^(-slowest l), ten times the accuracy takes a thousand times the inner draws.
    aim
        A turn aims at this share of the request, since growth ends more often at an error that is
        estimated too small than at one too large; and at no less than a third of the error so far.
    """

    fewest_outer: int = 16
    pilot: int = 512
    alpha: float = 0.8
    beta: float = 1.5
    beta_plain: float = 1.0
    recent: int = 3
    prior_outer: int = 64
    judged: int = 5
    slowest: float = 0.33
    aim: float = 0.93


LEVELS = MultilevelSettings()


def decay_rate(sizes: Array, noise: Array) -> tuple[float, float]:
    """Rate r at which sizes ∝ 2^(-r l) of consecutive levels decrease, and its standard error.

    A regression of log2(size) on the level, weighted by the noise of each size.

    Examples
    --------
    >>> sizes = np.array([0.8, 0.2, 0.05, 0.0125])
    >>> round(decay_rate(sizes, 0.01 * sizes)[0], 2)
    2.0
    """
    usable = (sizes > 0) & np.isfinite(sizes) & np.isfinite(noise)
    if usable.sum() < 2:
        return float("nan"), float("inf")
    # Even exact differences follow a power law no better than 0.1 (in powers of two).
    spread = np.hypot(0.1, noise[usable] / (sizes[usable] * np.log(2.0)))
    line, covariance = np.polyfit(
        np.flatnonzero(usable), np.log2(sizes[usable]), 1, w=1.0 / spread, cov="unscaled"
    )
    return -float(line[0]), float(np.sqrt(covariance[0, 0]))


@dataclass(frozen=True)
class LevelMoments:
    """Means (q,) and covariances (q, q) over θ of f(J) and of its correction, on one level.

    NaN where f was not finite. On level 0 the correction is f(J) itself.
    """

    n_outer: int
    n_inner: int
    own_mean: Array
    own_covariance: Array
    mean: Array
    covariance: Array

    @classmethod
    def of(
        cls, n_inner: int, f_values: Array, correction: Array, floor: Array | None = None
    ) -> LevelMoments:
        """Moments of values (T, q); `floor` (q,) bounds the standard error of f(J) from below."""
        n_outer, (mean, covariance) = len(f_values), _moments(f_values)
        if floor is not None:
            variance = np.diagonal(covariance)
            covariance = covariance + np.diag(np.fmax(n_outer * floor**2 - variance, 0.0))
        # Student's factor: a variance from few θ is itself uncertain.
        covariance = covariance * (stdtrit(max(n_outer - 1, 1), 0.975) / NORMAL_95) ** 2
        return cls(n_outer, n_inner, mean, covariance, *_moments(correction))


def _moments(values: Array) -> tuple[Array, Array]:
    q = values.shape[1]
    if not np.isfinite(values).all():
        return np.full(q, np.nan), np.full((q, q), np.nan)
    if values.shape[0] < 2:
        return values[0], np.full((q, q), np.nan)
    return values.mean(axis=0), np.cov(values, rowvar=False).reshape(q, q)


def _change(level: LevelMoments, finish: Finish, answers: Array) -> Array:
    """Effect of the correction of a level on the final answers, (k,)."""
    if not np.isfinite(level.mean).all():
        return np.full(np.size(finish(answers)), np.nan)
    return np.atleast_1d(finish(answers) - finish(answers - level.mean))


def _final_variance(finish: Finish, answers: Array, covariance: Array, n_outer: int) -> Array:
    """Variance of the final answers (k,) from one θ, given that of the q expectations."""
    if not np.isfinite(covariance).all():
        return np.full(np.size(finish(answers)), np.inf)
    # Linearised over the error of the mean: that of a single θ would see other pieces of `finish`
    # than the answer ever does.
    directions = linearized_covariance(finish, answers, covariance / n_outer)
    return np.asarray((directions**2).sum(axis=1)) * n_outer


def telescoped(levels: Sequence[LevelMoments], base: int) -> Array:
    """The q expectations: f(J) on the base level, and all corrections above it."""
    return sum((level.mean for level in levels[base + 1 :]), levels[base].own_mean)


def base_level(levels: Sequence[LevelMoments]) -> int:
    """The coarsest level of the sum: of the possible ones, that with the most evaluations.

    Sizes are the plan's intention; the smallest variance would favour levels whose few θ happened
    to agree.
    """
    usable: list[int] = []
    for base in range(len(levels) - 1, -1, -1):
        if np.isfinite(levels[base].own_covariance).all():
            usable.append(base)
        if not np.isfinite(levels[base].covariance).all():
            break
    if not usable:
        raise EvaluationError(
            "f is not finite at some average of g, even with the most inner points",
            advice="If f needs J > 0 (a logarithm), use more inner points on the coarsest level.",
        )
    return max(usable, key=lambda base: (levels[base].n_outer * levels[base].n_inner, -base))


def steady_variances(variances: Array, n_outer: Array, ratio: float) -> Array:
    """Variances by level (L, k), shrunk towards `ratio` times that of the level before.

    Empirical Bayes shrinkage: at fine levels a correction is zero most of the time, and a small
    sample may see only zeros. The prior counts like more θ (Collier, Haji-Ali, Nobile, von
    Schwerin and Tempone 2015, A continuation multilevel Monte Carlo algorithm).
    """
    steady = variances.copy()
    for level in range(1, steady.shape[0]):
        prior, n = ratio * steady[level - 1], float(n_outer[level])
        both = np.isfinite(prior) & np.isfinite(steady[level])
        mixed = (n * steady[level] + LEVELS.prior_outer * prior) / (n + LEVELS.prior_outer)
        steady[level] = np.where(both, mixed, steady[level])
    return steady


def remaining_error(sizes: Array, rate: float) -> Array:
    """Sum (k,) of the geometric series 2^(-rate l) that goes on from differences (m, k).

    The last one may vanish by accident, so the largest continuation of the last few counts (Giles
    2015, section 3); infinite if none is known.
    """
    recent = np.abs(sizes[-LEVELS.recent :])
    ages = np.arange(len(recent))[::-1, None]
    continued = np.where(np.isfinite(recent), recent * 2.0 ** (-rate * ages), -1.0)
    largest = continued.max(axis=0, initial=-1.0)
    return np.where(largest >= 0.0, largest / (2.0**rate - 1.0), np.inf)


@dataclass(frozen=True)
class LevelSummary:
    """The q expectations and the errors of the k final answers.

    Attributes
    ----------
    base
        The coarsest level of the telescoping sum.
    own_variance, variance, change, noise
        For each level, (L, k): variances for one θ of f(J) and of its correction (shrunk); the
        effect of the level on the answer, with its standard error.
    bias
        Bias that finer levels would remove, (k,).
    sampling
        Directions of the final answers' error from the finite numbers of θ, (k, m).
    """

    base: int
    answers: Array
    own_variance: Array
    variance: Array
    change: Array
    noise: Array
    bias: Array
    sampling: Array

    @property
    def error_inner(self) -> float:
        return float(self.bias.max())

    @property
    def error_outer(self) -> float:
        return size_of(self.sampling)

    def describe(self, levels: Sequence[LevelMoments]) -> dict[str, Any]:
        """For `diagnostics`."""
        shown = {
            "change": self.change,
            "change_std_error": self.noise,
            "variance": self.variance,
            "own_variance": self.own_variance,
        }
        by_answer = zip(np.abs(self.change[1:].T), self.noise[1:].T, strict=True)
        rates = [decay_rate(*pair) for pair in by_answer]
        return {
            "error_inner": self.error_inner,
            "error_outer": self.error_outer,
            "bias": self.bias,
            "alpha": np.array([alpha for alpha, _ in rates]),
            "alpha_std_error": np.array([error for _, error in rates]),
            "base_level": self.base,
            "levels": [
                {"n_inner": level.n_inner, "n_outer": level.n_outer}
                | {name: values[i] for name, values in shown.items()}
                for i, level in enumerate(levels)
            ],
        }


def summarize(levels: Sequence[LevelMoments], finish: Finish, beta: float) -> LevelSummary:
    """Answer and errors from independent levels, whose variances decrease like 2^(-beta l)."""
    base = base_level(levels)
    answers = telescoped(levels, base)
    n_outer = np.array([[level.n_outer] for level in levels])
    own, variance = (
        np.stack([_final_variance(finish, answers, c, level.n_outer) for c, level in pairs])
        for pairs in (
            [(level.own_covariance, level) for level in levels],
            [(level.covariance, level) for level in levels],
        )
    )
    change = np.stack([_change(level, finish, answers) for level in levels])
    variance[1:] = steady_variances(variance[1:], n_outer[1:, 0], 2.0**-beta)
    noise = np.sqrt(variance / n_outer)
    bias = remaining_error(change[1:], LEVELS.alpha)
    # Directions with the correlations of the levels' sum and the variances of the answers.
    total = sum(
        (level.covariance / level.n_outer for level in levels[base + 1 :]),
        levels[base].own_covariance / levels[base].n_outer,
    )
    variances = own[base] / n_outer[base] + (noise[base + 1 :] ** 2).sum(axis=0)
    directions = linearized_covariance(finish, answers, total)
    seen = (directions**2).sum(axis=1)
    scaled = directions * np.sqrt(variances / np.where(seen > 0, seen, 1.0))[:, None]
    # An answer whose θ all agreed has no direction to scale.
    rest = np.diag(np.sqrt(np.where(seen > 0, 0.0, variances)))
    sampling = np.concatenate([scaled, rest], axis=1)
    return LevelSummary(base, answers, own, variance, change, noise, bias, sampling)


def best_sizes(own: Array, corrections: Array, costs: Array, bias: Array, have: Array) -> Array:
    """T for each level: the cheapest sizes whose variance and squared bias add up to one.

    With variances V_l and costs C_l, T_l ∝ √(V_l/C_l) is optimal and gives, for a total variance
    of 1 - bias², T_l = √(V_l/C_l) Σ√(V_k C_k) / (1 - bias²). The coarsest and the finest level are
    chosen so that the fewest evaluations are added.

    Parameters
    ----------
    own, corrections
        Variances of f(J) on each level and of its correction to the level before, in units of
        the squared error allowed.
    costs
        Evaluations for one θ on each level.
    bias
        Remaining bias if a level is the last, in units of the allowed error.
    have
        Present numbers of θ, on the levels in use.

    Shapes: all (L,), but `have`, which may be shorter. Returns no fewer levels than `have`.
    """
    there = np.concatenate([have, np.zeros(costs.size - have.size)])
    best: tuple[float, Array] | None = None
    for last in range(have.size - 1, costs.size):
        room = 1.0 - float(bias[last]) ** 2
        if last == costs.size - 1:
            room = max(room, 0.5)  # the finest that may be taken now has to do
        if room <= 0.0:
            continue
        for base in range(have.size):
            used = slice(base, last + 1)
            variances = np.concatenate([own[base : base + 1], corrections[base + 1 : last + 1]])
            if not np.isfinite(variances).all():
                continue
            total = float(np.sqrt(variances * costs[used]).sum())
            wanted = there[: last + 1].copy()
            ideal = np.ceil(np.sqrt(variances / costs[used]) * total / room)
            wanted[used] = np.maximum(wanted[used], np.maximum(ideal, LEVELS.fewest_outer))
            # The base has more evaluations than any other level: that is how it is known.
            others = np.delete(wanted * costs[: last + 1], base)
            wanted[base] = max(wanted[base], np.floor(others.max() / costs[base]) + 1.0)
            price = float((wanted - there[: last + 1]) @ costs[: last + 1])
            if best is None or price < best[0]:
                best = price, wanted
    assert best is not None
    return best[1]
