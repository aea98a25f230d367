"""Scenarios, subgroups, populations by year, implementation and convergence, against truths."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import nestquad as nq
from nestquad import voi
from nestquad.cli import main


def gain(mean, sd):
    """Value of knowing a normal incremental net benefit."""
    return mean * norm.cdf(mean / sd) + sd * norm.pdf(mean / sd) - max(mean, 0.0)


def table(mean, sd, n=20_000, seed=1):
    draws = np.random.default_rng(seed).normal(mean, sd, n)
    return np.column_stack((np.zeros(n), draws))


# Structural uncertainty: means 2, −1 and 0.5 with weights.

MEANS, WEIGHTS = {"a": 2.0, "b": -1.0, "c": 0.5}, {"a": 0.3, "b": 0.5, "c": 0.2}


def test_the_value_of_resolving_which_scenario_holds():
    outputs = {name: table(m, 3.0, seed=k) for k, (name, m) in enumerate(MEANS.items())}
    row = voi.scenarios(outputs, WEIGHTS).iloc[0]
    mixed = sum(WEIGHTS[k] * m for k, m in MEANS.items())  # 0.2
    truth = sum(WEIGHTS[k] * max(m, 0.0) for k, m in MEANS.items()) - max(mixed, 0.0)
    assert abs(row.resolving - truth) < 3 * row.se
    assert row.lower <= truth <= row.upper
    # Knowing everything: E max(0, INB) over all scenarios, less the best on average.
    all_ = sum(WEIGHTS[k] * (gain(m, 3.0) + max(m, 0.0)) for k, m in MEANS.items()) - mixed
    assert abs(row.evpi - all_) < 4 * row.evpi_se
    assert row.best == "option 2"


def test_intervals_of_scenarios_cover():
    hits = []
    for seed in range(1, 200, 2):
        outputs = {k: table(m, 3.0, 400, 10 * seed + j) for j, (k, m) in enumerate(MEANS.items())}
        row = voi.scenarios(outputs, WEIGHTS).iloc[0]
        truth = 0.3 * 2.0 + 0.2 * 0.5 - 0.2
        hits.append(row.lower <= truth <= row.upper)
    assert np.mean(hits) >= 0.93


def test_scenarios_that_are_refused():
    two = {"a": table(1, 1, 50), "b": table(0, 1, 50)}
    with pytest.raises(nq.InputError, match="1 in all"):
        voi.scenarios(two, {"a": 0.5, "b": 0.6})
    with pytest.raises(nq.InputError, match="Did you mean 'b'"):
        voi.scenarios(two, {"a": 0.5, "B": 0.5})
    three = np.column_stack((two["b"], two["b"][:, 1]))
    with pytest.raises(nq.InputError, match="as the first"):
        voi.scenarios({"a": two["a"], "b": three}, {"a": 0.5, "b": 0.5})


# Subgroups: INB = μ_g + s_g x + noise with x standard normal.

GROUPS = {"old": (0.5, 1.0), "young": (-1.0, 2.0)}
SHARES = {"old": 0.6, "young": 0.4}


@pytest.fixture(scope="module")
def by_subgroup():
    rng = np.random.default_rng(3)
    n = 10_000
    x = rng.standard_normal(n)
    noise = rng.standard_normal(n)
    outputs = {
        name: np.column_stack((np.zeros(n), mean + slope * x + noise))
        for name, (mean, slope) in GROUPS.items()
    }
    found = voi.subgroups(outputs, SHARES, pd.DataFrame({"x": x}))
    return found.set_index(["pars", "decision"])


@pytest.mark.parametrize("name", GROUPS)
def test_evppi_by_subgroup(by_subgroup, name):
    row, truth = by_subgroup.loc[("x", name)], gain(*GROUPS[name])
    assert row.lower <= truth <= row.upper
    assert row.value == pytest.approx(truth, rel=0.1)
    assert row.share == SHARES[name]


def test_evppi_of_a_stratified_and_of_one_decision(by_subgroup):
    stratified = sum(SHARES[k] * gain(*GROUPS[k]) for k in GROUPS)
    mean, slope = (sum(SHARES[k] * GROUPS[k][j] for k in GROUPS) for j in (0, 1))
    for decision, truth in (("stratified", stratified), ("one decision", gain(mean, slope))):
        row = by_subgroup.loc[("x", decision)]
        assert row.lower <= truth <= row.upper
        assert row.value == pytest.approx(truth, rel=0.1)


def test_the_value_of_deciding_by_subgroup_today(by_subgroup):
    row = by_subgroup.loc[("current information", "stratified")]
    truth = 0.6 * 0.5 - max(0.6 * 0.5 - 0.4 * 1.0, 0.0)
    assert row.lower <= truth <= row.upper
    everything = by_subgroup.loc[("everything", "stratified")].value
    noisy = sum(SHARES[k] * gain(m, np.hypot(s, 1.0)) for k, (m, s) in GROUPS.items())
    assert everything == pytest.approx(noisy, rel=0.05)


# Populations by year.


def test_incidence_prevalence_and_uptake_by_year():
    rate = 0.05
    by_hand = sum(
        incidence * uptake / 1.05**year
        for year, (incidence, uptake) in enumerate(
            zip([100, 200, 300, 300, 300], [0.2, 0.6, 0.6, 0.6, 0.6], strict=True)
        )
    )
    found = voi.people([100, 200, 300], 5, discount=rate, uptake=[0.2, 0.6], prevalence=1000)
    assert found == pytest.approx(by_hand + 0.2 * 1000)
    # From year 1.5 on: half of the second year, and the pool in the second year.
    later = voi.people(
        [100, 200, 300], 5, discount=rate, uptake=[0.2, 0.6], prevalence=1000, start=1.5
    )
    rest = 0.6 * (100 / 1.05 + 300 * (1.05**-2 + 1.05**-3 + 1.05**-4)) + 0.6 * 1000 / 1.05
    assert later == pytest.approx(rest)
    assert voi.people([100, 200], 5, start=5, prevalence=9) == 0.0
    assert voi.people(100, 7.25) == pytest.approx(voi.people([100, 100, 100], 7.25))
    with pytest.raises(nq.InputError, match="uptake"):
        voi.people(100, 5, uptake=1.2)


def test_a_population_by_year_in_an_analysis():
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, 400)
    audience = voi.Audience([100, 200], 4, 0.0, prevalence=50, uptake=0.5)
    found = voi.analyze(np.column_stack((0 * x, x)), pd.DataFrame({"x": x}), audience=audience)
    assert found.evpi.population[0] == pytest.approx(found.evpi.evpi[0] * 0.5 * 750)


def test_the_value_of_implementation():
    row = voi.implementation(table(1.0, 2.0), {"option 1": 0.25, "option 2": 0.75}).iloc[0]
    assert abs(row.value - 0.25) < 3 * row.se
    assert row.best == "option 2"


# Convergence.


def test_convergence_says_whether_draws_are_enough():
    rng = np.random.default_rng(5)
    x, noise = rng.standard_normal((2, 16_000))
    outputs = np.column_stack((0 * x, x + noise))
    found = voi.convergence(outputs, pd.DataFrame({"x": x}), ["x"])
    assert found.pars.unique().tolist() == ["EVPI", "x"]
    last = found[found.n == 16_000].set_index("pars")
    for pars, truth in (("EVPI", gain(0.0, np.sqrt(2.0))), ("x", gain(0.0, 1.0))):
        assert last.lower[pars] <= truth <= last.upper[pars]
        assert last.enough[pars]
        assert last.needed[pars] <= 16_000
    small = voi.convergence(outputs[:300])
    assert not small.enough.iloc[-1]
    # The number of draws that it asks for is about enough: the error falls with √n.
    asked = int(small.needed.iloc[-1])
    assert voi.convergence(outputs[: min(2 * asked, 16_000)]).enough.iloc[-1]


# Scenarios and subgroups in an analysis and in the command.


def _two_points(costs_of_new):
    """Costs and effects of two options, 40 draws, for each of which the new one costs so much."""
    theta = np.tile([-1.0, 1.0], 20)
    costs = pd.DataFrame({"old": 0.0 * theta, "new": costs_of_new(theta)})
    return theta, costs, pd.DataFrame({"old": 0.0 * theta, "new": 1e-9 * np.arange(40.0)})


def _written(folder, **tables):
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return {name: str(folder / f"{name}.csv") for name in tables}


def test_scenarios_of_an_analysis_have_the_enumerated_value():
    """The new option gains 1 in the base case (weight 0.75) and loses 2 in the other one."""
    theta, costs, effects = _two_points(lambda t: -1.0 + 0 * t)
    _, other, _ = _two_points(lambda t: 2.0 + 0 * t)
    found = voi.analyze(
        voi.Outputs(costs, effects, 1.0),
        pd.DataFrame({"theta": theta}),
        scenarios={"other": (0.25, voi.Outputs(other, effects, 1.0))},
    )
    row = found.scenarios[found.scenarios.wtp == 1.0].iloc[0]
    # Knowing the scenario: 0.75 · 1 + 0.25 · 0, less the new option for all, 0.75 − 0.5.
    assert row.resolving == pytest.approx(0.5, abs=1e-6)
    assert row.best == "new"
    assert "scenarios" in found.tables
    with pytest.raises(nq.InputError, match="at most 1 in all"):
        voi.analyze(voi.Outputs(costs, effects, 1.0), pd.DataFrame({"theta": theta}),
            scenarios={"other": (1.25, voi.Outputs(other, effects, 1.0))})  # fmt: skip


def test_subgroups_of_the_command_have_enumerated_values(tmp_path, capsys):
    """INB is 1 + 2θ in a quarter of people and θ − 0.5 in the others, θ = ± 1."""
    theta, rest, effects = _two_points(lambda t: 0.5 - t)
    _, part, _ = _two_points(lambda t: -1.0 - 2.0 * t)
    paths = _written(
        tmp_path, p=pd.DataFrame({"theta": theta}), c=rest, e=effects, part=part, effects2=effects
    )
    command = ["voi", "--parameters", paths["p"], "--costs", paths["c"], "--effects", paths["e"]]
    command += ["--wtp", "1", "--json"]
    command += ["--subgroup", "young", "0.25", paths["part"], paths["effects2"]]
    command += ["--scenario", "optimistic", "0.5", paths["part"], paths["effects2"]]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {(r["pars"], r["decision"]): r["value"] for r in found["subgroups"] if r["wtp"] == 1.0}
    assert rows["everything", "young"] == pytest.approx(0.5, abs=1e-6)
    assert rows["everything", "all others"] == pytest.approx(0.25, abs=1e-6)
    assert rows["everything", "stratified"] == pytest.approx(0.25 * 0.5 + 0.75 * 0.25, abs=1e-6)
    # One decision: mean INB is 0.25 − 0.375 = −0.125, by θ 1.125 and −1.375.
    assert rows["everything", "one decision"] == pytest.approx(1.125 / 2, abs=1e-6)
    assert rows["current information", "stratified"] == pytest.approx(0.25, abs=1e-6)
    [row] = [r for r in found["scenarios"] if r["wtp"] == 1.0]
    assert row["resolving"] == pytest.approx(0.5 * 1.0 - 0.25, abs=1e-6)
    assert main([*command[:-10], "--subgroup", "x", "half", paths["c"], paths["e"]]) == 2


def test_the_report_has_scenarios_and_subgroups(tmp_path):
    theta, costs, effects = _two_points(lambda t: -1.0 - 2.0 * t)
    outputs = voi.Outputs(costs, effects, 1.0)
    parts = {"severe": (0.5, voi.Outputs(2 * costs, effects, 1.0))}
    found = voi.analyze(outputs, pd.DataFrame({"theta": theta}), scenarios=parts, subgroups=parts)
    page = voi.write_voi_report(tmp_path / "r.html", found).read_text(encoding="utf-8")
    for words in ("Structural uncertainty", "Subgroups", "severe", "stratified"):
        assert words in page
