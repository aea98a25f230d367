"""A drawn problem before its exact value is known, and laws written in uniforms or normals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

import nestquad as nq
from studies.families._truth import Truth

Map = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Sketch:
    """A problem, the computation of its exact value, and a word on what was drawn.

    `positive`: f needs J > 0, so that noise must not change the sign of g.
    """

    problem: nq.NestedExpectation
    truth: Callable[[], Truth]
    about: str
    positive: bool = False


def choice(rng: np.random.Generator, *options):
    """One of the options, each as likely."""
    return options[int(rng.integers(len(options)))]


def base(rng: np.random.Generator) -> Literal["uniform", "normal"]:
    """What a law is written in."""
    return choice(rng, "uniform", "normal")


def written(map_: Map, dim: int, out: int, how: Literal["uniform", "normal"]) -> nq.Transport:
    """The law of ``map_(z)``, z standard normal, driven by uniforms or by normals."""
    fn = map_ if how == "normal" else lambda u: map_(ndtri(u))
    return nq.Transport(fn, dim=dim, base=how, out_dim=out)


def direction(rng: np.random.Generator, dim: int) -> np.ndarray:
    """A random unit vector: z @ direction is standard normal."""
    vector = rng.standard_normal(dim)
    return vector / np.linalg.norm(vector)


def dot(z: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The inner product over the last axis, in an order that depends on no other axis."""
    total = z[..., 0] * vector[0]
    for i in range(1, vector.size):
        total = total + z[..., i] * vector[i]
    return total


def correlated(factor: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Rows ``factor @ z`` over the last axis."""
    return np.stack([dot(z, row) for row in factor], axis=-1)


EXCEEDANCE, EXCESS = "exceedance", "excess"


def tail_f(kind: str, level: float) -> Callable[[np.ndarray], np.ndarray]:
    """f of an exceedance or an expected excess."""
    if kind == EXCEEDANCE:
        return lambda j: (j > level).astype(float)
    return lambda j: np.maximum(j - level, 0.0)
