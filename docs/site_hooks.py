"""What the site needs beyond Markdown: typeset formulas, and summaries of the API by page.

Formulas become MathML when the site is built, so that a reader's browser needs no script and no
network. A line ``<!-- summary -->`` in a page of the API becomes a table of all that the page
documents, and ``<!-- summary: other.md -->`` the table of another page.
"""

from __future__ import annotations

import html
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

import nestquad as nq

API = Path(__file__).parent / "api"
_SUMMARY = re.compile(r"^<!-- summary(?:: (\S+))? -->$", re.M)
_DOCUMENTED = re.compile(r"^::: (nestquad\.\S+)$", re.M)
_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.S
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the summaries of a page."""
    folder = Path(page.file.abs_src_path).parent if page.file.abs_src_path else API
    if folder != API:
        return markdown
    return _SUMMARY.sub(
        lambda m: summary((API / m[1]).read_text(encoding="utf-8") if m[1] else markdown), markdown
    )


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML."""
    return _FORMULA.sub(_mathml, content)


def summary(markdown: str) -> str:
    """A table of what a page documents, each with the first sentence of its docstring."""
    rows = [f"| [`{_shown(path)}`][{path}] | {_first(path)} |" for path in documented(markdown)]
    return "\n".join(["| | |", "| --- | --- |", *rows])


def documented(markdown: str) -> list[str]:
    """Paths of what a page documents."""
    return _DOCUMENTED.findall(markdown)


def _shown(path: str) -> str:
    """Where to import it from: ``nq.`` is nestquad itself, all else is named in full."""
    name = path.rpartition(".")[2]
    return f"nq.{name}" if name in nq.__all__ and _object(path) is getattr(nq, name) else path


def _object(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _first(path: str) -> str:
    text = inspect.getdoc(_object(path)) or ""
    paragraph = " ".join(text.split("\n\n")[0].split()).replace("``", "`")
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", paragraph).replace("|", "\\|")


def _mathml(match: re.Match[str]) -> str:
    tex = html.unescape(match["tex"])
    if match["tag"] == "span":
        return convert(tex)
    return f'<div class="formula">{convert(tex, display="block")}</div>'  # scrolls if it is wide
