"""Multivariate Student t laws: correlated coordinates that have their extremes together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import stdtr, stdtrit

from nestquad._typing import Array, ArrayLike
from nestquad.distributions._law import Law, as_floats
from nestquad.distributions._normal import (
    correlate,
    covariance_and_factor,
    is_singular,
    solve_rows,
)
from nestquad.errors import InputError, UnsupportedError


@dataclass(frozen=True, init=False, eq=False, repr=False)
class MultivariateT(Law):
    """The multivariate Student t law, in the parameters of ``scipy.stats.multivariate_t``.

    Parameters
    ----------
    loc
        Scalar, (d,) for one law, (T, d) for a batch of T laws.
    shape
        Scale matrix, (d, d) or (T, d, d), positive semi-definite. The covariance is
        ``shape * df / (df - 2)`` where df > 2.
    df
        Degrees of freedom, a positive number.

    Attributes
    ----------
    loc, shape, chol, df
        The parameters, with ``shape = chol @ chol.T``.

    Notes
    -----
    The transport takes one coordinate after the other: given those before it, a
    coordinate of ``inverse(chol) @ (x - loc)`` is a Student t variable with one more
    degree of freedom each, and a scale that their squares make. So there are as many
    uniforms as coordinates, and one coordinate has its quantile function.

    Examples
    --------
    >>> from nestquad.distributions import MultivariateT
    >>> law = MultivariateT([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], df=4)
    >>> law.from_uniform([[0.5, 0.5], [0.975, 0.5]]).round(4)
    array([[0.    , 0.    ],
           [2.7764, 1.3882]])
    """

    loc: Array
    shape: Array
    chol: Array
    df: float

    _shown: ClassVar[tuple[str, ...]] = ("loc", "shape", "df")

    def __init__(self, loc: ArrayLike, shape: ArrayLike, df: float) -> None:
        freedom = as_floats("df", df)
        if freedom.ndim or not 0 < freedom < np.inf:
            raise InputError(
                "df", repr(df), "a positive finite number", "The limit of large df is Normal."
            )
        center, scale, factor = covariance_and_factor("loc", loc, "shape", shape, None)
        vars(self).update(shape=scale, chol=factor, df=float(freedom))
        self._set(loc=center)

    def mean(self) -> Array:
        """Return the mean, (d,) or (T, d); `UnsupportedError` where df ≤ 1."""
        if self.df <= 1:
            raise UnsupportedError(f"A Student t law with df={self.df:g} ≤ 1 has no mean.")
        return self.loc.copy()

    def _from_uniform(self, u: Array) -> Array:
        y = np.empty_like(u)
        squares = np.full(u.shape[:-1], self.df)
        for i in range(u.shape[-1]):
            freedom = self.df + i
            y[..., i] = stdtrit(freedom, u[..., i]) * np.sqrt(squares / freedom)
            squares += np.square(y[..., i])
        return correlate(self.loc, self.chol, y)

    def _to_uniform(self, x: Array) -> Array:
        if not np.all(np.diagonal(self.chol) > 0):
            return super()._to_uniform(x)
        y: Array = solve_triangular(self.chol, (x - self.loc).T, lower=True).T
        u: Array = np.empty_like(y)
        squares = np.full(len(y), self.df)
        for i in range(y.shape[-1]):
            freedom = self.df + i
            u[:, i] = stdtr(freedom, y[:, i] * np.sqrt(freedom / squares))
            squares += np.square(y[:, i])
        return u

    def _score(self, x: Array) -> Array:
        if is_singular(self.chol):
            raise UnsupportedError(
                "A Student t law with a singular shape has no density, so it has no score."
            )
        centred = x - self.loc[..., None, :]
        solved = solve_rows(self.shape, centred)
        distance: Array = (centred * solved).sum(axis=-1, keepdims=True)
        score: Array = -(self.df + x.shape[-1]) / (self.df + distance) * solved
        return score
