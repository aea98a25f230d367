"""Law of J from a table with risk factors: a cross-fitted regression, corrected by its draws."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from scipy.stats import rankdata

from nestquad._checks import numbers
from nestquad._scale import scale_of
from nestquad._typing import Array, Indices
from nestquad.errors import InputError
from nestquad.methods.learned import Pairs
from nestquad.regression import ScoreTable, ridge
from nestquad.risk._law import LawOfJ


@dataclass(frozen=True)
class FactorSettings:
    """Tuning numbers of the regression on risk factors.

    Attributes
    ----------
    n_folds
        Parts of the scenarios, each predicted by the fit to the others (Chernozhukov and others
        2018, Double/debiased machine learning).
    max_degree, max_terms
        Polynomials in normal scores of the factors: up to this degree, as far as there is room.
    fewest
        Scenarios with two draws or more, below which pairs show nothing.
    """

    n_folds: int = 10
    max_degree: int = 6
    max_terms: int = 500
    fewest: int = 32


SETTINGS = FactorSettings()


def factors_by_scenario(frame: Any, names: list[str], group: Indices) -> Array:
    """Values (n, d) of factors, which all rows of a scenario have in common."""
    columns = []
    first = np.unique(group, return_index=True)[1]
    for name in names:
        try:
            column = numbers("factors", np.asarray(frame[name]), f"a column {name!r} of numbers")
        except (KeyError, TypeError, ValueError, LookupError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("factors", f"no column {name!r}", "names of columns") from error
        if column.shape != group.shape or not np.isfinite(column).all():
            given = f"a column {name!r} that is not finite in each row"
            raise InputError("factors", given, "finite numbers, one for each row")
        value = column[first]
        differs = column != value[group]
        if differs.any():
            row = int(np.argmax(differs))
            raise InputError(
                "factors",
                f"{name!r} with {value[group[row]]:g} and {column[row]:g} in one scenario (row "
                f"{row})",
                "one value of a factor for each scenario",
                "What varies within a scenario is part of the inner draw.",
            )
        if np.ptp(value) > 0:
            columns.append(value)
    if not columns:
        raise InputError("factors", "factors that never vary", "at least one that does")
    return np.stack(columns, axis=1)


def predict_losses(factors: Array, means: Array, count: Array, seed: int) -> Array:
    """Ĵ (n,) at scenarios with factors (n, d), each by a ridge on the other folds.

    `means` (n,) are mean losses of `count` (n,) draws. The degree is the one with the smallest
    leave-one-out residuals.
    """
    n, dim = factors.shape
    uniform = (rankdata(factors, axis=0) - 0.5) / n
    fold = np.random.default_rng(seed).permutation(n) % SETTINGS.n_folds
    scale = scale_of(means[:, None])
    degrees = range(1, SETTINGS.max_degree + 1)
    most = sorted({min(comb(dim + k, k), SETTINGS.max_terms) for k in degrees})
    predicted = np.empty(n)
    for k in range(SETTINGS.n_folds):
        rest, own = fold != k, fold == k
        tried = [
            ridge(
                means[rest, None] / scale,
                uniform[rest],
                count[rest],
                max_points=n,
                max_terms=terms,
            )
            for terms in most
        ]
        best = min(tried, key=lambda fitted: fitted.fits[0].loo)
        table = ScoreTable(uniform[own], best.table.scores)
        predicted[own] = float(scale[0]) * best.fits[0].evaluate(table)
    return predicted


def law_of_table(group: Indices, loss: Array, factors: Array, seed: int) -> LawOfJ:
    """Law of J over scenarios from draws of losses (m,) in groups (m,), with factors (n, d)."""
    count = np.bincount(group).astype(float)
    means = np.bincount(group, loss) / count
    s = predict_losses(factors, means, count, seed)
    # Halves of the draws of a scenario: the last of an odd number joins the first half.
    order = np.argsort(group, kind="stable")
    place = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count.astype(int))
    half = (place % 2).astype(np.intp)
    both = 2 * group[order] + half
    sums = np.bincount(both, loss[order], 2 * len(count)).reshape(-1, 2)
    sizes = np.bincount(both, minlength=2 * len(count)).reshape(-1, 2)
    rows = sizes[:, 1] > 0
    if rows.sum() < SETTINGS.fewest:
        raise InputError(
            "factors",
            f"a table with {int(rows.sum())} scenarios of two draws or more",
            f"at least {SETTINGS.fewest}",
            "Without repeated draws nothing tells the error of a regression on factors.",
        )
    r = sums[rows] / sizes[rows] - s[rows, None]
    size = max(float((r[:, 0] * r[:, 1]).mean()), 1e-6 * float(s.var()), 1e-300)
    pairs = Pairs(s[rows], r, np.ones(len(r)), np.full(len(r), size), None, sizes[rows, 1] * 1.0)
    replicate = np.random.default_rng(seed + 1).permutation(len(s)) % 16
    law = LawOfJ.of_model(s, np.ones(len(s)), replicate, float(factors.shape[1]), len(s))
    return law.corrected(pairs, np.random.default_rng(seed + 2))
