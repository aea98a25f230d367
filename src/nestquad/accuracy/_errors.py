"""Error estimates without further evaluations.

Inner bias and outer error are estimated apart, since they are cured by different means: more inner
points, or more outer ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nestquad._typing import Array

__all__ = ["ErrorParts", "linearized_covariance"]


@dataclass(frozen=True)
class ErrorParts:
    """Errors of the final answers, (k, m): k answers, m independent directions of each part.

    `inner` comes from J(θ) being estimated, `outer` from the finite set of θ. Each is a matrix
    whose columns are differences that should vanish; their squares add up to variances and their
    products to covariances.
    """

    inner: Array
    outer: Array

    @property
    def covariance(self) -> Array:
        return np.asarray(self.inner @ self.inner.T + self.outer @ self.outer.T)

    @property
    def inner_size(self) -> float:
        return float(np.sqrt((self.inner**2).sum(axis=1)).max(initial=0.0))

    @property
    def outer_size(self) -> float:
        return float(np.sqrt((self.outer**2).sum(axis=1)).max(initial=0.0))


def linearized_covariance(
    finish: Callable[[Array], Array], answers: Array, covariance: Array
) -> Array:
    """Directions (k, q) of the final answers whose products give their covariance.

    The q expectations have the given covariance; `finish` (the problem's combine) is linearised
    over one standard deviation in each principal direction, which for a maximum says more than
    its derivative at the point.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    steps = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    columns = [
        np.atleast_1d(finish(answers + step) - finish(answers - step)) / 2.0 for step in steps.T
    ]
    return np.stack(columns, axis=1)
