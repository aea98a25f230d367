"""Search for designs against closed forms: corners, constraints, costs, levels, exchange."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from scipy.stats import norm

import nestquad as nq
from nestquad import design
from nestquad.design._compare import DesignComparison
from nestquad.design._linear import Linearized
from nestquad.design._optimize import Tried, _combined
from nestquad.points import Stream

SETTINGS = {"budget": 4000, "simulations": 4096, "rng": 1}


def polynomial(degree, points, noise=0.3, simulate=None):
    """Coefficients with standard normal prior, observed at several points."""

    def mean(theta, d):
        powers = np.asarray(d, dtype=float)[:, None] ** np.arange(degree + 1)
        return np.einsum("...j,ij->...i", theta, powers)

    return design.Experiment(
        prior=nq.Normal(np.zeros(degree + 1)),
        log_prob=lambda y, theta, d: norm.logpdf(y, mean(theta, d), noise).sum(axis=-1),
        simulate=simulate or (lambda theta, e, d: mean(theta, d) + noise * e),
        noise=nq.Normal(np.zeros(points)),
    )


def polynomial_gain(d, degree, noise=0.3):
    x = np.asarray(d, dtype=float)[:, None] ** np.arange(degree + 1)
    return 0.5 * np.linalg.slogdet(np.eye(len(x)) + x @ x.T / noise**2)[1]


def test_corners_are_reached_and_the_regret_holds():
    best = design.optimize(polynomial(2, 3), [(-1.0, 1.0)] * 3, **SETTINGS)
    top = polynomial_gain([-1.0, 0.0, 1.0], 2)
    regret = top - polynomial_gain(best.design, 2)
    assert np.abs(np.sort(best.design) - [-1.0, 0.0, 1.0]).max() < 0.05
    assert regret <= 1e-3
    assert regret <= best.regret + 1e-12
    assert best.regret < 0.02
    assert best.n_evaluations <= 4000


def test_a_search_without_likelihood_follows_the_bound():
    simulator = polynomial(1, 2)
    simulator = design.Experiment(
        prior=simulator.prior, simulate=simulator.simulate, noise=simulator.noise
    )
    best = design.optimize(simulator, [(-1.0, 1.0)] * 2, simulations=4096, rng=1)
    assert np.allclose(np.sort(best.design), [-1.0, 1.0], atol=1e-3)
    assert best.estimate.interval()[1] == np.inf


@pytest.mark.parametrize(
    "rule", [LinearConstraint([[1.0, 1.0]], -np.inf, 0.5), lambda d: 0.5 - d.sum()]
)
def test_constraints_are_kept(rule):
    best = design.optimize(polynomial(1, 2), [(0.0, 1.0)] * 2, constraints=rule, **SETTINGS)
    exact = minimize(
        lambda d: -polynomial_gain(d, 1),
        [0.4, 0.1],
        bounds=[(0.0, 1.0)] * 2,
        constraints={"type": "ineq", "fun": lambda d: 0.5 - d.sum()},
    )
    assert best.design.sum() <= 0.5 + 1e-6
    assert -exact.fun - polynomial_gain(best.design, 1) < 1e-3


def test_gain_for_each_unit_of_money_and_a_limit_of_money():
    def cost(d):
        return 1.0 + 4.0 * float(np.abs(d).sum())

    def worth(x):
        return polynomial_gain([x], 1) / cost(np.array([x]))

    grid = np.linspace(-1, 1, 2001)
    per_unit = design.optimize(polynomial(1, 1), [(-1.0, 1.0)], cost=cost, **SETTINGS)
    assert max(map(worth, grid)) - worth(per_unit.design[0]) < 1e-3
    within = design.optimize(polynomial(1, 1), [(-1.0, 1.0)], cost=cost, money=3.0, **SETTINGS)
    assert abs(within.design[0]) == pytest.approx(0.5, abs=0.01)
    with pytest.raises(nq.InputError, match="cost"):
        design.optimize(polynomial(1, 1), [(-1.0, 1.0)], money=3.0, **SETTINGS)


def test_whole_numbers_and_words_mix_with_intervals():
    slopes = {"weak": 1.0, "strong": 2.0}

    def mean(theta, d):
        place, dose, kind = d
        return np.exp(-((place - 0.3) ** 2)) * np.sqrt(dose) * slopes[kind] * theta

    experiment = design.Experiment(
        prior=nq.Normal(),
        log_prob=lambda y, theta, d: norm.logpdf(y, mean(theta, d)).sum(axis=-1),
        simulate=lambda theta, e, d: mean(theta, d) + e,
        noise=nq.Normal(),
    )
    axes = [(0.0, 1.0), range(1, 5), design.Levels("weak", "strong")]
    best = design.optimize(experiment, axes, **SETTINGS)
    assert best.design[1:] == (4, "strong")
    assert abs(best.design[0] - 0.3) < 0.1


def test_points_are_exchanged_from_many_candidates():
    grid = np.linspace(-1.0, 1.0, 801)
    best = design.optimize(polynomial(1, 4), candidates=grid, points=4, **SETTINGS)
    assert np.allclose(np.sort(best.design), [-1.0, -1.0, 1.0, 1.0])


def test_a_thousand_candidates_are_screened():
    grid = [np.array([x]) for x in np.linspace(-1.0, 1.0, 1000)]
    best = design.optimize(polynomial(1, 1), candidates=grid, **SETTINGS)
    assert abs(best.design[0]) > 0.99


def test_classical_criteria_have_their_closed_forms():
    experiment, d, noise = polynomial(1, 2), np.array([-1.0, 0.5]), 0.3
    x = d[:, None] ** np.arange(2)
    left = np.linalg.inv(np.eye(2) + x.T @ x / noise**2)
    assert design.optimality(experiment, d) == pytest.approx(polynomial_gain(d, 1), abs=0.02)
    assert design.optimality(experiment, d, "A") == pytest.approx(2 - np.trace(left), rel=0.02)
    over = [np.array([a, a]) for a in (-1.0, 0.0, 1.0)]
    rows = np.array([[1.0, a] for a in (-1.0, 0.0, 1.0)])
    exact = -np.einsum("ij,jk,ik->i", rows, left, rows).mean()
    assert design.optimality(experiment, d, "I", over=over) == pytest.approx(exact, rel=0.05)
    with pytest.raises(nq.InputError, match="over"):
        design.optimality(experiment, d, "I")


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_gradients_are_those_of_differences(library):
    xp = pytest.importorskip(library)

    def simulate(theta, e, d):
        return theta[..., :1] * xp.sin(d) + theta[..., 1:] * xp.cos(2.0 * d) + 0.3 * e

    experiment = design.Experiment(
        prior=nq.Normal(np.zeros(2)), simulate=simulate, noise=nq.Normal(np.zeros(2))
    )
    plain = design.Experiment(
        prior=nq.Normal(np.zeros(2)),
        simulate=lambda t, e, d: t[..., :1] * np.sin(d) + t[..., 1:] * np.cos(2 * d) + 0.3 * e,
        noise=nq.Normal(np.zeros(2)),
    )
    model, numeric = (Linearized.of(one, 512, Stream.from_rng(0)) for one in (experiment, plain))
    d, step = np.array([0.4, 1.1]), 1e-5
    slope = model.gradient(d)
    for i in range(2):
        away = step * np.eye(2)[i]
        difference = (numeric.gain(d + away) - numeric.gain(d - away)) / (2 * step)
        assert slope[i] == pytest.approx(difference, rel=1e-2, abs=1e-4)
    assert numeric.gradient(d) is None


def test_exchanged_points_move_to_better_neighbors():
    axis = np.linspace(-1.0, 1.0, 41)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def features(d):
        a, b = d.T
        return np.stack([np.ones_like(a), a, b, a * a, b * b, a * b], axis=1)

    def mean(theta, d):
        return np.einsum("...j,ij->...i", theta, features(d))

    surface = design.Experiment(
        prior=nq.Normal(np.zeros(6)),
        log_prob=lambda y, theta, d: norm.logpdf(y, mean(theta, d), 0.3).sum(axis=-1),
        simulate=lambda theta, e, d: mean(theta, d) + 0.3 * e,
        noise=nq.Normal(np.zeros(9)),
    )

    def gain(d):
        x = features(d) / 0.3
        return 0.5 * np.linalg.slogdet(np.eye(6) + x.T @ x)[1]

    best = design.optimize(surface, candidates=grid, points=9, **SETTINGS)
    corners = np.array([-1.0, 0.0, 1.0])
    top = gain(np.stack(np.meshgrid(corners, corners), axis=-1).reshape(-1, 2))
    assert top - gain(best.design) <= min(1e-3, best.regret)


def test_candidates_are_screened_where_the_linearized_gain_is_blind():
    # y = d² θ² / (1 + d²): regressions of θ on y and y² see nothing.
    def mean(theta, d):
        return (theta * d) ** 2 / (1 + d**2)

    even = design.Experiment(
        prior=nq.Normal(),
        log_prob=lambda y, theta, d: norm.logpdf(y, mean(theta, d), 0.2)[..., 0],
        simulate=lambda theta, e, d: mean(theta, d) + 0.2 * e,
        noise=nq.Normal(),
    )
    found = design.optimize(even, candidates=list(np.linspace(0.01, 6.0, 200)), **SETTINGS)
    assert found.design > 4.0


def test_a_noisy_estimate_is_drawn_towards_its_bound():
    bounds, errors = np.array([1.0, 0.9, 0.8]), np.array([0.01, 0.01, 0.3])
    answers = [
        nq.Estimate(value, error, 1, 1, 1, "nmc")
        for value, error in zip((1.05, 0.95, 1.2), errors, strict=True)
    ]
    known = [Tried(None, float(value), np.zeros(1)) for value in bounds]
    found = DesignComparison.of([0, 1, 2], answers)
    values, covariance, _spread = _combined(known, found, np.ones(3))
    assert found.best == 2
    assert np.argmax(values) == 0
    assert np.allclose(values[:2], bounds[:2] + 0.05, atol=0.001)
    assert np.all(np.diag(covariance) < errors**2)
    exact = [nq.Estimate(value, 1e-9, 1, 1, 1, "nmc") for value in (1.1, 0.9, 1.5)]
    values, _, _ = _combined(known, DesignComparison.of([0, 1, 2], exact), np.ones(3))
    assert np.allclose(values, [1.1, 0.9, 1.5], atol=1e-6)
