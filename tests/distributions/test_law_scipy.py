"""as_law: scipy.stats objects, tuples, and everything that is none of those."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats

from nestquad.distributions import (
    Empirical,
    Independent,
    LogNormal,
    Normal,
    ScipyLaw,
    Uniform,
    as_law,
)
from nestquad.errors import InputError

# So many tests of samples need a small level; 4000 draws keep them sharp.
FALSE_ALARM = 1e-6
GRID = ((np.arange(400) + 0.5) / 400)[:, None]


@pytest.mark.parametrize(
    "frozen",
    [
        stats.gamma(2.5, scale=3.0),
        stats.beta(0.5, 0.7),
        stats.expon(1.0, 2.0),
        stats.t(3.0),
        stats.truncnorm(-1.0, 2.0),
        stats.weibull_min(1.5),
        stats.norm(1.0, 2.0),
        stats.uniform(-1.0, 3.0),
        stats.lognorm(0.5, scale=2.0),
        stats.lognorm(0.5, 1.0, 2.0),
        stats.cauchy(),
        stats.rv_histogram(np.histogram([1.0, 2.0, 2.5, 4.0], 3)),
        stats.norm,
    ],
    ids=lambda f: getattr(getattr(f, "dist", f), "name", "?"),
)
def test_continuous_distributions_keep_their_cdf(frozen):
    law = as_law(frozen)
    assert (law.dim, law.base_dim, law.batch) == (1, 1, None)
    np.testing.assert_allclose(frozen.cdf(law.from_uniform(GRID)), GRID, rtol=1e-7)
    assert stats.kstest(law.sample(4000, 7)[:, 0], frozen.cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    "frozen",
    [
        stats.poisson(3.5),
        stats.binom(10, 0.3),
        stats.rv_discrete(values=([1, 2, 7], [0.2, 0.5, 0.3])),
    ],
    ids=["poisson", "binom", "table"],
)
def test_discrete_distributions_work_through_their_quantiles(frozen):
    law = as_law(frozen)
    n = 20000
    x = law.from_uniform((np.arange(n)[:, None] + 0.5) / n)
    for k in range(8):
        # An even grid meets every probability to within one point.
        assert np.mean(x == k) == pytest.approx(frozen.pmf(k), abs=1.5 / n)


def test_array_parameters_of_a_single_law_are_coordinates():
    law = as_law(stats.gamma([2.0, 3.0, 4.0]))
    assert (law.dim, law.base_dim, law.batch) == (3, 3, None)
    u = np.random.default_rng(0).uniform(size=(5, 6, 3))
    np.testing.assert_array_equal(law.from_uniform(u), stats.gamma.ppf(u, [2.0, 3.0, 4.0]))


def test_array_parameters_of_a_batch():
    rng = np.random.default_rng(1)
    a, scale = rng.uniform(1, 3, size=4), rng.uniform(1, 3, size=(4, 2))
    u = rng.uniform(size=(4, 9, 1))
    law = as_law(stats.gamma(a), batch=4)
    assert (law.dim, law.batch) == (1, 4)
    np.testing.assert_array_equal(law.from_uniform(u), stats.gamma.ppf(u, a[:, None, None]))
    law = as_law(stats.gamma(a[:, None], scale=scale), batch=4)
    assert (law.dim, law.batch) == (2, 4)
    shared = rng.uniform(size=(9, 2))
    expected = stats.gamma.ppf(shared, a[:, None, None], scale=scale[:, None, :])
    np.testing.assert_allclose(law.from_uniform(shared), expected, rtol=1e-14)
    law = as_law(stats.gamma(2.0), batch=4)
    assert law.batch is None


def test_a_square_of_parameters_is_coordinates_or_a_batch_as_asked():
    three = stats.expon([1.0, 2.0, 3.0])
    assert as_law(three).dim == 3
    assert as_law(three, batch=3).dim == 1


@pytest.mark.parametrize("batch", [None, 3])
def test_families_with_closed_forms_become_our_own(batch):
    loc = np.array([0.5, 1.0, 2.0])
    pairs = [
        (stats.norm(loc, 2.0), Normal, {"loc": loc, "sd": 2.0}),
        (stats.norm(loc=loc, scale=loc), Normal, {"loc": loc, "sd": loc}),
        (stats.norm(scale=loc), Normal, {"loc": 0.0, "sd": loc}),
        (stats.uniform(loc, 3.0), Uniform, {"low": loc, "high": loc + 3.0}),
        (stats.lognorm(loc, scale=np.e), LogNormal, {"loc": 1.0, "sd": loc}),
        (stats.lognorm(s=0.3, scale=loc), LogNormal, {"loc": np.log(loc), "sd": 0.3}),
    ]
    u = np.random.default_rng(0).uniform(size=(5, 3))
    for frozen, family, attributes in pairs:
        law = as_law(frozen, batch=batch)
        assert type(law) is family
        for name, value in attributes.items():
            shape = (3,) if batch is None else (3, 1)
            expected = np.broadcast_to(value, 3).reshape(shape)
            np.testing.assert_allclose(getattr(law, name), expected, rtol=1e-14)
        direct = ScipyLaw(frozen, batch)
        v = u if batch is None else u[:, :1]
        np.testing.assert_allclose(law.from_uniform(v), direct.from_uniform(v), rtol=1e-12)
    assert type(as_law(stats.lognorm(0.3, loc=1.0))) is ScipyLaw
    assert type(as_law(stats.norm)) is Normal


def test_the_newer_distributions_of_scipy_work():
    new = pytest.importorskip("scipy.stats", reason="needs scipy")
    if not hasattr(new, "Normal"):
        pytest.skip("scipy before 1.15")
    law = as_law(new.Normal(mu=np.array([0.0, 5.0]), sigma=2.0), batch=2)
    assert (law.dim, law.batch) == (1, 2)
    x = law.from_uniform(GRID)
    np.testing.assert_allclose(x[1], stats.norm(5.0, 2.0).ppf(GRID), rtol=1e-9)


def test_multivariate_normal_becomes_normal():
    cov = [[2.0, 0.5], [0.5, 1.0]]
    law = as_law(stats.multivariate_normal([1.0, 2.0], cov))
    assert isinstance(law, Normal)
    np.testing.assert_allclose(law.loc, [1.0, 2.0])
    np.testing.assert_allclose(law.cov, cov)
    assert as_law(stats.multivariate_normal([1.0, 2.0], cov), batch=9).batch is None
    singular = stats.multivariate_normal([0, 0], [[1, 1], [1, 1]], allow_singular=True)
    np.testing.assert_allclose(as_law(singular).chol @ as_law(singular).chol.T, singular.cov)
    one = as_law(stats.multivariate_normal(3.0, 4.0))
    assert (one.dim, one.loc[0], one.cov[0, 0]) == (1, 3.0, 4.0)


def test_tuples_are_independent_coordinates():
    law = as_law((stats.gamma(2.0), Normal(dim=2), [stats.norm(1, 1), stats.poisson(2)]))
    assert isinstance(law, Independent)
    assert (law.dim, len(law.laws)) == (5, 4)
    u = np.random.default_rng(0).uniform(size=(6, 5))
    x = law.from_uniform(u)
    np.testing.assert_array_equal(x[:, 0], stats.gamma(2.0).ppf(u[:, 0]))
    np.testing.assert_array_equal(x[:, 4], stats.poisson(2).ppf(u[:, 4]))
    assert isinstance(as_law((stats.gamma(2.0),)), ScipyLaw)
    batched = as_law((stats.gamma([2.0, 3.0]), stats.expon()), batch=2)
    assert batched.from_uniform(u[:, :2]).shape == (2, 6, 2)


def test_a_law_is_taken_as_it_is():
    law = Normal(dim=2)
    assert as_law(law) is law
    assert as_law(law, batch=5) is law
    batch = Normal(np.zeros((5, 2)))
    assert as_law(batch, batch=5) is batch
    samples = Empirical([[1.0]])
    assert as_law(samples) is samples


@pytest.mark.parametrize(
    ("obj", "batch", "message"),
    [
        (Normal(np.zeros((5, 2))), None, "inner: got a batch of 5 laws; expected a single law"),
        (Normal(np.zeros((5, 2))), 4, "a batch of 4"),
        (stats.gamma(np.ones((5, 2))), None, r"gamma with parameters of shape \(5, 2\)"),
        (stats.gamma(np.ones(5)), 4, r"\(\), \(4,\) or \(4, d\)"),
        (stats.gamma(np.ones((4, 2, 3))), 4, r"shape \(4, 2, 3\)"),
        (stats.gamma(np.ones((2, 4))), 4, r"shape \(2, 4\)"),
        (stats.gamma(-1.0), None, "inner: got scipy.stats gamma.*nan or inf"),
        (stats.norm(0.0, [1.0, -1.0]), None, "nan or inf"),
        (stats.norm([1.0, 2.0], [1.0, 2.0, 3.0]), None, "shapes that broadcast"),
        (stats.gamma, None, r"gamma without its parameters.*Freeze it, as in stats.gamma\(a\)"),
        (stats.dirichlet([1.0, 2.0]), None, "Sampler.*Transport"),
        (stats.gaussian_kde([1.0, 2.0, 4.0]), None, "Sampler.*Transport"),
        (Normal, None, "the class Normal.*instance"),
        (lambda theta: Normal(theta), None, "type function.*A function of theta"),
        (3.0, None, "type float; expected a law of nestquad"),
        ("normal", None, "type str"),
        (None, None, "NoneType"),
        ((), None, "type tuple"),
        ((Normal(), 3.0), None, r"inner\[1\]: got an object of type float"),
        ((Normal(np.zeros((2, 1))), Normal()), 3, r"inner\[0\]: got a batch of 2"),
    ],
)
def test_anything_else_is_refused_and_told_what_is_accepted(obj, batch, message):
    with pytest.raises(InputError, match=message):
        as_law(obj, batch=batch)


def test_errors_use_the_name_of_the_argument():
    with pytest.raises(InputError, match=r"^outer: got"):
        as_law(3.0, argument="outer")
    with pytest.raises(InputError, match=r"^outer: got"):
        as_law(stats.gamma(-1.0), argument="outer")


def test_infinite_quantiles_name_the_distribution():
    class Broken:
        name = "broken"

        def ppf(self, u):
            return np.where(np.asarray(u) > 0.9, np.inf, u)

    law = as_law(Broken())
    with pytest.raises(InputError, match=r"broken.*are nan or inf"):
        law.from_uniform([[0.95]])


def test_a_pickled_scipy_batch_survives():
    law = as_law(stats.gamma([1.0, 2.0]), batch=2)
    twin = pickle.loads(pickle.dumps(law))
    np.testing.assert_array_equal(twin.from_uniform(GRID), law.from_uniform(GRID))
