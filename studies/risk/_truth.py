"""Laws of J by closed forms, on a line, or by dense quasi-Monte Carlo; the measures of each.

Nothing here uses an estimator of nestquad. J itself is a closed form everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import qmc

from studies.families._truth import Sum, Truth, exceedance, excess, tabulated

# Measures by name: the kind, and its probability. That of P is nominal: its level is rounded.
MEASURES: Mapping[str, tuple[str, float]] = {
    "VaR 95": ("var", 0.95),
    "VaR 99": ("var", 0.99),
    "VaR 99.9": ("var", 0.999),
    "ES 97.5": ("es", 0.975),
    "P 1": ("p", 0.01),
    "P 0.1": ("p", 0.001),
}


class LawOfJ(Protocol):
    """Quantiles, shortfalls and exceedances of J with their own errors; a dataclass."""

    def quantile(self, p: float) -> tuple[float, float]: ...

    def shortfall(self, p: float) -> tuple[float, float]: ...

    def exceedance(self, level: float) -> tuple[float, float]: ...


def truths(law: LawOfJ, levels: Mapping[str, float]) -> dict[str, Truth]:
    """All measures of a law; `levels` are those of the exceedances."""
    law = replace(law)  # its points are needed here only, and go with the copy
    found = {}
    for name, (kind, p) in MEASURES.items():
        value, error = (
            law.quantile(p)
            if kind == "var"
            else law.shortfall(p)
            if kind == "es"
            else law.exceedance(levels[name])
        )
        found[name] = Truth(value, error, abs(value))
    return found


@dataclass(frozen=True)
class ChiSquare:
    """J = scale · (χ²_d − d)."""

    scale: float
    d: int

    def quantile(self, p: float) -> tuple[float, float]:
        return self.scale * (float(stats.chi2.ppf(p, self.d)) - self.d), 0.0

    def shortfall(self, p: float) -> tuple[float, float]:
        # E[χ²_d; χ²_d > q] = d P(χ²_{d+2} > q).
        tail = float(stats.chi2.sf(stats.chi2.ppf(p, self.d), self.d + 2))
        return self.scale * self.d * (tail / (1 - p) - 1), 0.0

    def exceedance(self, level: float) -> tuple[float, float]:
        return float(stats.chi2.sf(level / self.scale + self.d, self.d)), 0.0


@dataclass(frozen=True)
class OnALine:
    """J = h(z) of one standard normal, by its crossings of a level."""

    h: Callable[[np.ndarray], np.ndarray]

    @cached_property
    def _table(self) -> Callable[[np.ndarray], np.ndarray]:
        return tabulated(self.h)

    def quantile(self, p: float) -> tuple[float, float]:
        j = self._table(np.linspace(-8.0, 8.0, 2001))
        q = brentq(lambda c: exceedance(self._table, c).value - (1 - p), j.min(), j.max())
        return float(q), 1e-9 * float(np.ptp(j))

    def shortfall(self, p: float) -> tuple[float, float]:
        q, error = self.quantile(p)
        beyond = excess(self._table, q)
        # The derivative in q vanishes at the quantile.
        return q + beyond.value / (1 - p), error + beyond.error / (1 - p)

    def exceedance(self, level: float) -> tuple[float, float]:
        found = exceedance(self._table, level)
        return found.value, 1e-7 * found.value


# Of 2^19 points each: 8 million points, 64 megabytes.
_SCRAMBLES, _LOG2 = 16, 19


@dataclass(frozen=True)
class Dense:
    """J at independently scrambled Sobol points; the error is 2.5 standard errors of all."""

    total: Sum

    @cached_property
    def _rows(self) -> np.ndarray:
        quick = quick_sum(self.total)
        factor = np.linalg.cholesky(self.total.correlation)
        rows = []
        for scramble in range(_SCRAMBLES):
            points = qmc.Sobol(len(self.total.parts), rng=np.random.default_rng([_LOG2, scramble]))
            u = np.clip(points.random_base2(_LOG2), 1e-15, 1 - 1e-15)
            rows.append(np.sort(quick(ndtri(u) @ factor.T)))
        return np.array(rows)

    def _found(self, statistic: Callable[[np.ndarray], float]) -> tuple[float, float]:
        each = [statistic(row) for row in self._rows]
        return float(np.mean(each)), 2.5 * float(np.std(each, ddof=1)) / len(each) ** 0.5

    def quantile(self, p: float) -> tuple[float, float]:
        return self._found(lambda row: float(row[int(p * row.size)]))

    def shortfall(self, p: float) -> tuple[float, float]:
        return self._found(lambda row: float(row[int(p * row.size) :].mean()))

    def exceedance(self, level: float) -> tuple[float, float]:
        return self._found(lambda row: 1.0 - np.searchsorted(row, level, "right") / row.size)


def quick_sum(total: Sum) -> Sum:
    """The same sum from tables of its parts: an error of 1e-7 of their curvature."""
    return Sum(tuple(tabulated(part, 20_001) for part in total.parts), total.loadings)
