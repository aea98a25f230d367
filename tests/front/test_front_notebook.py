"""What notebooks show of problems and results."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import nestquad as nq
from nestquad import risk
from nestquad.plots import new_axes


class Text(HTMLParser):
    """The words of a table, and whether its tags are balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def text(thing) -> str:
    return " | ".join(Text(thing._repr_html_()).words)


@pytest.mark.parametrize("problem", list(nq.problems.all()), ids=lambda problem: problem.name)
def test_shipped_problems_say_what_was_understood(problem):
    shown = text(problem)
    law = problem.inner_law(
        problem.outer_law.from_uniform(np.full((1, problem.outer_law.dim), 0.5))
    )
    for part in (problem.name, f"{problem.outer_law.dim} coordinate", f"{law.dim} coordinate"):
        assert part in shown


def test_a_problem_is_shown_without_calling_g():
    def g(x, theta):
        raise AssertionError

    problem = nq.NestedExpectation(nq.Uniform(), lambda t: nq.Normal(t, 1.0), g, name="<b>")
    shown = text(problem)
    assert "g(x, theta)" in shown
    assert "given θ" in shown
    assert "identity" in shown
    assert "<b>" in shown  # escaped: words, and no tag


def test_an_inner_law_that_fails_is_told():
    problem = nq.NestedExpectation(nq.Uniform(), lambda t: 1 / 0, lambda x, theta: x[..., 0])
    assert "ZeroDivisionError" in text(problem)


def test_functions_of_all_kinds_have_a_name():
    problem = nq.NestedExpectation(nq.Uniform(), nq.Uniform(), None, np.square)
    shown = text(problem)
    assert "evaluated elsewhere" in shown
    assert "square" in shown


def test_a_comparison_is_a_table():
    table = nq.compare(
        nq.problems.synthetic(), budget=256, methods=["nmc", "nqmc"], replicates=2, rng=0
    )
    shown = text(table)
    assert all(cell in shown for row in table.rows for cell in row.cells)


@pytest.fixture(scope="module")
def learned():
    return nq.conditional(nq.problems.synthetic(), budget=256, rng=0)


def test_a_learned_function_says_how_it_was_learned(learned):
    shown = text(learned)
    assert "ckq" in shown
    assert "256" in shown


def test_the_curve_is_the_function(learned):
    theta, mean, sd = learned.curve(points=11)
    again, sd_again = learned(theta[:, None], return_std=True)
    np.testing.assert_allclose(mean[:, 0], again, rtol=1e-9)
    np.testing.assert_allclose(sd[:, 0], sd_again, rtol=1e-6, atol=1e-12)


def test_a_learned_function_is_drawn(learned):
    _, (ax,) = new_axes()
    assert learned.plot(ax) is ax
    assert ax.get_xlabel() == "θ"


def test_a_coordinate_that_does_not_exist_is_refused(learned):
    with pytest.raises(nq.InputError, match="coordinate"):
        learned.curve(1)


def test_one_of_several_coordinates_varies():
    learned = nq.conditional(nq.problems.health(), budget=300, rng=0)
    theta, mean, _ = learned.curve(coordinate=1, points=5)
    assert theta[2] == pytest.approx(0.8)  # the median
    assert mean.shape == (5, 2)
    _, (ax,) = new_axes()
    assert "θ_2" in learned.plot(ax, coordinate=1).get_xlabel()


def test_a_risk_report_is_a_table():
    book = nq.NestedExpectation(
        nq.Normal(), nq.Normal(), lambda x, theta: theta[..., 0] + x[..., 0], name="book"
    )
    report = risk.measure(book, var=0.9, es=(), budget=256, rng=0)
    shown = text(report)
    assert "VaR 90 %" in shown
    assert f"{report.var[0.9].value:.5g}" in shown
