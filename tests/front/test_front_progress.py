"""The progress line."""

from __future__ import annotations

import numpy as np
import pytest

import nestquad as nq
from nestquad._progress import Progress, Running, as_progress


def test_true_is_a_line_in_the_terminal(capsys):
    nq.estimate(nq.problems.synthetic(), budget=1000, method="nmc", rng=0, progress=True)
    err = capsys.readouterr().err
    assert "evaluations" in err
    assert err.endswith("\r")  # cleared: the answer follows
    assert "\n" not in err


def test_the_bar_has_the_total_of_now_and_the_message(capsys):
    bar = Progress("designs")
    bar(1, 10, "first")
    bar(4, 20, "second")
    assert (bar._bar.n, bar._bar.total, bar._bar.postfix) == (4, 20, "second")
    bar.close()
    assert "designs" in capsys.readouterr().err


def test_false_is_silent(capsys):
    nq.estimate(nq.problems.synthetic(), budget=1000, method="nmc", rng=0)
    assert capsys.readouterr() == ("", "")


def test_the_line_is_cleared_when_g_fails(capsys):
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), lambda x, theta: 1 / 0)
    with pytest.raises(nq.EvaluationError):
        nq.estimate(problem, budget=100, progress=True)
    assert capsys.readouterr().err[-1:] in ("", "\r")


def test_callables_get_what_is_done():
    calls = []
    as_progress(lambda *given: calls.append(given))(1, 2, "now")
    assert calls == [(1, 2, "now")]
    assert as_progress(False)(1, 2, "") is None


def test_a_running_estimate_before_the_first_answer(simulated):
    def g(x, theta):
        simulated.wait(1e-4 * theta.size)
        return x[..., 0] + theta[..., 0]

    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, np.square)
    messages = []
    nq.estimate(
        problem,
        method=nq.NMC(n_outer=10_000, n_inner=20),
        rng=0,
        progress=lambda done, total, message: messages.append(message),
    )
    shown = [message for message in messages if message]
    assert len(shown) > 1
    for message in shown:
        value, half = map(float, message.removeprefix("≈ ").split(" ± "))
        assert abs(value - 13 / 12) < 3 * half
        assert half < 0.5


def test_several_answers_and_combine_in_the_running_estimate():
    problem = nq.NestedExpectation(
        nq.Uniform(),
        nq.Uniform(),
        lambda x, theta: x[..., 0] + theta[..., 0],
        lambda j: np.stack([j, j**2], axis=-1),
        combine=lambda i: i[1] - i[0] ** 2,
    )
    running = Running(problem)
    theta = np.random.default_rng(0).random((4000, 1))
    grid = nq.NMC(4000, 2).plan(problem, nq.methods.Goal(nq.points.Stream.from_rng(0))).grids[0]
    running(grid, [theta[:1000] + 0.5, theta[1000:] + 0.5])
    value, half = map(float, running.message.removeprefix("≈ ").split(" ± "))
    assert abs(value - 1 / 12) < 2 * half < 0.02


def test_the_total_is_that_of_the_turn_and_staircases_count_once():
    seen = []
    est = nq.estimate(
        nq.problems.synthetic(),
        budget=3000,
        method="mlkq",
        rng=0,
        progress=lambda done, total, message: seen.append((done, total)),
    )
    assert seen[-1] == (est.n_evaluations, est.n_evaluations)
    assert all(done <= total <= 3000 for done, total in seen)
