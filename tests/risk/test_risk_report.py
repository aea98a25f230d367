"""Tables of nested simulations, reports, and the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import norm

import nestquad as nq
from nestquad import risk
from nestquad.cli import main


def _table(n: int = 3000, seed: int = 0, noise: float = 3.0) -> dict[str, np.ndarray]:
    """Two desks; J = 2 z_0 + z_1 for each scenario, with 4 to 20 inner draws."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 2))
    scenario = np.repeat(np.arange(n), rng.integers(4, 21, n))
    a = 2 * z[scenario, 0] + noise * rng.standard_normal(len(scenario))
    b = z[scenario, 1] + rng.standard_normal(len(scenario))
    return {"scenario": scenario, "loss": a + b, "a": a, "b": b}


def test_table_removes_the_noise_of_inner_draws():
    table, exact = _table(), np.sqrt(5.0) * norm.ppf(0.99)
    means = np.bincount(table["scenario"], table["loss"]) / np.bincount(table["scenario"])
    found = risk.from_table(table, exceed=(5.0, 50.0)).var[0.99]
    assert np.quantile(means, 0.99) > exact + 0.2
    assert abs(found.value - exact) <= 1.5 * 1.96 * found.std_error
    assert found.std_error < 0.35


def test_table_covers():
    exact = np.sqrt(5.0) * norm.ppf(0.95)
    hits = 0
    for seed in range(0, 24, 2):
        low, high = risk.from_table(_table(500, seed), var=0.95).var[0.95].interval()
        hits += low <= exact <= high
    assert hits >= 10


def test_table_without_hits_and_without_scenarios():
    report = risk.from_table(_table(200), var=0.999, exceed=50.0)
    low, high = report.exceed[50.0].interval()
    assert low <= 0 < 3 / 200 < high + 1e-3
    assert not np.isfinite(report.var[0.999].std_error)
    assert any("3,000 scenarios" in note for note in report.notes)


def test_skewed_tables_with_few_draws_say_so():
    rng = np.random.default_rng(0)
    scenario = np.arange(2000).repeat(3)
    j = np.exp(0.8 * rng.standard_normal(2000))[scenario]
    words = "scenario means are skewed"
    noisy = {"scenario": scenario, "loss": j + rng.standard_normal(j.size)}
    assert any(words in note for note in risk.from_table(noisy).notes)
    assert words not in str(risk.from_table({"scenario": scenario, "loss": j}))


def test_table_contributions():
    report = risk.from_table(_table(), loss=["a", "b"])
    found = report.contributions.es[0.975]
    assert found.value.sum() == pytest.approx(report.es[0.975].value)
    assert found.value[0] / found.value.sum() == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "lost"}, "no column 'lost'"),
        ({"scenario": "row"}, "at most 1"),
    ],
)
def test_bad_tables(change, message):
    table = _table(50)
    table["row"] = np.arange(len(table["loss"]))
    with pytest.raises(nq.InputError, match=message):
        risk.from_table(table, **change)
    table["loss"][7] = np.nan
    with pytest.raises(nq.InputError, match="row 7"):
        risk.from_table(table)


def test_report_prints_frames_and_saves(tmp_path):
    report = risk.from_table(_table(300), loss=["a", "b"], exceed=5.0, name="two <desks>")
    assert "VaR 99 %" in str(report)
    assert list(report.to_frame()["measure"]) == ["VaR 99 %", "ES 97.5 %", "P(J > 5)"]
    assert len(report.contributions.to_frame()) == 4
    page = report.save(tmp_path / "risk.html").read_text(encoding="utf-8")
    assert "two &lt;desks&gt;" in page
    assert "data:image/png" in page
    assert "<script" not in page
    with pytest.raises(nq.InputError, match="html"):
        report.save(tmp_path / "risk.pdf")
    low, high = report.distribution.band()
    assert (low <= high).all()


_MODEL = """
import nestquad as nq
import numpy as np
law = nq.Normal(np.zeros(2), 1.0)
book = nq.NestedExpectation(law, law, lambda x, theta: theta + x)
"""


def test_command_line(tmp_path, capsys):
    file = tmp_path / "model.py"
    file.write_text(_MODEL)
    line = ["risk", f"{file}:book", "--var", "0.95,0.99", "--budget", "600", "--seed", "0"]
    page = tmp_path / "page.html"
    assert main([*line, "--outputs", "a,b", "--report", str(page), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["measure"] for one in found["measures"]] == ["VaR 95 %", "VaR 99 %", "ES 97.5 %"]
    exact = np.sqrt(2.0) * norm.ppf(0.99)
    assert found["measures"][1]["value"] == pytest.approx(exact, rel=0.02)
    assert {row["output"] for row in found["contributions"]} == {"a", "b"}
    assert "nestquad risk" in page.read_text(encoding="utf-8")
    assert main(["risk", f"{file}:book"]) == 2
    assert "--budget" in capsys.readouterr().err


def test_command_line_with_a_table(tmp_path, capsys):
    table = _table(300)
    path = tmp_path / "simulation.csv"
    rows = zip(table["scenario"], table["loss"], strict=True)
    path.write_text("scenario,loss\n" + "\n".join(f"s{k},{x}" for k, x in rows))
    assert main(["risk", str(path), "--var", "0.95", "--exceed", "5", "--seed", "0"]) == 0
    out = capsys.readouterr().out
    assert "simulation" in out
    assert "VaR 95 %" in out
    rows = zip(table["scenario"], table["loss"], strict=True)
    path.write_text("scenario,loss,rate\n" + "\n".join(f"s{k},{x},{k}" for k, x in rows))
    assert main(["risk", str(path), "--factors", "rate", "--seed", "0"]) == 0
    assert "learned from rate" in capsys.readouterr().out
    assert main(["risk", str(path), "--budget", "1000"]) == 2
    assert "--budget" in capsys.readouterr().err
    assert main(["risk", str(path), "--loss", "pnl", "--seed", "0"]) == 2
    assert "'pnl'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (None, "named columns"),
        ({}, "none"),
        ({"scenario": [], "loss": []}, "one length"),
        ({"scenario": [1, 2], "loss": [0.5]}, "one length"),
        ({"scenario": [1.0, np.nan], "loss": [0.5, 1.0]}, "nothing in row 1"),
    ],
)
def test_tables_that_are_none(frame, words):
    with pytest.raises(nq.InputError, match=words):
        risk.from_table(frame)


def test_table_contribution_of_an_output_that_is_noise():
    """J_a = z is known, J_b = 0 has noise as large as z: contributions are those of a alone."""
    exact = {"var": norm.ppf(0.99), "es": norm.pdf(norm.ppf(0.975)) / 0.025}
    for seed in (0, 2):
        rng, n, k = np.random.default_rng(seed), 2000, 10
        scenario = np.arange(n).repeat(k)
        table = {
            "scenario": scenario,
            "a": rng.standard_normal(n)[scenario],
            "b": np.sqrt(k) * rng.standard_normal(n * k),
        }
        found = risk.from_table(table, loss=["a", "b"]).contributions
        for kind, level in (("var", 0.99), ("es", 0.975)):
            one = getattr(found, kind)[level]
            away = np.abs(one.value - [exact[kind], 0.0])
            assert (away <= 1.5 * 1.96 * one.std_error).all()
            assert away[1] < 0.5  # as much as a, were it moved by the factor of the sum


@pytest.mark.parametrize("share", [0.01, 0.1])
def test_few_scenarios_with_repeated_draws(share):
    """J and noise are standard normal, and nearly all scenarios have one draw."""
    hits = 0
    for seed in range(0, 16, 2):
        rng = np.random.default_rng(seed)
        scenario = np.repeat(np.arange(1000), np.where(rng.random(1000) < share, 2, 1))
        loss = rng.standard_normal(1000)[scenario] + rng.standard_normal(len(scenario))
        report = risk.from_table({"scenario": scenario, "loss": loss}, var=0.95)
        low, high = report.var[0.95].interval()
        hits += low <= norm.ppf(0.95) <= high
        assert ("few repeated draws" in str(report)) == (len(scenario) < 1020)
    assert hits >= 7


def test_a_single_repeated_draw_tells_nothing_of_the_noise():
    """All is noise, of which two like draws show little: J = 0 is not excluded."""
    rng = np.random.default_rng(0)
    table = {"scenario": np.r_[np.arange(499), 0], "loss": rng.standard_normal(500)}
    table["loss"][-1] = table["loss"][0] + 0.3
    low, high = risk.from_table(table, var=0.95).var[0.95].interval()
    assert low < 0.2
    assert high > 1.5


def test_tables_are_never_certain_of_what_they_do_not_show():
    scenario = np.arange(200).repeat(5)
    report = risk.from_table({"scenario": scenario, "loss": np.zeros(1000)}, exceed=(-1.0, 50.0))
    assert not np.isfinite(report.var[0.99].std_error)
    assert not np.isfinite(report.es[0.975].std_error)
    assert "the same value at all points" in str(report)
    for c in (-1.0, 50.0):  # three of 200 may be on the other side
        low, high = report.exceed[c].interval()
        assert max(report.exceed[c].value - low, high - report.exceed[c].value) >= 3 / 200
    # The largest loss in a tenth of all scenarios, and none beyond it.
    loss = 1.0 * (np.arange(200) < 20)[scenario]
    found = risk.from_table({"scenario": scenario, "loss": loss}).es[0.975]
    assert found.value == 1.0
    assert 1.96 * found.std_error >= 3 / 200 / 0.025


_SCENARIO, _LOSS = np.arange(30).repeat(2), np.arange(60.0)
_ROWS = "".join(["scenario,loss\n", *(f"{k // 2},{k}\n" for k in range(60))])


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"scenario": _SCENARIO, "loss": np.stack([_LOSS, _LOSS], axis=1)}, "shape"),
        ({"scenario": np.stack([_SCENARIO, _SCENARIO], axis=1), "loss": _LOSS}, "shape"),
        ({"scenario": 3, "loss": 4}, "shape"),
        (["scenario", "loss"], "table of columns"),
        ({"scenario": np.array([{} for _ in _LOSS]), "loss": _LOSS}, "numbers or words"),
        ({"scenario": np.array(["", *"x" * 59]), "loss": _LOSS}, "nothing in row 0"),
        ({"scenario": _SCENARIO, "loss": 1j * _LOSS}, "numbers, one for each row"),
        ({"scenario": _SCENARIO, "loss": _LOSS.astype("M8[s]")}, "numbers, one for each row"),
        ({"scenario": _SCENARIO, "loss": 1e-100 * _LOSS}, "another unit of money"),
        ({"scenario": _SCENARIO, "loss": 1e100 * _LOSS}, "another unit of money"),
    ],
)
def test_cells_that_are_no_losses(frame, words):
    with pytest.raises(nq.InputError, match=words):
        risk.from_table(frame)


def test_columns_of_one_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        np.stack([_SCENARIO, _LOSS, _LOSS], axis=1), columns=["scenario", "loss", "loss"]
    )
    with pytest.raises(nq.InputError, match="2 columns 'loss'"):
        risk.from_table(frame)
    with pytest.raises(nq.InputError, match="different"):
        risk.from_table(frame, loss=["loss", "loss"])


def test_scenarios_may_have_names_of_several_kinds():
    names = np.array([k if k % 2 else str(k) for k in _SCENARIO.tolist()], dtype=object)
    found = risk.from_table({"scenario": names, "loss": _LOSS}, var=0.5, es=())
    same = risk.from_table({"scenario": _SCENARIO, "loss": _LOSS}, var=0.5, es=())
    assert found.var[0.5].value == same.var[0.5].value


def test_pages_and_axes_that_are_none(tmp_path):
    report = risk.from_table(_table(50))
    for path in (None, 3, "", tmp_path / "none" / "page.html"):
        with pytest.raises(nq.InputError, match="path"):
            report.save(path)
    with pytest.raises(nq.InputError, match="ax"):
        report.plot("x")


@pytest.mark.parametrize("curve", ["junk", -1.0, np.nan, [0.2, 0.1], lambda t: 1 / 0])
@pytest.mark.parametrize("dates", [None, [1.0, 2.0]])
def test_a_wrong_default_curve_costs_no_evaluations(curve, dates):
    def g(x, theta):
        raise AssertionError

    problem = nq.NestedExpectation(nq.Normal(), nq.Normal(), g)
    with pytest.raises(nq.InputError, match="default_curve"):
        risk.measure(problem, exposure=True, outputs=dates, default_curve=curve, budget=500)


def test_one_scenario_has_no_law():
    problem = nq.NestedExpectation(nq.Empirical([[1.0], [1.0]]), nq.Normal(), lambda x, t: x + t)
    with pytest.raises(nq.InputError, match="single scenario"):
        risk.measure(problem, budget=500)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("scenario,loss\n1,2,3\n", [], "3 cells in row 1"),
        ("scenario,loss,loss\n1,2,3\n", [], "2 columns 'loss'"),
        ("scenario,loss\n,2\n,3\n", [], "nothing in row 0"),
        ("scenario,loss\n1,2\n", ["--recovery", "0"], "--recovery"),
        ("scenario,loss\n1,2\n", ["--report", "page.pdf"], ".html"),
        (_ROWS, ["--seed", "-1"], "-1"),
    ],
)
def test_command_line_refuses(tmp_path, capsys, monkeypatch, text, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(text)
    assert main(["risk", "table.csv", *options]) == 2
    assert words in capsys.readouterr().err
