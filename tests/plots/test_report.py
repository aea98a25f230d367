"""The page: complete, self-contained, well-formed and safe."""

from __future__ import annotations

import base64
import io
import sys
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
import pytest

import nestquad as nq
from nestquad.pages import write_report

VOID = {"meta", "img", "br", "link", "hr"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        result = dict(attrs)
        self.links += [result[key] for key in ("src", "href", "action", "data") if key in result]
        if tag == "img":
            self.images.append(result)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def results():
    problem = nq.problems.finance()
    est = nq.estimate(problem, tol=0.05, method="nkq", rng=3)
    notes = {**est.diagnostics, "notes": ["kept for a reason"]}
    est = replace(est, diagnostics=notes)
    return est, nq.compare(problem, budget=[256, 512], methods=["nmc", "nkq"], replicates=3, rng=0)


@pytest.fixture(scope="module")
def full(tmp_path_factory, results):
    command = "nestquad estimate finance"
    folder = tmp_path_factory.mktemp("report")
    return page(folder, estimate=results[0], comparison=results[1], command=command)


@pytest.fixture
def bare(results):
    """An estimate without anything to draw."""
    return replace(results[0], sample=None, trace=())


def page(tmp_path, **arguments) -> tuple[Page, str]:
    path = tmp_path / "page.html"
    assert write_report(path, **arguments) == path
    text = path.read_text(encoding="utf-8")
    return Page(text), text


def test_page_is_self_contained(full):
    result, text = full
    assert result.links
    assert all(link.startswith("data:image/png;base64,") for link in result.links)
    assert "script" not in result.tags
    assert "link" not in result.tags
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_figures_are_pictures_with_content_and_words(full):
    result, _ = full
    assert len(result.images) == 3
    for image in result.images:
        data = base64.b64decode(image["src"].partition(",")[2], validate=True)
        pixels = matplotlib.image.imread(io.BytesIO(data), format="png")
        assert min(pixels.shape[:2]) > 400
        assert pixels[..., :3].std() > 0.01
        assert len(image["alt"]) > 20
    assert result.tags.count("figcaption") == 3


def test_page_tells_the_answer_and_how_it_was_found(full, results):
    est, table = results
    result, _ = full
    low, high = est.interval()
    for words in (
        f"{low:.6g} to {high:.6g}",
        f"{est.n_evaluations:,} evaluations",
        "the tolerance was met",
        "kept for a reason",
        est.diagnostics["inner"]["kernel"],
        f"nestquad {nq.__version__}",
        "nestquad estimate finance",
        *(f"{row.mean_abs_error:.2e}" for row in table.rows),
    ):
        assert words in result.text
    inside = low <= est.exact <= high
    assert ("the interval holds it" in result.text) == inside


def test_an_interval_that_misses_is_not_hidden(tmp_path, bare):
    result, _ = page(tmp_path, estimate=replace(bare, exact=100.0))
    assert "the interval does not hold it" in result.text


def test_more_points_are_advised_where_the_error_is(tmp_path, bare):
    for inner, words in ((1.0, "more inner points"), (0.0, "more values of θ")):
        sizes = {"error_inner": inner, "error_outer": 0.5}
        result, _ = page(tmp_path, estimate=replace(bare, diagnostics=sizes))
        assert words in result.text


def test_best_of_each_budget_is_marked(full, results):
    _, table = results
    _, text = full
    marked = [line for line in text.splitlines() if 'class="best"' in line]
    assert len(marked) == 2
    for line, budget in zip(marked, (256, 512), strict=True):
        best = min((r for r in table.rows if r.budget == budget), key=lambda r: r.mean_abs_error)
        assert f"<td>{best.method}</td>" in line


def test_everything_from_outside_is_escaped(tmp_path, results):
    evil = "<script>alert('x')</script>\"&"
    est, table = results
    est = replace(
        est,
        problem=evil,
        method=evil,
        status=evil,
        diagnostics={"notes": [evil], evil: evil, "inner": {evil: [evil]}},
    )
    rows = tuple(replace(row, method=evil + str(i)) for i, row in enumerate(table.rows))
    table = replace(table, problem=evil, rows=rows)
    result, text = page(tmp_path, estimate=est, comparison=table, title=evil, command=evil)
    assert "script" not in result.tags
    assert "<script" not in text
    assert result.text.count("<script>alert") >= 10


def test_several_answers_are_all_there(tmp_path):
    problem = nq.NestedExpectation(
        outer=nq.Normal(),
        inner=lambda theta: nq.Normal(theta, 1.0),
        g=lambda x, theta: x[..., 0],
        f=lambda j: np.stack([j, j**2], axis=-1),
        exact=(0.0, 1.0),
        name="two answers",
    )
    est = nq.estimate(problem, budget=1024, method="nkq", rng=0)
    result, _ = page(tmp_path, estimate=est)
    for low, high in zip(*est.interval(), strict=True):
        assert f"{low:.6g} to {high:.6g}" in result.text


def test_single_expectation_has_no_inner_stage(tmp_path):
    est = nq.expectation(lambda x: x[:, 0], nq.Normal(), budget=16, rng=0)
    result, _ = page(tmp_path, estimate=est)
    assert "inner stage" not in result.text.partition("Settings")[0]


def test_unknown_exact_value_and_single_replicate(tmp_path):
    problem = replace(nq.problems.synthetic(), exact=None)
    table = nq.compare(problem, budget=64, methods=["nmc", "nkq"], replicates=1, rng=0)
    result, _ = page(tmp_path, comparison=table)
    assert "–" in result.text
    assert "nan" not in result.text


def test_without_matplotlib_the_page_says_what_is_missing(tmp_path, results, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result, _ = page(tmp_path, estimate=results[0], comparison=results[1])
    assert result.images == []
    assert "[plot]" in result.text


def test_nothing_to_report_is_an_error(tmp_path):
    with pytest.raises(nq.InputError, match="at least one"):
        write_report(tmp_path / "page.html")
