"""Data that are rarely informative, constants left out, limits, and priors that are certain."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import betaln, digamma, gammaln
from scipy.stats import binom, norm
from test_design_gain import line, line_gain, line_simulate

import nestquad as nq
from nestquad import design


def detector(chance, sd):
    """Data are blank, or with a small chance θ itself with a small error."""
    at = norm.ppf(chance)

    def simulate(theta, e, d):
        seen = (e[..., :1] < at) * 1.0
        return np.concatenate([seen, seen * (theta + sd * e[..., 1:])], axis=-1)

    def log_prob(y, theta, d):
        found = np.log(chance) + norm.logpdf(y[..., 1], theta[..., 0], sd)
        return np.where(y[..., 0] > 0, found, np.log1p(-chance))

    noise = nq.Normal(np.zeros(2))
    return design.Experiment(nq.Normal(), log_prob, simulate, noise)


@pytest.mark.parametrize("budget", [1000, 10_000])
@pytest.mark.parametrize(("chance", "sd"), [(0.003, 1e-4), (0.02, 1e-3)])
def test_rare_data_that_say_much_are_not_missed(chance, sd, budget):
    exact = 0.5 * chance * np.log1p(sd**-2)
    for seed in (0, 2, 4):
        est = design.eig(detector(chance, sd), None, budget=budget, rng=seed)
        assert abs(est.value - exact) <= est.half_width
        assert est.n_evaluations <= budget
        assert est.diagnostics["missed"] > 0
    if budget == 10_000:
        assert est.half_width < exact


def test_samples_that_the_proposal_misses_are_found_near_the_true_one():
    # Data are blank, or a number of 1,000 samples at random places: log(1000) nats then.
    order = np.random.default_rng(0).permutation(1000) * 1.0
    chance = 0.05

    def simulate(theta, e, d):
        return np.where(e < chance, 1.0 + order[theta[..., :1].astype(int)], 0.0)

    def log_prob(y, theta, d):
        same = y[..., 0] == 1.0 + order[theta[..., 0].astype(int)]
        seen = np.where(same, np.log(chance), -np.inf)
        return np.where(y[..., 0] > 0, seen, np.log1p(-chance))

    experiment = design.Experiment(np.arange(1000.0), log_prob, simulate, nq.Uniform(0, 1))
    est = design.eig(experiment, None, budget=10_000, simulations=8192, rng=0)
    assert abs(est.value - chance * np.log(1000)) <= est.half_width < 0.3


def coin(coefficient):
    def log_prob(y, p, n):
        found = y * np.log(p) + (n - y) * np.log1p(-p)
        if coefficient:
            found = found + gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
        return found[..., 0]

    uniform = nq.Uniform(0, 1)
    return design.Experiment(uniform, log_prob, lambda p, u, n: binom.ppf(u, n, p), uniform)


def test_a_constant_may_be_missing_from_the_likelihood():
    n, settings = 3000, {"budget": 2000, "simulations": 8192, "rng": 0}
    a = 1.0 + np.arange(n + 1.0)
    b = n + 2.0 - a
    gain = -betaln(a, b) + (a - 1) * digamma(a) + (b - 1) * digamma(b) - n * digamma(n + 2)
    found = [design.eig(coin(with_it), n, **settings) for with_it in (False, True)]
    assert found[0].value == pytest.approx(found[1].value, abs=1e-6)
    others = [design.eig(coin(False), n, **settings | {"rng": seed}) for seed in (2, 4)]
    held = [abs(est.value - gain.mean()) <= est.half_width < 0.2 for est in (found[0], *others)]
    assert sum(held) >= 2  # data at the ends are rare, and have most of the error
    reduction = design.variance_reduction(coin(False), n, **settings)
    assert abs(reduction.value - (1 / 12 - 1 / (6 * (n + 2)))) <= reduction.half_width < 1e-5


def test_widely_spread_weights_leave_a_finite_interval():
    # 33 observations of unknown spread, whose gain is known by quadrature over log sd and Σ y².
    n = 33

    def log_prob(y, theta, d):
        return (-0.5 * (y * np.exp(-theta)) ** 2 - theta).sum(axis=-1)

    experiment = design.Experiment(
        nq.Normal(), log_prob, lambda t, e, d: np.exp(t) * e, nq.Normal(np.zeros(n))
    )
    est = design.eig(experiment, None, budget=10_000, simulations=8192, rng=0)
    grid = np.linspace(-9, 9, 6001)
    rng, logs = np.random.default_rng(0), norm.logpdf(grid) + np.log(grid[1] - grid[0])
    total = rng.chisquare(n, 2000) * np.exp(2 * rng.standard_normal(2000))
    like = -n * grid - 0.5 * total[:, None] * np.exp(-2 * grid)
    evidence = np.logaddexp.reduce(like + logs, axis=1)
    exact = (np.exp(like + logs - evidence[:, None]) * like).sum(axis=1) - evidence
    assert abs(est.value - exact.mean()) <= est.half_width + 4 * exact.std() / np.sqrt(2000)
    assert np.isfinite(est.half_width)


@pytest.mark.parametrize("budget", [1000, 20_000])
@pytest.mark.parametrize("criterion", [design.eig, design.variance_reduction])
def test_simulations_and_likelihoods_are_counted_and_limited(criterion, budget):
    plain, used = line(), {"likelihoods": 0, "simulations": 0}

    def log_prob(y, theta, d):
        found = plain.log_prob(y, theta, d)
        used["likelihoods"] += found.size
        return found

    def simulate(theta, e, d):
        used["simulations"] += len(theta)
        return line_simulate(theta, e, d)

    experiment = line(log_prob=log_prob, simulate=simulate)
    est = criterion(experiment, 1.0, budget=budget, simulations=512, rng=0)
    assert used["likelihoods"] == est.n_evaluations <= budget
    assert used["simulations"] == est.diagnostics["simulations"] <= 512


def test_a_short_time_gives_a_lower_bound(simulated):
    def slow(y, theta, d):
        simulated.wait(0.3 if y.shape[0] != 32 else 0.0)
        return line().log_prob(y, theta, d)

    def simulate(theta, e, d):
        simulated.wait(1e-4 * len(theta))
        return line_simulate(theta, e, d)

    est = design.eig(line(log_prob=slow, simulate=simulate), 1.0, max_seconds=0.2, rng=0)
    assert simulated.seconds < 2.0
    assert est.status == "time"
    assert est.summary.startswith("at least")
    assert est.value - est.half_width <= line_gain(1.0)


def test_a_time_alone_is_used_to_its_end():
    est = design.variance_reduction(line(), 1.0, max_seconds=0.5, simulations=512, rng=0)
    assert est.status == "time"
    assert abs(est.value - 2 / 2.25) <= est.half_width


def test_a_certain_prior_leaves_nothing_to_learn():
    for prior in (np.ones((1, 2)), np.ones((50, 2)), (np.eye(2), np.array([1.0, 0.0]))):
        est = design.eig(line(prior=prior), 1.0, budget=600, simulations=1024, rng=0)
        assert (est.value, est.std_error) == (0.0, 0.0)
    assert design.variance_reduction(line(prior=np.ones((3, 2))), 1.0, budget=600).value == 0.0
    sequence = design.Sequential(line(prior=np.diag([100.0, 0.0])), rng=0)
    sequence.tell(1.0, 100.0)
    assert sequence.next([1.0, 2.0], simulations=1024) in (1.0, 2.0)


def test_samples_without_weight_are_dropped():
    samples = np.random.default_rng(0).standard_normal((200, 2))
    weights = np.repeat([0.0, 1.0], 100)
    settings = {"budget": 600, "simulations": 1024, "rng": 0}
    some = design.eig(line(prior=(samples, weights)), 1.0, **settings)
    assert some.value == design.eig(line(prior=samples[100:]), 1.0, **settings).value


def test_answers_are_pickled():
    found = design.compare(line(), [0.0, 1.0], budget=2000, simulations=1024, rng=0)
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.values, found.values)
    assert str(again) == str(found)


def test_junk_is_refused():
    found = design.compare(line(), [0.0, 1.0], budget=2000, simulations=1024, rng=0)
    with pytest.raises(nq.InputError, match="i: got 9"):
        found.difference(9, 0)
    with pytest.raises(nq.InputError, match="designs: got None"):
        design.Sequential(line(), rng=0).next(None)
    with pytest.raises(nq.InputError, match=r"prior: got samples of shape \(3, 2, 2\)"):
        line(prior=np.zeros((3, 2, 2)))
    with pytest.raises(nq.InputError, match="prior: got"):
        line(prior=np.array([[1e308, 0.0], [-1e308, 0.0]]))
    changing = replace(line(), simulate=lambda t, e, d: np.ones((len(t), 1 + len(t) % 5)))
    with pytest.raises(nq.InputError, match="simulate: got data of"):
        design.eig(changing, 1.0, budget=600, simulations=1024)
