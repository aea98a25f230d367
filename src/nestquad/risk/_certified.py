"""Certified intervals of measures: by fresh draws alone, for any model of J."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from nestquad._typing import Array
from nestquad.functionals import WeightedSample
from nestquad.methods.learned import Pairs
from nestquad.risk._law import LawOfJ
from nestquad.risk._targets import Targets


@dataclass(frozen=True)
class BoundSettings:
    """Tuning numbers of certified intervals.

    Attributes
    ----------
    widths
        Distances h from a level, in root mean square errors of Ĵ, of which the best is taken;
        levels of confidence are divided by their number (Bonferroni).
    n_levels
        Losses at which an interval of VaR is looked for: its ends are among them.
    fewest
        Fewest pairs for a certificate.
    """

    widths: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    n_levels: int = 256
    fewest: int = 32


def certified_ends(
    law: LawOfJ, pairs: Pairs | None, targets: Targets, settings: BoundSettings | None = None
) -> Array:
    """Ends (k, 2) of 95 % intervals; infinite for measures that cannot be certified.

    Ĵ is any function of θ whose law is known, and the product of two residuals at a θ has the mean
    (J − Ĵ)². With d the distance of Ĵ from c, J is on the other side of c with probability at most
    E[(J − Ĵ)² / d²] by Chebyshev's inequality, and (J − c)⁺ exceeds its first-order expansion at Ĵ
    by at most E[(J − Ĵ)² / 4d]; θ with d < h count in full. VaR has the losses c at which
    P(J > c) may be 1 − p. Shortfall is at least the mean of J over any set of θ of probability
    1 − p, and at most c + E(J − c)⁺ / (1 − p) for any c (Rockafellar and Uryasev 2002).
    """
    chosen = settings or BoundSettings()
    ends = np.tile([-np.inf, np.inf], (len(targets.keys), 1))
    bounded = [kind == "exceed" for kind, _ in targets.keys]
    ends[bounded] = [0.0, 1.0]
    if pairs is None or len(pairs.s) < chosen.fewest:
        return ends
    bounds = _Bounds(law, pairs, chosen)
    for i, (kind, level) in enumerate(targets.keys):
        if kind == "exceed":
            ends[i] = bounds.exceedance(float(level))
        elif kind == "var":
            ends[i] = bounds.quantile(float(level))
        elif kind == "es":
            ends[i] = bounds.shortfall(float(level))
    return ends


class _Bounds:
    def __init__(self, law: LawOfJ, pairs: Pairs, settings: BoundSettings) -> None:
        self.law, self.pairs, self.settings = law, pairs, settings
        self.jhat = WeightedSample(law.s, law.weights)
        self.replicates = [WeightedSample(law.s, one) for one in law.mass]
        self.square = pairs.weights * pairs.r[:, 0] * pairs.r[:, 1]
        n = len(self.square)
        mean, error = self.square.mean(), self.square.std() / np.sqrt(n)
        size = float(np.sqrt(max(mean, error, 1e-24 * law.variance)))
        self.widths = size * np.array(settings.widths)
        freedom = np.array([n - 1, max(len(law.mass) - 1, 1)])
        self.factor, self.dense_factor = stdtrit(freedom, 1.0 - 0.025 / len(self.widths)).tolist()

    def _limit(self, terms: Array) -> Array:
        """Upper confidence limits of means over the law of terms (…, m) at pairs."""
        error = terms.std(axis=-1) / np.sqrt(terms.shape[-1])
        return np.asarray(terms.mean(axis=-1) + self.factor * error)

    def _dense(self, values: list[float]) -> float:
        """Half-width of an average over dense θ, from its replicates."""
        n = len(values)
        return float(self.dense_factor * np.std(values) / np.sqrt(max(n - 1, 1)))

    def exceedance(self, c: float) -> tuple[float, float]:
        away = c - self.pairs.s
        limits = []
        for sign in (-1.0, 1.0):  # θ with Ĵ > c of which J ≤ c, and the reverse
            for h in self.widths:
                d = sign * away
                far = d >= h
                terms = np.where(far, self.square / np.where(far, d, 1.0) ** 2, 0.0)
                place = c - sign * h
                near = self.jhat.exceedance(place)
                more = float(self._limit(terms)) + self._dense(
                    [one.exceedance(place) for one in self.replicates]
                )
                limits.append(near + sign * more)
        n = len(self.widths)
        return max(max(limits[:n]), 0.0), min(min(limits[n:]), 1.0)

    def quantile(self, p: float) -> tuple[float, float]:
        tail = np.geomspace(1.0, 1e-3, self.settings.n_levels // 2)
        levels = np.unique(np.concatenate([p * (1.0 - tail) + 1e-9, 1.0 - (1.0 - p) * tail]))
        losses = self.jhat.quantiles(levels)
        ends = np.array([self.exceedance(float(c)) for c in losses])
        may = (ends[:, 0] <= 1.0 - p) & (1.0 - p <= ends[:, 1])
        may[np.searchsorted(levels, p)] = True
        # The neighbors are no p-quantiles.
        low, high = np.array([-np.inf, *losses, np.inf])[np.flatnonzero(may)[[0, -1]] + [0, 2]]
        return float(low), float(high)

    def shortfall(self, p: float) -> tuple[float, float]:
        c, pairs = self.jhat.quantile(p), self.pairs
        away = pairs.r.mean(axis=1) * pairs.weights
        above = pairs.s > c
        first = np.where(above, away, 0.0)
        base = self.jhat.excess(c)
        dense = self._dense([one.excess(c) for one in self.replicates])
        lower = base - float(self._limit(-first)) - dense
        uppers = []
        for h in self.widths:
            d = np.abs(pairs.s - c)
            near = self.jhat.exceedance(c - h) - self.jhat.exceedance(c + h)
            terms = first + self.square / (4.0 * np.maximum(d, h))
            uppers.append(base + float(self._limit(terms)) + h * near + dense)
        return c + lower / (1.0 - p), c + min(uppers) / (1.0 - p)
