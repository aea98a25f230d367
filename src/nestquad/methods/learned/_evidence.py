"""Evidence on learned models: pairs of fresh draws, half of them where f(Ĵ) is sensitive."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nestquad._scale import scale_of
from nestquad._typing import Array
from nestquad.evaluate import Design, Evaluations, Grid, OutOfTimeError
from nestquad.methods.learned._average import DenseAverage
from nestquad.methods.learned._model import DenseSet, ModelOfJ, control_at
from nestquad.points import IID, Given, Stream


@dataclass(frozen=True)
class EvidenceSettings:
    """Tuning numbers of fresh pairs.

    Attributes
    ----------
    shifts
        Errors of Ĵ for which the sensitivity of f is computed, in units of the expected standard
        deviation: errors come in several sizes.
    margin
        Least error of a model, as a share of the spread of J: a model that claims none is tested
        as well, at no loss where it is right.
    numbers, log2_sizes
        Predictions over which the sensitivity of f is computed, a part of a second, and base-2
        logarithms of the fewest and most θ among them.
    log2_pool
        Base-2 logarithm of the θ among which fresh pairs are drawn.
    """

    shifts: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    margin: float = 0.01
    numbers: int = 1 << 23
    log2_sizes: tuple[int, int] = (13, 16)
    log2_pool: int = 14


EVIDENCE = EvidenceSettings()


class FreshPoints(Given):
    """θ of a check, as uniforms (m, d), with weights (m,) that make them a sample of their law."""

    weights: Array

    def __init__(self, points: DenseSet) -> None:
        super().__init__(np.clip(points.uniform, 1e-15, 1.0 - 1e-15))
        object.__setattr__(self, "weights", points.weights)


@dataclass(frozen=True)
class LearnedDesign(Design):
    """Grids from which a model is learned, and after them the pairs by which it is checked.

    `log2_more` is the base-2 logarithm of the factor by which dense averages, which cost no
    evaluation, may have more θ than a part of a second allows.
    """

    n_checks: int = 0
    log2_more: int = 0

    @property
    def learning(self) -> Design:
        return Design(self.grids[: len(self.grids) - self.n_checks])

    @property
    def checks(self) -> tuple[Grid, ...]:
        return self.grids[len(self.grids) - self.n_checks :]

    @classmethod
    def of(cls, learning: Design, checks: tuple[Grid, ...], log2_more: int = 0) -> LearnedDesign:
        return cls((*learning.grids, *checks), len(checks), log2_more)


def check_grid(average: DenseAverage, model: ModelOfJ, n: int, stream: Stream) -> Grid:
    """n evaluations at θ of which half are where f(Ĵ) is sensitive, two independent x at each."""
    points = sensitive_set(
        average, model, n // 2, stream.child(2), size=min(pool_size(model), 1 << EVIDENCE.log2_pool)
    )
    return Grid(n // 2, 2, FreshPoints(points), IID(), None, stream)


@dataclass(frozen=True, eq=False)
class Check:
    """Fresh draws: θ (m, d_θ) and x (m, 2, d_x) as uniforms, weights (m,), g (m, 2, p)."""

    uniform: Array
    weights: Array
    inner: Array
    values: Array
    _means: dict[ModelOfJ, Array] = field(default_factory=dict, init=False)
    _residuals: dict[ModelOfJ, Array] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, evaluations: Evaluations, design: LearnedDesign) -> Check | None:
        """The draws of a design that are complete; None if there are none."""
        parts: list[tuple[Array, ...]] = []
        for level in range(len(design.grids) - design.n_checks, len(design.grids)):
            grid = design.grids[level]
            assert isinstance(grid.outer_points, FreshPoints)
            try:
                values = evaluations.values(grid.n_outer, level)
            except OutOfTimeError:
                break
            rows = len(values)
            outer = evaluations.outer(level)
            inner = evaluations.inner(outer.theta[:rows], (0, rows), level).uniform
            assert outer.uniform is not None
            assert inner is not None
            weights = grid.outer_points.weights[:rows]
            parts.append((outer.uniform[:rows], weights, inner, values.reshape(rows, 2, -1)))
        if not parts:
            return None
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(*columns)

    def first(self, n: int) -> Check:
        """The draws at the first n θ."""
        return Check(self.uniform[:n], self.weights[:n], self.inner[:n], self.values[:n])

    @cached_property
    def scale(self) -> Array:
        """The size (p,) of the values, whose squares may be out of range."""
        return scale_of(self.values.reshape(-1, self.values.shape[2]))

    @property
    def n_draws(self) -> int:
        return int(self.values.shape[0] * self.values.shape[1])

    def means(self, model: ModelOfJ) -> Array:
        """Ĵ (m, p) at the θ."""
        if model not in self._means:
            self._means[model] = model.mean(self.uniform)
        return self._means[model]

    def residuals(self, model: ModelOfJ) -> Array:
        """g − ĝ (m, 2, p), whose mean over x is J − Ĵ: independent for the two x at a θ."""
        if model not in self._residuals:
            self._residuals[model] = self.values - control_at(model, self.uniform, self.inner)
        return self._residuals[model]

    def unexplained_share(self, model: ModelOfJ, errors: float = 1.0) -> float:
        """Share of the variance of J that the model leaves unexplained, less standard errors.

        Two independent x at a θ: the mean product of their residuals is that of (J − Ĵ)².
        """
        weights = self.weights / self.weights.sum()
        rest = self.residuals(model) / self.scale
        products = rest[:, 0] * rest[:, 1]
        mean = weights @ products
        size = scale_of(products)
        error = size * np.sqrt(weights**2 @ ((products - mean) / size) ** 2)
        low = np.maximum(mean - errors * error, 0.0)
        j, share = model.sketch.j / self.scale, model.sketch.weights / model.sketch.weights.sum()
        variance = share @ (j - share @ j) ** 2
        # A J that varies by less than 1e-7 of g is a constant with the rounding of differences.
        return float(np.max(low / np.maximum(low + variance, 1e-14)))


def sensitive_set(
    average: DenseAverage,
    model: ModelOfJ,
    n: int,
    stream: Stream,
    noise: Array | float | None = None,
    size: int | None = None,
) -> DenseSet:
    """θ with Ĵ and weights, half from their law and half where f(Ĵ) is sensitive.

    A pool of K θ, a lattice with a random shift on which Ĵ is cheap, is a sample of the law. Point
    i has the sensitivity s_i, the root mean square change of f for shifts of Ĵ by 0.03, 0.1, 0.3
    and 1 standard deviations, and is selected with probability q_i = ½/K + ½ s_i/Σs, with
    replacement (times the weight of the lattice where that is periodized). The weight 1/(K q_i)
    ≤ 2 makes a weighted mean unbiased for the expectation under the law, whatever the model is
    worth.

    The draws share the pool: the variance of a weighted mean of y is Var(w y)/n and a part of the
    pool, of the order of Var(y)/K.

    Parameters
    ----------
    average
        Supplies f and the problem.
    model
        Supplies Ĵ, its standard deviation, and the range of J.
    n
        Number of points.
    stream
        Randomness. More points from the same stream begin with the same.
    noise
        Standard deviation (p,) of the mean residual g − ĝ that will be used at a θ: shifts are
        then by that and by the error that the model expects. With None, shifts are by
        the standard deviation of J over θ.
    size
        K; None takes the number that time allows.

    Returns
    -------
    DenseSet
        n independent draws given the pool, with Ĵ as dense averages see it.
    """
    log2_size = (size or pool_size(model)).bit_length() - 1
    parts = list(model.replicates(1, log2_size, stream.child(0)))
    pool = DenseSet(
        np.concatenate([part.uniform for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.j for part in parts]),
    )
    mass = pool.weights / pool.weights.sum()
    share = mass * _sensitivity(average, model, pool, noise)
    chance = 0.5 * mass + 0.5 * share / share.sum() if share.any() else mass
    # One uniform a draw, so that more draws begin with the same.
    upper = np.cumsum(chance)
    picked = np.searchsorted(upper[:-1], upper[-1] * stream.child(1).generator().random(n), "right")
    return DenseSet(pool.uniform[picked], mass[picked] / chance[picked], pool.j[picked])


def pool_size(model: ModelOfJ) -> int:
    """K, or less, of the pool of `sensitive_set`."""
    affordable = (EVIDENCE.numbers // max(model.cost, 1)).bit_length() - 1
    return 1 << int(np.clip(affordable, *EVIDENCE.log2_sizes))


def spread_of(f: Array) -> Array:
    """Standard deviations (q,) of finite values of f (M, q); 1 where f is constant."""
    with np.errstate(invalid="ignore"):
        spread = np.nanstd(np.where(np.isfinite(f), f, np.nan), axis=0)
    return np.where(spread > 0, spread, 1.0)


def _sensitivity(
    average: DenseAverage, model: ModelOfJ, points: DenseSet, noise: Array | float | None
) -> Array:
    """Root mean square change (M,) of f(Ĵ) for errors of Ĵ.

    Outputs of J are shifted one at a time. The change of each answer counts in units of the spread
    of that answer. Outside the domain of f, the largest change elsewhere stands for it.
    """
    j, f = points.j, average.f(points.j, points.uniform)
    # Errors of a model of log J are relative, and its J may be out of range.
    relative = model.logarithmic and noise is None
    sd = np.ones(j.shape[1]) if relative else j.std(axis=0)
    if noise is not None:
        blocks = np.array_split(points.uniform, -(-len(j) // (1 << 13)))
        known = np.concatenate([model.sd(block) for block in blocks])
        sd = np.hypot(np.maximum(known, EVIDENCE.margin * sd), noise)
    spread = spread_of(f)
    squares = np.zeros(len(j))
    for c in range(j.shape[1]):
        for shift in (*EVIDENCE.shifts, *(-shift for shift in EVIDENCE.shifts)):
            step = shift * sd * (np.arange(j.shape[1]) == c)
            moved = j * np.exp(step) if relative else j + step
            shifted = average.f(model.bounded(moved, points.uniform), points.uniform)
            change = (shifted - f) / spread
            squares += (change**2).sum(axis=1)
    found = np.sqrt(squares)
    finite = np.isfinite(found)
    return np.where(finite, found, found[finite].max(initial=0.0))
