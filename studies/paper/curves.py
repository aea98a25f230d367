"""Errors against cost: means, bands, exponents, and the cost of a given error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

# Errors below this are rounding: a logarithm of zero would end every fit.
_FLOOR = 1e-17
_DRAWS = 400


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % bootstrap interval over replicates."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Cost:
    """Evaluations for an error, and how they are known.

    `how` is ``"measured"`` between two sizes that were run, ``"at most"`` where the smallest was
    enough, and ``"extrapolated"`` beyond the largest.
    """

    evaluations: float
    how: str


def fit_exponent(evaluations: Any, errors: Any) -> float:
    """r of cost ∝ Δ^-r: least squares of log error on log cost; infinite if errors do not fall.

    Costs are known and errors are noisy. The other regression would make r too small.

    Examples
    --------
    >>> round(fit_exponent([10, 100, 1000], [0.1, 0.01, 0.001]), 6)
    1.0
    """
    x, y = np.log(evaluations), np.log(errors)
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return -1.0 / slope if slope < 0 else float("inf")


@dataclass(frozen=True)
class Curve:
    """Replicates of one method over several costs, the cheapest first."""

    costs: Array
    errors: tuple[Array, ...]

    @property
    def means(self) -> Array:
        return np.array([max(float(e.mean()), _FLOOR) for e in self.errors])

    def quantiles(self, share: float) -> Array:
        return np.array([max(float(np.quantile(e, share)), _FLOOR) for e in self.errors])

    @property
    def exponent(self) -> Interval:
        """r of cost ∝ Δ^-r for the mean error."""
        fits = [fit_exponent(self.costs, means) for means in self.resampled()]
        return Interval(fit_exponent(self.costs, self.means), *_ends(fits))

    def resampled(self, seed: int = 0) -> Array:
        """Bootstrapped means (draws, sizes)."""
        rng = np.random.default_rng(seed)
        columns = [rng.choice(e, (_DRAWS, e.size)).mean(axis=1) for e in self.errors]
        means: Array = np.maximum(np.stack(columns, axis=1), _FLOOR)
        return means

    def at(self, cost: float, means: Array | None = None) -> float:
        """The mean error at a cost, between two measured ones on logarithmic scales."""
        means = self.means if means is None else means
        if not self.costs[0] * 0.999 <= cost <= self.costs[-1] * 1.001:
            return float("nan")
        return float(np.exp(np.interp(np.log(cost), np.log(self.costs), np.log(means))))

    def cost_of(self, error: float) -> Cost:
        """The evaluations after which the mean error stays below `error`."""
        above = np.flatnonzero(self.means > error)
        if above.size == 0:
            return Cost(float(self.costs[0]), "at most")
        last = int(above[-1])
        if last == len(self.costs) - 1:
            factor = (self.means[last] / error) ** self._slow_exponent
            return Cost(float(self.costs[last] * factor), "extrapolated")
        ends = slice(last, last + 2)
        log_cost = np.interp(-np.log(error), -np.log(self.means[ends]), np.log(self.costs[ends]))
        return Cost(float(np.exp(log_cost)), "measured")

    @property
    def _slow_exponent(self) -> float:
        """For extrapolation; a curve that does not fall leads nowhere."""
        if len(self.costs) < 2:
            return float("nan")
        return fit_exponent(self.costs, self.means)


def gain(one: Curve, other: Curve, cost: float, *, paired: bool = False) -> Interval:
    """How many times smaller the mean error of the first is at the same cost.

    `paired`: replicates of both had the same points, and are resampled together.
    """
    rates = [
        other.at(cost, b) / one.at(cost, a)
        for a, b in zip(one.resampled(0), other.resampled(0 if paired else 1), strict=True)
    ]
    return Interval(other.at(cost) / one.at(cost), *_ends(rates))


def gains(one: Curve, other: Curve) -> list[tuple[float, Interval]]:
    """`gain` at every cost of the first that the second covers too."""
    inside = [c for c in one.costs if np.isfinite(other.at(float(c)))]
    return [(float(cost), gain(one, other, float(cost))) for cost in inside]


def _ends(draws: Sequence[float]) -> tuple[float, float]:
    # Order statistics, since infinite exponents cannot be interpolated.
    low, high = np.quantile(draws, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def common_cost(one: Curve, other: Curve) -> float:
    """The largest cost that both were run at, or between two of theirs."""
    return float(min(one.costs[-1], other.costs[-1]))
