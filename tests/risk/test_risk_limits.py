"""Limits of sizes, memory and time: an answer with a bar, or our error."""

import numpy as np
import pytest

import nestquad as nq
from nestquad import risk


def book(scale=1.0):
    """J is normal with mean 0 and variance 2."""
    return nq.NestedExpectation(
        nq.Normal(np.zeros(2)),
        nq.Normal(),
        lambda x, theta: scale * (theta.sum(axis=-1) + 0.3 * x[..., 0]),
    )


@pytest.mark.parametrize("scale", [1e-40, 1e40])
def test_ordinary_units_of_money(scale):
    found = risk.measure(book(scale), var=0.95, budget=500, rng=0).var[0.95]
    low, high = found.interval()
    assert low <= scale * 1.6448536 * np.sqrt(2.0) <= high
    assert high - low < 0.1 * found.value


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
def test_units_out_of_range_are_refused(scale):
    with pytest.raises(nq.EvaluationError, match="another unit"):
        risk.measure(book(scale), var=0.95, budget=500, rng=0)


@pytest.mark.parametrize("budget", [10**6, 10**14])
def test_little_time_and_a_huge_budget_give_an_answer_with_a_bar(budget):
    found = risk.measure(book(), var=0.95, budget=budget, max_seconds=1.5, rng=0)
    low, high = found.var[0.95].interval()
    assert low <= 1.6448536 * np.sqrt(2.0) <= high
    assert found.estimate.seconds < 6.0
    assert np.isfinite(high)


def test_a_word_among_losses_is_named_with_its_row():
    table = {"scenario": np.arange(40) // 2, "loss": ["1.5"] * 39 + ["n/a"]}
    with pytest.raises(nq.InputError, match="'n/a' in row 39 of 'loss'"):
        risk.from_table(table)


def test_a_table_whose_losses_never_vary_is_unreliable():
    report = risk.from_table({"scenario": np.arange(400) // 2, "loss": np.ones(400)})
    assert report.status == "unreliable"


def test_a_negative_hazard_rate_is_named():
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), lambda x, theta: x + theta)
    with pytest.raises(nq.InputError, match="hazard rate of -1"):
        risk.measure(problem, exposure=True, outputs=[1.0], default_curve=-1.0, budget=200)
