"""Values whose squares are out of range."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq

METHODS = ["auto", "nmc", "nqmc", "nkq", "ckq", "joint", "mlmc", "mlkq", "lsmc"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [2.0**-660])
def test_answers_do_not_depend_on_the_unit_of_g(method, factor):
    plain = nq.problems.finance()
    scaled = nq.NestedExpectation(
        outer=plain.outer_law,
        inner=plain.inner,
        g=lambda x, theta: factor * np.asarray(plain.g(x, theta)),
        f=lambda j: plain.f(j / factor),
    )
    found = nq.estimate(scaled, method=method, budget=1024, rng=0)
    expected = nq.estimate(plain, method=method, budget=1024, rng=0)
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert found.std_error == pytest.approx(expected.std_error, rel=1e-6)
    assert found.sample.j.max() == pytest.approx(factor * expected.sample.j.max())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [1e-250, 1e200])
def test_the_unit_of_a_likelihood_and_of_the_answer(method, factor):
    def problem(factor, f):
        return nq.NestedExpectation(
            nq.Normal(),
            nq.Normal(),
            lambda x, theta: factor * np.exp(-0.5 * (x[..., 0] - theta[..., 0]) ** 2),
            f,
        )

    # E exp(-(x - θ)²/2) = exp(-θ²/4)/√2, and the mean of its logarithm is -1/4 - log(2)/2.
    logs = nq.estimate(problem(factor, lambda j: np.log(j / factor)), method=method, budget=1000,
                       rng=0)  # fmt: skip
    plain = nq.estimate(problem(1.0, np.log), method=method, budget=1000, rng=0)
    assert abs(logs.value + 0.25 + 0.5 * np.log(2)) < 6 * logs.std_error + 1e-9
    # Factors are no powers of two, so last bits differ, and on them hang the terms of LSMC and the
    # draws of learned methods, whose quantiles have an error of their own.
    learned = dict.fromkeys(("lsmc", "ckq", "joint", "auto"), 3.0)
    most = learned.get(method, 1.01)
    assert 1 / most < logs.std_error / plain.std_error < most
    means = nq.estimate(problem(factor, None), method=method, budget=1000, rng=0)
    assert 0 < means.std_error < factor
    assert abs(means.value / factor - 1 / np.sqrt(3)) < 6 * means.std_error / factor
    low, high = means.interval()
    assert low < means.value < high


def test_outputs_keep_units_of_their_own():
    def g(x, theta):
        smooth = np.exp(x[..., 0] * theta[..., 0])
        return np.stack([smooth, 1e9 * smooth, 1e-180 * smooth], axis=-1)

    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, lambda j: j**1)
    for method in METHODS:
        est = nq.estimate(problem, method=method, budget=1000, rng=0)
        relative = est.std_error / est.value
        assert (relative < 4.0 * relative[0] + 1e-12).all()
        assert (relative > relative[0] / 4.0 - 1e-12).all()
        assert (abs(est.value / [1, 1e9, 1e-180] - 1.3179021514544038) < 6 * relative + 1e-9).all()


def test_a_tolerance_in_the_units_of_the_answer():
    plain = nq.problems.finance()
    problem = nq.NestedExpectation(
        plain.outer_law,
        plain.inner,
        lambda x, theta: 1e-200 * np.asarray(plain.g(x, theta)),
        plain.f,
    )
    expected = nq.estimate(plain, tol=0.02, budget=40_000, rng=0)
    est = nq.estimate(problem, tol=0.02e-200, budget=40_000, rng=0)
    assert est.status == expected.status == "converged"
    assert est.half_width <= 0.02e-200
    assert est.value == pytest.approx(1e-200 * expected.value, rel=1e-9)
    certified = nq.estimate(problem, budget=4000, rng=0, certify=True).certified
    assert abs(certified.value - 1e-200 * plain.exact) < 3 * certified.half_width < 1e-199


def test_a_model_of_j_in_the_units_of_g():
    plain = nq.problems.synthetic()
    problem = nq.NestedExpectation(
        plain.outer_law, plain.inner, lambda x, theta: 1e200 * np.asarray(plain.g(x, theta))
    )
    J = nq.conditional(problem, budget=1024, rng=0)
    assert J([0.25]) == pytest.approx(1e200 * (2 / 7 + 0.25**2.5), rel=1e-3)
    value, sd = J([0.25], return_std=True)
    assert 0 < sd < value


@pytest.mark.parametrize("method", ["ckq", "joint", "lsmc", "nqmc", "auto"])
def test_bars_scale_with_g_where_units_begin(method):
    """The mean of f(J) may need a unit of its own where f(J) at the first points needs none."""

    def scaled(s):
        return nq.NestedExpectation(
            nq.Normal(),
            lambda theta: nq.Normal(theta),
            lambda x, theta: s * (np.exp(0.3 * x[..., 0]) + theta[..., 0]),
        )

    expected = nq.estimate(scaled(1.0), budget=500, method=method, rng=0)
    for k in (-66, -62, 62, 66, 660):
        est = nq.estimate(scaled(2.0**k), budget=500, method=method, rng=0)
        assert est.value == pytest.approx(2.0**k * expected.value, rel=1e-9)
        assert est.std_error == pytest.approx(2.0**k * expected.std_error, rel=0.05), k


@pytest.mark.parametrize("k", [64])
def test_certified_bars_scale_with_g_where_units_begin(k):
    s = 2.0**k

    def certified(s):
        return nq.estimate(
            nq.NestedExpectation(
                nq.Normal(),
                lambda theta: nq.Normal(theta),
                lambda x, theta: s * (np.exp(0.3 * x[..., 0]) + theta[..., 0]),
                lambda j: np.maximum(j, s),
            ),
            budget=2048,
            method="ckq",
            rng=0,
            certify=True,
        ).certified

    expected = certified(1.0)
    assert certified(s).std_error == pytest.approx(s * expected.std_error, rel=0.05)
