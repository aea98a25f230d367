"""Prepare a release: `python packaging/release.py set 0.3.0`, `open 0.4.0`, `check`, `hash dist`.

``set`` writes the version into every file that states it and cuts the changelog: what stands under
"Unreleased" becomes the section of the version, with today's date. ``open`` begins the next one:
the package alone becomes 0.4.0.dev0, all other files still state the last release. ``check``
compares all of them and fails where they differ. ``hash`` prints the SHA-256 of the sdist, for the
conda recipe. docs/release.md has the whole procedure.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
_PACKAGE = "src/nestquad/__init__.py"
# Files that state the version, with a pattern whose only group is the version.
PLACES = {
    _PACKAGE: rf'^__version__ = "({_VERSION}(?:\.dev0)?)"$',
    "CITATION.cff": rf"^version: ({_VERSION})$",
    ".zenodo.json": rf'^  "version": "({_VERSION})",$',
    "packaging/conda/recipe.yaml": rf'^  version: "({_VERSION})"$',
}
_UNRELEASED = "## Unreleased"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    commands.add_parser("set", help="write a version and cut the changelog").add_argument("version")
    commands.add_parser("open", help="begin the next version").add_argument("version")
    commands.add_parser("check", help="compare all files that state the version")
    commands.add_parser("hash", help="SHA-256 of the sdist").add_argument("folder")
    args = parser.parse_args(arguments)
    if args.command == "hash":
        (sdist,) = Path(args.folder).glob("*.tar.gz")
        print(f"{hashlib.sha256(sdist.read_bytes()).hexdigest()}  {sdist.name}")
        return 0
    if args.command == "set":
        set_version(ROOT, args.version, datetime.date.today())
    if args.command == "open":
        open_version(ROOT, args.version)
    problems = differences(ROOT)
    for line in problems:
        print(line, file=sys.stderr)
    print(f"version {stated(ROOT)[_PACKAGE]}")
    return 1 if problems else 0


def stated(root: Path) -> dict[str, str]:
    """Version that each file states."""
    found = {}
    for place, pattern in PLACES.items():
        matches = re.findall(pattern, (root / place).read_text(encoding="utf-8"), re.M)
        if len(matches) != 1:
            raise SystemExit(f"{place} states the version {len(matches)} times, not once")
        found[place] = matches[0]
    return found


def differences(root: Path) -> list[str]:
    """Files that disagree about versions, dates or requirements, in sentences.

    All state the last release of the changelog; the package does, or is a later one in development.
    """
    versions = stated(root)
    own = versions.pop(_PACKAGE)
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    last, date = re.search(rf"^## ({_VERSION}) \((.*)\)$", changelog, re.M).groups()
    found = [f"{place} has {v}, the changelog {last}" for place, v in versions.items() if v != last]
    if own != last and not (own.endswith(".dev0") and _numbers(own) > _numbers(last)):
        found.append(f"the package has {own}, the changelog {last}")
    if f"\ndate-released: {date}\n" not in (root / "CITATION.cff").read_text(encoding="utf-8"):
        found.append(f"CITATION.cff has another date than {date} of the changelog")
    described = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = described["project"]
    recipe = (root / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
    needs = {
        "host": ["python ${{ python_min }}.*", "pip", *described["build-system"]["requires"]],
        "run": ["python>=${{ python_min }}", *project["dependencies"]],
    }
    for part, wanted in needs.items():
        listed = re.search(rf"^  {part}:\n((?:    - .*\n)+)", recipe, re.M).group(1)
        given = {line.removeprefix("    - ") for line in listed.splitlines()}
        wanted = {re.sub(r"(?<! )>=", " >=", requirement) for requirement in wanted}
        found += [f"the conda recipe lacks {one} in {part}" for one in wanted - given]
        found += [f"the conda recipe has {one} in {part}" for one in given - wanted]
    lowest = project["requires-python"].removeprefix(">=")
    variants = (root / "packaging/conda/variants.yaml").read_text(encoding="utf-8")
    if f'"{lowest}"' not in variants:
        found.append(f"the conda recipe is not built for Python {lowest}")
    json.loads((root / ".zenodo.json").read_text(encoding="utf-8"))
    return found


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def open_version(root: Path, version: str) -> None:
    """Begin the development of a version: the package alone states it."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise SystemExit(f"{version!r} is no version such as 0.3.0")
    _write(root, _PACKAGE, f"{version}.dev0")


def _write(root: Path, place: str, version: str) -> None:
    path = root / place
    text = path.read_text(encoding="utf-8")
    (match,) = re.finditer(PLACES[place], text, re.M)
    path.write_text(text[: match.start(1)] + version + text[match.end(1) :], encoding="utf-8")


def set_version(root: Path, version: str, date: datetime.date) -> None:
    """Write the version into all places, and cut the changelog."""
    if not re.fullmatch(_VERSION, version):
        raise SystemExit(f"{version!r} is no version such as 0.2.0 or 1.0.0rc1")
    for place in PLACES:
        _write(root, place, version)
    path = root / "CITATION.cff"
    text = re.sub(r"^date-released: .*\n", "", path.read_text(encoding="utf-8"), flags=re.M)
    dated = f"version: {version}\ndate-released: {date}\n"
    text = text.replace(f"version: {version}\n", dated)
    path.write_text(text, encoding="utf-8")
    path = root / "CHANGELOG.md"
    path.write_text(cut(path.read_text(encoding="utf-8"), version, date), encoding="utf-8")


def cut(changelog: str, version: str, date: datetime.date) -> str:
    """The changelog with an empty section "Unreleased" above that of the version.

    A first paragraph that begins with "To become" is a note to developers and is left out.
    """
    if changelog.count(f"{_UNRELEASED}\n") != 1:
        raise SystemExit(f"expected one heading {_UNRELEASED!r} in the changelog")
    if f"## {version} " in changelog:
        raise SystemExit(f"the changelog has a section {version} already")
    before, _, after = changelog.partition(f"{_UNRELEASED}\n")
    after = re.sub(r"\A\n*To become[^\n]*?\. ", "\n", after, count=1)
    if not after.split("\n## ")[0].strip():
        raise SystemExit("nothing stands under Unreleased: there is nothing to release")
    return f"{before}{_UNRELEASED}\n\n## {version} ({date})\n{after}"


if __name__ == "__main__":
    sys.exit(main())
