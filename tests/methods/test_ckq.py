"""Conditional kernel quadrature: accuracy, growth, error bars, and what it refuses."""

import numpy as np
import pytest
from intervals import is_near, judged, study
from scipy.special import ndtr

import nestquad as nq


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("synthetic", 1e-5),
        ("synthetic10", 0.01),
        ("finance", 0.06),
        ("rainforth", 2e-4),
        ("eig-linear", 2e-3),
        ("gaussian-es", 1e-6),
    ],
)
def test_a_thousand_evaluations_go_a_long_way(name, error):
    problem = nq.problems.get(name)
    est = nq.estimate(problem, method="ckq", budget=1000, rng=5)
    assert abs(est.value - problem.exact) < error
    assert est.n_evaluations <= 1000
    assert np.isfinite(est.std_error)


def test_a_jump_in_f_costs_nothing():
    # J(θ) = θ, so P(J > 0.3) is known; quadrature of an indicator on 1000 points is not this good.
    problem = nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(theta, 0.5),
        g=lambda x, theta: x[..., 0],
        f=lambda j: (j > 0.3).astype(float),
        exact=float(ndtr(-0.3)),
    )
    errors = [
        abs(nq.estimate(problem, method="ckq", budget=1000, rng=s).value - problem.exact)
        for s in range(3)
    ]
    assert max(errors) < 1e-3


def test_several_outputs_and_combine():
    problem = nq.problems.health()
    est = nq.estimate(problem, method="ckq", budget=1500, rng=1)
    assert abs(est.value - problem.exact) < 30
    assert len(est.diagnostics["answers"]) == 3


def test_the_trace_grows_within_the_budget_and_evaluates_nothing_twice():
    seen = []

    def g(x, theta):
        seen.append(np.broadcast_shapes(x.shape[:-1], theta.shape[:-1]))
        return x[..., 0] * theta[..., 0]

    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(1.0, 1.0), g, f=lambda j: j**2)
    est = nq.estimate(problem, method="ckq", budget=900, rng=0)
    assert sum(a * b for a, b in seen) == est.n_evaluations <= 900
    sizes = [step.n_evaluations for step in est.trace]
    assert sizes == sorted(set(sizes))
    assert abs(est.value - 1.0) < 1e-3  # E[θ²]


def test_fixed_sizes_are_kept():
    est = nq.estimate(nq.problems.finance(), method=nq.CKQ(n_outer=12, n_inner=20), rng=0)
    fresh = est.diagnostics["check"]["n_draws"]
    assert (est.n_outer, est.n_inner, est.n_evaluations - fresh) == (12, 20, 240)
    assert fresh < 0.2 * 240


def test_log_is_chosen_where_j_runs_over_decades():
    est = nq.estimate(nq.problems.eig_linear(), method="ckq", budget=4000, rng=0)
    assert est.diagnostics["surrogate"].startswith("log J")


def test_positive_is_refused_where_j_is_not():
    with pytest.raises(nq.InputError, match="positive"):
        nq.estimate(nq.problems.finance(), method=nq.CKQ(positive=True), budget=500, rng=0)


@pytest.mark.parametrize("bad", [{"n_outer": 3}, {"n_inner": 1}, {"n_outer": 2.5}])
def test_bad_settings(bad):
    with pytest.raises(nq.InputError, match=next(iter(bad))):
        nq.CKQ(**bad)


def test_too_small_a_budget_is_refused():
    with pytest.raises(nq.InputError, match="budget"):
        nq.estimate(nq.problems.finance(), method="ckq", budget=10)


def test_noise_that_nothing_explains_gets_an_honest_bar():
    # g is white noise in x: no rule, control or kernel helps, and J = θ.
    problem = nq.NestedExpectation(
        nq.Normal(),
        nq.Uniform(dim=2),
        g=lambda x, theta: theta[..., 0] + np.sin(1e7 * x[..., 0] + 3e6 * x[..., 1]),
        f=lambda j: j**2,
        exact=1.0,
    )
    runs = [nq.estimate(problem, method="ckq", budget=1000, rng=s) for s in range(8)]
    covered, width = judged(runs, 1.0)
    assert covered >= 7 / 8
    assert is_near(width, 3.3)
    assert np.median([run.std_error for run in runs]) < 0.15


def test_theta_without_influence():
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Uniform(), g=lambda x, theta: np.exp(x[..., 0]), f=lambda j: j**2
    )
    est = nq.estimate(problem, method="ckq", budget=600, rng=0)
    assert est.value == pytest.approx((np.e - 1) ** 2, abs=1e-6)
    assert abs(est.value - (np.e - 1) ** 2) <= 2 * est.std_error + 1e-12


def test_turns_are_few():
    est = nq.estimate(nq.problems.synthetic(), method="ckq", budget=10_000, rng=0)
    assert len(est.trace) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic", "finance", "rainforth", "eig-linear", "health"])
def test_coverage(name):
    covered, width = study(nq.problems.get(name), 40, method="ckq", budget=2000)
    assert covered >= 0.85
    assert width > 1.5
