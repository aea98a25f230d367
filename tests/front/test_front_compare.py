"""Tables of methods, against the same runs made by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nestquad as nq
from nestquad.methods import METHODS
from nestquad.points import Stream

NESTED = ("nmc", "nqmc", "nkq")


def test_rows_are_the_runs():
    problem = nq.problems.finance()
    table = nq.compare(problem, budget=[256, 512], methods=NESTED, replicates=5, rng=3)
    assert [(row.budget, row.method) for row in table.rows] == [
        (budget, method) for budget in (256, 512) for method in NESTED
    ]
    for row in table.rows:
        runs = [
            nq.estimate(
                problem,
                budget=row.budget,
                method=row.method,
                rng=Stream.from_rng(3).child(i).generator(),
            )
            for i in range(5)
        ]
        values = np.array([run.value for run in runs])
        errors = values - problem.exact
        halves = np.array([1.959964 * run.std_error for run in runs])
        assert row.value == pytest.approx(values.mean())
        assert row.mean_abs_error == pytest.approx(np.abs(errors).mean())
        assert row.rmse == pytest.approx(np.sqrt((errors**2).mean()))
        assert row.spread == pytest.approx(values.std(ddof=1))
        assert row.half_width == pytest.approx(np.median(halves))
        assert row.coverage == pytest.approx((np.abs(errors) <= halves).mean())
        assert row.n_evaluations == runs[0].n_evaluations
        assert row.seconds > 0
    assert table.exact == problem.exact


def test_text_json_and_frame_say_the_same():
    table = nq.compare(nq.problems.synthetic(), budget=200, methods=NESTED, replicates=3, rng=0)
    text = str(table)
    data = json.loads(table.to_json())
    frame = table.to_frame()
    assert len(text.splitlines()) == 3 + len(NESTED)
    assert "exact value 0.411564" in text
    for row, line, record in zip(table.rows, text.splitlines()[3:], data["rows"], strict=True):
        assert line.startswith(row.method)
        assert f"{row.rmse:.2e}" in line
        assert record["rmse"] == row.rmse
    np.testing.assert_array_equal(frame["rmse"], [row.rmse for row in table.rows])
    assert list(frame["method"]) == list(NESTED)


def test_default_is_every_method():
    table = nq.compare(nq.problems.synthetic(), budget=512, replicates=1, rng=0)
    assert {row.method for row in table.rows} == {*METHODS, "auto"}
    assert all(np.isnan(row.spread) for row in table.rows)


def test_configurations_of_one_method_are_told_apart():
    methods = [nq.NKQ(n_inner=8), nq.NKQ(n_inner=16), "nmc"]
    table = nq.compare(nq.problems.synthetic(), budget=256, methods=methods, replicates=2, rng=0)
    labels = [row.method for row in table.rows]
    assert len(set(labels)) == 3
    assert "n_inner=8" in labels[0]
    assert labels[2] == "nmc"


def test_without_an_exact_value_only_the_spread_is_known():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), lambda x, t: x[..., 0] * t[..., 0])
    table = nq.compare(problem, budget=100, methods="nmc", replicates=3, rng=0)
    (row,) = table.rows
    assert row.rmse is None
    assert row.coverage is None
    assert row.spread > 0
    assert "–" in str(table)
    assert json.loads(table.to_json())["exact"] is None


def test_progress_ends_at_the_total():
    seen = []
    nq.compare(
        nq.problems.synthetic(),
        budget=100,
        methods=["nmc", "nqmc"],
        replicates=3,
        rng=0,
        progress=lambda done, total, message: seen.append((done, total, message)),
    )
    assert seen[-1][:2] == (600, 600)
    assert "nqmc" in seen[-1][2]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"budget": 100.7}, "budget"),
        ({"budget": "many"}, "budget"),
        ({"budget": [100, 1]}, "budget"),
        ({"budget": 100, "replicates": 0}, "replicates"),
        ({"budget": 100, "replicates": 2.5}, "replicates"),
        ({"budget": 100, "methods": ["nkp"]}, "method"),
    ],
)
def test_bad_input(options, argument):
    with pytest.raises(nq.InputError) as caught:
        nq.compare(nq.problems.synthetic(), **options)
    assert caught.value.argument == argument


def test_of_all_methods_those_that_apply_are_compared():
    sampled = nq.NestedExpectation(
        nq.Sampler(lambda n, rng: rng.random((n, 1)), dim=1),
        nq.Uniform(),
        lambda x, theta: x[..., 0] + theta[..., 0],
        exact=1.0,
    )
    table = nq.compare(sampled, budget=400, replicates=2, rng=0)
    assert [row.method for row in table.rows] == ["nmc", "mlmc", "auto"]
    with pytest.raises(nq.InputError, match="can only be sampled"):
        nq.compare(sampled, budget=400, methods=["nmc", "joint"], replicates=2, rng=0)


def test_a_method_that_fails_leaves_the_others():
    def f(j):  # where J is learned it is below zero now and then
        return np.log(j)

    def g(x, theta):
        return np.where(x[..., 0] < 0.02, 1.0, 0.0) + 0.0 * theta[..., 0]

    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), g, f)
    table = nq.compare(problem, budget=64, methods=["nmc", "nqmc", "ckq"], replicates=2, rng=0)
    assert [row.method for row in table.rows] == ["nmc", "nqmc", "ckq"]
    failed = [row for row in table.rows if row.failure]
    assert failed
    assert "failed: f returned" in str(table)
    assert np.isnan(failed[0].value)
    table.to_json()
