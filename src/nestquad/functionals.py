"""Functionals of a law of J that is given by a weighted sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nestquad._typing import Array

__all__ = ["WeightedSample"]


@dataclass(frozen=True, eq=False)
class WeightedSample:
    """Law of J by values (n,) with weights (n,); equal values are an atom.

    Between neighboring values the distribution function is linear, through the middle of each
    step (Hyndman and Fan 1996, Sample quantiles in statistical packages, definition 5). At an atom
    it jumps.

    Attributes
    ----------
    j, weights
        Values in any order, and their weights, at least 0.
    steps
        Whether all values are atoms.

    Examples
    --------
    >>> import numpy as np
    >>> law = WeightedSample(np.array([0.0, 0.0, 1.0, 3.0]), np.ones(4))
    >>> law.exceedance(0.0), law.quantile(0.4), law.shortfall(0.5)
    (0.5, 0.0, 2.0)
    """

    j: Array
    weights: Array
    steps: bool = False

    @cached_property
    def _sorted(self) -> tuple[Array, Array]:
        """Values in increasing order and their probabilities."""
        order = np.argsort(self.j, kind="stable")
        w = self.weights[order]
        return self.j[order], w / w.sum()

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """Values and P(J ≤ value): one place for a value, both ends of the jump for an atom."""
        j, w = self._sorted
        above = np.cumsum(w)
        above /= above[-1]
        last = np.concatenate([j[1:] > j[:-1], [True]])
        first = np.concatenate([[True], last[:-1]])
        if self.steps:
            places = np.repeat(j[last], 2)
            below = np.concatenate([[0.0], above[last][:-1]])
            return places, np.stack([below, above[last]], axis=1).ravel()
        single = first & last
        middle = np.where(single, above - 0.5 * w, np.where(first, above - w, above))
        kept = first | last
        return j[kept], middle[kept]

    def mean(self, f: Callable[[Array], Array] | None = None) -> float:
        """E[f(J)]; E[J] without f."""
        j, w = self._sorted
        return float(w @ (j if f is None else f(j)))

    def exceedance(self, c: float) -> float:
        """P(J > c)."""
        places, cumulative = self._curve
        after = int(np.searchsorted(places, c, "right"))
        if after == 0:
            return 1.0
        low = float(cumulative[after - 1])
        if after == len(places):
            return 0.0
        if self.steps or places[after - 1] == c:
            return 1.0 - low
        share = (c - places[after - 1]) / (places[after] - places[after - 1])
        return float(1.0 - low - share * (cumulative[after] - low))

    def quantile(self, p: float) -> float:
        """Smallest value c with P(J ≤ c) ≥ p."""
        return float(self.quantiles(np.array(p)))

    def quantiles(self, p: Array) -> Array:
        """Quantiles at many levels."""
        places, cumulative = self._curve
        if self.steps:  # sums of weights are below a level by rounding
            at = np.searchsorted(cumulative, p - 1e-9)
            return np.asarray(places[np.minimum(at, len(places) - 1)])
        return np.asarray(np.interp(p, cumulative, places))

    def excess(self, c: float) -> float:
        """E max(J − c, 0)."""
        j, w = self._sorted
        after = int(np.searchsorted(j, c, "right"))
        return float(w[after:] @ (j[after:] - c))

    def shortfall(self, p: float) -> float:
        """Expected shortfall q + E max(J − q, 0) / (1 − p) at the p-quantile q.

        Rockafellar and Uryasev (2002), Conditional value-at-risk for general loss distributions.
        """
        q = self.quantile(p)
        return q + self.excess(q) / (1.0 - p)
