"""Tables and verdicts of families and seconds, from runs whose numbers are known."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

import nestquad as nq
from studies import families
from studies.__main__ import main
from studies.families import seconds, study
from studies.promises.measure import measure
from studies.runner.ledger import Ledger, Run, Task, sources

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


def test_coverage_of_earlier_code_stands_beside_that_of_today():
    now = runs("smooth-2", "auto", 2048.0, [0.1] * 3, [0.4] * 3)
    before = runs("smooth-2", "auto", 2048.0, [0.1, 0.5], [0.4] * 2, sources="then")
    found = study.tabulate(now, selection("auto"), before)
    smooth = row(found, "earlier", family="smooth")
    assert (smooth["then"], smooth["now"]) == ("50 % of 2", "100 % of 3")
    assert not any(
        table.name == "earlier" for table in study.tabulate(now, selection("auto")).tables
    )


@pytest.mark.parametrize("options", [("--methods", "nqmc"), ("--budgets", "none")])
def test_a_study_without_auto_or_without_budgets_has_no_figure(tmp_path, options):
    line = ["families", "--families", "smooth", "--seeds", "2", "--parity", "even", "--runs", "1"]
    line += ["--budgets", "300", "--tolerances", "0.5", "--out", str(tmp_path), "--jobs", "0"]
    assert main([*line, *options]) == 0
    assert not list((tmp_path / "figures").iterdir())


def test_fresh_runs_keep_those_of_earlier_code(tmp_path):
    line = ["families", "--families", "smooth", "--seeds", "2", "--parity", "even", "--runs", "1"]
    line += ["--budgets", "300", "--tolerances", "none", "--methods", "auto"]
    line += ["--out", str(tmp_path), "--jobs", "0", "--fresh"]
    path, task = tmp_path / "data" / "families_runs.csv.gz", Task("smooth-2", "auto", 300.0, 0)
    assert main(line) == 0
    ledger = Ledger(path)
    ledger.runs[task] = replace(ledger.runs[task], sources="then", covered=0.0)
    ledger.tidy()
    assert main(line) == 0
    assert [one.sources for one in Ledger(path).others] == ["then"]
    assert Ledger(path).runs[task].sources == sources()
    page = (tmp_path / "families_even.md").read_text(encoding="utf-8")
    assert "| then | now |" in page
    assert "0 % of 1" in page


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


# Seconds.


def test_a_costly_g_takes_its_time_and_returns_what_g_returns():
    g = seconds.Costly(lambda x, theta: x[..., 0] + theta[..., 0], 1e-5)
    x, theta = np.zeros((1, 200, 3)), np.ones((4, 1, 2))
    start = time.perf_counter()
    values = g(x, theta)
    spent = time.perf_counter() - start
    assert np.array_equal(values, np.ones((4, 200)))
    assert g.evaluations == 800
    assert 8e-3 <= g.seconds <= spent


def timed(method, goal, number, outside, evaluations, *, error=0.0, status="converged"):
    return Run(
        *("finance", method, goal, number, error, evaluations),
        seconds=outside,
        g_seconds=0.001,
        status=status,
        chosen=method,
    )


def test_seconds_beside_the_fastest_method_that_keeps_the_tolerance():
    exact = nq.problems.finance().exact
    made = [
        # nqmc: .02 s and 1e5 evaluations; joint: 1 s and 1,000; mlkq breaks the tolerance once.
        *(timed("nqmc", 0.01, k, 0.02, 100_000) for k in range(3)),
        *(timed("joint", 0.01, k, 1.0, 1_000) for k in range(3)),
        *(timed("mlkq", 0.01, k, 1e-3, 10, error=0.02 * exact * (k == 1)) for k in range(3)),
        timed("ckq", 0.01, 0, 1e-3, 10, status="limit"),
        *(timed("auto 0", 0.01, k, 0.041, 500) for k in range(3)),
        *(timed("auto 0.001", 0.01, k, 0.999, 500) for k in range(3)),
    ]
    made += [replace(timed("auto 0.1", 0.01, k, 1.0, 9), status="time") for k in range(3)]
    assert seconds.fastest(made, "finance", 0.01, 0.0, 3) == ("nqmc", pytest.approx(0.021))
    assert seconds.fastest(made, "finance", 0.01, 1e-3, 3) == ("joint", pytest.approx(2.0))
    assert seconds.fastest(made, "finance", 0.5, 0.0, 3) == ("", INF)
    chosen = seconds.Selection(("finance",), tolerances=(0.01,), costs=(0.0, 1e-3, 0.1))
    found = seconds.tabulate(made, chosen)
    ratios = [one["ratio"] for one in found.table("problems").rows]
    # A run that gave up counts as long as it was allowed to take: 120 s beside 1 s + 100 s.
    assert ratios == pytest.approx([2.0, 0.5, 120 / 101])
    assert found.table("summary").rows[-1]["missed"] == 3
    assert [one.met for one in found.verdicts] == [False, True, True, True, True, True]


def test_the_study_of_seconds_runs_once(tmp_path, capsys):
    line = ["seconds", "--problems", "synthetic", "--parity", "even", "--tolerances", "0.3"]
    line += ["--costs", "1e-7,1e-6", "--runs", "1", "--out", str(tmp_path), "--jobs", "0"]
    assert main(line) == 0
    page = (tmp_path / "seconds_even.md").read_text(encoding="utf-8")
    assert "g of 1 µs, geometric mean" in page
    capsys.readouterr()
    assert main(line) == 0
    again = capsys.readouterr().err
    assert "6 finished" in again
    assert "2 finished" in again
    with pytest.raises(SystemExit, match="unknown --problems"):
        main(["seconds", "--problems", "smooth-2"])
