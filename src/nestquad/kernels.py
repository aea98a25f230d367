"""Positive definite kernels on points with d coordinates.

Kernels are built coordinate by coordinate: k(x, y) = combine(k_1(x_1, y_1), ..., k_d(x_d, y_d))
where `combine` is linear in each of its arguments. Integrals under independent coordinates pass
through such a function: the embedding is `combine` of embeddings on one coordinate, and only these
need closed forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from math import comb, factorial
from typing import Any, Self, TypeAlias

import numpy as np

from nestquad._checks import instance, number, numbers, whole
from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError

Lengthscale: TypeAlias = float | Array
"""A number, (d,) for one per coordinate, or (T, d) for a batch of T kernels."""


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """A positive definite function k(x, y).

    Subclasses are frozen dataclasses (``eq=False``) that combine one-dimensional kernels, one for
    each coordinate. They are immutable, and two of them are equal, with equal hashes, when their
    parameters are: weights can be cached by kernel.

    Shapes
    ------
    x (..., n, d), y (..., m, d) with leading axes that broadcast -> (..., n, m).
    """

    @property
    @abstractmethod
    def lengthscale(self) -> Lengthscale:
        """A number, (d,) for one per coordinate, or (T, d) for a batch of kernels."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """(T,) for a batch of lengthscales, otherwise ()."""
        return np.shape(self.lengthscale)[:-1]

    @abstractmethod
    def with_lengthscale(self, lengthscale: Lengthscale) -> Kernel:
        """Kernel with another lengthscale."""

    @abstractmethod
    def smoothness(self, dim: int) -> float:
        """Order s of the Sobolev space on `dim` coordinates that the kernel stands for."""

    @abstractmethod
    def coordinate(self, j: int, dim: int) -> ProductKernel:
        """Kernel of coordinate j out of `dim`."""

    def combine(self, parts: Iterable[Array]) -> Array:
        """The kernel from its factors, in the order of the coordinates; may overwrite them."""
        return accumulated(np.multiply, parts)

    def evaluate(self, x: Array, y: Array) -> Array:
        """Evaluate at all pairs of checked nodes, into an array that the caller may overwrite."""
        dim = x.shape[-1]
        return self.combine(
            self.coordinate(j, dim).univariate(x[..., j], y[..., j]) for j in range(dim)
        )

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        """Evaluate at all pairs of nodes."""
        first = as_nodes(x, "x")
        second = first if y is x else as_nodes(y, "y")
        if first.shape[-1] != second.shape[-1]:
            given = f"nodes with {second.shape[-1]} coordinates"
            raise InputError("y", given, f"as many as x has, {first.shape[-1]}")
        return self.evaluate(first, second)

    def _key(self) -> tuple[object, ...]:
        values = (getattr(self, field.name) for field in fields(self))
        return (type(self), *map(_hashable, values))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Kernel) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def _hashable(value: Any) -> object:
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def as_nodes(x: ArrayLike, argument: str) -> Array:
    """Nodes as float64, (..., n, d), validated."""
    nodes = np.asarray(x, dtype=np.float64)
    if nodes.ndim < 2 or nodes.shape[-1] == 0:
        given = f"an array of shape {nodes.shape}"
        advice = "For points on a line add an axis: x[:, None]."
        raise InputError(argument, given, "nodes of shape (..., n, d)", advice)
    if not np.isfinite(nodes).all():
        raise InputError(argument, "nodes that are NaN or infinite", "finite nodes")
    return nodes


def as_lengthscale(lengthscale: ArrayLike) -> Lengthscale:
    """A checked lengthscale: a float, or a read-only copy of shape (d,) or (T, d)."""
    value = numbers("lengthscale", lengthscale, "a number, or an array of numbers")
    if value.ndim > 2 or value.size == 0:
        expected = "a number, (d,) for one per coordinate or (T, d) for a batch"
        raise InputError("lengthscale", f"an array of shape {value.shape}", expected)
    if not (np.isfinite(value) & (value > 0)).all():
        raise InputError(
            "lengthscale", f"{np.array2string(value, threshold=8)}", "positive numbers"
        )
    if value.ndim == 0:
        return float(value)
    value.flags.writeable = False
    return value


def accumulate(operation: np.ufunc, total: Array, part: Array | float) -> Array:
    """``operation(total, part)``, in place where shapes allow: Gram matrices are large."""
    fits = total.shape == np.broadcast_shapes(total.shape, np.shape(part))
    # Products of 0-d arrays are scalars, which cannot be written to.
    writable = fits and isinstance(total, np.ndarray)
    return np.asarray(operation(total, part, out=total if writable else None))


def accumulated(operation: np.ufunc, parts: Iterable[Array]) -> Array:
    """The sum or product of all parts."""
    return reduce(lambda total, part: accumulate(operation, total, part), parts)


class ProductKernel(Kernel):
    """The product over coordinates of one function of one coordinate, with its own lengthscales.

    Subclasses implement :meth:`univariate`, which is called on kernels of one coordinate only, and
    must not go through :meth:`evaluate` there.

    Examples
    --------
    A kernel of one's own, the triangular (hat) function, with all that the others have except
    closed forms:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> @dataclass(frozen=True, eq=False)
    ... class Hat(ProductKernel):
    ...     lengthscale: float = 1.0
    ...
    ...     def smoothness(self, dim):
    ...         return 1.0
    ...
    ...     def univariate(self, x, y):
    ...         return np.maximum(1.0 - np.abs(differences(x, y)) / self.scale(2), 0.0)
    >>> Hat([1.0, 2.0])(np.zeros((1, 2)), np.array([[0.5, 0.5]]))
    array([[0.375]])
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengthscale", as_lengthscale(self.lengthscale))

    @abstractmethod
    def univariate(self, x: Array, y: Array) -> Array:
        """Evaluate on one coordinate, x (..., n) and y (..., m) -> (..., n, m)."""

    def with_lengthscale(self, lengthscale: Lengthscale) -> Self:
        changes: dict[str, Any] = {"lengthscale": lengthscale}  # a field of every subclass
        return replace(self, **changes)

    def coordinate(self, j: int, dim: int) -> Self:
        return self.restrict(slice(j, j + 1), dim)

    def restrict(self, part: slice, dim: int) -> Self:
        """Kernel on some of `dim` coordinates."""
        if isinstance(self.lengthscale, float):
            return self
        given = self.lengthscale.shape[-1]
        if given == 1:
            return self
        if given != dim:
            raise InputError(
                "lengthscale",
                f"{given} of them",
                f"one for each of the {dim} coordinates, or a single one",
            )
        return self.with_lengthscale(self.lengthscale[..., part])

    def scale(self, n_axes: int) -> Array | float:
        """The lengthscale of a one-dimensional kernel, a batch (T,) followed by `n_axes` ones."""
        if isinstance(self.lengthscale, float):
            return self.lengthscale
        column = self.lengthscale[..., 0]
        return column.reshape(column.shape + (1,) * n_axes) if column.ndim else float(column)


def differences(x: Array, y: Array) -> Array:
    """x_i - y_j, (..., n) and (..., m) -> (..., n, m)."""
    return np.asarray(x[..., :, None] - y[..., None, :])


@dataclass(frozen=True, eq=False)
class Gaussian(ProductKernel):
    """exp(-½ Σ_j (x_j - y_j)² / ℓ_j²).

    Parameters
    ----------
    lengthscale
        A number, (d,) for one per coordinate, or (T, d) for a batch of kernels.

    Cost
    ----
    One exponential a pair for all d; 8 n m bytes twice.

    Examples
    --------
    >>> import numpy as np
    >>> Gaussian(lengthscale=[1.0, 2.0])(np.zeros((1, 2)), np.array([[1.0, 2.0]])).round(6)
    array([[0.367879]])
    """

    lengthscale: Lengthscale = 1.0

    def smoothness(self, dim: int) -> float:
        return float("inf")

    def evaluate(self, x: Array, y: Array) -> Array:
        dim = x.shape[-1]
        parts = (self.coordinate(j, dim)._exponent(x[..., j], y[..., j]) for j in range(dim))
        exponent = accumulated(np.add, parts)
        return np.exp(exponent, out=exponent)

    def univariate(self, x: Array, y: Array) -> Array:
        exponent = self._exponent(x, y)
        return np.exp(exponent, out=exponent)

    def _exponent(self, x: Array, y: Array) -> Array:
        r = accumulate(np.divide, differences(x, y), self.scale(2))
        np.square(r, out=r)
        return np.multiply(r, -0.5, out=r)


@lru_cache
def _matern_polynomial(p: int) -> tuple[float, ...]:
    """Coefficients of the polynomial of degree p = ν - 1/2, constant first."""
    return tuple(2**k * comb(p, k) * factorial(2 * p - k) / factorial(2 * p) for k in range(p + 1))


@dataclass(frozen=True, eq=False)
class Matern(ProductKernel):
    r"""Product over coordinates of the Matérn function of smoothness `nu`.

    With :math:`z = \sqrt{2\nu}\,|x - y| / \ell` the factor of a coordinate is a polynomial in z of
    degree ν - 1/2 times :math:`e^{-z}` (Rasmussen and Williams 2006, Gaussian processes for machine
    learning, equation 4.16); a function in its space has ν + 1/2 square-integrable
    derivatives.

    Parameters
    ----------
    nu
        0.5, 1.5, 2.5 or 3.5.
    lengthscale
        A number, (d,) for one per coordinate, or (T, d) for a batch of kernels.

    Cost
    ----
    One exponential a pair and coordinate; 8 n m bytes twice.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = Matern(1.5, lengthscale=0.5)
    >>> kernel(np.array([[0.0], [0.5]]), np.array([[0.0]])).round(6)
    array([[1.      ],
           [0.483358]])
    """

    nu: float
    lengthscale: Lengthscale = 1.0

    def __post_init__(self) -> None:
        nu = number("nu", self.nu, "0.5, 1.5, 2.5 or 3.5")
        if nu not in (0.5, 1.5, 2.5, 3.5):
            raise InputError("nu", repr(self.nu), "0.5, 1.5, 2.5 or 3.5")
        object.__setattr__(self, "nu", nu)
        super().__post_init__()

    @property
    def polynomial(self) -> tuple[float, ...]:
        """Coefficients of the polynomial in z, constant first."""
        return _matern_polynomial(int(self.nu))

    def rate(self, n_axes: int) -> Array | float:
        """The factor from |x - y| to z, shaped like the lengthscale followed by `n_axes` ones."""
        rate: Array | float = (2.0 * self.nu) ** 0.5 / self.scale(n_axes)
        return rate

    def smoothness(self, dim: int) -> float:
        return self.nu + 0.5 * dim

    def univariate(self, x: Array, y: Array) -> Array:
        r = differences(x, y)
        z = accumulate(np.multiply, np.abs(r, out=r), self.rate(2))
        return _times_decay(z, self.polynomial)


def _times_decay(z: Array, coefficients: tuple[float, ...]) -> Array:
    """Polynomial(z) e^{-z}; overwrites z."""
    if len(coefficients) == 1:
        return np.exp(np.negative(z, out=z), out=z)
    polynomial = z * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        polynomial += c
        polynomial *= z
    polynomial += coefficients[0]
    np.exp(np.negative(z, out=z), out=z)
    return np.multiply(z, polynomial, out=z)


@dataclass(frozen=True, eq=False)
class Anova(Kernel):
    """Interactions of up to `order` coordinates (Durrande and others 2013, ANOVA kernels).

    The sum over all sets S of at most `order` coordinates of ``weight**|S|`` times the product of
    the factors in S, divided by the sum of these weights, so that the diagonal of a stationary base
    is 1. ``order >= d`` is the product of all (1 + weight × factor), normalized.

    Parameters
    ----------
    base
        A product kernel, whose one-dimensional factors are used.
    order
        Largest number of coordinates that interact, at least 1.
    weight
        Relative weight of one more coordinate, positive.

    Cost
    ----
    O(n m d order) operations and 8 n m (order + 2) bytes, though there are many more sets.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.kernels import Gaussian
    >>> Anova(Gaussian(), order=2)(np.zeros((1, 5)), np.zeros((1, 5)))
    array([[1.]])
    """

    base: ProductKernel
    order: int = 2
    weight: float = 1.0

    def __post_init__(self) -> None:
        instance("base", self.base, ProductKernel, "Matern or Gaussian")
        order = whole("order", self.order, "a whole number, at least 1", below=np.inf)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "weight", number("weight", self.weight))

    @property
    def lengthscale(self) -> Lengthscale:
        return self.base.lengthscale

    def with_lengthscale(self, lengthscale: Lengthscale) -> Anova:
        return replace(self, base=self.base.with_lengthscale(lengthscale))

    def coordinate(self, j: int, dim: int) -> ProductKernel:
        return self.base.coordinate(j, dim)

    def smoothness(self, dim: int) -> float:
        return self.base.smoothness(min(self.order, dim))

    def combine(self, parts: Iterable[Array]) -> Array:
        # symmetric[m - 1]: sum over sets of m of the coordinates seen so far.
        symmetric: list[Array] = []
        dim = 0
        for dim, part in enumerate(parts, start=1):
            factor = accumulate(np.multiply, part, self.weight)
            if dim <= self.order:
                symmetric.append(factor * symmetric[-1] if symmetric else factor.copy())
            # From the largest sets down, so that each update still sees the old smaller ones.
            for m in range(min(dim - 1, self.order) - 1, 0, -1):
                symmetric[m] = accumulate(np.add, symmetric[m], factor * symmetric[m - 1])
            if dim > 1:
                symmetric[0] = accumulate(np.add, symmetric[0], factor)
        total = accumulated(np.add, symmetric)
        total += 1.0
        sets = sum(comb(dim, m) * self.weight**m for m in range(min(self.order, dim) + 1))
        return accumulate(np.divide, total, sets)
