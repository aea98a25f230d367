"""Word documents from blocks, and Excel workbooks from data frames."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nestquad.errors import MissingExtraError, optional_module
from nestquad.pages._blocks import Block, Bullets, Drawing, Heading, Headline, PageEnd, Table, Text
from nestquad.pages._html import last_digit


def document(heading: str, author: str, blocks: Sequence[Block]) -> bytes:
    """A document of blocks; needs the extra ``word``."""
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
            case Heading(text) | Headline(text):
                document.add_heading(text, 1)
            case Text(text):
                document.add_paragraph(text)
            case Bullets(items, numbered):
                for item in items:
                    document.add_paragraph(item, "List Number" if numbered else "List Bullet")
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
    from docx.shared import Pt

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
    else:  # the style would paint the first row as a head; older readers know the sum of flags
        look = shown._tbl.tblPr.find(qn("w:tblLook"))
        look.set(qn("w:firstRow"), "0")
        look.set(qn("w:val"), "0480")
    # Widths by the longest word, which is not broken, and by the text up to a quarter of a line of
    # 90 characters; the padding of a cell is 4 characters wide.
    longest = [max(map(len, column)) for column in zip(*lines, strict=True)]
    words = [
        max(len(word) for text in column for word in text.split() or [""])
        for column in zip(*lines, strict=True)
    ]
    weights = [4 + max(word, min(text, 22)) for word, text in zip(words, longest, strict=True)]
    whole = document.sections[0]
    width = whole.page_width - whole.left_margin - whole.right_margin
    shown.autofit, shown.style.font.size = False, Pt(9)
    for column, weight in zip(shown.columns, weights, strict=True):
        column.width = width * weight // sum(weights)
        for cell in column.cells:  # readers follow one of the two
            cell.width = column.width


if TYPE_CHECKING:
    import pandas as pd


def workbook(sheets: Mapping[str, pd.DataFrame], heads: Mapping[str, str]) -> bytes:
    """A workbook with a sheet for each table; `heads` are the words for names of columns."""
    pandas = optional_module("pandas", "Writing a workbook", "voi")
    optional_module("openpyxl", "Writing a workbook", "voi")
    buffer = io.BytesIO()
    with pandas.ExcelWriter(buffer, engine="openpyxl") as writer:
        for name, table in sheets.items():
            shown = table.rename(columns=dict(heads))
            shown.to_excel(writer, sheet_name=name, index=False, freeze_panes=(1, 0))
            sheet = writer.sheets[name]
            for cell in (entry for row in sheet for entry in row):
                if cell.data_type == "f":  # a name such as =A1 is a name
                    cell.data_type = "s"
            for j, column in enumerate(table.columns):
                forms = _number_formats(str(column), table)
                letter = sheet.cell(1, j + 1).column_letter
                for cell, form in zip(sheet[letter][1:], forms, strict=True):
                    cell.number_format = form
                longest = max([len(str(shown.columns[j])), *(len(_text(x)) for x in table[column])])
                sheet.column_dimensions[letter].width = (
                    min(longest, 60) + 2
                )  # longer texts go on beyond it
    return buffer.getvalue()


def _text(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _number_formats(name: str, table: pd.DataFrame) -> list[str]:
    """Excel’s formats of a column: shares in per cent, values with the digits of their interval."""
    column = table[name]
    whole, share = column.dtype.kind in "iu", "/" in name or name in ("probability", "relative")
    if column.dtype.kind not in "fiu" or whole or share:
        form = "#,##0" if whole else "0.0%" if share else "General"
        return [form] * len(table)
    kind = next((kind for kind in ("population", "enbs") if name.startswith(kind)), "")
    ends = [f"{kind}_{end}".strip("_") for end in ("lower", "upper")]
    is_known = {*ends} <= {*table} and name not in ("wtp", "cost", "effect", "years", "share")
    if not is_known or name == "population_effects":
        is_whole = float(column.abs().max()) >= 100 or bool((column.dropna() % 1 == 0).all())
        return ["#,##0" if is_whole else "0.0000"] * len(table)
    halves = (table[ends[1]] - table[ends[0]]) / 2
    digits = [-last_digit(half) if half > 0 else 0 for half in halves]
    return ["#,##0" + "." * (d > 0) + "0" * min(d, 10) for d in digits]
