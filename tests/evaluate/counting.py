"""A g that remembers where it was called, and problems made with it."""

from __future__ import annotations

import threading

import numpy as np

import nestquad as nq


class CountingG:
    """g(x, θ) = cos(x) + θ x, which keeps the points at which it was evaluated."""

    def __init__(self, outputs=1):
        self.points = []
        self.outputs = outputs
        self._lock = threading.Lock()

    def __call__(self, x, theta):
        x, theta = np.broadcast_arrays(x[..., 0], theta[..., 0])
        with self._lock:
            self.points.append(np.stack([theta, x], axis=-1).reshape(-1, 2))
        values = np.cos(x) + theta * x
        return values if self.outputs == 1 else np.stack([values, values**2], axis=-1)

    @property
    def n_calls(self):
        return len(self.points)

    @property
    def n_evaluations(self):
        return sum(len(block) for block in self.points)

    def all_points(self):
        return np.concatenate(self.points)


def counting_problem(outputs=1, *, inner="dependent", combine=None):
    laws = {
        "dependent": lambda theta: nq.Normal(theta, 0.5),
        "shared": nq.Normal(0.2, 0.5),
        "sampler": lambda theta: nq.Sampler(
            lambda n, rng: theta[:, None] + rng.standard_exponential((len(theta), n, 1)), dim=1
        ),
    }
    g = CountingG(outputs)
    f = None if outputs > 1 else np.square
    return nq.NestedExpectation(nq.Uniform(), laws[inner], g, f, combine=combine), g
