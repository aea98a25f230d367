"""Cholesky factors of Gram matrices, for all dense systems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from nestquad._typing import Array

_BLOCK = 128


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
    """Factor of ``gram + ridge * I``, or None where that is not positive definite."""
    matrix = np.array(gram, order="C")
    matrix.reshape(-1)[:: matrix.shape[0] + 1] += ridge
    # A symmetric matrix is its own transpose, and the transpose is contiguous for LAPACK.
    lower, info = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    return Factor(lower) if info == 0 else None


class Factorizer:
    """Factors of ``gram + ridge * I`` for one ridge after the other, in the memory of `gram`.

    Factorising reads and writes one triangle only, so the matrix itself is kept in the other:
    10,000 nodes take 0.8 GB, and would take twice that with a copy. A factor is valid until the
    next one is made.

    Shapes
    ------
    gram (N, N), of which the upper triangle counts; it is overwritten.
    """

    def __init__(self, gram: Array) -> None:
        self._matrix = gram
        self._diagonal = gram.diagonal().copy()
        self._fresh = True
        _copy_triangle(gram, gram.T)

    @property
    def size(self) -> int:
        return len(self._diagonal)

    def __call__(self, ridge: float) -> Factor | None:
        """The factor, or None where the matrix is not positive definite."""
        if not self._fresh:
            _copy_triangle(self._matrix.T, self._matrix)
        self._fresh = False
        self._matrix.reshape(-1)[:: len(self._diagonal) + 1] = self._diagonal + ridge
        lower, info = lapack.dpotrf(self._matrix.T, lower=1, overwrite_a=1, clean=0)
        return Factor(lower) if info == 0 else None


def _copy_triangle(source: Array, target: Array) -> None:
    """Copy the upper triangle of one matrix to another, block by block."""
    n = len(source)
    above = np.triu(np.ones((_BLOCK, _BLOCK), dtype=bool), 1)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        mask = above[: stop - start, : stop - start]
        target[start:stop, start:stop][mask] = source[start:stop, start:stop][mask]
        target[start:stop, stop:] = source[start:stop, stop:]
