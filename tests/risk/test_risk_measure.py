"""risk.measure against closed forms: normal books, options, given scenarios, exposures."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, norm, poisson, qmc

import nestquad as nq
from nestquad import risk
from nestquad.estimate import solved
from nestquad.points import Stream
from nestquad.risk._method import SamplingSettings, TailSampling
from nestquad.risk._targets import Targets
from studies import risk as cases


def _linear(dim: int = 2, noise: float = 1.0, several: bool = False) -> nq.NestedExpectation:
    """J = Σ (k + 1) θ_k, a normal variable."""
    sizes = np.arange(1.0, dim + 1.0)

    def g(x, theta):
        parts = sizes * theta + noise * x
        return parts if several else parts.sum(axis=-1)

    law = nq.Normal(np.zeros(dim), 1.0)
    return nq.NestedExpectation(law, law, g, name="linear")


def _holds(estimate: nq.Estimate, exact: float, times: float = 1.5) -> bool:
    return bool(
        abs(estimate.value - exact) <= times * 1.96 * estimate.std_error + 1e-3 * abs(exact)
    )


def test_normal_book():
    sd = np.sqrt(5.0)
    report = risk.measure(_linear(), var=(0.95, 0.99), es=0.975, exceed=4.0, budget=1000, rng=0)
    assert report.var[0.99].value == pytest.approx(sd * norm.ppf(0.99), rel=5e-3)
    assert report.var[0.95].value == pytest.approx(sd * norm.ppf(0.95), rel=5e-3)
    assert report.es[0.975].value == pytest.approx(sd * norm.pdf(norm.ppf(0.975)) / 0.025, rel=5e-3)
    assert report.exceed[4.0].value == pytest.approx(norm.sf(4.0 / sd), rel=0.03)
    assert report.n_evaluations <= 1000
    law = report.distribution
    assert law.quantile(0.5) == pytest.approx(0.0, abs=0.03)
    assert law.cdf(law.quantile(0.9)) == pytest.approx(0.9, abs=1e-6)
    assert law.sample(20_000, rng=0).std() == pytest.approx(sd, rel=0.03)


def _call(z_dim: int = 1) -> tuple[nq.NestedExpectation, np.ndarray]:
    """A short call, revalued after a tenth of a year: a kinked payoff, J by Black–Scholes."""
    s, h, left, k = 0.3, 0.1, 0.4, 100.0

    def spot(z):
        return 100.0 * np.exp(s * np.sqrt(h) * z - s * s * h / 2)

    def g(x, theta):
        end = spot(theta[..., 0]) * np.exp(s * np.sqrt(left) * x[..., 0] - s * s * left / 2)
        return np.maximum(end - k, 0.0)

    z = norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    d = (np.log(spot(z) / k) + s * s * left / 2) / (s * np.sqrt(left))
    return nq.NestedExpectation(nq.Normal(), nq.Normal(), g, name="call"), (
        spot(z) * ndtr(d) - k * ndtr(d - s * np.sqrt(left))
    )


def test_call_option_on_a_line():
    problem, j = _call()
    report = risk.measure(problem, exceed=np.quantile(j, 0.99), budget=1000, rng=0)
    assert report.var[0.99].value == pytest.approx(np.quantile(j, 0.99), rel=0.02)
    assert _holds(report.var[0.99], float(np.quantile(j, 0.99)))
    (probability,) = report.exceed.values()
    assert probability.value == pytest.approx(0.01, rel=0.1)


def test_uniform_and_normal_drivers_agree():
    problem = _linear(3)

    def written(base):
        to = norm.ppf if base == "uniform" else (lambda v: v)
        return nq.Transport(to, dim=3, out_dim=3, base=base)

    exact = np.sqrt(14.0) * norm.ppf(0.99)
    for base in ("uniform", "normal"):
        other = nq.NestedExpectation(written(base), written(base), problem.g)
        assert risk.measure(other, budget=2000, rng=0).var[0.99].value == pytest.approx(
            exact, rel=0.01
        )


@pytest.fixture(scope="module")
def book_of_60():
    """60 calls and puts on five correlated assets: g, log-prices, J at dense scenarios."""
    rng, n, near, far = np.random.default_rng(0), 5, 0.2, 0.7
    vol, where = rng.uniform(0.15, 0.5, n), rng.integers(n, size=60)
    size, strike, call = rng.normal(0.3, 1.0, 60), rng.uniform(80, 120, 60), rng.random(60) < 0.5
    root = np.linalg.cholesky(0.4 + 0.6 * np.eye(n))

    def g(x, theta):
        away = np.where(call, 1.0, -1.0) * (x[..., where] - strike)
        return -np.maximum(away, 0.0) @ size

    def prices(start, time, normals):
        """Prices after some time, at normals (…, n, 5) for starts (…, 5)."""
        mean = np.log(start) - vol**2 * time / 2
        return np.exp(mean[..., None, :] + np.sqrt(time) * vol * (normals @ root.T))

    z = norm.ppf(qmc.Sobol(n, rng=0).random_base2(16))
    spot, sd = prices(np.full(n, 100.0), near, z)[:, where], np.sqrt(far) * vol[where]
    d = np.log(spot / strike) / sd + sd / 2
    values = spot * ndtr(d) - strike * ndtr(d - sd)
    values = np.where(call, values, values - spot + strike)
    return g, prices, (near, far), np.sort(-values @ size)


@pytest.mark.parametrize("base", ["uniform", "normal"])
def test_drivers_of_a_book_may_be_uniform_or_normal(book_of_60, base):
    g, prices, (near, far), j = book_of_60
    to = norm.ppf if base == "uniform" else (lambda v: v)
    outer = nq.Transport(
        lambda v: prices(np.full(5, 100.0), near, to(v)), dim=5, out_dim=5, base=base
    )

    def inner(theta):
        return nq.Transport(
            lambda v: prices(theta, far, to(v)), dim=5, out_dim=5, base=base, batch=len(theta)
        )

    c = float(np.quantile(j, 0.99))
    report = risk.measure(nq.NestedExpectation(outer, inner, g), exceed=c, budget=10_000, rng=0)
    tail = j[j > np.quantile(j, 0.975)].mean()
    for found, exact, limit in (
        (report.var[0.99], c, 0.02),
        (report.es[0.975], tail, 0.02),
        (report.exceed[c], 0.01, 0.2),  # the RMS error of five seeds is 9 %
    ):
        assert found.value == pytest.approx(exact, rel=limit)
        assert found.std_error < 1.5 * limit * abs(exact)
        assert _holds(found, exact)


def test_inner_law_that_can_only_be_sampled():
    law = nq.Normal(np.zeros(2), 1.0)

    def inner(theta):
        return nq.Sampler(
            lambda n, rng: rng.standard_normal((len(theta), n, 2)), dim=2, batch=len(theta)
        )

    problem = nq.NestedExpectation(law, inner, _linear().g)
    found = risk.measure(problem, budget=4000, rng=0).var[0.99]
    assert found.value == pytest.approx(np.sqrt(5.0) * norm.ppf(0.99), rel=0.06)
    assert _holds(found, float(np.sqrt(5.0) * norm.ppf(0.99)))


def test_given_scenarios_with_weights():
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((400, 2))
    weights = rng.uniform(size=400)
    problem = nq.NestedExpectation(
        nq.Empirical(theta, weights), nq.Normal(np.zeros(2), 1.0), _linear().g
    )
    j = theta @ [1.0, 2.0]
    order = np.argsort(j)
    exact = j[order][np.searchsorted(np.cumsum(weights[order]) / weights.sum(), 0.95)]
    found = risk.measure(problem, var=0.95, budget=3000, rng=0).var[0.95]
    assert found.value == pytest.approx(exact, abs=0.15)


def test_scenarios_that_can_only_be_sampled():
    outer = nq.Sampler(lambda n, rng: rng.standard_normal((n, 2)), dim=2)
    problem = nq.NestedExpectation(outer, nq.Normal(np.zeros(2), 1.0), _linear().g)
    found = risk.measure(problem, budget=1000, rng=0).var[0.99]
    assert found.value == pytest.approx(np.sqrt(5.0) * norm.ppf(0.99), rel=0.03)
    assert _holds(found, float(np.sqrt(5.0) * norm.ppf(0.99)))


def test_contributions_add_up_and_match_euler():
    report = risk.measure(_linear(3, several=True), budget=2000, rng=0, outputs=["a", "b", "c"])
    sd = np.sqrt(14.0)
    for found, whole, factor in (
        (report.contributions.var[0.99], report.var[0.99], norm.ppf(0.99)),
        (report.contributions.es[0.975], report.es[0.975], norm.pdf(norm.ppf(0.975)) / 0.025),
    ):
        assert found.value.sum() == pytest.approx(whole.value, rel=1e-9)
        exact = factor * np.array([1.0, 4.0, 9.0]) / sd
        assert np.abs(found.value - exact).max() < 0.15
        assert (np.abs(found.value - exact) <= 4 * found.std_error + 0.02).all()
    assert report.contributions.names == ("a", "b", "c")


def test_exposure_of_a_forward():
    dates = np.array([0.5, 1.0, 2.0])
    sd = 0.2 * np.sqrt(dates)

    def g(x, theta):
        return 100.0 * np.exp(sd * theta - sd**2 / 2 + 0.1 * x - 0.005) - 100.0

    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), g, name="forward")
    report = risk.measure(
        problem, exposure=True, outputs=dates, var=0.95, default_curve=0.02, budget=2000, rng=0
    )
    found = report.exposure
    call = 100.0 * (ndtr(sd / 2) - ndtr(-sd / 2))
    assert found.ee.value == pytest.approx(call, rel=5e-3)
    assert found.ene.value == pytest.approx(call, rel=5e-3)
    pfe = 100.0 * np.exp(sd * norm.ppf(0.95) - sd**2 / 2) - 100.0
    assert found.pfe[0.95].value == pytest.approx(pfe, rel=5e-3)
    defaults = np.diff(-np.expm1(-0.02 * dates), prepend=0.0)
    assert found.cva.value == pytest.approx(0.6 * call @ defaults, rel=5e-3)
    assert found.epe.value == pytest.approx(call @ np.diff(dates, prepend=0.0) / 2.0, rel=5e-3)
    # What is asked for is printed, and in the JSON.
    values = {row["measure"]: row["value"] for row in json.loads(report.to_json())["measures"]}
    assert values["CVA"] == report.exposure.cva.value
    assert values["EPE"] == report.exposure.epe.value
    assert "CVA" in str(report)


def test_no_hit_is_a_bound_and_not_zero():
    report = risk.measure(_linear(), exceed=100.0, budget=1000, rng=0)
    found = report.exceed[100.0]
    low, high = found.interval()
    assert low <= 0.0 < 1.5 / 1000 < high < 10 / 1000
    tight = risk.measure(_linear(), var=(), es=(), exceed=100.0, rtol=0.1, budget=3000, rng=0)
    assert tight.status != "converged"


def test_constant_loss_has_no_finite_bar():
    law = nq.Normal()
    problem = nq.NestedExpectation(law, law, lambda x, theta: 0.0 * (x + theta)[..., 0])
    report = risk.measure(problem, budget=400, rng=0)
    assert not np.isfinite(report.var[0.99].std_error)
    assert any("same value" in note for note in report.notes)


def test_tolerance():
    problem, j = _call()
    report = risk.measure(problem, var=0.99, es=(), rtol=0.03, rng=0)
    assert report.status == "converged"
    assert report.var[0.99].value == pytest.approx(np.quantile(j, 0.99), rel=0.03)


def test_same_seed_same_bits_whatever_the_executor(tmp_path):
    problem = _linear()
    first = risk.measure(problem, budget=300, rng=5)
    with ThreadPoolExecutor(2) as pool:
        second = risk.measure(problem, budget=300, rng=5, executor=pool)
    stored = risk.measure(problem, budget=300, rng=5, store=tmp_path / "s")
    again = risk.measure(problem, budget=300, rng=5, store=tmp_path / "s")
    for other in (second, stored, again):
        assert np.array_equal(first.estimate.value, other.estimate.value)
        assert np.array_equal(first.estimate.std_error, other.estimate.std_error)


@pytest.mark.parametrize("power", [1, 2])
def test_bars_hold_where_the_model_is_all_but_exact(power):
    """J is a polynomial of θ: bars are of the size of the nodes of its law, and not smaller."""
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: (theta**power + 0.1 * x)[..., 0]
    )
    report = risk.measure(problem, budget=1000, rng=0)
    law = norm() if power == 1 else chi2(1)
    exact = law.ppf(0.99)
    tail = law.expect(lambda j: j, lb=law.ppf(0.975), conditional=True)
    for found, value in ((report.var[0.99], exact), (report.es[0.975], tail)):
        assert abs(found.value - value) <= 3 * found.std_error
        assert found.std_error < 2e-3 * value


def test_pairs_and_replicates_see_the_same_model():
    """With the tent both v and 1 − v belong to a uniform, and a process differs there."""
    problem = cases.sketch("insurer", 8).problem
    method = TailSampling(Targets.of(0.99, (), ()))
    nothing = dict.fromkeys(("tol", "rtol", "executor", "store", "max_seconds"))
    _, turn = solved(
        problem, budget=6800, method=method, rng=0, progress=False, retries=0, **nothing
    )
    model = turn.state.models[0]
    assert model.periodization == "tent"
    dense = next(model.replicates(1, 10, Stream.from_rng(0)))
    found, size = model.mean(dense.uniform), dense.j.std()
    np.testing.assert_allclose(found, dense.j, atol=1e-6 * size)
    other = replace(model, branches=False)
    assert np.std(other.mean(dense.uniform) - dense.j) > 1e-4 * size


def test_what_a_lattice_cannot_afford_is_said(monkeypatch):
    monkeypatch.setattr("nestquad.risk._method.SETTINGS", SamplingSettings(numbers=1 << 19))
    problem, _ = _call()
    report = risk.measure(problem, budget=4000, rng=0)
    assert report.n_evaluations < 4000
    assert any("not spent in full" in note for note in report.notes)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"var": 1.5}, "var"),
        ({"es": "high"}, "es"),
        ({"var": (), "es": ()}, "var, es, exceed"),
        ({"budget": 20}, "budget"),
        ({"default_curve": 0.02}, "default_curve"),
        ({"var": "0.99"}, "var"),
        ({"var": None}, "var"),
        ({"exceed": [[1.0], [1.0, 2.0]]}, "exceed"),
        ({"outputs": ["a", "a"]}, "outputs"),
        ({"outputs": "ab"}, "outputs"),
        ({"exposure": True, "es": 0.9}, "es"),
        ({"exposure": True, "exceed": 2.0}, "exceed"),
        ({"exposure": True, "default_curve": "flat"}, "default_curve"),
        ({"recovery": 40}, "recovery"),
    ],
)
def test_bad_input(options, argument):
    with pytest.raises(nq.InputError, match=argument):
        risk.measure(_linear(), **{"budget": 1000, **options})


def test_f_is_refused():
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), lambda x, theta: x, lambda j: j)
    with pytest.raises(nq.InputError, match="without"):
        risk.measure(problem, budget=1000)


def test_wrong_number_of_names_is_noticed_early():
    linear, seen = _linear(2, several=True), [0]

    def g(x, theta):
        seen[0] += x[..., 0].size
        return linear.g(x, theta)

    with pytest.raises(nq.InputError, match="outputs"):
        risk.measure(replace(linear, g=g), budget=4000, rng=0, outputs=["a"])
    assert seen[0] <= 256


def _knock(x, theta):
    return 3.0 * (theta.sum(axis=-1) > 2.8) + theta[..., 0] + 0.3 * x[..., 0]


def test_a_jump_of_j_in_the_scenario():
    problem = nq.NestedExpectation(nq.Normal(np.zeros(2)), nq.Normal(), _knock, name="knock")
    z = norm.ppf(qmc.Sobol(2, rng=0).random_base2(16))
    j = np.sort(_knock(np.zeros((len(z), 1)), z))
    report = risk.measure(problem, var=0.99, es=0.975, exceed=2.5, budget=3000, rng=0)
    for found, exact in (
        (report.var[0.99], float(np.quantile(j, 0.99))),
        (report.es[0.975], float(j[int(0.975 * len(j)) :].mean())),
        (report.exceed[2.5], float((j > 2.5).mean())),
    ):
        assert _holds(found, exact)
        assert found.std_error < 0.5 * exact
    # One mechanism for the band and for exceedances.
    _, error = report.distribution.cdf(2.5, return_std=True)
    assert error == pytest.approx(report.exceed[2.5].std_error, rel=0.5)


def test_contribution_of_an_output_that_is_known_exactly():
    """Which scenarios are in the tail depends on the other output, which is hard to learn."""

    def g(x, theta):
        other = np.maximum(theta[..., 1] * (1.0 + theta[..., 0]) + 2.0 * x[..., 0], 0.0)
        return np.stack([theta[..., 0], other], axis=-1)  # the first has no x at all

    z = norm.ppf(qmc.Sobol(2, rng=1).random_base2(18))
    m = z[:, 1] * (1.0 + z[:, 0])
    j = np.stack([z[:, 0], m * ndtr(m / 2.0) + 2.0 * norm.pdf(m / 2.0)], axis=-1)
    total = j.sum(axis=-1)
    exact = j[total > np.quantile(total, 0.95)].mean(axis=0)
    problem = nq.NestedExpectation(nq.Normal(np.zeros(2)), nq.Normal(), g)
    for seed in (0, 2):
        found = risk.measure(problem, es=0.95, budget=1000, rng=seed).contributions.es[0.95]
        assert (np.abs(found.value - exact) <= 3.0 * found.std_error).all()
        assert (found.std_error < 0.5).all()


def test_errors_of_given_scenarios_fall_with_the_budget():
    """J jumps from scenario to scenario, and no model learns it: draws at a scenario tell its J."""
    theta = np.random.default_rng(0).standard_normal((200, 2))

    def mean(theta):
        return np.sin(40.0 * theta).sum(axis=-1)

    problem = nq.NestedExpectation(
        nq.Empirical(theta), nq.Normal(), lambda x, theta: mean(theta) + 0.5 * x[..., 0]
    )
    exact, errors = np.sort(mean(theta))[189], []
    for budget in (1000, 8000):
        found = risk.measure(problem, var=0.95, es=(), budget=budget, rng=0).var[0.95]
        assert _holds(found, exact, 2.0)
        errors.append(found.std_error)
    assert errors[1] < 0.7 * errors[0]


def test_contributions_where_j_jumps_with_the_scenario():
    """Layers of storms and of floods, as many as a Poisson count in θ; J by Black's formula."""
    log, spread, noise = np.array([1.0, 2.0]), np.array([0.7, 0.6]), np.array([0.5, 0.4])
    low, width = np.array([2.0, 4.0]), np.array([25.0, 60.0])

    def size(theta):
        return theta[..., :2] * np.exp(log + spread * theta[..., 2:])

    def beyond(mean, strike):
        d = np.log(np.maximum(mean, 1e-300) / strike) / noise + noise / 2
        return mean * norm.cdf(d) - strike * norm.cdf(d - noise)

    problem = nq.NestedExpectation(
        (poisson(0.3), poisson(0.1), nq.Normal(np.zeros(2))),
        nq.Normal(np.zeros(2)),
        lambda x, theta: np.clip(size(theta) * np.exp(noise * x) - low, 0.0, width),
    )
    theta = problem.outer_law.sample(1 << 19, 1)
    mean = size(theta) * np.exp(noise**2 / 2)
    j = beyond(mean, low) - beyond(mean, low + width)
    tail = j[np.argsort(j.sum(axis=1))[int(0.975 * len(j)) :]].mean(axis=0)
    hits, errors = 0, []
    for seed in range(8):
        found = risk.measure(problem, var=(), es=0.975, budget=10_000, rng=seed).contributions
        lower, upper = found.es[0.975].interval()
        hits += ((lower <= tail) & (tail <= upper)).sum()
        errors.append(found.es[0.975].value - tail)
    # Storms are the weaker of the two lines: docs/risk.md, "Where it is weak".
    assert hits >= 12
    assert np.sqrt(np.mean(np.square(errors))) < 0.05 * tail.sum()


def test_contributions_of_given_scenarios():
    """Contributions to shortfall are means of J_k over the worst tenth of 200 scenarios."""

    def mean(theta):
        parts = [theta[..., 0] + 0.3 * theta[..., 1] ** 2, np.sin(8.0 * theta[..., 1])]
        return np.stack(parts, axis=-1)

    for seed in (0, 2):
        theta = np.random.default_rng(seed).standard_normal((200, 2))
        j = mean(theta)
        exact = j[np.argsort(j.sum(axis=1))[180:]].mean(axis=0)
        problem = nq.NestedExpectation(
            nq.Empirical(theta), nq.Normal(np.zeros(2)), lambda x, theta: mean(theta) + x
        )
        found = risk.measure(problem, es=0.9, budget=2000, rng=seed).contributions.es[0.9]
        assert (np.abs(found.value - exact) <= 2.5 * found.std_error).all()
        assert (found.std_error < 0.15).all()


def test_equal_scenarios_are_one():
    """Weights of equal θ add up: a sample with repetitions is the law that it is."""
    points, weights = np.arange(10.0)[:, None], np.arange(1.0, 11.0)
    rows = np.repeat(np.arange(10), np.arange(1, 11))
    g = _linear(1).g
    once = risk.measure(
        nq.NestedExpectation(nq.Empirical(points, weights), nq.Normal(), g), budget=600, rng=0
    )
    several = risk.measure(
        nq.NestedExpectation(nq.Empirical(points[rows]), nq.Normal(), g), budget=600, rng=0
    )
    assert once.var[0.99].value == pytest.approx(9.0, abs=0.2)
    assert several.estimate.value == pytest.approx(once.estimate.value, rel=1e-6)


def test_a_sampled_inner_law_learns_from_what_a_ridge_takes(monkeypatch):
    monkeypatch.setattr("nestquad.risk._scenarios.RIDGE_POINTS", 512)
    law = nq.Normal(np.zeros(2), 1.0)

    def inner(theta):
        return nq.Sampler(
            lambda n, rng: rng.standard_normal((len(theta), n, 2)), dim=2, batch=len(theta)
        )

    found = risk.measure(nq.NestedExpectation(law, inner, _linear().g), budget=4000, rng=0)
    assert found.n_evaluations == 4000
    assert found.estimate.n_outer == 512 + (4000 - 512) // 2  # all the rest are pairs


def test_towards_a_tolerance_a_lattice_leaves_time_for_pairs(monkeypatch):
    """Twice the points would leave half the pairs, and the run would end with a wide bar."""
    monkeypatch.setattr("nestquad.risk._method.SETTINGS", SamplingSettings(numbers=1 << 21))
    problem = cases.sketch("book5", 0).problem
    method = TailSampling(Targets.of(0.99, (), ()), patience=8.0)
    nothing = dict.fromkeys(("tol", "executor", "store", "max_seconds"))
    _, turn = solved(
        problem,
        budget=20_000,
        rtol=1e-4,
        method=method,
        rng=0,
        progress=False,
        retries=0,
        **nothing,
    )
    state = turn.state
    points = state.models[0].n_points
    assert 2 * state.n_pairs >= 0.6 * points
    assert 2 * state.n_pairs * points * 10 <= 8 << 21


@pytest.mark.parametrize("sizes", [(1e25, 1e25), (1e25, 1.0), (1e-30, 1e-30)])
def test_losses_of_any_size_are_added_up(sizes):
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(2)),
        nq.Normal(),
        lambda x, theta: np.stack(
            [s * (theta[..., i] + x[..., 0]) for i, s in enumerate(sizes)], -1
        ),
    )
    report = risk.measure(problem, var=0.99, es=0.975, exceed=sizes[0], budget=2000, rng=1)
    sd = np.hypot(*sizes)
    assert report.var[0.99].value == pytest.approx(sd * ndtri(0.99), rel=0.01)
    assert report.exceed[sizes[0]].value == pytest.approx(ndtr(-sizes[0] / sd), rel=0.02)


def test_a_tolerance_with_more_outputs_than_measures():
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(2)),
        nq.Normal(),
        lambda x, theta: np.stack([theta[..., i % 2] + x[..., 0] for i in range(3)], axis=-1),
    )
    report = risk.measure(problem, var=0.99, es=0.975, rtol=0.01, budget=4000, rng=1)
    # The sum is 2 θ₁ + θ₂ + 3 x: J is normal with variance 5.
    assert report.var[0.99].value == pytest.approx(np.sqrt(5.0) * ndtri(0.99), rel=0.01)


def _cover(x, theta):
    """A cover that pays from a trigger on: J is 0 in 84 % of all scenarios, and so is g."""
    over = theta.sum(axis=-1) / np.sqrt(3.0) - 1.01
    return np.where(over > 0, over * np.exp(0.4 * x[..., 0] - 0.08), 0.0)


def test_an_atom_of_j_that_g_shows():
    problem = nq.NestedExpectation(nq.Normal(np.zeros(3)), nq.Normal(), _cover)
    covered = []
    for seed in range(4):
        report = risk.measure(problem, var=(0.5, 0.99), exceed=(0.0, 0.5), budget=4_000, rng=seed)
        low, high = report.exceed[0.0].interval()
        assert high - low < 0.08
        assert report.var[0.5].value == 0.0
        covered += [low <= norm.sf(1.01) <= high]
        covered += [_holds(report.var[0.99], norm.ppf(0.99) - 1.01)]
        covered += [_holds(report.exceed[0.5], norm.sf(1.51))]
    assert sum(covered) >= 11


def test_draws_intervals_and_band_are_of_one_posterior():
    report = risk.measure(_linear(), var=0.95, exceed=(0.0, 3.0, 6.0), budget=500, rng=0)
    draws = report.estimate.draws
    assert draws.shape[1] == len(report.keys)
    ends = [one.interval() for one in report.exceed.values()]
    assert all(0.0 <= low <= high <= 1.0 for low, high in ends)
    assert ends[0] == pytest.approx(np.quantile(draws[:, 2], [0.025, 0.975]).tolist())
    for edge in report.distribution.band():
        assert (np.diff(edge) >= 0).all()
    assert not any("far from normal" in note for note in report.notes)


def test_without_a_limit_there_is_a_suggestion_that_exists():
    with pytest.raises(nq.InputError, match="budget=10_000, rtol=") as error:
        risk.measure(_linear(), var=0.99)
    assert "method" not in str(error.value)
