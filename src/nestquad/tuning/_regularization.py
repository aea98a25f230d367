"""The paper's choice of λ_0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nestquad._typing import Array
from nestquad.kernels import Kernel
from nestquad.rules import factorize, scheduled_lambda

__all__ = ["best_lambda0"]


def best_lambda0(
    kernel: Kernel,
    groups: Sequence[tuple[Array, Array]],
    grid: tuple[float, ...],
    *,
    most_nodes: int = 256,
) -> float:
    """The λ_0 of the grid with the smallest leave-one-out error of kernel ridge regression.

    The paper searches a grid but does not say by which criterion; leave-one-out error is the one
    that needs no truth. Groups are as in :func:`fit_lengthscale`; values are standardised column by
    column, as in the paper.

    Cost
    ----
    One Cholesky factorisation and one triangular inverse for each group and entry of the grid.
    """
    if len(grid) == 1:
        return grid[0]
    errors = [
        sum(
            _leave_one_out(kernel, nodes[:most_nodes], values[:most_nodes], lambda0)
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
