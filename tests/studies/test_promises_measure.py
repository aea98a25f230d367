"""Measurements: errors and coverage of an estimate, and its time without g."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

import nestquad as nq
from studies.promises.measure import measure


def test_time_inside_g_is_not_counted():
    def slow(x, theta):
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
        return x[..., 0] + theta[..., 0]

    problem = replace(nq.problems.synthetic(), g=slow, exact=1.0, f=None)
    result = measure(problem, nq.NMC(n_outer=4, n_inner=4), seed=0)
    assert result.g_seconds >= 0.2
    assert result.seconds < 0.2
    assert result.evaluations == 16


def test_error_and_coverage_are_those_of_the_estimate():
    problem = nq.problems.finance()
    result = measure(problem, "nqmc", seed=5, budget=1000)
    est = nq.estimate(problem, method="nqmc", rng=5, budget=1000)
    low, high = est.interval(0.95)
    assert result.error == pytest.approx(abs(est.value - problem.exact), rel=1e-3)
    assert result.half_width == pytest.approx((high - low) / 2, rel=1e-3)
    assert result.covered == float(low <= problem.exact <= high)
    assert (result.status, result.chosen) == (est.status, "nqmc")
    # Against another truth the same interval does not cover.
    missed = measure(replace(problem, exact=problem.exact + 100.0), "nqmc", seed=5, budget=1000)
    assert missed.covered == 0.0


def test_of_several_answers_the_largest_error_and_the_share_of_intervals():
    problem = replace(
        nq.problems.synthetic(), f=lambda j: np.stack([j, j], axis=-1), exact=(0.0, 4 / 7)
    )
    result = measure(problem, nq.NKQ(n_outer=16, n_inner=16), seed=0)
    assert result.error == pytest.approx(4 / 7, abs=0.01)
    assert result.covered == 0.5


def test_a_method_that_refuses_is_noted_and_not_raised():
    result = measure(nq.problems.finance(), "nkq", seed=0, budget=4, tol=-1.0)
    assert (result.status, result.covered) == ("failed", 0.0)
    assert math.isnan(result.error)
    assert "InputError" in result.chosen
