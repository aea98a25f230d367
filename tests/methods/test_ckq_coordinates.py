"""CKQ in the coordinates of θ itself."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq

# θ is one number made of eight normals; J = θ² and I = E max(θ², 1).
PROBLEM = nq.NestedExpectation(
    outer=nq.Transport(
        lambda z: z.sum(axis=-1, keepdims=True) / np.sqrt(8), dim=8, base="normal", out_dim=1
    ),
    inner=nq.Normal(),
    g=lambda x, theta: theta[..., 0] ** 2 + 0.3 * x[..., 0],
    f=lambda j: np.maximum(j, 1.0),
    exact=1.0 + 2.0 * np.exp(-0.5) / np.sqrt(2 * np.pi),  # ∫ (θ² − 1)⁺ φ = 2 φ(1)
)


def test_few_coordinates_are_learned_from_few_evaluations():
    errors = {}
    for coordinates in ("drivers", "theta"):
        found = [
            nq.estimate(PROBLEM, method=nq.CKQ(coordinates=coordinates), budget=600, rng=seed)
            for seed in range(3)
        ]
        errors[coordinates] = np.mean([abs(est.value - PROBLEM.exact) for est in found])
    assert errors["theta"] < 0.01
    assert errors["theta"] < errors["drivers"]


def test_unknown_coordinates_are_refused():
    with pytest.raises(nq.InputError, match="coordinates"):
        nq.CKQ(coordinates="data")
