"""Certificates of proxies: intervals that hold whatever the proxy, verdicts that name faults."""

import json

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

import nestquad as nq

LIMIT = 0.8


def g(x, theta):
    return theta[..., 0] + 0.5 * x[..., 0]


def excess(j):
    return np.maximum(j - LIMIT, 0.0)


# J = θ is normal: E max(J − c, 0) = φ(c) − c (1 − Φ(c)).
EXACT = norm.pdf(LIMIT) - LIMIT * ndtr(-LIMIT)


def linear(f=None):
    return nq.NestedExpectation(nq.Normal(), nq.Normal(), g, f)


def wavy(x, theta):
    return (
        theta[..., 0]
        + 0.5 * theta[..., 1] ** 2
        + np.exp(0.3 * theta[..., 2]) * x[..., 0] ** 2
        + 0.2 * x[..., 1]
    )


def j_of(theta):
    return theta[:, 0] + 0.5 * theta[:, 1] ** 2 + np.exp(0.3 * theta[:, 2])


def book():
    return nq.NestedExpectation(nq.Normal(np.zeros(3)), nq.Normal(np.zeros(2)), wavy)


@pytest.mark.parametrize(("off", "tilt"), [(0.4, 1.0), (0.0, 0.6)])
def test_intervals_of_wrong_proxies_cover_and_are_not_absurd(off, tilt):
    def proxy(theta):
        return tilt * theta[:, 0] + off

    def control(x, theta):
        return proxy(theta) + 0.3 * x[:, 0]

    checks = [
        nq.certify(linear(excess), proxy, budget=700, rng=seed, control=control).estimate
        for seed in range(24)
    ]
    held = [abs(est.value - EXACT) <= est.half_width for est in checks]
    assert np.mean(held) >= 0.85  # of 24 with a probability of .95: 21 or more in 97 %
    half = [est.interval(0.5)[0] <= EXACT <= est.interval(0.5)[1] for est in checks]
    assert np.mean(half) <= 0.96  # an absurd bar would hold at every level
    widths = [est.half_width for est in checks]
    errors = [abs(est.value - EXACT) for est in checks]
    assert np.median(widths) < 12.0 * np.median(errors)
    # The proxy alone is far off.
    alone = nq.certify(linear(excess), proxy, budget=700, rng=0, control=control).proxy_value
    assert abs(alone - EXACT) > 2.0 * np.median(errors)


@pytest.mark.parametrize("wrong", [0.0, 0.01, 0.5])
def test_a_control_with_a_wrong_mean_does_no_harm(wrong):
    """Its mean over x is computed and replaced by the proxy; the variation of g is known here."""
    held, halves = [], []
    for seed in range(0, 40, 2):
        found = nq.certify(
            linear(excess),
            lambda theta: (1.0 + wrong) * theta[:, 0],
            budget=700,
            rng=seed,
            control=lambda x, theta: theta[:, 0] + 0.5 * x[:, 0] + 3.0 * wrong,
        ).estimate
        held.append(abs(found.value - EXACT) <= found.half_width)
        halves.append(found.half_width)
    assert np.sum(held) >= 16  # of 20 with a probability of .95: in 99.7 % of cases
    assert np.median(halves) < 0.05


@pytest.mark.parametrize("budget", [600, 1000])
@pytest.mark.parametrize("curvature", [0.0, 0.5])
def test_rare_events_beyond_a_poor_proxy(budget, curvature):
    """P(J > 8) = .0055; if none of n scenarios is there, 3/n of all may be."""
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(2)),
        nq.Normal(),
        lambda x, theta: theta[..., 0] ** 2 + theta[..., 1] + x[..., 0],
        lambda j: 1.0 * (j > 8.0),
    )
    u, w = np.polynomial.legendre.leggauss(400)
    exact = float(9.0 * w @ (norm.pdf(9.0 * u) * ndtr(81.0 * u**2 - 8.0)))

    def proxy(theta):
        return curvature * theta[:, 0] ** 2 + theta[:, 1]

    held, halves = [], []
    for seed in range(0, 40, 2):
        low, high = nq.certify(problem, proxy, budget=budget, rng=seed).estimate.interval()
        held.append(low <= exact <= high)
        halves.append((high - low) / 2.0)
    assert np.sum(held) >= 16  # of 20 with a probability of .95 or more, in 99.7 % of cases
    assert np.median(halves) < 0.05


def test_a_constant_j_has_no_absurd_share():
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: 1.0 + 0.0 * theta[..., 0] + x[..., 0]
    )
    for slope in (0.0, 0.1):
        for seed in (0, 2, 4):
            proxy = lambda theta: 1.0 + slope * theta[:, 0]  # noqa: B023, E731
            check = nq.certify(problem, proxy, budget=1500, rng=seed)
            assert 0.0 <= check.unexplained.value <= check.unexplained.interval()[1] < 100.0
            assert not (check.is_good and slope)


FAULTS = {
    "shift": (lambda t: j_of(t) + 0.3, None),
    "missing factor": (lambda t: t[:, 0] + 0.5 + np.exp(0.3 * t[:, 2]), 1),
    "flattened tail": (lambda t: np.minimum(j_of(t), 3.2), None),
    "scale": (lambda t: 0.8 * j_of(t) + 0.35, None),
    "overfit": (
        lambda t: j_of(t) + 0.8 * np.sin(37 * t[:, 0] + 51 * t[:, 1] + 43 * t[:, 2]),
        None,
    ),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_the_verdict_names_the_fault(kind):
    proxy, coordinate = FAULTS[kind]
    check = nq.certify(book(), proxy, budget=1500, rng=2)
    assert check.faults[0] == kind
    assert not check.is_good
    assert kind in check.verdict.lower()
    if coordinate is not None:
        assert check.diagnosis.faults[0][0].coordinate == coordinate
        assert f"theta[{coordinate}]" in check.verdict
    # E J = E θ₀ + ½ + e^{0.045}, whatever the proxy.
    exact = 0.5 + np.exp(0.045)
    assert abs(check.estimate.value - exact) <= 1.5 * check.estimate.half_width


def test_numbers_of_a_missing_factor_are_those_of_mathematics():
    # Var J = 1 + ½ + Var exp(0.3 Z), and the proxy without θ₁ misses Var θ₁²/2 = ½.
    check = nq.certify(book(), FAULTS["missing factor"][0], budget=3000, rng=0)
    variance = 1.5 + np.exp(0.09) * (np.exp(0.09) - 1.0)
    low, high = check.unexplained.interval(0.99)
    assert low <= 0.5 / variance <= high < 0.6
    assert abs(check.bias.value) <= 3.0 * check.bias.std_error
    shifted = nq.certify(book(), FAULTS["shift"][0], budget=1500, rng=0)
    assert shifted.bias.value == pytest.approx(0.3, abs=1e-3)
    worst = check.worst(5)
    assert len({tuple(scenario.theta) for scenario in worst}) == 5
    for scenario in worst:
        exact = j_of(scenario.theta[None])[0]
        assert abs(scenario.observed - exact) <= 6.0 * scenario.std_error + 1e-3
        assert scenario.error == pytest.approx(scenario.observed - scenario.predicted)


def test_a_good_proxy_has_no_fault_and_the_interval_of_our_own_model():
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(3)), nq.Normal(np.zeros(2)), wavy, lambda j: np.maximum(j - 3.0, 0.0)
    )
    check = nq.certify(problem, j_of, budget=1500, rng=0)
    own = nq.estimate(problem, budget=1500, rng=0, certify=True).certified
    assert check.estimate.half_width < 1.5 * own.half_width
    distance = abs(check.estimate.value - own.value)
    assert distance <= check.estimate.half_width + own.half_width
    assert check.faults == ()
    assert check.is_good


def test_a_regression_of_scikit_learn_is_a_proxy():
    linear_model = pytest.importorskip("sklearn.linear_model")
    theta = np.random.default_rng(0).standard_normal((200, 3))
    fitted = linear_model.LinearRegression().fit(theta, j_of(theta))
    check = nq.certify(book(), fitted, budget=1500, rng=0)
    assert check.diagnosis.faults[0][0].coordinate == 1  # the square is missing


def test_results_travel(tmp_path):
    check = nq.certify(book(), FAULTS["shift"][0], budget=1200, rng=0, store=tmp_path / "store")
    again = nq.certify(book(), FAULTS["shift"][0], budget=1200, rng=0, store=tmp_path / "store")
    assert again.estimate.value == check.estimate.value
    assert again.estimate.diagnostics["n_reused"] == again.n_evaluations
    data = json.loads(check.to_json())
    assert data["faults"][0][0]["kind"] == "shift"
    assert len(data["worst"]) == 10
    assert "verdict" in check._repr_html_()
    assert "Shift" in str(check)
    assert check.n_evaluations <= 1200
    page = check.save(tmp_path / "check.html").read_text(encoding="utf-8")
    assert "Verdict" in page
    assert "where the proxy is worst" in page
    frame = check.to_frame()
    assert {"theta[0]", "predicted", "observed", "std_error", "weight"} <= {*frame.columns}


def test_figures_have_both_panels():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from nestquad.plots import new_axes

    check = nq.certify(book(), FAULTS["shift"][0], budget=1200, rng=0)
    _, axes = new_axes(8, 3, columns=2)
    left, right = check.plot(axes)
    assert "predicted" in left.get_xlabel()
    assert "observed" in right.get_ylabel()


def test_several_outputs_are_checked_each():
    def two(x, theta):
        return np.stack([theta[..., 0] + x[..., 0], theta[..., 0] ** 2 + x[..., 0]], axis=-1)

    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), two)
    check = nq.certify(
        problem,
        lambda t: np.stack([t[:, 0], t[:, 0] ** 2 + 0.5], axis=1),
        budget=1200,
        rng=0,
    )
    assert check.diagnosis.faults[0] == ()
    assert check.diagnosis.faults[1][0].kind == "shift"
    assert "Output 2" in check.verdict
    away = np.abs(check.bias.value - np.array([0.0, 0.5]))
    assert (away <= 4.0 * np.asarray(check.bias.std_error) + 1e-9).all()
    assert away.max() < 0.05


@pytest.mark.parametrize(
    ("proxy", "message"),
    [
        (lambda t: 1.0, "shape"),
        (lambda t: t[:3, 0], "shape"),
        (lambda t: np.full(len(t), np.nan), "below 1e"),
        (lambda t: np.full(len(t), 1e200), "below 1e"),
        (lambda t: t[:, 7], "IndexError"),
        (lambda t: ["a"] * len(t), "returned"),
        (3.0, "predict"),
        (object(), "predict"),
        (lambda t: np.zeros((len(t), 2)), "one for each output"),
    ],
)
def test_wrong_proxies_are_refused_with_reasons(proxy, message):
    with pytest.raises(nq.InputError, match=message) as caught:
        nq.certify(linear(), proxy, budget=600, rng=0)
    assert "proxy" in str(caught.value)


def test_other_arguments_are_refused_with_reasons():
    def proxy(theta):
        return theta[:, 0]

    with pytest.raises(nq.InputError, match="control"):
        nq.certify(linear(), proxy, budget=600, control=3)
    with pytest.raises(nq.InputError, match=r"no value.*domain of f. Bound the proxy"):
        nq.certify(linear(np.log), proxy, budget=600)
    with pytest.raises(nq.InputError, match="512"):
        nq.certify(linear(), proxy, budget=100)
    sampled = nq.Sampler(lambda n, rng: rng.standard_normal((n, 1)), dim=1)
    with pytest.raises(nq.InputError, match="Empirical"):
        nq.certify(nq.NestedExpectation(sampled, nq.Normal(), g), proxy, budget=600)


def test_x_that_can_only_be_sampled_need_no_control():
    inner = nq.Sampler(lambda n, rng: rng.standard_normal((n, 1)), dim=1)
    problem = nq.NestedExpectation(nq.Normal(), inner, g, excess)
    check = nq.certify(problem, lambda t: t[:, 0], budget=1200, rng=0)
    assert abs(check.estimate.value - EXACT) <= 2.0 * check.estimate.half_width
    assert any("no control variate" in note for note in check.notes)


@pytest.mark.parametrize("kind", ["scenario", "loss"])
def test_events_that_the_proxy_misses(kind):
    """Either 30 in .26 % of scenarios, or 1,000 in .05 % of losses given each."""
    rate, size = (norm.sf(2.8), 30.0) if kind == "scenario" else (5e-4, 1e3)
    limit = norm.isf(rate)

    def rare(x, theta):
        at = theta[..., 1] if kind == "scenario" else x[..., 1]
        return theta[..., 0] + x[..., 0] + size * (at > limit)

    problem = nq.NestedExpectation(nq.Normal(np.zeros(2)), nq.Normal(np.zeros(2)), rare)
    checks = [nq.certify(problem, lambda t: t[:, 0], budget=2000, rng=seed) for seed in (0, 2, 4)]
    for check in checks:
        held = abs(check.estimate.value - rate * size) <= check.estimate.half_width
        assert held or kind == "loss"  # nobody has met what no evaluation has shown
        assert not (check.is_good and held)
        assert "may have been met by no draw" in check.verdict


def test_good_takes_scenarios_enough():
    few, many = (nq.certify(linear(), lambda t: t[:, 0], budget=n, rng=0) for n in (512, 2000))
    assert many.is_good
    assert many.diagnosis.unmet < 0.01 < few.diagnosis.unmet
    assert not few.is_good


def test_a_rare_event_without_evidence_is_not_good():
    """P(J > 4) = 3e-5: no draw shows a change of f."""
    check = nq.certify(linear(lambda j: 1.0 * (j > 4.0)), lambda t: t[:, 0], budget=2000, rng=0)
    assert not check.is_good
    assert "events" in check.verdict
    assert check.estimate.half_width >= ndtr(-4.0)
