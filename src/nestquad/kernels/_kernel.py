"""What every kernel can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError

if TYPE_CHECKING:
    from nestquad.distributions import Law
    from nestquad.kernels._algebra import Scaled, Sum

__all__ = ["Kernel", "Lengthscale", "as_lengthscale", "as_nodes"]

Lengthscale: TypeAlias = float | Array
"""A number, (d,) for one per coordinate, or (T, d) for a batch of T kernels."""


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """A positive definite function k(x, y).

    Subclasses are frozen dataclasses (``eq=False``) that implement :meth:`evaluate`,
    :meth:`evaluate_diagonal`, :meth:`smoothness` and :meth:`with_lengthscale`. They are immutable,
    and two of them are equal, with equal hashes, when their parameters are: weights can be cached
    by kernel.
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
        """The same kernel with another lengthscale."""

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
        """Evaluate at all pairs of nodes.

        Shapes
        ------
        x (..., n, d), y (..., m, d) with leading axes that broadcast -> (..., n, m).
        """
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

    def univariate(self, x: Array, y: Array) -> Array:
        """Evaluate on one coordinate, x (..., n) and y (..., m) -> (..., n, m)."""
        return self.evaluate(x[..., None], y[..., None])

    def univariate_diagonal(self, x: Array) -> Array:
        """k(x, x) on one coordinate, (..., n) -> (..., n)."""
        return self.evaluate_diagonal(x[..., None])

    def for_law(self, law: Law) -> Kernel:
        """The kernel to use for integrals under `law`: itself, unless it needs the law's score."""
        return self

    def __add__(self, other: object) -> Sum:
        from nestquad.kernels._algebra import Sum  # Sum is itself a Kernel

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, amplitude: object) -> Scaled:
        from nestquad.kernels._algebra import Scaled

        if isinstance(amplitude, int | float | np.number):
            return Scaled(self, float(amplitude))
        return NotImplemented

    __rmul__ = __mul__

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
    """Nodes as float64, (..., n, d), or an error that says what is wrong with them."""
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
    value = np.array(lengthscale, dtype=np.float64)
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
