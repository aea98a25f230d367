"""The site: every public name is documented, formulas are typeset, nothing comes from elsewhere."""

from __future__ import annotations

import importlib
import re
import sys

import doc_pages as pages
import pytest

import nestquad as nq

pytest.importorskip("latex2mathml", reason="comes with the extra docs")
sys.path.insert(0, str(pages.ROOT / "docs"))
import site_hooks as hooks

API = sorted((pages.ROOT / "docs" / "api").glob("*.md"))
DOCUMENTED = [path for page in API for path in hooks.documented(pages.read(page))]
FORMULA = re.compile(r"\$\$\s*(.+?)\s*\$\$|\$([^$\n`]+)\$", re.S)


def test_every_public_name_is_documented_once():
    names = [path.rpartition(".")[2] for path in DOCUMENTED if path.startswith("nestquad.")]
    missing = set(nq.__all__) - set(names) - {"problems"}
    assert not missing
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


@pytest.mark.parametrize("path", DOCUMENTED)
def test_what_is_documented_exists_and_has_a_summary(path):
    module, _, name = path.rpartition(".")
    if module == "nestquad.botorch":
        pytest.importorskip("botorch")
    assert hasattr(importlib.import_module(module), name)
    assert len(hooks._first(path)) > 10


def test_pages_of_the_reference_stand_in_its_table_of_contents():
    index = pages.read(pages.ROOT / "docs" / "api" / "index.md")
    for page in API:
        assert page.name == "index.md" or f"<!-- summary: {page.name} -->" in index


def test_formulas_become_mathml():
    html = r'<p><span class="arithmatex">\(x &lt; y_1\)</span></p>'
    shown = hooks.on_page_content(html)
    assert "<math" in shown
    assert "<mo>&#x0003C;</mo>" in shown
    assert "arithmatex" not in shown


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.label)
def test_every_formula_can_be_typeset(page):
    for block, inline in FORMULA.findall(pages.prose(page)):
        shown = hooks.convert(block or inline)
        assert "\\" not in re.sub(r"<[^>]+>", "", shown), f"{block or inline} is not understood"
