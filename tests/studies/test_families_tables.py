"""Tables and verdicts of families and equal seconds, from runs whose numbers are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import nestquad as nq
from studies import families
from studies.__main__ import main
from studies.families import equal_seconds, study
from studies.promises.measure import measure
from studies.runner.ledger import Run

INF, NAN = math.inf, math.nan


def runs(problem, method, goal, errors, halves, **changes):
    """Runs with errors and half-widths as parts of the problem's scale."""
    family, _, seed = problem.rpartition("-")
    scale = families.truth(family, int(seed)).scale
    made = [
        Run(
            *(problem, method, goal, number, error * scale, 1000),
            half_width=half * scale,
            covered=float(error <= half),
            seconds=0.25,
            status="failed" if math.isnan(error) else "done",
            chosen=method,
            version=nq.__version__,
            sources="now",
        )
        for number, (error, half) in enumerate(zip(errors, halves, strict=True))
    ]
    return [replace(one, **changes) for one in made]


def selection(*methods, **changes):
    chosen = {"families": ("books", "smooth"), "seeds": (2,), "parity": "even", "runs": 3}
    chosen |= {"budgets": (2048.0,), "tolerances": (), "methods": methods}
    return study.Selection(**(chosen | changes))


def row(result, table, **keys):
    rows = result.table(table).rows
    return next(r for r in rows if all(r[key] == value for key, value in keys.items()))


def verdict(result, words):
    return next(one for one in result.verdicts if words in one.claim)


def test_infinite_and_failed_runs_are_counted_and_leave_means_alone():
    found = study.tabulate(
        [
            *runs("smooth-2", "auto", 2048.0, [0.1, 0.1, NAN], [0.4, INF, NAN]),
            *runs("books-2", "auto", 2048.0, [0.2] * 3, [INF] * 3),
            *runs("smooth-2", "nqmc", 2048.0, [0.05] * 3, [0.2] * 3),
            *runs("smooth-2", "nkq", 2048.0, [NAN, 1e-9, 1e-9], [0.2] * 3),
        ],
        selection("auto", "nqmc", "nkq"),
    )
    smooth = row(found, "families", family="smooth", method="auto")
    assert smooth["coverage"] == pytest.approx(2 / 3)
    assert (smooth["infinite"], smooth["failed"]) == (1, 1)
    assert smooth["sharpness"] == pytest.approx(4.0)
    # nkq failed once and is no rival, auto's failure has a verdict of its own.
    assert smooth["ratio"] == pytest.approx(2.0)
    assert smooth["foreseen"] == pytest.approx(2.0)
    books = row(found, "families", family="books", method="auto")
    assert (books["coverage"], books["infinite"]) == (1.0, 3)
    assert math.isnan(books["sharpness"])
    assert row(found, "families", family="all", method="auto")["sharpness"] == pytest.approx(4.0)
    failures = verdict(found, "that fail")
    assert failures.measured == "1 of 6: smooth-2 1"
    assert failures.met is False


def test_errors_of_rounding_are_equal_where_the_answer_is_zero(monkeypatch):
    truth = families.Truth(0.0, 0.0, 1.0)
    monkeypatch.setattr(families, "truth", lambda family, seed: truth)
    found = study.tabulate(
        [
            *runs("smooth-2", "auto", 2048.0, [1e-14] * 3, [1e-12] * 3),
            *runs("smooth-2", "ckq", 2048.0, [1e-17] * 3, [1e-12] * 3),
        ],
        selection("auto", "ckq"),
    )
    assert row(found, "families", family="smooth", method="auto")["ratio"] == 1.0


def test_certified_half_widths_beside_plain_ones():
    found = study.tabulate(
        [
            *runs("smooth-2", "certified", 2048.0, [0.0] * 3, [0.1] * 3),
            *runs("smooth-2", "nqmc", 2048.0, [0.0] * 3, [0.4] * 3),
            *runs("smooth-2", "mlmc", 2048.0, [0.0] * 3, [2.0] * 3),
            *runs("books-2", "certified", 2048.0, [0.0] * 3, [0.01] * 3),
            *runs("books-2", "nqmc", 2048.0, [0.0] * 3, [0.16] * 3),
            *runs("books-2", "mlmc", 2048.0, [0.0] * 3, [INF] * 3),
        ],
        selection("certified", "nqmc", "mlmc"),
    )
    together = row(found, "certified", family="all but rare and noisy")
    assert together["nqmc"] == pytest.approx(8.0)
    assert together["nqmc_least"] == pytest.approx(4.0)
    assert together["mlmc"] == pytest.approx(20.0)
    assert together["mlmc_out"] == 1
    assert verdict(found, "half-width of nqmc").met
    assert verdict(found, "coverage of certified").met
    assert not any("best single" in one.claim for one in found.verdicts)


def test_tolerances_are_kept_by_converged_runs():
    exact = abs(families.truth("smooth", 2).value) / families.truth("smooth", 2).scale
    errors = [0.005 * exact, 0.02 * exact, 0.005 * exact]
    mine = runs("smooth-2", "auto rtol", 0.01, errors, [0.01] * 3, status="converged")
    mine[2] = replace(mine[2], status="limit")
    found = study.tabulate(mine, selection("auto", budgets=(), tolerances=(0.01,)))
    smooth = row(found, "tolerances", family="smooth", kind="rtol")
    assert smooth["converged"] == pytest.approx(2 / 3)
    assert smooth["kept"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("options", [("--methods", "nqmc"), ("--budgets", "none")])
def test_a_study_without_auto_or_without_budgets_has_no_figure(tmp_path, options):
    line = ["families", "--families", "smooth", "--seeds", "2", "--parity", "even", "--runs", "1"]
    line += ["--budgets", "300", "--tolerances", "0.5", "--out", str(tmp_path), "--jobs", "0"]
    assert main([*line, *options]) == 0
    assert not list((tmp_path / "figures").iterdir())


def test_a_certificate_is_asked_for_only_where_there_is_budget_for_it():
    tasks = list(selection("auto", "certified", budgets=(1e3, 1e4), runs=1).tasks())
    assert {t.goal for t in tasks if t.method == "certified"} == {1e4}
    assert {t.goal for t in tasks if t.method == "auto"} == {1e3, 1e4}


def test_a_certified_run_is_judged_by_the_certified_interval():
    problem = nq.problems.finance()
    found = measure(problem, "certified", 0, budget=2000)
    certified = nq.estimate(problem, budget=2000, rng=0, certify=True).certified
    assert found.value == certified.value
    assert found.half_width == pytest.approx(certified.half_width, rel=1e-3)
    assert found.evaluations > certified.n_evaluations


# Equal seconds.


def timed(method, error, **changes):
    run = Run("finance", method, 1.0, 0, error, 1000, covered=1.0, seconds=1.0)
    return replace(run, **changes)


def test_auto_beside_the_best_rival_at_equal_seconds():
    exact = nq.problems.finance().exact
    errors = {"auto": 0.01, "nmc": 0.5, "nqmc": 0.02, "lsmc": math.nan}
    made = [timed(f"{name} 0.0001", error * exact) for name, error in errors.items()]
    made += [timed("auto 0.01", 0.09 * exact, seconds=2.0), timed("nmc 0.01", 0.03 * exact)]
    chosen = equal_seconds.Selection(("finance",), costs=(1e-4, 1e-2), limits=(1.0,))
    found = equal_seconds.tabulate(made, chosen)
    assert [row["ratio"] for row in found.tables[0].rows] == pytest.approx([0.5, 3.0])
    assert [verdict.measured for verdict in found.verdicts] == ["50% of 2", "3 ×", "1"]
    assert [verdict.met for verdict in found.verdicts] == [False, False, False]


def test_evaluations_cost_time_on_the_simulated_clock():
    clock = equal_seconds.SimulatedClock(0.5)
    g = clock.charged(lambda x, theta: x[..., 0] + theta[..., 0])
    start = clock()
    assert np.array_equal(g(np.zeros((1, 200, 3)), np.ones((4, 1, 2))), np.ones((4, 200)))
    assert clock.evaluations == 800
    assert 400 <= clock() - start <= 410


def test_the_study_of_seconds_runs_once(tmp_path, capsys):
    line = ["seconds", "--problems", "synthetic", "--parity", "even", "--limits", "0.5"]
    line += ["--costs", "1e-2", "--out", str(tmp_path), "--jobs", "0"]
    assert main(line) == 0
    page = (tmp_path / "equal_seconds_even.md").read_text(encoding="utf-8")
    assert "| 0.5 s | 0.01 |" in page
    capsys.readouterr()
    assert main(line) == 0
    assert "0 runs to do, 6 finished" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="unknown --problems"):
        main(["seconds", "--problems", "smooth-2"])
