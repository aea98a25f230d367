"""The distribution of a report against closed forms, and against the report's own measures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import nestquad as nq
from nestquad import risk

_LEVELS = (0.1, 0.5, 0.9, 0.99)


def _log_normal() -> risk.RiskReport:
    """J = exp θ with θ standard normal."""
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: np.exp(theta[..., 0]) + x[..., 0]
    )
    exceed = tuple(np.exp(norm.ppf(_LEVELS)))
    return risk.measure(problem, var=_LEVELS, exceed=exceed, budget=1000, rng=0)


def _steps() -> risk.RiskReport:
    """J is one of 0, …, 9, each in 300 scenarios."""
    table = {"scenario": np.arange(3000).repeat(2), "loss": (np.arange(3000) % 10).repeat(2)}
    return risk.from_table(table, var=_LEVELS, exceed=(3.5, 4.0))


@pytest.mark.parametrize("made", [_log_normal, _steps])
def test_distribution_and_measures_are_the_same_numbers(made):
    report = made()
    law = report.distribution
    value, error = law.quantile(_LEVELS, return_std=True)
    found = [report.var[p] for p in _LEVELS]
    assert value == pytest.approx([one.value for one in found], rel=1e-12)
    assert error == pytest.approx([one.std_error for one in found], rel=1e-9)
    value, error = law.cdf([*report.exceed], return_std=True)
    found = [*report.exceed.values()]
    assert 1.0 - value == pytest.approx([one.value for one in found], rel=1e-12)
    assert error == pytest.approx([one.std_error for one in found], rel=1e-9)


def test_a_smooth_law_is_inverted_and_has_errors_that_hold():
    law = _log_normal().distribution
    for p in (0.05, 0.3, 0.7, 0.95):
        exact = float(np.exp(norm.ppf(p)))
        value, error = law.cdf(exact, return_std=True)
        assert abs(value - p) <= 2.5 * error
        assert error < 0.01
        assert law.cdf(law.quantile(p)) == pytest.approx(p, abs=1e-6)
    drawn = np.sort(law.sample(40_000, rng=0))
    assert np.log(drawn[[2_000, 20_000, 38_000]]) == pytest.approx([-1.645, 0, 1.645], abs=0.05)
    assert law.cdf([-np.inf, np.inf], return_std=True)[1].tolist() == [0.0, 0.0]


def test_a_law_with_steps_has_nothing_between_them():
    law = _steps().distribution
    assert law.quantile([0.05, 0.1, 0.1001, 0.85]).tolist() == [0.0, 0.0, 1.0, 8.0]
    assert law.cdf([-0.5, 0.0, 3.9, 4.0, 9.0]) == pytest.approx([0.0, 0.1, 0.4, 0.5, 1.0])
    drawn = law.sample(2_000, rng=0)
    assert (drawn == np.round(drawn)).all()
    assert np.bincount(drawn.astype(int)) == pytest.approx(np.full(10, 200), abs=60)


def test_given_scenarios_have_steps():
    """J = 0, 1, …, 9 known without noise."""
    points = np.arange(10.0)[:, None]
    problem = nq.NestedExpectation(
        nq.Empirical(points), nq.Normal(), lambda x, theta: theta[..., 0] + 0.0 * x[..., 0]
    )
    law = risk.measure(problem, var=0.5, budget=300, rng=0).distribution
    assert law.quantile([0.3, 0.55]) == pytest.approx([2.0, 5.0], abs=1e-4)
    drawn = law.sample(500, rng=0)
    assert drawn == pytest.approx(np.round(drawn), abs=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda law: law.sample("x"),
        lambda law: law.sample(2.5),
        lambda law: law.sample(-1),
        lambda law: law.sample((2, 2)),
        lambda law: law.band("x"),
        lambda law: law.band(None),
        lambda law: law.band([0.5, 0.9]),
        lambda law: law.band(1.0),
        lambda law: law.quantile(1.0),
        lambda law: law.quantile("x"),
        lambda law: law.cdf(np.nan),
        lambda law: law.cdf(1j),
    ],
)
def test_junk_is_refused(call):
    law = _steps().distribution
    with pytest.raises(nq.InputError):
        call(law)
