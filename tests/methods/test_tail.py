"""Tails of a positive J: continued where a quadratic logarithm is right, else kept above zero."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

import nestquad as nq
from nestquad.methods.learned._tail import KnownMeans, Tail
from nestquad.regression import ScoreTable

THETA = np.linspace(-6.0, 6.0, 400)
TABLE = ScoreTable(ndtr(THETA)[:, None], ("normal",))
WEIGHTS = np.exp(-0.5 * THETA**2)
DEVIATIONS = np.full(THETA.size, 1e-6)
LOWEST = 1e-30


def noisy(j, share=0.2):
    """As Ĵ is: with errors of a share of what it claims."""
    return j + share * DEVIATIONS * np.random.default_rng(0).standard_normal(j.size)


def known(j):
    return KnownMeans(j, DEVIATIONS, WEIGHTS, TABLE)


def mended(tail, j):
    return tail.mended(j, DEVIATIONS, TABLE, LOWEST)


@pytest.mark.parametrize("slope", [0.0, 0.5])
def test_a_gaussian_tail_is_continued(slope):
    exact = np.exp(-(THETA**2) + slope * THETA)
    for share, most in [(0.2, 0.05), (0.02, 0.005)]:
        j = noisy(exact, share)
        assert (j <= 0).any()  # the far tail is all noise
        found = mended(Tail.learned(known(j)), j)
        certain = exact > 1e-3
        assert np.array_equal(found[certain], j[certain])
        np.testing.assert_allclose(found, exact, rtol=most)


def test_a_tail_of_another_shape_is_not_invented():
    j = noisy(np.exp(-2.0 * np.abs(THETA) ** 1.5 - 0.5 * np.sin(3.0 * THETA)))
    tail = Tail.learned(known(j))
    assert tail.quadratic is None
    found = mended(tail, j)
    assert (found > 0).all()
    sure = j > DEVIATIONS
    assert np.array_equal(found[sure], j[sure])


def test_values_that_are_not_small_are_not_touched():
    j = noisy(0.5 + 0.4 * np.exp(-(THETA**2)))
    wide = KnownMeans(j, np.full(j.size, 0.5), WEIGHTS, TABLE)
    assert np.array_equal(Tail.learned(wide).mended(j, wide.deviations, TABLE, LOWEST), j)


def test_a_continuation_stays_between_its_bounds():
    j = noisy(np.exp(-(THETA**2)))
    tail = Tail.learned(known(j))
    low = 1e-8
    found = tail.mended(j, DEVIATIONS, TABLE, low)
    replaced = found != j
    assert (found[replaced] >= low * (1 - 1e-12)).all()
    assert (found[replaced] <= tail.least * DEVIATIONS[replaced]).all()


def test_a_form_is_handed_down():
    j = noisy(np.exp(-(THETA**2)))
    continued, floor = Tail.learned(known(j)), Tail(0.01)
    assert Tail.like(continued, known(j)).quadratic is not None
    assert Tail.like(floor, known(j)).quadratic is None


@pytest.mark.parametrize(("signal", "budget", "most"), [(1.0, 1000, 1.5e-4), (4.0, 8800, 3e-4)])
def test_the_evidence_of_normal_data_keeps_its_logarithm(signal, budget, most):
    """Floors under Ĵ left errors of 3.8e-4 and 3.4e-4 here."""
    problem = nq.problems.eig_linear(1, design=[[signal]])
    for seed in range(3):
        found = nq.estimate(problem, method="joint", budget=budget, rng=seed)
        assert "where J is tiny" in " ".join(found.diagnostics["notes"])
        error = abs(found.value - problem.exact)
        assert error < most
        assert error <= 1.96 * found.std_error
