"""Statuses: refusing is an answer, and says what would help."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma

import nestquad as nq

METHODS = ["auto", "joint", "ckq", "lsmc", "nmc", "nqmc", "nkq", "mlmc", "mlkq"]


def jump(j):
    return (j > 1.0) + 0.0


def nothing(x, theta):
    return 0.0 * (x[..., 0] + theta[..., 0])


def wild(x, theta):
    """Products of log-normals: more than 10⁴ evaluations are needed for a digit."""
    return np.exp(4.0 * x[..., 0] + 0.1 * theta[..., 0])


def jagged(x, theta):
    """J jumps 400 times, far more often than any model follows."""
    return np.sign(np.sin(400.0 * np.pi * theta[..., 0])) + 0.1 * x[..., 0]


def notes(est, words):
    return [note for note in est.diagnostics["notes"] if words in note]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("goal", [{"budget": 1000}, {"tol": 0.01, "budget": 2000}])
def test_nothing_seen_is_no_answer(method, goal):
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), nothing, jump)
    est = nq.estimate(problem, method=method, rng=0, **goal)
    assert est.status == "unreliable"
    assert est.half_width == np.inf
    assert len(notes(est, "g or f(J) has the same value at all points")) == 1
    assert notes(est, "more evaluations or another proposal")
    assert not notes(est, "wider than f(J) varies")
    assert "says little" in est.status_text


def peak(width, center):
    def g(x, theta):
        away = ((theta - center) ** 2).sum(axis=-1)
        return np.exp(-away / (2.0 * width**2)) * (1.0 + 0.3 * x[..., 0])

    return g


@pytest.mark.parametrize("method", ["auto", "joint", "nmc", "nqmc", "nkq"])
@pytest.mark.parametrize(("width", "dim"), [(0.02, 5), (0.05, 5), (0.05, 3)])
def test_the_tail_of_a_narrow_peak_says_nothing_of_its_height(method, width, dim):
    """J never reaches the kink of f at 0.1 where the points are, and E f(J) > 0."""
    center = np.linspace(0.3, 0.7, dim)
    problem = nq.NestedExpectation(
        nq.Uniform(dim=dim), nq.Normal(), peak(width, center), lambda j: np.maximum(j - 0.1, 0.0)
    )
    radius = width * np.sqrt(2.0 * np.log(10.0))
    shell = 2.0 * np.pi ** (dim / 2) / gamma(dim / 2)
    exact, _ = quad(
        lambda r: shell * r ** (dim - 1) * (np.exp(-(r**2) / (2.0 * width**2)) - 0.1), 0.0, radius
    )
    runs = [nq.estimate(problem, method=method, budget=1000, rng=seed) for seed in range(4)]
    assert sum(abs(est.value - exact) <= est.half_width for est in runs) >= 3
    for est in runs:
        if est.half_width == np.inf:
            assert est.status == "unreliable"
            seen = notes(est, "g or f(J) has the same value at all points")
            assert seen or notes(est, "a heavy tail")


HEAVY = {
    "two levels": nq.NestedExpectation(
        nq.LogNormal(0.0, 2.0), nq.Normal, lambda x, theta: x[..., 0] ** 3, np.abs
    ),
    "three levels": nq.RepeatedExpectation(
        [nq.LogNormal(0.0, 2.0), nq.Normal, lambda a, b: nq.Normal(b)],
        lambda y, a, b: y[..., 0] ** 3,
        [np.abs, None],
    ),
}


@pytest.mark.parametrize("problem", HEAVY.values(), ids=HEAVY)
def test_a_heavy_tail_is_said(problem):
    """E exp(6 z) for a normal z is decided where z = 6, which one of 1e9 draws reaches."""
    exact = np.exp(18.0)
    found = [nq.estimate(problem, budget=500, rng=seed) for seed in range(4)]
    assert sum(abs(est.value - exact) <= est.half_width for est in found) >= 3
    assert sum(bool(notes(est, "a heavy tail")) for est in found) >= 3


@pytest.mark.parametrize("method", ["auto", "joint"])
def test_a_light_tail_is_not_called_heavy(method):
    """E exp(2 z) is decided where z = 2."""
    problem = nq.NestedExpectation(nq.LogNormal(0.0, 2.0), nq.Normal, lambda x, t: x[..., 0])
    est = nq.estimate(problem, budget=500, method=method, rng=0)
    assert not notes(est, "a heavy tail")
    assert abs(est.value - np.exp(2.0)) <= est.half_width < 0.5


def test_the_limit_of_a_sequence_is_no_failure():
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), nothing, jump)
    est = nq.estimate(problem, method="ckq", tol=0.01, budget=3_000_000, rng=0)
    assert est.status == "unreliable"


def test_nothing_seen_is_an_answer_where_f_cannot_change():
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), nothing, lambda j: 0.0 * j + 3.0)
    est = nq.estimate(problem, budget=1000, rng=0, method="joint")
    assert est.status == "done"
    assert est.value == pytest.approx(3.0, rel=1e-14)
    assert est.half_width < 1e-9


@pytest.mark.parametrize("method", ["nqmc", "nkq", "joint"])
def test_a_bar_wider_than_the_spread_of_f_says_little(method):
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), wild)
    runs = [nq.estimate(problem, method=method, budget=400, rng=seed) for seed in range(4)]
    wide = [est for est in runs if est.sample.spread < est.half_width < np.inf]
    assert wide
    for est in runs:
        said = notes(est, "wider than f(J) varies over theta: more evaluations would help")
        heavy = bool(notes(est, "a heavy tail")) and np.isinf(est.half_width)
        assert (len(said) == 1) == (est in wide)
        assert (est.status == "unreliable") == (est in wide or heavy)


def test_a_model_that_explains_little_says_so():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Normal(), jagged, np.square)
    est = nq.estimate(problem, method="joint", budget=1500, rng=0)
    # Of Var J = 1, next to nothing is known. E J² = 1.
    assert est.diagnostics["check"]["share"] > 0.5
    assert notes(est, "of the variance of J unexplained: another parametrization")
    assert abs(est.value - 1.0) <= est.half_width
    smooth = nq.estimate(nq.problems.finance(), method="joint", budget=1500, rng=0)
    assert smooth.diagnostics["check"]["share"] < 0.01
    assert smooth.status == "done"
    assert not notes(smooth, "unexplained")


@pytest.mark.parametrize("method", ["auto", "joint"])
def test_where_the_average_over_theta_limits_more_evaluations_cannot_help(method):
    problem = nq.problems.health()
    est = nq.estimate(problem, method=method, tol=1e-9, budget=100_000, rng=0)
    assert est.status == "limit"
    assert est.n_evaluations < 5000
    assert notes(est, "more evaluations of g cannot help")
    assert est.half_width > 1e-9
    assert abs(est.value - problem.exact) <= 2.0 * est.half_width
    assert est.status_text == "the method cannot come closer to the tolerance"
