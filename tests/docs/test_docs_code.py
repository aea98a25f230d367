"""Code in the documents runs as printed, page by page, and prints what it says it prints."""

from __future__ import annotations

import doctest
from pathlib import Path

import doc_pages as pages
import pytest

import nestquad as nq

# Examples of the how-to pages are files of the project; test_docs_how_to.py puts them there.
WITH_CODE = [
    page
    for page in pages.PAGES
    if page.parent.name != "how-to" and pages.blocks(page, "python", "pycon")
]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(page: Path, namespace: dict[str, object]) -> None:
    """Run all blocks of a page in one namespace: what is defined above may be used below."""
    for block in pages.blocks(page, "python", "pycon"):
        if block.language == "python":
            # Leading line breaks make tracebacks point to the line of the page.
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(page), "exec"), namespace)
        else:
            test = doctest.DocTestParser().get_doctest(
                block.text, namespace, page.name, str(page), block.line
            )
            test.globs = namespace  # a copy by default, and the next block needs what this makes
            report: list[str] = []
            doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
            assert not report, "".join(report)


@pytest.mark.parametrize("page", WITH_CODE, ids=pages.label)
def test_code_runs_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what a page writes goes where nobody looks
    run_page(page, {"__name__": "__page__"})


def test_readme_example_prints_the_estimate(capsys):
    readme = pages.ROOT / "README.md"
    (example,) = pages.blocks(readme, "python")
    exec(compile(example.text, str(readme), "exec"), namespace := {"__name__": "__page__"})
    problem = namespace["problem"]
    assert isinstance(problem, nq.NestedExpectation)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{problem.name}: ")
    assert "(95 %)" in printed
    assert "converged" in printed


def test_readme_example_has_twelve_lines():
    (example,) = pages.blocks(pages.ROOT / "README.md", "python")
    assert len(example.text.splitlines()) == 12


def test_a_wrong_output_would_be_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```pycon\n>>> 1 + 1\n3\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="Expected"):
        run_page(page, {})


def test_a_block_that_raises_would_be_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\ny = x / 0\n```\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        run_page(page, {})
