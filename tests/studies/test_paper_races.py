"""Races made up so that it is known who is ahead, and what Bayesian optimisation says of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from studies.paper import bayesopt
from studies.paper.bayesopt import FUNCTIONS, RIVALS, pairs_to_decide
from studies.paper.part import Effort, Runs
from studies.paper.races import Race, lead, no_worse, race_of
from studies.runner.ledger import Ledger, Run
from studies.runner.result import verdicts_of


def race(pace, rate, *, noise=0.3, replicates=20, iterations=10, seed=0):
    """An iteration takes `pace` seconds, and divides the error by about e^rate."""
    rng = np.random.default_rng(seed)
    steps = rate * rng.lognormal(0.0, noise, (replicates, iterations))
    error = np.exp(-np.cumsum(np.c_[np.zeros(replicates), steps], axis=1))
    wall = pace * np.arange(iterations + 1) * np.ones((replicates, 1))
    return Race(wall, wall, error)


def test_the_error_at_a_time_is_the_last_that_is_known():
    wall = np.array([[0.0, 1.0, 3.0], [0.0, 2.0, 4.0]])
    one = Race(wall, wall, np.array([[1.0, 0.5, 0.1], [1.0, 0.4, 0.2]]))
    np.testing.assert_array_equal(one.at(0.0), [1.0, 1.0])
    np.testing.assert_array_equal(one.at(1.9), [0.5, 1.0])
    np.testing.assert_array_equal(one.at(3.0), [0.1, 0.4])
    np.testing.assert_array_equal(one.at(99.0), [0.1, 0.2])
    assert one.first == 1.5
    assert one.last == 3.5


def test_lead_of_a_race_that_is_known():
    one, other = race(1.0, 1.0, noise=0.0), race(1.0, 0.5, noise=0.0)
    result = lead(one, other)
    assert (result.since, result.until) == (1.0, 10.0)
    assert result.final.value == pytest.approx(np.exp(5.0))
    # Between the ratios at the first and at the last iteration.
    assert np.exp(0.5) < result.average.value < np.exp(5.0)
    assert result.average.low <= result.average.value <= result.average.high
    back = lead(other, one)
    assert back.average.value == pytest.approx(1.0 / result.average.value)


def test_pairs_to_decide_decide():
    def rivals(n):
        return [race(1.0, 1.0, noise=0.2, replicates=n, seed=seed) for seed in (0, 1)]

    few = rivals(12)
    assert no_worse("", *few, "").status == "cannot tell"
    needed = pairs_to_decide(*few)
    assert needed > 12
    assert no_worse("", *rivals(round(3 * needed)), "").status != "cannot tell"


def test_equal_time_is_not_equal_iterations():
    # The slow one is better for each iteration, and worse for each second.
    quick, slow = race(1.0, 0.5), race(6.0, 1.0, seed=1)
    assert (slow.medians[1:] < quick.medians[1:]).all()
    assert no_worse("", quick, slow, "").status == "holds"
    assert no_worse("", slow, quick, "").status == "does not hold"
    assert no_worse("", slow.by_iteration, quick.by_iteration, "", "iterations").status == "holds"


def test_verdicts():
    good, bad = race(1.0, 1.0), race(1.0, 0.4, seed=1)
    assert no_worse("", good, bad, "").status == "holds"
    worse = no_worse("", bad, good, "")
    assert worse.status == "does not hold"
    assert "20 pairs" in worse.reason
    few = {"noise": 1.5, "replicates": 8}
    alike = no_worse("", race(1.0, 0.5, **few), race(1.0, 0.5, seed=1, **few), "")
    assert alike.status == "cannot tell"
    # Two runs each prove nothing.
    assert no_worse("", race(1.0, 1.0, replicates=2), race(1.0, 0.1, replicates=2), "").status == (
        "cannot tell"
    )
    # The same numbers are no worse than themselves.
    assert no_worse("", good, good, "").status == "holds"


def made_up_runs(effort, paces, rates):
    """Runs of the part as if methods had these paces and rates."""
    runs = {}
    for task in bayesopt.PARTS[0].tasks(effort):
        name = task.method.removeprefix("bo ")
        made = race(paces.get(name, 1.0), rates.get(name, 0.5), seed=task.seed, replicates=1)
        trace = {"wall": made.wall[0], "cpu": made.cpu[0], "error": made.error[0]}
        text = json.dumps({key: list(values) for key, values in trace.items()})
        runs[task] = Run(
            *(task.problem, task.method, task.goal, task.seed),
            value=0.0,
            error=float(made.error[0, -1]),
            evaluations=22,
            trace=text,
            seconds=1.0,
        )
    return Runs(runs)


@pytest.mark.parametrize(
    ("paces", "rates", "status"),
    [
        ({}, {"nkq": 1.5}, "holds"),
        ({"nmc": 8.0, "nmc small": 8.0, "mlmc": 8.0}, {}, "holds"),
        ({"nkq": 8.0}, {}, "does not hold"),
        ({}, {"nmc": 1.5, "nmc small": 1.5, "mlmc": 1.5}, "does not hold"),
    ],
)
def test_verdicts_of_the_part_follow_the_data(paces, rates, status):
    findings = bayesopt.PARTS[0].analyze(made_up_runs(Effort(), paces, rates))
    own = [v for v in verdicts_of(findings) if "NMC" in v.claim or "MLMC" in v.claim]
    assert len(own) == 9
    assert {v.status for v in own} == {status}
    assert {v.claim.partition(":")[0] for v in own} == set(FUNCTIONS)


def test_traces_survive_the_file(tmp_path):
    effort = Effort(2, tiny=True)
    runs = made_up_runs(effort, {}, {})
    ledger = Ledger(tmp_path / "runs.csv", 0)
    for run in runs.by_task.values():
        ledger.append(run)
    ledger.tidy()
    back = Runs.of(Ledger(tmp_path / "runs.csv", 0), bayesopt.PARTS[0].tasks(effort))
    assert back == runs
    cell = back.of_cell("Dropwave", "bo nkq", 2)
    assert race_of(cell).error.shape == (len(cell), 11)


def test_a_run_is_an_optimisation_like_any_other():
    import torch
    from botorch.test_functions import Ackley

    from studies.paper.optimization import optimize

    (series,) = (s for s in bayesopt.PARTS[0].series if s.name == "bo random")
    task = next(t for t in bayesopt.PARTS[0].tasks(Effort()) if t.method == "bo random")
    task = type(task)("Ackley", task.method, task.goal, task.seed)
    result = series.run(task, np.random.SeedSequence(7))
    function = Ackley(dim=2, negate=True)
    again = optimize(
        lambda x: function(torch.from_numpy(x)).numpy(),
        function.bounds.numpy(),
        iterations=RIVALS["random"].iterations,
        acquisition=None,
        seed=int(np.random.SeedSequence(7).generate_state(1)[0]),
    )
    assert result.value == again.best[-1]
    assert result.evaluations == len(again)
    # The paper's NMSE; Ackley's maximum after the change of sign is 0.
    assert result.error == pytest.approx((again.best[-1] / again.best[1]) ** 2)
    trace = json.loads(result.trace)
    assert trace["error"][0] == 1.0
    assert trace["error"] == sorted(trace["error"], reverse=True)
    assert trace["wall"] == sorted(trace["wall"])
    assert len(trace["wall"]) == RIVALS["random"].iterations + 1


def test_all_rivals_begin_at_the_same_points():
    assert len({series.stream for series in bayesopt.PARTS[0].series}) == 1
    assert len({task.size for task in bayesopt.PARTS[0].tasks(Effort())}) == 1
