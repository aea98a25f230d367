"""The corrected law of J against normal laws with known biases and variances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm

from nestquad.risk._distribution import LearnedLaw, LossDistribution
from nestquad.risk._law import REPEATS, Pairs, corrected, nodes_of


def _law(bias: float, sd: float, noise: float, m: int = 4000, seed: int = 0):
    """Ĵ is standard normal, J = Ĵ + bias + sd N, seen by pairs with noise."""
    rng = np.random.default_rng(seed)
    n = 1 << 14
    s = ndtri((np.arange(n) + 0.5) / n)
    law = nodes_of(s, np.ones(n), np.arange(n) % 16, 1)
    at = np.concatenate([rng.normal(size=m // 4), rng.uniform(1.0, 3.0, m - m // 4)])
    j = at + bias + sd * rng.normal(size=m)
    r = (j - at)[:, None] + noise * rng.normal(size=(m, 2))
    drawn = 0.25 * norm.pdf(at) + 0.75 * ((at > 1) & (at < 3)) / 2.0
    pairs = Pairs(at, r, norm.pdf(at) / drawn, np.full(m, max(sd, 0.01) ** 2))
    return corrected(law, pairs, rng)


def test_law_without_correction_is_exact():
    n = 1 << 15
    s = ndtri((np.arange(n) + 0.5) / n)
    law = nodes_of(s, np.ones(n), np.zeros(n, dtype=int), 1)
    for p in (0.01, 0.5, 0.95, 0.99, 0.999):
        assert law.quantile(p)[0] == pytest.approx(norm.ppf(p), abs=1e-3)
        assert law.survival(norm.ppf(p))[0] == pytest.approx(1 - p, rel=2e-3)
    assert law.excess(1.0)[0] == pytest.approx(norm.pdf(1) - norm.sf(1), rel=1e-3)


@pytest.mark.parametrize(
    ("bias", "sd", "noise"), [(0.3, 0.5, 1.0), (-0.2, 0.0, 0.2), (0.0, 0.3, 0.0)]
)
def test_correction_finds_bias_and_variance(bias, sd, noise):
    law = _law(bias, sd, noise)
    exact = bias + np.hypot(1.0, sd) * norm.ppf(0.99)
    value = law.quantile(0.99)
    error = float(value[1:].std())
    assert abs(value[0] - exact) < 4 * error + 0.01
    assert error < 0.1


@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_a_jump_that_the_model_does_not_see(noise):
    """J is Ĵ, plus 3 in a tenth of all scenarios: P(J > c) is that of a mixture of two normals."""
    rng, n, m = np.random.default_rng(2), 1 << 14, 4000
    s = ndtri((np.arange(n) + 0.5) / n)
    at = rng.normal(size=m)
    j = at + 3.0 * (rng.random(m) < 0.1)
    r = (j - at)[:, None] + noise * rng.normal(size=(m, 2))
    law = corrected(
        nodes_of(s, np.ones(n), np.arange(n) % 16, 1), Pairs(at, r, np.ones(m), np.ones(m)), rng
    )
    for c in (1.0, 3.0):
        exact = 0.9 * norm.sf(c) + 0.1 * norm.sf(c - 3.0)
        found = law.survival(c)
        error = np.hypot(found[1:].std(), law.shape_error(c, excess=False))
        assert abs(found[0] - exact) < 2.5 * error
        # A normal law of the same mean and variance is farther away; noise hides the shape.
        normal = norm.sf(c, 0.3, np.sqrt(1.0 + 0.81))
        assert abs(found[0] - exact) < abs(normal - exact)
        assert error < (0.015 if noise < 1 else 0.1)


def test_correction_vanishes_where_the_model_is_exact():
    law = _law(0.0, 0.0, 1e-6)
    assert law.quantile(0.99)[0] == pytest.approx(norm.ppf(0.99), abs=1e-3)
    assert law.quantile(0.99)[1:].std() < 1e-4


def test_share_of_hits_that_the_model_does_not_decide():
    """Zero for an exact model, all of a far tail without one; for two normals by quadrature."""
    assert _law(0.0, 0.0, 1e-6).undecided(2.0) < 0.01
    law = _law(0.0, 0.5, 0.1)
    z = np.linspace(-8.0, 8.0, 4001)
    sd = np.sqrt(np.average(law.v[0], weights=law.weights))
    chance = norm.cdf((z - 2.0) / sd)
    exact = (chance * (1 - chance) * norm.pdf(z)).sum() / (chance * norm.pdf(z)).sum()
    assert law.undecided(2.0) == pytest.approx(exact, rel=0.2)


def test_without_pairs_nothing_is_certain():
    s = ndtri((np.arange(4096) + 0.5) / 4096)
    law = nodes_of(s, np.ones(4096), np.arange(4096) % 4, 1)
    value, error = LossDistribution(LearnedLaw(law)).cdf(0.0, return_std=True)
    assert value == pytest.approx(0.5, abs=1e-2)
    assert np.isinf(error)


def test_scenarios_that_no_model_explains():
    """J of 400 given scenarios is independent of Ĵ, and its variance a hundred times Var Ĵ."""
    n, m = 400, 300
    exact = ndtri((np.arange(n) + 0.5) / n)
    hits = 0
    for seed in range(0, 16, 2):
        rng = np.random.default_rng(seed)
        j, s = rng.permutation(exact), 0.1 * rng.normal(size=n)
        at = rng.integers(n, size=m)
        r = (j - s)[at, None] + rng.normal(size=(m, 2))
        one = np.ones(m)
        law = nodes_of(s, np.ones(n), np.zeros(n, dtype=int), np.inf)
        law = corrected(law, Pairs(s[at], r, one, 0.01 * one, law.node[at]), rng)
        found = law.survival(1.0)
        error = float(np.sqrt(((found[1:] - found[0]) ** 2).mean()))
        hits += abs(found[0] - norm.sf(1.0)) < 1.96 * error
        assert error < 0.04
    assert hits >= 7


def test_a_threshold_below_all_losses_is_as_open_as_one_above():
    law = _law(0.0, 0.5, 0.1)
    assert law.undecided(-2.0, below=True) == pytest.approx(law.undecided(2.0), rel=0.3)


@pytest.mark.parametrize("slope", [-3.0, 3.0])
def test_a_model_whose_claims_are_wrong_is_not_believed(slope):
    """The variance of J given Ĵ is exp(1.5 Ĵ)/4; the model claims another shape and a hundredth."""
    hits, ratios = 0, []
    for seed in range(0, 16, 2):
        rng, n, m = np.random.default_rng(seed), 1 << 14, 3000
        s = ndtri((np.arange(n) + 0.5) / n)
        law = nodes_of(s, np.ones(n), np.arange(n) % 16, 1)
        at = np.concatenate([rng.normal(size=m // 4), rng.uniform(0.0, 3.0, m - m // 4)])
        v = 0.25 * np.exp(1.5 * at)
        r = (np.sqrt(v) * rng.normal(size=m))[:, None] + 1.5 * rng.normal(size=(m, 2))
        drawn = 0.25 * norm.pdf(at) + 0.75 * ((at > 0) & (at < 3)) / 3.0
        pairs = Pairs(at, r, norm.pdf(at) / drawn, 0.0025 * np.exp(slope * at))
        law = corrected(law, pairs, rng)
        z = np.linspace(-8.0, 8.0, 4001)
        exact = np.average(norm.sf((3.0 - z) / (0.5 * np.exp(0.75 * z))), weights=norm.pdf(z))
        found = law.survival(3.0)
        error = np.hypot(found[1:].std(), law.shape_error(3.0, excess=False))
        hits += abs(found[0] - exact) < 1.96 * error
        ratios.append(np.interp([1.0, 2.0], law.z, law.v[0]) / (0.25 * np.exp([1.5, 3.0])))
    assert hits >= 7
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1.0, abs=0.25)


def test_more_draws_at_a_scenario_where_noise_hides_a_shape_that_matters():
    """A jump in a tenth of all scenarios against a model that is all but right, under noise."""
    rng, n, m = np.random.default_rng(4), 1 << 14, 2000
    s = ndtri((np.arange(n) + 0.5) / n)
    at = rng.normal(size=m)
    wanted = {}
    for size, name in ((3.0, "jump"), (0.03, "nearly right")):
        j = size * (rng.random(m) < 0.1)
        r = j[:, None] + 2.0 * rng.normal(size=(m, 2))
        pairs = Pairs(at, r, np.ones(m), np.full(m, 0.1 * size**2))
        law = corrected(nodes_of(s, np.ones(n), np.arange(n) % 16, 1), pairs, rng)
        few, many = (law.repeated(2.0, False, count) for count in (m, 100 * m))
        wanted[name] = REPEATS[np.argmin(few)], REPEATS[np.argmin(many)]
    assert wanted["jump"][1] > max(wanted["jump"][0], 2)
    assert wanted["nearly right"][0] == 1


def test_pairs_of_a_scenario_are_one_pair_of_means():
    r = np.array([[1.0, 3.0], [5.0, 7.0], [2.0, 4.0]])
    pairs = Pairs(np.array([1.0, 2.0, 1.0]), r, np.full(3, 0.5), np.ones(3), np.array([0, 1, 0]))
    one = pairs.by_scenario()
    assert one.r.tolist() == [[1.5, 3.5], [5.0, 7.0]]
    assert one.weights.tolist() == [1.0, 0.5]
    assert one.count.tolist() == [2.0, 1.0]
    assert pairs.mean_of(np.array([[2.0], [9.0], [4.0]])).tolist() == [[3.0], [9.0]]
