"""Floors of error bars: events that no θ and no x has shown must not be missing from the bar."""

from __future__ import annotations

import numpy as np
import pytest
from intervals import is_near, study
from scipy.special import ndtri

import nestquad as nq
from nestquad.methods._events import (
    NO_VARIATION,
    effective_number,
    rare_event_errors,
    rule_of_three,
    spread_factor,
    unseen_value_errors,
)
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
    # With the upper limit of s, to half an octave of k.
    most = (spread_factor(j) / 100.0) ** 2
    assert 0.49 * most < half_width <= most


def test_a_spread_that_few_values_carry_is_unknown():
    # The variance of n normal values is known to √(2/n); an effective number of n/3 says √(3/n).
    normal = ndtri((np.arange(3000) + 0.5) / 3000)
    assert spread_factor(normal) == pytest.approx((1.0 - 2.0 / np.sqrt(1000.0)) ** -0.5, rel=1e-3)
    assert spread_factor(np.exp(-np.arange(100.0))) == np.inf
    assert spread_factor(np.ones(100)) == 1.0


def test_an_event_of_unknown_size_is_bounded_by_the_range_of_f():
    # J is the tail of a peak: 3/T of all θ may be anywhere on it.
    j = np.exp(-np.arange(300.0))
    indicator = normal_losses(lambda j: 5.0 * (j > 1e9))
    assert NORMAL_95 * floor(indicator, j) == pytest.approx(5.0 * 3 / 300, rel=1e-12)
    assert floor(normal_losses(lambda j: np.maximum(j - 2.0, 0.0)), j) == np.inf
    assert floor(normal_losses(lambda j: np.zeros(j.shape)), j) == 0.0
    assert rule_of_three(indicator, j, np.zeros(1), 2) == [5.0], "no more than all θ"


def test_few_events_have_a_poisson_margin():
    problem = normal_losses(lambda j: 5.0 * (j > 0.5))
    for events in (1, 4, 9):
        j = (np.arange(1000) < events).astype(float)
        assert floor(problem, j) == pytest.approx(5.0 * np.sqrt(events + 3) / 1000)
    # Where events are many, an error comes from elsewhere, but one event is never excluded.
    for events, n in ((21, 1000), (3, 40)):
        many = floor(problem, (np.arange(n) < events).astype(float))
        assert NORMAL_95 * many == pytest.approx(5.0 / n)


def test_an_interpolant_is_uncertain_at_the_border_of_events_only():
    # Excesses 0.1, …, 0.9: the ramp is followed, but where it begins is known to one step.
    ramp, j = normal_losses(lambda j: np.maximum(j, 0.0)), np.zeros(1000)
    j[:9] = np.arange(1, 10) / 10
    assert floor(ramp, j, interpolated=True) == pytest.approx(0.1 * np.sqrt(12) / 1000)
    number = (j**2).sum() ** 2 / (j**4).sum()
    assert 5 < number < 9, "nine events, of which the large ones count most"
    assert floor(ramp, j) == pytest.approx(np.sqrt((1 + 3 / number) * (j**2).sum()) / 1000)
    jump, j = normal_losses(lambda j: (j > 0.5).astype(float)), np.minimum(np.ceil(j), 1.0)
    assert floor(jump, j, interpolated=True) == pytest.approx(floor(jump, j))


def test_the_effective_number_is_n_over_the_kurtosis():
    rng = np.random.default_rng(0)
    assert effective_number(rng.standard_normal((300_000, 1)))[0] == pytest.approx(1e5, rel=0.03)
    assert effective_number(np.array([[0.0, 1e200]] * 3 + [[0.0, 0.0]])).tolist() == [0.0, 3.0]


def test_the_spread_of_few_theta_is_uncertain():
    # With two θ, J = ±0.05: their standard deviation is known to a factor of 16 only.
    problem = normal_losses(lambda j: (j > 1.0).astype(float))
    assert NORMAL_95 * floor(problem, [-0.05, 0.05]) > 0.1
    assert NORMAL_95 * floor(problem, np.tile([-0.05, 0.05], 100)) < 0.01


def missed(problem, values, j, **options):
    f = problem.apply_f(j).astype(float).reshape(len(j), -1)
    return unseen_value_errors(problem, values, j, f, np.full(f.shape, 1.0 / len(f)), **options)


def test_few_losses_in_x_shift_all_of_j():
    # 4 losses of 10 in 1,000 values: J is uncertain by 10 √(4 + 3)/1000 for all θ at once.
    values, j = np.where(np.arange(1000) < 4, 10.0, 0.0), np.linspace(0.0, 1.0, 50)
    shift = 10.0 * np.sqrt(7.0) / 1000
    assert missed(normal_losses(lambda j: 3.0 * j), values, j)[0] == pytest.approx(3.0 * shift)
    exp = missed(normal_losses(np.exp), values, j)[0]
    assert exp == pytest.approx((np.exp(j + shift) - np.exp(j)).mean())
    assert missed(normal_losses(np.exp), np.arange(1000.0), j)[0] == 0.0, "no exceptions"


def test_means_of_unequal_numbers_of_values_count_by_their_numbers():
    # 1,000 values, 3 of them 10: as they are, or in means of 1 and of 4.
    values = np.zeros(1000)
    values[[5, 700, 900]] = 10.0
    means = np.concatenate([values[:600], values[600:].reshape(-1, 4).mean(axis=1)])
    weights = np.where(np.arange(700) < 600, 1, 4) / 1000
    problem, j = normal_losses(np.exp), np.linspace(0.0, 1.0, 50)
    assert missed(problem, means, j, value_weights=weights) == pytest.approx(
        missed(problem, values, j)
    )


def test_a_constant_g_says_nothing_unless_f_is_constant():
    zeros, j = np.zeros(1000), np.zeros(50)
    assert missed(normal_losses(lambda j: np.maximum(j - 5.0, 0.0)), zeros, j) == [np.inf]
    assert missed(normal_losses(lambda j: j), zeros + 3.0, j + 3.0) == [np.inf]
    assert missed(normal_losses(lambda j: np.full(j.shape, 2.0)), zeros, j) == [0.0]
    # A reference option whose net benefit is zero by definition is no reason for doubt.
    two, best = (
        np.stack([zeros, np.arange(1000.0)], axis=1),
        normal_losses(lambda j: j.max(axis=-1)),
    )
    assert missed(best, two, two[:50]) == [0.0]


def test_nothing_is_added_where_nothing_depends_on_theta():
    j = np.linspace(-1.0, 1.0, 50)
    assert floor(normal_losses(lambda j: np.full(j.shape, 2.0)), j) == 0.0
    assert floor(normal_losses(lambda j: (j > 1.0).astype(float)), np.full(50, 0.3)) == 0.0
    assert floor(normal_losses(np.exp), j) < 1e-3, "f(J) differs at every θ"

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
    exact = 0.37 + 0.2 * (0.37**1.5 + 0.63**1.5)
    runs = [nq.estimate(problem, budget=3000, method="mlkq", rng=seed) for seed in range(12)]
    changes = np.array([[level["change"][0] for level in r.diagnostics["levels"]] for r in runs])
    assert (changes[:, -1] == 0.0).all()
    inside = [abs(run.value - exact) <= run.half_width for run in runs]
    assert np.mean(inside) >= 0.75  # eight or fewer of twelve at 95 % have a chance of .002
    assert np.median([run.half_width for run in runs]) < 0.05


@pytest.mark.parametrize("method", PLAIN)
def test_a_loss_in_x_that_no_point_has_shown(method):
    # g is 1/p with probability p = 1e-5: all points say zero, the answer is one.
    problem = nq.NestedExpectation(
        nq.Uniform(),
        nq.Uniform(),
        lambda x, theta: 1e5 * (x[..., 0] > 1.0 - 1e-5) + 0.0 * theta[..., 0],
        lambda j: np.sqrt(1.0 + j),
    )
    for request in ({"budget": 1000}, {"tol": 0.1, "budget": 4000}):
        est = nq.estimate(problem, method=method, rng=0, **request)
        assert est.half_width == np.inf
        assert est.status != "converged"
        assert NO_VARIATION in est.diagnostics["notes"]


@pytest.mark.parametrize(
    ("method", "wanted"),  # kernel rules have no bar for values of g that are constant but for few
    [("nmc", 3.0), ("nqmc", 3.2), ("nkq", np.inf), ("mlmc", 2.3), ("mlkq", np.inf)],
)
def test_losses_in_x_that_few_points_have_shown(method, wanted):
    # E g = 1 whatever θ is, and f is concave: f of a few large J is far from f(1).
    problem = nq.NestedExpectation(
        nq.Uniform(),
        nq.Uniform(),
        lambda x, theta: 1e3 * (x[..., 0] > 1.0 - 1e-3) + 0.0 * theta[..., 0],
        np.log1p,
        exact=np.log(2.0),
    )
    covered, width = study(problem, 20, budget=2000, method=method)
    assert covered >= 0.9
    assert width == wanted or is_near(width, wanted)


def test_a_g_that_does_not_depend_on_x_has_a_finite_bar():
    problem = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), lambda x, theta: theta[..., 0] + 0.0 * x[..., 0], np.exp
    )
    for method in PLAIN:
        est = nq.estimate(problem, budget=1000, method=method, rng=0)
        assert abs(est.value - (np.e - 1.0)) <= est.half_width < 0.5


@pytest.mark.parametrize("method", ["nmc", "nqmc", "mlmc"])
def test_a_step_of_f_within_the_noise_of_j(method):
    # J is 0.2 at every θ, f jumps at 0, and the noise of an average of ten values is 0.3: a quarter
    # of all f(J) are wrong, which more θ do not tell.
    problem = nq.NestedExpectation(
        nq.Uniform(),
        nq.Normal(0.2, 1.0),
        lambda x, theta: x[..., 0] + 0.0 * theta[..., 0],
        lambda j: (j > 0.0).astype(float),
        exact=1.0,
    )
    runs = [nq.estimate(problem, budget=1000, method=method, rng=seed) for seed in range(10)]
    assert np.mean([abs(run.value - 1.0) <= run.half_width for run in runs]) >= 0.9


def test_a_handful_of_theta_does_not_converge():
    problem = rare_loss(0.01)
    for method in (nq.NMC(n_outer=2), nq.NQMC(n_outer=8), nq.NKQ(n_outer=31)):
        with pytest.raises(nq.InputError, match=r"n_outer: got .* with a tolerance"):
            nq.estimate(problem, tol=0.1, method=method, rng=0)
    est = nq.estimate(problem, method=nq.NMC(n_outer=2, n_inner=64), rng=0)
    assert est.half_width > 0.1
    for method in PLAIN:
        est = nq.estimate(nq.problems.synthetic(), tol=0.5, budget=150, method=method, rng=0)
        assert est.status in ("budget", "unreliable")
    est = nq.estimate(nq.problems.synthetic(), tol=0.5, method=nq.NQMC(n_inner=2), rng=0)
    assert est.trace[0].n_evaluations >= 192
