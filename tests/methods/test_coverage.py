"""Error bars: 95 % intervals hold the truth about as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq


def study(problem, seeds, **options):
    """Share of 95 % intervals that hold the truth, and how wide they are beside the error."""
    runs = [nq.estimate(problem, rng=seed, **options) for seed in range(seeds)]
    low, high = np.transpose([run.interval(0.95) for run in runs])
    errors = [abs(run.value - problem.exact) for run in runs]
    covered = float(np.mean((low <= problem.exact) & (problem.exact <= high)))
    return covered, float(np.median(high - low) / np.median(errors))


# How many times the typical error an interval may be wide: 6 for a perfect normal one. That of
# kernel quadrature is an upper estimate, by the error of rules of half the size.
WIDEST = {"nmc": 12, "nqmc": 40, "nkq": 1500}


@pytest.mark.parametrize("method", WIDEST)
@pytest.mark.parametrize("name", ["synthetic", "finance", "rainforth", "eig-linear"])
def test_forty_seeds(name, method):
    covered, width = study(nq.problems.get(name), 40, budget=1000, method=method)
    assert covered >= 0.85
    assert width < WIDEST[method]


@pytest.mark.parametrize("sharing", ["shared", 8])
@pytest.mark.parametrize("cls", [nq.NMC, nq.NQMC])
def test_points_that_all_theta_share_err_for_all_of_them(cls, sharing):
    # The spread over θ does not see this error. One difference of halves has one degree of
    # freedom, so that coverage is lower than elsewhere; without it, it is 0.2.
    problem = nq.problems.synthetic()
    method = cls(256, 16, sharing=sharing)
    assert study(problem, 40, method=method)[0] >= 0.6


def test_stopping_at_a_tolerance_keeps_it():
    problem = nq.problems.finance()
    kept = []
    for seed in range(8):
        est = nq.estimate(problem, tol=0.1, method="nkq", rng=seed)
        assert est.status == "converged"
        kept.append(abs(est.value - problem.exact) <= 0.1)
    assert np.mean(kept) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1000, 10_000])
@pytest.mark.parametrize("method", WIDEST)
@pytest.mark.parametrize("name", nq.problems.names())
def test_full_study(name, method, budget):
    covered, _ = study(nq.problems.get(name), 200, budget=budget, method=method)
    assert covered >= 0.85
