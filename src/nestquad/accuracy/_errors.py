"""Error propagation: errors of expectations as errors of the final answers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nestquad._typing import Array


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


def size_of(directions: Array) -> float:
    """The largest standard deviation that directions (k, m) of an error add up to."""
    return float(np.sqrt((directions**2).sum(axis=1)).max(initial=0.0))
