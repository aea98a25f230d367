"""Kernels that are built coordinate by coordinate.

k(x, y) = combine(k_1(x_1, y_1), ..., k_d(x_d, y_d)) where `combine` is linear in each of its
arguments. Integrals under independent coordinates pass through such a function: the embedding is
`combine` of the one-dimensional embeddings, and only those need closed forms.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.kernels._kernel import Kernel, Lengthscale, accumulate, as_lengthscale

__all__ = ["Coordinatewise", "DifferentiableKernel", "ProductKernel", "differences"]


class Coordinatewise(Kernel):
    """A kernel that combines one-dimensional kernels, one for each coordinate."""

    needs_independence: ClassVar[bool] = True
    """False where `combine` is a sum, so that marginal laws are all an embedding needs."""

    @abstractmethod
    def coordinate(self, j: int, dim: int) -> Kernel:
        """The one-dimensional kernel of coordinate j out of `dim`."""

    @abstractmethod
    def combine(self, parts: Iterable[Array]) -> Array:
        """The kernel from its factors, in the order of the coordinates; may overwrite them."""

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

    Shapes
    ------
    x (..., n, d), y (..., m, d) -> (..., n, m).

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
        """The same kernel on some of `dim` coordinates."""
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

    def combine(self, parts: Iterable[Array]) -> Array:
        iterator = iter(parts)
        product = next(iterator)
        for part in iterator:
            product = accumulate(np.multiply, product, part)
        return product

    def scale(self, n_axes: int) -> Array | float:
        """The lengthscale of a one-dimensional kernel, a batch (T,) followed by `n_axes` ones."""
        if isinstance(self.lengthscale, float):
            return self.lengthscale
        column = self.lengthscale[..., 0]
        return column.reshape(column.shape + (1,) * n_axes) if column.ndim else float(column)


class DifferentiableKernel(ProductKernel):
    """A product of functions of x_j - y_j with derivatives, as Stein kernels need them."""

    @abstractmethod
    def derivatives(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """k, ∂k/∂x and ∂²k/∂x∂y on one coordinate, each (..., n, m)."""

    @abstractmethod
    def curvature(self, n_axes: int) -> Array | float:
        """∂²k/∂x∂y at x = y, shaped like :meth:`scale`."""


def differences(x: Array, y: Array) -> Array:
    """x_i - y_j, (..., n) and (..., m) -> (..., n, m)."""
    return np.asarray(x[..., :, None] - y[..., None, :])
