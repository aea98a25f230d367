"""Normal and log-normal laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from nestquad._typing import Array, ArrayLike
from nestquad.distributions._checks import parameters
from nestquad.distributions._covariance import (
    correlate,
    covariance_and_factor,
    is_singular,
    solve_rows,
)
from nestquad.distributions._law import Law
from nestquad.errors import InputError, NumericalError, UnsupportedError

__all__ = ["LogNormal", "Normal"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Normal(Law):
    """The normal law, with independent coordinates or a full covariance.

    Parameters
    ----------
    mean
        Scalar, (d,) for one law, (T, d) for a batch of T laws.
    sd
        Standard deviations, of the same shapes; 1 if neither `sd` nor `cov` is given.
    cov
        Covariance, (d, d) or (T, d, d), symmetric and positive semi-definite. A
        singular one is fine, except for `score`.
    dim
        Number of coordinates, where the parameters do not say it.

    Attributes
    ----------
    loc
        The mean, (d,) or (T, d).
    sd
        Standard deviations, (d,) or (T, d); None if `cov` was given.
    cov, chol
        Covariance and its lower triangular factor ``cov = chol @ chol.T``,
        (d, d) or (T, d, d); None if `cov` was not given.

    Notes
    -----
    Shapes: see `Law`.

    Cost: a transport of M = T·N points takes O(M·d) with `sd`, O(M·d²) with
    `cov`. Uniforms shared by all laws are turned into normals only once.

    Examples
    --------
    >>> from nestquad.distributions import Normal
    >>> Normal([0.0, 10.0], sd=[1.0, 2.0]).from_normal([[1.0, -1.0]])
    array([[1., 8.]])
    >>> Normal(cov=[[1.0, 0.6], [0.6, 1.0]]).from_normal([[1.0, 1.0]])
    array([[1. , 1.4]])
    """

    loc: Array
    sd: Array | None
    cov: Array | None
    chol: Array | None

    base = "normal"
    _shown: ClassVar[tuple[str, ...]] = ("loc", "sd", "cov")

    def __init__(
        self,
        mean: ArrayLike = 0.0,
        sd: ArrayLike | None = None,
        cov: ArrayLike | None = None,
        dim: int | None = None,
    ) -> None:
        if cov is None:
            loc, scale = parameters(dim, mean=mean, sd=1.0 if sd is None else sd)
            _check_positive("sd", scale)
            vars(self).update(loc=loc, sd=scale, cov=None, chol=None)
        elif sd is not None:
            raise InputError("sd and cov", "both", "one of the two")
        else:
            loc, covariance, factor = covariance_and_factor(mean, cov, dim)
            vars(self).update(loc=loc, sd=None, cov=covariance, chol=factor)
        vars(self).update(
            dim=loc.shape[-1],
            base_dim=loc.shape[-1],
            batch=loc.shape[0] if loc.ndim == 2 else None,
        )

    def mean(self) -> Array:
        """Return the mean, (d,) or (T, d)."""
        return self.loc.copy()

    def _from_uniform(self, u: Array) -> Array:
        return self._from_normal(ndtri(u))

    def _from_normal(self, z: Array) -> Array:
        if self.sd is not None:
            return _shift_and_scale(self.loc, self.sd, z)
        assert self.chol is not None  # the constructor sees to it; mypy cannot
        return correlate(self.loc, self.chol, z)

    def _score(self, x: Array) -> Array:
        centred = x - self.loc[..., None, :]
        if self.sd is not None:
            return -centred / np.square(self.sd)[..., None, :]
        assert self.cov is not None
        assert self.chol is not None
        if is_singular(self.chol):
            raise UnsupportedError(
                "A normal law with a singular covariance has no density, so it has no score."
            )
        return -solve_rows(self.cov, centred)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class LogNormal(Law):
    """The law of exp(Y) with Y normal and independent in its coordinates.

    Parameters
    ----------
    mean, sd
        Mean and standard deviation of the logarithm: scalar, (d,) for one law,
        (T, d) for a batch of T laws.
    dim
        Number of coordinates, where the parameters do not say it.

    Attributes
    ----------
    loc, sd
        The parameters, both of shape (d,) or (T, d).

    Notes
    -----
    Shapes: see `Law`.

    Examples
    --------
    >>> from nestquad.distributions import LogNormal
    >>> law = LogNormal(0.0, 0.5)
    >>> law.from_uniform([[0.5]])
    array([[1.]])
    >>> law.mean().round(6)
    array([1.133148])
    """

    loc: Array
    sd: Array

    base = "normal"
    _shown: ClassVar[tuple[str, ...]] = ("loc", "sd")

    def __init__(self, mean: ArrayLike = 0.0, sd: ArrayLike = 1.0, dim: int | None = None) -> None:
        loc, scale = parameters(dim, mean=mean, sd=sd)
        _check_positive("sd", scale)
        vars(self).update(
            loc=loc,
            sd=scale,
            dim=loc.shape[-1],
            base_dim=loc.shape[-1],
            batch=loc.shape[0] if loc.ndim == 2 else None,
        )

    def mean(self) -> Array:
        """Return exp(loc + sd²/2), (d,) or (T, d)."""
        return _exp(self.loc + np.square(self.sd) / 2)

    def _from_uniform(self, u: Array) -> Array:
        return self._from_normal(ndtri(u))

    def _from_normal(self, z: Array) -> Array:
        return _exp(_shift_and_scale(self.loc, self.sd, z))

    def _score(self, x: Array) -> Array:
        if not (x > 0).all():
            row = np.argwhere(~(x > 0))[0].tolist()
            raise InputError("x", f"a value that is not positive at index {row}", "x > 0")
        slope: Array = (np.log(x) - self.loc[..., None, :]) / np.square(self.sd)[..., None, :]
        return -(1.0 + slope) / x


def _check_positive(name: str, value: Array) -> None:
    if not (value > 0).all():
        at = tuple(np.argwhere(~(value > 0))[0].tolist())
        raise InputError(
            name,
            f"{value[at]:g} at index {list(at)}",
            "positive standard deviations",
            "A constant has no kernel embedding: put it into g instead.",
        )


def _shift_and_scale(loc: Array, sd: Array, z: Array) -> Array:
    x: Array = sd[..., None, :] * z
    x += loc[..., None, :]
    return x


def _exp(x: Array) -> Array:
    # The floating-point flag finds an overflow without another pass over the values.
    with np.errstate(over="raise", under="ignore"):
        try:
            return np.exp(x, out=x)
        except FloatingPointError:
            raise NumericalError(
                "A log-normal value is larger than the largest float. "
                "Check that mean and sd are those of the logarithm."
            ) from None
