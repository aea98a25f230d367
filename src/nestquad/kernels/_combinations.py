"""Additive, ANOVA and mixed product kernels: other ways to combine one-dimensional kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import comb
from typing import ClassVar

import numpy as np

from nestquad._checks import number
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.kernels._kernel import (
    Coordinatewise,
    Kernel,
    Lengthscale,
    ProductKernel,
    accumulate,
    accumulated,
    as_lengthscale,
    checked_kernels,
)


@dataclass(frozen=True, eq=False)
class _OverBase(Coordinatewise):
    base: ProductKernel | Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.base, ProductKernel | Tensor):
            raise InputError(
                "base",
                f"{type(self.base).__name__}",
                "Matern, Gaussian, Sobolev, PeriodicSobolev or Tensor",
            )

    @property
    def lengthscale(self) -> Lengthscale:
        return self.base.lengthscale

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.base.batch_shape

    def with_lengthscale(self, lengthscale: Lengthscale) -> Kernel:
        return replace(self, base=self.base.with_lengthscale(lengthscale))

    def coordinate(self, j: int, dim: int) -> Kernel:
        return self.base.coordinate(j, dim)


class Additive(_OverBase):
    """Mean over coordinates of the one-dimensional factors of `base`.

    Additive functions f_1(x_1) + ... + f_d(x_d) (Duvenaud, Nickisch and Rasmussen 2011, Additive
    Gaussian processes), whose integrals product kernels lose in high dimension.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.kernels import Gaussian
    >>> Additive(Gaussian())(np.zeros((1, 2)), np.array([[0.0, 1.0]])).round(6)
    array([[0.803265]])
    """

    needs_independence: ClassVar[bool] = False

    def smoothness(self, dim: int) -> float:
        return self.base.smoothness(1)

    def combine(self, parts: Iterable[Array]) -> Array:
        iterator = iter(parts)
        total, dim = next(iterator), 1
        for part in iterator:
            total, dim = accumulate(np.add, total, part), dim + 1
        return accumulate(np.divide, total, float(dim))


@dataclass(frozen=True, eq=False)
class Anova(_OverBase):
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
    >>> Anova(Gaussian(), order=2).diagonal(np.zeros((2, 5)))
    array([1., 1.])
    """

    order: int = 2
    weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        order = number("order", self.order, "a whole number, at least 1")
        if not order.is_integer():
            raise InputError("order", repr(self.order), "a whole number, at least 1")
        object.__setattr__(self, "order", int(order))
        object.__setattr__(self, "weight", number("weight", self.weight))

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


@dataclass(frozen=True, eq=False, init=False)
class Tensor(Coordinatewise):
    """Product of different kernels, the j-th of them on coordinate j.

    Parameters
    ----------
    *kernels
        One for each coordinate.

    Shapes
    ------
    x (..., n, d), y (..., m, d) with d the number of kernels -> (..., n, m).

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.kernels import Gaussian, Matern
    >>> kernel = Tensor(Matern(0.5), Gaussian())
    >>> kernel(np.zeros((1, 2)), np.array([[1.0, 1.0]])).round(6)
    array([[0.22313]])
    """

    kernels: tuple[Kernel, ...]

    def __init__(self, *kernels: Kernel) -> None:
        object.__setattr__(self, "kernels", checked_kernels(kernels, "kernels"))

    @property
    def lengthscale(self) -> Array:
        """(d,) or (T, d): each kernel's own."""
        columns = [np.atleast_1d(kernel.lengthscale)[..., :1] for kernel in self.kernels]
        batch = np.broadcast_shapes(*(column.shape[:-1] for column in columns))
        return np.concatenate([np.broadcast_to(c, (*batch, 1)) for c in columns], axis=-1)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(kernel.batch_shape for kernel in self.kernels))

    def with_lengthscale(self, lengthscale: Lengthscale) -> Tensor:
        value = np.asarray(as_lengthscale(lengthscale))
        dim = len(self.kernels)
        if value.ndim and value.shape[-1] not in (1, dim):
            raise InputError(
                "lengthscale", f"{value.shape[-1]} of them", f"one for each of {dim} kernels"
            )
        columns = np.broadcast_to(value, (*value.shape[:-1], dim))
        # A batch keeps its axis of coordinates; a single lengthscale is just a number.
        parts = [columns[..., j : j + 1] if value.ndim == 2 else columns[j] for j in range(dim)]
        return Tensor(*(k.with_lengthscale(p) for k, p in zip(self.kernels, parts, strict=True)))

    def smoothness(self, dim: int) -> float:
        return min(kernel.smoothness(dim) for kernel in self.kernels)

    def coordinate(self, j: int, dim: int) -> Kernel:
        if dim != len(self.kernels):
            raise InputError(
                "kernels", f"{len(self.kernels)} of them", f"one for each of the {dim} coordinates"
            )
        return self.kernels[j]
