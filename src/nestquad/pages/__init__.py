"""Self-contained HTML pages, Word documents and workbooks, and the report of an estimate."""

from nestquad.pages._amounts import money, percent, span
from nestquad.pages._blocks import (
    Answer,
    Block,
    Bullets,
    Drawing,
    Heading,
    PageEnd,
    Table,
    Text,
    html,
)
from nestquad.pages._excel import workbook
from nestquad.pages._html import (
    bullets,
    figure,
    footer,
    grid,
    paragraphs,
    picture,
    table,
    versions,
    write_page,
)
from nestquad.pages._report import write_report
from nestquad.pages._word import document

__all__ = [
    "Answer",
    "Block",
    "Bullets",
    "Drawing",
    "Heading",
    "PageEnd",
    "Table",
    "Text",
    "bullets",
    "document",
    "figure",
    "footer",
    "grid",
    "html",
    "money",
    "paragraphs",
    "percent",
    "picture",
    "span",
    "table",
    "versions",
    "workbook",
    "write_page",
    "write_report",
]
