"""Information gain against closed forms, enumeration and other ways to the same number."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import xlogy
from scipy.stats import cauchy

import nestquad as nq
from nestquad import design
from studies.design import families, problems

SD = 0.5


def line_mean(theta, d):
    return theta[..., :1] + theta[..., 1:2] * d


def line_log_prob(y, theta, d):
    residual = (y - line_mean(theta, d)) / SD
    return (-0.5 * residual**2 - np.log(SD * np.sqrt(2 * np.pi))).sum(axis=-1)


def line_simulate(theta, e, d):
    return line_mean(theta, d) + SD * e


def line(**changes):
    settings = {
        "prior": nq.Normal(np.zeros(2)),
        "log_prob": line_log_prob,
        "simulate": line_simulate,
        "noise": nq.Normal(),
    }
    return design.Experiment(**{**settings, **changes})


def line_gain(d):
    return 0.5 * np.log(1 + (1 + d**2) / SD**2)


def test_a_linear_experiment_has_its_closed_form():
    est = design.eig(line(), 1.0, budget=1000, rng=0)
    assert abs(est.value - line_gain(1.0)) <= est.half_width < 0.01
    assert est.n_evaluations <= 1000
    assert est.diagnostics["components"] >= 1
    assert est.diagnostics["simulations"] > 1000
    assert 0.5 < est.diagnostics["effective_sample_size"] <= 1


@pytest.mark.parametrize("name", ["psychometric", "death", "ab_test"])
def test_counts_agree_with_enumeration(name):
    case = problems.case(name)
    est = design.eig(case.experiment, case.design, budget=4000, rng=0)
    assert abs(est.value - case.exact) <= est.half_width < 0.05
    bound, error = est.diagnostics["lower_bound"], est.diagnostics["lower_bound_error"]
    assert bound - 3 * error <= case.exact


@pytest.mark.parametrize("family", sorted(families.FAMILIES))
def test_random_families_are_covered(family):
    case = families.draw(family, 2)
    est = design.eig(case.experiment, case.design, budget=2000, rng=2)
    assert abs(est.value - case.exact) <= 1.5 * est.half_width + 3e-4


def test_a_heavy_prior_is_measured_in_its_own_coordinates():
    # Cauchy: the normal that drives θ = 235 has a posterior that is 200 times narrower than at 0.
    sd, prior = 0.3, cauchy()
    experiment = design.Experiment(
        prior=prior,
        log_prob=lambda y, t, d: -0.5 * ((y - t) / sd)[..., 0] ** 2,
        simulate=lambda t, e, d: t + sd * e,
        noise=nq.Normal(),
    )
    est = design.eig(experiment, None, budget=1000, rng=0, simulations=16_384)
    s = np.linspace(-25.0, 25.0, 20_001)
    z, w = np.polynomial.hermite_e.hermegauss(60)
    density = prior.pdf(np.sinh(s)[:, None] - sd * z) @ w / w.sum()
    exact = -(xlogy(density, density) * np.cosh(s)).sum() * (s[1] - s[0])
    exact -= 0.5 * np.log(2 * np.pi * np.e * sd**2)
    assert abs(est.value - exact) <= 1.5 * est.half_width < 0.02


def test_an_unreachable_tolerance_is_refused_early():
    calls = []

    def counted(y, theta, d):
        calls.append(np.broadcast_shapes(y.shape[:-1], theta.shape[:-1]))
        return line_log_prob(y, np.sin(theta), d)

    wavy = line(log_prob=counted, simulate=lambda t, e, d: line_simulate(np.sin(t), e, d))
    with pytest.warns(nq.NestquadWarning, match="was not met.*raise simulations="):
        est = design.eig(wavy, 1.0, tol=1e-6, rng=0, simulations=2048)
    assert est.status == "limit"
    assert est.n_evaluations < 2000
    assert len(calls) < 100


def test_low_noise_and_eleven_nats():
    case = problems.case("linear")
    est = design.eig(case.experiment, case.design, budget=1000, rng=0)
    assert case.exact > 11
    assert abs(est.value - case.exact) < 0.005


def test_nuisance_parameters_of_a_correlated_prior():
    cov = np.array([[1.0, 0.5], [0.5, 1.0]])
    experiment = line(prior=nq.Normal(np.zeros(2), cov=cov), target=1)
    est = design.eig(experiment, 1.0, budget=2000, rng=0)
    h = np.ones(2)
    exact = 0.5 * np.log((h @ cov @ h + SD**2) / (0.75 + SD**2))
    assert abs(est.value - exact) <= est.half_width < 0.02
    assert est.n_evaluations <= 2000


@pytest.mark.parametrize("size", [300, 20_000])
def test_a_prior_of_weighted_samples_is_taken_as_it_is(size):
    rng = np.random.default_rng(0)
    samples, weights = rng.uniform(0.05, 0.95, size=(size, 1)), rng.uniform(0.5, 1.5, size)
    n = 4
    experiment = design.Experiment(
        prior=(samples, weights),
        log_prob=lambda y, p, d: (y * np.log(p) + (d - y) * np.log1p(-p))[..., 0],
        simulate=lambda p, u, d: (u < p).sum(axis=-1, keepdims=True),
        noise=nq.Uniform(np.zeros(n), 1.0),
    )
    # A sequence of tosses has the gain of its count: the binomial coefficients cancel.
    est = design.eig(experiment, n, budget=4000, simulations=16384, rng=0)
    w, counts = weights / weights.sum(), np.arange(n + 1)
    logs = counts * np.log(samples) + (n - counts) * np.log1p(-samples)
    ways = np.array([1, 4, 6, 4, 1])
    evidence = w @ np.exp(logs)
    exact = (w @ (np.exp(logs) * logs)) @ ways - ways @ xlogy(evidence, evidence)
    assert abs(est.value - exact) <= est.half_width < 0.05


def test_a_tolerance_is_kept():
    case = problems.case("death")
    est = design.eig(case.experiment, case.design, tol=0.01, rng=0)
    assert est.status == "converged"
    assert est.half_width <= 0.01
    assert abs(est.value - case.exact) <= 0.01


def test_a_relative_tolerance_and_a_time():
    est = design.eig(line(), 1.0, rtol=0.01, rng=0)
    assert est.status == "converged"
    assert est.half_width <= 0.0101 * est.value
    est = design.eig(line(), 1.0, max_seconds=1.0, rng=0)
    assert abs(est.value - line_gain(1.0)) < 0.01


def test_a_simulator_alone_gets_a_lower_bound():
    case = problems.case("death")
    simulator = design.Experiment(
        prior=case.experiment.prior, simulate=case.experiment.simulate, noise=case.experiment.noise
    )
    est = design.eig(simulator, case.design, rng=0)
    assert est.status == est.method == "lower bound"
    assert "at least" in str(est)
    assert "lower bound" in est._repr_html_()
    assert est.n_evaluations == 0
    assert case.exact - 0.05 < est.value < case.exact + est.half_width


def test_a_simulator_alone_with_a_target():
    experiment = line(log_prob=None, target=[1])
    est = design.eig(experiment, 1.0, rng=0, simulations=16_384)
    exact = 0.5 * np.log((2 + SD**2) / (1 + SD**2))
    assert abs(est.value - exact) < 0.01


def test_functions_that_describe_different_experiments_are_noticed():
    wrong = line(simulate=lambda theta, e, d: line_mean(theta, d) + 2 * SD * e)
    with pytest.warns(nq.NestquadWarning, match="disagree"):
        est = design.eig(wrong, 1.0, budget=2000, rng=0)
    assert est.half_width > 0.1


def test_the_same_seed_gives_the_same_bits_whatever_the_executor():
    first = design.eig(line(), 1.0, budget=1000, rng=3, simulations=4096)
    with ThreadPoolExecutor(2) as pool:
        second = design.eig(line(), 1.0, budget=1000, rng=3, simulations=4096, executor=pool)
    assert first.value == second.value
    assert first.std_error == second.std_error


def test_torch_results_are_taken():
    torch = pytest.importorskip("torch")

    def log_prob(y, theta, d):
        mean = torch.as_tensor(line_mean(theta, d))
        normal = torch.distributions.Normal(mean, SD)
        return normal.log_prob(torch.as_tensor(np.array(y))).sum(-1)

    est = design.eig(line(log_prob=log_prob), 1.0, budget=1000, rng=0, simulations=4096)
    plain = design.eig(line(), 1.0, budget=1000, rng=0, simulations=4096)
    assert est.value == pytest.approx(plain.value, abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"simulate": None}, "simulate: got NoneType"),
        ({"noise": None}, "noise: got None"),
        ({"log_prob": 3}, "log_prob: got int"),
        ({"target": [2]}, "target: got"),
        ({"prior": nq.Sampler(lambda n, rng: rng.normal(size=(n, 2)), 2)}, "can only be sampled"),
    ],
)
def test_wrong_experiments_are_refused(changes, message):
    with pytest.raises(nq.InputError, match=message):
        line(**changes)


@pytest.mark.parametrize("door", [design.eig, design.variance_reduction, design.optimize])
def test_what_is_no_experiment_is_refused(door):
    with pytest.raises(nq.InputError, match="experiment: got None"):
        door(None, [(0.0, 1.0)], budget=2000)


def test_a_target_that_shares_its_drivers_is_refused():
    mixed = nq.Transport(lambda z: z @ np.ones((2, 2)), dim=2, base="normal", out_dim=2)
    with pytest.raises(nq.InputError, match="driving variable"):
        design.eig(line(prior=mixed, target=0), 1.0, budget=1000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "budget: got neither"),
        ({"budget": 20}, "budget: got 20 likelihoods"),
        ({"budget": 1000, "simulations": 10}, "simulations: got 10"),
    ],
)
def test_wrong_requests_are_refused(settings, message):
    with pytest.raises(nq.InputError, match=message):
        design.eig(line(), 1.0, rng=0, **settings)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"log_prob": lambda y, t, d: y - line_mean(t, d)},
            nq.InputError,
            r"log_prob: got shape .*Sum over observations",
        ),
        (
            {"simulate": lambda t, e, d: line_simulate(t, e, d)[..., 0]},
            nq.InputError,
            "simulate: got shape",
        ),
        (
            {"log_prob": lambda y, t, d: np.nan * line_log_prob(y, t, d)},
            nq.EvaluationError,
            "log_prob returned nan, at theta = ",
        ),
        (
            {"log_prob": lambda y, t, d: -np.inf + 0 * line_log_prob(y, t, d)},
            nq.EvaluationError,
            "-inf for data that simulate made",
        ),
        ({"simulate": lambda t, e, d: {}[d]}, nq.EvaluationError, "simulate raised KeyError"),
    ],
)
def test_wrong_shapes_and_values_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        design.eig(line(**changes), 1.0, budget=1000, simulations=1024)


def wave(mean, sd, **changes):
    """One parameter, of which the data see mean(θ)."""
    size = -np.log(sd) - 0.5 * np.log(2 * np.pi)
    return design.Experiment(
        prior=nq.Normal(),
        log_prob=lambda y, theta, d: (-0.5 * ((y - mean(theta)) / sd) ** 2 + size).sum(axis=-1),
        simulate=lambda theta, e, d: mean(theta) + sd * e,
        noise=nq.Normal(),
        **changes,
    )


@pytest.mark.parametrize("goal", [{"budget": 1000}, {"tol": 0.05, "budget": 20_000}])
def test_every_likelihood_is_counted(goal):
    """Those of repairs too: what is rarely informative needs them."""
    counted = 0

    def mean(theta):
        return np.maximum(theta - 2.0, 0.0)

    exp = wave(mean, 0.001)
    log_prob = exp.log_prob

    def counting(y, theta, d):
        nonlocal counted
        found = log_prob(y, theta, d)
        counted += found.size
        return found

    est = design.eig(replace(exp, log_prob=counting), 0.0, rng=0, **goal)
    assert est.diagnostics["missed"] > 0.0
    assert est.n_evaluations == counted <= goal["budget"]


def variance_seen(mean, sd):
    """Reduction of the variance of θ by y = mean(θ) + sd e, on grids of θ and y."""
    theta = np.linspace(-7.0, 7.0, 14_001)[:, None]
    prior = np.exp(-0.5 * theta**2) / np.exp(-0.5 * theta**2).sum()
    seen = mean(theta)
    y = np.arange(seen.min() - 6 * sd, seen.max() + 6 * sd, sd / 5)
    left = total = 0.0
    for some in np.array_split(y, 50):
        w = prior * np.exp(-0.5 * ((some - seen) / sd) ** 2)
        mass = w.sum(axis=0)
        left += ((w * theta**2).sum(axis=0) - (w * theta).sum(axis=0) ** 2 / mass).sum()
        total += mass.sum()
    return 1.0 - left / total


@pytest.mark.parametrize("rng", [0, 2, 4])
def test_a_utility_holds_where_the_proposal_is_far(rng):
    """Data show θ but for its period and sign: nearly all of the variance stays."""
    exp = wave(lambda theta: np.cos(20.0 * theta + 0.5), 0.05)
    est = design.variance_reduction(exp, 0.0, budget=10_000, rng=rng)
    assert abs(est.value - variance_seen(lambda t: np.cos(20.0 * t + 0.5), 0.05)) <= est.half_width
    assert any("effective sample size" in note for note in est.diagnostics["notes"])


@pytest.mark.parametrize("rng", [0, 2, 4])
def test_steep_weights_are_no_unseen_event(rng):
    def mean(theta):
        return theta + 0.3 * np.sin(5.0 * theta)

    est = design.variance_reduction(wave(mean, 0.01), 0.0, budget=10_000, rng=rng)
    assert est.status == "done"
    assert abs(est.value - variance_seen(mean, 0.01)) <= est.half_width < 0.01
