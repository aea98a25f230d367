"""Tables that can be read and are probably wrong: they are noted, or widen intervals."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from nestquad import voi
from nestquad.errors import InputError
from nestquad.voi.table import _evppi, _regression


def tables(n=1_000, seed=1):
    rng = np.random.default_rng(seed)
    p = pd.DataFrame({"p_old": rng.beta(40, 60, n), "p_new": rng.beta(14, 16, n)})
    p["c_ill"] = rng.gamma(20, 150, n)
    costs = pd.DataFrame({"usual care": (1 - p.p_old) * p.c_ill})
    costs["drug"] = 600 + (1 - p.p_new) * p.c_ill
    effects = pd.DataFrame({"usual care": 0.5 + 0.3 * p.p_old, "drug": 0.5 + 0.3 * p.p_new})
    return p, costs, effects


def notes(costs, effects, wtp=20_000):
    return " ".join(voi.Outputs(costs, effects, wtp).notes)


def chain(n, rho, seed):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))
    for i in range(1, n):
        z[i] = rho * z[i - 1] + np.sqrt(1 - rho**2) * z[i]
    return z


def test_plain_tables_have_no_doubts():
    p, costs, effects = tables()
    seen = voi.preview(p, costs, effects, wtp=20_000)
    assert seen.notes == ()
    assert seen.outputs(20_000).n_effective == 1_000


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_autocorrelated_draws_count_as_fewer(rho):
    found = [
        voi.Outputs(net_benefit=np.c_[np.zeros(4_000), z @ [300.0, 100.0]]).n_effective
        for z in (chain(4_000, rho, seed) for seed in range(0, 20, 2))
    ]
    # The integrated autocorrelation time of an autoregression is (1 + ρ) / (1 − ρ).
    assert np.mean(found) == pytest.approx(4_000 * (1 - rho) / (1 + rho), rel=0.15)


def test_intervals_of_autocorrelated_draws_hold():
    exact = np.sqrt(1e5 / (2 * np.pi))
    covered, flags = 0, ""
    for seed in range(0, 40, 2):
        z = chain(2_000, 0.9, seed)
        outputs = voi.Outputs(net_benefit=np.c_[np.zeros(2_000), z @ [300.0, 100.0]])
        row = voi.evpi(outputs).iloc[0]
        covered += row.lower <= exact <= row.upper
    frame = pd.DataFrame(z, columns=["a", "b"])
    flags = voi.evppi(outputs, frame, "a")["flags"][0]
    assert covered >= 16  # 7 of 20 without the autocorrelation
    assert "dependent draws" in flags
    assert "count as" in outputs.notes[0]


def test_independent_draws_are_not_taken_for_dependent_ones():
    for seed in range(40):
        nb = np.random.default_rng(seed).standard_t(3, (500, 4))
        assert voi.Outputs(net_benefit=nb).n_effective == 500


def test_copies_of_draws_add_nothing():
    _p, costs, effects = (t[:100] for t in tables())
    many = [pd.concat([t] * 10, ignore_index=True) for t in (costs, effects)]
    outputs = voi.Outputs(*many, 20_000)
    se = voi.evpi(voi.Outputs(costs, effects, 20_000)).se[0]
    assert outputs.n_effective == 100
    assert "copies" in outputs.notes[0]
    assert voi.evpi(outputs).se[0] == pytest.approx(se, rel=0.01)
    assert voi.incremental(outputs).se[0] == pytest.approx(
        voi.incremental(voi.Outputs(costs, effects, 20_000)).se[0], rel=0.01
    )
    swept = outputs.at([10_000, 20_000])
    assert swept.notes == outputs.notes


def test_values_of_a_discrete_model_are_no_copies():
    rng = np.random.default_rng(0)
    nb = np.c_[np.zeros(1_000), rng.integers(0, 8, 1_000).astype(float)]
    assert voi.Outputs(net_benefit=nb).n_effective == 1_000
    censored = np.c_[np.zeros(1_000), np.maximum(rng.standard_normal(1_000), 0.0)]
    assert voi.Outputs(net_benefit=censored).n_effective == 1_000


@pytest.mark.parametrize(("value", "count"), [(-999.0, 1), (-99.0, 1), (-888.0, 1), (-1.0, 20)])
def test_codes_outside_the_range_are_refused(value, count):
    _, costs, effects = tables()
    costs.loc[costs.index[:: 1_000 // count], "drug"] = value
    with pytest.raises(InputError, match="stands for a missing value"):
        voi.Outputs(costs, effects, 20_000)


@pytest.mark.parametrize("value", [-9.0, -1.0])
def test_codes_among_probabilities_are_refused(value):
    p, costs, effects = tables()
    p.loc[p.index[::50], "p_new"] = value
    with pytest.raises(InputError, match="and 19 more like it"):
        voi.evppi(voi.Outputs(costs, effects, 20_000), p, "p_new")


def test_a_number_that_some_draws_share_far_from_others_is_noted():
    _, costs, effects = tables()
    costs.loc[costs.index[::50], "drug"] = 0.0
    assert "far from all other draws" in notes(costs, effects)


def test_bounds_and_frequent_zeros_are_no_codes():
    rng = np.random.default_rng(3)
    clipped = np.clip(rng.normal(0.5, 0.3, 1_000), 0.0, 1.0)
    rare = np.where(rng.random(1_000) < 0.8, 0.0, rng.gamma(5, 300, 1_000))
    costs = np.c_[rare, 500 + 100 * clipped]
    effects = np.c_[clipped, 0.1 + 0.02 * rng.standard_normal(1_000)]
    assert notes(costs, effects) == ""


def test_costs_in_thousands_and_millions_are_told():
    _, costs, effects = tables()
    assert "are costs in thousands?" in notes(costs / 1e3, effects)
    with pytest.raises(InputError, match="Are costs in millions"):
        voi.Outputs(costs / 1e6, effects, 20_000)
    with pytest.raises(InputError, match="Are they swapped"):
        voi.Outputs(effects, costs, 20_000)


def test_signs_and_copies_of_options_are_told():
    _, costs, effects = tables()
    assert "costs of 'drug' are negative" in notes(costs.assign(drug=-costs.drug), effects)
    assert "effects of 'usual care', 'drug' are negative" in notes(costs, -effects)
    same = costs.assign(other=costs.drug), effects.assign(other=effects.drug)
    assert "'other' repeats" in notes(*same)


def workbook(change=None, **sheets):
    p, costs, effects = tables(200)
    file = io.BytesIO()
    with pd.ExcelWriter(file) as book:
        for name, frame in ({"Inputs": p, "Costs": costs, "QALYs": effects} | sheets).items():
            frame = frame if change is None else change(name, frame)
            frame.to_excel(book, sheet_name=name, index=False)
    return "model.xlsx", file.getvalue()


def test_a_line_of_units_in_thousands_is_named():
    def units(name, frame):
        unit = "£000" if name == "Costs" else "years"
        line = pd.DataFrame([[unit] * frame.shape[1]], columns=frame.columns)
        scaled = frame / 1e3 if name == "Costs" else frame
        return pd.concat([line, scaled.astype(object)])

    problems = voi.preview(workbook(units), wtp=20_000).problems
    assert "thousands or millions (£000)" in str(problems[0])
    _, costs, _ = tables(200)
    text = units("Costs", costs).to_csv(index=False).encode()
    with pytest.raises(InputError, match=r"thousands or millions \(£000\)"):
        voi.read_csv(("results.csv", text), "costs")


def test_other_sheets_are_noted_and_several_named():
    _, costs, effects = tables(200)
    seen = voi.preview(workbook(**{"Costs old": 2 * costs}), wtp=20_000)
    assert not seen.problems
    assert any("'Costs old' not used" in note for note in seen.notes)
    file = io.BytesIO()
    with pd.ExcelWriter(file) as book:
        for name, frame in zip(["Inputs", "Costs v1", "Costs v2", "QALYs"],
                               [*tables(200)[:2], costs * 2, effects], strict=True):  # fmt: skip
            frame.to_excel(book, sheet_name=name, index=False)
    problem = str(voi.preview(("model.xlsx", file.getvalue()), wtp=20_000).problems[0])
    assert "'Costs v1', 'Costs v2'" in problem
    assert "--sheets" in problem


def test_names_of_dalys_averted_match():
    _, costs, effects = tables()
    named = effects.rename(columns=lambda name: f"DALYs averted {name}")
    assert voi.Outputs(costs.add_prefix("Cost "), named, 20_000).options == ("usual care", "drug")


def test_intervals_at_a_tie_hold():
    """A slope of 1.8 standard errors, whose fit is often 0, where both options are as good."""
    exact, covered = 30.0 / np.sqrt(2 * np.pi), []
    for seed in range(0, 40, 2):
        x = np.random.default_rng([seed, 5]).standard_normal((1_000, 2))
        table = voi.evppi(np.c_[np.zeros(1_000), x @ [30.0, 540.0]], pd.DataFrame({"a": x[:, 0]}))
        covered.append(bool(table.lower[0] <= exact <= table.upper[0]))
    assert np.mean(covered) >= 0.9


def test_a_choice_that_no_draw_changes_has_a_limit_above_zero():
    x = np.random.default_rng(0).standard_normal((1_000, 2))
    table = voi.evppi(
        np.c_[np.zeros(1_000), 3_000 + x @ [300.0, 400.0]], pd.DataFrame({"a": x[:, 0]})
    )
    assert table.evppi[0] == 0
    assert 0 < table.upper[0] < 5


def test_regressions_and_trees_use_one_thread(monkeypatch):
    pytest.importorskip("sklearn")
    from sklearn.ensemble import HistGradientBoostingRegressor as Trees
    from threadpoolctl import threadpool_info, threadpool_limits

    seen = []

    def watched(function):
        def call(*args, **known):
            pools = [(pool["user_api"], pool["num_threads"]) for pool in threadpool_info()]
            seen.append((function.__module__.partition(".")[0], pools))
            return function(*args, **known)

        return call

    monkeypatch.setattr(Trees, "fit", watched(Trees.fit))
    monkeypatch.setattr(_evppi, "_drawn", watched(_evppi._drawn))
    monkeypatch.setattr(_regression, "fit", watched(_regression.fit))
    p, costs, effects = tables(400)
    with threadpool_limits(limits=3):
        voi.evppi(voi.Outputs(costs, effects, 20_000), p, ["p_old", "p_new"])
    assert {name for name, _ in seen} == {"nestquad", "sklearn"}
    for name, pools in seen:
        assert all(used == 1 for api, used in pools if api == "blas" or name == "sklearn")
