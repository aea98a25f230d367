"""The joint lattice: accuracy, error bars, limits."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from intervals import is_near, study
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

import nestquad as nq
from nestquad.errors import InputError
from nestquad.methods import Goal, Learned, LearnedDesign, Turn
from nestquad.points import Stream

JointLattice = nq.JointLattice


def test_exact_on_polynomials_of_normals():
    # J = θ1² + θ2 + 1 and f keeps it: E = 1 + 0 + 1.
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(2), 1.0),
        lambda theta: nq.Normal(theta, 1.0),
        lambda x, theta: x[..., 0] ** 2 + x[..., 1] * (1.0 + x[..., 0] - theta[..., 0]),
        exact=2.0,
    )
    est = nq.estimate(problem, method=JointLattice(), budget=1000, rng=0)
    assert abs(est.value - 2.0) < 1e-6
    assert "without residuals for a kernel" in " ".join(est.diagnostics["notes"])


def mean_error(problem, method, budget, seeds):
    return np.mean(
        [
            abs(nq.estimate(problem, method=method, budget=budget, rng=s).value - problem.exact)
            for s in range(seeds)
        ]
    )


def test_kernel_alone_converges():
    problem = nq.problems.synthetic()
    method = JointLattice(trend=False, periodization="tent")
    errors = [mean_error(problem, method, 2**m, 3) for m in (7, 10, 13)]
    assert errors[1] < errors[0]
    assert errors[2] < errors[0] / 50


@pytest.mark.parametrize(
    ("name", "budget", "most"),
    [
        ("synthetic", 1024, 1e-8),
        ("finance", 4096, 6e-3),
        ("rainforth", 1024, 3e-5),
        ("eig-linear", 1024, 2e-3),
        ("health", 1024, 0.05),
        ("gaussian-es", 512, 1e-6),
        ("synthetic10", 1024, 3e-4),
    ],
)
def test_accuracy(name, budget, most):
    assert mean_error(nq.problems.get(name), JointLattice(), budget, 6) < most


def test_shifts_times_a_power_of_two_use_most_of_a_budget():
    problem = nq.problems.finance()
    est = nq.estimate(problem, method="joint", budget=1000, rng=0)
    assert est.n_evaluations == 1000
    # Six shifts of 128 points; pairs have the rest.
    assert est.n_outer == 768 == 1000 - est.diagnostics["check"]["n_draws"]
    est = nq.estimate(problem, method=JointLattice(640), rng=0)
    assert est.n_outer == 640
    assert est.n_evaluations == 640 + est.diagnostics["check"]["n_draws"]
    with pytest.raises(nq.InputError, match="times a power of two"):
        JointLattice(1000)
    smooth = nq.problems.rainforth()
    more, fewer = (mean_error(smooth, JointLattice(), n, 3) for n in (2000, 512))
    assert more < 0.5 * fewer


def test_tolerance_is_met_and_nothing_is_evaluated_twice():
    problem = nq.problems.finance()
    calls = []

    def g(x, theta):
        values = problem.g(x, theta)
        calls.append(values.size)
        return values

    counted = nq.NestedExpectation(problem.outer, problem.inner, g, problem.f)
    est = nq.estimate(counted, method=JointLattice(), tol=0.01, rng=1)
    assert est.status == "converged"
    assert len(est.trace) > 1
    assert abs(est.value - problem.exact) < 0.01
    assert sum(calls) == est.n_evaluations
    # Growth follows the rate instead of doubling past the tolerance.
    assert 1.959964 * est.std_error > 0.001


def test_a_rough_j_and_noise_in_x_are_both_covered():
    # At one x for each θ both look the same. Fresh draws, two x at a θ, tell.
    def problem(rough):
        def g(x, theta):
            wild = theta[..., 0] if rough else x[..., 0]
            return np.sign(np.sin(2 * np.pi * 200 * wild)) + x[..., 0]

        exact = 0.25 + (1.0 if rough else 0.0)
        return nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, np.square, exact=exact)

    def runs(rough):
        return [
            nq.estimate(problem(rough), method="joint", budget=1000, rng=seed) for seed in range(6)
        ]

    for rough, exact in ((True, 1.25), (False, 0.25)):
        intervals = [est.interval() for est in runs(rough)]
        assert sum(low <= exact <= high for low, high in intervals) >= 4
    # Two independent x at a θ tell noise from roughness.
    assert np.median([est.std_error for est in runs(rough=False)]) < 0.1


@pytest.mark.parametrize(("half_width", "most"), [(0.5, 2.1), (0.25, 2.4), (1e-9, 4.1)])
def test_growth_depends_on_what_is_missing(half_width, most):
    problem, stream = nq.problems.finance(), Stream.from_rng(0)
    goal = Goal(stream, 10**6, adaptive=True, half_width=half_width)

    def grown(n):
        grid = JointLattice().plan(problem, Goal(stream, 10**6, adaptive=True)).grids[0]
        design = LearnedDesign((replace(grid, n_outer=n),))
        check = SimpleNamespace(n_draws=512)  # as many as there are at most
        state = Learned(None, None, np.ones(1), {"average": 0.0}, rate=1.0, check=check)
        found = nq.Estimate(3.0, 0.26, n, n, 1, "joint")
        return JointLattice().plan(problem, goal, Turn(design, found, state)).grids[0].n_outer

    # Lattices double.
    assert max(1.5, most - 0.5) < grown(512) / 512 < most
    assert grown(2048) >= 4096
    assert grown(2048) & (grown(2048) - 1) == 0


def test_shifts_of_the_average_see_a_jump_of_f():
    # g is a polynomial, so that only the average over θ is uncertain.
    problem = nq.NestedExpectation(
        nq.Normal(),
        nq.Normal(),
        lambda x, theta: (theta[..., 0] + x[..., 0]) ** 2,
        lambda j: (j > 2.0).astype(float),
        exact=2 * ndtr(-1.0),
    )
    assert study(problem, 10, method="joint", budget=200)[0] >= 0.9


def test_budget_ends_growth():
    est = nq.estimate(nq.problems.finance(), method="joint", tol=1e-9, budget=1500, rng=0)
    assert est.status == "budget"
    assert 1000 < est.n_evaluations <= 1500


@pytest.mark.parametrize("budget", [16, 100, 2047, 3000])
def test_budget_is_respected(budget):
    est = nq.estimate(nq.problems.synthetic(), method="joint", budget=budget, rng=0)
    assert budget / 2 < est.n_evaluations <= budget
    assert np.isfinite(est.std_error)


def test_several_answers_have_a_covariance():
    problem = nq.NestedExpectation(
        nq.Normal(),
        lambda theta: nq.Normal(theta, 1.0),
        lambda x, theta: np.stack([x[..., 0], np.maximum(x[..., 0], 0.0)], axis=-1),
        lambda j: np.stack([j[:, 0] ** 2, np.maximum(j[:, 0], 0), j[:, 1]], axis=-1),
        exact=(1.0, 1 / np.sqrt(2 * np.pi), 1 / np.sqrt(np.pi)),
    )
    est = nq.estimate(problem, method="joint", budget=1024, rng=0)
    assert est.value.shape == est.std_error.shape == (3,)
    assert np.abs(est.value - problem.exact).max() < 1e-3
    assert np.linalg.eigvalsh(est.covariance).min() > -1e-12 * np.trace(est.covariance)
    np.testing.assert_allclose(np.sqrt(np.diagonal(est.covariance)), est.std_error)


def test_a_positive_g_keeps_its_logarithm():
    est = nq.estimate(nq.problems.eig_linear(2), method="joint", budget=200, rng=0)
    assert np.isfinite(est.value)
    assert np.all(est.sample.j > 0)


def test_noise_stays_bounded():
    # Near the ends of θ the density is tiny, and noise over it would be huge.
    problem = nq.NestedExpectation(
        nq.Uniform(),
        nq.Uniform(),
        lambda x, theta: theta[..., 0] + np.sign(np.sin(1e4 * x[..., 0] + 1e3 * theta[..., 0])),
        np.square,
        exact=1 / 3,
    )
    est = nq.estimate(problem, method="joint", budget=1024, rng=2)
    assert abs(est.value - 1 / 3) < 0.3
    assert abs(est.value - 1 / 3) < 5 * est.std_error


@pytest.mark.parametrize(
    "options",
    [
        {"n_outer": 3},
        {"n_outer": 3000},
        {"n_outer": 64.0},
        {"periodization": "triangle"},
        {"orders": ()},
        {"orders": (4,)},
    ],
)
def test_bad_options(options):
    with pytest.raises(InputError):
        JointLattice(**options)


def test_too_small_a_budget():
    with pytest.raises(InputError, match="at least 16"):
        nq.estimate(nq.problems.synthetic(), method="joint", budget=8)
    with pytest.raises(InputError, match="at least 64"):
        nq.estimate(nq.problems.synthetic(), method=JointLattice(n_outer=64), budget=32)


@pytest.mark.parametrize("role", ["outer", "inner"])
def test_laws_without_transport_are_refused(role):
    sampler = nq.Sampler(lambda n, rng: rng.normal(size=(n, 1)), dim=1)
    laws = {"outer": nq.Normal(), "inner": nq.Normal(), role: sampler}
    problem = nq.NestedExpectation(laws["outer"], laws["inner"], lambda x, t: x[..., 0])
    with pytest.raises(InputError, match=f"^{role}"):
        nq.estimate(problem, method="joint", budget=100)


# Where lattices are nearly exact their bars are wide.
@pytest.mark.parametrize(
    ("name", "wanted"), [("synthetic", 18.0), ("finance", 3.8), ("rainforth", 5.3)]
)
def test_error_bars_cover(name, wanted):
    covered, width = study(nq.problems.get(name), 10, method="joint", budget=300)
    assert covered >= 0.8
    assert is_near(width, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1000, 10_000])
@pytest.mark.parametrize("name", nq.problems.names())
def test_error_bars_cover_everywhere(name, budget):
    covered, width = study(nq.problems.get(name), 40, method="joint", budget=budget)
    assert covered >= 0.87
    assert width > 1.5


def test_a_mean_of_what_is_never_negative_is_not():
    # A stop-loss of a log-normal claim is often zero, and log1p takes nothing below -1.
    def layer(mean, sd=0.6, retention=3.0):
        forward = np.exp(mean + sd**2 / 2)
        d = (np.log(forward / retention) + sd**2 / 2) / sd
        return forward * ndtr(d) - retention * ndtr(d - sd)

    exact = quad(lambda z: np.log1p(layer(0.5 * z + 0.2)) * norm.pdf(z), -12, 12)[0]
    problem = nq.NestedExpectation(
        nq.Normal(),
        nq.Normal(),
        lambda x, theta: np.maximum(np.exp(0.5 * theta[..., 0] + 0.2 + 0.6 * x[..., 0]) - 3.0, 0.0),
        np.log1p,
    )
    for seed in range(8):
        est = nq.estimate(problem, method="joint", budget=400, rng=seed)
        assert abs(est.value - exact) < 0.01


def test_a_mean_of_what_is_positive_has_a_root():
    """g is above zero with values close to it, and a root takes zero but nothing below."""
    problem = nq.NestedExpectation(
        nq.Normal(),
        nq.Normal(),
        lambda x, theta: np.exp(2.0 * theta[..., 0] + x[..., 0]),
        np.sqrt,
    )
    exact = np.exp(0.25 + 0.5)  # √J = exp(θ + 1/4)
    found = [nq.estimate(problem, method="joint", budget=400, rng=seed) for seed in range(8)]
    errors = np.array([est.value - exact for est in found])
    assert np.mean(np.abs(errors)) < 0.01 * exact
    assert np.sum(np.abs(errors) <= [est.interval()[1] - est.value for est in found]) >= 7


def test_densities_that_underflow_keep_their_logarithm():
    z, w = np.polynomial.hermite_e.hermegauss(150)

    def evidence(y):
        return norm.pdf(y[:, None] - z**3 / 3) @ (w / w.sum())

    nodes, weights = np.polynomial.legendre.leggauss(600)
    at = evidence(20 * nodes)
    exact = -20 * weights @ (at * np.log(np.maximum(at, 1e-300)))
    problem = nq.NestedExpectation(
        nq.Normal(dim=2),
        nq.Normal(),
        lambda x, theta: norm.pdf(theta[..., 0] ** 3 / 3 + theta[..., 1] - x[..., 0] ** 3 / 3),
        lambda j: -np.log(j),
    )
    for seed in range(3):
        est = nq.estimate(problem, method="joint", budget=2048, rng=seed)
        assert abs(est.value - exact) < min(0.1, 2 * 1.96 * est.std_error)


def test_the_mean_of_a_g_that_is_mostly_zero_has_no_bias():
    """Ĵ is below zero about as often as above where J is nearly zero; its mean is that of g."""
    problem = nq.NestedExpectation(
        nq.Normal(np.zeros(6)),
        nq.Normal(np.zeros(6)),
        lambda x, theta: np.maximum((x.sum(-1) + theta.sum(-1)) / math.sqrt(12) - 1.5, 0.0),
    )
    exact = norm.pdf(1.5) - 1.5 * norm.sf(1.5)
    found = [nq.estimate(problem, method="joint", budget=4000, rng=s).value for s in range(4)]
    # A bound of zero made each of them too large by 14 to 20 %.
    assert np.mean(found) == pytest.approx(exact, rel=0.06)
