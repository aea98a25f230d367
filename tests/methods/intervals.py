"""Intervals judged over seeds: how often they hold the truth, and how wide they are."""

from __future__ import annotations

import numpy as np

import nestquad as nq

# A normal interval of known size has a half-width of 1.96 root mean square errors. Rules that err
# on the safe side have more: each test states how many, and a bar that is half as wide again, or
# two thirds as wide, fails it. Two dozen runs know the root mean square error to a seventh.
BAND = 1.5


def judged(runs, exact):
    """Share of 95 % intervals that hold the truth, and half-width over root mean square error."""
    low, high = np.transpose([run.interval(0.95) for run in runs])
    errors = np.array([run.value for run in runs]) - exact
    covered = float(np.mean((low <= exact) & (exact <= high)))
    return covered, float(np.median(high - low) / 2.0 / np.sqrt(np.mean(errors**2)))


def study(problem, seeds, **options):
    """`judged` for estimates of a problem with seeds 0, 1, …."""
    return judged(
        [nq.estimate(problem, rng=seed, **options) for seed in range(seeds)], problem.exact
    )


def is_near(width, wanted):
    """Whether a half-width over the error is `wanted`, within the band."""
    return wanted / BAND < width < wanted * BAND
