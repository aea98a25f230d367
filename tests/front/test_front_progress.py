"""The progress line."""

from __future__ import annotations

import io

import pytest

import nestquad as nq
from nestquad._progress import Progress, as_progress


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


def test_callables_are_taken_as_they_are():
    def show(done, total, message):
        pass

    assert as_progress(show) is show
    assert as_progress(False)(1, 2, "") is None
