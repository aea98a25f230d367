"""The progress line."""

from __future__ import annotations

import io
import sys
import types

import numpy as np
import pytest

import nestquad as nq
from nestquad._progress import Progress, Running, as_progress, described


def test_true_is_a_line_in_the_terminal(capsys):
    nq.estimate(nq.problems.synthetic(), budget=1000, method="nmc", rng=0, progress=True)
    err = capsys.readouterr().err
    assert "1,000/1,000 evaluations" in err
    assert err.endswith("\r")
    assert "\n" not in err


def test_false_is_silent(capsys):
    nq.estimate(nq.problems.synthetic(), budget=1000, method="nmc", rng=0)
    assert capsys.readouterr() == ("", "")


def test_a_shorter_line_covers_a_longer_one():
    stream = io.StringIO()
    progress = Progress(stream, interval=0.0)
    progress(1, 10, "a long message that has to go")
    progress(10, 10, "short")
    progress.close()
    screen = ""
    for line in stream.getvalue().split("\r")[1:]:  # what a terminal would show
        screen = line + screen[len(line) :]
    assert screen.strip() == ""


def test_updates_are_rare_but_the_last_one_is_shown():
    stream = io.StringIO()
    progress = Progress(stream, interval=3600.0)
    for done in range(1, 1001):
        progress(done, 1000, "")
    assert stream.getvalue().count("\r") <= 2
    assert "1,000/1,000" in stream.getvalue()


def test_the_line_is_cleared_when_g_fails(capsys):
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), lambda x, theta: 1 / 0)
    with pytest.raises(nq.EvaluationError):
        nq.estimate(problem, budget=100, progress=True)
    assert capsys.readouterr().err.endswith("\r")


def test_callables_get_what_is_done():
    calls = []
    as_progress(lambda *given: calls.append(given))(1, 2, "now")
    assert calls == [(1, 2, "now")]
    assert as_progress(False)(1, 2, "") is None


def test_time_left_in_words_that_fit():
    assert described(50, 100, 5.0) == "50/100 evaluations, 10/s, 5 s left"
    assert described(10, 10_010, 1.0).endswith("17 min left")
    assert described(1, 40_001, 1.0).endswith("11 h left")
    assert described(1, 864_001, 1.0).endswith("10 d left")
    assert described(10, 10, 2.0) == "10/10 evaluations, 5/s"


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


class FakeNotebook(types.ModuleType):
    """IPython as far as it is needed: what is displayed, and how it changes."""

    def __init__(self):
        super().__init__("IPython")
        self.shown = []
        self.display = types.ModuleType("IPython.display")
        self.display.HTML = str
        self.display.display = self.show

    def get_ipython(self):
        return type("ZMQInteractiveShell", (), {"kernel": None})()

    def show(self, content, display_id):
        self.shown.append(content)
        return self

    def update(self, content):
        self.shown.append(content)


def test_an_element_in_a_notebook(monkeypatch, capsys):
    notebook = FakeNotebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook.display)
    nq.estimate(nq.problems.synthetic(), budget=1000, method="nmc", rng=0, progress=True)
    assert "<progress" in notebook.shown[0]
    assert any("1,000/1,000 evaluations" in content for content in notebook.shown)
    assert notebook.shown[-1] == ""  # cleared: what follows is the answer
    assert capsys.readouterr().err == ""


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
