"""to_uniform undoes from_uniform."""

import numpy as np
import pytest
from scipy import stats

from nestquad.distributions import (
    Empirical,
    Independent,
    LogNormal,
    MultivariateT,
    Normal,
    Transport,
    Uniform,
    as_law,
    to_uniform,
)
from nestquad.errors import UnsupportedError

LAWS = [
    Uniform(-1.0, 3.0),
    Uniform([0.0, 5.0], [1.0, 9.0]),
    Normal(2.0, 0.3),
    Normal([1.0, -1.0], cov=[[2.0, 0.7], [0.7, 0.5]]),
    LogNormal([0.0, 1.0], [0.2, 0.9]),
    LogNormal([0.0, 1.0], cov=[[0.4, 0.3], [0.3, 0.5]]),
    MultivariateT([1.0, -1.0, 0.0], np.eye(3) + 0.5, df=2.5),
    Independent(Uniform(), Normal([0.0, 1.0], cov=[[1.0, 0.6], [0.6, 1.0]]), LogNormal()),
    as_law(stats.gamma(2.5)),
    as_law((stats.beta(2, 3), stats.norm(1, 2))),
]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_round_trip(law):
    u = np.random.default_rng(0).uniform(0.001, 0.999, (50, law.base_dim))
    np.testing.assert_allclose(to_uniform(law, law.from_uniform(u)), u, atol=1e-10)


def test_points_outside_the_support_end_at_the_border():
    assert 0 < to_uniform(Uniform(), np.array([[-1.0]]))[0, 0] < 1e-15
    assert 0 < to_uniform(LogNormal(), np.array([[-1.0]]))[0, 0] < 1e-15
    u = to_uniform(LogNormal(cov=[[1.0, 0.5], [0.5, 1.0]]), np.array([[0.0, 1.0]]))
    assert u[0, 0] < 1e-15
    assert np.isfinite(u).all()
    assert 1 - 1e-15 < to_uniform(Uniform(), np.array([[2.0]]))[0, 0] < 1


@pytest.mark.parametrize(
    "law",
    [
        Transport(lambda u: u**2, 1),
        Empirical(np.arange(5.0)[:, None]),
        Normal(cov=[[1.0, 1.0], [1.0, 1.0]]),
        LogNormal(cov=[[1.0, 1.0], [1.0, 1.0]]),
        MultivariateT(0.0, [[1.0, 1.0], [1.0, 1.0]], df=3.0),
    ],
)
def test_what_cannot_be_inverted_says_so(law):
    with pytest.raises(UnsupportedError, match="cannot be inverted"):
        to_uniform(law, np.ones((1, law.dim or 1)))
