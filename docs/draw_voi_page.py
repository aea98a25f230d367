"""Draws the pictures of docs/voi-page.md: `python docs/draw_voi_page.py`, with Chromium."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

FIGURES = Path(__file__).parent / "figures"
DESK, PHONE = {"width": 1280, "height": 860}, {"width": 400, "height": 860}


def shot(page: Any, name: str, *parts: str) -> None:
    """Save the window, or from the top of the first part to the end of the last."""
    path = FIGURES / f"voi_page_{name}.png"
    if parts:
        boxes = [page.locator(part).bounding_box() for part in parts]
        start = page.evaluate("window.scrollY") - 12
        top, end = boxes[0]["y"] + start, boxes[-1]["y"] + boxes[-1]["height"] + start + 24
        width = page.viewport_size["width"]
        clip = {"x": 0, "y": top, "width": width, "height": end - top}
        page.screenshot(path=path, clip=clip, full_page=True)
    else:
        page.screenshot(path=path)
    print(f"wrote {path.name}")


def main() -> None:
    command = [sys.executable, "-m", "nestquad", "voi", "serve", "--no-open"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = re.search(r"http\S+", server.stdout.readline())[0]
    try:
        with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport=DESK)
            page.set_default_timeout(120_000)
            draw(page, address, Path(folder))
            browser.close()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def draw(page: Any, address: str, folder: Path) -> None:
    page.goto(address)
    shot(page, "start")

    page.click("[data-send=example]")
    page.wait_for_selector("#rank rect")
    page.wait_for_selector("#job", state="hidden")
    shot(page, "results")
    page.evaluate("window.scrollTo(0, 0)")
    page.evaluate("document.querySelector('.slider').style.position = 'static'")
    shot(page, "charts", ".charts figure:nth-child(2)", ".charts")

    for name in ("p_old", "p_new"):
        page.click(f"[data-chips=group] button:text-is('{name}')")
        page.click(f"[data-chips=study] button:text-is('{name}')")
    page.fill("#label", "Response")
    page.click("#add")
    page.wait_for_selector("#rank text:text-is('Response')")
    page.fill("[data-set=per_year]", "4000")
    page.fill("[data-set=horizon]", "8")
    page.fill("[data-study=sizes]", "25 50 100 200 400")
    page.fill("[data-study=fixed_cost]", "500000")
    page.fill("[data-study=cost_per_participant]", "4000")
    page.fill("[data-study=duration]", "2")
    page.click("#value")
    page.wait_for_selector(".one-study")
    page.wait_for_selector("#job", state="hidden")
    shot(page, "study", "#groups", "#study")
    page.click("#show-report")
    page.frame_locator("#report").locator("h2").first.wait_for()
    page.wait_for_timeout(500)
    shot(page, "report", "#reported")

    page.set_viewport_size(PHONE)
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_timeout(300)
    shot(page, "phone")
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    shot(page, "dark")
    page.emulate_media(color_scheme="light")

    page.set_viewport_size(DESK)
    page.evaluate("window.scrollTo(0, 0)")
    page.click("#picker summary")
    page.wait_for_timeout(300)
    shot(page, "columns", "#picker")

    page.set_viewport_size(DESK)
    page.goto(address)
    rows = ["1.5,0.2,0.1"] * 29
    texts = {
        "parameters": "\n".join(["a,b,c", *rows[:11], "1.5,#DIV/0!,0.1", *rows]),
        "costs": "\n".join(["old,new", *["100,200"] * 30, "100,n/a", *["100,200"] * 10]),
        "effects": "\n".join(["old,new", *["0.5,0.6"] * 41]),
    }
    for kind, text in texts.items():
        path = folder / f"{kind}.csv"
        path.write_text(text)
        page.set_input_files(f"input[name={kind}]", path)
    page.click("button[type=submit]")
    page.wait_for_selector("section[role=alert]")
    shot(page, "problem")


if __name__ == "__main__":
    main()
