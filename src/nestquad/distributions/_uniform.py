"""Uniform laws on boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nestquad._typing import Array, ArrayLike
from nestquad.distributions._law import Law, parameters
from nestquad.errors import InputError


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
    >>> law.mean()
    array([0.5, 0. ])
    """

    low: Array
    high: Array

    _shown: ClassVar[tuple[str, ...]] = ("low", "high")

    def __init__(self, low: ArrayLike = 0.0, high: ArrayLike = 1.0, dim: int | None = None) -> None:
        lower, upper = parameters(dim, low=low, high=high)
        wrong = lower >= upper
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0].tolist())
            raise InputError(
                "high",
                f"low = {lower[at]:g}, high = {upper[at]:g} at index {list(at)}",
                "low < high in every coordinate",
            )
        with np.errstate(over="ignore"):
            if not np.isfinite(upper - lower).all():
                raise InputError("high", "a box wider than the largest float", "a smaller box")
        self._set(low=lower, high=upper)

    def mean(self) -> Array:
        """Return the centre of the box, (d,) or (T, d)."""
        return self.low / 2 + self.high / 2

    def _from_uniform(self, u: Array) -> Array:
        low, high = self.low[..., None, :], self.high[..., None, :]
        # Never outside the box, also after rounding: for u <= 1 - 2**-53 the rounded
        # product is at most the exact high - low, and adding low is monotone.
        x: Array = (high - low) * u
        x += low
        return x

    def _to_uniform(self, x: Array) -> Array:
        return np.asarray((x - self.low) / (self.high - self.low))
