"""No plausible nonsense: mistakes that once gave an answer, one by one."""

from __future__ import annotations

import io
import time
import zipfile

import numpy as np
import pandas as pd
import pytest
import voi_models as models

import nestquad as nq
from nestquad import voi
from nestquad.cli import main
from nestquad.pages import money, span

N = 400
RNG = np.random.default_rng(7)
P = pd.DataFrame({"rr_A": RNG.normal(1.0, 0.2, N), "cost, drug": RNG.gamma(9, 90, N)})
COSTS = pd.DataFrame({"old": 900 + 0 * P.rr_A, "new": 400 + P["cost, drug"]})
EFFECTS = pd.DataFrame({"old": 10 + 0 * P.rr_A, "new": 10 + 0.1 * (P.rr_A - 0.95)})
TABLES = {"parameters": P, "costs": COSTS, "effects": EFFECTS}


# 1. Costs and effects swapped.


def test_swapped_tables_are_noticed_by_size():
    with pytest.raises(nq.InputError, match="Are they swapped") as caught:
        voi.Outputs(EFFECTS, COSTS, 20_000)
    assert "costs near 10 and effects near 1,0" in str(caught.value)
    assert voi.Outputs(EFFECTS, COSTS, 20_000, as_given=True).options == ("old", "new")
    seen = voi.preview(P, EFFECTS, COSTS, wtp=20_000)
    assert "Are they swapped" in str(seen.problems[0])
    assert voi.preview(P, EFFECTS, COSTS, wtp=20_000, as_given=True).problems == ()


def test_swapped_tables_are_noticed_by_names():
    costs, effects = COSTS.add_prefix("cost_"), EFFECTS.add_prefix("qaly_")
    for wtp in (None, 1.0):
        assert "Are they swapped" in str(voi.preview(P, effects, costs, wtp=wtp).problems[0])
    assert voi.preview(P, costs, effects, wtp=20_000).problems == ()


@pytest.mark.parametrize("wtp", [0, 50, 20_000, 100_000])
@pytest.mark.parametrize("unit", [1.0, 365.0])  # years, or days
def test_what_is_right_is_not_asked(wtp, unit):
    voi.Outputs(COSTS, unit * EFFECTS, wtp / unit)
    voi.Outputs(COSTS / 50, unit * EFFECTS, wtp / unit)


def test_swapped_tables_on_the_command_line(tmp_path, capsys):
    paths = {kind: tmp_path / f"{kind}.csv" for kind in TABLES}
    for kind, path in paths.items():
        TABLES[kind].to_csv(path, index=False)
    swapped = ["--parameters", paths["parameters"], "--costs", paths["effects"]]
    command = ["voi", *map(str, [*swapped, "--effects", paths["costs"]]), "--wtp", "20000"]
    assert main(command) == 2
    assert "Are they swapped? Exchange the two tables; if they are right, add --as-given." in (
        capsys.readouterr().err
    )
    assert main([*command, "--as-given"]) == 0


# 3. and 4. Names.


def test_the_nearest_name_is_the_real_one():
    with pytest.raises(nq.InputError, match="Did you mean 'rr_A'") as caught:
        voi.evppi((COSTS, EFFECTS, 20_000), P, "rrA")
    assert "rr_a" not in str(caught.value)
    with pytest.raises(nq.InputError, match="Did you mean 'rr_A'"):
        voi.evsi((COSTS, EFFECTS, 20_000), P, voi.NormalTrial("RR A", 1.0), 10)


@pytest.mark.parametrize(
    "options",
    [
        ["--pars", '"cost, drug",rr_A'],
        ["--trial", 'normal:"cost, drug":300', "--sizes", "10"],
    ],
)
def test_a_name_with_a_comma_goes_in_quotes(tmp_path, capsys, options):
    for kind, table in TABLES.items():
        table.to_csv(tmp_path / f"{kind}.csv", index=False)
    files = [x for kind in TABLES for x in (f"--{kind}", str(tmp_path / f"{kind}.csv"))]
    assert main(["voi", *files, "--wtp", "20000", *options]) == 0
    out = capsys.readouterr().out
    assert "cost, drug + rr_A" in out if "--pars" in options else "EVSI of" in out


# 9. Digits.


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (145_950_507, 3e6, "£146m"),
        (145_950_507, 1.2e6, "£146.0m"),
        (3_000_000, 3e6, "£3m"),
        (1_046.8, 30, "£1,050"),
        (1_046.8, 3, "£1,047"),
        (22.46, 4, "£22"),
        (0.0834, 1.5, "£0.1"),
        (0.0834, 30, "£0"),
        (0.0034, 0.2, "£0"),
        (36.14134490510998, 10, "£36"),
        (0.0123, 0.001, "£0.0123"),
        (-5_230_000, 700_000, "−£5.2m"),
        (2_345_678_901, 5e7, "£2.35bn"),
        (0.0, 5.0, "£0"),
    ],
)
def test_digits_are_those_that_the_interval_supports(value, half, text):
    assert money(value, "£", half) == text


def test_both_ends_of_an_interval_have_the_same_digits():
    assert span(143_012_345, 148_901_234, "£") == "£143m to £149m"
    assert span(-0.2, 31.0, "£") == "£0 to £31"


# 10. Products of four.


@pytest.mark.parametrize("rows", [1_000, 10_000])
def test_products_of_four_are_valued(rows):
    """E max(0, xyzw) of standard normals is (2/π)²/2; before, 88 to 100 % were missing."""
    truth = (2 / np.pi) ** 2 / 2
    errors = []
    for seed in (1, 3):
        rng = np.random.default_rng(seed)
        x = pd.DataFrame(rng.standard_normal((rows, 4)), columns=list("abcd"))
        gain = x.prod(axis=1) + rng.standard_normal(rows)
        row = voi.evppi(np.column_stack((0 * gain, gain)), x, list("abcd")).iloc[0]
        assert row.lower <= truth <= row.upper
        errors.append(row.evppi / truth - 1)
    assert abs(np.mean(errors)) < (0.25 if rows == 1_000 else 0.1)


def test_the_held_out_fit_of_trees_decides_what_is_reported():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(1)
    x = pd.DataFrame(rng.standard_normal((10_000, 4)), columns=list("abcd"))
    gain = 0.8 * np.sign(x.prod(axis=1)) + rng.standard_normal(10_000)  # no column of a spline
    row = voi.evppi(np.column_stack((0 * gain, gain)), x, list("abcd")).iloc[0]
    assert "interactions" in row["flags"]
    assert row.evppi > 0.6 * 0.4
    assert row.lower <= 0.4 <= row.upper


# The page.

starlette = pytest.importorskip("starlette")
pytest.importorskip("multipart")
from starlette.testclient import TestClient  # noqa: E402

from nestquad.voi.serve import application  # noqa: E402
from nestquad.voi.serve._jobs import preload  # noqa: E402
from nestquad.voi.serve._workspace import Workspace  # noqa: E402

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def client():
    preload()
    space = Workspace()
    app = application(space, TOKEN, 8124)
    yield TestClient(app, base_url=f"http://127.0.0.1:8124/{TOKEN}", follow_redirects=True)
    space.close()


def sent(frames):
    return {k: (f"{k}.csv", table.to_csv(index=False)) for k, table in frames.items()}


def begun(client, files=None):
    answer = client.post("/analyses", files=files or sent(TABLES), data={"wtp": "20000"})
    return answer, str(answer.url).partition(TOKEN)[2].rstrip("/")


def settled(client, path):
    while (state := client.get(f"{path}/state").json())["job"] is not None:
        time.sleep(0.02)
    return state


# 1. The question in the page.


def test_the_page_asks_whether_tables_are_swapped(client):
    swapped = {"parameters": P, "costs": EFFECTS, "effects": COSTS}
    page, path = begun(client, sent(swapped))
    assert "Are costs and effects swapped?" in page.text
    client.post(f"{path}/settings", json={"swap": True})
    settled(client, path)
    now = client.get(f"{path}/data").json()["seen"]["now"]
    assert now["cost"] == pytest.approx(COSTS.mean().tolist())
    book = io.BytesIO()  # a sheet for each table
    with pd.ExcelWriter(book) as writer:
        for name, table in swapped.items():
            table.to_excel(writer, sheet_name=name, index=False)
    page, path = begun(client, {"workbook": ("model.xlsx", book.getvalue())})
    client.post(f"{path}/settings", json={"swap": True})
    settled(client, path)
    seen = client.get(f"{path}/data").json()["seen"]
    assert seen["now"]["cost"] == pytest.approx(COSTS.mean().tolist())
    assert "costs and effects exchanged by hand" in seen["notes"]
    page, path = begun(client, sent(swapped))
    client.post(f"{path}/settings", json={"as_given": True})
    settled(client, path)
    now = client.get(f"{path}/data").json()["seen"]["now"]
    assert now["cost"] == pytest.approx(EFFECTS.mean().tolist())


# 2. Files are what the page shows.


def test_files_are_at_the_position_of_the_slider_and_say_so(client):
    _, path = begun(client)
    settled(client, path)
    exact = {k: voi.evpi((COSTS, EFFECTS, k)).evpi[0] for k in (20_000, 25_000)}
    for k in (25_000, 20_000):
        line = f"Values at a willingness to pay of £{k:,} per QALY"
        report = client.get(f"{path}/files/report.html?wtp={k}&download")
        assert f"report-{k}.html" in report.headers["content-disposition"]
        body = report.text.partition("</h1>")[2].lstrip()
        assert body.startswith(f"<p>{line}.</p>")
        book = io.BytesIO(client.get(f"{path}/files/tables.xlsx?wtp={k}").content)
        sheets = pd.read_excel(book, sheet_name=None, engine="calamine")
        assert sheets["about"].columns[0] == line
        assert sheets["evpi"]["EVPI per person"][0] == pytest.approx(exact[k])
        figures = client.get(f"{path}/files/figures.zip?wtp={k}").content
        about = zipfile.ZipFile(io.BytesIO(figures)).read("about.txt").decode()
        assert about.startswith(f"Figures at a willingness to pay of £{k:,}")
        docx = pytest.importorskip("docx")
        word = docx.Document(io.BytesIO(client.get(f"{path}/files/report.docx?wtp={k}").content))
        assert word.paragraphs[1].text == f"{line}."
    assert client.get(f"{path}/files/report.html?wtp=25001").status_code == 422


# 5. The unit that is asked for.


@pytest.mark.parametrize(
    ("kind", "words"),
    [("survival", "2, in the unit of time of the hazard"), ("normal", "in the unit of the measure"),
     ("count", "1, in the unit of time of the rate")],
)  # fmt: skip
def test_an_empty_detail_is_asked_for_in_its_unit(client, kind, words):
    _, path = begun(client)
    study = {"kind": kind, "pars": ["rr_A"], "detail": "", "sizes": "10"}
    answer = client.post(
        f"{path}/settings", json={"study": study, "per_year": "10", "horizon": "2"}
    )
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert "20000" not in answer.json()["error"]


# 6. A workbook in the place of a table.


def test_a_workbook_as_costs_is_read_or_told_in_words_of_the_page(client):
    file, several = io.BytesIO(), io.BytesIO()
    COSTS.to_excel(file, index=False)
    with pd.ExcelWriter(several) as writer:
        for name in ("one", "two"):
            COSTS.to_excel(writer, sheet_name=name, index=False)
    files = {**sent(TABLES), "costs": ("costs.xlsx", file.getvalue())}
    page, _ = begun(client, files)
    assert 'role="alert"><h2>' not in page.text
    page, _ = begun(client, {**files, "costs": ("costs.xlsx", several.getvalue())})
    assert "A workbook with all three tables goes by itself, as the workbook." in page.text
    assert "--workbook" not in page.text


# 7. A study that cannot be valued.


def test_the_error_of_a_study_is_gone_with_the_next_question(client):
    _, path = begun(client)
    settled(client, path)
    study = {"kind": "binary", "pars": ["cost, drug"], "sizes": "10"}
    client.post(f"{path}/settings", json={"study": study, "per_year": "10", "horizon": "2"})
    state = settled(client, path)
    assert "probabilities between 0 and 1" in state["error"]
    assert state["settings"]["studies"] == []
    client.post(f"{path}/settings", json={"wtp": 26_000})
    assert settled(client, path)["error"] is None


# 8. A failed upload.


def test_a_failed_upload_shows_what_was_wrong_and_the_way_back(client):
    page, _ = begun(client, {k: (f"{k}.csv", "a,b\n1,2\n") for k in TABLES})
    assert "1 rows" in page.text
    assert "draws of 0" not in page.text
    assert ": 0 draws" not in page.text
    assert "Back to the first page" in page.text
    assert 'name="workbook"' in page.text  # the form again
    page, _ = begun(client, {"workbook": ("m.xlsx", b"PK\3\4 broken")})
    assert "cannot be unpacked" in page.text
    assert "What was understood" not in page.text
    assert "Back to the first page" in page.text


# Several studies, and changes in another tab.


def test_several_studies_are_compared_and_removed(client):
    _, path = begun(client)
    settled(client, path)
    people = {"per_year": "10 20", "horizon": "3", "uptake": "0.5", "discount": 0}
    for detail in ("0.5", "1.5", "1.5"):  # the same one again is no other
        study = {"kind": "normal", "pars": ["rr_A"], "detail": detail, "sizes": "10 100"}
        assert client.post(f"{path}/settings", json={"study": study, **people}).status_code == 200
    settled(client, path)
    results = client.get(f"{path}/data").json()["results"]
    assert results["people"] == pytest.approx(25.0)
    names = [study["design"] for study in results["studies"]]
    assert names == ["normal trial of rr_A (sd 0.5)", "normal trial of rr_A (sd 1.5)"]
    client.post(f"{path}/settings", json={"remove_study": 0})
    settled(client, path)
    results = client.get(f"{path}/data").json()["results"]
    assert [study["design"] for study in results["studies"]] == ["normal trial of rr_A"]


def test_the_choice_of_columns_is_saved_with_the_analysis(client):
    log = pd.concat([P, COSTS.add_prefix("Cost "), EFFECTS.add_prefix("QALY ")], axis=1)
    page, path = begun(client, {"workbook": ("log.csv", log.to_csv(index=False))})
    assert "Columns: what each one is" in page.text
    client.post(f"{path}/settings", json={"columns": {"cost, drug": "ignored"}})
    settled(client, path)
    assert client.get(f"{path}/data").json()["seen"]["parameters"] == ["rr_A"]
    saved = client.get(f"{path}/files/analysis.nestquad.zip").content
    answer = client.post("/analyses", files={"saved": ("mine.zip", saved)})
    again = str(answer.url).partition(TOKEN)[2].rstrip("/")
    settled(client, again)
    assert client.get(f"{again}/data").json()["seen"]["parameters"] == ["rr_A"]


def test_a_decision_that_no_draw_changes_is_not_certain():
    """EVPI of a decision that 300 draws leave unchanged has an upper limit that covers."""
    exact = models.gain_of_knowing(3.5, 1.0)
    for seed in range(1, 40, 2):
        gain = np.random.default_rng(seed).normal(3.5, 1.0, 300)
        table = voi.evpi(np.column_stack((np.zeros(300), gain)))
        if gain.min() > 0:
            assert table.evpi[0] == 0.0
            assert exact < table.upper[0] < 0.05
    constant = np.column_stack((np.zeros(300), np.full(300, 2.0)))
    assert voi.evpi(constant).upper[0] == 0.0
