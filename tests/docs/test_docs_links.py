"""Links between documents lead somewhere, headings included."""

from __future__ import annotations

import re
import tomllib
import unicodedata

import doc_pages as pages
import pytest

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.M)


def slug(heading: str) -> str:
    """What mkdocs makes of a heading."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading)
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def links(page):
    return [link for link in LINK.findall(pages.prose(page)) if "://" not in link]


ALL = [(page, link) for page in pages.PAGES for link in links(page)]


def test_there_are_links_to_test():
    assert len(ALL) >= 20


@pytest.mark.parametrize(
    ("page", "link"), ALL, ids=[f"{pages.label(page)} -> {link}" for page, link in ALL]
)
def test_link_resolves(page, link):
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if target.parent.name == "gallery" and not target.exists():
        target = target.with_suffix(".py")  # which becomes the page
    assert target.exists(), f"{pages.label(page)} links to {path}, which does not exist"
    assert target.is_relative_to(pages.ROOT)
    if anchor:
        headings = {slug(heading) for heading in HEADING.findall(pages.prose(target))}
        assert anchor in headings, f"{pages.label(target)} has no heading #{anchor}"


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.label)
def test_no_page_asks_for_something_from_elsewhere(page):
    # Reading the documents offline must lose nothing: no badges, fonts or scripts.
    assert not re.search(r"!\[[^\]]*\]\(https?://", pages.read(page))
    assert "<script" not in pages.read(page)


def test_pages_of_the_site_are_in_its_menu():
    menu = (pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    docs = pages.ROOT / "docs"
    for page in docs.rglob("*.md"):
        name = page.relative_to(docs).as_posix()
        assert f": {name}" in menu, f"{name} is not in the nav of mkdocs.yml"


def test_the_page_of_a_release_needs_no_files_beside_it():
    project = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    readme = pages.ROOT / "README.md"
    text = pages.read(readme)
    for change in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"][
        "substitutions"
    ]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert not [link for link in LINK.findall(text) if "://" not in link]
    for block in pages.blocks(readme, "python", "text", "console"):
        assert block.text in text


AUTHOR = r"[A-ZÄÖÜ][\w’'–-]+"
CITATION = re.compile(
    rf"({AUTHOR})(?:,? and others|(?:,? and |, ){AUTHOR})*(?: et al\.)?,? \(?((?:19|20)\d\d)\b"
)


def test_literature_that_the_code_cites_is_on_the_page_of_references():
    rows = pages.read(pages.ROOT / "docs" / "references.md").splitlines()
    for path in sorted((pages.ROOT / "src").rglob("*.py")):
        text = re.sub(r"\s*\n\s*(?:# )?", " ", pages.read(path))
        for author, year in CITATION.findall(text):
            listed = any(author in row and f"({year})" in row for row in rows)
            assert listed, f"{path.name} cites {author} ({year}), docs/references.md does not"
