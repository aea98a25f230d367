"""Noisy g: a problem of another family, whose g has randomness of its own, seeded by nothing.

The same point gives another value each time, as a simulator with its own random numbers does. The
noise is additive with mean zero, or a factor with mean one where f needs J > 0: J and the exact
value are those of the problem without noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from studies.families import _books, _decisions, _insurance, _smooth
from studies.families._sketch import Sketch, choice


def sketch(rng: np.random.Generator) -> Sketch:
    quiet = choice(rng, _books, _decisions, _insurance, _smooth).sketch(rng)
    ratio = 10 ** rng.uniform(-1.0, 0.3)
    kind = "factor" if quiet.positive else choice(rng, "normal", "Student", "coin")
    size = ratio * _spread(quiet)
    plain = quiet.problem.g

    def g(x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        values = np.asarray(plain(x, theta))
        # A fresh generator for every call: no seed of an estimate reaches it.
        fresh = np.random.default_rng()
        if kind == "factor":
            spread = min(ratio, 1.0)
            return values * fresh.gamma(1 / spread**2, spread**2, values.shape)
        if kind == "coin":
            return values + size * fresh.choice([-1.0, 1.0], values.shape)
        if kind == "Student":
            return values + size * fresh.standard_t(4, values.shape) / np.sqrt(2)
        return values + size * fresh.standard_normal(values.shape)

    about = f"{kind} noise, {ratio:.2g} of the spread of g, on: {quiet.about}"
    return replace(quiet, problem=replace(quiet.problem, g=g), about=about)


def _spread(sketch: Sketch) -> float:
    """Standard deviation of g over θ and x, the smallest of several outputs."""
    problem, rng = sketch.problem, np.random.default_rng(2)
    theta = problem.outer_law.sample(512, rng)
    x = problem.inner_law(theta).sample(8, rng)
    x = x if x.ndim == 3 else x[None]
    values = np.asarray(problem.g(x, theta[:, None, :]))
    shape = (512, 8)
    values = np.broadcast_to(values.reshape(*values.shape[:2], -1), (*shape, values[0, 0].size))
    return float(values.reshape(shape[0] * shape[1], -1).std(axis=0).min())
