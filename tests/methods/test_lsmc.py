"""Least-squares Monte Carlo: exact on polynomials, honest elsewhere."""

import numpy as np
import pytest

import nestquad as nq


def quadratic_problem():
    # J(θ) = θ² + 1, so E[J²] = E[θ⁴] + 2 E[θ²] + 1 = 6.
    return nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(theta, 1.0),
        g=lambda x, theta: x[..., 0] ** 2,
        f=np.square,
        exact=6.0,
    )


def test_polynomials_are_learned_exactly():
    problem = quadratic_problem()
    est = nq.estimate(problem, method="lsmc", budget=1024, rng=0)
    # What is left is the error of the dense average of a quartic.
    assert est.value == pytest.approx(6.0, rel=2e-3)
    assert est.n_evaluations <= 1024


def test_a_fixed_degree_is_not_more_than_it_says():
    # A straight line through J = θ² + 1 is its mean, 2, and f of that is 4.
    est = nq.estimate(
        quadratic_problem(), method=nq.LSMC(degree=1, control_variates=False), budget=8192, rng=0
    )
    assert est.value == pytest.approx(4.0, abs=0.25)


@pytest.mark.parametrize(("name", "error"), [("health", 5.0), ("synthetic", 1e-4)])
def test_accuracy_on_smooth_problems(name, error):
    problem = nq.problems.get(name)
    est = nq.estimate(problem, method="lsmc", budget=2048, rng=3)
    assert abs(est.value - problem.exact) < error


def test_a_kinked_f_is_covered_by_the_error_bar():
    problem = nq.problems.finance()
    runs = [nq.estimate(problem, method="lsmc", budget=2048, rng=s) for s in range(8)]
    covered = [abs(run.value - problem.exact) <= 1.96 * run.std_error for run in runs]
    assert np.mean(covered) >= 0.75


def test_same_seed_same_bits():
    problem = nq.problems.finance()
    one, two, other = (
        nq.estimate(problem, method="lsmc", budget=512, rng=s).value for s in (1, 1, 2)
    )
    assert one == two != other


def test_every_point_is_evaluated_once():
    seen = []

    def g(x, theta):
        seen.append(np.broadcast_shapes(x.shape[:-1], theta.shape[:-1]))
        return x[..., 0] + theta[..., 0]

    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, f=np.square)
    est = nq.estimate(problem, method="lsmc", budget=700, rng=0)
    assert sum(a * b for a, b in seen) == est.n_evaluations <= 700
    assert est.value == pytest.approx(13 / 12, rel=1e-4)  # E[(θ + ½)²]
