"""Functions of x with known mean zero: control variates for the inner stage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import eval_legendre, ndtri

from nestquad._typing import Array

__all__ = ["ControlVariates", "tiers"]


@dataclass(frozen=True)
class ControlVariates:
    """Which functions of the driving variables (and of θ) to regress g on.

    `hermite` z and z² - 1; `legendre` P_1 … P_5 of u; `pairs` products z_i z_j; `with_theta`
    multiplies all of them by each normal score of θ as well.
    """

    hermite: bool
    legendre: bool
    pairs: bool
    with_theta: bool

    def count(self, dim_x: int, dim_theta: int) -> int:
        single = dim_x * (2 * self.hermite + 5 * self.legendre)
        pairs = dim_x * (dim_x - 1) // 2 * self.pairs
        return (single + pairs) * (1 + dim_theta * self.with_theta)

    def matrix(self, uniform: Array, theta_scores: Array) -> Array:
        """(T, N, d_x) uniforms and (T, d_θ) scores → (T, N, count)."""
        z = ndtri(uniform)
        parts = []
        if self.hermite:
            parts += [z, z * z - 1.0]
        if self.legendre:
            parts += [eval_legendre(k, 2.0 * uniform - 1.0) for k in range(1, 6)]
        if self.pairs:
            i, j = np.triu_indices(z.shape[-1], 1)
            parts.append(z[..., i] * z[..., j])
        base = np.concatenate(parts, axis=-1)
        if not self.with_theta:
            return base
        scores = theta_scores[:, None, :, None]
        crossed = (scores * base[:, :, None, :]).reshape(*base.shape[:2], -1)
        return np.concatenate([base, crossed], axis=-1)


def tiers(dim_x: int, dim_theta: int, n_values: int) -> ControlVariates | None:
    """The largest set of functions that has at least eight values for each coefficient."""
    candidates = [
        ControlVariates(True, dim_x <= 5, dim_x > 1, True),
        ControlVariates(True, False, dim_x > 1, True),
        ControlVariates(True, dim_x <= 5, dim_x > 1, False),
        ControlVariates(True, False, False, True),
        ControlVariates(True, False, False, False),
    ]
    affordable = [c for c in candidates if 8 * c.count(dim_x, dim_theta) <= n_values]
    return max(affordable, key=lambda c: c.count(dim_x, dim_theta), default=None)
