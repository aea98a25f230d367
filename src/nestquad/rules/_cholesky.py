"""Cholesky factors of Gram matrices, for all dense systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from nestquad._typing import Array


@dataclass(frozen=True)
class Factor:
    """Lower Cholesky factor of one symmetric positive definite matrix.

    Shapes
    ------
    lower: (N, N); `solve` takes (N,) or (N, k).

    Cost
    ----
    N³/3 flops to make, 2N² a right-hand side.
    """

    lower: Array

    def solve(self, rhs: Array) -> Array:
        solution, _ = lapack.dpotrs(self.lower, rhs, lower=1)
        return np.asarray(solution).reshape(rhs.shape)

    def inverse_diagonal(self) -> Array:
        """Diagonal of the inverse, for leave-one-out residuals. Cost N³/3.

        Dubrule (1983), Cross validation of kriging in a unique neighborhood.
        """
        half, _ = lapack.dtrtri(self.lower, lower=1)
        half = np.tril(half)
        return np.asarray(np.einsum("ij,ij->j", half, half))

    def condition(self) -> float:
        """Lower bound of the condition number from the pivots, usually of its order. Cost O(N)."""
        pivots = np.diagonal(self.lower)
        return float((pivots.max() / pivots.min()) ** 2)

    def leading(self, size: int) -> Factor:
        """Factor of the leading block, that of a prefix of the nodes. Free."""
        return Factor(self.lower[:size, :size])


def factorize(gram: Array, ridge: float) -> Factor | None:
    """Factor of ``gram + ridge * I``, or None where that is not positive definite.

    Only the upper triangle of `gram` (N, N) is read.
    """
    matrix = np.array(gram, order="C")
    matrix.reshape(-1)[:: matrix.shape[0] + 1] += ridge
    # A symmetric matrix is its own transpose, and the transpose is contiguous for LAPACK.
    lower, info = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    return Factor(lower) if info == 0 else None
