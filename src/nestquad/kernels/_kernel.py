"""Base classes of kernels: sums and multiples, kernels built coordinate by coordinate.

The latter are k(x, y) = combine(k_1(x_1, y_1), ..., k_d(x_d, y_d)) where `combine` is linear in
each of its arguments. Integrals under independent coordinates pass through such a function: the
embedding is `combine` of the one-dimensional embeddings, and only these need closed forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np

from nestquad._checks import number, numbers
from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from nestquad.distributions import Law

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
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, amplitude: object) -> Scaled:
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


@dataclass(frozen=True, eq=False, init=False)
class Sum(Kernel):
    """k_1 + k_2 + ...; ``k1 + k2`` makes one.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.kernels import Gaussian, Matern
    >>> (Gaussian() + 2.0 * Matern(0.5)).diagonal(np.zeros((2, 3)))
    array([3., 3.])
    """

    kernels: tuple[Kernel, ...]

    def __init__(self, *kernels: Kernel) -> None:
        object.__setattr__(self, "kernels", checked_kernels(kernels, "kernels"))

    @property
    def lengthscale(self) -> Lengthscale:
        first = self.kernels[0].lengthscale
        if any(not np.array_equal(kernel.lengthscale, first) for kernel in self.kernels[1:]):
            raise UnsupportedError(
                "The terms of this sum have different lengthscales, so it has no single one. "
                "Ask each of `.kernels`, or set one for all by with_lengthscale."
            )
        return first

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(kernel.batch_shape for kernel in self.kernels))

    def with_lengthscale(self, lengthscale: Lengthscale) -> Sum:
        """Every term with that lengthscale."""
        return Sum(*(kernel.with_lengthscale(lengthscale) for kernel in self.kernels))

    def smoothness(self, dim: int) -> float:
        return min(kernel.smoothness(dim) for kernel in self.kernels)

    def for_law(self, law: Law) -> Sum:
        return Sum(*(kernel.for_law(law) for kernel in self.kernels))

    def evaluate(self, x: Array, y: Array) -> Array:
        return accumulated(np.add, (kernel.evaluate(x, y) for kernel in self.kernels))

    def evaluate_diagonal(self, x: Array) -> Array:
        return np.asarray(sum(kernel.evaluate_diagonal(x) for kernel in self.kernels))


@dataclass(frozen=True, eq=False)
class Scaled(Kernel):
    """``amplitude * kernel``; ``2.0 * k`` makes one. The amplitude is a variance, not its root.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.kernels import Gaussian
    >>> (2.0 * Gaussian(0.5))(np.zeros((1, 1)), np.array([[0.5]])).round(6)
    array([[1.213061]])
    """

    kernel: Kernel
    amplitude: float

    def __post_init__(self) -> None:
        checked_kernels((self.kernel,), "kernel")
        object.__setattr__(self, "amplitude", number("amplitude", self.amplitude))

    @property
    def lengthscale(self) -> Lengthscale:
        return self.kernel.lengthscale

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.kernel.batch_shape

    def with_lengthscale(self, lengthscale: Lengthscale) -> Scaled:
        return Scaled(self.kernel.with_lengthscale(lengthscale), self.amplitude)

    def smoothness(self, dim: int) -> float:
        return self.kernel.smoothness(dim)

    def for_law(self, law: Law) -> Scaled:
        return Scaled(self.kernel.for_law(law), self.amplitude)

    def evaluate(self, x: Array, y: Array) -> Array:
        return accumulate(np.multiply, self.kernel.evaluate(x, y), self.amplitude)

    def evaluate_diagonal(self, x: Array) -> Array:
        return accumulate(np.multiply, self.kernel.evaluate_diagonal(x), self.amplitude)


def checked_kernels(kernels: Sequence[object], argument: str) -> tuple[Kernel, ...]:
    """The kernels as a tuple, or an error that names the argument that is not one."""
    if not kernels:
        raise InputError(argument, "none", "at least one kernel")
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise InputError(argument, type(kernel).__name__, "kernels of nestquad")
    return tuple(kernel for kernel in kernels if isinstance(kernel, Kernel))


class Coordinatewise(Kernel):
    """A kernel that combines one-dimensional kernels, one for each coordinate."""

    needs_independence: ClassVar[bool] = True
    """False where `combine` is a sum, so that marginal laws are all an embedding needs."""

    @abstractmethod
    def coordinate(self, j: int, dim: int) -> Kernel:
        """The one-dimensional kernel of coordinate j out of `dim`."""

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
    def univariate(self, x: Array, y: Array) -> Array: ...

    @abstractmethod
    def univariate_diagonal(self, x: Array) -> Array: ...

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
