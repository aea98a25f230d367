"""Regularization of Gram matrices: the λ schedule, its λ_0, and a limit on Σ|w|."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nestquad._checks import number, shown
from nestquad._typing import Array
from nestquad.errors import InputError, NumericalError
from nestquad.kernels import Kernel
from nestquad.rules._cholesky import Factor, factorize

# Nodes of a group that choose λ_0: optima are flat, and the cost is N³.
_MOST_NODES = 256


@dataclass(frozen=True)
class Jitter:
    """The smallest ridge that keeps Σ|w| below a limit.

    Starts from `start` (relative to the kernel's diagonal) and multiplies by ten until the
    matrix factorises and Σ|w| ≤ `limit`. Weights that cancel each other amplify every error in
    the values, so a little bias is the better bargain.
    """

    start: float = 1e-12
    limit: float = 2.0

    def __post_init__(self) -> None:
        number("start", self.start, "a relative ridge between 0 and 1", below=1.0)
        bound = "a bound above 1, since weights that sum to one have Σ|w| ≥ 1"
        if not (isinstance(self.limit, float) and self.limit == np.inf):
            number("limit", self.limit, bound, above=1.0)


@dataclass(frozen=True)
class Schedule:
    """The paper's λ = λ_0 N^(-2s/d) (log N)^((2s+2)/d), with λ_0 from a grid.

    With several values of `grid`, tuning picks the value with the smallest leave-one-out error; see
    :func:`nestquad.rules.best_lambda0`. A kernel of infinite smoothness has no schedule and gets
    the jitter instead.
    """

    grid: tuple[float, ...] = (0.01, 0.1, 1.0)

    def __post_init__(self) -> None:
        expected = "a non-empty tuple of positive numbers"
        if not isinstance(self.grid, tuple | list) or not self.grid:
            raise InputError("grid", shown(self.grid), expected)
        for value in self.grid:
            number("grid", value, expected)


Regularization: TypeAlias = Jitter | Schedule | float
"""A float is λ itself: the ridge is N λ."""


def scheduled_lambda(lambda0: float, n: int, smoothness: float, dim: int) -> float:
    """Regularization of theorem 1 for N nodes; 0 for infinite smoothness.

    It is at most λ_0 for s ≥ 0.6: (log N)^(2s+2) / N^(2s) has its maximum (1 + 1/s)^(2s+2)
    e^(−2s−2) at log N = 1 + 1/s.

    Examples
    --------
    >>> round(scheduled_lambda(1.0, 100, smoothness=2.0, dim=1), 8)
    9.538e-05
    """
    if n < 2 or not np.isfinite(smoothness):
        return 0.0
    log_lambda = (
        np.log(lambda0)
        - 2.0 * smoothness / dim * np.log(n)
        + (2.0 * smoothness + 2.0) / dim * np.log(np.log(n))
    )
    return float(np.exp(log_lambda))


def regularized(
    gram: Array,
    regularization: Regularization,
    smoothness: float,
    dim: int,
    size: Callable[[Factor], float],
) -> tuple[Factor, float]:
    """Factor of a regularized Gram matrix (N, N), and its ridge.

    `size` is Σ|w| of the weights that a factor gives.
    """
    n = len(gram)
    scale = float(np.mean(np.diagonal(gram)))
    if isinstance(regularization, Schedule) and not np.isfinite(smoothness):
        regularization = Jitter()
    if isinstance(regularization, Jitter):
        return _guarded(regularization, scale, gram, size)
    if isinstance(regularization, Schedule):
        lam = scheduled_lambda(regularization.grid[0], n, smoothness, dim)
    elif isinstance(regularization, int | float | np.number) and regularization >= 0:
        lam = float(regularization)
    else:
        raise InputError(
            "regularization", repr(regularization), "a number λ ≥ 0, a Jitter or a Schedule"
        )
    factor = factorize(gram, n * lam)
    if factor is not None:
        return factor, n * lam
    # Too little for this matrix: the guard continues from this ridge.
    start = min(max(n * lam / scale, Jitter().start), 0.5)
    return _guarded(Jitter(start, limit=np.inf), scale, gram, size)


def _guarded(
    jitter: Jitter, scale: float, gram: Array, size: Callable[[Factor], float]
) -> tuple[Factor, float]:
    """Raise the ridge until the matrix factorizes and Σ|w| is below the limit."""
    relative, tamest = jitter.start, None
    while relative < 1.0:
        factor = factorize(gram, relative * scale)
        if factor is not None:
            tamest = factor, relative * scale
            if size(factor) <= jitter.limit:
                break
        relative *= 10.0
    if tamest is None:
        raise NumericalError(
            f"The Gram matrix of {len(gram)} nodes is not positive definite even "
            "with a ridge as large as its diagonal. Check that the kernel is positive definite "
            "on these nodes."
        )
    return tamest  # where no ridge tames the weights, sum_abs_weights shows it


def best_lambda0(
    kernel: Kernel,
    groups: Sequence[tuple[Array, Array]],
    grid: tuple[float, ...],
) -> float:
    """The λ_0 of the grid with the smallest leave-one-out error of kernel ridge regression.

    The paper searches a grid but does not say by which criterion; leave-one-out error needs
    no truth. Groups are as in :func:`fit_lengthscale`; values are standardised column by
    column, as in the paper.

    Cost
    ----
    One Cholesky factorisation and one triangular inverse for each group and entry of the grid.
    """
    if len(grid) == 1:
        return grid[0]
    errors = [
        sum(
            _leave_one_out(kernel, nodes[:_MOST_NODES], values[:_MOST_NODES], lambda0)
            for nodes, values in groups
        )
        for lambda0 in grid
    ]
    return grid[int(np.argmin(errors))]


def _leave_one_out(kernel: Kernel, nodes: Array, values: Array, lambda0: float) -> float:
    n, dim = nodes.shape
    centred = values - values.mean(axis=0)
    scale = centred.std(axis=0)
    centred = centred / np.where(scale > 0, scale, 1.0)
    factor = factorize(
        kernel(nodes, nodes), n * scheduled_lambda(lambda0, n, kernel.smoothness(dim), dim)
    )
    if factor is None:
        return float("inf")
    residuals = factor.solve(centred) / factor.inverse_diagonal()[:, None]
    return float(np.mean(residuals**2))
