"""Inverse transport: from points of a law to the uniforms that drive them."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from nestquad._typing import Array
from nestquad.distributions._independent import Independent
from nestquad.distributions._law import Law
from nestquad.distributions._normal import LogNormal, Normal
from nestquad.distributions._scipy import ScipyLaw
from nestquad.distributions._uniform import Uniform
from nestquad.errors import UnsupportedError

__all__ = ["to_uniform"]

_INSIDE = 2.0**-54


def to_uniform(law: Law, x: Array) -> Array:
    """Uniforms (N, d) with ``law.from_uniform(uniforms) == x``, for a single law.

    Points outside the support end up at the border of the cube, just inside.

    Examples
    --------
    >>> import numpy as np
    >>> from nestquad.distributions import LogNormal
    >>> law = LogNormal(1.0, 0.5)
    >>> u = np.array([[0.1], [0.9]])
    >>> to_uniform(law, law.from_uniform(u)).round(12)
    array([[0.1],
           [0.9]])
    """
    return np.clip(_to_uniform(law, np.asarray(x, dtype=float)), _INSIDE, 1.0 - 2 * _INSIDE)


def _to_uniform(law: Law, x: Array) -> Array:
    if isinstance(law, Uniform):
        return np.asarray((x - law.low) / (law.high - law.low))
    if isinstance(law, LogNormal):
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithm = np.log(np.maximum(x, 0.0))
        return np.asarray(ndtr((logarithm - law.loc) / law.sd))
    if isinstance(law, Normal):
        if law.sd is not None:
            return np.asarray(ndtr((x - law.loc) / law.sd))
        assert law.chol is not None
        if np.all(np.diagonal(law.chol) > 0):
            return np.asarray(ndtr(solve_triangular(law.chol, (x - law.loc).T, lower=True).T))
    if isinstance(law, Independent) and law.dim is not None:
        ends = np.cumsum([part.dim for part in law.laws])[:-1]
        parts = np.split(x, ends, axis=-1)
        return np.concatenate(
            [_to_uniform(part, piece) for part, piece in zip(law.laws, parts, strict=True)], axis=-1
        )
    if isinstance(law, ScipyLaw) and callable(getattr(law.frozen, "cdf", None)):
        return np.asarray(law.frozen.cdf(x))
    raise UnsupportedError(
        f"The transport of {law!r} cannot be inverted, so a point of it has no known place in the "
        "unit cube. Known for Uniform, Normal, LogNormal, scipy.stats distributions with a cdf, "
        "and Independent of those."
    )
