"""Greeks of measures of risk against closed forms."""

import json

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import nestquad as nq
from nestquad import risk


def linear(mean, spread):
    """J ~ N(mean, spread²): VaR = mean + z spread."""
    return nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(mean + spread * theta, 1.0),
        lambda x, theta: x[..., 0],
        name="linear",
    )


@pytest.fixture(scope="module")
def report():
    at = {"mean": 0.5, "spread": 2.0}
    return risk.measure(
        linear, sensitivities=at, var=0.99, es=0.975, exceed=3.0, budget=3000, rng=0
    )


def test_normal_loss(report):
    greeks = report.sensitivities
    z = (3.0 - 0.5) / 2.0
    exact = {
        ("var", "mean"): (greeks.var[0.99]["mean"], 1.0),
        ("var", "spread"): (greeks.var[0.99]["spread"], norm.ppf(0.99)),
        ("es", "mean"): (greeks.es[0.975]["mean"], 1.0),
        ("es", "spread"): (greeks.es[0.975]["spread"], norm.pdf(norm.ppf(0.975)) / 0.025),
        ("exceed", "mean"): (greeks.exceed[3.0]["mean"], norm.pdf(z) / 2.0),
        ("exceed", "spread"): (greeks.exceed[3.0]["spread"], norm.pdf(z) * z / 2.0),
    }
    for found, truth in exact.values():
        assert found.value == pytest.approx(truth, rel=2e-3)
        assert abs(found.value - truth) <= 2.0 * found.half_width + 1e-4 * truth


def test_presentation(report, tmp_path):
    assert report.contributions is None
    assert report.n_evaluations <= 3000
    assert "sensitivities" in str(report)
    rows = json.loads(report.to_json())["sensitivities"]
    assert [row["parameter"] for row in rows[:2]] == ["mean", "spread"]
    assert "Sensitivities" in report.save(tmp_path / "risk.html").read_text()
    pytest.importorskip("pandas")
    assert len(report.sensitivities.to_frame()) == 6


REST, HORIZON, STRIKE = 11 / 12, 1 / 12, 95.0


def put(vol, spot):
    def after(start, years):
        return nq.LogNormal(np.log(start) - vol**2 * years / 2, vol * np.sqrt(years))

    return nq.NestedExpectation(
        after(spot, HORIZON),
        lambda price: after(price, REST),
        lambda x, price: np.maximum(STRIKE - x[..., 0], 0.0),
    )


def exact_put(vol, spot, threshold):
    """VaR 99 %, ES 97.5 % and P(J > threshold) by the formula of Black and Scholes."""

    def value(z):
        price = spot * np.exp(-(vol**2) * HORIZON / 2 + vol * np.sqrt(HORIZON) * z)
        sd = vol * np.sqrt(REST)
        d = (np.log(STRIKE / price) + sd**2 / 2) / sd
        return STRIKE * norm.cdf(d) - price * norm.cdf(d - sd)

    ranks = (np.arange(200_000) + 0.5) / 200_000
    shortfall = value(norm.ppf(0.025 * ranks)).mean()
    place = brentq(lambda z: value(z) - threshold, -6.0, 6.0)
    return np.array([value(norm.ppf(0.01)), shortfall, norm.cdf(place)])


def test_book_of_black_and_scholes():
    """Errors of three seeds: root mean squares of at most a tenth, each within its interval."""
    at, threshold, step = {"vol": 0.25, "spot": 100.0}, 12.0, 1e-4
    reports = [
        risk.measure(
            put, sensitivities=at, var=0.99, es=0.975, exceed=threshold, budget=6000, rng=seed
        ).sensitivities
        for seed in (0, 2, 4)
    ]
    for name in at:
        size = step * at[name]
        up, down = (
            exact_put(**{**at, name: at[name] + side}, threshold=threshold)
            for side in (size, -size)
        )
        truth = (up - down) / (2 * size)
        errors = []
        for greeks in reports:
            found = [greeks.var[0.99], greeks.es[0.975], greeks.exceed[threshold]]
            each = zip(found, truth, strict=True)
            errors.append([slopes[name].value - exact for slopes, exact in each])
            halves = [slopes[name].half_width for slopes in found]
            assert (np.abs(errors[-1]) <= 3.0 * np.array(halves)).all()
        assert (np.sqrt(np.mean(np.square(errors), axis=0)) <= 0.1 * np.abs(truth)).all()


def test_desks_have_contributions_and_greeks():
    def desks(weights):
        return nq.NestedExpectation(
            nq.Normal(np.zeros(2)),
            lambda theta: nq.Normal(theta, 1.0),
            lambda x, theta: x * np.asarray(weights),
        )

    weights = np.array([1.0, 2.0])
    report = risk.measure(
        desks, sensitivities={"weights": weights}, var=0.99, outputs=["a", "b"], budget=4000, rng=0
    )
    slope = report.sensitivities.var[0.99]["weights"]
    # VaR = z |w|, whose derivative is z w / |w|; w times it is the contribution.
    exact = norm.ppf(0.99) * weights / np.linalg.norm(weights)
    assert (np.abs(slope.value - exact) <= np.maximum(2.0 * slope.half_width, 0.02)).all()
    shares = report.contributions.var[0.99]
    np.testing.assert_allclose(shares.value, weights * slope.value, atol=0.1)
    assert shares.value.sum() == pytest.approx(report.var[0.99].value, rel=1e-6)


def test_wrong_input():
    problem = linear(0.0, 1.0)
    with pytest.raises(nq.InputError, match="a function of the parameters"):
        risk.measure(problem, sensitivities={"mean": 0.0}, budget=1000)
    with pytest.raises(nq.InputError, match="given with exposure=True"):
        risk.measure(linear, sensitivities={"mean": 0.0}, exposure=True, budget=1000)
    with pytest.raises(nq.InputError, match="one with f or combine"):
        risk.measure(
            lambda a: nq.NestedExpectation(
                nq.Normal(), nq.Normal(), lambda x, theta: a * x[..., 0], lambda j: j**2
            ),
            sensitivities={"a": 1.0},
            budget=1000,
        )
