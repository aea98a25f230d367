"""Two ends of the scale: an outer variable that does nothing, and a g that is all noise."""

from __future__ import annotations

import math

import numpy as np

import nestquad as nq

_NOISE = 4.0
_FREQUENCIES = (10_007.0, 7_919.0, 6_007.0)


def no_influence() -> nq.NestedExpectation:
    """Neither g nor the law of x depends on θ; d_θ = d_x = 2, f = log."""
    return nq.NestedExpectation(
        outer=nq.Uniform([0.0, 0.0], [1.0, 1.0]),
        inner=nq.Normal([0.0, 0.0]),
        g=lambda x, theta: np.exp(0.5 * x[..., 0]) + x[..., 1] ** 2 + 0.0 * theta[..., 0],
        f=np.log,
        exact=math.log(math.exp(0.125) + 1.0),
        name="no-influence",
    )


def rough() -> nq.NestedExpectation:
    """θ under a sawtooth of ten thousand teeth in x and θ: no kernel can learn it."""

    def sawtooth(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        one, two, three = _FREQUENCIES
        phase = one * x[..., 0] + two * x[..., 1] + three * theta[..., 0]
        return theta[..., 0] + _NOISE * (phase - np.floor(phase) - 0.5)

    return nq.NestedExpectation(
        outer=nq.Uniform(),
        inner=nq.Uniform([0.0, 0.0], [1.0, 1.0]),
        g=sawtooth,
        f=lambda j: np.maximum(j - 0.5, 0.0),
        exact=0.125,
        name="rough",
    )
