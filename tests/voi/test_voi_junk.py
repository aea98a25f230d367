"""What is no table, no number and no name is refused in our words, whichever function got it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import nestquad as nq
from nestquad import voi

N = 60
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(N, 2)), columns=["a", "b"])
BENEFIT = np.column_stack((np.zeros(N), X.a + RNG.normal(size=N)))
COSTS, EFFECTS = RNG.normal(size=(2, N, 2))
TRIAL = voi.NormalTrial("a", 1.0)
PSA = (COSTS, EFFECTS, 1.0)
PEOPLE = {"per_year": 1, "horizon": 1}

TABLES = {
    "none": None,
    "ragged": [[1, 2], [3]],
    "ragged columns": {"A": [1, 2, 3], "B": [1]},
    "scalars": {"A": 1, "B": 2},
    "text": "abc",
    "number": 3,
    "three axes": np.zeros((30, 2, 2)),
    "complex": BENEFIT + 0j,
    "complex frame": pd.DataFrame(BENEFIT + 0j),
    "dates": pd.DataFrame({"a": pd.date_range("2020", periods=30), "b": [1.5] * 30}),
    "masked": np.ma.masked_array(BENEFIT, BENEFIT > 1),
    "lists in cells": pd.DataFrame({"a": [[1]] * 30, "b": [1.5] * 30}),
    "beyond floats": [[10**400, 1]] * 30,
    "nothing": [],
}


@pytest.mark.parametrize("table", TABLES)
def test_tables(table):
    junk = TABLES[table]
    with pytest.raises(nq.InputError):
        voi.evpi(junk)
    with pytest.raises(nq.InputError):
        voi.evppi(BENEFIT, junk)
    with pytest.raises(nq.InputError):
        voi.analyze((junk, EFFECTS, 1.0), X)


@pytest.mark.parametrize("wtp", [np.nan, -1, None, "20,000", [], [[1, 2]], 10**400, 1e308, 1j])
def test_willingness_to_pay(wtp):
    with pytest.raises(nq.InputError, match="wtp"):
        voi.evpi((COSTS, EFFECTS, wtp))
    if wtp is not None:
        with pytest.raises(nq.InputError, match="wtp"):
            voi.ceac(PSA, wtp=wtp)


CALLS = {
    "options": [lambda: voi.Outputs(*PSA, options=3), lambda: voi.Outputs(*PSA, options="AB")],
    "pars": [
        lambda: voi.evppi(BENEFIT, X, "c"),
        lambda: voi.evppi(BENEFIT, X, [0, 1]),
        lambda: voi.analyze(PSA, X, {"group": ["a", "c"]}),
        lambda: voi.analyze(PSA, X, 3),
        lambda: voi.BinaryTrial(None),
    ],
    "rng": [
        lambda: voi.evppi(BENEFIT, X, rng="x"),
        lambda: voi.evsi(BENEFIT, X, TRIAL, 5, rng=-1),
        lambda: nq.estimate(nq.problems.finance(), budget=100, rng=1.5),
    ],
    "sizes": [
        lambda: voi.evsi(BENEFIT, X, TRIAL, [[1], [1, 2]]),
        lambda: voi.evsi(BENEFIT, X, TRIAL, 10**18),
        lambda: voi.Study(TRIAL, None),
        lambda: voi.Study(TRIAL, [1.5]),
    ],
    "design": [lambda: voi.evsi(BENEFIT, X, [], 5), lambda: voi.Study(None, [10])],
    "ratio": [lambda: voi.BinaryTrial(["a", "b"], ratio=2)],
    "fixed_cost": [lambda: voi.Study(TRIAL, [10], "x")],
    "duration": [
        lambda: voi.Study(TRIAL, [10], duration=-1),
        lambda: voi.enbs(voi.evsi(BENEFIT, X, TRIAL, 5), **PEOPLE, duration=lambda n: "x"),
    ],
    "per_year": [lambda: voi.Audience("x", 1), lambda: voi.people(np.nan, 1)],
    "discount": [lambda: voi.Audience(1, 1, 35)],
    "values": [
        lambda: voi.population("x", **PEOPLE),
        lambda: voi.population([[1], [1, 2]], **PEOPLE),
        lambda: voi.population(pd.DataFrame({"evpi": [1.0]}), **PEOPLE),
        lambda: voi.enbs(pd.DataFrame({"evsi": [1.0]}), **PEOPLE),
        lambda: voi.best_sizes(None),
        lambda: voi.best_sizes(X),
    ],
    "study": [lambda: voi.analyze(PSA, X, study=TRIAL)],
    "audience": [lambda: voi.analyze(PSA, X, audience=(1, 2))],
    "analysis": [
        lambda: voi.write_voi_report("never.html", None),
        lambda: voi.write_voi_document("never.docx", X),
        lambda: voi.save_voi_figures("never", None),
    ],
    "kind": [lambda: voi.read_csv(("a.csv", b"a\n1\n"), "foo")],
    "file": [
        lambda: voi.read_csv("no such file.csv", "costs"),
        lambda: voi.read_csv(("a.csv", "text"), "costs"),
        lambda: voi.read_workbook(None),
        lambda: voi.preview(5),
    ],
}


@pytest.mark.parametrize(
    ("argument", "call"), [(name, call) for name, calls in CALLS.items() for call in calls]
)
def test_arguments(argument, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(nq.InputError) as caught:
        call()
    assert caught.value.argument == argument
    assert not list(tmp_path.iterdir())


def text(frame):
    return "table.csv", frame.to_csv(index=False).encode()


def test_control_characters_are_in_no_name(tmp_path):
    named = X.rename(columns={"a": "a\x07\nb"})
    costs, effects = (pd.DataFrame(t, columns=["usual", "x\x01y"]) for t in (COSTS, EFFECTS))
    seen = voi.preview(text(named), text(costs), text(effects))
    assert seen.parameters.columns.tolist() == ["a b", "b"]
    assert seen.options == ("usual", "x y")
    analysis = voi.analyze(seen.outputs(1.0), seen.parameters, {"g\x02h": ["a b", "b"]})
    assert analysis.groups.pars.tolist() == ["g h"]
    assert voi.write_voi_workbook(tmp_path / "t.xlsx", analysis).stat().st_size > 1000


@pytest.mark.parametrize(
    ("cell", "words"), [(np.inf, "infinite"), (1e200, "too large"), (-1e200, "too large")]
)
def test_numbers_out_of_range_are_named(cell, words):
    bad = X.assign(b=[cell, *X.b[1:]])
    seen = voi.preview(text(bad), COSTS, EFFECTS)
    assert [(p.column, p.row) for p in seen.problems] == [("b", 1)]
    assert words in str(seen.problems[0])
    json.dumps(seen.to_dict(), allow_nan=False)


def test_the_unit_of_a_parameter_does_not_matter():
    one, other = (voi.evppi(BENEFIT, X * unit, "a").iloc[0] for unit in (1.0, 2.0**-900))
    assert one.evppi == pytest.approx(other.evppi, rel=1e-9)
    assert one.upper == pytest.approx(other.upper, rel=1e-6)


def test_sheets_with_nothing_but_names(tmp_path):
    with pd.ExcelWriter(tmp_path / "w.xlsx") as writer:
        for name in ("parameters", "costs", "effects"):
            X[:0].to_excel(writer, sheet_name=name, index=False)
    seen = voi.preview(tmp_path / "w.xlsx")
    assert ["got 0 rows" in str(p) for p in seen.problems] == [True] * 3


def test_numbers_of_numpy_are_numbers():
    assert voi.SurvivalTrial("a", np.int64(5)).follow_up == 5.0
    assert voi.NormalTrial("a", np.float32(2.0)).sd == (2.0,)


@pytest.mark.parametrize("discount", [0.0, 1e-9, 0.035, 0.5])
@pytest.mark.parametrize(("horizon", "start"), [(3, 0), (2.5, 0.25), (10, 3.75), (2, 5)])
def test_people_year_by_year(discount, horizon, start):
    fine = np.arange(0, horizon, 1 / 64)  # every time is a multiple of 1/64
    each = np.where(fine >= start, (1 + discount) ** -np.floor(fine), 0.0) / 64
    found = voi.people(100, horizon, discount=discount, start=start)
    assert found == pytest.approx(100 * each.sum(), rel=1e-12, abs=1e-9)


def test_people_for_ever():
    assert voi.people(1, 1e300) == pytest.approx(1.035 / 0.035)
