"""The examples of CONTRIBUTING.md are complete: put into the package as printed, they pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import doc_pages as pages
import pytest

PAGE = pages.ROOT / "CONTRIBUTING.md"
BLOCKS = pages.blocks(PAGE, "python")
NEW_FILE = re.compile(r"# ((?:src|tests)/\S+\.py)$")
ADDITION = re.compile(r"# in (src/\S+\.py)$")


def first_line(block):
    return block.text.splitlines()[0]


NEW = {m[1]: b.text for b in BLOCKS if (m := NEW_FILE.match(first_line(b)))}
ADDED = [(m[1], b.text) for b in BLOCKS if (m := ADDITION.match(first_line(b)))]


def test_every_block_says_where_it_goes():
    assert len(NEW) + len(ADDED) == len(BLOCKS) >= 10
    for name in NEW:
        assert not (pages.ROOT / name).exists(), f"{name} is taken: use another example"
    for name, _ in ADDED:
        assert (pages.ROOT / name).is_file()


@pytest.mark.parametrize("section", ["Adding a kernel", "Adding a law", "Adding a method"])
def test_section_names_three_files(section):
    text = re.split(r"^## ", pages.read(PAGE), flags=re.M)
    (own,) = [part for part in text if part.startswith(section)]
    listed = re.findall(r"^\d\. `([^`]+)`", own, re.M)
    assert len(listed) == 3
    shown = {m[1] for b in BLOCKS for m in [re.match(r"# (?:in )?(\S+\.py)$", first_line(b))] if m}
    assert set(listed) <= shown


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
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed
    assert int(passed[1]) >= 30
