"""The examples of the how-to pages are complete: put into the package as printed, they pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import doc_pages as pages
import pytest

HOW_TO = sorted((pages.ROOT / "docs" / "how-to").glob("*.md"))
BLOCKS = [block for page in HOW_TO for block in pages.blocks(page, "python")]
NEW_FILE = re.compile(r"# ((?:src|tests)/\S+\.py)$")
ADDITION = re.compile(r"# in (src/\S+\.py)$")


def first_line(block):
    return block.text.splitlines()[0]


NEW = {m[1]: b.text for b in BLOCKS if (m := NEW_FILE.match(first_line(b)))}
ADDED = [(m[1], b.text) for b in BLOCKS if (m := ADDITION.match(first_line(b)))]


def test_every_block_says_where_it_goes():
    assert len(NEW) + len(ADDED) == len(BLOCKS) >= 9
    for name in NEW:
        assert not (pages.ROOT / name).exists(), f"{name} is taken: use another example"
    for name, _ in ADDED:
        assert (pages.ROOT / name).is_file()


@pytest.mark.parametrize("thing", ["kernel", "law", "method"])
def test_page_names_three_files(thing):
    page = pages.ROOT / "docs" / "how-to" / f"add-a-{thing}.md"
    listed = re.findall(r"^\d\. `([^`]+)`", pages.read(page), re.M)
    assert len(listed) == 3
    assert set(listed) <= {*NEW, *(name for name, _ in ADDED)}


def test_examples_pass_their_own_tests(tmp_path):
    package = Path("src") / "nestquad"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(pages.ROOT / package, tmp_path / package, ignore=ignore)
    for name, text in NEW.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, text in ADDED:
        with open(tmp_path / name, "a", encoding="utf-8") as file:
            file.write(f"\n{text}")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --doctest-modules\nfilterwarnings = error\n", encoding="utf-8"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *NEW],
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed
    assert int(passed[1]) >= 30
