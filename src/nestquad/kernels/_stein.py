"""Langevin–Stein kernels: integrals under a law known only by its score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import number
from nestquad._typing import Array
from nestquad.errors import InputError, UnsupportedError
from nestquad.kernels._kernel import Kernel, Lengthscale, accumulate
from nestquad.kernels._stationary import DifferentiableKernel, Matern

if TYPE_CHECKING:
    from nestquad.distributions import Law


@dataclass(frozen=True, eq=False)
class Stein(Kernel):
    r"""The Langevin–Stein kernel of `base` plus a constant.

    .. math:: k_P(x, y) = c + \nabla_x \cdot \nabla_y k + s(x) \cdot \nabla_y k
              + s(y) \cdot \nabla_x k + s(x) \cdot s(y)\, k

    with s the gradient of the log density (Oates, Girolami and Chopin 2017, Control functionals for
    Monte Carlo integration). Its integral under the law is c and needs no
    normalizing constant, as long as the density vanishes at the border of its support.

    Parameters
    ----------
    base
        `Gaussian`, or `Matern` with nu of at least 1.5.
    score
        Takes nodes (..., n, d), returns the same shape (a batch of laws: (T, n, d)). Without it,
        :meth:`for_law` takes the score of the law.
    constant
        c, positive, so that constant functions belong to the space.

    Cost
    ----
    Three exponentials (Matérn) a pair and coordinate, one call of the score for x and for y.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.kernels import Gaussian
    >>> kernel = Stein(Gaussian(), score=lambda x: -x)
    >>> kernel(np.array([[1.0]]), np.array([[1.0], [0.0]]))
    array([[3.        , 0.39346934]])
    """

    base: DifferentiableKernel
    score: Callable[[Array], Any] | None = None
    constant: float = 1.0

    def __post_init__(self) -> None:
        smooth = isinstance(self.base, DifferentiableKernel)
        if not smooth or (isinstance(self.base, Matern) and self.base.nu < 1.5):
            raise InputError("base", f"{self.base!r}", "Gaussian or Matern with nu of at least 1.5")
        if self.score is not None and not callable(self.score):
            raise InputError("score", type(self.score).__name__, "a callable, or None")
        object.__setattr__(self, "constant", number("constant", self.constant))

    @property
    def lengthscale(self) -> Lengthscale:
        return self.base.lengthscale

    def with_lengthscale(self, lengthscale: Lengthscale) -> Stein:
        return replace(self, base=self.base.with_lengthscale(lengthscale))

    def smoothness(self, dim: int) -> float:
        return self.base.smoothness(dim) - 1.0

    def for_law(self, law: Law) -> Stein:
        return self if self.score is not None else replace(self, score=law.score)

    def evaluate(self, x: Array, y: Array) -> Array:
        score_x = self._score(x)
        score_y = score_x if y is x else self._score(y)
        dim = x.shape[-1]
        product = stein = None
        for j in range(dim):
            k, slope, bend = self.base.coordinate(j, dim).derivatives(x[..., j], y[..., j])
            left, right = score_x[..., j][..., :, None], score_y[..., j][..., None, :]
            # ∂k/∂y = -∂k/∂x, since the base depends on x - y.
            term = bend + slope * (right - left) + k * (left * right)
            if product is None or stein is None:
                product, stein = k, term
            else:
                # The sum over j of term_j times all other factors, without dividing by any.
                stein = accumulate(np.add, accumulate(np.multiply, stein, k), product * term)
                product = accumulate(np.multiply, product, k)
        assert stein is not None  # nodes have at least one coordinate
        return accumulate(np.add, stein, self.constant)

    def evaluate_diagonal(self, x: Array) -> Array:
        dim = x.shape[-1]
        squares = np.sum(self._score(x) ** 2, axis=-1)
        curvature = sum(self.base.coordinate(j, dim).curvature(1) for j in range(dim))
        return np.asarray(squares + curvature + self.constant)

    def _score(self, x: Array) -> Array:
        if self.score is None:
            raise UnsupportedError(
                "This Stein kernel has no score yet. Give Stein(base, score=...), or bind the one "
                "of a law by kernel.for_law(law)."
            )
        score = np.asarray(self.score(x), dtype=np.float64)
        if score.shape[-2:] != x.shape[-2:] or not np.isfinite(score).all():
            raise InputError(
                "score",
                f"values of shape {score.shape}"
                + ("" if np.isfinite(score).all() else ", some of them not finite"),
                f"finite values of shape {x.shape}, one gradient a node",
            )
        return score
