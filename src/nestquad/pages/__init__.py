"""Self-contained HTML pages: their parts, and the report of an estimate or a comparison."""

from nestquad.pages._html import figure, footer, grid, paragraphs, picture, table, write_page
from nestquad.pages._report import write_report

__all__ = [
    "figure",
    "footer",
    "grid",
    "paragraphs",
    "picture",
    "table",
    "write_page",
    "write_report",
]
