"""Preparation of a release: versions, requirements and the changelog agree."""

from __future__ import annotations

import datetime
import importlib.util
import shutil
from pathlib import Path

import pytest

import nestquad as nq

ROOT = Path(__file__).resolve().parents[1]
DATE = datetime.date(2027, 1, 31)


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "packaging" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(release, tmp_path):
    """The files that state the version, in a folder of their own."""
    for name in (
        *release.PLACES,
        "CHANGELOG.md",
        "pyproject.toml",
        "packaging/conda/variants.yaml",
    ):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return tmp_path


def test_all_files_agree(release):
    assert release.stated(ROOT)["src/nestquad/__init__.py"] == nq.__version__
    assert release.differences(ROOT) == []


def test_a_development_version_is_later_than_the_last_release(release, copy):
    release.set_version(copy, "0.7.3", DATE)
    release.open_version(copy, "0.8.0")
    stated = release.stated(copy)
    assert stated.pop("src/nestquad/__init__.py") == "0.8.0.dev0"
    assert set(stated.values()) == {"0.7.3"}
    assert release.differences(copy) == []
    release.open_version(copy, "0.7.3")
    assert release.differences(copy) == ["the package has 0.7.3.dev0, the changelog 0.7.3"]


def test_a_version_is_written_everywhere(release, copy):
    before = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    before = before.replace("## Unreleased\n", "## Unreleased\n\n### Added\n\n* A thing.\n")
    (copy / "CHANGELOG.md").write_text(before, encoding="utf-8")
    release.set_version(copy, "0.7.3", DATE)
    assert set(release.stated(copy).values()) == {"0.7.3"}
    assert release.differences(copy) == []
    assert "version: 0.7.3\ndate-released: 2027-01-31\n" in (copy / "CITATION.cff").read_text(
        "utf-8"
    )
    after = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    head, _, section = after.partition("## 0.7.3 (2027-01-31)\n")
    assert head.endswith("## Unreleased\n\n")
    old = before.partition("## Unreleased\n")[2]
    assert section.endswith(old.partition("### Added")[2])
    with pytest.raises(SystemExit, match="nothing to release"):
        release.set_version(copy, "0.8.0", DATE)


def test_differences_are_named(release, copy):
    recipe = copy / "packaging/conda/recipe.yaml"
    recipe.write_text(recipe.read_text("utf-8").replace("- scipy >=1.13", "- scipy >=1.0"), "utf-8")
    (copy / "CITATION.cff").write_text("version: 9.9.9\n", "utf-8")
    found = " ".join(release.differences(copy))
    assert "CITATION.cff has 9.9.9" in found
    assert "CITATION.cff has another date" in found
    assert "lacks scipy >=1.13 in run" in found
    assert "has scipy >=1.0 in run" in found


@pytest.mark.parametrize("version", ["0.2", "v0.2.0", "0.2.0.dev1", ""])
def test_other_words_are_no_version(release, copy, version):
    with pytest.raises(SystemExit, match="no version"):
        release.set_version(copy, version, DATE)
