"""Independent blocks of a law, of one coordinate wherever possible."""

from __future__ import annotations

import numpy as np

from nestquad.distributions import (
    Empirical,
    Independent,
    Law,
    LogNormal,
    Normal,
    Uniform,
    standard_deviation,
)


def independent_blocks(law: Law) -> list[Law]:
    """Independent laws that stand side by side in `law`; a single one that is `law` itself if none.

    Cost
    ----
    O(T d), or O(T d²) to see whether a covariance is diagonal.
    """
    if isinstance(law, Independent):
        return [block for part in law.laws for block in independent_blocks(part)]
    if isinstance(law, Empirical) or is_correlated(law):
        return [law]
    return marginals(law)


def marginals(law: Law) -> list[Law]:
    """Laws of the single coordinates, whether or not they are independent."""
    if isinstance(law, Independent):
        return [marginal for part in law.laws for marginal in marginals(part)]
    columns = [slice(j, j + 1) for j in range(law.dim or 1)]
    if isinstance(law, Uniform):
        return [Uniform(law.low[..., c], law.high[..., c]) for c in columns]
    if isinstance(law, Normal | LogNormal):
        sd = standard_deviation(law)
        return [type(law)(law.loc[..., c], sd=sd[..., c]) for c in columns]
    if isinstance(law, Empirical):
        return [Empirical(law.samples[..., c], law.weights) for c in columns]
    return [law]


def is_correlated(law: Law) -> bool:
    """Whether a law of normal scores has dependent coordinates (or one of no spread)."""
    if not isinstance(law, Normal | LogNormal) or law.cov is None:
        return False
    diagonal = np.diagonal(law.cov, axis1=-2, axis2=-1)
    off_diagonal = law.cov * (1.0 - np.eye(law.loc.shape[-1]))
    return bool(off_diagonal.any() or (diagonal == 0).any())
