"""ANOVA kernels: interactions of a few coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import comb

import numpy as np

from nestquad._checks import number
from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.kernels._kernel import (
    Coordinatewise,
    Lengthscale,
    ProductKernel,
    accumulate,
    accumulated,
)


@dataclass(frozen=True, eq=False)
class Anova(Coordinatewise):
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

    base: ProductKernel
    order: int = 2
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.base, ProductKernel):
            raise InputError("base", type(self.base).__name__, "Matern or Gaussian")
        order = number("order", self.order, "a whole number, at least 1")
        if not order.is_integer():
            raise InputError("order", repr(self.order), "a whole number, at least 1")
        object.__setattr__(self, "order", int(order))
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
