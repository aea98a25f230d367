"""EVPI, EVPPI, EVSI, ENBS and populations from tables, against closed forms and exact values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import voi_models as models

import nestquad as nq
from nestquad import voi
from nestquad.voi.table._evppi import Flag


def flags(table):
    return table["flags"].tolist()  # a data frame has an attribute of that name


# The analytic case: INB = p1 - p2.

EXACT = {
    "evpi": models.gain_of_knowing(1.0, np.sqrt(5.0)),
    "p1": models.gain_of_knowing(1.0, 1.0),
    "p2": models.gain_of_knowing(1.0, 2.0),
}


@pytest.mark.parametrize("seed", [0, 1])
def test_two_normals(seed):
    benefits, inputs = models.two_normals(10_000, seed)
    everything = voi.evpi(benefits)
    assert abs(everything.evpi[0] - EXACT["evpi"]) < 3 * everything.se[0] < 0.05
    table = voi.evppi(benefits, inputs).set_index("pars")
    for name in ("p1", "p2"):
        assert abs(table.evppi[name] - EXACT[name]) < 3 * table.se[name] < 0.05
        assert table["evppi/evpi"][name] == table.evppi[name] / everything.evpi[0]


def test_intervals_cover_and_are_no_wider_than_they_should_be():
    covered, ratios = [], []
    for seed in range(30):
        benefits, inputs = models.two_normals(1000, 100 + seed)
        row = voi.evppi(benefits, inputs, "p2").iloc[0]
        covered.append(row.lower <= EXACT["p2"] <= row.upper)
        ratios.append((row.evppi - EXACT["p2"]) / row.se)
    assert np.mean(covered) >= 0.875  # two standard deviations of 30 below 95 %
    assert 0.5 < np.sqrt(np.mean(np.square(ratios))) < 1.4


def test_knowing_everything_by_regression_is_evpi():
    benefits, inputs = models.two_normals(5000, 3)
    both = voi.evppi(benefits, inputs, ["p1", "p2"]).iloc[0]
    assert both.evppi == pytest.approx(voi.evpi(benefits).evpi[0], rel=1e-3)
    assert not both["flags"]


def test_evpi_se_is_that_of_replicates():
    values = [voi.evpi(models.two_normals(400, seed)[0]) for seed in range(200)]
    spread = np.std([table.evpi[0] for table in values])
    assert np.mean([table.se[0] for table in values]) == pytest.approx(spread, rel=0.2)


# The 19-parameter model.


@pytest.mark.parametrize("pars", models.BRENNAN_EXACT, ids="+".join)
def test_fresh_tables_of_the_brennan_model(pars):
    costs, effects, inputs = models.brennan(4000, seed=11)
    row = voi.evppi((costs, effects, 1e4), inputs, list(pars)).iloc[0]
    exact = models.BRENNAN_EXACT[pars]
    assert abs(row.evppi - exact) < 4 * row.se + 1
    assert row.lower <= exact <= row.upper
    assert (Flag.NOTHING in row["flags"]) == (exact == 0)
    assert row.se < 45


def test_irrelevant_parameters_do_no_harm():
    costs, effects, inputs = models.brennan(2000, seed=5)
    names = ["theta5", "theta14"]
    more = [*names, "theta1", "theta2", "theta3", "theta12", "theta13"]
    few, many = voi.evppi((costs, effects, 1e4), inputs, [names, more]).evppi
    assert abs(many - few) < 15


@pytest.mark.parametrize(
    ("pars", "value", "within"),
    [((5, 14), 276, 20), ((7, 16), 546, 19), ((5, 6, 14, 15), 863, 18)],
)
def test_brennan_table(pars, value, within):
    tables = [models.shared_table("brennan", f"{name}_2d.csv") for name in ("costs", "effects")]
    inputs = models.shared_table("brennan", "parameters.csv")
    row = voi.evppi((*tables, 1e4), inputs, [f"theta{k}" for k in pars]).iloc[0]
    assert abs(row.evppi - value) < within
    assert row.se < 25


def test_three_options_contain_the_best_two():
    tables = [models.shared_table("brennan", f"{name}_3d.csv") for name in ("costs", "effects")]
    inputs = models.shared_table("brennan", "parameters.csv")
    outputs = voi.Outputs(*tables, wtp=[1e4, 2e4])
    table = voi.evppi(outputs, inputs, ["theta5", "theta14"])
    assert outputs.n_options == 3
    assert len(table) == 2
    assert (table.evppi < voi.evpi(outputs).evpi).all()


def test_order_of_options_does_not_matter():
    costs, effects, inputs = models.brennan(2000, seed=7)
    costs, effects = (np.column_stack((t, 1.01 * t[:, 0] - 5)) for t in (costs, effects))
    values = [
        voi.evppi((costs[:, o], effects[:, o], 1e4), inputs, ["theta5", "theta14"]).evppi[0]
        for o in ([0, 1, 2], [2, 0, 1])
    ]
    assert values[0] == pytest.approx(values[1], abs=10)


def test_sweep_is_the_same_as_one_by_one():
    costs, effects, inputs = models.brennan(1000, seed=2)
    together = voi.evppi((costs, effects, [5e3, 1e4, 2e4]), inputs, "theta6")
    alone = [voi.evppi((costs, effects, k), inputs, "theta6").iloc[0] for k in (5e3, 1e4, 2e4)]
    np.testing.assert_allclose(together.evppi, [row.evppi for row in alone])
    np.testing.assert_allclose(together.se, [row.se for row in alone])


def test_costs_and_effects_apart_agree_with_net_benefits():
    costs, effects, inputs = models.brennan(3000, seed=4)
    apart = voi.evppi((costs, effects, 1e4), inputs, ["theta5", "theta14"]).iloc[0]
    direct = voi.evppi(1e4 * effects - costs, inputs, ["theta5", "theta14"]).iloc[0]
    assert apart.evppi == pytest.approx(direct.evppi, abs=0.2 * apart.se)
    assert np.isnan(direct.wtp)


def test_same_table_same_numbers_whatever_the_units():
    benefits, inputs = models.two_normals(1000, 1)
    first = voi.evppi(benefits, inputs)
    pd.testing.assert_frame_equal(first, voi.evppi(benefits, inputs))
    scaled = voi.evppi(1e6 * benefits, inputs * [1e-9, 1e9] + [1e-9, 5e8])
    np.testing.assert_allclose(scaled.evppi, 1e6 * first.evppi, rtol=1e-3)


# Forms of input.


def test_forms_of_outputs_and_sets():
    costs, effects, inputs = models.brennan(200, seed=0)
    forms = [
        (costs, effects, [1e4]),
        {"costs": costs, "effects": effects, "wtp": 1e4},
        {"c": costs, "e": effects, "k": 1e4},
        voi.Outputs(costs, effects, 1e4),
        1e4 * effects - costs,
        pd.DataFrame(1e4 * effects - costs, columns=["old", "new"]),
    ]
    assert len({round(voi.evpi(form).evpi[0], 6) for form in forms}) == 1
    sets = {"both": ["theta5", "theta14"], "one": "theta5"}
    assert voi.evppi(forms[0], inputs, sets).pars.tolist() == ["both", "one"]
    assert len(voi.evppi(forms[0], inputs[["theta5", "theta6"]])) == 2
    assert voi.Outputs(costs, effects, 1e4).at([1.0, 2.0]).wtps == [1.0, 2.0]


# Flags.


def test_irrelevant_parameters_are_seldom_distinguished():
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        benefits = np.column_stack((np.zeros(400), rng.normal(0.0, 1.0, 400)))  # balanced
        found += flags(voi.evppi(benefits, pd.DataFrame({"z": rng.normal(size=400)})))
    assert np.mean([Flag.NOTHING not in text for text in found]) <= 0.1


def test_misfit_is_flagged_and_the_held_out_value_is_reported():
    # Worth it only where all three are positive: not in a basis of lines, curves and their pairs.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    gain = np.where((x > 0).all(axis=1), 5.0, -0.6) + rng.normal(0, 0.5, 4000)
    benefits = np.column_stack((np.zeros(4000), gain))
    row = voi.evppi(benefits, pd.DataFrame(x, columns=list("abc")), list("abc")).iloc[0]
    exact = 5.0 / 8 - (5.0 / 8 - 0.6 * 7 / 8)
    assert "misfit" in row["flags"]
    assert 0.7 * exact < row.evppi < exact < row.upper


def test_constant_and_duplicated_columns():
    benefits, inputs = models.two_normals(500, 0)
    inputs["fixed"], inputs["again"] = 3.0, 2.0 * inputs.p2 + 1.0
    table = voi.evppi(benefits, inputs, [["fixed"], ["p2", "again", "fixed"], ["p2"]])
    assert "column again repeats p2" in flags(voi.evppi(benefits, inputs))[-1]
    first, second, third = flags(table)
    assert "constant column fixed" in first
    assert Flag.NOTHING in first
    assert table.evppi[0] == 0
    assert "column again repeats p2" in second
    assert table.evppi[1] == table.evppi[2]
    assert not third


def test_too_few_rows():
    benefits, inputs = models.two_normals(100, 0)
    assert all(Flag.FEW_ROWS in text for text in flags(voi.evppi(benefits, inputs)))


def test_groups_are_compared_with_members_and_with_evpi():
    from nestquad.voi.table._evppi import Answer, group_flags

    found = {"a": [Answer(5.0, 1.0, 3.0, 7.0)], "a + b": [Answer(4.0, 1.0, 2.0, 6.0)]}
    sets = {"a": ("a",), "a + b": ("a", "b")}
    flagged = group_flags(sets, found, [Answer(4.5, 0.1, 4.3, 4.7)])
    assert flagged["a + b"][0].flags == ("below its member a",)
    assert flagged["a"][0].flags == (Flag.ABOVE_EVPI,)


# EVSI, ENBS, populations.


def test_evsi_of_a_normal_trial():
    # Prior N(0.5, 1), data mean of n with sd 3: the posterior mean has variance n / (n + 9).
    mu = np.random.default_rng(1).normal(0.5, 1.0, 10_000)
    benefits = np.column_stack((np.zeros_like(mu), mu))
    sizes = np.array([1, 5, 20, 100])
    table = voi.evsi(benefits, pd.DataFrame({"mu": mu}), voi.NormalTrial("mu", sd=3.0), sizes)
    exact = [models.gain_of_knowing(0.5, np.sqrt(n / (n + 9.0))) for n in sizes]
    assert ((table.lower <= exact) & (table.upper >= exact)).all()
    np.testing.assert_allclose(table.evsi, exact, atol=0.02)
    assert table.evsi.is_monotonic_increasing


def test_evsi_of_a_binary_trial():
    # Beta(2, 3) prior, net benefit 10 p - 4: the posterior mean is (2 + k) / (5 + n).
    from scipy.stats import betabinom

    p = np.random.default_rng(2).beta(2.0, 3.0, 10_000)
    benefits = np.column_stack((np.zeros_like(p), 10.0 * p - 4.0))
    table = voi.evsi(benefits, pd.DataFrame({"p": p}), voi.BinaryTrial("p"), [1, 10, 100])
    for n, low, high, value in zip(table.n, table.lower, table.upper, table.evsi, strict=True):
        k = np.arange(n + 1)
        best = np.maximum(10 * (2 + k) / (5 + n) - 4, 0)
        exact = float(best @ betabinom.pmf(k, n, 2, 3))  # both options are worth 0 on average
        assert low <= exact <= high
        assert value == pytest.approx(exact, abs=0.04)


def test_evsi_of_a_users_sampler_equals_the_built_in_one():
    mu = np.random.default_rng(1).normal(0.0, 1.0, 3000)
    benefits = np.column_stack((np.zeros_like(mu), mu))
    inputs = pd.DataFrame({"mu": mu})

    def mine(table, n, rng):
        return table["mu"] + 2.0 * rng.standard_normal(len(table)) / np.sqrt(n)

    own = voi.evsi(benefits, inputs, mine, 7)
    built_in = voi.evsi(benefits, inputs, voi.NormalTrial("mu", 2.0), 7)
    assert own.evsi[0] == built_in.evsi[0]
    assert own.design[0] == "mine"


def test_people_and_population():
    assert voi.people(100, 10, discount=0.0) == 1000
    assert voi.people(1, 50, discount=0.035) == pytest.approx((1 - 1.035**-50) / (1 - 1 / 1.035))
    assert voi.people(10, 2.5, discount=0.0, start=2.25) == pytest.approx(2.5)
    assert voi.people(10, 1, start=2) == 0
    costs, effects, _ = models.brennan(200, seed=0)
    table = voi.population(voi.evpi((costs, effects, [1e4, 2e4])), per_year=10, horizon=1)
    np.testing.assert_allclose(table.population, 10 * table.evpi)
    np.testing.assert_allclose(table.population_effects, 10 * table.evpi / [1e4, 2e4])
    assert voi.population(2.0, per_year=5, horizon=1) == 10


def test_enbs_finds_the_best_size():
    mu = np.random.default_rng(1).normal(0.0, 1.0, 5000)
    benefits = np.column_stack((np.zeros_like(mu), mu))
    sizes = [10, 20, 40, 80, 160, 320]
    table = voi.evsi(benefits, pd.DataFrame({"mu": mu}), voi.NormalTrial("mu", 5.0), sizes)
    found = voi.enbs(table, per_year=1e4, horizon=1, cost_per_participant=5.0, fixed_cost=100.0)
    # ENBS = 10⁴ φ(0) √(n / (n + 25)) − 100 − 5 n
    exact = 1e4 * 0.398942 * np.sqrt(np.array(sizes) / (np.array(sizes) + 25.0))
    exact -= 100 + 5 * np.array(sizes)
    assert found.n[found.optimal].tolist() == [sizes[int(exact.argmax())]]
    assert ((found.enbs_lower < exact) & (exact < found.enbs_upper)).all()
    never = voi.enbs(table, per_year=1, horizon=1, fixed_cost=1e6)
    assert not never.optimal.any()
    late = voi.enbs(table, per_year=1e4, horizon=1, duration=lambda n: n / 320)
    assert late.enbs.iloc[-1] == 0


@pytest.mark.slow
def test_hundred_thousand_rows_and_ten_parameters_in_seconds():
    import time

    costs, effects, inputs = models.brennan(100_000, seed=0)
    names = [f"theta{k}" for k in (5, 6, 14, 15, 7, 16, 8, 9, 10, 17)]
    start = time.process_time()
    row = voi.evppi((costs, effects, 1e4), inputs, names).iloc[0]
    assert time.process_time() - start < 60
    assert 841 - 4 * row.se < row.evppi < 1047 + 4 * row.se


# What is refused.


def bad(table, row, name, cell):
    table = table.astype(object)
    table.loc[row, name] = cell
    return table


BENEFITS, INPUTS = models.two_normals(50, 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: voi.evppi(BENEFITS, INPUTS[:40]), "50 rows of outputs, 40 rows of inputs"),
        (lambda: voi.evppi(BENEFITS, bad(INPUTS, 6, "p2", "n/a?")), "'n/a?' in column 'p2', row 7"),
        (
            lambda: voi.evppi(BENEFITS, bad(INPUTS, 6, "p2", None)),
            "(an empty cell) in column 'p2', row 7",
        ),
        (
            lambda: voi.evppi(BENEFITS, bad(INPUTS, 0, "p1", np.inf)),
            "infinite number in column 'p1'",
        ),
        (lambda: voi.evppi(BENEFITS, bad(INPUTS, 0, "p1", "1,234.5")), "number with separators"),
        (lambda: voi.evppi(BENEFITS, bad(INPUTS, 0, "p1", "0,5")), "number with separators"),
        (lambda: voi.evppi(BENEFITS, INPUTS, "p_1"), "Did you mean 'p1'?"),
        (lambda: voi.evppi(BENEFITS, INPUTS, []), "a list of names"),
        (lambda: voi.evppi(BENEFITS, INPUTS, 3), "a list of names"),
        (lambda: voi.evpi(BENEFITS[:, :1]), "one option only"),
        (lambda: voi.evpi(BENEFITS[:5]), "5 rows"),
        (lambda: voi.evpi((BENEFITS, BENEFITS[:, [0, 1, 1]], 1.0)), "3 options in effects"),
        (lambda: voi.evpi((BENEFITS, BENEFITS[:40], 1.0)), "40 rows of effects"),
        (lambda: voi.evpi({"costs": BENEFITS}), "costs, effects and wtp together"),
        (lambda: voi.evpi((BENEFITS, 2 * BENEFITS, -1.0)), "none negative"),
        (lambda: voi.evpi((BENEFITS, 2 * BENEFITS, "a lot")), "none negative"),
        (lambda: voi.evpi(np.zeros((3, 3, 3))), "one row a draw"),
        (lambda: voi.Outputs(net_benefit=BENEFITS).at(1.0), "costs and effects"),
        (lambda: voi.evpi(pd.DataFrame(BENEFITS, columns=["a", "a"])), "'a' 2 times"),
        (
            lambda: voi.evppi(BENEFITS, pd.DataFrame(INPUTS.values, columns=["1.2", "3.4"])),
            "header",
        ),
        (lambda: voi.evsi(BENEFITS, INPUTS, voi.BinaryTrial("p1"), 10), "between 0 and 1"),
        (lambda: voi.evsi(BENEFITS, INPUTS, voi.NormalTrial("p", 1.0), 10), "Did you mean"),
        (lambda: voi.evsi(BENEFITS, INPUTS, "trial", 10), "voi.BinaryTrial"),
        (lambda: voi.evsi(BENEFITS, INPUTS, voi.NormalTrial("p1", 1.0), 0), "from 1 to"),
        (lambda: voi.evsi(BENEFITS, INPUTS, lambda a, n, r: 1 / 0, 10), "ZeroDivisionError"),
        (lambda: voi.evsi(BENEFITS, INPUTS, lambda a, n, r: np.ones(3), 10), "shape (3, 1)"),
        (lambda: voi.NormalTrial("p1", sd=-1.0), "positive"),
        (lambda: voi.enbs(BENEFITS, per_year=1, horizon=1), "voi.evsi"),
        (lambda: voi.people(-1, 10), "not negative"),
        (lambda: voi.people(1, 10, discount=3.5), "0.035"),
        (lambda: voi.population(INPUTS, per_year=1, horizon=1), "voi.evpi"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(nq.NestquadError) as caught:
        call()
    assert words in str(caught.value)


def test_inputs_follow_the_index_of_outputs():
    rng = np.random.default_rng(2)
    p = pd.DataFrame({"a": rng.normal(0, 1, 400), "b": rng.normal(0, 1, 400)})
    benefit = pd.DataFrame({"old": 0.0, "new": p["a"]})
    expected = voi.evppi(benefit, p, "a")["evppi"].to_numpy()
    shuffled = p.sample(frac=1, random_state=0)
    for outputs, inputs in ((benefit, shuffled), (benefit.loc[shuffled.index], p)):
        assert voi.evppi(outputs, inputs, "a")["evppi"].to_numpy() == pytest.approx(expected)
    with pytest.raises(nq.InputError, match="names of rows"):
        voi.evppi(benefit, p.set_axis(range(7, 407)), "a")
    # A matrix has no index.
    values = voi.evppi(benefit.loc[shuffled.index].to_numpy(), shuffled, "a")["evppi"].to_numpy()
    assert values == pytest.approx(expected, rel=0.05)
