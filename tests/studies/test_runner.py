"""The runner: runs are kept, resumed and repeated, pages are complete."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import nestquad as nq
from studies.paper import run_task
from studies.paper.part import Runs
from studies.paper.series import RATIOS, SERIES, problem_named, published_nkq, run_method
from studies.runner.collect import collect
from studies.runner.ledger import Ledger, Outcome, Run, Task, cells, sources
from studies.runner.result import Result, Table, Verdict, columns
from studies.runner.study import Settings, Study, run_studies

TASKS = [
    *cells("synthetic", ("nkq N=T", "nmc N=√T"), (6, 9), 2),
    *cells("finance", "mlmc antithetic", (300,), lambda size: int(size) // 100),
]
OUTCOME = Outcome(0.125, 1000, 3.0, 0.5, 1.0, 0.25, 0.5, "done", "nkq")


def run(problem="finance", method="auto", goal=1000.0, seed=0, **changes):
    return replace(Run.of(Task(problem, method, goal, seed), OUTCOME), **changes)


def paper(ledger, tasks, jobs=0, **how):
    collect(ledger, tasks, partial(run_task, root=ledger.root), jobs, **how)


def numbers(ledger):
    return {task: (run.value, run.error, run.evaluations) for task, run in ledger.runs.items()}


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
    assert again == {one.task: one for one in written}
    assert [one.failed for one in again.values() if one.seed == 4] == [True]


def test_a_compressed_ledger_is_the_same_bytes_again(tmp_path):
    """Runs written one by one, cut short, and tidied: what is complete stays."""
    first, second = (tmp_path / name / "runs.csv.gz" for name in "ab")
    for path in (first, second):
        ledger = Ledger(path)
        for seed in (2, 0, 1):
            ledger.append(run(seed=seed))
        ledger.tidy()
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[:2] == b"\x1f\x8b"
    again = Ledger(first)
    again.append(run(seed=3))
    assert len(Ledger(first).runs) == 4
    first.write_bytes(first.read_bytes()[:-6])  # an interruption
    kept = Ledger(first)
    assert {task.seed for task in kept.runs} >= {0, 1, 2}
    kept.append(run(seed=4))
    assert len(Ledger(first).runs) == len(kept.runs)


def test_runs_of_another_version_count(tmp_path):
    ledger = Ledger(tmp_path / "runs.csv")
    ledger.append(run(version="0.0.0", sources="then"))
    assert Ledger(ledger.path).missing([run().task]) == []


def test_the_hash_of_the_sources_is_stable():
    assert sources() == sources.__wrapped__()


def test_same_seed_same_numbers_whatever_the_processes(tmp_path):
    one, two = Ledger(tmp_path / "a.csv"), Ledger(tmp_path / "b.csv")
    paper(one, TASKS)
    paper(two, TASKS[::-1], jobs=2)
    assert numbers(one) == numbers(two)
    other = Ledger(tmp_path / "c.csv", 1)
    paper(other, TASKS[:1])
    assert numbers(other)[TASKS[0]] != numbers(one)[TASKS[0]]


def test_finished_runs_are_skipped(tmp_path):
    path, done = tmp_path / "runs.csv", []
    paper(Ledger(path), TASKS[:5])

    def noted(task):
        done.append(task)
        return run_task(task, 0)

    resumed = Ledger(path)
    collect(resumed, TASKS, noted, 0)
    assert done == TASKS[5:]
    at_once = Ledger(tmp_path / "once.csv")
    paper(at_once, TASKS)
    assert numbers(resumed) == numbers(at_once) == numbers(Ledger(path))


def test_an_interruption_keeps_what_is_done(tmp_path):
    path = tmp_path / "runs.csv"

    def stop(done, total, left):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        paper(Ledger(path), TASKS, tell=stop)
    assert len(Ledger(path).runs) == 3


def test_a_line_cut_short_is_run_again(tmp_path):
    path = tmp_path / "runs.csv"
    paper(Ledger(path), TASKS[:3])
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[: whole.rindex(",") - 12], encoding="utf-8")
    ledger = Ledger(path)
    assert len(ledger.missing(TASKS[:3])) == 1
    paper(ledger, TASKS[:3])
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4


def test_roots_live_side_by_side_and_drop_forgets_one(tmp_path):
    path = tmp_path / "runs.csv"
    for root in (0, 1):
        paper(Ledger(path, root), TASKS[:2])
    assert len(path.read_text(encoding="utf-8").splitlines()) == 5
    Ledger(path, 0).drop()
    assert not Ledger(path, 0).runs
    assert len(Ledger(path, 1).runs) == 2


def test_time_left_goes_to_zero(tmp_path):
    told = []
    paper(Ledger(tmp_path / "runs.csv"), TASKS, tell=lambda *args: told.append(args))
    assert told[0][:2] == (0, len(TASKS))
    assert told[-1] == (len(TASKS), len(TASKS), 0.0)


def test_settings_select_what_is_run_and_forgotten(tmp_path):
    seen = []

    def note(task):
        seen.append(task)
        return OUTCOME

    settings = Settings(data=tmp_path, jobs=0, methods=("auto",), budgets=(1e3,))
    tasks = list(cells("finance", ("auto", "nkq"), (1e3, 1e4), 2))
    for _ in range(2):
        settings.collect(settings.ledger("x"), tasks, note)
        assert seen == list(cells("finance", "auto", (1e3,), 2))
    everything = replace(settings, methods=(), budgets=())
    everything.collect(everything.ledger("x"), tasks, note)
    assert len(seen) == len(set(seen)) == 8
    assert len(replace(settings, fresh=True).ledger("x").runs) == 6


def family(value):
    """A study as a later one may be: tasks, rows of a ledger, a verdict, a page."""

    def tabulate(settings):
        ledger = settings.ledger("family")
        runs = settings.collect(ledger, cells("p", "m", (1e3,), 3), lambda task: OUTCOME)
        rows = tuple({"seed": one.seed, "error": one.error} for one in runs)
        table = Table("family", "Errors.", columns("seed: count; error: error"), rows)
        verdict = Verdict.of("claim", "≤ 1", value, value == "0.5")
        return Result((table,), (verdict,))

    return Study("family", "A family", "About it.", tabulate)


def test_a_study_has_a_page(tmp_path):
    settings = Settings(data=tmp_path / "data", jobs=0)
    page = tmp_path / "page.md"
    for value in ("0.5", "2.0"):
        study = family(value)
        run_studies([study], [study], settings, page, "# Families\n", "python -m studies families")
    text = page.read_text(encoding="utf-8")
    assert "0 of 1 targets are met." in text
    assert "| [family](#a-family) | claim | ≤ 1 | 2.0 | **not met** |" in text
    assert "| 0 | 0.12 |" in text
    assert "0.5" not in text


def test_curves_hold_exactly_the_runs_asked_for(tmp_path):
    ledger = Ledger(tmp_path / "runs.csv")
    paper(ledger, TASKS)
    few = [task for task in TASKS if task.seed == 0]
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
    result = SERIES[f"nmc {ratio}"].run(Task("synthetic", "", 6, 0), np.random.SeedSequence(0))
    assert result.evaluations == n_outer * n_inner


def test_published_means_published():
    method = published_nkq(problem_named("finance"), 8, 8)
    assert (method.outer_points, method.inner_points) == ("iid", "iid")
    assert method.sharing == "independent"
    assert method.inner.kernel.nu == 0.5
    assert published_nkq(problem_named("synthetic"), 8, 8).inner.kernel.nu == 1.5
    assert problem_named("synthetic5").exact == pytest.approx(16 / 49 * 25 + 25 / 294 * 5)


def test_a_run_is_an_estimate_like_any_other():
    result = run_method(Task("finance", "auto", 500, 0), np.random.SeedSequence(3), "auto", 500)
    again = nq.estimate(nq.problems.finance(), budget=500, rng=np.random.SeedSequence(3))
    assert result.value == again.value
    assert result.error == abs(again.value - again.exact)
    assert result.evaluations == again.n_evaluations
