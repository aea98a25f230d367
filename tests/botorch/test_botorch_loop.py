"""The loop: it finds maxima, repeats itself, stops as asked, and keeps what was done."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from linear_operator.utils.errors import NotPSDError

import nestquad as nq
from nestquad.botorch import Trace, acquisition, optimize
from nestquad.botorch._acquisitions import ACQUISITIONS
from nestquad.botorch._gp import KERNELS, fit

BOX = np.array([[-1.0, 0.0], [3.0, 10.0]])
TOP = np.array([0.5, 7.0])
QUICK = {"restarts": 1, "raw_samples": 4, "steps": 3}


def hill(x):
    """A maximum of 2 at TOP, with coordinates of different scales."""
    return 2.0 - float((((x - TOP) / [1.0, 3.0]) ** 2).sum())


def hills(points):
    return np.array([hill(x) for x in points])


def small(name):
    return acquisition(name, outer=3, inner=4)


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_every_acquisition_runs_stays_inside_and_repeats_itself(name):
    def run(seed):
        return optimize(hill, BOX, iterations=2, q=2, acquisition=small(name), seed=seed, **QUICK)

    one, same, other = run(1), run(1), run(2)
    assert one.X.shape == (6, 2)
    np.testing.assert_array_equal(one.X, np.clip(one.X, *BOX))
    np.testing.assert_array_equal(one.iteration, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(one.X, same.X)
    assert not np.array_equal(one.X, other.X)
    np.testing.assert_allclose(one.Y, hills(one.X))
    assert one.notes == ()


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_finds_a_maximum_with_every_kernel(kernel):
    how = {"iterations": 10, "seed": 1, "kernel": kernel}
    trace = optimize(hill, BOX, acquisition="qlogei", noise=0.0, **how)
    chance = optimize(hill, BOX, acquisition="random", **how)
    assert 2.0 - trace.best[-1] < 0.5 * (2.0 - chance.best[-1])
    assert trace.best[-1] == pytest.approx(hill(trace.best_x))


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


def test_vectorized_is_the_same_with_arrays():
    how = {"iterations": 1, "q": 3, "acquisition": "qei", "seed": 0, **QUICK}
    shapes = []
    one = optimize(hill, BOX, **how)
    two = optimize(lambda x: (shapes.append(x.shape), hills(x))[1], BOX, vectorized=True, **how)
    np.testing.assert_array_equal(one.X, two.X)
    assert shapes == [(2, 2), (3, 2)]


def test_budget_counts_everything_and_cuts_the_last_batch():
    trace = optimize(hill, BOX, budget=6, q=3, initial=2, acquisition="random", seed=0)
    assert len(trace) == 6
    np.testing.assert_array_equal(np.bincount(trace.iteration), [2, 3, 1])


def test_going_on_is_as_if_there_had_been_no_pause():
    how = {"q": 2, "acquisition": "qei", "seed": 4, **QUICK}
    whole = optimize(hill, BOX, iterations=3, **how)
    part = optimize(hill, BOX, iterations=1, **how)
    rest = optimize(hill, BOX, iterations=2, initial=part, **how)
    np.testing.assert_array_equal(whole.X, rest.X)
    np.testing.assert_array_equal(whole.iteration, rest.iteration)
    assert (np.diff(rest.seconds) >= 0).all()


def test_points_and_values_of_ones_own():
    points = [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    trace = optimize(hill, BOX, iterations=1, initial=points, acquisition="random", seed=0)
    np.testing.assert_array_equal(trace.X[:3], points)
    known = Trace.given(points, hills(np.array(points)))
    calls = []
    optimize(
        lambda x: (calls.append(x), hill(x))[1],
        BOX,
        iterations=1,
        initial=known,
        acquisition="random",
        seed=0,
    )
    assert len(calls) == 1


def test_acquisition_of_ones_own():
    seen = []

    def ucb(model, best_f, q, seed):
        seen.append((model.train_inputs[0], model.train_targets, best_f))
        return qUpperConfidenceBound(model, beta=0.2)

    trace = optimize(hill, BOX, iterations=3, acquisition=ucb, seed=0, **QUICK)
    assert trace.notes == ()
    x, y, best = seen[-1]
    # The model lives on the unit cube, with standardised values.
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


def test_equal_values_are_no_problem():
    trace = optimize(lambda x: 1.0, BOX, iterations=2, acquisition="qei", seed=0, **QUICK)
    assert (trace.Y == 1.0).all()


def test_stops_after_a_time():
    trace = optimize(hill, BOX, iterations=50, acquisition="random", seed=0, max_seconds=0.0)
    assert trace.status == "out of time"
    assert len(trace) == 2


def test_ctrl_c_returns_what_is_done():
    def stops(x):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(x)
        return hill(x)

    done = []
    trace = optimize(stops, BOX, iterations=9, q=2, acquisition="random", seed=0)
    assert trace.status == "interrupted"
    assert len(trace) == 4
    np.testing.assert_array_equal(trace.X, done)


def test_progress_is_told():
    told = []
    optimize(
        hill,
        BOX,
        iterations=3,
        q=2,
        acquisition="random",
        seed=0,
        progress=lambda *args: told.append(args),
    )
    assert [done for done, _, _ in told] == [2, 4, 6, 8]
    assert {total for _, total, _ in told} == {8}
    assert all("best" in message for _, _, message in told)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (float("nan"), "returned nan"),
        (float("-inf"), "returned -inf"),
        ([1.0, 2.0], r"shape \(2,\)"),
        ("high", "not a number"),
        (None, "nan"),
    ],
)
def test_bad_values_are_an_error_that_keeps_the_trace(answer, words):
    def breaks(x):
        calls.append(x)
        return hill(x) if len(calls) < 4 else answer

    calls = []
    with pytest.raises(nq.EvaluationError, match=words) as caught:
        optimize(breaks, BOX, iterations=5, acquisition="random", seed=0)
    error = caught.value
    np.testing.assert_array_equal(error.x, calls[-1])
    assert error.n_completed == 3
    assert len(error.trace) == 3
    assert error.trace.status == "failed"
    rest = optimize(hill, BOX, iterations=2, initial=error.trace, acquisition="random", seed=0)
    assert len(rest) == 5


def test_an_objective_that_raises_is_named():
    def breaks(x):
        raise ZeroDivisionError("no such day")

    with pytest.raises(nq.EvaluationError, match="ZeroDivisionError: no such day") as caught:
        optimize(breaks, BOX, iterations=1, acquisition="random", seed=0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(caught.value.trace) == 0


def test_bad_shape_of_many():
    with pytest.raises(nq.EvaluationError, match=r"shape \(2, 2\)"):
        optimize(lambda x: x, BOX, iterations=1, vectorized=True, acquisition="random", seed=0)


def test_a_search_that_fails_is_said_and_survived():
    def broken(model, best_f, q, seed):
        raise NotPSDError("not positive definite")

    with pytest.warns(nq.NestquadWarning, match="uniform points instead"):
        trace = optimize(hill, BOX, iterations=2, acquisition=broken, seed=0)
    assert len(trace) == 4
    assert len(trace.notes) == 2


def test_a_mistake_in_ones_own_acquisition_is_seen():
    with pytest.raises(ZeroDivisionError):
        optimize(hill, BOX, iterations=1, acquisition=lambda *args: 1 / 0, seed=0)


def test_a_fit_that_fails_is_said_and_survived(monkeypatch):
    from botorch.exceptions.errors import ModelFittingError

    def fails(mll):
        raise ModelFittingError("all attempts failed")

    monkeypatch.setattr("nestquad.botorch._gp.fit_gpytorch_mll", fails)
    trace = optimize(hill, BOX, iterations=1, acquisition="qei", seed=0, **QUICK)
    assert len(trace) == 3
    assert "fit failed" in trace.notes[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bounds": [[0.0, 1.0]]}, "bounds"),
        ({"bounds": [[0.0, 1.0], [0.0, 1.0]]}, "transposed"),
        ({"bounds": [[0.0], [np.inf]]}, "bounds"),
        ({"iterations": None}, "iterations, budget"),
        ({"budget": 5}, "iterations, budget"),
        ({"iterations": None, "budget": 1}, "budget"),
        ({"iterations": -1}, "iterations"),
        ({"q": 0}, "q"),
        ({"initial": 0}, "initial"),
        ({"initial": [[0.0, 1.0, 2.0]]}, "initial"),
        ({"initial": [[-9.0, 1.0]]}, "outside the bounds"),
        ({"acquisition": "lookahead"}, "Did you mean"),
        ({"acquisition": 3}, "acquisition"),
        ({"kernel": "matern"}, "kernel"),
        ({"mean": "linear"}, "mean"),
        ({"noise": -1.0}, "noise"),
        ({"restarts": 9, "raw_samples": 4}, "restarts"),
        ({"steps": 0}, "steps"),
    ],
)
def test_what_cannot_be_used_is_refused(change, words):
    how = {"bounds": BOX, "iterations": 1, "acquisition": "random", "seed": 0, **change}
    with pytest.raises(nq.InputError, match=words):
        optimize(hill, **how)


def test_sizes_that_cannot_be_used_are_refused():
    with pytest.raises(nq.InputError, match="outer"):
        acquisition("lookahead-kq", outer=0)


def test_trace_reads_well():
    trace = optimize(hill, BOX, iterations=3, q=2, acquisition="random", seed=0)
    frame = trace.to_frame()
    assert list(frame.columns) == [
        "iteration", "x_1", "x_2", "y", "best", "seconds", "cpu_seconds",
    ]  # fmt: skip
    np.testing.assert_array_equal(frame["best"], np.maximum.accumulate(trace.Y))
    assert "8 evaluations in 3 iterations" in str(trace)
    with pytest.raises(nq.InputError, match="shapes"):
        Trace.given([1.0, 2.0], [1.0, 2.0])


@pytest.mark.parametrize("against", ["evaluations", "iteration", "seconds"])
def test_trace_is_drawn(against):
    from nestquad.plots import new_axes

    trace = optimize(hill, BOX, iterations=3, q=2, acquisition="random", seed=0)
    _, (ax,) = new_axes()
    drawn = trace.plot(ax, against=against)
    best = drawn.lines[1].get_ydata()
    np.testing.assert_array_equal(best, trace.best)
    with pytest.raises(nq.InputError, match="against"):
        trace.plot(ax, against="money")


def test_nothing_is_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimize(hill, BOX, iterations=2, acquisition="qei", seed=0, **QUICK)
