"""Blocks of a report: headings, texts, tables and figures, for pages and documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, TypeAlias

from nestquad.errors import MissingExtraError
from nestquad.pages._html import bullets, grid, paragraphs, picture
from nestquad.plots import new_axes, to_png, to_svg


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Headline:
    """The headline."""

    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]
    numbered: bool = False


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True)
class Drawing:
    """A figure: `name` is that of its file, `draw` takes the axes."""

    name: str
    draw: Callable[[Any], Any]
    caption: str
    height: float = 3.5

    @cached_property
    def png(self) -> bytes:
        """Drawn once, for every file that shows it."""
        return to_png(self._figure)

    @cached_property
    def svg(self) -> bytes:
        return to_svg(self._figure)

    @cached_property
    def _figure(self) -> Any:
        figure, (ax,) = new_axes(5.6, self.height)
        self.draw(ax)
        return figure


@dataclass(frozen=True)
class PageEnd:
    pass


Block: TypeAlias = Heading | Headline | Text | Bullets | Table | Drawing | PageEnd


def html(block: Block) -> str:
    """A block as part of a page."""
    match block:
        case Heading(text):
            return f"<h2>{escape(text)}</h2>"
        case Headline(text):
            return f'<p class="answer">{escape(text)}</p>'
        case Text(text):
            return paragraphs([text])
        case Bullets(items, numbered):
            return bullets(items, "ol" if numbered else "ul")
        case Table(head, rows, caption):
            return grid(head, rows, caption)
        case Drawing(name, _, caption):
            try:
                return picture(block.png, caption, svg=block.svg, name=name)
            except MissingExtraError as error:
                return paragraphs([f"A figure is left out. {error}"])
        case PageEnd():
            return '<div class="page-end"></div>'
