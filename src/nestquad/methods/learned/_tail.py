"""Tail of log J: a quadratic continuation where Ĵ is below its own uncertainty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array
from nestquad.errors import NumericalError
from nestquad.regression import PolynomialFit, ScoreTable, fit_terms, total_degree_terms

# Ĵ counts as lost below this many of its standard deviations, if below this share of its mean.
_LOST, _SMALL = 30.0, 0.03
# Band of Ĵ that the continuation is fitted on, in multiples of that bound, and the relative misfit
# at which it is accepted.
_KNOWN, _RIGHT = (3.0, 300.0), 0.002
# Fewest θ for each coefficient.
_POINTS_PER_TERM = 5
# Floor in standard deviations where there is no continuation.
_FLOOR = 0.01


@dataclass(frozen=True, eq=False)
class KnownMeans:
    """Ĵ (M,) and its standard deviations at θ that weigh (M,), with a table of their scores."""

    j: Array
    deviations: Array
    weights: Array
    table: ScoreTable


@dataclass(frozen=True, eq=False)
class Tail:
    """Replacement of a positive Ĵ where that is below `least` standard deviations.

    Logarithms of means feel the far tails of θ, where J is tiny and a small error of Ĵ is all of
    it. The evidence of normal data, and what is like it, has a logarithm that is quadratic in θ:
    where Ĵ shows that this is so, it is continued by what was fitted. Else a floor is put under it.
    """

    least: float
    highest: float = np.inf
    quadratic: PolynomialFit | None = None

    @classmethod
    def learned(cls, known: KnownMeans) -> Tail:
        """A continuation where it fits, else a floor."""
        return cls._continuing(known, _RIGHT) or cls(_FLOOR)

    @classmethod
    def like(cls, other: Tail, known: KnownMeans) -> Tail:
        """Of the same form, from other means."""
        found = None if other.quadratic is None else cls._continuing(known, np.inf)
        return found or cls(_FLOOR)

    @classmethod
    def _continuing(cls, known: KnownMeans, misfit: float) -> Tail | None:
        j, deviations, table = known.j, known.deviations, known.table
        close, far = (_LOST * bound * deviations for bound in _KNOWN)
        band = np.flatnonzero((j > close) & (j < far))
        terms = total_degree_terms(table.dim, 2)
        if band.size < _POINTS_PER_TERM * len(terms):
            return None
        try:
            known_by = j[band] / far[band]  # what is known better counts more
            quadratic = fit_terms(np.log(j[band]), table.rows(band), terms, known_by)
        except NumericalError:  # θ that cannot tell the terms apart
            return None
        mean = float(known.weights @ j / known.weights.sum())
        if quadratic.loo > misfit**2 or mean <= 0:
            return None
        return cls(_LOST, _SMALL * mean, quadratic)

    def mended(self, j: Array, deviations: Array, table: ScoreTable, lowest: float) -> Array:
        """Ĵ (…, M) with lost values replaced, by nothing lower than `lowest`."""
        limit = np.minimum(self.least * deviations, self.highest)
        if self.quadratic is None:
            return np.maximum(j, limit)
        lost = j < limit
        rows = np.flatnonzero(lost.reshape(-1, lost.shape[-1]).any(axis=0))
        if not rows.size:
            return j
        continued = limit.copy()
        exponents = np.minimum(self.quadratic.evaluate(table.rows(rows)), np.log(limit[rows]))
        continued[rows] = np.exp(np.maximum(exponents, np.log(lowest)))
        return np.where(lost, continued, j)
