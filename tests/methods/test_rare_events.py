"""Floors of error bars: events that no θ has shown must not be missing from the bar."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

import nestquad as nq
from nestquad.methods.nested import rare_event_errors
from nestquad.result import NORMAL_95

PLAIN = ("nmc", "nqmc", "nkq", "mlmc", "mlkq")


def normal_losses(f, exact=None):
    """J = θ, standard normal."""
    return nq.NestedExpectation(
        nq.Normal(), lambda theta: nq.Normal(theta, 0.5), lambda x, theta: x[..., 0], f, exact=exact
    )


def rare_loss(p):
    threshold = ndtri(1.0 - p)
    return normal_losses(lambda j: (j > threshold).astype(float), p)


def shortfall(alpha):
    z = float(ndtri(alpha))
    exact = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) / (1 - alpha)
    return normal_losses(lambda j: z + np.maximum(j - z, 0.0) / (1 - alpha), exact)


def floor(problem, j, **options):
    j = np.asarray(j, dtype=float)
    weights = np.full((len(j), 1), 1.0 / len(j))
    return float(
        rare_event_errors(problem, j, problem.apply_f(j).astype(float), weights, **options)[0]
    )


def test_no_event_is_the_rule_of_three():
    # (1 - p)^T = 0.05 for p = 3/T: 95 % of samples of an event more likely than that show it.
    j = ndtri((np.arange(200) + 0.5) / 200)
    half_width = NORMAL_95 * floor(normal_losses(lambda j: (j > 3.0).astype(float)), j)
    assert half_width == pytest.approx(3 / 200, rel=1e-12)
    assert (1 - half_width) ** 200 == pytest.approx(0.05, abs=0.003)


def test_an_event_out_of_reach_is_cantellis_inequality():
    # At 100 standard deviations P(J > m + 100 s) ≤ 1/(1 + 100²), whatever the law of J.
    j = ndtri((np.arange(200) + 0.5) / 200)
    half_width = NORMAL_95 * floor(normal_losses(lambda j: (j > 100.0).astype(float)), j)
    assert 0.3e-4 < half_width <= 1e-4


def test_few_events_have_a_poisson_margin():
    problem = normal_losses(lambda j: 5.0 * (j > 0.5))
    for events in (1, 4, 9):
        j = (np.arange(1000) < events).astype(float)
        assert floor(problem, j) == pytest.approx(5.0 * np.sqrt(events + 3) / 1000)
    assert floor(problem, (np.arange(1000) < 21).astype(float)) == 0.0
    assert floor(problem, (np.arange(40) < 3).astype(float)) == 0.0


def test_an_interpolant_is_uncertain_at_the_border_of_events_only():
    # Excesses 0.1, …, 0.9: the ramp is followed, but where it begins is known to one step.
    ramp, j = normal_losses(lambda j: np.maximum(j, 0.0)), np.zeros(1000)
    j[:9] = np.arange(1, 10) / 10
    assert floor(ramp, j, interpolated=True) == pytest.approx(0.1 * np.sqrt(12) / 1000)
    assert floor(ramp, j) == pytest.approx(np.sqrt((1 + 3 / 9) * (j**2).sum()) / 1000)
    jump, j = normal_losses(lambda j: (j > 0.5).astype(float)), np.minimum(np.ceil(j), 1.0)
    assert floor(jump, j, interpolated=True) == pytest.approx(floor(jump, j))


def test_nothing_is_added_where_nothing_depends_on_theta():
    j = np.linspace(-1.0, 1.0, 50)
    assert floor(normal_losses(lambda j: np.full(j.shape, 2.0)), j) == 0.0
    assert floor(normal_losses(lambda j: (j > 1.0).astype(float)), np.full(50, 0.3)) == 0.0
    assert floor(normal_losses(np.exp), j) == 0.0, "f(J) differs at every θ"

    def refuses(j):
        if (np.abs(j) > 1.0).any():
            raise ValueError("not a probability")
        return np.zeros(j.shape)

    assert floor(normal_losses(refuses), j) == 0.0


@pytest.mark.parametrize("method", PLAIN)
def test_a_rare_loss_is_not_zero_for_sure(method):
    for p in (0.01, 1e-3):
        problem = rare_loss(p)
        runs = [nq.estimate(problem, budget=1000, method=method, rng=seed) for seed in range(5)]
        half = NORMAL_95 * np.array([run.std_error for run in runs])
        assert (half > 0).all()
        assert np.mean([abs(run.value - p) for run in runs] <= half) >= 0.8
        assert half.max() < 0.25, "a bound, not an admission of ignorance"


@pytest.mark.parametrize("method", PLAIN)
def test_a_shortfall_whose_tail_was_not_seen(method):
    # At 99.5 % a set of 31 θ sees none of the tail, and f(J) is the same at all of them.
    problem = shortfall(0.995)
    runs = [nq.estimate(problem, budget=1000, method=method, rng=seed) for seed in range(5)]
    assert np.mean([run.interval()[0] <= problem.exact <= run.interval()[1] for run in runs]) >= 0.8


@pytest.mark.parametrize("method", PLAIN)
def test_a_constant_f_has_no_error(method):
    est = nq.estimate(normal_losses(lambda j: np.full(j.shape, 2.0)), budget=500, method=method)
    assert est.value == pytest.approx(2.0, rel=1e-9)
    assert est.std_error < 1e-9


def test_a_level_that_changed_nothing_is_no_proof_of_convergence():
    # f jumps where J is 1/2; the inner error moves few θ across, and the 8 θ of a fine level none.
    problem = nq.NestedExpectation(
        nq.Uniform(),
        nq.Uniform(),
        lambda x, theta: theta[..., 0] + 0.3 * np.abs(x[..., 0] - 0.37) ** 0.5 - 0.13,
        lambda j: (j > 0.5).astype(float),
    )
    est = nq.estimate(problem, budget=3000, method="mlkq", rng=0)
    changes = np.array([float(level["change"][0]) for level in est.diagnostics["levels"]])[1:]
    assert changes[0] != 0.0
    assert changes[-1] == 0.0
    still = np.argmax(changes == 0.0)
    assert est.diagnostics["error_inner"] >= abs(changes[still - 1]) / 2
