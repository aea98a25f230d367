"""Uniform, normal, log-normal and Student t laws, and weighted samples."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from nestquad._checks import numbers
from nestquad._typing import Array, ArrayLike
from nestquad.distributions._law import (
    Law,
    check_parameter,
    common_batch,
    frozen_array,
    parameters,
)
from nestquad.errors import InputError, NumericalError


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Uniform(Law):
    """The uniform law on a box.

    Parameters
    ----------
    low, high
        Ends of the box: scalar, (d,) for one law, (T, d) for a batch of T laws.
    dim
        Number of coordinates, where the ends do not say it.

    Attributes
    ----------
    low, high
        The ends, both of shape (d,) or (T, d).

    Examples
    --------
    >>> from nestquad.distributions import Uniform
    >>> law = Uniform([0.0, -1.0], [1.0, 1.0])
    >>> law.from_uniform([[0.5, 0.25]])
    array([[ 0.5, -0.5]])
    """

    low: Array
    high: Array

    _shown: ClassVar[tuple[str, ...]] = ("low", "high")

    def __init__(self, low: ArrayLike = 0.0, high: ArrayLike = 1.0, dim: int | None = None) -> None:
        lower, upper = parameters(dim, low=low, high=high)
        wrong = lower >= upper
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0].tolist())
            given = f"low = {lower[at]:g}, high = {upper[at]:g} at index {list(at)}"
            raise InputError("high", given, "low < high in every coordinate")
        with np.errstate(over="ignore"):
            if not np.isfinite(upper - lower).all():
                raise InputError("high", "a box wider than the largest float", "a smaller box")
        self._set(low=lower, high=upper)

    def _from_uniform(self, u: Array) -> Array:
        low, high = self.low[..., None, :], self.high[..., None, :]
        # Never outside the box, also after rounding: for u <= 1 - 2**-53 the rounded
        # product is at most the exact high - low, and adding low is monotone.
        x: Array = (high - low) * u
        x += low
        return x

    def _to_uniform(self, x: Array) -> Array:
        return np.asarray((x - self.low) / (self.high - self.low))


@dataclass(frozen=True, init=False, eq=False, repr=False)
class _NormalScores(Law):
    """Base of the laws of normal scores, with independent coordinates or a full covariance."""

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
            if not (scale > 0).all():
                at = tuple(np.argwhere(~(scale > 0))[0].tolist())
                given = f"{scale[at]:g} at index {list(at)}"
                advice = "A constant has no kernel embedding: put it into g instead."
                raise InputError("sd", given, "positive standard deviations", advice)
            vars(self).update(sd=scale, cov=None, chol=None)
        elif sd is not None:
            raise InputError("sd and cov", "both", "one of the two")
        else:
            loc, covariance, factor = _covariance_and_factor("mean", mean, "cov", cov, dim)
            vars(self).update(sd=None, cov=covariance, chol=factor)
        self._set(loc=loc)

    def _from_uniform(self, u: Array) -> Array:
        return self._from_normal(ndtri(u))

    def _from_normal(self, z: Array) -> Array:
        if self.sd is not None:
            x: Array = self.sd[..., None, :] * z
            x += self.loc[..., None, :]
            return x
        assert self.chol is not None  # the constructor sees to it; mypy cannot
        return _correlate(self.loc, self.chol, z)

    def _to_uniform(self, x: Array) -> Array:
        if self.sd is not None:
            return np.asarray(ndtr((x - self.loc) / self.sd))
        assert self.chol is not None
        if not np.all(np.diagonal(self.chol) > 0):
            return super()._to_uniform(x)
        return np.asarray(ndtr(solve_triangular(self.chol, (x - self.loc).T, lower=True).T))


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Normal(_NormalScores):
    """The normal law, with independent coordinates or a full covariance.

    Parameters
    ----------
    mean
        Scalar, (d,) for one law, (T, d) for a batch of T laws.
    sd
        Standard deviations, of the same shapes; 1 if neither `sd` nor `cov` is given.
    cov
        Covariance, (d, d) or (T, d, d), symmetric and positive semi-definite.
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


@dataclass(frozen=True, init=False, eq=False, repr=False)
class LogNormal(_NormalScores):
    """The law of exp(Y) with Y normal, with independent coordinates or a full covariance.

    Parameters
    ----------
    mean, sd, cov, dim
        Of the logarithm Y, as for `Normal`.

    Attributes
    ----------
    loc, sd, cov, chol
        Of the logarithm, as for `Normal`.

    Examples
    --------
    >>> from nestquad.distributions import LogNormal
    >>> law = LogNormal(0.0, 0.5)
    >>> law.from_uniform([[0.5]])
    array([[1.]])

    Two correlated assets with volatilities of 20 % and 30 %:

    >>> law = LogNormal([4.6, 3.9], cov=[[0.04, 0.03], [0.03, 0.09]])
    >>> law.from_normal([[0.0, 0.0]]).round(2)
    array([[99.48, 49.4 ]])
    """

    def _from_normal(self, z: Array) -> Array:
        y = super()._from_normal(z)
        # The floating-point flag finds an overflow without another pass over the values.
        with np.errstate(over="raise", under="ignore"):
            try:
                return np.exp(y, out=y)
            except FloatingPointError:
                raise NumericalError(
                    "A log-normal value is larger than the largest float. "
                    "Check that mean and sd are those of the logarithm."
                ) from None

    def _to_uniform(self, x: Array) -> Array:
        # The smallest float instead of 0, whose logarithm no linear system can hold.
        return super()._to_uniform(np.log(np.maximum(x, np.nextafter(0.0, 1.0))))


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
    The transport (Ding 2016, On the conditional distribution of the multivariate t
    distribution) takes one coordinate after the other: given the ones before, a
    coordinate of ``inverse(chol) @ (x - loc)`` is a Student t variable with one more
    degree of freedom each, and a scale that their squares make. There is one
    uniform for each coordinate, and a single coordinate has its quantile function.

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
        freedom = numbers("df", df, copy=False)
        if freedom.ndim or not 0 < freedom < np.inf:
            advice = "The limit of large df is Normal."
            raise InputError("df", repr(df), "a positive finite number", advice)
        center, scale, factor = _covariance_and_factor("loc", loc, "shape", shape, None)
        vars(self).update(shape=scale, chol=factor, df=float(freedom))
        self._set(loc=center)

    def _from_uniform(self, u: Array) -> Array:
        y = np.empty_like(u)
        squares = np.full(u.shape[:-1], self.df)
        for i in range(u.shape[-1]):
            freedom = self.df + i
            y[..., i] = stdtrit(freedom, u[..., i]) * np.sqrt(squares / freedom)
            squares += np.square(y[..., i])
        return _correlate(self.loc, self.chol, y)

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


def standard_deviation(law: _NormalScores) -> Array:
    """Standard deviation of each coordinate (of its logarithm), (d,) or (T, d)."""
    if law.cov is None:
        assert law.sd is not None  # the law has sd or cov
        return law.sd
    return np.sqrt(np.diagonal(law.cov, axis1=-2, axis2=-1))


# Entries of a covariance that was estimated or multiplied out carry rounding
# errors of this size relative to its largest entry.
_TOLERANCE = 1e-10


def _covariance_and_factor(
    loc_name: str, mean: ArrayLike, name: str, cov: ArrayLike, dim: int | None
) -> tuple[Array, Array, Array]:
    """Return mean, covariance and its lower triangular factor, all with the same batch.

    Errors call them `loc_name` and `name`.
    """
    covariance = numbers(name, cov, copy=False)
    if covariance.ndim not in (2, 3) or covariance.shape[-1] != covariance.shape[-2]:
        expected = "(d, d) for one law or (T, d, d) for T laws"
        advice = "For independent coordinates give sd instead." if name == "cov" else ""
        raise InputError(name, f"shape {covariance.shape}", expected, advice)
    check_parameter(name, covariance)
    size = covariance.shape[-1]
    if dim is not None and dim != size:
        raise InputError("dim", str(dim), f"{size}, as {name} has shape {covariance.shape}")
    (loc,) = parameters(size, **{loc_name: mean})
    means, matrices = (x.shape[:-k] for k, x in ((1, loc), (2, covariance)))  # () or (T,)
    batch = common_batch(f"{loc_name} and {name}", [*means, *matrices])
    covariance = _symmetric(name, covariance)
    factor = _factor(name, covariance)
    lead = () if batch is None else (batch,)
    # Views where one matrix is shared: a batch of means does not cost T·d² numbers.
    return (
        frozen_array(np.broadcast_to(loc, (*lead, size))),
        np.broadcast_to(frozen_array(covariance), (*lead, size, size)),
        np.broadcast_to(frozen_array(factor), (*lead, size, size)),
    )


def _correlate(loc: Array, chol: Array, z: Array) -> Array:
    """Return ``loc + chol @ z`` for each row of `z`.

    Sums of products coordinate by coordinate instead of a matrix product: BLAS
    picks its kernels by the number of rows, so a row would get other bits in a
    chunk of another size.
    """
    columns = np.ascontiguousarray(np.moveaxis(z, -1, 0))
    lead = np.broadcast_shapes(columns.shape[1:], (*loc.shape[:-1], 1))
    x = np.empty((loc.shape[-1], *lead))
    term = np.empty(lead)
    for i, row in enumerate(x):
        np.multiply(chol[..., i, 0, None], columns[0], out=row)
        row += loc[..., i, None]
        for j in range(1, i + 1):
            row += np.multiply(chol[..., i, j, None], columns[j], out=term)
    return np.moveaxis(x, 0, -1)


def _symmetric(name: str, covariance: Array) -> Array:
    transposed = np.swapaxes(covariance, -1, -2)
    gap = np.abs(covariance - transposed)
    allowed = _TOLERANCE * np.abs(covariance).max(axis=(-1, -2), keepdims=True)
    if (gap > allowed).any():
        *item, i, j = np.argwhere(gap > allowed)[0].tolist()
        a, b = covariance[(*item, i, j)], covariance[(*item, j, i)]
        given = f"{_item(item)}entries [{i}, {j}] = {a:g} and [{j}, {i}] = {b:g}"
        advice = f"Symmetrise it with ({name} + {name}.T) / 2 if the difference is rounding."
        raise InputError(name, given, "a symmetric matrix", advice)
    return (covariance + transposed) / 2


def _factor(name: str, covariance: Array) -> Array:
    with contextlib.suppress(np.linalg.LinAlgError):
        return np.linalg.cholesky(covariance).astype(np.float64, copy=False)
    # One by one, so that the factor of a law does not depend on its batch.
    stack = covariance.reshape(-1, *covariance.shape[-2:])
    factors = np.empty_like(stack)
    for t, matrix in enumerate(stack):
        try:
            factors[t] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            factors[t] = _semidefinite_factor(name, matrix, [t] if covariance.ndim == 3 else [])
    return factors.reshape(covariance.shape)


def _semidefinite_factor(name: str, matrix: Array, item: list[int]) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < -_TOLERANCE * max(values[-1], 0.0) or values[-1] <= 0.0:
        given = f"{_item(item)}a matrix whose smallest eigenvalue is {values[0]:.3g}"
        expected = "a positive semi-definite matrix that is not zero"
        advice = "Check that it holds covariances, not correlations mixed with variances."
        raise InputError(name, given, expected, advice)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    # cov = root @ root.T = R.T @ R with root.T = Q @ R: again triangular, like Cholesky.
    upper = np.linalg.qr(root.T, mode="r")
    signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)
    factor: Array = np.tril((signs[:, None] * upper).T)
    return factor


def _item(index: list[int]) -> str:
    return f"in batch item {index[0]}, " if index else ""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Empirical(Law):
    """The discrete law of weighted samples.

    Parameters
    ----------
    samples
        (n, d) for one law, (T, n, d) for a batch of T laws.
    weights
        (n,), shared by a batch, or (T, n); not negative, normalised to sum 1.
        Equal if not given.

    Attributes
    ----------
    samples, weights
        As given, weights of shape (n,) or (T, n). Samples of one coordinate are
        sorted (their weights with them), so that the transport is the quantile
        function.

    Notes
    -----
    There is one driving variable: ``base_dim == 1``. In several coordinates the
    samples keep their order, as there is no natural one.

    Cost: O(log n) for each point.

    Examples
    --------
    >>> from nestquad.distributions import Empirical
    >>> law = Empirical([[3.0], [1.0], [2.0]], weights=[2, 1, 1])
    >>> law.from_uniform([[0.2], [0.4], [0.9]]).ravel()
    array([1., 2., 3.])
    >>> law.mean()
    array([2.25])
    """

    samples: Array
    weights: Array
    _cumulative: Array

    def __init__(self, samples: ArrayLike, weights: ArrayLike | None = None) -> None:
        values = numbers("samples", samples, copy=False)
        if values.ndim not in (2, 3):
            expected = "(n, d) for one law or (T, n, d) for T laws"
            advice = "For samples of one coordinate add a last axis: samples[:, None]."
            raise InputError("samples", f"shape {values.shape}", expected, advice)
        check_parameter("samples", values)
        mass = _masses(weights, values.shape)
        if values.shape[-1] == 1:
            order = np.argsort(values[..., 0], axis=-1, kind="stable")
            values = np.take_along_axis(values, order[..., None], axis=-2)
            if weights is not None:
                mass = np.take_along_axis(np.broadcast_to(mass, values.shape[:-1]), order, axis=-1)
        # Dividing the running sum by its last term makes it end at exactly 1, also
        # before trailing samples of weight 0, which are never drawn.
        cumulative = np.cumsum(mass, axis=-1)
        total = cumulative[..., -1:]
        vars(self).update(
            samples=frozen_array(values),
            weights=frozen_array(np.broadcast_to(mass / total, values.shape[:-1])),
            dim=values.shape[-1],
            base_dim=1,
            batch=values.shape[0] if values.ndim == 3 else None,
            _cumulative=frozen_array(cumulative / total),
        )

    def mean(self) -> Array:
        """Return the weighted mean, (d,) or (T, d)."""
        total: Array = np.einsum("...n,...nd->...d", self.weights, self.samples)
        return total

    def _from_uniform(self, u: Array) -> Array:
        levels = u[..., 0]
        if self._cumulative.ndim == 1:
            index = np.searchsorted(self._cumulative, levels)
            if self.batch is None:
                return self.samples[index]
        else:
            rows = np.broadcast_to(levels, (len(self._cumulative), levels.shape[-1]))
            index = np.array(
                [np.searchsorted(c, row) for c, row in zip(self._cumulative, rows, strict=True)]
            )
        return self.samples[np.arange(len(self.samples))[:, None], index]


def _masses(weights: ArrayLike | None, shape: tuple[int, ...]) -> Array:
    """Check the weights; (n,) or (T, n)."""
    if weights is None:
        return np.ones(shape[-2])
    mass = numbers("weights", weights, copy=False)
    if mass.shape not in (shape[-2:-1], shape[:-1]):
        accepted = " or ".join(dict.fromkeys([str(shape[-2:-1]), str(shape[:-1])]))
        raise InputError("weights", f"shape {mass.shape}", f"{accepted} for samples of {shape}")
    check_parameter("weights", mass)
    if (mass < 0).any():
        at = np.argwhere(mass < 0)[0].tolist()
        raise InputError("weights", f"a negative weight at index {at}", "weights of at least 0")
    sums = mass.sum(axis=-1)
    if not (np.isfinite(sums) & (sums > 0)).all():
        raise InputError("weights", "a sum that is zero or overflows", "a positive finite sum")
    return mass
