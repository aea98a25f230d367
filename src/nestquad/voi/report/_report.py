"""A report as HTML page, Word document, Excel workbook and figures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path

from nestquad._files import new_file
from nestquad.errors import MissingExtraError
from nestquad.pages import (
    Block,
    Drawing,
    Table,
    document,
    footer,
    html,
    paragraphs,
    workbook,
    write_page,
)
from nestquad.voi.report._analysis import Analysis
from nestquad.voi.report._content import TITLE, Content, words
from nestquad.voi.table import pandas


def write_voi_report(
    path: str | Path,
    analysis: Analysis,
    *,
    title: str | None = None,
    currency: str = "£",
    effect: str = "QALYs",
    author: str = "",
    command: str | None = None,
) -> Path:
    """Write an analysis as one self-contained HTML page.

    Parameters
    ----------
    path, analysis
        The file to write, in a folder that exists, and the table of `analyze`.
    title, author, command
        Heading, name of the author, and the command that made the results, to be shown.
    currency, effect
        Signs or words for money and effects.

    Returns
    -------
    Path
        File. Without matplotlib it has no figures, and says so. The workbook and the Word document
        are inside it as downloads, where their packages are installed.
    """
    heading = title or TITLE
    content = Content(analysis, currency, effect, heading)
    blocks = list(content.blocks())
    by = [paragraphs([author])] if author else []
    sections = [f"<h1>{escape(heading)}</h1>", *map(html, blocks[:1]), *by]
    sections += [*map(html, blocks[1:]), _downloads(content, blocks, author), footer(command)]
    return write_page(path, heading, sections)


def _downloads(content: Content, blocks: Sequence[Block], author: str) -> str:
    """Links to the files that are inside the page; files that cannot be made are left out."""
    made: list[str] = []
    for name, kind, write in (
        ("tables.xlsx", "spreadsheetml.sheet", partial(_workbook, content)),
        ("submission.docx", "wordprocessingml.document", partial(document, content.title, author)),
    ):
        try:
            data = base64.b64encode(write(blocks)).decode("ascii")
        except MissingExtraError:
            continue
        address = f"data:application/vnd.openxmlformats-officedocument.{kind};base64,{data}"
        made.append(f'<a download="{name}" href="{address}">{name}</a>')
    if not made:
        return ""
    return (
        f'<p class="downloads">Downloads: {", ".join(made)}; figures as SVG and PNG below each.</p>'
    )


def write_voi_workbook(
    path: str | Path, analysis: Analysis, *, currency: str = "£", effect: str = "QALYs"
) -> Path:
    """Write every table of an analysis as a sheet of an Excel workbook, with words as headers."""
    content = Content(analysis, currency, effect)
    new_file(path).write_bytes(_workbook(content, list(content.blocks())))
    return Path(path)


def _workbook(content: Content, blocks: Sequence[Block]) -> bytes:
    about = next(block for block in reversed(blocks) if isinstance(block, Table))
    sheets = {"about": pandas().DataFrame(about.rows, columns=[content.first_line, ""])}
    tables = dict(content.data.tables)
    tables["convergence"] = tables["convergence"].rename(columns={"n": "Draws"})
    return workbook({**sheets, **tables}, words()["heads"])


def write_voi_document(
    path: str | Path,
    analysis: Analysis,
    *,
    title: str | None = None,
    currency: str = "£",
    effect: str = "QALYs",
    author: str = "",
) -> Path:
    """Write the report as a Word document, with tables and figures that can be edited and moved.

    Parameters as in `write_voi_report`. Needs the extra ``word``.
    """
    blocks = list(Content(analysis, currency, effect, title or TITLE).blocks())
    new_file(path).write_bytes(document(title or TITLE, author, blocks))
    return Path(path)


def save_voi_figures(folder: str | Path, analysis: Analysis) -> list[Path]:
    """Save every figure of the report as SVG and PNG; returns the files."""
    folder, content = Path(folder), Content(analysis)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for block in content.blocks():
        if isinstance(block, Drawing):
            for suffix, data in (("svg", block.svg), ("png", block.png)):
                written.append(folder / f"{block.name}.{suffix}")
                written[-1].write_bytes(data)
    return written
