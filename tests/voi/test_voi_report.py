"""The command, the report and the figures."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import voi_models as models

import nestquad as nq
from nestquad import voi
from nestquad.cli import main
from nestquad.pages import money
from nestquad.plots import new_axes, to_png

SETS = ["theta5", "theta6", "theta14", "theta15", "theta1"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    costs, effects, inputs = models.brennan(400, seed=0)
    names = ["old", "new <b>&"]
    inputs[SETS].to_csv(folder / "p.csv", index=False)
    pd.DataFrame(costs, columns=names).to_csv(folder / "c.csv", index=False)
    pd.DataFrame(effects, columns=names).to_csv(folder / "e.csv", index=False)
    with pd.ExcelWriter(folder / "m.xlsx") as writer:
        inputs[SETS].to_excel(writer, sheet_name="parameters", index=False)
        pd.DataFrame(costs, columns=names).to_excel(writer, sheet_name="costs", index=False)
        pd.DataFrame(effects, columns=names).to_excel(writer, sheet_name="effects", index=False)
    return folder


def files(folder):
    pairs = (("parameters", "p"), ("costs", "c"), ("effects", "e"))
    return [part for name, file in pairs for part in (f"--{name}", str(folder / f"{file}.csv"))]


@pytest.fixture(scope="module")
def page(tables):
    path = tables / "report.html"
    arguments = ["voi", *files(tables), "--wtp", "10000", "20000", "--pars", "theta5,theta14"]
    arguments += ["--per-year", "1000", "--horizon", "10", "--duration", "2"]
    arguments += ["--trial", "normal:theta6:0.4", "--sizes", "50,400", "--report", str(path)]
    arguments += ["--fixed-cost", "1e5", "--cost-each", "500", "--seed", "0", "--title", "A & B"]
    assert main(arguments) == 0
    return path


def test_json_is_what_the_functions_give(tables, capsys):
    groups = ["--pars", "theta5,theta14"]
    assert main(["voi", *files(tables), "--wtp", "10000", *groups, "--json", "--seed", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    costs, effects, inputs = (pd.read_csv(tables / f"{name}.csv") for name in "cep")
    assert found["evpi"][0]["evpi"] == pytest.approx(voi.evpi((costs, effects, 1e4)).evpi[0])
    table = voi.evppi((costs, effects, 1e4), inputs).set_index("pars")
    assert {row["pars"]: row["evppi"] for row in found["evppi"]} == pytest.approx(
        table.evppi.to_dict(), abs=1e-6
    )
    assert [row["pars"] for row in found["groups"]] == ["theta5 + theta14"]
    values = [row["evppi"] for row in found["evppi"]]
    assert values == sorted(values, reverse=True)


def test_workbook_and_files_agree(tables, capsys):
    outs = []
    for source in (files(tables), ["--workbook", str(tables / "m.xlsx")]):
        assert main(["voi", *source, "--wtp", "10000", "--seed", "0"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]
    assert outs[0].startswith("new <b>& against old at £10,000: incremental net benefit £")
    assert "\nEVPI at £10,000: £" in outs[0]
    assert "not distinguishable from 0" in outs[0]


class Outline(HTMLParser):
    def __init__(self):
        super().__init__()
        self.headings, self.links, self.images, self.tag = [], [], 0, ""

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        values = dict(attrs)
        self.images += tag == "img"
        self.links += [v for k, v in attrs if k in ("src", "href") and not v.startswith("data:")]
        if tag == "img":
            assert values["alt"]

    def handle_data(self, data):
        if self.tag in ("h1", "h2") and data.strip():
            self.headings.append(data)


def test_report_is_complete_and_self_contained(page):
    text = page.read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert outline.links == []
    assert "http:" not in text and "https:" not in text  # noqa: PT018
    assert "<script" not in text
    assert outline.images == 10
    for heading in (
        "A & B",
        "Decision on current information",
        "Value of perfect information",
        "Checklist of good practice",
        "Input and reproducibility",
        "Single parameters",
        "Groups of parameters",
        "Value of a study",
        "Table for a submission",
        "Methods",
    ):
        assert heading in "".join(outline.headings)
    assert "new &lt;b&gt;&amp;" in text
    assert "new <b>" not in text
    assert "Strong M, Oakley JE" in text
    assert "QALYs" in text
    for name in "pce":
        code = hashlib.sha256((page.parent / f"{name}.csv").read_bytes()).hexdigest()
        assert code in text
    assert text.index("Best option today") < text.index('page-end"') < text.index("<h2>")
    assert re.search(r"nestquad voi .*--seed 0", text)


def download(page, name):
    text = page.read_text(encoding="utf-8")
    found = re.search(rf'download="{re.escape(name)}" href="data:[^,]*,([^"]*)"', text)
    return io.BytesIO(base64.b64decode(found[1]))


def test_downloads_inside_the_page(page):
    sheets = pd.read_excel(download(page, "tables.xlsx"), sheet_name=None, engine="calamine")
    assert {"about", "psa", "incremental", "icers", "singles", "groups", "enbs"} <= set(sheets)
    costs, effects = (pd.read_csv(page.parent / f"{name}.csv") for name in "ce")
    exact = voi.incremental((costs, effects, [1e4, 2e4]))
    np.testing.assert_allclose(sheets["incremental"]["Incremental net benefit"], exact.inb)
    docx = pytest.importorskip("docx")
    document = docx.Document(download(page, "submission.docx"))
    assert document.paragraphs[0].text == "A & B"
    assert len(document.inline_shapes) == 10
    assert len(document.tables) >= 8
    for table in document.tables:
        first = table.rows[0]._tr
        is_head = bool(first.xpath(".//w:tblHeader"))
        look = table._tbl.tblPr.xpath("./w:tblLook/@w:firstRow")
        assert is_head == (look == ["1"])  # painted as one, and on every page
        assert all(row._tr.xpath(".//w:cantSplit") for row in table.rows)
    for one, other in pairwise(document.paragraphs):
        if one._p.xpath(".//pic:pic"):
            assert one.paragraph_format.keep_with_next
            assert other.style.name == "Caption"
            # The number is a field of Word, which is no part of the text here.
            assert other.text == f"Figure . {one._p.xpath('.//wp:docPr/@descr')[0]}"
            assert other._p.xpath("./w:fldSimple/@w:instr") == ["SEQ Figure \\* ARABIC"]
    assert download(page, "plane.svg").read().lstrip().startswith(b"<?xml")
    assert download(page, "plane.png").read().startswith(b"\x89PNG")


def test_files_of_the_command(tables, tmp_path, capsys):
    pytest.importorskip("docx")
    asked = ["--excel", str(tmp_path / "t.xlsx"), "--word", str(tmp_path / "w.docx")]
    asked += ["--figures", str(tmp_path / "figures")]
    assert main(["voi", *files(tables), "--wtp", "1e4", *asked]) == 0
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 6
    assert (tmp_path / "t.xlsx").stat().st_size > 5000
    assert (tmp_path / "w.docx").stat().st_size > 50_000


def test_report_without_matplotlib(tables, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = tables / "plain.html"
    assert main(["voi", *files(tables), "--wtp", "1e4", "--seed", "0", "--report", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert "A figure is left out" in text
    assert "<img" not in text


CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None
)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [390, 1280])
def test_page_fits_the_window(page, tmp_path, width):
    """Nothing makes the page wider than the window: wide tables scroll by themselves."""
    framed = tmp_path / "framed.html"
    # A frame of that width: headless windows have a minimum of their own.
    framed.write_text(
        f'<iframe id="f" src="{page.as_uri()}" style="width:{width}px;height:900px;border:0">'
        "</iframe><p id=out></p><script>document.getElementById('f').onload = e => {"
        "const d = e.target.contentDocument.documentElement;"
        "document.getElementById('out').textContent = d.scrollWidth + ' of ' + d.clientWidth;"
        "};</script>",
        encoding="utf-8",
    )
    run = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            framed.as_uri(),
        ],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    found = re.search(r"(\d+) of (\d+)</p>", run.stdout)
    assert found, run.stderr[-500:]
    assert int(found[1]) <= int(found[2]) <= width


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--wtp", "20000"], "no tables"),
        (["--wtp", "20000", "--costs", "c.csv"], "--parameters, --costs and --effects"),
        (["FILES", "--wtp", "20000", "--pars", "theta_5"], "Did you mean 'theta5'?"),
        (["FILES", "--wtp", "20000", "--trial", "coin:a"], "binary:P1"),
        (["FILES", "--wtp", "20000", "--trial", "binary:theta99"], "Did you mean"),
        (["FILES", "--wtp", "-5"], "none negative"),
        (["FILES", "--wtp", "20000", "--effects", "none.csv"], "which is not a file"),
    ],
)
def test_messages_without_traceback(tables, options, words, capsys):
    arguments = [x for o in options for x in (files(tables) if o == "FILES" else [o])]
    assert main(["voi", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("nestquad: ")
    assert words in said
    assert "Traceback" not in said


def test_different_row_counts(tables, tmp_path, capsys):
    short = tmp_path / "c.csv"
    pd.read_csv(tables / "c.csv")[:-1].to_csv(short, index=False)
    assert main(["voi", *files(tables), "--wtp", "20000", "--costs", str(short)]) == 2
    assert "399 rows of costs, 400 rows of effects" in capsys.readouterr().err


# Figures.


@pytest.fixture(scope="module")
def outputs(tables):
    costs, effects = (pd.read_csv(tables / f"{name}.csv") for name in "ce")
    return voi.Outputs(costs, effects, [1e4])


@pytest.fixture
def ax():
    figure, (axes,) = new_axes()
    yield axes
    to_png(figure)


def test_plane_shows_every_draw_and_the_mean(outputs, ax):
    voi.plot_plane(outputs, ax)
    (dots,) = ax.collections
    increments = outputs.increments
    np.testing.assert_allclose(dots.get_offsets(), increments[:, ::-1])
    mean = ax.lines[0].get_xydata()[0]
    np.testing.assert_allclose(mean, increments.mean(axis=0)[::-1])


def test_ceac_adds_up_to_one(outputs, ax):
    table = voi.ceac(outputs)
    np.testing.assert_allclose(table.groupby("wtp").probability.sum(), 1.0)
    assert (table.groupby("wtp").frontier.sum() == 1).all()
    voi.plot_ceac(outputs, ax)
    drawn = np.sum([line.get_ydata() for line in ax.lines[:4:2]], axis=0)
    np.testing.assert_allclose(drawn, 1.0)


def test_psa_summary_counts_best_draws(outputs):
    table = voi.psa_summary(outputs)
    benefits = outputs.net_benefits()[0]
    np.testing.assert_allclose(table.net_benefit, benefits.mean(axis=0))
    np.testing.assert_allclose(table.probability[1], np.mean(benefits[:, 1] > benefits[:, 0]))
    assert "cost" not in voi.psa_summary(benefits)


def test_rank_is_longest_first_with_intervals(ax):
    table = pd.DataFrame(
        {
            "pars": ["a", "b"],
            "wtp": 1e4,
            "evppi": [1.0, 5.0],
            "lower": [0.0, 4.0],
            "upper": [2.0, 6.0],
            "flags": ["not distinguishable from 0", ""],
        }
    )
    voi.plot_rank(table, ax, evpi=10.0)
    assert [bar.get_width() for bar in ax.patches] == [1.0, 5.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    first, second = (bar.get_facecolor()[:3] for bar in ax.patches)
    assert first == (1.0, 1.0, 1.0)
    assert second != first


def test_enbs_marks_the_optimum(ax):
    table = pd.DataFrame(
        {"design": "trial", "n": [10, 20, 400], "participants": [10, 20, 400], "wtp": np.nan}
    ).assign(evsi=[1.0, 2.0, 2.1], lower=0.5, upper=3.0, se=0.5)
    costed = voi.enbs(table, per_year=100, horizon=1, cost_per_participant=1.0)
    voi.plot_enbs(costed, ax)
    assert any("best: 20" in text.get_text() for text in ax.texts)


def test_curves_by_wtp_and_by_size(outputs, ax):
    swept = outputs.at([0.0, 1e4, 2e4])
    evppi = pd.DataFrame(
        {"pars": "a", "wtp": [0.0, 1e4, 2e4], "evppi": 1.0, "lower": 0.5, "upper": 2.0}
    )
    voi.plot_evpi(voi.evpi(swept), evppi, ax, mark=1e4)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), voi.evpi(swept).evpi)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), 1.0)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda ax: voi.plot_rank(pd.DataFrame({"a": [1]}), ax), "voi.evppi"),
        (lambda ax: voi.plot_evsi(3, ax), "voi.evsi"),
        (lambda ax: voi.plot_plane(np.ones((30, 2)), ax), "costs and effects"),
        (lambda ax: voi.ceac(np.ones((30, 2))), "costs and effects"),
    ],
)
def test_figures_that_are_refused(draw, words, ax):
    with pytest.raises(nq.InputError, match=words):
        draw(ax)


def test_notebooks_show_names_as_text_and_numbers_as_they_are():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"<b>": rng.normal(size=50), "q": rng.normal(size=50)})
    costs, effects = rng.normal(5.0, 1.0, (50, 2)), rng.normal(1.0, 1.0, (50, 2))
    outputs = voi.Outputs(costs, effects, 2.0, options=("usual", "<i>new"))
    shown = outputs._repr_html_()
    assert "&lt;i&gt;new" in shown
    assert f"{costs[:, 1].mean():,.6g}" in shown
    analysis = voi.analyze(outputs, x, {"both": ["<b>", "q"]})
    shown = analysis._repr_html_()
    evpi = voi.evpi(outputs).iloc[0]
    digits = money(evpi.evpi, "", (evpi.upper - evpi.lower) / 2)
    for word in ("&lt;b&gt;", "both", f">{digits}<", "too few rows"):
        assert word in shown
    assert "<b>" not in shown
    seen = voi.preview(x, costs, effects[:40])
    assert "50 draws of &lt;b&gt;, q" in seen._repr_html_()
    assert "40 rows of effects" in seen._repr_html_()


@pytest.mark.filterwarnings("error")
def test_of_thirty_options_the_best_have_names_in_every_figure():
    rng = np.random.default_rng(0)
    costs, effects = rng.normal(1000.0, 50.0, (50, 30)), rng.normal(1.0, 0.1, (50, 30))
    outputs = voi.Outputs(costs, effects, 20_000.0, options=[f"Option {d}" for d in range(30)])
    best = outputs.options[int(outputs.net_benefits()[0].mean(axis=0).argmax())]
    for plot in (voi.plot_ceac, voi.plot_loss, voi.plot_plane, voi.plot_frontier):
        figure, (ax,) = new_axes(5.6, 3.5)
        plot(outputs, ax)
        texts = [text.get_text() for text in ax.texts] + ax.get_legend_handles_labels()[1]
        options = [text for text in texts if text.startswith("Option")]
        assert best in options or plot is voi.plot_plane
        assert len(options) <= 8
        assert texts.count("22 others") == 1
        to_png(figure)


def test_a_group_is_not_called_as_a_parameter():
    rng = np.random.default_rng(0)
    inputs = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("abz"))
    benefit = np.column_stack((np.zeros(200), inputs.a + inputs.b))
    with pytest.raises(nq.InputError, match="a group 'z', which is the name of a parameter"):
        voi.analyze(benefit, inputs, {"z": ["a", "b"]})
    found = voi.analyze(benefit, inputs, {"z": ["z"], "ab": ["a", "b"]})  # one alone is a single
    assert found.groups["pars"].tolist() == ["ab"]
    assert sorted(found.singles["pars"]) == ["a", "b", "z"]


def test_two_studies_of_one_name_are_told_apart():
    mu = np.random.default_rng(0).normal(size=4000)
    benefit, inputs = np.column_stack((0 * mu, mu)), pd.DataFrame({"mu": mu})
    sds = (1.0, 50.0)
    trials = [voi.NormalTrial("mu", sd) for sd in sds]
    studies = [voi.Study(one, [1, 100], cost_per_participant=1.0, duration=1) for one in trials]
    audience = voi.Audience(10_000, 10)
    found = voi.analyze(benefit, inputs, audience=audience, study=[*studies, studies[1]])
    names = [f"normal trial of mu (sd {sd:g})" for sd in sds]
    assert found.best_sizes["design"].tolist() == [*names, f"{names[1]}, no. 2"]
    exact = [0.39894 / np.sqrt(1 + sd**2 / n) for sd in sds for n in (1, 100)]
    valued = found.enbs.head(4)
    assert valued["design"].tolist() == [name for name in names for _ in range(2)]
    assert (np.abs(valued["evsi"] - exact) < 3 * valued["se"] + 0.01).all()
    assert voi.evsi(benefit, inputs, trials, [1])["design"].tolist() == names
