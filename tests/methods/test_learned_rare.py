"""Learners and events in the tail of J: a bar of nothing is wrong there."""

import numpy as np
import pytest
from intervals import is_near, study
from scipy.stats import norm

import nestquad as nq

RHO, BARRIER = 0.2, norm.ppf(0.05)


def credit_loss(q):
    """P(default rate > q) of a large pool in the Vasicek model: J is the rate given the factor."""
    exact = norm.cdf((BARRIER - np.sqrt(1 - RHO) * norm.ppf(q)) / np.sqrt(RHO))
    return nq.NestedExpectation(
        nq.Normal(),
        nq.Normal(),
        lambda x, theta: (
            np.sqrt(RHO) * theta[..., 0] + np.sqrt(1 - RHO) * x[..., 0] < BARRIER
        ).astype(float),
        lambda j: (j > q).astype(float),
        exact=exact,
    )


@pytest.mark.parametrize("q", [0.15, 0.5])
def test_a_rare_default_rate_is_covered(q):
    covered, width = study(credit_loss(q), 8, budget=3000)
    assert covered >= 6 / 8
    assert is_near(width, 2.0)


def test_a_regression_of_a_logarithm_stays_near_the_values():
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: np.abs(x[..., 0] - theta[..., 0]), np.square
    )
    for seed in range(6):
        est = nq.estimate(problem, budget=2000, method=nq.LSMC(link="log"), rng=seed)
        assert est.value < 20.0


def test_rounding_is_in_the_bar():
    shift = 1e8
    problem = nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(theta, 1.0),
        lambda x, theta: shift + x[..., 0],
        lambda j: np.maximum(j - shift, 0.0),
        exact=float(norm.pdf(0.0)),
    )
    for seed in range(4):
        est = nq.estimate(problem, budget=400, method="joint", rng=seed)
        assert abs(est.value - problem.exact) <= 2 * est.half_width


@pytest.mark.parametrize(("signal", "budget", "most"), [(1.0, 1000, 1e-3), (4.0, 8800, 1e-3)])
def test_the_evidence_of_normal_data_keeps_its_logarithm(signal, budget, most):
    """J runs over many orders of magnitude, and its logarithm is a quadratic."""
    problem = nq.problems.eig_linear(1, design=[[signal]])
    for seed in range(3):
        found = nq.estimate(problem, budget=budget, rng=seed)
        assert found.method == "ckq"
        error = abs(found.value - problem.exact)
        assert error < most
        assert error <= found.half_width


def test_the_evidence_of_three_observations():
    """Three observations of a mean: a lattice was off by 0.1 to 0.6 here."""
    sd, n = 0.5, 3

    def g(x, theta):
        return np.exp(-0.5 * ((theta - x) ** 2).sum(axis=-1) / sd**2)

    data = nq.Transport(lambda z: z[..., :1] + sd * z[..., 1:], dim=4, base="normal", out_dim=n)
    problem = nq.NestedExpectation(data, nq.Normal(), g, np.log)
    covariance = sd**2 * np.eye(n) + 1.0
    exact = -0.5 * np.linalg.slogdet(covariance / sd**2)[1] - 0.5 * n
    runs = [nq.estimate(problem, budget=10_000, rng=seed) for seed in range(4)]
    errors = np.array([abs(run.value - exact) for run in runs])
    assert errors.max() < 0.01
    assert sum(e <= run.half_width for e, run in zip(errors, runs, strict=True)) >= 3
    assert np.median([run.half_width for run in runs]) < 0.02
