"""Tables and verdicts, from runs whose numbers are known."""

from __future__ import annotations

import csv
import gzip
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nestquad as nq
from nestquad.methods import METHODS
from studies.__main__ import main
from studies.promises import HEAD, STUDIES, accuracy
from studies.promises.cells import (
    Cell,
    beside_foreseen,
    best_single,
    cells_of,
    every,
    notes_of,
    ratio,
)
from studies.runner.ledger import Run
from studies.runner.result import Result
from studies.runner.study import Settings, run_studies

PROBLEMS = nq.problems.names()


def runs(problem, method, goal, errors, half_width=1.0, evaluations=1000, status="done", cpu=0.1):
    return [
        Run(
            *(problem, method, goal, seed, error, evaluations),
            half_width=half_width,
            covered=float(error <= half_width),
            seconds=cpu,
            status=status,
            chosen=method,
            version=nq.__version__,
            sources="abc",
        )
        for seed, error in enumerate(errors)
    ]


def test_ratio_has_the_spread_of_both_means():
    rng = np.random.default_rng(0)
    many = [
        [Cell(tuple(runs("finance", "x", 1.0, s * rng.exponential(size=50))), 0.0) for s in (3, 2)]
        for _ in range(300)
    ]
    result = np.array([ratio(*pair) for pair in many])
    assert np.median(result[:, 0]) == pytest.approx(1.5, rel=0.03)
    assert result[:, 1].mean() == pytest.approx(result[:, 0].std(), rel=0.15)


def test_errors_below_rounding_are_equal():
    cells = [Cell(tuple(runs("finance", "x", 1.0, [e, e])), 1e-12) for e in (1e-14, 1e-17)]
    assert ratio(*cells)[0] == 1.0


def test_best_single_method_leaves_out_auto_and_what_failed():
    cells = cells_of(
        runs("finance", "auto", 1e3, [1e-9, 1e-9])
        + runs("finance", "nkq", 1e3, [2.0, 4.0])
        + runs("finance", "nmc", 1e3, [5.0, 5.0])
        + runs("finance", "joint", 1e3, [1.0, float("nan")]),
        {"finance": 3.0},
    )
    best = best_single(cells, "finance", 1e3)
    assert best.runs[0].method == "nkq"
    assert best.error == 3.0
    assert best.error_se == pytest.approx(1.0)
    assert "joint on finance at 1,000: 1 of 2 runs failed" in notes_of(cells)[0]


def test_the_foreseen_method_has_no_luck():
    # Eight methods with the same law of errors: none is better than auto.
    rng = np.random.default_rng(1)
    hindsight, foreseen = [], []
    for _ in range(300):
        made = []
        for name in ("auto", *"abcdefg"):
            made += runs("finance", name, 1e3, np.abs(rng.normal(size=2)))
        cells = cells_of(made, {"finance": 3.0})
        best = best_single(cells, "finance", 1e3)
        hindsight.append(ratio(cells["finance", "auto", 1e3], best)[0])
        foreseen.append(beside_foreseen(cells, "finance", 1e3))
    assert np.exp(np.mean(np.log(foreseen))) == pytest.approx(1.0, abs=0.15)
    assert np.exp(np.mean(np.log(hindsight))) > 2.0


def promise(values, seeds=50, failed=0, expected=3):
    rows = [
        {"problem": f"p{i}", "v": value, "seeds": seeds, "failed": failed}
        for i, value in enumerate(values)
    ]
    return every(
        expected,
        "claim",
        "≤ 2",
        rows,
        value=lambda row: row["v"],
        text=lambda row: f"{row['v']}",
        good=lambda value: value <= 2,
    )


def test_a_promise_for_every_problem():
    assert promise([1.0, 2.0, 0.5]).met is True
    assert promise([1.0, 2.0, 0.5]).measured == "3 of 3; worst: p1 2.0"
    broken = promise([1.0, 3.0, 4.0])
    assert (broken.met, broken.measured) == (False, "1 of 3; not p2 4.0, p1 3.0")
    # Too few problems or seeds leave it open, whatever they say.
    assert promise([1.0, 1.0]).met is None
    assert promise([1.0, 1.0, 3.0], seeds=2).met is None
    assert promise([]).measured == "–"
    assert promise([1.0, 1.0, 1.0], failed=1).met is False


def all_runs(auto_error):
    results = []
    for problem in PROBLEMS:
        for budget in (1e3, 1e4, 1e5):
            results += runs(problem, "auto", budget, [auto_error] * 10, 2.5 * auto_error)
            for method in METHODS:
                error = 1e-7 if method == "ckq" else 1e-3
                results += runs(problem, method, budget, [error] * 4, error)
    return results


@pytest.mark.parametrize(
    ("error", "ratio_met", "error_met"),
    [(2e-7, True, True), (3e-7, False, True), (1, False, False)],
)
def test_accuracy_verdicts(error, ratio_met, error_met):
    exact = {name: nq.problems.get(name).exact for name in PROBLEMS}
    result = accuracy.tabulate(cells_of(all_runs(error), exact))
    verdicts = {v.claim: v.met for v in result.verdicts}
    ratios = [met for claim, met in verdicts.items() if "best single" in claim]
    assert ratios == [ratio_met] * 2
    assert verdicts["finance, auto, 10,000 evaluations, mean error"] is error_met
    others = [m for c, m in verdicts.items() if "coverage" in c or "half-width" in c or "CPU" in c]
    assert others == [True] * 6
    assert {row["best"] for row in result.table("auto").rows} == {"ckq"}
    assert len(result.table("errors").rows) == 3 * len(PROBLEMS)


def test_intervals_that_are_too_narrow_or_too_wide_are_told():
    exact = {name: nq.problems.get(name).exact for name in PROBLEMS}
    narrow = [r for r in all_runs(1e-3) if (r.problem, r.method) != ("health", "auto")]
    narrow += runs("health", "auto", 1e3, [1.0] * 8 + [3.0] * 2, 2.0)
    narrow += runs("health", "auto", 1e4, [1.0] * 10, 20.0)
    verdicts = {v.claim: v for v in accuracy.tabulate(cells_of(narrow, exact)).verdicts}
    low = verdicts["coverage of the 95 % interval of auto, 1,000 evaluations, every problem"]
    wide = verdicts["median half-width over mean error of auto, 10,000 evaluations, every problem"]
    assert (low.met, low.measured) == (False, "7 of 8; not health 80 %")
    assert (wide.met, wide.measured) == (False, "7 of 8; not health 20 ×")


COMMAND = ["promises", "--only", "accuracy", "--quick", "--methods", "mlmc,nqmc"]
COMMAND += ["--problems", "finance,synthetic"]


def kept(folder):
    with gzip.open(folder / "data" / "accuracy_runs.csv.gz", "rt") as file:
        return {tuple(row[key] for key in ("problem", "method", "seed", "error")) for row in
                csv.DictReader(file)}  # fmt: skip


def test_a_study_goes_on_where_it_was_left(tmp_path):
    command = [*COMMAND, "--jobs", "0", "--out", str(tmp_path)]
    main([*command, "--seeds", "2"])
    first = kept(tmp_path)
    main([*command, "--seeds", "3"])
    assert len(first) == 8
    assert first < kept(tmp_path)
    assert {run[2] for run in kept(tmp_path)} == {"0", "1", "2"}
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "## auto beside every method" in page
    assert "`data/accuracy_runs.csv.gz`" in page


@pytest.mark.slow
def test_processes_find_what_this_one_finds(tmp_path):
    for jobs in ("0", "2"):
        main([*COMMAND, "--seeds", "2", "--jobs", jobs, "--out", str(tmp_path / jobs)])
    assert kept(tmp_path / "0") == kept(tmp_path / "2")


@pytest.mark.parametrize(
    "command",
    [["--problems", "finnace"], ["--methods", "nope"], ["--only", "nope"], ["--seeds", "1"]],
)
def test_slips_of_the_pen_are_told_before_anything_runs(command):
    with pytest.raises(SystemExit, match=r"unknown --\w+: \w+; known: |at least 2"):
        main(["promises", *command])


def test_figures_can_be_drawn_from_what_is_saved(tmp_path):
    pytest.importorskip("matplotlib")
    exact = {name: nq.problems.get(name).exact for name in PROBLEMS}
    results = {
        "accuracy": accuracy.tabulate(cells_of(all_runs(1e-3), exact)),
    }
    for study in STUDIES:
        if study.name in results:
            path = tmp_path / f"{study.name}.json"
            results[study.name].save(path)
            for drawing in study.drawings:
                figure = drawing.draw(Result.load(path))
                assert all(ax.get_xlabel() for ax in figure.axes if ax.axison)


def test_the_page_is_made_again_from_what_is_recorded(tmp_path):
    docs = Path(__file__).resolve().parents[2] / "docs"
    shutil.copytree(docs / "data", tmp_path / "data")
    shutil.copytree(docs / "figures", tmp_path / "figures")
    settings = Settings(data=tmp_path / "data")
    undrawn = [replace(study, drawings=()) for study in STUDIES]
    run_studies(undrawn, [], settings, tmp_path / "benchmarks.md", HEAD, "")
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    recorded = (docs / "benchmarks.md").read_text(encoding="utf-8")
    without = re.sub(r"!\[[^\n]*\n\n\*[^\n]*\*\n\n?", "", recorded)
    assert re.sub(r"\n+", "\n", page) == re.sub(r"\n+", "\n", without)
