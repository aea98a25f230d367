"""Rivals of the risk door, and tables and verdicts from runs whose numbers are known."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

import nestquad as nq
from studies import risk
from studies.__main__ import main
from studies.risk import rivals, study
from studies.runner.ledger import Outcome, Run, Task

MODEL = risk.draw("giles-haji-ali", 2)  # one dimension


def test_nested_monte_carlo_answers_every_measure_at_every_split():
    answers, settings = rivals.nested(MODEL.problem, MODEL.levels, 4096, 0)
    assert list(answers) == list(risk.MEASURES)
    assert {len(of) for of in answers.values()} == {settings} == {8}
    # Noise of the inner mean widens J: the bias is positive and falls with N.
    values = [
        np.mean([rivals.nested(MODEL.problem, MODEL.levels, 40_000, s)[0]["VaR 99"][f"N = {n}"]
                 for s in range(3)])
        for n in (4, 64)
    ]  # fmt: skip
    exact = MODEL.truth["VaR 99"].value
    assert values[0] > 1.5 * exact
    assert abs(values[1] / exact - 1) < 0.4


def test_inner_draws_are_independent_for_each_scenario():
    theta = np.zeros((3, 1))
    problem = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: x[..., 0] + theta[..., 0]
    )
    draws = rivals.losses(problem, theta, 4, np.random.default_rng(0))
    assert draws.shape == (3, 4)
    assert len(np.unique(draws)) == 12


def test_least_squares_finds_a_quadratic_j():
    problem = nq.NestedExpectation(
        nq.Normal(dim=2),
        nq.Normal(),
        lambda x, theta: theta[..., 0] ** 2 + theta[..., 1] ** 2 + x[..., 0],
    )
    levels = {"P 1": 9.21, "P 0.1": 13.82}  # of a chi-square with two degrees of freedom
    answers, _ = rivals.least_squares(problem, levels, 40_000, 0)
    assert answers["VaR 99"]["degree 2"] == pytest.approx(9.21, rel=0.03)
    assert answers["P 1"]["degree 2"] == pytest.approx(0.01, rel=0.15)
    assert answers["VaR 99"]["degree 1"] < 3


def test_monomials_are_all_of_a_degree():
    basis = rivals.Monomials(3, 2)
    assert basis.size == math.comb(5, 2)
    z = np.random.default_rng(0).normal(size=(50, 3))
    assert np.linalg.matrix_rank(basis(z)) == 10


def _multilevel(seed=0, first=32):
    rng = np.random.default_rng(seed)
    return rivals.Multilevel(MODEL.problem, MODEL.levels["P 1"], first, rng)


def test_corrections_have_the_rates_of_adaptive_sampling():
    found = [_multilevel(level).corrections(level, 12_000) for level in range(4)]
    costs = [cost / 12_000 for _, cost in found]
    # Cost doubles with each level, where plain doubling twice would be four times as much.
    assert costs[0] == 32
    for before, after in itertools.pairwise(costs[1:]):
        assert 1.5 < after / before < 2.6
    variances = [values.var() for values, _ in found]
    assert variances[3] < 0.6 * variances[2] < 0.6 * 0.6 * variances[1]
    # The sum telescopes to the estimate of the finest level alone, which is nearly unbiased.
    total = sum(values.mean() for values, _ in found)
    error = math.sqrt(sum(values.var() / values.size for values, _ in found))
    exact = MODEL.truth["P 1"].value
    assert abs(total - exact) < 4 * error + 0.2 * exact


def test_coarse_estimates_have_the_law_of_the_level_below():
    n = 20_000
    fine, _ = _multilevel(1).corrections(0, n)
    correction, _ = _multilevel(2).corrections(1, n)
    whole = fine.mean() + correction.mean()
    # The fine estimate of level 1 alone, by the same rule: 64 draws, or 128 near the threshold.
    run = _multilevel(3)
    theta = run.problem.outer_law.sample(n, run.rng)
    draws = rivals.losses(run.problem, theta, 128, run.rng) - run.threshold
    first = draws[:, :64]
    distance = np.abs(first.mean(axis=1)) / first.std(axis=1, ddof=1)
    enough = run._needed(1, distance) <= 64
    alone = np.where(enough, first.mean(axis=1) > 0, draws.mean(axis=1) > 0).mean()
    error = math.sqrt((fine.var() + correction.var() + alone * (1 - alone)) / n)
    assert abs(whole - alone) < 4 * error


def test_multilevel_keeps_to_its_budget():
    values = []
    for seed in range(6):
        run = _multilevel(seed)
        values.append(run.estimate(3, 200_000))
        assert 0.7 * 200_000 <= run.cost <= 1.3 * 200_000
    exact = MODEL.truth["P 1"].value
    assert abs(np.mean(values) - exact) < 3 * np.std(values) / math.sqrt(6) + 0.1 * exact
    assert np.std(values) < exact
    answers, _ = rivals.multilevel(MODEL.problem, MODEL.levels, 20_000, 0)
    assert set(answers) == {"P 1", "P 0.1"}


def door_run(problem, goal, number, factors, half, **changes):
    """A run whose values are multiples of the truth, with a half-width relative to it."""
    truth = risk.case_of(problem).truth
    trace = {
        name: [
            f * truth[name].value,
            (f - half) * truth[name].value,
            (f + half) * truth[name].value,
        ]
        for name, f in factors.items()
    }
    task = Task(problem, study.DOOR, goal, number)
    return Run.of(task, Outcome(0.1, 9000, seconds=1.0, trace=json.dumps(trace), **changes))


def rival_run(problem, method, goal, number, factors):
    truth = risk.case_of(problem).truth
    trace = {"P 1": {setting: f * truth["P 1"].value for setting, f in factors.items()}}
    outcome = Outcome(0.1, int(goal), seconds=0.1, trace=json.dumps(trace))
    return Run.of(Task(problem, method, goal, number), outcome)


def chosen(**changes):
    given = {"families": ("book5",), "seeds": (0,), "parity": "even", "budgets": (1e3, 1e4)}
    return study.Selection(**(given | {"tolerances": (), "runs": 2} | changes))


ALL = dict.fromkeys(risk.MEASURES, 1.02)


def test_rmse_coverage_and_hindsight_are_by_family_and_measure():
    runs = [
        door_run("book5-0", 1e4, 0, ALL, 0.05),
        door_run("book5-0", 1e4, 1, ALL | {"P 1": 1.2}, 0.05),
        *(rival_run("book5-0", "nmc", 1e3, k, {"N = 1": 3.0, "N = 2": 1.8}) for k in range(2)),
        *(rival_run("book5-0", "nmc", 1e4, k, {"N = 1": 2.9, "N = 8": 1.4}) for k in range(2)),
    ]
    found = study.tabulate(runs, chosen())
    rows = {(r["goal"], r["measure"], r["method"]): r for r in found.table("budgets").rows}
    one = rows[1e4, "P 1", study.DOOR]
    assert one["rmse"] == pytest.approx(math.sqrt((0.02**2 + 0.2**2) / 2))
    assert one["coverage"] == 0.5
    assert rows[1e4, "VaR 99", study.DOOR]["coverage"] == 1.0
    assert rows[1e3, "P 1", "NMC"]["setting"] == "N = 2"
    assert rows[1e3, "P 1", "NMC"]["rmse"] == pytest.approx(0.8)
    same = next(r for r in found.table("same").rows if r["measure"] == "P 1")
    # 0.4 at 1e4: half the error costs eight times as much.
    assert same["nmc"] == pytest.approx(1e4 * (0.4 / one["rmse"]) ** 3, rel=1e-6)
    by_claim = {verdict.claim: verdict for verdict in found.verdicts}
    assert by_claim["relative RMSE of VaR 99 on book5, 10,000 evaluations"].met
    assert by_claim["relative RMSE of P 1 on book5, 10,000 evaluations"].met is False
    assert by_claim["coverage in each family of each measure, 10,000 evaluations"].met is False


def test_evaluations_for_the_same_error():
    curve = [(1e3, 0.4), (1e4, 0.2), (1e5, 0.1)]
    assert study.needed(curve, 0.2, 0.5) == pytest.approx(1e4)
    assert study.needed(curve, 0.05, 0.5) == pytest.approx(4e5)
    assert study.needed(curve, 0.05, 1 / 3) == pytest.approx(8e5)
    assert study.needed(curve, 0.8, 0.5) == pytest.approx(1e3)
    # Errors of few runs need not fall: the first crossing counts.
    assert study.needed([(1e3, 0.4), (1e4, 0.1), (1e5, 0.2)], 0.2, 0.5) == pytest.approx(10**3.5)


def test_tolerances_are_kept_by_converged_runs():
    factors = {"VaR 99": 1.01, "ES 97.5": 1.01, "P 1": 1.2}
    runs = [
        door_run("book5-0", 0.05, 0, factors, 0.05, status="converged"),
        door_run("book5-0", 0.05, 1, factors, 0.05, status="budget"),
    ]
    found = study.tabulate(runs, chosen(tolerances=(0.05,)))
    rows = {row["measure"]: row for row in found.table("tolerances").rows}
    assert (rows["VaR 99"]["converged"], rows["VaR 99"]["kept"]) == (0.5, 1.0)
    assert rows["P 1"]["kept"] == 0.0
    assert next(v for v in found.verdicts if "rtol" in v.claim).met is False


def test_a_failed_run_does_not_cover():
    lost = Run.of(
        Task("book5-0", study.DOOR, 1e4, 1),
        Outcome(math.nan, 0, status="failed", chosen="RuntimeError: no"),
    )
    found = study.tabulate([door_run("book5-0", 1e4, 0, ALL, 0.05), lost], chosen())
    assert found.table("budgets").rows[0]["coverage"] == 0.5
    assert "RuntimeError: no" in found.verdicts[-1].measured


def test_the_study_runs_once_and_writes_its_page(tmp_path, capsys):
    line = ["risk", "--families", "giles-haji-ali", "--seeds", "0-1", "--parity", "even"]
    line += ["--budgets", "600,1200", "--tolerances", "none", "--methods", "nmc,mlmc,lsmc"]
    line += ["--runs", "2", "--out", str(tmp_path), "--jobs", "0"]
    assert main(line) == 0
    assert "12 runs to do, 0 finished" in capsys.readouterr().err
    page = (tmp_path / "risk_benchmarks_even.md").read_text(encoding="utf-8")
    assert "these numbers are no report" in page
    assert "| 1,200 | giles-haji-ali | VaR 99 |" in page
    assert (tmp_path / "figures" / "bench_risk_even_p1.png").exists()
    assert main(line) == 0
    assert "0 runs to do, 12 finished" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no odd seeds"):
        main(["risk", "--seeds", "0"])


def test_a_run_that_raises_is_a_failed_run(monkeypatch):
    def broken(*_):
        raise RuntimeError("no luck")

    monkeypatch.setitem(rivals.RIVALS, "nmc", broken)
    found = study.measure(Task("giles-haji-ali-0", "nmc", 600.0, 0))
    assert (found.status, found.chosen) == ("failed", "RuntimeError: no luck")


def test_large_budgets_and_tolerances_are_for_the_first_seeds():
    chosen = study.Selection(("book1",), (1, 3, 5), runs=2, methods=("risk.measure", "nmc"))
    tasks = list(chosen.tasks())
    slow = [task for task in tasks if task.goal in (0.05, 1e5)]
    assert len(tasks) - len(slow) == 3 * 2 * 2 * 2  # seeds, budgets, methods, runs
    assert {(task.problem, task.seed) for task in slow} == {("book1-1", 0), ("book1-3", 0)}
    assert sum(task.goal == 0.05 for task in slow) == 2  # rivals have no tolerance
