"""Posterior draws of the law of J against laws with known biases, variances, jumps and atoms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm

from nestquad.methods.learned import Pairs
from nestquad.risk._distribution import LossDistribution
from nestquad.risk._law import Atom, LawOfJ
from nestquad.risk._targets import Targets


def _standard(n: int = 1 << 14, dim: float = 1.0) -> LawOfJ:
    """Ĵ is standard normal."""
    return LawOfJ.of_model(ndtri((np.arange(n) + 0.5) / n), np.ones(n), np.arange(n) % 16, dim)


def _law(bias: float, sd: float, noise: float, m: int = 4000, seed: int = 0) -> LawOfJ:
    """Ĵ is standard normal, J = Ĵ + bias + sd N, seen by pairs with noise."""
    rng = np.random.default_rng(seed)
    at = np.concatenate([rng.normal(size=m // 4), rng.uniform(1.0, 3.0, m - m // 4)])
    j = at + bias + sd * rng.normal(size=m)
    r = (j - at)[:, None] + noise * rng.normal(size=(m, 2))
    drawn = 0.25 * norm.pdf(at) + 0.75 * ((at > 1) & (at < 3)) / 2.0
    pairs = Pairs(at, r, norm.pdf(at) / drawn, np.full(m, max(sd, 0.01) ** 2))
    return _standard(dim=8.0).corrected(pairs, rng)


def _interval(law: LawOfJ, kind: str, level: float) -> tuple[float, float, float]:
    value, draws = law.measured(Targets(((kind, level),)))
    low, high = np.quantile(draws[:, 0], [0.025, 0.975])
    return float(value[0]), float(low), float(high)


def test_law_without_correction_is_exact():
    law = _standard(1 << 15).center
    for p in (0.01, 0.5, 0.95, 0.99, 0.999):
        assert law.quantile(p) == pytest.approx(norm.ppf(p), abs=1e-3)
        assert law.exceedance(norm.ppf(p)) == pytest.approx(1 - p, rel=2e-3)
    assert law.excess(1.0) == pytest.approx(norm.pdf(1) - norm.sf(1), rel=1e-3)


@pytest.mark.parametrize(
    ("bias", "sd", "noise"), [(0.3, 0.5, 1.0), (-0.2, 0.0, 0.2), (0.0, 0.3, 0.0)]
)
def test_correction_finds_bias_and_variance(bias, sd, noise):
    exact = bias + np.hypot(1.0, sd) * norm.ppf(0.99)
    value, low, high = _interval(_law(bias, sd, noise), "var", 0.99)
    assert abs(value - exact) < high - low + 0.01
    assert high - low < 0.6


def test_intervals_cover_as_often_as_they_say():
    """J given Ĵ normal: 40 independent sets of pairs; two-sided bounds at 99.9 % of a binomial."""
    exact = norm.ppf(0.99, scale=np.hypot(1.0, 0.5))
    ends = [_interval(_law(0.0, 0.5, 1.0, 1000, seed), "var", 0.99)[1:] for seed in range(40)]
    hits = sum(low <= exact <= high for low, high in ends)
    assert 32 <= hits <= 40
    # No wider than four times the error of the best estimate with that many pairs.
    assert np.mean([high - low for low, high in ends]) < 0.5


@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_a_jump_that_the_model_does_not_see(noise):
    """J is Ĵ, plus 3 in a tenth of all scenarios: P(J > c) is that of a mixture of two normals."""
    rng, m = np.random.default_rng(2), 4000
    at = rng.normal(size=m)
    j = at + 3.0 * (rng.random(m) < 0.1)
    r = (j - at)[:, None] + noise * rng.normal(size=(m, 2))
    law = _standard(dim=8.0).corrected(Pairs(at, r, np.ones(m), np.ones(m)), rng)
    for c in (1.0, 3.0):
        exact = 0.9 * norm.sf(c) + 0.1 * norm.sf(c - 3.0)
        value, low, high = _interval(law, "exceed", c)
        assert low - 0.1 * (high - low) <= exact <= high + 0.1 * (high - low)
        # A normal law of the same mean and variance is farther away; noise hides the shape.
        normal = norm.sf(c, 0.3, np.sqrt(1.0 + 0.81))
        assert abs(value - exact) < abs(normal - exact)
        assert high - low < (0.06 if noise < 1 else 0.2)


def test_correction_vanishes_where_the_model_is_exact():
    value, low, high = _interval(_law(0.0, 0.0, 1e-6), "var", 0.99)
    assert value == pytest.approx(norm.ppf(0.99), abs=1e-3)
    assert high - low < 0.02


def test_without_pairs_nothing_is_certain():
    value, error = LossDistribution(_standard(4096)).cdf(0.0, return_std=True)
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
        law = LawOfJ.of_model(s, np.ones(n), np.zeros(n, dtype=int), np.inf, n)
        law = law.corrected(Pairs(s[at], r, one, 0.01 * one, law.node[at]), rng)
        _, low, high = _interval(law, "exceed", 1.0)
        hits += low <= norm.sf(1.0) <= high
        assert high - low < 0.16
    assert hits >= 7


@pytest.mark.parametrize("slope", [-3.0, 3.0])
def test_a_model_whose_claims_are_wrong_is_not_believed(slope):
    """The variance of J given Ĵ is exp(1.5 Ĵ)/4; the model claims another shape and a hundredth."""
    hits, ratios = 0, []
    for seed in range(0, 16, 2):
        rng, m = np.random.default_rng(seed), 3000
        at = np.concatenate([rng.normal(size=m // 4), rng.uniform(0.0, 3.0, m - m // 4)])
        v = 0.25 * np.exp(1.5 * at)
        r = (np.sqrt(v) * rng.normal(size=m))[:, None] + 1.5 * rng.normal(size=(m, 2))
        drawn = 0.25 * norm.pdf(at) + 0.75 * ((at > 0) & (at < 3)) / 3.0
        pairs = Pairs(at, r, norm.pdf(at) / drawn, 0.0025 * np.exp(slope * at))
        law = _standard(dim=8.0).corrected(pairs, rng)
        z = np.linspace(-8.0, 8.0, 4001)
        exact = np.average(norm.sf((3.0 - z) / (0.5 * np.exp(0.75 * z))), weights=norm.pdf(z))
        _, low, high = _interval(law, "exceed", 3.0)
        hits += low <= exact <= high
        ratios.append(np.interp([1.0, 2.0], law.z, law.v[0]) / (0.25 * np.exp([1.5, 3.0])))
    assert hits >= 6
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1.0, abs=0.25)


def test_few_hits_have_garwood_limits():
    """No scenario of 300 beyond the level: the 95 % limit is three of them; P lies in [0, 1]."""
    n = 300
    s = ndtri((np.arange(n) + 0.5) / n)
    rng = np.random.default_rng(0)
    law = LawOfJ.of_model(s, np.ones(n), np.zeros(n, dtype=int), 2.0, n)
    pairs = Pairs(s, 1e-9 * rng.normal(size=(n, 2)), np.ones(n), np.full(n, 1e-18))
    value, low, high = _interval(law.corrected(pairs, rng), "exceed", 50.0)
    assert (value, low) == (0.0, 0.0)
    assert high == pytest.approx(3.0 / n, rel=0.15)
    value, low, high = _interval(law.corrected(pairs, rng), "exceed", -50.0)
    assert (value, high) == (1.0, 1.0)
    assert low == pytest.approx(1.0 - 3.0 / n, rel=0.01)


def test_an_atom_of_j_is_told_from_values_that_g_often_has():
    """J = 0 in half of all scenarios; or g = 0 with probability 0.7 in all of them."""
    rng, m = np.random.default_rng(0), 1000
    bins = np.arange(m) // 50
    active = (rng.random(m) < 0.5)[:, None]
    atom = Atom.of(np.where(active, 1.0 + rng.random((m, 2)), 0.0), bins)
    assert atom is not None
    assert (atom.value, atom.side) == (0.0, 1)
    shares = atom.share(atom.pairs, None)
    assert shares.mean() == pytest.approx(1.0 - active.mean(), abs=0.01)
    layers = np.where(rng.random((m, 2)) < 0.7, 0.0, rng.random((m, 2)))
    assert Atom.of(layers, bins) is None
    assert Atom.of(rng.random((m, 2)), bins) is None


def test_draws_show_an_atom():
    """J is max(Ĵ + N/2, 0), seen by pairs without noise where it is 0: P(J > 0) is 1/2."""
    hits = 0
    for seed in range(8):
        rng, m = np.random.default_rng(seed), 2000
        at = rng.normal(size=m)
        j = np.maximum(at + 0.5 * rng.normal(size=m), 0.0)
        values = j[:, None] * (1.0 + 0.3 * rng.normal(size=(m, 2)))
        values = np.where(values > 0, values, np.where(j[:, None] > 0, 1e-3, 0.0))
        pairs = Pairs(at, values - at[:, None], np.ones(m), np.ones(m))
        law = _standard(dim=8.0).corrected(pairs, rng, values=values)
        _, low, high = _interval(law, "exceed", 0.0)
        hits += low <= 0.5 <= high
        assert high - low < 0.1
        assert law.center.quantile(0.3) == 0.0
    assert hits >= 7


def test_pairs_of_a_scenario_are_one_pair_of_means():
    r = np.array([[1.0, 3.0], [5.0, 7.0], [2.0, 4.0]])
    pairs = Pairs(np.array([1.0, 2.0, 1.0]), r, np.full(3, 0.5), np.ones(3), np.array([0, 1, 0]))
    one = pairs.by_scenario()
    assert one.r.tolist() == [[1.5, 3.5], [5.0, 7.0]]
    assert one.weights.tolist() == [1.0, 0.5]
    assert one.count.tolist() == [2.0, 1.0]
    assert pairs.mean_of(np.array([[2.0], [9.0], [4.0]])).tolist() == [[3.0], [9.0]]


@pytest.mark.parametrize("m", [256, 4096])
def test_one_coordinate_is_learned_along_theta(m):
    # J = z² and Ĵ = z² + sin(2 z): no function of Ĵ corrects it, one of θ does. The error of VaR
    # falls like that of means of pairs near the quantile.
    rng, n = np.random.default_rng(1), 1 << 14
    u = (np.arange(n) + 0.5) / n
    z = ndtri(u)
    model = z**2 + np.sin(2 * z)
    law = LawOfJ.of_model(model, np.ones(n), np.arange(n) % 16, 1.0, n, u)
    at = rng.uniform(-3.5, 3.5, m)
    s = at**2 + np.sin(2 * at)
    r = -np.sin(2 * at)[:, None] + 0.5 * rng.standard_normal((m, 2))
    weights = norm.pdf(at) * 7.0
    pairs = Pairs(s, r, weights, np.full(m, 0.5), along=norm.cdf(at))
    found = law.corrected(pairs, rng)
    targets = Targets.of(0.99, (), ())
    value, draws = found.measured(targets)
    exact = norm.ppf(0.995) ** 2
    error = draws.std()
    assert abs(value[0] - exact) < 4.0 * error
    assert error < 8.0 / np.sqrt(m)
