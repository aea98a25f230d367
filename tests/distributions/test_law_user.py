"""Transport and Sampler: the user's own functions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from nestquad.distributions import Independent, Normal, Sampler, Transport, Uniform, as_law
from nestquad.errors import EvaluationError, InputError, UnsupportedError

# So many tests of samples need a small level; 4000 draws keep them sharp.
FALSE_ALARM = 1e-6
THETA = np.array([[0.5], [1.0], [4.0]])


def test_both_bases_give_the_same_law():
    by_uniform = Transport(lambda u: -np.log1p(-u), 1)
    by_normal = Transport(lambda z: z**2, 1, base="normal", out_dim=1)
    u = (np.arange(1000) + 0.5)[:, None] / 1000
    np.testing.assert_allclose(stats.expon.cdf(by_uniform.from_uniform(u)), u, rtol=1e-12)
    np.testing.assert_allclose(by_normal.from_uniform(u), ndtri(u) ** 2)
    assert stats.kstest(by_normal.from_uniform(u)[:, 0], stats.chi2(1).cdf).statistic < 2e-3
    assert stats.kstest(by_normal.sample(4000, 0)[:, 0], stats.chi2(1).cdf).pvalue > FALSE_ALARM
    assert (by_uniform.dim, by_uniform.base_dim, by_uniform.base) == (None, 1, "uniform")
    assert (by_normal.dim, by_normal.base_dim, by_normal.base) == (1, 1, "normal")


def test_dim_is_that_of_the_draws_and_base_dim_that_of_the_noise():
    law = Transport(lambda z: z.sum(axis=-1, keepdims=True), 5, base="normal", out_dim=1)
    assert (law.dim, law.base_dim) == (1, 5)
    x = law.sample(4000, 3)
    assert x.shape == (4000, 1)
    assert stats.kstest(x[:, 0], stats.norm(0, np.sqrt(5)).cdf).pvalue > FALSE_ALARM


def test_a_function_of_theta_need_not_say_its_batch():
    law = Transport(lambda u: THETA[:, None, :] * u, 1)
    bound = as_law(law, batch=3)
    assert (law.batch, bound.batch) == (None, 3)
    u = np.array([[0.25], [0.5]])
    np.testing.assert_array_equal(bound.from_uniform(u)[..., 0], THETA * [0.25, 0.5])
    np.testing.assert_array_equal(
        bound.from_uniform(np.tile(u, (3, 1, 1)))[..., 0], THETA * [0.25, 0.5]
    )
    # One that does not depend on theta is bound all the same, and repeated.
    shared = as_law(Transport(lambda u: 2 * u, 1), batch=3)
    assert shared.from_uniform(u).shape == (3, 2, 1)
    # Also as a part of something else.
    parts = as_law((law, Normal(THETA)), batch=3)
    assert parts.from_uniform(np.full((4, 2), 0.5)).shape == (3, 4, 2)
    again = as_law(Independent(law, Uniform()), batch=3)
    assert again.batch == 3
    assert again.from_uniform(np.full((4, 2), 0.5)).shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda u: u[..., 0], r"a result of shape \(4,\).*\[\.\.\., None\]"),
        (lambda u: u[:2], r"a result of shape \(2, 2\)"),
        (lambda u: u[..., :1], r"expected shape \(4, 2\)"),
        (lambda u: u[None], r"a result of shape \(1, 4, 2\)"),
        (lambda u: 1.0, r"a result of shape \(\)"),
        (lambda u: None, "fn: got None.*real numbers"),
        (lambda u: "no", "real numbers"),
        (lambda u: u + 1j, "real numbers"),
        (lambda u: np.where(u > 0.5, np.nan, u), r"not finite at index \[3, 0\]"),
        (lambda u: np.where(u > 0.5, np.inf, u), "not finite"),
    ],
)
def test_what_fn_returns_is_checked(fn, message):
    u = np.array([[0.1, 0.2], [0.3, 0.4], [0.2, 0.2], [0.9, 0.1]])
    with pytest.raises(InputError, match=message):
        Transport(fn, 2, out_dim=2).from_uniform(u)


def test_a_batch_of_another_size_is_refused():
    law = Transport(lambda u: THETA[:2, None, :] * u, 1, batch=3)
    with pytest.raises(InputError, match=r"expected shape \(3, 1, out\)"):
        law.from_uniform([[0.5]])
    # Independent points for each law may not collapse to one row for all.
    collapsed = Transport(lambda u: u[:1], 1, batch=3)
    with pytest.raises(InputError, match=r"expected shape \(3, 1, out\)"):
        collapsed.from_uniform(np.full((3, 1, 1), 0.5))


def test_the_points_that_fn_gets_are_protected():
    def careless(u):
        u *= 2
        return u

    points = np.array([[0.25]])
    with pytest.raises(EvaluationError, match="read-only"):
        Transport(careless, 1).from_uniform(points)
    assert points[0, 0] == 0.25


def test_an_error_inside_fn_is_not_hidden():
    def broken(u):
        raise KeyError("mine")

    with pytest.raises(EvaluationError, match=r"fn of Transport raised KeyError: 'mine'") as caught:
        Transport(broken, 1).from_uniform([[0.5]])
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Transport("f", 1), "fn: got str; expected a function"),
        (lambda: Transport(lambda u: u, 0), "dim: got 0"),
        (lambda: Transport(lambda u: u, 1.5), "dim: got 1.5"),
        (lambda: Transport(lambda u: u, 1, base="norml"), "Did you mean 'normal'"),
        (lambda: Transport(lambda u: u, 1, out_dim=0), "out_dim: got 0"),
        (lambda: Transport(lambda u: u, 1, batch=0), "batch: got 0"),
        (lambda: Sampler(None, 1), "fn: got NoneType"),
        (lambda: Sampler(lambda n, rng: 0, -1), "dim: got -1"),
        (lambda: Sampler(lambda n, rng: 0, 1, batch=-2), "batch: got -2"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_sampler_samples():
    law = Sampler(lambda n, rng: rng.exponential(size=(n, 2)), 2)
    x = law.sample(4000, np.random.default_rng(0))
    assert x.shape == (4000, 2)
    assert stats.kstest(x[:, 1], stats.expon.cdf).pvalue > FALSE_ALARM
    bound = as_law(Sampler(lambda n, rng: rng.normal(THETA[:, None], size=(3, n, 1)), 1), batch=3)
    assert bound.sample(5, 0).shape == (3, 5, 1)


def test_a_sampler_has_no_transport_and_says_what_to_do():
    law = Sampler(lambda n, rng: rng.normal(size=(n, 1)), 1)
    assert not law.has_transport
    mixed = Independent(Uniform(), law)
    assert not mixed.has_transport
    for one in (law, mixed):
        with pytest.raises(UnsupportedError, match=r"can only be sampled.*Transport"):
            one.from_uniform([[0.5]])
        with pytest.raises(UnsupportedError, match=r"can only be sampled.*Transport"):
            one.from_normal([[0.5]])
    assert mixed.sample(3, 0).shape == (3, 2)


@pytest.mark.parametrize(
    "result", [lambda n: np.zeros(n), lambda n: np.zeros((n + 1, 1)), lambda n: np.zeros((n, 2))]
)
def test_what_a_sampler_returns_is_checked(result):
    with pytest.raises(InputError, match="fn: got a result of shape"):
        Sampler(lambda n, rng: result(n), 1).sample(4, 0)


def test_a_bound_sampler_has_to_serve_every_theta():
    law = as_law(Sampler(lambda n, rng: rng.normal(size=(n, 1)), 1), batch=3)
    with pytest.raises(InputError, match=r"expected shape \(3, 4, 1\)"):
        law.sample(4, 0)
