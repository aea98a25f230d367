"""Runs are kept, not repeated, and timed without g."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from benchmarks._collect import collect, measure, open_ledger
from benchmarks._ledger import Ledger, Outcome, Run, Task, sources
from benchmarks._study import Settings

import nestquad as nq

OUTCOME = Outcome(0.125, 0.5, 1.0, 1000, 0.25, 0.5, "done", "nkq")


def run(problem="finance", method="auto", goal=1000.0, seed=0, **changes):
    return replace(Run.of(Task(problem, method, goal, seed), OUTCOME), **changes)


def test_runs_come_back_as_they_were_written(tmp_path):
    ledger = Ledger(tmp_path / "runs.csv")
    written = [
        run(seed=3),
        run(goal=4e-5, chosen='joint, after "nkq"'),
        run(seed=4, error=math.nan, status="failed"),
    ]
    for one in written:
        ledger.append(one)
    again = Ledger(ledger.path).runs
    assert {r.task for r in again} == {r.task for r in written}
    tight = next(r for r in again if r.goal == 4e-5)
    assert tight == written[1]
    assert [r.failed for r in again if r.seed == 4] == [True]


def test_a_line_cut_off_in_the_middle_is_forgotten(tmp_path):
    ledger = Ledger(tmp_path / "runs.csv")
    ledger.append(run(seed=0))
    ledger.append(run(seed=1))
    text = ledger.path.read_text()
    ledger.path.write_text(text[: text.rindex("done") + 2])
    again = Ledger(ledger.path)
    assert [r.seed for r in again.runs] == [0]
    again.append(run(seed=1))
    assert [r.seed for r in Ledger(ledger.path).runs] == [0, 1]


def test_runs_of_another_version_stay_and_do_not_count(tmp_path):
    ledger = Ledger(tmp_path / "runs.csv")
    ledger.append(run(version="0.0.0"))
    again = Ledger(ledger.path)
    assert again.runs == []
    assert again.missing([run().task]) == [run().task]
    again.append(run())
    assert ledger.path.read_text().count("finance") == 2


def test_the_hash_of_the_sources_is_stable():
    assert sources() == sources.__wrapped__()


def test_collect_does_what_is_selected_and_missing(tmp_path):
    seen = []

    def note(task):
        seen.append(task)
        return OUTCOME

    settings = Settings(data=tmp_path, jobs=0, methods=("auto",), budgets=(1e3,))
    tasks = [
        Task("finance", method, budget, seed)
        for method in ("auto", "nkq")
        for budget in (1e3, 1e4)
        for seed in (0, 1)
    ]
    collect(open_ledger("x", settings), tasks, note, settings)
    assert seen == [Task("finance", "auto", 1e3, 0), Task("finance", "auto", 1e3, 1)]
    collect(open_ledger("x", settings), tasks, note, settings)
    assert len(seen) == 2
    everything = replace(settings, methods=(), budgets=())
    collect(open_ledger("x", everything), tasks, note, everything)
    assert len(seen) == 8
    assert len(set(seen)) == 8
    # Starting over forgets what is selected, and nothing else.
    fresh = replace(settings, fresh=True)
    assert len(open_ledger("x", fresh).runs) == 6


def test_time_inside_g_is_not_counted():
    def slow(x, theta):
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
        return x[..., 0] + theta[..., 0]

    problem = replace(nq.problems.synthetic(), g=slow, exact=1.0, f=None)
    found = measure(problem, nq.NMC(n_outer=4, n_inner=4), seed=0)
    assert found.g_seconds >= 0.2
    assert found.seconds < 0.2
    assert found.evaluations == 16


def test_error_and_coverage_are_those_of_the_estimate():
    problem = nq.problems.finance()
    found = measure(problem, "nqmc", seed=5, budget=1000)
    est = nq.estimate(problem, method="nqmc", rng=5, budget=1000)
    low, high = est.interval(0.95)
    assert found.error == abs(est.value - problem.exact)
    assert found.half_width == pytest.approx((high - low) / 2)
    assert found.covered == float(low <= problem.exact <= high)
    assert (found.status, found.chosen) == (est.status, "nqmc")
    # Against another truth the same interval does not cover.
    missed = measure(replace(problem, exact=problem.exact + 100.0), "nqmc", seed=5, budget=1000)
    assert missed.covered == 0.0


def test_of_several_answers_the_largest_error_and_the_share_of_intervals():
    problem = replace(
        nq.problems.synthetic(), f=lambda j: np.stack([j, j], axis=-1), exact=(0.0, 4 / 7)
    )
    found = measure(problem, nq.NKQ(n_outer=16, n_inner=16), seed=0)
    assert found.error == pytest.approx(4 / 7, abs=0.01)
    assert found.covered == 0.5


def test_a_method_that_refuses_is_noted_and_not_raised():
    found = measure(nq.problems.finance(), "nkq", seed=0, budget=4, tol=-1.0)
    assert (found.status, found.covered) == ("failed", 0.0)
    assert math.isnan(found.error)
    assert "InputError" in found.chosen
