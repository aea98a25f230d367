"""Enumeration, time, bounds, hard coordinates, trials and draws of earlier analyses."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import expit, ndtr, ndtri, xlogy
from scipy.stats import binom, norm, poisson
from test_design_gain import line, line_mean

import nestquad as nq
from nestquad import design
from nestquad.cli import main
from nestquad.clock import TimeSplit, use_clock


def coin(n):
    uniform = nq.Uniform(0, 1)
    return design.Experiment(
        uniform,
        lambda y, p, d: binom.logpmf(y, d, p)[..., 0],
        lambda p, u, d: binom.ppf(u, d, p),
        uniform,
    )


def coin_gain(n):
    p, w = np.polynomial.legendre.leggauss(200)
    table = binom.pmf(np.arange(n + 1), n, (p[:, None] + 1) / 2)
    mean = (w / 2) @ table
    return float((w / 2) @ xlogy(table, table).sum(axis=1) - xlogy(mean, mean).sum())


def test_counts_are_enumerated():
    est = design.eig(coin(5), 5, budget=4000, rng=1)
    assert est.method == "enumeration"
    assert abs(est.value - coin_gain(5)) <= est.half_width < 0.01
    assert est.n_evaluations <= 4000
    tight = design.eig(coin(5), 5, tol=1e-4, rng=1)
    assert tight.status == "converged"
    assert abs(tight.value - coin_gain(5)) <= 1e-4


def test_a_support_is_checked():
    def tosses(rows):
        return design.Experiment(
            nq.Uniform(0, 1),
            lambda y, p, d: np.log(np.where(y > 0, p, 1 - p))[..., 0],
            lambda p, u, d: np.where(u < p, 1.5, -1.5),
            nq.Uniform(0, 1),
            support=rows,
        )

    est = design.eig(tosses([[1.5], [-1.5]]), None, budget=2000, rng=1)
    assert est.method == "enumeration"
    assert abs(est.value - coin_gain(1)) <= est.half_width < 0.01
    with pytest.raises(nq.InputError, match="support"):
        design.eig(tosses([[1.5]]), None, budget=2000, rng=1)


def test_a_clock_splits_the_time_by_cost():
    now = [0.0]
    with use_clock(lambda: now[0]):
        schedule = TimeSplit(10.0)
        with schedule.measure("simulation", 100):
            now[0] += 0.5
        assert schedule.affordable("simulation", 10**6) == 500  # a quarter of 10 s at 5 ms
        assert schedule.affordable("simulation", 50) == 50
        assert schedule.left == pytest.approx(9.5)
        assert schedule.room_for(0.25)(1.9)
        assert not schedule.room_for(0.25)(2.1)
    assert TimeSplit(None).affordable("simulation", 7) == 7


def test_a_bound_has_a_one_sided_interval():
    est = design.eig(line(log_prob=None), 1.0, rng=1, simulations=4096)
    low, high = est.interval()
    assert est.value - est.half_width < low < est.value
    assert high == np.inf
    assert "one-sided" in est.summary


@pytest.mark.parametrize(
    ("curve", "inverse", "log_slope"),
    [
        (np.sinh, np.arcsinh, lambda v: np.log(np.cosh(v))),
        (lambda v: v**3, np.cbrt, lambda v: np.log(3.0 * v * v + 1e-300)),
        (lambda v: np.exp(2.0 * v), lambda y: 0.5 * np.log(y), lambda v: np.log(2.0) + 2.0 * v),
    ],
)
def test_another_coordinate_of_the_data_is_found(curve, inverse, log_slope):
    # The gain does not depend on the scale of the data. On the scale given, the proposal misses
    # half of the posteriors or more.
    noise, x = 0.5, np.random.default_rng(1).normal(size=(6, 6))

    def mean(theta):
        return np.einsum("ij,...j->...i", x, theta)

    def log_prob(y, theta, d):
        v = inverse(y)
        return (norm.logpdf(v, mean(theta), noise) - log_slope(v)).sum(axis=-1)

    experiment = design.Experiment(
        nq.Normal(np.zeros(6)),
        log_prob,
        lambda theta, e, d: curve(mean(theta) + noise * e),
        nq.Normal(np.zeros(6)),
    )
    exact = 0.5 * np.linalg.slogdet(np.eye(6) + x @ x.T / noise**2)[1]
    est = design.eig(experiment, None, budget=3000, rng=1, simulations=16_384)
    assert abs(est.value - exact) <= est.half_width < 0.2
    assert est.diagnostics["missed"] < 0.2


def test_missed_posteriors_are_never_done():
    times, sd = np.linspace(0.3, 4.0, 8), 0.05
    waves = design.Experiment(
        nq.Normal(6.0, 3.0),
        lambda y, theta, d: norm.logpdf(y, np.sin(theta * d), sd).sum(axis=-1),
        lambda theta, e, d: np.sin(theta * d) + sd * e,
        nq.Normal(np.zeros(8)),
    )
    est = design.eig(waves, times, budget=1000, simulations=2048, rng=1)
    assert est.diagnostics["missed"] > 0.2
    assert est.status == "unreliable"
    # Where the proposal misses them, a grid with fewer data is better than more draws.
    est = design.eig(waves, times, tol=0.1, budget=6_000_000, rng=1)
    theta, rng = np.linspace(-12.0, 24.0, 9001), np.random.default_rng(1)
    prior = norm.logpdf(theta, 6.0, 3.0) + np.log(theta[1] - theta[0])
    wave, gains = np.sin(theta[:, None] * times), []
    for _ in range(40):
        y = np.sin(rng.normal(6.0, 3.0, (100, 1)) * times) + sd * rng.standard_normal((100, 8))
        square = (y**2).sum(1)[:, None] - 2.0 * y @ wave.T + (wave**2).sum(1)
        logs = prior - 0.5 * square / sd**2
        evidence = np.logaddexp.reduce(logs, axis=1)
        gains.append((np.exp(logs - evidence[:, None]) * (logs - prior)).sum(axis=1) - evidence)
    exact = np.concatenate(gains)
    assert est.method == "grid"
    assert abs(est.value - exact.mean()) <= est.half_width + 3 * exact.std() / np.sqrt(4000)
    assert est.half_width < 0.1


def test_a_simulator_that_ignores_its_noise_is_noticed():
    deaf = line(simulate=lambda theta, e, d: line_mean(theta, d))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        est = design.eig(deaf, 1.0, budget=600, simulations=1024, rng=1)
    assert any("does it use e" in text for text in est.warnings)
    assert shown


def test_an_unmet_tolerance_names_what_limits_it():
    with pytest.warns(nq.NestquadWarning, match="raise simulations="):
        est = design.eig(
            line(
                log_prob=lambda y, t, d: line().log_prob(y, np.sin(t), d),
                simulate=lambda t, e, d: line().simulate(np.sin(t), e, d),
            ),
            1.0,
            tol=1e-6,
            rng=1,
            simulations=2048,
        )
    assert est.status == "limit"


def test_a_decision_has_a_narrow_interval():
    est = design.decision_value(
        line(),
        1.0,
        lambda t: np.stack([t.sum(axis=-1), np.zeros(t.shape[:-1])], axis=-1),
        budget=5000,
        rng=1,
    )
    assert abs(est.value - np.sqrt(4 / 2.25 / (2 * np.pi))) <= 1.5 * est.half_width
    assert est.half_width < 0.0015


def test_targets_of_a_prior_of_samples():
    samples = np.random.default_rng(1).standard_normal((4000, 2))
    with pytest.warns(nq.NestquadWarning, match="copula"):
        est = design.eig(line(prior=samples, target=[1]), 1.0, budget=2000, rng=1, simulations=8192)
    exact = 0.5 * np.log(2.25 / 1.25)
    assert abs(est.value - exact) < 0.05


def normal_trial(n):
    """An effect with prior N(0.3, 0.2²), estimated with standard error 1/√n."""
    experiment = design.Experiment(
        prior=nq.Normal(0.3, 0.2),
        log_prob=lambda y, theta, d: norm.logpdf(y, theta, 1 / np.sqrt(d))[..., 0],
        simulate=lambda theta, e, d: theta + e / np.sqrt(d),
        noise=nq.Normal(),
    )
    return experiment, n


def test_assurance_has_its_closed_form():
    for n in (50, 400):
        spread = np.sqrt(0.2**2 + 1 / n)
        by_test = design.assurance(
            *normal_trial(n), success=lambda y, n=n: y[:, 0] > 1.96 / np.sqrt(n), rng=1
        )
        exact = ndtr((0.3 - 1.96 / np.sqrt(n)) / spread)
        assert abs(by_test.value - exact) <= 1.5 * by_test.half_width < 0.01
        # P(θ > 0 | y) > 0.975 where the posterior mean exceeds 1.96 posterior deviations.
        by_claim = design.assurance(
            *normal_trial(n), claim=lambda theta: theta[..., 0] > 0, budget=40_000, rng=1
        )
        precision = 25.0 + n
        least = (ndtri(0.975) * np.sqrt(precision) - 7.5) / n
        exact = ndtr((0.3 - least) / spread)
        assert abs(by_claim.value - exact) <= 1.5 * by_claim.half_width < 0.1
    with pytest.raises(nq.InputError, match="both or neither"):
        design.assurance(*normal_trial(50))


def test_the_sample_size_has_its_closed_form():
    # Gain ½ log(1 + n/25) reaches one nat at n = 25 (e² − 1).
    found = design.sample_size(normal_trial, 1.0, (10, 1000), budget=1000, simulations=4096, rng=1)
    exact = 25 * (np.exp(2.0) - 1.0)
    assert found.low <= found.n <= found.high
    assert abs(found.n - exact) / exact < 0.05
    assert "reaches 1" in str(found)
    with pytest.raises(nq.InputError, match="target"):
        design.sample_size(normal_trial, 9.0, (10, 1000), budget=600, simulations=2048, rng=1)


def test_a_robust_design_has_the_least_largest_regret():
    sure = nq.Normal(np.zeros(2), np.array([1.0, 0.1]))
    found = design.compare_priors(
        line(),
        [0.0, 1.0, 2.0],
        {"wide": nq.Normal(np.zeros(2)), "sure": sure},
        budget=3000,
        simulations=4096,
        rng=1,
    )
    assert found.values.shape == (2, 3)
    assert found.best == 2
    assert "robust design" in str(found)


def test_draws_of_arviz_keep_their_labels():
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(1)
    idata = arviz.from_dict(
        {"a": rng.normal(size=(2, 400)), "b": rng.normal(size=(2, 400, 2))},
        coords={"arm": ["old", "new"]},
        dims={"b": ["arm"]},
    )
    fields = {
        "log_prob": lambda y, theta, d: norm.logpdf(y, theta[..., :1], 0.5)[..., 0],
        "simulate": lambda theta, e, d: theta[..., :1] + 0.5 * e,
        "noise": nq.Normal(),
    }
    experiment = design.from_inference_data(idata, **fields)
    assert experiment.parameters == ("a", "b[arm=old]", "b[arm=new]")
    assert experiment.n_parameters == 3
    est = design.eig(experiment, None, budget=1000, simulations=4096, rng=1)
    assert abs(est.value - 0.5 * np.log(5.0)) < 0.1
    sequence = design.Sequential(experiment, rng=1)
    sequence.tell(None, [1.0])
    law = sequence.posterior
    assert law.names == experiment.parameters
    assert abs(law.mean()[0] - 0.8) < 0.1
    assert abs(law.std()[0] - np.sqrt(0.2)) < 0.05
    assert abs(law.quantile(0.5)[0] - 0.8) < 0.1
    assert law.draws(10, rng=1).shape == (10, 3)
    with pytest.raises(nq.InputError, match="var_names"):
        design.from_inference_data(idata, var_names="c", **fields)


def test_a_data_tree_is_taken():
    xarray = pytest.importorskip("xarray")
    draws = np.random.default_rng(1).normal(size=(2, 300))
    data = xarray.Dataset({"a": (("chain", "draw"), draws)})
    tree = xarray.DataTree.from_dict({"posterior": data})
    experiment = design.from_inference_data(
        tree, simulate=lambda theta, e, d: theta + e, noise=nq.Normal()
    )
    assert experiment.parameters == ("a",)


def test_a_blank_cell_is_named(tmp_path, capsys):
    file = tmp_path / "trial.py"
    file.write_text(
        "import nestquad as nq\nfrom nestquad import design\n"
        "experiment = design.Experiment(nq.Normal(), simulate=lambda t, e, d: d * t + e, "
        "noise=nq.Normal())\n"
    )
    table = tmp_path / "designs.csv"
    table.write_text("name,dose\nlow,1\nhigh,\n")
    assert main(["design", f"{file}:experiment", "--designs", str(table)]) == 2
    assert "row 2, column 'dose'" in capsys.readouterr().err


def test_differences_of_neighbors_are_well_known():
    plain, designs = line(), np.linspace(0.5, 1.4, 10)
    curved = line(
        log_prob=lambda y, theta, d: plain.log_prob(y, np.sin(theta), d),
        simulate=lambda theta, e, d: plain.simulate(np.sin(theta), e, d),
    )
    found = design.compare(curved, designs[:5], budget=20_000, rng=1, simulations=16_384)
    bars = [float(est.std_error) for est in found.estimates]
    ratios = [found.difference(i, i + 1).std_error / bars[i] for i in range(4)]
    assert np.median(ratios) <= 0.3


def doses(constants, n=10):
    """Binomial responses at two doses; intercept and slope are unknown."""

    def log_prob(y, theta, d):
        p = expit(theta[..., :1] + theta[..., 1:] * d)
        if constants:
            return binom.logpmf(y, n, p).sum(axis=-1)
        return (y * np.log(p) + (n - y) * np.log1p(-p)).sum(axis=-1)

    def simulate(theta, u, d):
        return binom.ppf(u, n, expit(theta[..., :1] + theta[..., 1:] * d))

    uniform = nq.Uniform(np.zeros(2), 1.0)
    return design.Experiment(nq.Normal(np.zeros(2)), log_prob, simulate, uniform)


def doses_gain(d, n=10):
    z, w = np.polynomial.hermite_e.hermegauss(64)
    theta, weight = np.stack(np.meshgrid(z, z), -1).reshape(-1, 1, 2), np.outer(w, w).ravel()
    p = expit(theta[..., 0] + theta[..., 1] * d)
    single = binom.pmf(np.arange(n + 1)[:, None, None], n, p)
    table = (single[:, None, :, 0] * single[None, :, :, 1]).reshape((n + 1) ** 2, -1)
    weight = weight / weight.sum()
    mass = table @ weight
    return float((xlogy(table, table) @ weight).sum() - xlogy(mass, mass).sum())


@pytest.mark.parametrize("constants", [True, False])
def test_independent_counts_are_enumerated_by_single_observations(constants):
    d = np.array([-1.0, 1.5])
    est = design.eig(doses(constants), d, budget=100_000, rng=1)
    assert est.method == "enumeration"
    assert abs(est.value - doses_gain(d)) < 1e-6
    assert est.n_evaluations < 11**2 * 500


def test_a_search_by_sums_ends_at_the_best_design():
    best = design.optimize(doses(False), [(-4.0, 4.0)] * 2, budget=2_000_000, rng=1)
    grid = np.linspace(-4.0, 4.0, 21)
    top = max(doses_gain(np.array([a, b])) for a in grid for b in grid if a <= b)
    lost = top - doses_gain(best.design)
    assert lost <= min(1e-4, best.regret)
    assert best.n_evaluations <= 2_000_000


@pytest.mark.parametrize("period", [1.0, 4.0, 2 * np.pi / 1.5])
def test_one_parameter_is_integrated_on_a_grid(period):
    # Spacings of 1.5 and .75 hide a period of 1.5.
    sd = 0.3
    experiment = design.Experiment(
        nq.Normal(),
        lambda y, theta, d: norm.logpdf(y, np.sin(d * theta), sd)[..., 0],
        lambda theta, e, d: np.sin(d * theta) + sd * e,
        nq.Normal(),
    )
    est = design.eig(experiment, period, budget=3_000_000, rng=1)
    z, y = np.linspace(-8, 8, 2001), np.linspace(-3.5, 3.5, 1401)
    prior = norm.pdf(z) / norm.pdf(z).sum()
    density = norm.pdf(y[:, None], np.sin(period * z), sd) @ prior
    exact = -xlogy(density, density).sum() * (y[1] - y[0]) - 0.5 * np.log(2 * np.pi * np.e * sd**2)
    assert est.method == "grid"
    assert abs(est.value - exact) <= 1.5 * est.half_width < 0.003


@pytest.mark.parametrize("budget", [20_000, 200_000])
def test_counts_beyond_the_simulated_ones_are_not_lost(budget):
    # A Poisson rate with a log-normal prior: counts of a thousandth of the prior are far out.
    z, y = np.linspace(-9, 9, 2001), np.arange(1500)
    weight = norm.pdf(z) / norm.pdf(z).sum()
    table = poisson.pmf(y[:, None], 5.0 * np.exp(1.0 + 0.7 * z))
    mass = table @ weight
    exact = float((xlogy(table, table) @ weight).sum() - xlogy(mass, mass).sum())
    experiment = design.Experiment(
        nq.LogNormal(1.0, 0.7),
        lambda y, theta, d: poisson.logpmf(y, theta * d)[..., 0],
        lambda theta, u, d: poisson.ppf(u, theta * d),
        nq.Uniform(0, 1),
    )
    est = design.eig(experiment, 5.0, budget=budget, rng=11)
    assert abs(est.value - exact) <= est.half_width < 0.01
