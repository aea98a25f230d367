"""The optimisation loop: it finds maxima, repeats itself, and survives failing fits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from linear_operator.utils.errors import NotPSDError

import nestquad as nq
from studies.bayesopt import acquisition, optimize
from studies.bayesopt.acquisitions import ACQUISITIONS
from studies.bayesopt.model import KERNELS, fit

BOX = np.array([[-1.0, 0.0], [3.0, 10.0]])
TOP = np.array([0.5, 7.0])
QUICK = {"restarts": 1, "raw_samples": 4, "steps": 3}


def hill(x):
    """A maximum of 2 at TOP, with coordinates of different scales."""
    return 2.0 - (((x - TOP) / [1.0, 3.0]) ** 2).sum(axis=1)


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_every_acquisition_runs_stays_inside_and_repeats_itself(name):
    def run(seed):
        make = acquisition(name, outer=3, inner=4)
        return optimize(hill, BOX, iterations=2, q=2, acquisition=make, seed=seed, **QUICK)

    one, same, other = run(1), run(1), run(2)
    assert one.X.shape == (6, 2)
    np.testing.assert_array_equal(one.X, np.clip(one.X, *BOX))
    np.testing.assert_array_equal(one.iteration, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(one.X, same.X)
    assert not np.array_equal(one.X, other.X)
    np.testing.assert_allclose(one.Y, hill(one.X))
    assert (np.diff(one.seconds) >= 0).all()
    assert one.notes == ()


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_finds_a_maximum_with_every_kernel(kernel):
    how = {"iterations": 10, "seed": 1, "kernel": kernel}
    trace = optimize(hill, BOX, acquisition="qlogei", noise=0.0, **how)
    chance = optimize(hill, BOX, acquisition="random", **how)
    assert 2.0 - trace.best[-1] < 0.5 * (2.0 - chance.best[-1])
    assert trace.best[-1] == pytest.approx(hill(trace.best_x[None])[0])


def test_look_ahead_finds_a_maximum():
    make = acquisition("lookahead-kq", outer=8, inner=8)
    trace = optimize(hill, BOX, iterations=5, q=2, acquisition=make, noise=0.0, seed=0)
    assert trace.best[-1] > 1.8


def test_threads_and_random_state_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        one = optimize(hill, BOX, iterations=1, acquisition="qei", seed=3, **QUICK)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        two = optimize(hill, BOX, iterations=1, acquisition="qei", seed=3, **QUICK)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(torch.rand(3), expected)
    np.testing.assert_array_equal(one.X, two.X)


def test_the_model_lives_on_the_unit_cube_with_standardised_values():
    seen = []

    def ucb(model, best_f, q, seed):
        seen.append((model.train_inputs[0], model.train_targets, best_f))
        return qUpperConfidenceBound(model, beta=0.2)

    trace = optimize(hill, BOX, iterations=3, acquisition=ucb, seed=0, **QUICK)
    x, y, best = seen[-1]
    np.testing.assert_allclose(x.numpy() * np.ptp(BOX, axis=0) + BOX[0], trace.X[:-1], atol=1e-12)
    assert float(y.mean()) == pytest.approx(0.0, abs=1e-9)
    assert float(y.std()) == pytest.approx(1.0)
    assert best == float(y.max())


def test_noise_is_in_units_of_the_objective():
    x = torch.linspace(0, 1, 6, dtype=torch.double)[:, None]
    y = torch.sin(6 * x)
    sharp, _ = fit(x, y, "matern52", "zero", 0.0)
    blunt, _ = fit(x, y, "matern52", "zero", 1.0)
    miss = [float((m.posterior(x).mean - y).abs().max().detach()) for m in (sharp, blunt)]
    assert miss[0] < 1e-2 < 0.3 < miss[1]


def test_equal_values_are_no_problem_and_nothing_is_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        how = {"iterations": 2, "acquisition": "qei", "seed": 0, **QUICK}
        trace = optimize(lambda x: np.ones(len(x)), BOX, **how)
    assert (trace.Y == 1.0).all()


@pytest.mark.parametrize("answer", [float("nan"), float("-inf"), [1.0, 2.0]])
def test_bad_values_are_an_error(answer):
    with pytest.raises(nq.EvaluationError, match="finite numbers"):
        optimize(lambda x: np.array(answer), BOX, iterations=5, acquisition="random", initial=1)


def test_a_search_or_a_fit_that_fails_is_noted_and_survived(monkeypatch):
    from botorch.exceptions.errors import ModelFittingError

    def broken(model, best_f, q, seed):
        raise NotPSDError("not positive definite")

    trace = optimize(hill, BOX, iterations=2, acquisition=broken, seed=0)
    assert len(trace) == 4
    assert all("uniform points instead" in note for note in trace.notes)

    def fails(mll):
        raise ModelFittingError("all attempts failed")

    monkeypatch.setattr("studies.bayesopt.model.fit_gpytorch_mll", fails)
    trace = optimize(hill, BOX, iterations=1, acquisition="qei", seed=0, **QUICK)
    assert "fit failed" in trace.notes[0]


def test_a_mistake_in_ones_own_acquisition_is_seen():
    with pytest.raises(ZeroDivisionError):
        optimize(hill, BOX, iterations=1, acquisition=lambda *args: 1 / 0, seed=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bounds": [[0.0, 1.0], [0.0, 1.0]]}, "bounds"),
        ({"acquisition": "lookahead"}, "Did you mean"),
        ({"kernel": "matern"}, "kernel"),
        ({"mean": "linear"}, "mean"),
    ],
)
def test_wrong_input_is_refused(change, words):
    how = {"bounds": BOX, "iterations": 1, "acquisition": "random", "seed": 0, **change}
    with pytest.raises(nq.InputError, match=words):
        optimize(hill, **how)
    with pytest.raises(nq.InputError, match="outer"):
        acquisition("lookahead-kq", outer=0)
