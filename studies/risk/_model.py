"""The model problem of Giles and Haji-Ali (2019): a delta-hedged short position in S².

S is a Brownian motion, θ its values at the horizon τ (scaled), x the rest of the path. Inner draws
share the path after τ with a position that did not move, as in the paper; J = τ (|θ|² − d). The
paper has d = 1 and τ = 0.02; seeds draw both.
"""

from __future__ import annotations

import math

import numpy as np

import nestquad as nq
from studies.families._sketch import base, choice, dot, written
from studies.risk._case import Sketch
from studies.risk._truth import MEASURES, ChiSquare


def sketch(rng: np.random.Generator) -> Sketch:
    d = choice(rng, 1, 1, 2, 4)
    tau = float(np.exp(rng.uniform(math.log(0.01), math.log(0.3))))
    outer_base, inner_base = base(rng), base(rng)
    mixed = 2 * math.sqrt(tau * (1 - tau))

    def loss(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        return tau * (_squares(theta) - d) + mixed * dot(x * theta, np.ones(d))

    law = ChiSquare(tau, d)
    levels = {
        name: float(f"{law.quantile(1 - p)[0]:.4g}")
        for name, (kind, p) in MEASURES.items()
        if kind == "p"
    }
    problem = nq.NestedExpectation(
        written(lambda z: z, d, d, outer_base), written(lambda z: z, d, d, inner_base), loss
    )
    return Sketch(problem, law, levels, f"d = {d}, τ = {tau:.3f}, {outer_base} drivers of θ")


def _squares(z: np.ndarray) -> np.ndarray:
    return dot(z * z, np.ones(z.shape[-1]))
