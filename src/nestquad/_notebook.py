"""Tables of problems and results: in notebooks, for ``_repr_html_``, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

# Notebooks align to the right by default, and have a dark mode: no color is ours.
_LEFT = "text-align:left;vertical-align:top"


def pairs(title: str, rows: Mapping[str, str]) -> str:
    """A table of names and values; empty values are left out."""
    body = "".join(
        f"<tr><th style='{_LEFT}'>{escape(name)}</th><td style='{_LEFT}'>{escape(text)}</td></tr>"
        for name, text in rows.items()
        if text
    )
    return _table(title, f"<tbody>{body}</tbody>")


def grid(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head: words in the first column, numbers in the others."""
    top = "".join(f"<th style='{_align(i)}'>{escape(name)}</th>" for i, name in enumerate(head))
    lines = (
        "".join(f"<td style='{_align(i)}'>{escape(cell)}</td>" for i, cell in enumerate(row))
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return _table(title, f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>")


def text_rows(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: words in the first column, numbers in the others."""
    first, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    return ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], widths)]) for row in cells]


def _table(title: str, content: str) -> str:
    caption = f"<caption style='text-align:left;font-weight:bold'>{escape(title)}</caption>"
    return f"<table class='nestquad'>{caption}{content}</table>"


def _align(column: int) -> str:
    return "text-align:right" if column else "text-align:left"
