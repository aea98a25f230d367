"""A report as HTML page, Word document, Excel workbook and figures."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from nestquad._files import new_file
from nestquad.errors import MissingExtraError, optional_module
from nestquad.pages import bullets, footer, grid, paragraphs, picture, write_page
from nestquad.voi.report._analysis import Analysis
from nestquad.voi.report._content import (
    TITLE,
    Answer,
    Block,
    Bullets,
    Content,
    Drawing,
    Heading,
    PageEnd,
    Table,
    Text,
    words,
)
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
    path
        The file to write. Its folder has to exist.
    analysis
        What `analyze` returned.
    title
        The heading.
    currency, effect
        Signs or words for money and effects.
    author
        Name of the author, for the page and the Word document.
    command
        The command that made the results, to be shown.

    Returns
    -------
    Path
        The file written. Without matplotlib it has no figures, and says so. The workbook and the
        Word document are inside it as downloads, where their packages are installed.
    """
    heading = title or TITLE
    content = Content(analysis, currency, effect, heading)
    blocks = list(content.blocks())
    by = [paragraphs([author])] if author else []
    sections = [f"<h1>{escape(heading)}</h1>", *map(_html, blocks[:1]), *by]
    sections += [*map(_html, blocks[1:]), _downloads(content, blocks, author), footer(command)]
    return write_page(path, heading, sections)


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{escape(text)}</h2>"
        case Answer(text):
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


def _downloads(content: Content, blocks: Sequence[Block], author: str) -> str:
    """Links to the files that are inside the page; those that cannot be made are left out."""
    made: list[str] = []
    for name, kind, write in (
        ("tables.xlsx", "spreadsheetml.sheet", partial(_workbook, content)),
        ("submission.docx", "wordprocessingml.document", partial(_document, content.title, author)),
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
    optional_module("openpyxl", "Writing a workbook", "voi")
    about = next(block for block in reversed(blocks) if isinstance(block, Table))
    sheets = {"about": pandas().DataFrame(about.rows, columns=[content.first_line, ""])}
    buffer = io.BytesIO()
    with pandas().ExcelWriter(buffer, engine="openpyxl") as writer:
        for name, table in {**sheets, **content.data.tables}.items():
            heads = {**words()["heads"], **({"n": "Draws"} if name == "convergence" else {})}
            shown = table.rename(columns=heads)
            shown.to_excel(writer, sheet_name=name, index=False, freeze_panes=(1, 0))
            sheet = writer.sheets[name]
            for cell in (one for row in sheet for one in row):
                if cell.data_type == "f":  # a name such as =A1 is a name
                    cell.data_type = "s"
            for j, column in enumerate(table.columns):
                form = _number_format(str(column), table[column])
                for cell in sheet[sheet.cell(1, j + 1).column_letter][1:]:
                    cell.number_format = form
                longest = max([len(str(shown.columns[j])), *(len(_text(x)) for x in table[column])])
                width = min(longest, _WIDEST) + 2
                sheet.column_dimensions[sheet.cell(1, j + 1).column_letter].width = width
    return buffer.getvalue()


# Characters of the widest column; longer texts go on beyond it.
_WIDEST = 60


def _text(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _number_format(name: str, column: Any) -> str:
    """Excel’s format of a column: shares in per cent, money without pence, small numbers whole."""
    if column.dtype.kind not in "fiu":
        return "General"
    if "/" in name or name in ("probability", "relative"):
        return "0.0%"
    largest = float(column.abs().max())
    return "#,##0" if largest >= 100 or column.dtype.kind in "iu" else "0.0000"


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

    Parameters are those of `write_voi_report`. Needs the extra ``word``.
    """
    blocks = list(Content(analysis, currency, effect, title or TITLE).blocks())
    new_file(path).write_bytes(_document(title or TITLE, author, blocks))
    return Path(path)


def _document(heading: str, author: str, blocks: Sequence[Block]) -> bytes:
    docx = optional_module("docx", "A Word document", "word")
    optional_module("docx.enum.text", "A Word document", "word")
    document = docx.Document()
    page, cm = document.sections[0], docx.shared.Cm
    page.page_width, page.page_height = cm(21.0), cm(29.7)
    page.left_margin = page.right_margin = cm(2.5)
    document.core_properties.title, document.core_properties.author = heading, author
    document.add_heading(heading, 0)
    if author:
        document.add_paragraph(author, "Subtitle")
    foot = page.footer.paragraphs[0]
    foot.alignment = docx.enum.text.WD_ALIGN_PARAGRAPH.CENTER
    _add_field(foot, "PAGE", "1")
    counts = {"Table": 0, "Figure": 0}
    for block in blocks:
        match block:
            case Heading(text) | Answer(text):
                document.add_heading(text, 1)
            case Text(text):
                document.add_paragraph(text)
            case Bullets(items, numbered):
                for one in items:
                    document.add_paragraph(one, "List Number" if numbered else "List Bullet")
            case Table(head, rows, caption):
                if caption:
                    said = _add_caption(document, "Table", caption, counts)
                    said.paragraph_format.keep_with_next = True
                _add_table(document, head, rows)
            case Drawing(_, _, caption):
                try:
                    drawn = document.add_picture(io.BytesIO(block.png), width=cm(14.2))
                except MissingExtraError as error:
                    document.add_paragraph(f"A figure is left out. {error}")
                    continue
                drawn._inline.docPr.set("descr", caption)  # for readers who do not see it
                document.paragraphs[-1].paragraph_format.keep_with_next = True
                _add_caption(document, "Figure", caption, counts)
            case PageEnd():
                document.add_page_break()
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def _add_caption(document: Any, word: str, text: str, counts: dict[str, int]) -> Any:
    """A caption with a number that Word keeps in order, for its list of tables or figures."""
    counts[word] += 1
    said = document.add_paragraph(f"{word} ", "Caption")
    _add_field(said, f"SEQ {word} \\* ARABIC", str(counts[word]))
    said.add_run(f". {text}")
    return said


def _add_field(paragraph: Any, code: str, shown: str) -> None:
    """A field of Word: its code, and the text that it shows until it is updated."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    field = OxmlElement("w:fldSimple")
    field.set(qn("w:instr"), code)
    run, text = OxmlElement("w:r"), OxmlElement("w:t")
    text.text = shown
    run.append(text)
    field.append(run)
    paragraph._p.append(field)


def _add_table(document: Any, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table whose head is repeated on every page, and whose rows are not cut by its end."""
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    named = ["" if name == "words" else name for name in head]
    lines = [named, *rows] if any(named) else rows
    right = [j > 0 and name not in ("flags", "words") for j, name in enumerate(head)]
    shown = document.add_table(0, len(head), "Light List Accent 1")
    for line in lines:
        row = shown.add_row()
        row._tr.get_or_add_trPr().append(OxmlElement("w:cantSplit"))
        for cell, text, to_the_right in zip(row.cells, line, right, strict=True):
            cell.text = text
            if to_the_right:
                cell.paragraphs[0].alignment = WD_ALIGN_PARAGRAPH.RIGHT
    if any(named):
        shown.rows[0]._tr.trPr.append(OxmlElement("w:tblHeader"))
    else:  # the style would paint the first row as a head
        shown._tbl.tblPr.find(qn("w:tblLook")).set(qn("w:firstRow"), "0")


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
