"""Estimate: intervals, text, HTML, JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import norm

import nestquad as nq

ONE = nq.Estimate(3.14159265, 0.02, 1000, 50, 20, "nkq", problem="a <b> & c", exact=np.pi)
TWO = nq.Estimate(
    np.array([1.0, -2.0]),
    np.array([0.1, 0.4]),
    1000,
    50,
    20,
    "nkq",
    covariance=np.array([[0.01, 0.0], [0.0, 0.16]]),
)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_intervals_are_normal_quantiles(level):
    low, high = ONE.interval(level)
    assert (low, high) == pytest.approx(norm.interval(level, 3.14159265, 0.02), rel=1e-9)
    low, high = TWO.interval(level)
    for k in range(2):
        expected = norm.interval(level, TWO.value[k], TWO.std_error[k])
        assert (low[k], high[k]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95, float("nan")])
def test_levels_are_probabilities(level):
    with pytest.raises(nq.InputError, match="level"):
        ONE.interval(level)


def test_text_is_one_line_with_value_error_and_cost():
    text = str(ONE)
    assert "\n" not in text
    assert "3.142 ± 0.039" in text
    for part in ("1,000 evaluations", "50 × 20", "nkq", "done", "95 %"):
        assert part in text
    assert "1 ± 0.2, -2 ± 0.78" in str(TWO)


@pytest.mark.parametrize("method", ["nqmc", "joint", "lsmc", "ckq", "mlmc"])
def test_printed_sizes_sum_to_the_evaluations(method):
    est = nq.estimate(nq.problems.synthetic(), budget=200, method=method, rng=0)
    printed = re.search(r" evaluations(?: \((\d+) × (\d+)(?: \+ (\d+))?\))?, ", str(est))
    outer, inner, more = printed.groups(default="0")
    if method == "mlmc":  # levels have sizes of their own
        assert printed[1] is None
    else:
        assert int(outer) * int(inner) + int(more) == est.n_evaluations


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (247.912, 10.0, "248 ± 20"),
        (1e-7, 1e-9, "1e-07 ± 2e-09"),
        (123456.789, 0.5, "123456.79 ± 0.98"),
        (0.0, 0.1, "0 ± 0.2"),
        (1.0, 0.0, "1 ± 0"),
        (0.5, 3.0, "0.5 ± 5.9"),
    ],
)
def test_digits_follow_the_error(value, error, shown):
    assert shown in str(nq.Estimate(value, error, 10, 5, 2, "nmc"))


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_a_table_with_everything_escaped():
    parser = Cells()
    parser.feed(ONE._repr_html_())
    assert set(parser.tags) == {"table", "caption", "tbody", "tr", "th", "td"}
    assert "a <b> & c" in parser.text
    assert "3.1415927" in parser.text
    assert TWO._repr_html_().count("…") == 1


def test_json_round_trip():
    est = nq.estimate(nq.problems.health(), budget=2000, rng=0)
    data = json.loads(est.to_json())
    assert data["value"] == est.value
    assert data["std_error"] == est.std_error
    assert data["interval95"] == pytest.approx(list(est.interval()))
    assert data["n_evaluations"] == est.n_evaluations
    assert data["exact"] == nq.problems.health().exact
    assert data["trace"][-1]["value"] == est.value
    assert data["diagnostics"]["notes"] == list(est.diagnostics["notes"])
    assert data == est.to_dict()


def test_json_of_several_answers_and_of_numpy_sizes():
    problem = nq.NestedExpectation(
        nq.Uniform(), nq.Uniform(), lambda x, theta: np.stack([x[..., 0] + theta[..., 0]] * 2, -1)
    )
    method = nq.NKQ(n_outer=np.int64(8), n_inner=np.int32(8))
    data = json.loads(nq.estimate(problem, method=method, rng=0).to_json(indent=1))
    assert len(data["value"]) == 2
    assert np.shape(data["covariance"]) == (2, 2)
    assert data["n_outer"] == 8


def test_json_has_no_nan():
    est = nq.Estimate(float("nan"), float("inf"), 10, 5, 2, "nmc", diagnostics={"a": np.nan})
    data = json.loads(est.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert data["value"] is None
    assert data["diagnostics"]["a"] is None


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ONE.value = 1.0


def test_sample_reproduces_the_answer():
    est = nq.estimate(nq.problems.finance(), method=nq.NKQ(64, 32), rng=0)
    sample = est.sample
    assert sample.theta.shape == (64, 1)
    np.testing.assert_allclose(sample.f[:, 0], np.maximum(sample.j, 0.0))
    assert (sample.weights * sample.f).sum() == pytest.approx(est.value)


def test_large_samples_are_thinned():
    est = nq.estimate(nq.problems.finance(), method=nq.NMC(10_000, 2), rng=0)
    assert len(est.sample.theta) == len(est.sample.j) == len(est.sample.f) <= 4096
    assert est.n_outer == 10_000
