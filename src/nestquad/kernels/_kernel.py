"""Base classes of kernels.

Most are built coordinate by coordinate: k(x, y) = combine(k_1(x_1, y_1), ..., k_d(x_d, y_d)) where
`combine` is linear in each of its arguments. Integrals under independent coordinates pass through
such a function: the embedding is `combine` of embeddings on one coordinate, and only these need
closed forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Self, TypeAlias

import numpy as np

from nestquad._checks import numbers
from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError

Lengthscale: TypeAlias = float | Array
"""A number, (d,) for one per coordinate, or (T, d) for a batch of T kernels."""


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """A positive definite function k(x, y).

    Subclasses are frozen dataclasses (``eq=False``) that implement :meth:`evaluate`,
    :meth:`evaluate_diagonal`, :meth:`smoothness` and :meth:`with_lengthscale`. They are immutable,
    and two of them are equal, with equal hashes, when their parameters are: weights can be cached
    by kernel.

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
    def evaluate(self, x: Array, y: Array) -> Array:
        """Evaluate at all pairs of checked nodes, into an array that the caller may overwrite."""

    @abstractmethod
    def evaluate_diagonal(self, x: Array) -> Array:
        """Evaluate k(x, x) at checked nodes."""

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        """Evaluate at all pairs of nodes."""
        first = as_nodes(x, "x")
        second = first if y is x else as_nodes(y, "y")
        if first.shape[-1] != second.shape[-1]:
            raise InputError(
                "y",
                f"nodes with {second.shape[-1]} coordinates",
                f"as many as x has, {first.shape[-1]}",
            )
        return self.evaluate(first, second)

    def diagonal(self, x: ArrayLike) -> Array:
        """k(x, x) without the matrix, (..., n) for nodes (..., n, d)."""
        return self.evaluate_diagonal(as_nodes(x, "x"))

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
        raise InputError(
            argument,
            f"an array of shape {nodes.shape}",
            "nodes of shape (..., n, d)",
            "For points on a line add an axis: x[:, None].",
        )
    if not np.isfinite(nodes).all():
        raise InputError(argument, "nodes that are NaN or infinite", "finite nodes")
    return nodes


def as_lengthscale(lengthscale: ArrayLike) -> Lengthscale:
    """A checked lengthscale: a float, or a read-only copy of shape (d,) or (T, d)."""
    value = numbers("lengthscale", lengthscale, "a number, or an array of numbers")
    if value.ndim > 2 or value.size == 0:
        raise InputError(
            "lengthscale",
            f"an array of shape {value.shape}",
            "a number, (d,) for one per coordinate or (T, d) for a batch",
        )
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


class Coordinatewise(Kernel):
    """A kernel that combines one-dimensional kernels, one for each coordinate."""

    @abstractmethod
    def coordinate(self, j: int, dim: int) -> ProductKernel:
        """Kernel of coordinate j out of `dim`."""

    def combine(self, parts: Iterable[Array]) -> Array:
        """The kernel from its factors, in the order of the coordinates; may overwrite them."""
        return accumulated(np.multiply, parts)

    def evaluate(self, x: Array, y: Array) -> Array:
        dim = x.shape[-1]
        return self.combine(
            self.coordinate(j, dim).univariate(x[..., j], y[..., j]) for j in range(dim)
        )

    def evaluate_diagonal(self, x: Array) -> Array:
        dim = x.shape[-1]
        return self.combine(
            self.coordinate(j, dim).univariate_diagonal(x[..., j]) for j in range(dim)
        )


class ProductKernel(Coordinatewise):
    """The product over coordinates of one function of one coordinate, with its own lengthscales.

    Subclasses implement :meth:`univariate` and :meth:`univariate_diagonal`, which are called on
    kernels of one coordinate only, and must not go through :meth:`evaluate` there.

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
    ...
    ...     def univariate_diagonal(self, x):
    ...         return np.ones(x.shape)
    >>> Hat([1.0, 2.0])(np.zeros((1, 2)), np.array([[0.5, 0.5]]))
    array([[0.375]])
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengthscale", as_lengthscale(self.lengthscale))

    @abstractmethod
    def univariate(self, x: Array, y: Array) -> Array:
        """Evaluate on one coordinate, x (..., n) and y (..., m) -> (..., n, m)."""

    @abstractmethod
    def univariate_diagonal(self, x: Array) -> Array:
        """k(x, x) on one coordinate, (..., n) -> (..., n)."""

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
