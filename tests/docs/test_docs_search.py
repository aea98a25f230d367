"""Words that users of a field type find a page; llms.txt names what exists."""

from __future__ import annotations

import re

import doc_pages as pages
import pytest

import nestquad as nq

DOCS = pages.ROOT / "docs"
# A word, and pages of which at least one has to be found by it.
WORDS = {
    "greeks": ("glossary", "sensitivities"),
    "delta": ("glossary", "sensitivities"),
    "vega": ("glossary", "sensitivities"),
    "gradient": ("glossary", "sensitivities"),
    "SCR": ("glossary", "risk"),
    "Solvency": ("glossary", "risk"),
    "CVA": ("glossary", "risk"),
    "PFE": ("glossary", "risk"),
    "VaR": ("glossary", "risk"),
    "value at risk": ("glossary", "risk"),
    "expected shortfall": ("risk",),
    "assurance": ("glossary",),
    "probability of success": ("glossary",),
    "EVSI": ("glossary", "voi"),
    "EVPPI": ("voi",),
    "ENBS": ("glossary", "voi"),
    "information gain": ("design",),
    "EIG": ("glossary", "design"),
    "polars": ("arrays-and-tables",),
    "ArviZ": ("arrays-and-tables",),
    "JAX": ("arrays-and-tables",),
    "logging": ("arrays-and-tables",),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_field_finds_a_page(word):
    for name in WORDS[word]:
        text = pages.read(DOCS / f"{name}.md")
        assert re.search(rf"\b{re.escape(word)}\b", text, re.I), f"{name}.md does not say {word}"


@pytest.fixture(scope="module")
def summary():
    return (DOCS / "llms.txt").read_text(encoding="utf-8")


def test_pages_that_language_models_are_sent_to_exist(summary):
    linked = re.findall(r"\]\(([\w/-]+)\.html\)", summary)
    assert len(linked) > 10
    for name in linked:
        assert (DOCS / f"{name}.md").is_file(), name


def test_names_in_llms_txt_exist(summary):
    names = set(re.findall(r"\bnq\.(\w+)", summary))
    assert {"estimate", "NestedExpectation", "plan", "analyze"} <= names
    for name in names:
        assert hasattr(nq, name), name
    for package, name in re.findall(r"nestquad\.(risk|design|voi)\.(\w+)", summary):
        assert hasattr(getattr(nq, package), name)


def test_the_example_of_llms_txt_runs(summary, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", summary, re.S)
    exec(compile(code, "llms.txt", "exec"), {"__name__": "__page__"})
    assert "(" in capsys.readouterr().out
