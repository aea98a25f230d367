"""Conditional kernel quadrature: accuracy, growth, error bars, and what it refuses."""

import numpy as np
import pytest
from scipy.special import ndtr

import nestquad as nq
from nestquad.methods._control import ControlVariates, tiers
from nestquad.methods._dense import dense_sets, scores_of
from nestquad.points import Stream


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("synthetic", 1e-4),
        ("finance", 0.06),
        ("rainforth", 5e-3),
        ("eig-linear", 5e-3),
        ("gaussian-es", 1e-5),
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


def test_same_seed_same_bits():
    problem = nq.problems.finance()
    one, two = (nq.estimate(problem, method="ckq", budget=600, rng=3) for _ in range(2))
    assert one.value == two.value
    assert one.std_error == two.std_error
    assert nq.estimate(problem, method="ckq", budget=600, rng=4).value != one.value


def test_fixed_sizes_are_kept():
    est = nq.estimate(nq.problems.finance(), method=nq.CKQ(n_outer=12, n_inner=20), rng=0)
    assert (est.n_outer, est.n_inner, est.n_evaluations) == (12, 20, 240)


def test_log_is_chosen_where_j_runs_over_decades():
    est = nq.estimate(nq.problems.eig_linear(), method="ckq", budget=4000, rng=0)
    assert est.diagnostics["surrogate"].startswith("log J")


def test_positive_is_refused_where_j_is_not():
    with pytest.raises(nq.InputError, match="positive"):
        nq.estimate(nq.problems.finance(), method=nq.CKQ(positive=True), budget=500, rng=0)


@pytest.mark.parametrize(
    "bad", [{"n_outer": 3}, {"n_inner": 1}, {"inflation": 0.5}, {"n_outer": 2.5}]
)
def test_bad_settings(bad):
    with pytest.raises(nq.InputError, match=next(iter(bad))):
        nq.CKQ(**bad)


def test_too_small_a_budget_is_refused():
    with pytest.raises(nq.InputError, match="budget"):
        nq.estimate(nq.problems.finance(), method="ckq", budget=10)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("law", ["normal", "uniform"])
def test_dense_sets_integrate_moments(dim, law):
    law = nq.Normal(dim=dim) if law == "normal" else nq.Uniform(dim=dim)
    sets = dense_sets(law, Stream.from_rng(0))
    for dense in sets:
        assert dense.weights.sum() == pytest.approx(1.0)
        second = dense.average(dense.scores**2)
        np.testing.assert_allclose(second, 1.0, rtol=2e-3 if dim > 2 else 3e-4)


def test_scores_have_unit_variance():
    u = (np.arange(2000)[:, None] + 0.5) / 2000
    for law in (nq.Normal(), nq.Uniform(3.0, 8.0), nq.LogNormal()):
        assert scores_of(law, u).std() == pytest.approx(1.0, rel=1e-2)


@pytest.mark.parametrize("dim", [1, 3, 6])
def test_control_variates_have_mean_zero(dim):
    functions = ControlVariates(True, dim <= 5, dim > 1, True)
    n = 2**14
    uniform = nq.Sobol().uniforms(Stream.from_rng(1), dim, (0, 1), (0, n))
    scores = np.array([[0.7, -1.2]])
    matrix = functions.matrix(uniform, scores)
    assert matrix.shape == (1, n, functions.count(dim, 2))
    np.testing.assert_allclose(matrix.mean(axis=1), 0.0, atol=0.02)


def test_control_variates_need_values():
    assert tiers(17, 2, 50) is None
    small, large = tiers(17, 2, 1000), tiers(17, 2, 100_000)
    assert small.count(17, 2) * 8 <= 1000
    assert large.pairs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic", "finance", "rainforth", "eig-linear", "health"])
def test_coverage(name):
    problem = nq.problems.get(name)
    runs = [nq.estimate(problem, method="ckq", budget=2000, rng=s) for s in range(40)]
    covered = [run.interval()[0] <= problem.exact <= run.interval()[1] for run in runs]
    assert np.mean(covered) >= 0.85
