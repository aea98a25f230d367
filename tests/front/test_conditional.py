"""J as a function, against closed forms."""

import numpy as np
import pytest
from scipy.stats import norm

import nestquad as nq


def butterfly_loss(theta):
    """Black–Scholes value of the finance problem's inner expectation."""

    def call(spot, strike):
        d = (np.log(spot / strike) + 0.045) / 0.3
        return spot * norm.cdf(d) - strike * norm.cdf(d - 0.3)

    def payoff(spot):
        return call(spot, 50) + call(spot, 150) - 2 * call(spot, 100)

    return payoff(theta) - payoff(1.2 * theta)


def test_finance_against_black_scholes():
    theta = np.linspace(60, 160, 21)[:, None]
    J = nq.conditional(nq.problems.finance(), budget=4000, rng=0)
    mean, sd = J(theta, return_std=True)
    error = mean - butterfly_loss(theta[:, 0])
    assert np.abs(error).max() < 0.15
    assert np.mean(np.abs(error) < 3 * sd + 0.02) > 0.8
    assert J.n_evaluations <= 4000


def test_the_standard_deviation_covers_over_theta_and_seeds():
    problem = nq.problems.finance()
    shares = []
    for seed in range(6):
        theta = problem.outer_law.from_uniform(np.random.default_rng(seed).random((100, 1)))
        mean, sd = nq.conditional(problem, budget=1000, rng=seed)(theta, return_std=True)
        shares.append(np.mean(np.abs(mean - butterfly_loss(theta[:, 0])) <= 1.96 * sd))
    assert np.mean(shares) > 0.85


def test_one_point_and_many_agree():
    J = nq.conditional(nq.problems.synthetic(), budget=600, rng=0)
    theta = np.array([[0.2], [0.9]])
    np.testing.assert_allclose([J(t) for t in theta], J(theta))
    assert isinstance(J([0.2]), float)
    assert "600" in str(J).replace(",", "") or J.n_evaluations < 600


def test_several_outputs_come_as_columns():
    J = nq.conditional(nq.problems.health(), budget=1200, rng=0)
    theta = np.array([[0.7, 0.8], [0.6, 0.9]])
    mean, sd = J(theta, return_std=True)
    assert mean.shape == sd.shape == (2, 2)
    assert J(theta[0]).shape == (2,)
    np.testing.assert_allclose(mean[0], [5057.0, 5584.8], rtol=0.05)  # J at the means is near E J


def test_bad_theta():
    J = nq.conditional(nq.problems.synthetic(), budget=300, rng=0)
    with pytest.raises(nq.InputError, match=r"theta.*shape \(3,\)"):
        J([0.1, 0.2, 0.3])


def test_a_law_without_inverse_takes_uniforms():
    problem = nq.NestedExpectation(
        nq.Transport(lambda u: u**2, 1), nq.Uniform(), lambda x, theta: x[..., 0] + theta[..., 0]
    )
    J = nq.conditional(problem, budget=300, rng=0)
    u = np.array([[0.2], [0.7]])
    assert J.at_uniform(u) == pytest.approx(0.5 + u[:, 0] ** 2, abs=1e-4)
    with pytest.raises(nq.UnsupportedError, match="at_uniform"):
        J([0.04])
    with pytest.raises(nq.InputError, match="uniform"):
        J.at_uniform([1.5])


@pytest.mark.parametrize("method", ["ckq", "joint", "lsmc"])
def test_any_learner_will_do(method):
    problem = nq.problems.finance()
    J = nq.conditional(problem, budget=4000, method=method, rng=0)
    theta = np.array([[80.0], [100.0], [130.0]])
    mean, sd = J(theta, return_std=True)
    wide = nq.conditional(problem, budget=20_000, method="joint", rng=1)(theta)
    assert (np.abs(mean - wide) <= 5 * sd + 1e-2).all()
    assert J.method == method
    assert method in str(J)


def test_methods_that_learn_no_j_are_refused():
    with pytest.raises(nq.InputError, match="learns J"):
        nq.conditional(nq.problems.synthetic(), budget=300, method=nq.NKQ())


def test_a_store_serves_the_function_and_the_expectation(tmp_path):
    problem = nq.problems.synthetic()
    est = nq.estimate(problem, budget=512, method="ckq", rng=0, store=tmp_path / "store")
    J = nq.conditional(problem, budget=512, rng=0, store=tmp_path / "store")
    assert J.n_evaluations == est.n_evaluations
    assert J([0.25]) == nq.conditional(problem, budget=512, rng=0)([0.25])
