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
    alpha, beta
        Rates of nested expectations (expected, standard deviation): bias 1/N for smooth and for
        kinked f, variance of antithetic corrections between N^-1.5 (kinked) and N^-2 (smooth);
        Giles and Haji-Ali (2019).
    alpha_range, beta_range
        Rates faster than theory allows are accidents of few θ; much slower ones no convergence.
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
    alpha: tuple[float, float] = (1.0, 0.25)
    beta: tuple[float, float] = (1.5, 0.5)
    alpha_range: tuple[float, float] = (0.1, 1.0)
    beta_range: tuple[float, float] = (0.5, 2.0)
    prior_outer: int = 64
    judged: int = 5
    slowest: float = 0.33
    aim: float = 0.93


LEVELS = MultilevelSettings()


@dataclass(frozen=True)
class Decay:
    """Corrections behave like 2^(-rate l).

    `rate` is the best guess and `slow` one standard deviation slower; `measured` and `std_error`
    are from the data alone.
    """

    rate: float
    slow: float
    measured: float
    std_error: float


def fit_decay(sizes: Array, noise: Array, expected: float, trust: float, *, last: int = 4) -> Decay:
    """The rate at which positive `sizes` of consecutive levels decrease.

    A regression of log2(size) on the level. Each point is weighted by its noise, and theory's
    `expected` rate counts like one more observation with standard deviation `trust`: it decides
    where corrections drown in noise, and is outvoted where they do not. Only the `last` few
    sizes count: coarser ones are not asymptotic yet.

    Examples
    --------
    >>> sizes = np.array([0.8, 0.2, 0.05, 0.0125])
    >>> round(fit_decay(sizes, 0.01 * sizes, expected=1.0, trust=0.25).rate, 2)
    1.97
    """
    sizes, noise = sizes[-last:], noise[-last:]
    usable = (sizes > 0) & np.isfinite(sizes) & np.isfinite(noise)
    level, size, noise = np.flatnonzero(usable), sizes[usable], noise[usable]
    if level.size < 2:
        return Decay(expected, expected - trust, float("nan"), float("inf"))
    spread = noise / (size * np.log(2.0))
    # Even exact differences follow a power law no better than 0.1 (in powers of two).
    weight = 1.0 / (0.1**2 + spread**2)
    x = level - np.average(level, weights=weight)
    information = float(weight @ x**2)
    measured = -float(weight @ (x * np.log2(size))) / information
    prior = trust**-2.0
    rate = (information * measured + prior * expected) / (information + prior)
    return Decay(rate, rate - (information + prior) ** -0.5, measured, information**-0.5)


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


def remaining_bias(corrections: Array, noise: Array, rate: float) -> float:
    """Root mean square of the bias that the levels beyond the last would remove.

    The last three corrections (coarser ones are not asymptotic yet) are fitted by c 2^(-rate l),
    weighted by their noise; the bias is the sum of that series beyond the last level. Its square
    has the uncertainty of c added, which grows when corrections do not follow the series.
    """
    corrections, noise = corrections[-3:], noise[-3:]
    shape = 2.0 ** (-rate * np.arange(1 - corrections.size, 1))  # 1 at the last level
    usable = np.isfinite(corrections) & np.isfinite(noise)
    corrections, noise, shape = corrections[usable], noise[usable], shape[usable]
    if corrections.size == 0:
        return float("inf")
    # Noise of exactly zero would give a level all the weight.
    floor = 1e-3 * np.abs(corrections).max() + 1e-150
    weight = 1.0 / (noise**2 + floor**2)
    information = float(weight @ shape**2)
    last = float(weight @ (shape * corrections)) / information
    misfit = float(weight @ (corrections - last * shape) ** 2) / max(corrections.size - 1, 1)
    uncertainty = max(misfit, 1.0) / information
    return float(np.sqrt(last**2 + uncertainty) / (2.0**rate - 1.0))


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
    alpha, beta
        Rates at which changes (one for each answer) and their variances decrease.
    slow_alpha, bias
        The rate that the bias was computed with, and the bias, (k,).
    sampling
        Directions of the final answers' error from the finite numbers of θ, (k, m).
    """

    base: int
    answers: Array
    own_variance: Array
    variance: Array
    change: Array
    noise: Array
    alpha: tuple[Decay, ...]
    beta: float
    slow_alpha: Array
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
        return {
            "error_inner": self.error_inner,
            "error_outer": self.error_outer,
            "bias": self.bias,
            "alpha": np.array([alpha.rate for alpha in self.alpha]),
            "alpha_slow": self.slow_alpha,
            "alpha_measured": np.array([alpha.measured for alpha in self.alpha]),
            "alpha_std_error": np.array([alpha.std_error for alpha in self.alpha]),
            "beta": self.beta,
            "base_level": self.base,
            "levels": [
                {"n_inner": level.n_inner, "n_outer": level.n_outer}
                | {name: values[i] for name, values in shown.items()}
                for i, level in enumerate(levels)
            ],
        }


def summarize(levels: Sequence[LevelMoments], finish: Finish) -> LevelSummary:
    """Answer and errors from independent levels."""
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
    # Corrections are zero most of the time, with a fourth moment of about ten.
    relative = (variance / np.where(own[-1] > 0, own[-1], 1.0))[1:].max(axis=1)
    decay = fit_decay(relative, 3.0 * relative / np.sqrt(n_outer[1:, 0]), *LEVELS.beta)
    beta = float(np.clip(decay.rate, *LEVELS.beta_range))
    variance[1:] = steady_variances(variance[1:], n_outer[1:, 0], 2.0**-beta)
    noise = np.sqrt(variance / n_outer)
    by_answer = list(zip(change[1:].T, noise[1:].T, strict=True))
    alpha = tuple(fit_decay(np.abs(size), error, *LEVELS.alpha) for size, error in by_answer)
    slow = np.clip([fit.slow for fit in alpha], *LEVELS.alpha_range)
    bias = [remaining_bias(*pair, rate) for pair, rate in zip(by_answer, slow, strict=True)]
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
    return LevelSummary(
        base, answers, own, variance, change, noise, alpha, beta, slow, np.array(bias), sampling
    )


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
