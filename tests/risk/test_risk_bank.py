"""Portfolios, incremental risk, stresses, spectral and certified measures, priors, forecasts."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.stats import norm

import nestquad as nq
from nestquad import risk

SIZES = np.array([1.0, 2.0, 3.0])


def _desks(scale: float = 1.0, shift: float = 0.0) -> nq.NestedExpectation:
    """Desks with J_k = scale k θ_k + shift, independent normal variables."""

    def g(x, theta):
        return scale * SIZES * theta + x + shift

    law = nq.Normal(np.zeros(3), 1.0)
    return nq.NestedExpectation(law, law, g, name="desks")


def _shortfall(sd: float, p: float = 0.975) -> float:
    return float(sd * norm.pdf(norm.ppf(p)) / (1.0 - p))


@pytest.fixture(scope="module")
def report():
    return risk.measure(
        _desks(),
        spectral={"exponential": lambda u: 5.0 * np.exp(-5.0 * (1.0 - u)) / (1.0 - np.exp(-5.0))},
        outputs=["a", "b", "c"],
        portfolios={"P": ["a", "b"], "Q": ["c"]},
        stresses={"all up": [2.0, 2.0, 2.0], "none": [0.0, 0.0, 0.0]},
        certify=True,
        budget=3000,
        rng=0,
    )


def test_portfolios_and_diversification_of_normal_desks(report):
    z = norm.ppf(0.99)
    for name, sd in (("P", np.sqrt(5.0)), ("Q", 3.0)):
        one = report.portfolios[name]
        assert one.var[0.99].value == pytest.approx(sd * z, rel=5e-3)
        assert one.es[0.975].value == pytest.approx(_shortfall(sd), rel=5e-3)
    assert report.portfolios["P"].contributions.names == ("a", "b")
    lost = (np.sqrt(5.0) + 3.0 - np.sqrt(14.0)) * z
    assert report.diversification["VaR 99 %"].value == pytest.approx(lost, rel=0.02)
    assert "diversification" in str(report)


def test_incremental_risk_of_a_desk(report):
    found = report.incremental("c")
    z = norm.ppf(0.99)
    assert found.alone.var[0.99].value == pytest.approx(3.0 * z, rel=5e-3)
    assert found.without.var[0.99].value == pytest.approx(np.sqrt(5.0) * z, rel=5e-3)
    exact = (np.sqrt(14.0) - np.sqrt(5.0)) * z
    assert found.change["VaR 99 %"].value == pytest.approx(exact, rel=0.01)
    assert found.rows()[0]["measure"] == "VaR 99 %"
    same = report.incremental("Q")
    assert same.change["VaR 99 %"].value == found.change["VaR 99 %"].value
    with pytest.raises(nq.InputError, match="outputs 'a', 'b', 'c'"):
        report.incremental("d")


def test_a_pickled_report_has_no_evaluations(report):
    other = pickle.loads(pickle.dumps(report))
    assert other.var[0.99].value == report.var[0.99].value
    with pytest.raises(nq.InputError, match="report"):
        other.incremental("c")


def test_stresses_have_a_place_and_contributions(report):
    up = report.stresses["all up"]
    low, high = up.loss.interval()
    assert low <= 12.0 <= high
    assert up.contributions.value == pytest.approx([2.0, 4.0, 6.0], abs=0.3)
    assert up.contributions.value.sum() == pytest.approx(up.loss.value, rel=1e-12)
    low, high = report.stresses["none"].place.interval()
    assert low <= 0.5 <= high
    assert high - low < 0.1
    assert report.n_evaluations <= 3000


def test_spectral_measure_of_a_normal_loss(report):
    u = (np.arange(400_000) + 0.5) / 400_000
    weight = 5.0 * np.exp(-5.0 * (1.0 - u)) / (1.0 - np.exp(-5.0))
    exact = np.sqrt(14.0) * float((weight * norm.ppf(u)).mean())
    assert report.spectral["exponential"].value == pytest.approx(exact, rel=5e-3)


def test_shortfall_is_spectral():
    found = risk.measure(_desks(), es=0.9, spectral=lambda u: 10.0 * (u > 0.9), budget=1000, rng=0)
    assert found.spectral["spectral"].value == pytest.approx(found.es[0.9].value, rel=1e-3)


def test_certified_intervals_hold_and_are_wider(report):
    sd = np.sqrt(14.0)
    for row, exact in zip(report.rows(), (sd * norm.ppf(0.99), _shortfall(sd)), strict=False):
        assert row["certified_low"] <= exact <= row["certified_high"]
        assert row["certified_high"] - row["certified_low"] > row["high"] - row["low"]
    assert np.isinf(report.rows()[-1]["certified_high"])  # spectral measures have none


def test_certified_intervals_do_not_rest_on_the_model():
    """A jump of J in θ that no polynomial follows, under noise."""

    def g(x, theta):
        return theta[..., 0] + 5.0 * (theta[..., 1] > 2.0) + x[..., 0]

    law = nq.Normal(np.zeros(2), 1.0)
    problem = nq.NestedExpectation(law, nq.Normal(), g)
    found = risk.measure(problem, var=0.95, exceed=3.0, certify=True, budget=4000, rng=0)
    tail = norm.sf(2.0)
    exact = (1.0 - tail) * norm.sf(3.0) + tail * norm.sf(-2.0)
    row = found.rows()[-1]
    assert row["certified_low"] <= exact <= row["certified_high"]


def test_values_of_an_earlier_run_help(tmp_path):
    first = risk.measure(_desks(), budget=4000, rng=0, store=tmp_path)
    for prior in (first, tmp_path):
        second = risk.measure(_desks(1.02, 0.1), budget=600, rng=1, prior=prior)
        assert second.n_evaluations <= 600
        exact = 1.02 * np.sqrt(14.0) * norm.ppf(0.99) + 0.3
        assert second.var[0.99].value == pytest.approx(exact, rel=5e-3)
        assert abs(second.var[0.99].value - exact) <= 2.0 * second.var[0.99].half_width
        assert any("earlier run" in note for note in second.notes)
    third = risk.measure(_desks(1.03, 0.1), budget=600, rng=2, prior=second)
    exact = 1.03 * np.sqrt(14.0) * norm.ppf(0.99) + 0.3
    assert third.var[0.99].value == pytest.approx(exact, rel=5e-3)


def test_values_of_another_loss_are_not_trusted():
    rng = np.random.default_rng(0)
    wave = rng.normal(size=3)

    def other(x, theta):
        return np.sin(9.0 * (theta + x) @ wave)[..., None] * np.ones(3)

    law = nq.Normal(np.zeros(3), 1.0)
    first = risk.measure(nq.NestedExpectation(law, law, other), budget=2000, rng=0)
    second = risk.measure(_desks(), budget=2000, rng=1, prior=first)
    assert any("not used" in note for note in second.notes)
    assert second.n_evaluations <= 2000
    exact = np.sqrt(14.0) * norm.ppf(0.99)
    assert second.var[0.99].value == pytest.approx(exact, rel=0.01)


def test_forecast_of_a_tolerance():
    near = risk.forecast(_desks(), rtol=0.05, rng=0)
    assert near.reached <= 1.0
    assert "met" in str(near)
    told = []
    found = risk.measure(
        _desks(), rtol=1e-4, budget=3000, rng=0, progress=lambda *line: told.append(line[2])
    )
    assert found.status in ("budget", "converged", "limit")
    far = risk.forecast(_desks(), rtol=1e-6, budget=2000, rng=0)
    assert far.low <= far.n_evaluations <= far.high
    assert far.n_evaluations > far.spent
    assert any(line.startswith("about") and "±" in line for line in told)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"spectral": lambda u: 2.0 + 0.0 * u}, "integral 2"),
        ({"spectral": lambda u: u - 0.5}, "at least 0"),
        ({"spectral": 3.0}, "a function"),
        ({"portfolios": {"P": ["a"]}}, "outputs"),
        ({"outputs": ["a", "b", "c"], "portfolios": {"P": ["d"]}}, "'P'"),
        ({"stresses": {"up": [1.0]}}, "3 coordinates"),
        ({"stresses": [1.0]}, "mapping"),
        ({"prior": 7}, "report"),
        ({"prior": "nowhere"}, "risk.npz"),
        ({"certify": 2}, "certify"),
        ({"exposure": True, "stresses": {}}, "stresses"),
    ],
)
def test_bad_input_costs_no_evaluations(options, words):
    def g(x, theta):
        raise AssertionError("evaluated")

    law = nq.Normal(np.zeros(3), 1.0)
    with pytest.raises(nq.InputError, match=words):
        risk.measure(nq.NestedExpectation(law, law, g), budget=1000, **options)


def test_a_prior_of_other_laws_is_refused():
    first = risk.measure(_desks(), budget=500, rng=0)
    line = nq.NestedExpectation(nq.Normal(), nq.Normal(), lambda x, theta: x[..., 0])
    with pytest.raises(nq.InputError, match="drivers"):
        risk.measure(line, budget=500, prior=first)


def test_page_has_warnings_first_and_words_of_the_method_last(tmp_path, report):
    page = report.save(tmp_path / "risk.html").read_text(encoding="utf-8")
    body, appendix = page.split("Appendix")
    for word in ("nugget", "periodization", "lattice"):
        assert word not in body
    assert "polynomials" in appendix
    for heading in ("Stress scenarios", "Portfolios", "Contributions", "Convergence"):
        assert f"<h2>{heading}</h2>" in body
    assert report.to_dict()["stresses"][0]["stress"] == "all up"
