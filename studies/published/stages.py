"""Three nested expectations."""

from __future__ import annotations

import math

import numpy as np

import nestquad as nq
from studies.published.problem import Printed, PublishedProblem


def _three_stages() -> PublishedProblem:
    """E sin(y₀ + E[sin(y₁ − E[y₂ | y₁]) | y₀]), whose two inner expectations are zero."""
    problem = nq.RepeatedExpectation(
        laws=(
            nq.Normal(math.pi / 2, 1.0),
            lambda y0: nq.Normal(y0, 1.0),
            lambda y0, y1: nq.Normal(y1, 1.0),
        ),
        g=lambda y2, y0, y1: y2[..., 0],
        f=(
            lambda j, y0: np.sin(y0[..., 0] + j),
            lambda j, y0, y1: np.sin(y1[..., 0] - j),
        ),
        name="three stages",
    )
    return PublishedProblem(
        name="three-stages",
        title="Three stages",
        source=(
            "Syed and Wang, Optimal randomized multilevel Monte Carlo for repeatedly nested "
            "expectations (2023), arXiv 2301.04095"
        ),
        about=(
            "y₀ ~ N(π/2, 1), y₁ ~ N(y₀, 1), y₂ ~ N(y₁, 1); the expectation of "
            "sin(y₀ + E[sin(y₁ − E[y₂ | y₁]) | y₀]) is exp(−1/2)."
        ),
        measure="expectation",
        exact=math.exp(-0.5),
        unit="absolute",
        budgets=(1_000, 10_000),
        printed=(Printed("randomized multilevel Monte Carlo", math.nan),),
        solve=lambda budget, seed: nq.estimate(problem, budget=budget, rng=seed),
        remark="The source draws errors in figures and prints no numbers.",
    )


def cases() -> list[PublishedProblem]:
    """The case of this module."""
    return [_three_stages()]
