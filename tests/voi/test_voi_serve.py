"""The page without a browser: requests and answers, limits, and who gets in."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nestquad as nq
from nestquad import voi
from nestquad.cli import main

pytest.importorskip("starlette")
pytest.importorskip("multipart")
from starlette.testclient import TestClient

from nestquad.voi.serve import application
from nestquad.voi.serve._app import STATIC
from nestquad.voi.serve._jobs import Job, preload
from nestquad.voi.serve._settings import Settings
from nestquad.voi.serve._workspace import MOST_ANALYSES, Workspace
from nestquad.voi.table import _limits

PORT, TOKEN = 8123, "a-token-of-this-test"
ORIGIN = f"http://127.0.0.1:{PORT}"
ROWS = 400


def tables(rows=ROWS):
    rng = np.random.default_rng(4)
    p = pd.DataFrame(rng.normal([0.5, 0.1, 2.0], [0.1, 0.2, 1.0], (rows, 3)), columns=list("abc"))
    costs = pd.DataFrame({"old": 100 + 0 * p.a, "new": 1_500 + 100 * p.c})
    effects = pd.DataFrame({"old": p.a, "new": p.a + p.b})
    return {"parameters": p, "costs": costs, "effects": effects}


def files(frames=None, **changed):
    frames = tables() if frames is None else frames
    texts = {kind: frame.to_csv(index=False) for kind, frame in frames.items()} | changed
    return {kind: (f"{kind}.csv", text) for kind, text in texts.items()}


def workbook(frames):
    file = io.BytesIO()
    with pd.ExcelWriter(file) as book:
        for kind, frame in frames.items():
            frame.to_excel(book, sheet_name=kind, index=False)
    return file.getvalue()


@pytest.fixture(scope="module", autouse=True)
def _preloaded():
    preload()


@pytest.fixture
def space():
    workspace = Workspace()
    yield workspace
    workspace.close()


@pytest.fixture
def client(space):
    app = application(space, TOKEN, PORT)
    return TestClient(app, base_url=f"{ORIGIN}/{TOKEN}", follow_redirects=True)


def uploaded(client, sent=None, **fields):
    sent = files() if sent is None else sent
    answer = client.post("/analyses", files=sent, data={"wtp": "10000", **fields})
    assert answer.status_code == 200, answer.text
    return answer, str(answer.url).removeprefix(f"{ORIGIN}/{TOKEN}").rstrip("/")


def settled(client, path):
    """The state once nothing runs."""
    while (state := client.get(f"{path}/state").json())["job"] is not None:
        time.sleep(0.05)
    return state


def computed(client, path):
    """The data once they are there; the report is not waited for."""
    while True:
        state = client.get(f"{path}/state").json()
        if state["job"] is None or state["job"]["message"].endswith("report"):
            client.post(f"{path}/cancel")
            assert state["error"] is None
            return data(client, path)
        time.sleep(0.05)


def data(client, path):
    return client.get(f"{path}/data").json()


# ---- what it computes


@pytest.mark.parametrize("as_workbook", [False, "workbook", "parameters"])
def test_numbers_are_those_of_the_tables_at_every_position(client, as_workbook):
    frames = tables()
    sent = {as_workbook: ("model.xlsx", workbook(frames))} if as_workbook else files(frames)
    page, path = uploaded(client, sent)
    assert "What was understood" in page.text
    got = computed(client, path)
    now, results = got["seen"]["now"], got["results"]
    assert now["options"] == ["old", "new"]
    assert now["grid"] == [500.0 * i for i in range(41)]
    for i, k in enumerate(now["grid"]):
        benefit = k * frames["effects"].to_numpy() - frames["costs"].to_numpy()
        exact = benefit.max(axis=1).mean() - benefit.mean(axis=0).max()
        assert now["evpi"]["value"][i] == pytest.approx(exact, rel=1e-9, abs=1e-9)
        assert now["net"][i] == pytest.approx(benefit.mean(axis=0).tolist())
    outputs = voi.Outputs(frames["costs"], frames["effects"], now["grid"])
    direct = voi.evppi(outputs, frames["parameters"]).set_index(["pars", "wtp"])
    assert [one["label"] for one in results["sets"]] == ["a", "b", "c"]
    for one in results["sets"]:
        for name, column in (("value", "evppi"), ("lower", "lower"), ("upper", "upper")):
            # A workbook keeps 15 digits.
            assert one[name] == pytest.approx(direct.loc[one["label"], column].tolist(), rel=1e-5)


def test_a_group_is_computed_alone_and_a_saved_analysis_is_back(client, space):
    _, path = uploaded(client, title="Mine")
    computed(client, path)
    answers = space.get(path.split("/")[-1]).folder / "answers.jsonl"
    before = answers.read_text()
    client.post(f"{path}/settings", json={"groups": {"both": ["a", "b"]}})
    results = computed(client, path)["results"]
    after = answers.read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == len(before.splitlines()) + 1
    assert [one["label"] for one in results["sets"] if one["group"]] == ["both"]

    saved = client.get(f"{path}/files/analysis.nestquad.zip").content
    answer = client.post("/analyses", files={"saved": ("mine.zip", saved)})
    again = str(answer.url).removeprefix(f"{ORIGIN}/{TOKEN}").rstrip("/")
    assert again != path
    assert "Mine" in answer.text
    assert computed(client, again) == data(client, path)
    assert (space.get(again.split("/")[-1]).folder / "answers.jsonl").read_text() == after


def test_another_position_of_the_slider_needs_no_regression(client, space):
    _, path = uploaded(client)
    computed(client, path)
    answers = space.get(path.split("/")[-1]).folder / "answers.jsonl"
    before = answers.read_text()
    client.post(f"{path}/settings", json={"wtp": 12_500})
    assert computed(client, path)["results"]["wtp"] == 12_500
    assert answers.read_text() == before


def test_another_range_has_no_results_until_they_are_computed(client):
    _, path = uploaded(client)
    computed(client, path)
    state = client.post(f"{path}/settings", json={"wtp": 90_000}).json()
    client.post(f"{path}/cancel")
    assert client.get(f"{path}/data").json()["results"] is None
    assert list(state["files"]) == ["analysis.nestquad.zip"]
    client.post(f"{path}/settings", json={})
    assert "report.html" in settled(client, path)["files"]
    assert data(client, path)["results"]["wtp"] == 90_000


def test_study_with_costs_and_duration(client):
    _, path = uploaded(client)
    study = {
        "kind": "normal", "pars": ["b"], "detail": "1", "sizes": "10, 100 1000",
        "fixed_cost": "5000", "cost_per_participant": 20, "duration": 1, "duration_each": 0.001,
    }  # fmt: skip
    answer = client.post(f"{path}/settings", json={"study": study})
    assert answer.status_code == 422
    assert "population" in answer.json()["error"]
    people = {"per_year": "100", "horizon": "5", "discount": 0}
    assert client.post(f"{path}/settings", json={"study": study, **people}).status_code == 200
    found = computed(client, path)
    got, at = found["results"], found["seen"]["now"]["grid"].index(10_000)
    assert got["people"] == pytest.approx(500)
    for one in got["studies"][0]["sizes"]:
        left = 100 * (5 - 1 - 0.001 * one["n"])
        cost = 5_000 + 20 * one["n"]
        assert one["cost"] == pytest.approx(cost)
        assert one["enbs"][at] == pytest.approx(one["evsi"]["value"][at] * left - cost)


@pytest.mark.parametrize(
    "given",
    [
        {"study": {"kind": "binary", "pars": [], "sizes": "10"}, "per_year": 1, "horizon": 1},
        {"study": {"kind": "binary", "pars": ["a"], "sizes": "ten"}, "per_year": 1, "horizon": 1},
        {"study": {"kind": "binary", "pars": ["a"], "sizes": "9.5"}, "per_year": 1, "horizon": 1},
        {
            "study": {"kind": "binary", "pars": ["a"], "sizes": [9.5, 10]},
            "per_year": 1,
            "horizon": 1,
        },
        {
            "study": {"kind": "binary", "pars": ["a"], "sizes": "9" * 400},
            "per_year": 1,
            "horizon": 1,
        },
        {
            "study": {"kind": "binary", "pars": ["a"], "sizes": "1,200 2,400"},
            "per_year": 1,
            "horizon": 1,
        },
        {"study": {"kind": "other", "pars": ["a"], "sizes": "10"}, "per_year": 1, "horizon": 1},
        {"study": "binary"},
        {"per_year": 100},
        {"per_year": -1, "horizon": 1},
        {"groups": ["a", "b"]},
        {"groups": {"g": "ab"}},
        {"wtp": "1,000"},
        {"wtp": "20.000"},
        {"per_year": "4.000", "horizon": 1},
        {"wtp": float("1e400")},
        {"study": {"pars": ["a"]}, "per_year": 1, "horizon": 1},
        {"per_year": 1e308, "horizon": 1e308},
        ["wtp"],
        "[" * 100_000,
    ],
    ids=lambda given: str(given)[:40],
)
def test_settings_that_cannot_be_used_are_refused_with_words(client, given):
    _, path = uploaded(client)
    body = given if isinstance(given, str) else json.dumps(given)
    answer = client.post(f"{path}/settings", content=body)
    assert answer.status_code == 422
    assert "expected" in answer.json()["error"]


def test_unknown_parameter_in_a_group_is_named(client):
    _, path = uploaded(client)
    client.post(f"{path}/settings", json={"groups": {"g": ["a", "zzz"]}})
    assert "'zzz'" in settled(client, path)["error"]


# ---- what was understood


def test_every_bad_cell_is_named_and_another_upload_is_offered(client):
    frames = tables()
    frames["costs"] = frames["costs"].astype(object)
    frames["costs"].iloc[6, 1] = "#DIV/0!"
    frames["parameters"] = frames["parameters"].astype(object)
    frames["parameters"].iloc[2, 0] = "n/a?"
    page, path = uploaded(client, files(frames))
    for part in ("#DIV/0!", "row 7", "n/a?", "row 3"):
        assert part in page.text
    assert page.text.count('type="submit"') == 1
    assert settled(client, path)["files"].keys() == {"analysis.nestquad.zip"}


def test_options_of_other_names_are_matched_by_hand(client):
    frames = tables()
    frames["effects"].columns = ["usual", "drug"]
    page, path = uploaded(client, files(frames))
    assert "Which belong together?" in page.text
    client.post(f"{path}/settings", json={"match": ["drug", "usual"]})
    now = computed(client, path)["seen"]["now"]
    effects = frames["effects"][["drug", "usual"]].mean().tolist()
    assert now["effect"] == pytest.approx(effects)
    assert any("matched by hand" in note for note in data(client, path)["seen"]["notes"])


@pytest.mark.parametrize(
    ("sent", "fields", "words"),
    [
        ({}, {}, "no file"),
        ({"parameters": ("p.csv", "a\n1")}, {}, "parameters, costs and effects"),
        (None, {"wtp": "20,000"}, "Did you mean 20000?"),
        (None, {"wtp": "1,200.5"}, "Did you mean 1200.5?"),
        (None, {"wtp": ""}, "For instance 20000"),
        (None, {"wtp": "-1"}, "not negative"),
        ({"saved": ("s.zip", b"no archive")}, {}, "Save analysis"),
    ],
)
def test_uploads_that_cannot_begin(client, sent, fields, words):
    sent = files() if sent is None else sent
    answer = client.post("/analyses", files=sent, data={"wtp": "1", "title": "Kept", **fields})
    assert answer.status_code == 422
    assert words in answer.text
    assert 'value="Kept"' in answer.text


def test_names_are_text_in_pages_and_downloads(client):
    import openpyxl

    evil, formula = "<img src=x onerror=alert(1)>", '=HYPERLINK("http://evil.example")'
    frames = tables()
    frames["parameters"].columns = [evil, formula, "c"]
    page, path = uploaded(client, files(frames), title=evil, currency="<b>", effect=evil)
    state = settled(client, path)
    assert state["error"] is None
    assert {"report.html", "tables.xlsx", "figures.zip"} <= set(state["files"])
    start, report = client.get("/"), client.get(f"{path}/files/report.html")
    for text in (page.text, start.text, client.get(f"{path}/").text, report.text):
        assert "<img src=x" not in text
        assert "<b>1" not in text
    assert "&lt;img src=x" in page.text
    assert "script" not in report.headers["content-security-policy"]
    tables_file = io.BytesIO(client.get(f"{path}/files/tables.xlsx").content)
    cells = [c for sheet in openpyxl.load_workbook(tables_file) for row in sheet for c in row]
    assert any(cell.value == formula for cell in cells)
    assert all(cell.data_type != "f" for cell in cells)


@pytest.mark.parametrize("wtp", [20_000.0, 12_345.0, 0.0, 0.03, 30_000.0, 1e9])
def test_positions_are_round_numbers_and_the_one_asked_for(wtp):
    curve = Settings(wtp).curve
    assert wtp in curve
    assert curve[0] == 0
    assert curve == sorted(set(curve))
    assert 20 <= len(curve) <= 43
    assert curve[-1] >= 2 * wtp
    # A position of the slider keeps its range.
    moved = Settings.of(Settings(wtp).to_dict()).changed({"wtp": curve[3]})
    assert moved.curve == curve


# ---- who gets in


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:8123"]
)
def test_other_hosts_are_refused(client, host):
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert client.get("/", headers={"host": f"localhost:{PORT}"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "", "/wrong/", f"/{TOKEN}x/", "/static/page.js", "/é/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_the_token_nobody_gets_in(space, path, method):
    outside = TestClient(application(space, TOKEN, PORT), base_url=ORIGIN)
    answer = outside.request(method, path)
    assert answer.status_code == 403
    assert TOKEN not in answer.text


def test_other_pages_cannot_send(client):
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{PORT + 1}"):
        assert client.post("/example", headers={"origin": origin}).status_code == 403
    assert client.post("/example", headers={"origin": ORIGIN}).status_code == 200


def test_two_servers_do_not_see_each_other(space, client):
    other = Workspace()
    try:
        stranger = TestClient(application(other, "other", PORT), base_url=f"{ORIGIN}/other")
        _, path = uploaded(client)
        assert stranger.get(f"{path}/").status_code == 404
        assert stranger.get(f"{path}/data").status_code == 404
        theirs = TestClient(application(other, "other", PORT), base_url=f"{ORIGIN}/{TOKEN}")
        assert theirs.get("/").status_code == 403
        assert client.get(f"{path}/").status_code == 200
    finally:
        other.close()


def test_files_of_the_folder_cannot_be_had_but_the_downloads(client):
    _, path = uploaded(client)
    for name in ("settings.json", "parameters", "..%2Fsettings.json", "%2Fetc%2Fpasswd"):
        assert client.get(f"{path}/files/{name}").status_code == 404
    for name in ("page.html", "..%2F_app.py"):
        assert client.get(f"/static/{name}").status_code == 404


def test_headers_allow_nothing_from_elsewhere(client):
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    for page in STATIC.iterdir():  # nothing to fetch from anywhere
        for address in re.findall(r"https?://[^\s\"'`]+", page.read_text()):
            assert address == "http://www.w3.org/2000/svg"


# ---- limits


def test_uploads_above_the_limit_are_refused_before_they_are_read(client):
    headers = {"content-length": str(_limits.MOST_BYTES + 1)}
    assert client.post("/analyses", headers=headers, content=b"").status_code == 413
    chunks = client.post("/analyses", content=iter([b"x"]))  # without a length
    assert chunks.status_code == 411


def test_too_many_cells_are_refused():
    with pytest.raises(nq.InputError, match="cells"):
        _limits.check_table("parameters", b"a" + b"," * (_limits.MOST_CELLS + 1))
    with pytest.raises(nq.InputError, match="200,001 columns"):
        voi.read_csv(("costs.csv", b"," * 200_000), "costs")


def bomb(tmp_path, parts):
    path = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, size in parts:
            with archive.open(name, "w", force_zip64=True) as file:
                for _ in range(size // 1_000_000):
                    file.write(b" " * 1_000_000)
    return path


def test_archives_that_unpack_to_much_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(_limits, "MOST_UNPACKED", 20_000_000)
    path = bomb(tmp_path, [("xl/worksheets/sheet1.xml", 21_000_000)])
    assert path.stat().st_size < 50_000
    with pytest.raises(nq.InputError, match="unpacks to 21 MB"):
        _limits.check_table("workbook", path.read_bytes())
    many = bomb(tmp_path, [(f"{i}", 0) for i in range(2_001)])
    with pytest.raises(nq.InputError, match="2,001 files"):
        _limits.check_table("workbook", many.read_bytes())


def test_a_workbook_with_a_cell_far_away_is_refused(client):
    import openpyxl

    book = openpyxl.Workbook()
    book.active["XFD1048576"] = 1
    file = io.BytesIO()
    book.save(file)
    page, _ = uploaded(client, {"workbook": ("far.xlsx", file.getvalue())})
    assert "17,179,869,184 cells" in page.text


def test_entities_that_multiply_are_refused(client):
    file = io.BytesIO(workbook(tables()))
    laughs = "".join(
        f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "ha" * 50}">' for i in range(10)
    )
    out = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            text = old.read(name)
            if name.endswith("sheet1.xml"):
                text = (
                    f"<?xml version='1.0'?><!DOCTYPE w [{laughs}]><worksheet xmlns='http://schemas."
                    "openxmlformats.org/spreadsheetml/2006/main'><sheetData><row><c t='str'>"
                    "<v>&l9;</v></c></row></sheetData></worksheet>"
                ).encode()
            new.writestr(name, text)
    _, path = uploaded(client, {"workbook": ("laughs.xlsx", out.getvalue())})
    settled(client, path)
    assert "cannot be used" in client.get(f"{path}/").text


def test_only_so_many_analyses(client, space, monkeypatch):
    monkeypatch.setattr("nestquad.voi.serve._workspace.MOST_ANALYSES", 1)
    assert MOST_ANALYSES > 10
    _, path = uploaded(client)
    answer = client.post("/analyses", files=files(), data={"wtp": "1"})
    assert answer.status_code == 422
    assert "remove some" in answer.text
    client.post(f"{path}/remove")
    uploaded(client)


# ---- processes and folders


def test_folder_is_private_and_goes_with_the_server(client, space):
    _, path = uploaded(client)
    work = space.get(path.split("/")[-1])
    for folder in (space.folder, work.folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    client.post(f"{path}/remove")
    assert not work.folder.exists()
    assert client.get(f"{path}/").status_code == 404
    space.close()
    assert not space.folder.exists()


def sleep(report):
    report(1, 3, "asleep")
    time.sleep(3600)


def allocate(report):
    np.ones((1 << 46,))


def fail(report):
    raise ZeroDivisionError("by zero")


def ended(job):
    """Whether a process is gone, or a corpse."""
    try:
        state = Path(f"/proc/{job.pid}/stat").read_text().split()[2]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def test_jobs_report_and_end():
    job = Job("Sleeping", sleep)
    while job.running and not job.message:
        time.sleep(0.02)
    assert (job.done, job.total, job.message) == (1, 3, "asleep")
    job.cancel()  # not after an hour
    assert not job.running
    assert "Cancelled" in job.error
    assert ended(job)


def test_a_job_that_dies_is_not_waited_for():
    job = Job("Sleeping", sleep)
    os.kill(job.pid, signal.SIGKILL)
    job.wait(30)
    assert "ended from outside" in job.error
    for function, words in ((allocate, "memory"), (fail, "ZeroDivisionError: by zero")):
        job = Job("Failing", function)
        job.wait(30)
        assert words in job.error


def test_a_cancelled_analysis_continues_where_it_was(client, space):
    frames = tables(4_000)
    _, path = uploaded(client, files(frames))
    answers = space.get(path.split("/")[-1]).folder / "answers.jsonl"
    client.get(f"{path}/state")
    while client.get(f"{path}/state").json()["job"] is not None and not (
        answers.exists() and answers.read_text().count("\n") > 1
    ):
        time.sleep(0.01)
    client.post(f"{path}/cancel")
    state = settled(client, path)
    assert state["error"] is None or "Cancelled" in state["error"]
    kept = answers.read_text()
    client.post(f"{path}/settings", json={})
    got = computed(client, path)
    assert answers.read_text().startswith(kept.rpartition("\n")[0])
    outputs = voi.Outputs(frames["costs"], frames["effects"], 10_000)
    exact = voi.evppi(outputs, frames["parameters"]).evppi.tolist()
    at = got["seen"]["now"]["grid"].index(10_000)
    assert [one["value"][at] for one in got["results"]["sets"]] == pytest.approx(exact, rel=1e-9)


def test_a_cancelled_analysis_has_files(client):
    frames = tables(300)
    _, path = uploaded(client, files(frames))
    client.get(f"{path}/state")
    client.post(f"{path}/cancel")
    assert list(settled(client, path)["files"])[:2] == ["report.html", "report.docx"]
    content = client.get(f"{path}/files/tables.xlsx").content
    outputs = voi.Outputs(frames["costs"], frames["effects"], 10_000)
    exact = voi.evppi(outputs, frames["parameters"]).evppi.sort_values(ascending=False)
    sheet = pd.read_excel(io.BytesIO(content), sheet_name="singles", engine="calamine")
    shown = sheet["EVPPI per person"]
    np.testing.assert_allclose(shown, exact, rtol=1e-9)


def test_sheets_are_chosen_on_the_page(client):
    frames = tables(300)
    buffer = io.BytesIO()
    with pd.ExcelWriter(buffer) as writer:
        for kind, frame in frames.items():
            frame.to_excel(writer, sheet_name=kind, index=False)
        (frames["costs"] + 50.0).to_excel(writer, sheet_name="newer costs", index=False)
    answer, path = uploaded(client, {"workbook": ("model.xlsx", buffer.getvalue())})
    assert "<option>newer costs</option>" in answer.text
    client.post(f"{path}/settings", json={"sheets": ["parameters", "newer costs", "effects"]})
    settled(client, path)
    means = computed(client, path)["seen"]["tables"]["costs"]["ranges"]
    np.testing.assert_allclose(np.array(means)[:, 1], frames["costs"].mean() + 50.0)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_address_and_leaves_nothing(tmp_path, end):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "nestquad", "voi", "serve", "--no-open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as server:
        try:
            address = re.search(r"http://127\.0\.0\.1:(\d+)/(\S{20,})/", server.stdout.readline())
            port, token = int(address[1]), address[2]
            assert len(list(tmp_path.glob("nestquad-voi-*"))) == 1
            # Loopback alone, and the token in no command line.
            listening = Path("/proc/net/tcp").read_text() if sys.platform == "linux" else ""
            assert f"00000000:{port:04X}" not in listening
            if sys.platform == "linux":
                assert token not in Path(f"/proc/{server.pid}/cmdline").read_text()
            with socket.create_connection(("127.0.0.1", port)) as request:
                request.sendall(
                    f"GET /{token}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
                )
                assert request.recv(100).startswith(b"HTTP/1.1 200")
        finally:
            os.killpg(server.pid, end)  # as a terminal does it
            said = server.communicate(timeout=20)[1]
    assert said == ""
    assert not list(tmp_path.glob("nestquad-voi-*"))


def test_a_port_in_use_is_refused_with_words():
    from nestquad.cli import main

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["voi", "serve", "--no-open", "--port", str(taken.getsockname()[1])]) == 2


def test_a_group_called_as_a_parameter_is_refused_at_once(client):
    _, path = uploaded(client)
    settled(client, path)
    answer = client.post(f"{path}/settings", json={"groups": {"b": ["a", "c"]}})
    assert answer.status_code == 422
    assert "the name of a parameter" in answer.json()["error"]
    assert client.get(f"{path}/state").json()["settings"]["groups"] == {}


def test_a_group_of_another_tab_is_kept(client):
    _, path = uploaded(client)
    settled(client, path)
    for groups in ({"one": ["a", "b"]}, {"two": ["b", "c"]}):  # each tab sends what it adds
        assert client.post(f"{path}/settings", json={"groups": groups}).status_code == 200
    both = {"one": ["a", "b"], "two": ["b", "c"]}
    assert client.get(f"{path}/state").json()["settings"]["groups"] == both
    again = client.post(f"{path}/settings", json={"groups": {"two": ["a", "c"]}})
    assert again.status_code == 422
    assert "a second group 'two'" in again.json()["error"]
    left = client.post(f"{path}/settings", json={"groups": {"one": None}}).json()
    assert left["settings"]["groups"] == {"two": ["b", "c"]}


def with_sheet(text):
    """A workbook whose first sheet is this XML."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(workbook(tables(20)))) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, text if name.endswith("sheet1.xml") else old.read(name))
    return out.getvalue()


@pytest.mark.parametrize(
    "rows",
    [
        "<row>" + "<c><v>1</v></c>" * 101 + "</row>",  # cells without a place
        "<row/>" * 101,
        '<row r="2000000000"><c><v>1</v></c></row>',
        "<row r = '100'><c/></row><row><c/></row>",
        '<x:row><x:c r="&#67;&#88;1"/></x:row>',  # CX1
    ],
)
def test_cells_of_a_sheet_are_counted_as_readers_do(rows, monkeypatch, tmp_path):
    monkeypatch.setattr(_limits, "MOST_CELLS", 100)
    text = f'<worksheet xmlns:x="y"><sheetData>{rows}</sheetData></worksheet>'
    path = tmp_path / "far.xlsx"
    path.write_bytes(with_sheet(text))
    with pytest.raises(nq.InputError, match="at most 100 cells"):  # from Python and the page
        voi.preview(("far.xlsx", path.read_bytes()))
    assert main(["voi", "--workbook", str(path), "--wtp", "1"]) == 2  # from the command line


def damaged(data, name, at=30):
    """An archive with wrong bytes in one of its parts."""
    start = data.index(name.encode()) + len(name) + at
    return data[:start] + b"\xff" * 20 + data[start + 20 :]


@pytest.mark.parametrize("kind", ["ZIP_DEFLATED", "ZIP_BZIP2", "ZIP_LZMA"])
@pytest.mark.parametrize("part", ["settings.json", "parameters"])
def test_damaged_analyses_are_refused_and_leave_nothing(client, space, kind, part):
    parts = {k: text for k, (_, text) in files().items()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", getattr(zipfile, kind)) as archive:
        for name, text in {"settings.json": '{"wtp": 1, "title": "Saved"}', **parts}.items():
            archive.writestr(name, text)
    sent = {"saved": ("s.zip", damaged(out.getvalue(), part, 0))}
    answer = client.post("/analyses", files=sent)
    assert answer.status_code == 422
    assert "cannot be unpacked" in answer.text
    assert list(space.folder.iterdir()) == []


def test_settings_of_a_saved_analysis_are_small(client):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("settings.json", " " * 2_000_000 + '{"wtp": 1}')
    answer = client.post("/analyses", files={"saved": ("s.zip", out.getvalue())})
    assert answer.status_code == 422
    assert "settings of 2 MB" in answer.text


def test_a_damaged_workbook_is_refused_in_words(capsys, tmp_path):
    path = tmp_path / "m.xlsx"
    path.write_bytes(damaged(workbook(tables()), "xl/worksheets/sheet1.xml"))
    assert main(["voi", "--workbook", str(path), "--wtp", "1"]) == 2
    assert "cannot be unpacked" in capsys.readouterr().err


# ---- scenarios and subgroups


def test_scenarios_and_subgroups_of_the_page(client):
    frames = tables()
    _, path = uploaded(client)
    computed(client, path)
    dearer = frames["costs"].assign(new=frames["costs"].new + 1_000)
    sent = files({"costs": dearer, "effects": frames["effects"]})
    for kind, name in (("scenario", "dear drug"), ("subgroup", "severe")):
        given = {"kind": kind, "name": name, "share": "0.4"}
        answer = client.post(f"{path}/parts", files=sent, data=given)
        assert answer.status_code == 200, answer.text
    assert settled(client, path)["error"] is None
    results, grid = data(client, path)["results"], data(client, path)["seen"]["now"]["grid"]
    k = grid.index(10_000.0)
    both = {
        "base case": voi.Outputs(frames["costs"], frames["effects"], 10_000),
        "dear drug": voi.Outputs(dearer, frames["effects"], 10_000),
    }
    exact = voi.scenarios(both, {"base case": 0.6, "dear drug": 0.4}).iloc[0]
    assert results["scenarios"][0]["value"][k] == pytest.approx(exact.resolving)
    rows = {(row["pars"], row["decision"]): row for row in results["subgroups"]}
    severe = rows["everything", "severe"]
    assert severe["value"][k] == pytest.approx(voi.evpi(both["dear drug"]).evpi[0])
    again = client.post(f"{path}/parts", files=sent, data={**given, "share": "1.5"})
    assert again.status_code == 422
    short = files({"costs": dearer.iloc[1:], "effects": frames["effects"].iloc[1:]})
    client.post(f"{path}/parts", files=short, data={**given, "name": "other"})
    told = settled(client, path)
    assert "The last subgroup was not added" in told["error"]
    assert [part["name"] for part in told["settings"]["parts"]] == ["dear drug", "severe"]
    saved = client.get(f"{path}/files/analysis.nestquad.zip").content
    reopened = client.post("/analyses", files={"saved": ("a.zip", saved)})
    restored = str(reopened.url).removeprefix(f"{ORIGIN}/{TOKEN}").rstrip("/")
    assert settled(client, restored)["error"] is None
    assert data(client, restored)["results"]["scenarios"] == results["scenarios"]
    code = told["settings"]["parts"][0]["code"]
    client.post(f"{path}/settings", json={"remove_part": code})
    assert len(settled(client, path)["settings"]["parts"]) == 1
