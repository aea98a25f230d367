"""Validation of proxies for measures of risk, and tables with risk factors."""

import json

import numpy as np
import pytest
from scipy.special import ndtri

import nestquad as nq
from nestquad import risk


def loss(x, theta):
    return theta[..., 0] + theta[..., 1] + x[..., 0]


def problem():
    return nq.NestedExpectation(nq.Normal(np.zeros(2)), nq.Normal(), loss)


SPREAD = np.sqrt(2.0)
EXACT = ndtri(0.995) * SPREAD


def test_a_proxy_without_a_factor_is_corrected_and_named():
    report = risk.validate(problem(), lambda t: t[:, 0], var=0.9, es=0.8, budget=2000, rng=0)
    exact = ndtri(0.9) * SPREAD
    low, high = report.var[0.9].interval()
    assert low <= exact <= high
    assert report.var[0.9].value == pytest.approx(exact, rel=0.1)
    assert report.rows()[0]["proxy"] == pytest.approx(ndtri(0.9), rel=0.02)
    assert "theta[1]" in report.verdict
    assert report.diagnosis.unexplained.value == pytest.approx(0.5, abs=0.1)
    assert len(report.worst(3)) == 3


@pytest.mark.parametrize("cap", [0.95, 0.99])
def test_a_clipped_proxy_is_outside_and_its_tail_is_known(cap):
    """min(J, c) does not order scenarios beyond c, where all measures look."""
    for seed in (0, 2):
        report = risk.validate(
            problem(),
            lambda t: np.minimum(t[:, 0] + t[:, 1], ndtri(cap) * SPREAD),
            budget=2000,
            rng=seed,
        )
        found = report.var[0.995]
        assert abs(found.value - EXACT) <= 3 * found.std_error
        assert found.std_error < 2e-3 * EXACT
        assert report.rows()[0]["proxy"] == pytest.approx(ndtri(cap) * SPREAD)
        assert not report.is_good


def test_a_shifted_proxy_is_outside_and_the_page_says_so(tmp_path):
    report = risk.validate(problem(), lambda t: t[:, 0] + t[:, 1] - 0.5, budget=1000, rng=0)
    assert report.var[0.995].value == pytest.approx(EXACT, rel=0.01)
    assert not report.is_good
    assert not report.rows()[0]["holds"]
    assert "too low" in report.verdict
    assert "Shift" in report.verdict
    data = json.loads(report.to_json())
    assert data["good"] is False
    page = report.save(tmp_path / "validation.html").read_text(encoding="utf-8")
    assert "Validation of a proxy" in page
    assert "outside" in page
    assert "outside" in str(report)


def test_a_good_proxy_passes():
    report = risk.validate(problem(), lambda t: t[:, 0] + t[:, 1], budget=1000, rng=0)
    assert report.is_good
    assert report.var[0.995].value == pytest.approx(EXACT, rel=0.01)
    assert "within the 95 % intervals" in report.verdict


def test_a_proxy_of_the_same_law_is_inside_by_the_error_of_its_own_measures():
    """−J has the law of J, computed at other θ."""
    report = risk.validate(problem(), lambda t: -t[:, 0] - t[:, 1], budget=1500, rng=0)
    assert report.is_good
    assert (report.proxy_error > 0).all()
    assert (report.proxy_error < 1e-3 * report.proxy).all()
    assert any("learned" in note for note in report.notes)
    assert not report.diagnosis.is_good


def test_given_scenarios_are_validated():
    theta = np.random.default_rng(0).standard_normal((2000, 2))
    given = nq.NestedExpectation(nq.Empirical(theta), nq.Normal(), loss)
    report = risk.validate(given, lambda t: t[:, 0] + t[:, 1] - 0.4, var=0.95, budget=1500, rng=0)
    exact = np.quantile(theta @ [1.0, 1.0], 0.95)
    assert report.var[0.95].value == pytest.approx(exact, rel=0.05)
    assert report.diagnosis.bias.value == pytest.approx(-0.4, abs=0.1)


def test_wrong_input_is_refused():
    with pytest.raises(nq.InputError, match="budget"):
        risk.validate(problem(), lambda t: t[:, 0])
    with pytest.raises(nq.InputError, match="proxy"):
        risk.validate(problem(), None, budget=1000)
    with pytest.raises(nq.InputError, match="f or combine"):
        risk.validate(nq.problems.finance(), lambda t: t[:, 0], budget=1000)


def table(n, k, seed):
    """Losses that are skewed: J = z₀² + z₁/2 with normal noise of standard deviation 2."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))
    j = z[:, 0] ** 2 + 0.5 * z[:, 1]
    losses = j[:, None] + 2.0 * rng.standard_normal((n, k))
    frame = {
        "scenario": np.repeat(np.arange(n), k),
        "loss": losses.ravel(),
        "rate": np.repeat(z[:, 0], k),
        "equity": np.repeat(z[:, 1], k),
    }
    return frame, j


@pytest.mark.parametrize("k", [2, 5])
def test_factors_remove_the_bias_of_few_draws(k):
    errors, plain, held = [], [], []
    for seed in range(3):
        frame, j = table(4000, k, seed)
        exact = np.quantile(j, 0.99)
        report = risk.from_table(frame, factors=["rate", "equity"], rng=0)
        errors.append(report.var[0.99].value / exact - 1.0)
        plain.append(risk.from_table(frame, rng=0).var[0.99].value / exact - 1.0)
        low, high = report.var[0.99].interval()
        held.append(low <= exact <= high)
    assert abs(np.mean(errors)) < 0.03
    assert np.mean(plain) < -0.05
    assert sum(held) >= 2
    assert "regression on factors" in report.estimate.method


def test_heavy_noise_of_a_table_widens_its_interval():
    """Noise exp(2 Z − 2), a factor of J: the mean of ten draws has a kurtosis of 10⁵."""
    rng, held, halves = np.random.default_rng(0), [], []
    for _ in range(3):
        z = rng.standard_normal(1000)
        losses = np.exp(0.6 * z)[:, None] * np.exp(2.0 * rng.standard_normal((1000, 10)) - 2.0)
        frame = {
            "scenario": np.repeat(np.arange(1000), 10),
            "loss": losses.ravel(),
            "rate": np.repeat(z, 10),
        }
        found = risk.from_table(frame, factors=["rate"], var=0.95, es=[]).var[0.95]
        exact = np.exp(0.6 * 1.6449)
        held.append(abs(found.value - exact) <= found.half_width)
        halves.append(found.half_width / exact)
    assert sum(held) >= 2
    assert 0.05 < np.median(halves) < 3.0


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_levels_beyond_all_scenarios_are_unknown_with_factors(seed):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal(200)
    loss = np.exp(factor)[:, None] + 0.5 * rng.standard_normal((200, 2))
    frame = {"scenario": np.arange(200).repeat(2), "loss": loss.ravel(), "rate": factor.repeat(2)}
    report = risk.from_table(frame, factors=["rate"], var=(0.9999, 0.9), es=0.995)
    assert np.isinf(report.var[0.9999].half_width)
    assert np.isinf(report.es[0.995].half_width)
    assert np.isfinite(report.var[0.9].half_width)
    assert any("takes at least 30,0" in note for note in report.notes)


def test_factors_are_checked():
    frame, _ = table(100, 2, 0)
    with pytest.raises(nq.InputError, match="no column 'volatility'"):
        risk.from_table(frame, factors=["volatility"])
    for names in ([], ["rate", "rate"]):
        with pytest.raises(nq.InputError, match="different columns"):
            risk.from_table(frame, factors=names)
    varying = {**frame, "rate": np.arange(200.0)}
    with pytest.raises(nq.InputError, match="one value of a factor"):
        risk.from_table(varying, factors=["rate"])
    words = {**frame, "rate": np.array(["a"] * 200)}
    with pytest.raises(nq.InputError, match="factors"):
        risk.from_table(words, factors=["rate"])
    with pytest.raises(nq.InputError, match="the same in all scenarios"):
        risk.from_table({**frame, "rate": np.zeros(200)}, factors=["rate"])
