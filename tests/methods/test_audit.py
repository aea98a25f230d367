"""Models of J held against values that they have not seen."""

import numpy as np
import pytest

import nestquad as nq
from nestquad.evaluate import Evaluations, Evaluator
from nestquad.methods import Goal
from nestquad.methods._audit import audited, unexplained
from nestquad.methods._magnify import magnification
from nestquad.points import Stream


def grid_of(problem, n_outer=200, n_inner=8):
    evaluator = Evaluator(problem, keep=True)
    method = nq.NQMC(n_outer=n_outer, n_inner=n_inner)
    return Evaluations(evaluator, method.plan(problem, Goal(Stream.from_rng(0))))


def noisy(amplitude):
    """J jumps between ± amplitude; x adds noise of variance 1."""
    return nq.NestedExpectation(
        nq.Uniform(),
        nq.Normal(),
        lambda x, theta: amplitude * np.sign(np.sin(400 * np.pi * theta[..., 0])) + x[..., 0],
        np.exp,
    )


def test_variance_that_a_constant_does_not_explain():
    found = unexplained(grid_of(noisy(1.0)), lambda u: np.zeros((len(u), 1)))
    assert found == pytest.approx([1.0], abs=0.2)


def test_noise_in_x_is_not_mistaken_for_it():
    for amplitude in (0.0, 1e-3):
        found = unexplained(grid_of(noisy(amplitude)), lambda u: np.zeros((len(u), 1)))
        assert found == pytest.approx([0.0])


def test_a_shift_of_the_model_counts_as_well():
    found = unexplained(grid_of(noisy(0.0)), lambda u: np.full((len(u), 1), 0.7))
    # Sobol points have less noise than their variance says, so it comes out low, never high.
    assert 0.3 < found[0] < 0.5


def test_what_it_may_change_in_the_answer():
    # E exp(J) with J = ±1 about 0 is cosh(1), which the estimate exp(0) misses.
    theta = np.linspace(0, 1, 50)[:, None]
    ones = np.ones((50, 1))
    sample = nq.result.OuterSample(theta, np.zeros(50), ones, ones / 50)
    estimate = nq.Estimate(1.0, 0.01, 100, 50, 2, "joint", sample=sample)
    wide = audited(noisy(1.0), estimate, np.array([1.0]))
    assert wide.value == 1.0
    assert wide.std_error == pytest.approx(np.hypot(0.01, np.cosh(1.0) - 1.0))
    assert audited(noisy(1.0), estimate, np.array([0.0])) is estimate


def test_a_logarithm_that_cannot_take_one_side():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Normal(), lambda x, theta: x[..., 0], np.log)
    ones = np.ones((4, 1))
    sample = nq.result.OuterSample(ones, np.ones(4), 0 * ones, ones / 4)
    estimate = nq.Estimate(0.0, 0.01, 100, 50, 2, "joint", sample=sample)
    wide = audited(problem, estimate, np.array([4.0]))
    assert wide.std_error == pytest.approx(np.hypot(0.01, np.log(3.0)))


@pytest.mark.parametrize(("name", "budget"), [("synthetic", 600), ("synthetic", 4096)])
@pytest.mark.parametrize("method", [nq.JointLattice(), nq.CKQ()])
def test_methods_tell_what_they_think_of_j(method, name, budget):
    problem = nq.problems.get(name)
    evaluator = Evaluator(problem, keep=True)
    goal = Goal(Stream.from_rng(0), budget)
    method.analyze(Evaluations(evaluator, method.plan(problem, goal)))
    theta = np.linspace(0.05, 0.95, 7)[:, None]
    found = evaluator.memo(goal.stream)["j"](theta)
    assert found.shape == (7, 1)
    np.testing.assert_allclose(found, 2 / 7 + theta**2.5, atol=2e-3)


def test_jumps_are_seen_through_a_magnifying_glass():
    # f = 1{J > 0.5} of J = θ on a grid: a shift of J by 1e-6 moves no point across the jump.
    jump = nq.NestedExpectation(
        nq.Uniform(), nq.Normal(), lambda x, theta: x[..., 0], lambda j: (j > 0.5).astype(float)
    )
    j = (np.arange(400) + 0.5) / 400
    deviations = np.full((3, 400, 1), 1e-6)
    factor = magnification(jump, j, deviations)
    assert np.array_equal(jump.apply_f(j + 1e-6), jump.apply_f(j))
    change = (jump.apply_f(j + factor * 1e-6) - jump.apply_f(j)).mean() / factor
    assert change == pytest.approx(1e-6, rel=0.1)
    smooth = nq.NestedExpectation(nq.Uniform(), nq.Normal(), lambda x, theta: x[..., 0], np.exp)
    assert magnification(smooth, j, deviations) == 1.0
    assert magnification(jump, j, 1e5 * deviations) == 1.0
    assert magnification(jump, j, 0.0 * deviations) == 1.0
