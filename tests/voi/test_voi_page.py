"""The page in a real browser: Chromium, driven by Playwright; skipped where there is none."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from nestquad import voi

pytest.importorskip("starlette")
pytest.importorskip("multipart")
playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: see CONTRIBUTING.md")
MINUTE = 60_000
REDRAW = """async (i) => {
  const slider = document.getElementById("wtp");
  slider.value = i; slider.dispatchEvent(new Event("input"));
  await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
}"""


def tables(rows=500):
    rng = np.random.default_rng(4)
    names = ["p <b>old</b>", "p_new", "c"]
    p = pd.DataFrame(rng.uniform([0.3, 0.2, 0], [0.5, 0.7, 2_000], (rows, 3)), columns=names)
    costs = pd.DataFrame({"old": 100 + 0 * p.c, "new": 500 + p.c})
    effects = pd.DataFrame({"old": p.iloc[:, 0], "new": p.p_new})
    return {"parameters": p, "costs": costs, "effects": effects}


@pytest.fixture(scope="module")
def address():
    command = [sys.executable, "-m", "nestquad", "voi", "serve", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield re.search(r"http\S+", server.stdout.readline())[0]
        server.send_signal(signal.SIGTERM)
        server.wait(20)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        # As root, and in containers, Chromium has no sandbox of its own.
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
        chromium = driver.chromium.launch(**options)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, address):
    """A page that must log no error and ask nobody else for anything."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, said = context.new_page(), []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
    origin = address.rsplit("/", 2)[0]
    page.on(
        "request",
        lambda sent: None if sent.url.startswith((origin, "data:")) else said.append(sent.url),
    )
    page.set_default_timeout(MINUTE)
    page.goto(address)
    yield page
    context.close()
    # Settings that are refused are told in the page; the browser logs their status as well.
    assert [line for line in said if "422 (Unprocessable" not in line] == []


def upload(page, folder, frames=None, **texts):
    for kind, frame in (tables() if frames is None else frames).items():
        path = folder / f"{kind}.csv"
        path.write_text(texts.get(kind) or frame.to_csv(index=False))
        page.set_input_files(f"input[name={kind}]", path)
    page.fill("input[name=wtp]", "10000")
    assert page.locator("button[type=submit]").count() == 1
    page.click("button[type=submit]")


def idle(page):
    page.wait_for_selector("#job", state="hidden")


def card(page, heading):
    return page.locator(f"#cards .card:has-text('{heading}') b").inner_text()


def test_upload_slider_group_study_report_and_downloads(page, tmp_path):
    frames = tables()
    upload(page, tmp_path, frames)
    page.wait_for_selector("#rank rect")
    # EVPI in the card is that of the tables, at every position.
    for i, k in ((20, 10_000), (26, 13_000), (4, 2_000)):
        page.evaluate(REDRAW, i)
        exact = voi.evpi((frames["costs"], frames["effects"], k)).evpi[0]
        shown = float(card(page, "EVPI per person").lstrip("£").replace(",", ""))
        assert shown == pytest.approx(exact, rel=0.05, abs=1e-9)  # digits that it supports
        assert f"£{k:,} per QALY" in page.inner_text("#at")
    page.evaluate(REDRAW, 20)

    # A name with markup is text, in the chart and in the chips.
    assert page.locator("#rank text", has_text="p <b>old</b>").count() == 1
    for name in ("p <b>old</b>", "p_new"):
        page.click(f"[data-chips=group] button:text-is('{name}')")
    page.fill("#label", "Response")
    page.click("#add")
    page.wait_for_selector("#rank text:text-is('Response')")

    page.fill("[data-set=per_year]", "1000")
    page.fill("[data-set=horizon]", "10")
    page.click("[data-chips=study] button:text-is('p_new')")
    page.fill("[data-study=sizes]", "20 100 500")
    page.fill("[data-study=fixed_cost]", "100000")
    page.fill("[data-study=duration]", "1")
    page.click("#value")
    page.wait_for_selector(".one-study")
    assert "in each arm" in page.inner_text(".one-study .said")
    rows = page.locator(".one-study tr").all_inner_texts()
    assert [row.split()[0] for row in rows[1:]] == ["20", "100", "500"]
    assert "EVPI for the population" in page.inner_text("#cards")

    idle(page)
    page.click("#show-report")
    report = page.frame_locator("#report")
    report.locator("h2").first.wait_for()
    assert "EVPI" in report.locator("body").inner_text()
    for name, start in (
        ("report.html", b"<!DOCTYPE html>"),
        ("tables.xlsx", b"PK"),
        ("figures.zip", b"PK"),
        ("analysis.nestquad.zip", b"PK"),
    ):
        with page.expect_download() as waiting:
            page.click(f"[data-file='{name}']")
        stem, suffix = name.split(".", 1)
        at = "-10000" if name != "analysis.nestquad.zip" else ""
        assert waiting.value.suggested_filename == f"{stem}{at}.{suffix}"
        waiting.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert "settings.json" in zipfile.ZipFile(tmp_path / "analysis.nestquad.zip").namelist()

    # No part is wider than the page, on a desk and on a phone.
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    # A saved analysis is back with its group and study.
    with page.expect_navigation():  # the script that sends the file has to be there
        page.click(".brand")
    page.set_input_files("input[name=saved]", tmp_path / "analysis.nestquad.zip")
    page.wait_for_selector(".one-study")
    page.wait_for_selector("#rank text:text-is('Response')")
    rows = page.locator(".one-study tr").all_inner_texts()
    assert [row.split()[0] for row in rows[1:]] == ["20", "100", "500"]


def test_a_bad_cell_is_named_and_corrected(page, tmp_path):
    page.evaluate("document.querySelector('form').dataset.most = 1000")
    upload(page, tmp_path)
    page.wait_for_selector("#large")
    page.goto(page.url)
    frames = tables()
    bad = frames["costs"].astype(object)
    bad.iloc[11, 1] = "#REF!"
    upload(page, tmp_path, costs=bad.to_csv(index=False))
    page.wait_for_selector("[role=alert]:has-text('#REF!')")
    assert "row 12" in page.inner_text("section[role=alert]")
    assert page.locator("tr.bad").text_content().startswith("new")
    upload(page, tmp_path)
    page.wait_for_selector("#cards .card")
    assert page.locator("section[role=alert]").count() == 0


def test_options_are_matched_by_clicking(page, tmp_path):
    frames = tables()
    frames["effects"].columns = ["standard", "drug"]
    upload(page, tmp_path, frames)
    page.select_option("[data-match] >> nth=0", "drug")
    page.select_option("[data-match] >> nth=1", "standard")
    page.click("#matched")
    page.wait_for_selector("#options td")
    rows = page.locator("#options tr").all_inner_texts()
    assert f"{frames['effects'].drug.mean():.3g}" in rows[1]
    assert page.locator("section[role=alert]").count() == 0
    # A position of the slider, and a value beyond its range.
    for value, shown, most in (("12500", "£12,500", "£20,000"), ("30000", "£30,000", "£60,000")):
        page.fill("#exact", value)
        page.press("#exact", "Enter")
        page.wait_for_selector(f"#at:has-text('{shown}')")
        assert page.inner_text("#most") == most


def in_view(page, selector):
    return page.evaluate(
        """(s) => { const box = document.querySelector(s).getBoundingClientRect();
        return box.height > 0 && box.top >= 0 && box.bottom <= innerHeight; }""",
        selector,
    )


def cancel(page):
    """Cancel the computation; False if it ended first, as fast machines and answers kept may."""
    try:
        page.click("#cancel", timeout=5_000)
    except playwright.TimeoutError:
        return False
    return True


def test_nothing_is_shown_at_a_willingness_to_pay_it_was_not_computed_for(page, tmp_path):
    upload(page, tmp_path, tables(6_000))
    page.wait_for_selector("#rank rect")
    idle(page)
    page.fill("#exact", "90000")
    page.press("#exact", "Enter")
    page.wait_for_selector("#at:has-text('£90,000')")
    if not cancel(page):
        pytest.skip("computed before it could be canceled")
    page.wait_for_selector("#stopped:has-text('Not computed')")
    assert "is not computed" in page.inner_text("#rank")
    assert "Most worth knowing" not in page.inner_text("#cards")
    assert page.locator("#report").is_hidden()
    with page.expect_download() as kept:  # a file computes the rest
        page.click("#files button:text-is('Excel tables')")
    tables_at = pd.read_excel(kept.value.path(), sheet_name="evpi", engine="calamine")
    assert tables_at["Willingness to pay"].tolist() == [90_000]
    page.click("#compute")
    page.wait_for_selector("#rank rect")
    assert page.locator("#stopped").is_hidden()


def test_an_error_stands_beside_what_was_clicked(page, tmp_path):
    upload(page, tmp_path)
    page.wait_for_selector("#cards .card")
    page.fill("#exact", "20.000")
    page.press("#exact", "Enter")
    page.wait_for_selector(".slider #error:has-text('Did you mean 20000?')")
    assert in_view(page, "#error")
    page.fill("[data-set=per_year]", "1000")
    page.click("#value")
    page.wait_for_selector("#study #error")
    assert in_view(page, "#error")
    assert in_view(page, "#value")


def test_two_tabs_at_once_do_not_disturb_each_other(page, tmp_path):
    other = page.context.new_page()
    other.set_default_timeout(MINUTE)
    other.goto(page.url)
    doubled = tables()
    doubled["costs"] *= 2
    doubled["effects"] *= 2
    upload(page, tmp_path)
    upload(other, tmp_path, doubled)
    for one in (page, other):
        one.wait_for_selector("#rank rect")
    single = voi.evpi((tables()["costs"], tables()["effects"], 10_000)).evpi[0]
    for one, factor in ((page, 1), (other, 2)):
        shown = float(card(one, "EVPI per person").lstrip("£").replace(",", ""))
        assert shown == pytest.approx(factor * single, rel=0.05)


def test_an_analysis_removed_in_another_tab_is_told(page, tmp_path):
    upload(page, tmp_path)
    page.wait_for_selector("#cards .card")
    cancel(page)
    page.wait_for_selector("#job", state="hidden")
    other = page.context.new_page()
    other.set_default_timeout(MINUTE)
    other.goto(page.url)
    other.wait_for_selector("#cards .card")
    page.click("[data-send=remove]")
    page.wait_for_selector("text=What is it worth to know more?")
    other.click("#count")
    other.wait_for_selector("#error:has-text('removed')")


def test_a_killed_computation_is_told_and_can_be_repeated(page, tmp_path):
    upload(page, tmp_path, tables(20_000))
    try:
        page.wait_for_selector("#job:has-text('Computing')", timeout=20_000)
    except playwright.TimeoutError:
        pytest.skip("computed before it could be seen")
    # From the page, at once; then from outside, as a machine without memory does it.
    if not cancel(page):
        pytest.skip("computed before it could be canceled")
    # The computation may end between the click and its arrival.
    page.wait_for_selector("#error:has-text('Cancelled'), #rank rect")
    if page.locator("#error").is_hidden():
        pytest.skip("computed before the cancellation arrived")
    page.fill("[data-set=per_year]", "10")
    page.fill("[data-set=horizon]", "1")
    page.click("#count")
    page.wait_for_selector("#job:has-text('Computing')")
    state = page.evaluate("fetch('state').then((answer) => answer.json())")
    os.kill(state["job"]["pid"], signal.SIGKILL)
    page.wait_for_selector("#error:has-text('ended from outside')")
    page.click("#count")
    page.wait_for_selector("#rank rect")
    assert page.locator("#error").is_hidden()
