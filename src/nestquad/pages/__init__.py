"""Self-contained HTML pages: their parts, and the report of an estimate or a comparison."""

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

__all__ = [
    "bullets",
    "figure",
    "footer",
    "grid",
    "paragraphs",
    "picture",
    "table",
    "versions",
    "write_page",
    "write_report",
]
