"""Points out, values in: the same answer as if g had been called, and nothing taken on trust."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest

import nestquad as nq
from nestquad.cli import main

METHODS = ["nmc", "nqmc", "nkq", "ckq", "joint", "mlmc", "mlkq", "lsmc"]


def g(x, theta):
    return np.cos(x[..., 0]) * x[..., 1] + theta[..., 0]


def two(x, theta):
    return np.stack(np.broadcast_arrays(g(x, theta), x[..., 1]), axis=-1)


PROBLEM = nq.NestedExpectation(
    nq.Uniform(),
    lambda theta: nq.Normal(np.concatenate([theta, -theta], axis=1), 0.5),
    g,
    lambda j: j**2,
)
WITHOUT = replace(PROBLEM, g=None)


def simulate(plan, g=g):
    """Somebody else's program: it sees a table of points."""
    frame = plan.to_frame()
    x = frame[[c for c in frame if c.startswith("x_")]].to_numpy()
    theta = frame[[c for c in frame if c.startswith("theta_")]].to_numpy()
    values = g(x, theta)
    names = ["value"] if values.ndim == 1 else ["first", "second"]
    frame[names] = values.reshape(len(frame), -1)
    return frame


def asked(plan, g=g):
    """Values at the points of a plan, by id, straight from the arrays."""
    theta, x = (np.concatenate(part) for part in zip(*plan.blocks(), strict=True))
    return dict(zip(plan.ids, g(x, theta), strict=True))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("goal", [{"budget": 1500}, {"tol": 0.02, "budget": 8000}])
def test_ask_and_tell_is_the_same_as_calling_g(method, goal):
    expected = nq.estimate(PROBLEM, method=method, rng=5, **goal)
    plan = nq.plan(WITHOUT, method=method, rng=5, **goal)
    seen, answers = [], []
    while plan is not None:
        values = asked(plan)
        seen += plan.ids
        answers.append(nq.analyze(plan, values))
        plan = plan.next(values)
    assert answers[-1].value == expected.value
    assert answers[-1].std_error == expected.std_error
    assert answers[-1].status == expected.status
    assert answers[-1].n_evaluations == expected.n_evaluations == len(seen) == len(set(seen))
    assert [a.value for a in answers] == [step.value for step in expected.trace]
    assert {a.status for a in answers[:-1]} <= {"open"}


@pytest.mark.parametrize("form", ["frame", "csv", "parquet", "series", "mapping", "array", "index"])
@pytest.mark.parametrize("function", [g, two])
def test_values_in_any_form_and_order(form, function, tmp_path):
    pytest.importorskip("pandas")
    problem = replace(PROBLEM, g=function)
    plan = nq.plan(replace(problem, g=None), budget=200, method="nqmc", rng=1)
    frame = simulate(plan, function).sample(frac=1.0, random_state=0)
    names = frame.columns[-(1 if function is g else 2) :].tolist()
    if form == "frame":
        values = frame
    elif form == "csv":
        frame.to_csv(tmp_path / "values.csv", index=False)
        values = tmp_path / "values.csv"
    elif form == "parquet":
        pytest.importorskip("pyarrow")
        frame[["id", *names]].to_parquet(tmp_path / "values.parquet")
        values = str(tmp_path / "values.parquet")
    elif form == "series" and function is g:
        values = frame.set_index("id")["value"]
    elif form == "index":
        values = frame.set_index("id")[names]
    elif form == "array":
        values = frame.sort_index()[names].to_numpy()
    else:
        values = dict(zip(frame["id"], frame[names].to_numpy().squeeze(), strict=True))
    result = nq.analyze(plan, values)
    expected = nq.estimate(problem, budget=200, method="nqmc", rng=1)
    np.testing.assert_array_equal(result.value, expected.value)


def test_csv_and_frame_have_every_digit(tmp_path):
    pandas = pytest.importorskip("pandas")
    plan = nq.plan(WITHOUT, budget=300, method="nkq", rng=2)
    plan.to_csv(tmp_path / "points.csv")
    frame = plan.to_frame()
    with open(tmp_path / "points.csv") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["id"] for row in rows] == frame["id"].tolist() == plan.ids
    for name in plan.columns[1:]:
        assert [float(row[name]) for row in rows] == frame[name].tolist()
    assert list(frame) == plan.columns == ["id", "theta_1", "x_1", "x_2"]
    pytest.importorskip("pyarrow")
    plan.to_parquet(tmp_path / "points.parquet")
    again = pandas.read_parquet(tmp_path / "points.parquet")
    np.testing.assert_array_equal(again[["x_1", "x_2"]], frame[["x_1", "x_2"]])


def test_the_same_arguments_make_the_same_plan_and_others_another():
    first = nq.plan(WITHOUT, budget=300, method="nkq", rng=2)
    assert nq.plan(WITHOUT, budget=300, method="nkq", rng=2).id == first.id
    others = [
        nq.plan(WITHOUT, budget=300, method="nkq", rng=3),
        nq.plan(WITHOUT, budget=301, method="nkq", rng=2),
        nq.plan(WITHOUT, budget=300, method="nqmc", rng=2),
        nq.plan(replace(WITHOUT, inner=nq.Uniform()), budget=300, method="nkq", rng=2),
    ]
    assert len({first.id, *(other.id for other in others)}) == 5
    assert first.id in str(first)
    assert len(first) == first.n_points <= 300


def refused(plan, values, *words):
    with pytest.raises(nq.InputError) as caught:
        nq.analyze(plan, values)
    assert caught.value.argument == "values"
    for word in words:
        assert word in str(caught.value)


def test_wrong_values_are_refused_by_name_and_row():
    plan = nq.plan(WITHOUT, budget=100, method="nmc", rng=1)
    good = asked(plan)
    ids = plan.ids
    pandas = pytest.importorskip("pandas")
    refused(plan, {k: v for k, v in good.items() if k != ids[7]}, repr(ids[7]), "row 7", "theta =")
    refused(plan, {k: v for k, v in good.items() if k not in ids[7:9]}, "and 1 more")
    refused(plan, {**good, ids[3]: np.nan}, repr(ids[3]), "nan")
    refused(plan, {**good, ids[3]: np.inf}, repr(ids[3]), "inf")
    refused(plan, {**good, ids[3]: "broken"}, repr(ids[3]), "'broken'")
    refused(plan, {**good, f"{plan.id}-999": 1.0}, f"{plan.id}-999", "row 100")
    table = pandas.DataFrame({"id": [*ids, ids[4]], "value": 1.0})
    refused(plan, table, repr(ids[4]), "rows 4 and 100")
    other = nq.plan(WITHOUT, budget=100, method="nmc", rng=2)
    refused(plan, asked(other), other.id, plan.id, "row 0")
    refused(plan, np.ones(len(ids) - 1), "99 values", "100")
    refused(plan, np.ones((2, 2, 2)), "shape")
    refused(plan, table.rename(columns={"id": "name"}), "column 'id'")
    refused(plan, table[["id"]], "column of values")
    refused(plan, "nowhere.csv", "nowhere.csv")
    with pytest.raises(nq.InputError, match="plan"):
        nq.analyze("plan", good)


def test_other_values_for_a_block_that_was_told_replace_it():
    first = nq.plan(WITHOUT, budget=1000, method="ckq", rng=1)
    wrong = first.next({k: -v for k, v in asked(first).items()})
    second = first.next(asked(first))
    result = nq.analyze(second, asked(second))
    again = nq.plan(WITHOUT, budget=1000, method="ckq", rng=1)
    again = again.next(asked(again))
    assert result.value == nq.analyze(again, asked(again)).value
    assert wrong.turn == 1


def test_a_plan_never_calls_g():
    def never(x, theta):
        raise AssertionError

    plan = nq.plan(replace(PROBLEM, g=never), budget=300, method="nkq", rng=0)
    assert nq.analyze(plan, asked(plan)).n_evaluations == plan.n_points


def test_plans_need_a_size():
    with pytest.raises(nq.InputError, match="budget"):
        nq.plan(WITHOUT, method="nkq")
    with pytest.raises(nq.InputError, match="problem"):
        nq.plan("finance", budget=100)


# The command line.

MODEL = """
import nestquad as nq

def law(theta):
    return nq.Normal(theta, 0.5)

problem = nq.NestedExpectation(nq.Uniform(), law, f=lambda j: j**2)
full = nq.NestedExpectation(nq.Uniform(), law, lambda x, theta: x[..., 0] ** 2, lambda j: j**2)
"""


def squares(points, values):
    with open(points) as lines, open(values, "w") as out:
        out.write("id,value\n")
        out.writelines(f"{row['id']},{float(row['x_1']) ** 2!r}\n" for row in csv.DictReader(lines))


@pytest.mark.parametrize("method", ["nkq", "ckq"])
def test_from_the_command_line(method, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    options = ["--budget", "300", "--method", method, "--seed", "4"]
    assert main(["plan", "model.py:problem", *options, "--out", "p0.csv"]) == 0
    values, turn = [], 0
    while True:
        squares(f"p{turn}.csv", f"v{turn}.csv")
        values.insert(0, f"v{turn}.csv")
        assert main(["analyze", "p0.plan.json", *values, "--next", f"p{turn + 1}.csv"]) == 0
        if not (tmp_path / f"p{turn + 1}.csv").exists():
            break
        turn += 1
    assert (turn > 0) == (method == "ckq")
    capsys.readouterr()
    assert main(["analyze", "p0.plan.json", *values, "--json"]) == 0
    result = capsys.readouterr().out
    assert main(["estimate", "model.py:full", *options, "--json"]) == 0
    expected = capsys.readouterr().out
    line = next(line for line in expected.splitlines() if '"value"' in line)
    assert line in result


def test_the_command_line_refuses_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    plan = ["plan", "model.py:problem", "--budget", "100", "--method", "nmc"]
    for seed, out in (("1", "a.csv"), ("2", "b.csv")):
        assert main([*plan, "--seed", seed, "--out", out]) == 0
        squares(out, f"values-{out}")
    for arguments, words in (
        (["a.plan.json", "values-b.csv"], "belongs to plan"),
        (["a.plan.json", "values-a.csv", "values-a.csv"], "twice"),
        (["values-a.csv", "values-a.csv"], "no plan"),
        (["nowhere.json", "values-a.csv"], "not a file"),
        (["a.plan.json", "a.csv"], "column of values"),
    ):
        assert main(["analyze", *arguments]) == 2
        assert words in capsys.readouterr().err
    (tmp_path / "model.py").write_text(MODEL.replace("0.5", "0.6"))
    assert main(["analyze", "a.plan.json", "values-a.csv"]) == 2
    assert "no longer gives" in capsys.readouterr().err


def test_store_workers_and_retries_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    line = ["estimate", "model.py:full", "--budget", "400", "--method", "nmc", "--json"]
    assert main([*line, "--seed", "1", "--store", "values", "--workers", "1"]) == 0
    first = capsys.readouterr().out
    assert main([*line, "--store", "values", "--retries", "1"]) == 0  # with the seed of the store
    second = capsys.readouterr().out
    assert '"n_reused": 399' in second
    assert next(s for s in first.splitlines() if '"value"' in s) in second
    assert main([*line, "--seed", "2", "--store", "values"]) == 2
    assert "stream" in capsys.readouterr().err
