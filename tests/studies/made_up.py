"""Curves made up so that what they should say is known."""

from __future__ import annotations

import numpy as np

from studies.paper.curves import Curve


def power_law(r, *, scale=1.0, costs=(1e2, 1e3, 1e4, 1e5), noise=0.2, replicates=60, seed=0):
    """Errors scale · cost^(-1/r) with log-normal noise."""
    rng = np.random.default_rng(seed)
    costs = np.array(costs, dtype=float)
    errors = tuple(
        scale * cost ** (-1.0 / r) * np.exp(noise * rng.standard_normal(replicates))
        for cost in costs
    )
    return Curve(costs, errors)
