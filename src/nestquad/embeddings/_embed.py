"""Embeddings of all kernels, by recursion down to closed forms on one coordinate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nestquad import limits
from nestquad._typing import Array, ArrayLike
from nestquad.clock import tick
from nestquad.distributions import (
    Empirical,
    Independent,
    Law,
    LogNormal,
    Normal,
    Uniform,
    standard_deviation,
)
from nestquad.embeddings._closed_forms import closed_form, correlated_embedding, unsupported
from nestquad.embeddings._pair import pair_embedding
from nestquad.errors import InputError
from nestquad.kernels import (
    Coordinatewise,
    Gaussian,
    Kernel,
    Matern,
    ProductKernel,
)
from nestquad.kernels._kernel import as_nodes


def mean_embedding(kernel: Kernel, law: Law, x: ArrayLike) -> Array:
    """∫ k(x, t) dP(t) at nodes x, which may lie outside the support of the law.

    The kernel and the law are a pair of :func:`supported_pairs`.

    Shapes
    ------
    x (..., N, d) -> (..., N); a batch of T laws or lengthscales takes x (N, d), (1, N, d) or
    (T, N, d) and returns (T, N).

    Cost
    ----
    O(T N d) special functions; O(T N n) kernel evaluations under n samples of an `Empirical`.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.distributions import Uniform
    >>> from nestquad.kernels import Matern
    >>> mean_embedding(Matern(0.5), Uniform(0, 1), np.array([[0.0], [0.5], [2.0]])).round(6)
    array([0.632121, 0.786939, 0.232544])
    """
    nodes = as_nodes(x, "x")
    _check_law(law)
    if law.dim is not None and nodes.shape[-1] != law.dim:
        raise InputError(
            "x", f"nodes with {nodes.shape[-1]} coordinates", f"as many as the law has, {law.dim}"
        )
    shape = _batch_shape(kernel, law, nodes.shape[:-2])
    values = _embed(kernel, law, nodes)
    return np.array(np.broadcast_to(values, (*shape, nodes.shape[-2])))


def double_embedding(kernel: Kernel, law: Law) -> Array:
    """∬ k(s, t) dP(s) dP(t), the prior variance of the integral: () or (T,) for a batch.

    Cost
    ----
    O(T d) special functions; O(T n²) kernel evaluations under n samples of an `Empirical`.

    Examples
    --------
    >>> from nestquad.distributions import Normal
    >>> from nestquad.kernels import Gaussian
    >>> float(double_embedding(Gaussian(1.0), Normal()).round(6))
    0.57735
    """
    _check_law(law)
    return np.array(np.broadcast_to(_embed(kernel, law, None), _batch_shape(kernel, law, ())))


def _embed(kernel: Kernel, law: Law, x: Array | None) -> Array:
    """Either embedding: the double one where x is None."""
    if isinstance(law, Empirical):
        return _empirical_embedding(kernel, law, x)
    if isinstance(kernel, Gaussian) and isinstance(law, Normal) and _is_correlated(law):
        return correlated_embedding(kernel, law, x)
    if type(kernel) is Matern and isinstance(law, Normal) and _is_correlated_pair(law):
        return _pair(kernel, law, x)
    if isinstance(kernel, Coordinatewise):
        # `combine` is linear in each factor, so the integral of independent factors goes through.
        return kernel.combine(_factors(kernel, law, x))
    raise unsupported(kernel, law)


def _pair(kernel: Matern, law: Normal, x: Array | None) -> Array:
    """Matérn kernel under two correlated normals, at nodes (..., N, 2)."""
    if x is None:
        return pair_embedding(kernel, law, None)
    return pair_embedding(kernel, law, x.reshape(-1, 2)).reshape(x.shape[:-1])


def _factors(kernel: Coordinatewise, law: Law, x: Array | None) -> Iterator[Array]:
    dim, start = law.dim or 0, 0
    for block in _independent_blocks(law):
        tick()
        width = block.dim or 0
        part = slice(start, start + width)
        nodes = None if x is None else x[..., part]
        if width == 1 and not _is_correlated(block):
            yield _embed_line(kernel.coordinate(start, dim), block, nodes)
        elif isinstance(kernel, ProductKernel) and block is not law:
            yield _embed(kernel.restrict(part, dim), block, nodes)
        else:
            reason = "correlated coordinates, or one that is constant"
            raise unsupported(kernel, block, reason if _is_correlated(block) else "")
        start += width


def _embed_line(kernel: ProductKernel, law: Law, x: Array | None) -> Array:
    if isinstance(law, Empirical):
        return _empirical_embedding(kernel, law, x)
    form = closed_form(kernel, law)
    values = form.double(kernel, law) if x is None else form.mean(kernel, law, x[..., 0])
    return np.asarray(values)


def _check_law(law: Law) -> None:
    if not isinstance(law, Law):
        raise InputError(
            "law", type(law).__name__, "a law of nestquad", "as_law(...) makes one of scipy.stats."
        )


def _batch_shape(kernel: Kernel, law: Law, lead: tuple[int, ...]) -> tuple[int, ...]:
    """Leading axes of the answer from the axes of nodes, law and lengthscales."""
    batch = () if law.batch is None else (law.batch,)
    try:
        return np.broadcast_shapes(lead, batch, kernel.batch_shape)
    except ValueError:
        raise InputError(
            "x",
            f"leading axes {lead}, with laws batched as {batch} and lengthscales as "
            f"{kernel.batch_shape}",
            "nodes, laws and lengthscales with the same T (or 1)",
        ) from None


def _empirical_embedding(kernel: Kernel, law: Empirical, x: Array | None) -> Array:
    """Σ_i w_i k(x, t_i), or Σ_ij w_i w_j k(t_i, t_j) where x is None."""
    if x is None:
        return np.asarray(np.sum(law.weights * _weighted_mean(kernel, law, law.samples), axis=-1))
    return _weighted_mean(kernel, law, x)


def _weighted_mean(kernel: Kernel, law: Empirical, x: Array) -> Array:
    n = law.samples.shape[-2]
    lead = np.broadcast_shapes(x.shape[:-2], law.samples.shape[:-2])
    step = max(1, limits.KERNEL_NUMBERS // max(1, x.shape[-2] * int(np.prod(lead))))
    total = np.zeros(())
    for start in range(0, n, step):
        part = slice(start, start + step)
        values = kernel.evaluate(x, law.samples[..., part, :])
        total = total + np.matmul(values, law.weights[..., part, None])[..., 0]
    return total


def _independent_blocks(law: Law) -> list[Law]:
    """Independent laws that stand side by side in `law`; a single one that is `law` itself if none.

    Cost
    ----
    O(T d), or O(T d²) to see whether a covariance is diagonal.
    """
    if isinstance(law, Independent):
        return [block for part in law.laws for block in _independent_blocks(part)]
    if isinstance(law, Empirical) or _is_correlated(law):
        return [law]
    columns = [slice(j, j + 1) for j in range(law.dim or 1)]
    if isinstance(law, Uniform):
        return [Uniform(law.low[..., c], law.high[..., c]) for c in columns]
    if isinstance(law, Normal | LogNormal):
        sd = standard_deviation(law)
        return [type(law)(law.loc[..., c], sd=sd[..., c]) for c in columns]
    return [law]


def _is_correlated_pair(law: Normal) -> bool:
    """Whether a law has two dependent coordinates of positive spread, and no batch axis."""
    if law.batch is not None or law.cov is None or law.loc.shape[-1] != 2:
        return False
    spread = np.diagonal(law.cov)
    limit = (1.0 - 1e-12) * np.sqrt(spread.prod())
    return bool((spread > 0).all() and 0 < abs(law.cov[0, 1]) < limit)


def _is_correlated(law: Law) -> bool:
    """Whether a law of normal scores has dependent coordinates (or one of no spread)."""
    if not isinstance(law, Normal | LogNormal) or law.cov is None:
        return False
    diagonal = np.diagonal(law.cov, axis1=-2, axis2=-1)
    off_diagonal = law.cov * (1.0 - np.eye(law.loc.shape[-1]))
    return bool(off_diagonal.any() or (diagonal == 0).any())
