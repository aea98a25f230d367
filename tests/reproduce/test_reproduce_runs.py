"""Runs are kept, resumed and repeated, whatever the number of processes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nestquad.reproduce import _collect
from nestquad.reproduce._collect import collect
from nestquad.reproduce._runs import Ledger, Runs
from nestquad.reproduce._series import RATIOS, SERIES, problem_named, published_nkq, run_method
from nestquad.reproduce._task import Task, cells

TASKS = [
    *cells("synthetic", ("nkq N=T", "nmc N=√T"), (6, 9), 2),
    *cells("finance", "mlmc published", (300,), lambda size: size // 100),
]


def numbers(ledger):
    return {task: (run.value, run.error, run.evaluations) for task, run in ledger.runs.items()}


def test_cells_count():
    assert len(TASKS) == 2 * 2 * 2 + 3
    assert len(set(TASKS)) == len(TASKS)


def test_same_seed_same_numbers_whatever_the_processes(tmp_path):
    one, two = Ledger(tmp_path / "a.csv", 0), Ledger(tmp_path / "b.csv", 0)
    collect(one, TASKS, jobs=0)
    collect(two, TASKS[::-1], jobs=2)
    assert numbers(one) == numbers(two)
    other = Ledger(tmp_path / "c.csv", 1)
    collect(other, TASKS[:1], jobs=0)
    assert numbers(other)[TASKS[0]] != numbers(one)[TASKS[0]]


def test_what_is_there_is_not_run_again(tmp_path, monkeypatch):
    path = tmp_path / "runs.csv"
    collect(Ledger(path, 0), TASKS[:5], jobs=0)
    done, run = [], _collect._run
    monkeypatch.setattr(_collect, "_run", lambda task, seed: done.append(task) or run(task, seed))
    resumed = Ledger(path, 0)
    collect(resumed, TASKS, jobs=0)
    assert sorted(done, key=str) == sorted(TASKS[5:], key=str)
    monkeypatch.undo()
    at_once = Ledger(tmp_path / "once.csv", 0)
    collect(at_once, TASKS, jobs=0)
    assert numbers(resumed) == numbers(at_once)
    assert numbers(Ledger(path, 0)) == numbers(at_once)


def test_an_interruption_keeps_what_is_done(tmp_path):
    path = tmp_path / "runs.csv"

    def stop(done, total, left):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(Ledger(path, 0), TASKS, 0, stop)
    assert len(Ledger(path, 0).runs) == 3


def test_a_line_cut_short_is_run_again(tmp_path):
    path = tmp_path / "runs.csv"
    collect(Ledger(path, 0), TASKS[:3], jobs=0)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[: whole.rindex(",") - 12], encoding="utf-8")
    ledger = Ledger(path, 0)
    assert len(ledger.missing(TASKS[:3])) == 1
    collect(ledger, TASKS[:3], jobs=0)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4


def test_seeds_live_side_by_side_and_fresh_forgets_one(tmp_path):
    path = tmp_path / "runs.csv"
    for seed in (0, 1):
        collect(Ledger(path, seed), TASKS[:2], jobs=0)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 5
    Ledger(path, 0).forget()
    assert not Ledger(path, 0).runs
    assert len(Ledger(path, 1).runs) == 2


def test_time_left_goes_to_zero(tmp_path):
    told = []
    collect(Ledger(tmp_path / "runs.csv", 0), TASKS, 0, lambda *args: told.append(args))
    assert told[0][:2] == (0, len(TASKS))
    assert told[-1][:2] == (len(TASKS), len(TASKS))
    assert told[-1][2] == pytest.approx(0.0, abs=1e-6)


def test_curves_hold_exactly_the_runs_asked_for(tmp_path):
    ledger = Ledger(tmp_path / "runs.csv", 0)
    collect(ledger, TASKS, jobs=0)
    few = [task for task in TASKS if task.replicate == 0]
    curve = Runs.of(ledger, few).curve("synthetic", "nkq N=T")
    assert [errors.size for errors in curve.errors] == [1, 1]
    np.testing.assert_array_equal(curve.costs, [36, 81])
    shifted = Runs.of(ledger, few).curve("synthetic", "nkq N=T", lambda run: abs(run.value - 1.0))
    assert shifted.means[0] == pytest.approx(abs(ledger.runs[few[0]].value - 1.0))


@pytest.mark.parametrize("ratio", RATIOS)
def test_ratios_are_what_they_are_called(ratio):
    n_outer, n_inner = RATIOS[ratio](6)
    assert {
        "N=√T": n_inner**2 == n_outer,
        "N=T": n_inner == n_outer,
        "N=2T": n_inner == 2 * n_outer,
        "N=T²": n_inner == n_outer**2,
    }[ratio]
    found = SERIES[f"nmc {ratio}"].run(Task("synthetic", "", 6, 0), np.random.SeedSequence(0))
    assert found.evaluations == n_outer * n_inner


def test_published_means_published():
    method = published_nkq(problem_named("finance"), 8, 8)
    assert (method.outer_points, method.inner_points, method.sharing) == (
        "iid",
        "iid",
        "independent",
    )
    assert method.inner.kernel.nu == 0.5
    assert published_nkq(problem_named("synthetic"), 8, 8).inner.kernel.nu == 1.5
    assert problem_named("synthetic5").exact == pytest.approx(16 / 49 * 25 + 25 / 294 * 5)


def test_a_run_is_an_estimate_like_any_other():
    import nestquad as nq

    rng = np.random.SeedSequence(3)
    task = Task("finance", "auto", 500, 0)
    found = run_method(task, rng, "auto", 500)
    again = nq.estimate(nq.problems.finance(), budget=500, rng=np.random.SeedSequence(3))
    assert found.value == again.value
    assert found.error == abs(again.value - again.exact)
    assert replace(found, value=0.0).evaluations == again.n_evaluations
