"""Conditional means of the outputs given parameters: fitted, cross-fitted, and posterior draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky

from nestquad._typing import Array
from nestquad.voi.table._basis import Basis, spline_basis
from nestquad.voi.table._fit import Fit, Moments, draw, fit

__all__ = ["Regression", "regress"]

_FOLDS = 5
# A straight line of this size, in standard errors, stays possible whatever the likelihood says.
_FLOOR = 4.0
_CHUNK = 20
# Fits to four fifths of the rows start where they nearly are, and decide on flags only.
_HELD_OUT_TOLERANCE = 1e-2


@dataclass(frozen=True)
class Regression:
    """Conditional means of the outputs given the parameters, at the rows of the table.

    Attributes
    ----------
    fitted
        Conditional means (n, q) by all rows.
    held_out
        The same by the other four fifths of the rows.
    held_out_means
        Means of the outputs over those four fifths.
    """

    outputs: Array
    basis: Basis
    fits: tuple[Fit, ...]
    fitted: Array
    held_out: Array
    held_out_means: Array

    def draws(self, count: int, rng: np.random.Generator) -> Iterator[Array]:
        """Conditional means from their posterior, one (n, q) after the other.

        Notes
        -----
        Cost: O(n·p·q) each. Errors of the outputs are as correlated as their residuals.
        """
        p, q = len(self.basis.terms), len(self.fits)
        floor = np.where(self.basis.is_line, _FLOOR / len(self.outputs), 0.0)
        mixing = _factor(self.outputs - self.fitted)
        normals = rng.standard_normal((p, count, q)) @ mixing.T
        coefficients = np.stack(
            [
                draw(one, self.basis.gram, floor, np.ascontiguousarray(normals[:, :, j]))
                for j, one in enumerate(self.fits)
            ],
            axis=-1,
        )
        means = self.outputs.mean(axis=0)
        for start in range(0, count, _CHUNK):
            part = coefficients[:, start : start + _CHUNK]
            values = part.reshape(p, -1).T @ self.basis.columns.T
            for one in values.reshape(part.shape[1], q, -1):
                yield one.T + means


def regress(outputs: Array, inputs: Array, rng: np.random.Generator) -> Regression:
    """Regress each output on the parameters.

    Parameters
    ----------
    outputs, inputs
        (n, q) and (n, d) with d ≥ 1; no column of the inputs is constant or a copy of another.
    rng
        Deals the rows into folds.

    Notes
    -----
    Cost: O(n·p²) once for sums of products, then O(p³) for each step of each fit. Scales are
    fitted anew in each fold: held fixed, they would let the held-out rows leak in.
    """
    n, q = outputs.shape
    basis = spline_basis(inputs)
    columns = basis.columns
    means = outputs.mean(axis=0)
    centered = outputs - means
    cross, squares = columns.T @ centered, np.square(centered).sum(axis=0)
    fits = tuple(
        fit(Moments(n, basis.gram, cross[:, j], float(squares[j])), basis.scales) for j in range(q)
    )
    fitted = means + columns @ np.column_stack([one.coefficients for one in fits])
    held_out, held_out_means = np.empty_like(outputs), np.empty_like(outputs)
    fold = rng.permutation(n) % _FOLDS
    for k in range(_FOLDS):
        inside = fold == k
        part, part_y = columns.T[:, inside].T, centered[inside]
        rest = n - len(part)
        # Sums over the other rows, and what centering them anew takes away.
        at, at_y = -part.sum(axis=0) / rest, -part_y.sum(axis=0) / rest
        gram = basis.gram - part.T @ part - rest * np.outer(at, at)
        cross_k = cross - part.T @ part_y - rest * np.outer(at, at_y)
        squares_k = squares - np.square(part_y).sum(axis=0) - rest * at_y**2
        held_out_means[inside] = means + at_y
        for j, whole in enumerate(fits):
            moments = Moments(rest, gram, cross_k[:, j], max(float(squares_k[j]), 0.0))
            one = fit(moments, basis.scales, whole.logs, _HELD_OUT_TOLERANCE)
            held_out[inside, j] = means[j] + at_y[j] + (part - at) @ one.coefficients
    return Regression(outputs, basis, fits, fitted, held_out, held_out_means)


def _factor(residuals: Array) -> Array:
    """A square root of the correlations of residuals; outputs without any stand apart."""
    sd = residuals.std(axis=0)
    scaled = residuals / np.where(sd > 0, sd, 1.0)
    correlation = scaled.T @ scaled / len(residuals)
    # Two outputs may be multiples of each other.
    np.fill_diagonal(correlation, 1.0 + 1e-9)
    factor: Array = cholesky(correlation, lower=True)
    return factor
