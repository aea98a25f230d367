"""Full covariances: validation, triangular factors and correlated normals."""

from __future__ import annotations

import contextlib

import numpy as np

from nestquad._typing import Array, ArrayLike
from nestquad.distributions._checks import (
    as_floats,
    check_parameter,
    common_batch,
    frozen_array,
    parameters,
)
from nestquad.errors import InputError

__all__ = ["correlate", "covariance_and_factor", "is_singular", "solve_rows"]

# Entries of a covariance that was estimated or multiplied out carry rounding
# errors of this size relative to its largest entry.
_TOLERANCE = 1e-10


def covariance_and_factor(
    mean: ArrayLike, cov: ArrayLike, dim: int | None
) -> tuple[Array, Array, Array]:
    """Return mean, covariance and its lower triangular factor, all with the same batch."""
    covariance = as_floats("cov", cov)
    if covariance.ndim not in (2, 3) or covariance.shape[-1] != covariance.shape[-2]:
        raise InputError(
            "cov",
            f"shape {covariance.shape}",
            "(d, d) for one law or (T, d, d) for T laws",
            "For independent coordinates give sd instead.",
        )
    check_parameter("cov", covariance)
    size = covariance.shape[-1]
    if dim is not None and dim != size:
        raise InputError("dim", str(dim), f"{size}, as cov has shape {covariance.shape}")
    (loc,) = parameters(size, mean=mean)
    batch = common_batch(
        "mean and cov",
        [
            loc.shape[0] if loc.ndim == 2 else None,
            len(covariance) if covariance.ndim == 3 else None,
        ],
    )
    covariance = _symmetric(covariance)
    factor = _factor(covariance)
    lead = () if batch is None else (batch,)
    # Views where one matrix is shared: a batch of means does not cost T·d² numbers.
    return (
        frozen_array(np.broadcast_to(loc, (*lead, size))),
        np.broadcast_to(frozen_array(covariance), (*lead, size, size)),
        np.broadcast_to(frozen_array(factor), (*lead, size, size)),
    )


def correlate(loc: Array, chol: Array, z: Array) -> Array:
    """Return ``loc + chol @ z`` for each row of `z`.

    Sums of products coordinate by coordinate instead of a matrix product: BLAS
    picks its kernels by the number of rows, so a row would get other bits in a
    chunk of another size.
    """
    columns = np.ascontiguousarray(np.moveaxis(z, -1, 0))
    lead = np.broadcast_shapes(columns.shape[1:], (*loc.shape[:-1], 1))
    x = np.empty((loc.shape[-1], *lead))
    term = np.empty(lead)
    for i, row in enumerate(x):
        np.multiply(chol[..., i, 0, None], columns[0], out=row)
        row += loc[..., i, None]
        for j in range(1, i + 1):
            row += np.multiply(chol[..., i, j, None], columns[j], out=term)
    return np.moveaxis(x, 0, -1)


def solve_rows(matrix: Array, rows: Array) -> Array:
    """Return ``inverse(matrix) @ row`` for each row."""
    solved = np.linalg.solve(matrix, np.swapaxes(rows, -1, -2))
    return np.swapaxes(solved, -1, -2).astype(np.float64, copy=False)


def is_singular(chol: Array) -> bool:
    """Tell whether the correlations of a factor are singular to within rounding."""
    scale = np.sqrt(np.square(chol).sum(axis=-1, keepdims=True))
    if (scale == 0.0).any():
        return True
    # Pivots that should be zero come out as the root of rounding errors, or some of them as zero
    # and others not: singular values tell what they are together.
    values = np.linalg.svd(chol / scale, compute_uv=False)
    return bool((values[..., -1] <= 1e-5 * values[..., 0]).any())


def _symmetric(covariance: Array) -> Array:
    transposed = np.swapaxes(covariance, -1, -2)
    gap = np.abs(covariance - transposed)
    allowed = _TOLERANCE * np.abs(covariance).max(axis=(-1, -2), keepdims=True)
    if (gap > allowed).any():
        *item, i, j = np.argwhere(gap > allowed)[0].tolist()
        a, b = covariance[(*item, i, j)], covariance[(*item, j, i)]
        raise InputError(
            "cov",
            f"{_item(item)}entries [{i}, {j}] = {a:g} and [{j}, {i}] = {b:g}",
            "a symmetric matrix",
            "Symmetrise it with (cov + cov.T) / 2 if the difference is rounding.",
        )
    return (covariance + transposed) / 2


def _factor(covariance: Array) -> Array:
    with contextlib.suppress(np.linalg.LinAlgError):
        return np.linalg.cholesky(covariance).astype(np.float64, copy=False)
    # One by one, so that a law gets the same factor whatever batch it is in.
    stack = covariance.reshape(-1, *covariance.shape[-2:])
    factors = np.empty_like(stack)
    for t, matrix in enumerate(stack):
        try:
            factors[t] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            factors[t] = _semidefinite_factor(matrix, [t] if covariance.ndim == 3 else [])
    return factors.reshape(covariance.shape)


def _semidefinite_factor(matrix: Array, item: list[int]) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < -_TOLERANCE * max(values[-1], 0.0) or values[-1] <= 0.0:
        raise InputError(
            "cov",
            f"{_item(item)}a matrix whose smallest eigenvalue is {values[0]:.3g}",
            "a positive semi-definite matrix that is not zero",
            "Check that it holds covariances, not correlations mixed with variances.",
        )
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    # cov = root @ root.T = R.T @ R with root.T = Q @ R: again triangular, like Cholesky.
    upper = np.linalg.qr(root.T, mode="r")
    signs = np.where(np.diagonal(upper) < 0, -1.0, 1.0)
    factor: Array = np.tril((signs[:, None] * upper).T)
    return factor


def _item(index: list[int]) -> str:
    return f"in batch item {index[0]}, " if index else ""
