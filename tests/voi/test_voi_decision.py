"""Increments, ratios, losses, designs of studies and their net benefit, against mathematics."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import nestquad as nq
from nestquad import voi

N = 4000
RNG = np.random.default_rng(0)
COMMON = RNG.normal(0.0, 1000.0, N)
GAIN = RNG.normal(24.0, 400.0, N)


def test_increments_have_the_error_of_the_difference():
    table = voi.incremental(np.column_stack((COMMON, COMMON + GAIN)))
    row = table.iloc[0]
    assert row.inb == pytest.approx(GAIN.mean())
    assert row.se == pytest.approx(GAIN.std(ddof=1) / np.sqrt(N))
    assert row.probability == pytest.approx((GAIN > 0).mean())
    other = voi.incremental(np.column_stack((COMMON, COMMON + GAIN)), reference="option 2").iloc[0]
    assert other.inb == pytest.approx(-row.inb)
    with pytest.raises(nq.InputError, match="option 2"):
        voi.incremental(np.column_stack((COMMON, GAIN)), reference="option 3")


def test_frontier_is_the_lower_convex_hull():
    rng = np.random.default_rng(4)
    for _ in range(30):
        means = rng.uniform(size=(6, 2))
        table = voi.icers((np.ones((30, 1)) * means[:, 0], np.ones((30, 1)) * means[:, 1], 1.0))
        on = set(table.option[table.status == "frontier"])
        # On it is whatever is the best at some willingness to pay from 0 up.
        grid = np.concatenate(([0.0], np.logspace(-4, 6, 20_000)))
        best = {f"option {d + 1}" for d in (grid[:, None] * means[:, 1] - means[:, 0]).argmax(1)}
        assert best <= on
        ratios = table.icer.dropna().to_numpy()
        assert (np.diff(ratios) > 0).all()
        assert len(ratios) == len(on) - 1


def test_losses_differ_by_increments():
    benefits = np.column_stack((COMMON, COMMON + GAIN, 0 * GAIN))
    loss = voi.expected_loss(benefits).set_index("option").loss
    mean = benefits.mean(axis=0)
    np.testing.assert_allclose(loss - loss.iloc[0], mean[0] - mean, atol=1e-9)
    assert loss.min() == pytest.approx(voi.evpi(benefits).evpi[0])


# Studies: the rate of events has a gamma law, so that data update it in closed form.

A, B = 4.0, 8.0
RATE = pd.DataFrame({"rate": RNG.gamma(A, 1 / B, 20_000), "other": RNG.normal(size=20_000)})
BENEFIT = np.column_stack((0 * RATE.rate, 0.5 - RATE.rate))


def conjugate(events, time):
    """EVSI when the posterior mean of the rate is (A + events) / (B + time)."""
    gain = 0.5 - (A + events) / (B + time)
    return np.maximum(gain, 0.0).mean() - max(gain.mean(), 0.0)


def many_rates():
    return np.random.default_rng(9).gamma(A, 1 / B, 400_000)


def test_count_trial_is_conjugate():
    rates = many_rates()
    events = np.random.default_rng(8).poisson(20 * 0.5 * rates)
    exact = conjugate(events, 20 * 0.5)
    row = voi.evsi(BENEFIT, RATE, voi.CountTrial("rate", time=0.5), 20).iloc[0]
    assert abs(row.evsi - exact) < 3 * row.se
    assert row.participants == 20


@pytest.mark.parametrize("shape", [1.0, 1.7])
def test_survival_trial_is_conjugate(shape):
    rates, rng = many_rates(), np.random.default_rng(8)
    end = 1.5**shape
    events, time = np.zeros(len(rates)), np.zeros(len(rates))
    for _ in range(12):
        waited = stats.weibull_min(shape).rvs(len(rates), random_state=rng) ** shape / rates
        events += waited <= end
        time += np.minimum(waited, end)
    exact = conjugate(events, time)
    row = voi.evsi(BENEFIT, RATE, voi.SurvivalTrial("rate", 1.5, shape), 12).iloc[0]
    assert abs(row.evsi - exact) < 3 * row.se


def test_larger_studies_have_the_people_of_smaller_ones():
    trial = voi.SurvivalTrial("rate", 2.0)
    small, large = (trial.summaries(RATE, n, np.random.default_rng(0)) for n in (50, 100))
    assert (large[:, 0] * 100 >= small[:, 0] * 50).all()


def test_unequal_arms():
    trial = voi.NormalTrial(["other", "rate"], sd=1.0, ratio=(3, 1))
    assert trial.participants(20) == 80
    assert "3 : 1" in trial.name
    spread = (trial.summaries(RATE, 20, np.random.default_rng(0)) - RATE[["other", "rate"]]).std()
    np.testing.assert_allclose(spread, [1 / np.sqrt(60), 1 / np.sqrt(20)], rtol=0.05)
    with pytest.raises(nq.InputError, match="2 positive numbers"):
        voi.BinaryTrial(["a", "b"], ratio=(1,))


def test_several_studies():
    one, other = voi.CountTrial("rate"), voi.NormalTrial("other", sd=1.0)
    benefit = BENEFIT + np.column_stack((0 * RATE.rate, 0.3 * RATE.other))
    table = voi.evsi(benefit, RATE, [one, other, voi.Combined(one, other)], 10).evsi
    assert table[2] > max(table[0], table[1])
    assert voi.Combined(one, other).participants(10) == 20
    with pytest.raises(nq.InputError, match="two or more"):
        voi.Combined(one)


@pytest.mark.parametrize(
    ("design", "words"),
    [
        (lambda: voi.SurvivalTrial("rate", -1.0), "follow_up"),
        (lambda: voi.SurvivalTrial("rate", 1.0, shape="k"), "shape"),
        (lambda: voi.CountTrial("rate", time=0), "time"),
        (lambda: voi.evsi(BENEFIT, RATE, voi.CountTrial("other"), 5), "rates that are not"),
        (lambda: voi.evsi(BENEFIT, RATE, voi.BinaryTrial("other"), 5), "between 0 and 1"),
    ],
)
def test_designs_that_are_refused(design, words):
    with pytest.raises(nq.InputError, match=words):
        design()


# Net benefit of sampling.

VALUES = pd.DataFrame(
    {
        "design": "trial",
        "n": [50, 100, 200, 400],
        "participants": [100, 200, 400, 800],
        "wtp": 1.0,
        "evsi": [50.0, 80.0, 95.0, 100.0],
        "lower": 40.0,
        "upper": 110.0,
    }
)


def test_duration_costs_those_who_are_treated_before():
    net = voi.enbs(VALUES, per_year=100, horizon=5, discount=0.0, duration=lambda n: n / 100)
    np.testing.assert_allclose(net.population_evsi, VALUES.evsi * 100 * (5 - VALUES.n / 100))
    found = voi.best_sizes(net).iloc[0]
    assert (found.n, found.near_from, found.near_to) == (100, 100, 100)
    assert not found.notes


def test_caveats_of_a_best_size():
    immediate = voi.best_sizes(voi.enbs(VALUES, per_year=100, horizon=5)).iloc[0]
    assert (immediate.n, immediate.near_from, immediate.near_to) == (400, 200, 400)
    assert "largest tried" in immediate.notes
    assert "immediate" in immediate.notes
    dear = voi.enbs(VALUES, per_year=100, horizon=5, fixed_cost=1e6, duration=1)
    found = voi.best_sizes(dear).iloc[0]
    assert found.n == 0
    assert found.notes == "no size that was tried is worth its cost"


def test_an_analysis_without_a_population_has_no_population():
    outputs = voi.Outputs(net_benefit=BENEFIT[:500])
    study = voi.Study(voi.CountTrial("rate"), [10, 20])
    analysis = voi.analyze(outputs, RATE[:500], study=[study])
    assert analysis.enbs is None
    assert not [c for table in analysis.tables.values() for c in table if "population" in c]
    some = voi.analyze(outputs, RATE[:500], study=study, audience=voi.Audience(100, 5))
    assert some.best_sizes is not None
