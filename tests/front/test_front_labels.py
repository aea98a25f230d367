"""Estimates as labeled arrays, and tables as frames of any library."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nestquad as nq
from nestquad import risk, voi
from nestquad._frames import frame_columns, frame_of, new_frame


@pytest.fixture
def several():
    draws = np.random.default_rng(0).normal([1.0, 2.0], [0.1, 0.2], size=(500, 2))
    return nq.Estimate(
        draws.mean(axis=0),
        draws.std(axis=0),
        100,
        10,
        10,
        "joint",
        covariance=np.cov(draws.T),
        problem="pair",
        exact=np.array([1.0, 2.0]),
        draws=draws,
    )


def test_dataset_has_the_numbers_of_the_estimate(several):
    pytest.importorskip("xarray")
    data = several.to_xarray()
    np.testing.assert_array_equal(data["value"], several.value)
    low, high = several.interval()
    np.testing.assert_array_equal(data["interval95"].sel(bound="high"), high)
    np.testing.assert_array_equal(data["interval95"].sel(bound="low"), low)
    assert data["draws"].dims == ("draw", "answer")
    np.testing.assert_array_equal(np.diag(data["covariance"]), np.diag(several.covariance))
    assert data.attrs["problem"] == "pair"


def test_dataset_of_one_answer_and_its_sample():
    pytest.importorskip("xarray")
    found = nq.estimate(nq.problems.synthetic(), method=nq.NKQ(n_outer=16, n_inner=16), rng=0)
    data = found.to_xarray()
    assert data["value"].ndim == 0
    assert data.sizes["point"] == 16
    np.testing.assert_array_equal(data["theta"], found.sample.theta)
    assert float(data["exact"]) == found.exact


def test_draws_as_inference_data(several):
    arviz = pytest.importorskip("arviz")
    data = several.to_inference_data()
    assert data["posterior"]["value"].dims == ("chain", "draw", "answer")
    np.testing.assert_array_equal(data["posterior"]["value"].values[0], several.draws)
    single = replace(
        several,
        value=1.0,
        std_error=0.1,
        covariance=None,
        exact=None,
        draws=several.draws[:, 0],
    )
    posterior = single.to_inference_data()["posterior"]
    assert posterior["value"].dims == ("chain", "draw")
    mean = arviz.summary(single.to_inference_data(), kind="stats", round_to="none")["mean"]
    np.testing.assert_allclose(mean.iloc[0], several.draws[:, 0].mean())
    with pytest.raises(nq.UnsupportedError, match="no posterior draws"):
        replace(single, draws=None).to_inference_data()


@pytest.mark.parametrize("method", ["ckq", "joint"])
def test_draws_of_j_as_inference_data(method):
    pytest.importorskip("arviz")
    problem = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), lambda x, theta: np.exp(x * theta)[..., 0]
    )
    J = nq.conditional(problem, budget=256, method=method, rng=0)
    data = J.to_inference_data(draws=50, rng=0)
    assert list(data.groups()) == ["posterior"]
    posterior = data["posterior"]
    assert posterior["J"].dims == ("chain", "draw", "point")
    theta = posterior["theta_1"].values
    exact = np.expm1(theta) / theta
    np.testing.assert_allclose(posterior["J"].values[0].mean(axis=0), exact, rtol=1e-3)
    mean, sd = J(theta[:, None], return_std=True)
    np.testing.assert_allclose(posterior["J"].values[0].mean(axis=0), mean, atol=4 * sd.max())


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_points_and_values_in_any_library(library):
    pytest.importorskip(library)
    import narwhals as nw

    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), f=lambda j: j**2, exact=13 / 12)
    points = nq.plan(problem, budget=256, method="nkq", rng=0)
    frame = points.to_frame(library)
    assert type(frame).__module__.split(".")[0] == library
    opened = nw.from_native(frame)
    values = opened["x_1"].to_numpy() + opened["theta_1"].to_numpy()
    given = opened.with_columns(nw.new_series("value", values, backend=library))
    again = given.select("id", "value").sort("value", descending=True).to_native()
    assert abs(nq.analyze(points, again).value - problem.exact) < 1e-3
    assert nq.analyze(points, again).value == nq.analyze(points, values).value


def test_lazy_frames_are_collected():
    polars = pytest.importorskip("polars")
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), f=lambda j: j**2)
    points = nq.plan(problem, budget=64, method="nqmc", rng=0)
    lazy = points.to_frame("polars").lazy().with_columns(value=polars.col("x_1"))
    plain = points.to_frame()["x_1"].to_numpy()
    assert nq.analyze(points, lazy).value == nq.analyze(points, plain).value


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_comparison_as_a_frame(library):
    pytest.importorskip(library)
    table = nq.compare(nq.problems.synthetic(), budget=64, methods=["nmc"], replicates=2, rng=0)
    frame = table.to_frame(library)
    assert type(frame).__module__.split(".")[0] == library
    assert list(frame["method"]) == ["nmc"]
    assert float(next(iter(frame["rmse"]))) == table.rows[0].rmse


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_value_of_information_answers_in_the_library_of_its_tables(library):
    pytest.importorskip(library)
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((1000, 2))
    inputs = {"effect": draws[:, 0], "cost": draws[:, 1]}
    benefits = {"none": np.zeros(1000), "new": draws @ [1.0, 0.5]}
    expected = voi.evppi(new_frame(benefits), new_frame(inputs), rng=0)
    values = voi.evppi(new_frame(benefits, library), inputs=new_frame(inputs, library), rng=0)
    assert type(values).__module__.split(".")[0] == library
    columns = frame_columns(values)
    assert list(columns) == list(expected.columns)
    assert columns["pars"].to_list() == ["effect", "cost"]
    np.testing.assert_array_equal(columns["evppi"].to_numpy(), expected["evppi"])
    known = voi.Outputs(net_benefit=new_frame(benefits, library))
    assert list(voi.psa_summary(known)["option"]) == ["none", "new"]


def test_rows_of_a_report_as_a_frame():
    pytest.importorskip("polars")
    frame = frame_of([{"a": 1.0, "b": "x"}, {"a": 2.0}], "polars")
    assert frame.to_dict(as_series=False) == {"a": [1.0, 2.0], "b": ["x", None]}
    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), lambda x, theta: (x + theta)[..., 0])
    report = risk.measure(problem, var=0.9, es=(), budget=200, rng=0)
    assert type(report.to_frame("polars")).__module__.startswith("polars")


def test_unknown_library():
    table = nq.compare(nq.problems.synthetic(), budget=64, methods=["nmc"], replicates=1, rng=0)
    with pytest.raises(nq.InputError, match="library"):
        table.to_frame("spreadsheet")
