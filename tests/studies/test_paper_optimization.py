"""The optimisation loop: it finds maxima, repeats itself, and survives failing fits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from linear_operator.utils.errors import NotPSDError

from studies.paper.optimization import ACQUISITIONS, Search, acquisition, optimize

BOX = np.array([[-1.0, 0.0], [3.0, 10.0]])
TOP = np.array([0.5, 7.0])
QUICK = Search(restarts=1, raw_samples=4, steps=3)


def hill(x):
    """A maximum of 2 at TOP, with coordinates of different scales."""
    return 2.0 - (((x - TOP) / [1.0, 3.0]) ** 2).sum(axis=1)


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_every_acquisition_runs_stays_inside_and_repeats_itself(name):
    def run(seed):
        make = acquisition(name, (3, 4))
        return optimize(hill, BOX, iterations=2, acquisition=make, search=QUICK, seed=seed)

    first, same, other = run(1), run(1), run(2)
    assert first.X.shape == (6, 2)
    np.testing.assert_array_equal(first.X, np.clip(first.X, *BOX))
    np.testing.assert_array_equal(first.iteration, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(first.X, same.X)
    assert not np.array_equal(first.X, other.X)
    np.testing.assert_allclose(first.Y, hill(first.X))
    assert (np.diff(first.seconds) >= 0).all()
    assert first.notes == ()


def test_look_ahead_finds_a_maximum():
    make = acquisition("lookahead-kq", (8, 16))
    trace = optimize(hill, BOX, iterations=10, acquisition=make, seed=0)
    chance = optimize(hill, BOX, iterations=10, acquisition=None, seed=0)
    assert 2.0 - trace.best[-1] < 0.5 * (2.0 - chance.best[-1])


def test_threads_and_random_state_are_left_alone():
    def run():
        make = acquisition("qei", (2, 4))
        return optimize(hill, BOX, iterations=1, acquisition=make, search=QUICK, seed=3)

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = run()
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        second = run()
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(torch.rand(3), expected)
    np.testing.assert_array_equal(first.X, second.X)


def test_the_model_lives_on_the_unit_cube_with_standardised_values():
    seen = []

    def ucb(model, best_f, seed):
        seen.append((model.train_inputs[0], model.train_targets, best_f))
        return qUpperConfidenceBound(model, beta=0.2)

    trace = optimize(hill, BOX, iterations=3, acquisition=ucb, search=QUICK, seed=0)
    x, y, best = seen[-1]
    np.testing.assert_allclose(x.numpy() * np.ptp(BOX, axis=0) + BOX[0], trace.X[:-2], atol=1e-12)
    assert float(y.mean()) == pytest.approx(0.0, abs=1e-9)
    assert float(y.std()) == pytest.approx(1.0)
    assert best == float(y.max())


def test_a_search_or_a_fit_that_fails_is_noted_and_survived(monkeypatch):
    from botorch.exceptions.errors import ModelFittingError

    def broken(model, best_f, seed):
        raise NotPSDError("not positive definite")

    trace = optimize(hill, BOX, iterations=2, acquisition=broken, seed=0)
    assert len(trace) == 6
    assert all("uniform points instead" in note for note in trace.notes)

    def fails(mll):
        raise ModelFittingError("all attempts failed")

    monkeypatch.setattr("studies.paper.optimization.fit_gpytorch_mll", fails)
    make = acquisition("qei", (2, 4))
    trace = optimize(lambda x: np.ones(len(x)), BOX, iterations=1, acquisition=make, seed=0)
    assert "fit failed" in trace.notes[0]


def test_a_mistake_in_ones_own_acquisition_is_seen():
    with pytest.raises(ZeroDivisionError):
        optimize(hill, BOX, iterations=1, acquisition=lambda *args: 1 / 0, seed=0)
