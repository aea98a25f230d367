"""Cells of text files and workbooks."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad.errors import InputError, optional_module
from nestquad.voi.table._layout import Region, column_letter, find_table
from nestquad.voi.table._limits import MOST_COLUMNS, check_cells, check_table
from nestquad.voi.table._numbers import is_quantity, pandas

if TYPE_CHECKING:
    import pandas as pd

# First lines of a text, which have its header, and lines of titles among them.
_FIRST, _TITLES = 60, 20
_SEPARATOR_LINE = re.compile(r"[\"']?sep=(.)[\"']?", re.IGNORECASE)


def is_workbook(name: str, data: bytes) -> bool:
    """Whether a file is a workbook, by its first bytes or its name."""
    return data[:2] == b"PK" or name.lower().endswith((".xlsx", ".xlsm", ".xls"))


def read_text(name: str, data: bytes, kind: str = "") -> Region:
    """Table of a text file of any separator, encoding and decimal mark."""
    check_table(name, data)
    lines = [line.strip(" \n") for line in io.StringIO(_decoded(name, data), newline=None)]
    separator = _separator(lines[:_FIRST])
    for k, line in enumerate(lines[:_FIRST]):
        lines[k] = "" if _SEPARATOR_LINE.fullmatch(line.rstrip(separator)) else line
    reader = csv.reader(
        (f"{line}\n" for line in lines), delimiter=separator, skipinitialspace=True, strict=True
    )
    rows, ends = [], []
    try:
        for row in reader:
            rows.append([cell.strip() or None for cell in row])
            ends.append(reader.line_num)
    except csv.Error as error:
        given = f"line {reader.line_num:,}, which has no clear cells ({error})"
        advice = "Is there a quotation mark without another one?"
        raise InputError(name, given, "a .csv file", advice) from None
    widths = np.array([len(row) for row in rows], dtype=np.intp)
    width = int(widths.max(initial=0))
    if width > MOST_COLUMNS:
        raise InputError(name, f"{width:,} columns", f"at most {MOST_COLUMNS:,} columns")
    check_cells(name, width * len(rows))
    if not any(map(any, rows)):
        raise InputError(name, "no rows", "a header line and one line for each draw")
    # Between commas numbers have points, unless some are in quotes; elsewhere the cells tell, and
    # of costs, which may be 12.485 for 12485.
    is_clear = separator == "," and kind != "costs"
    quoted = (x for row in rows for x in row if is_clear and x and "," in x)
    decimal = "." if is_clear and not any(map(is_quantity, quoted)) else ""
    rows = [row + [None] * (width - len(row)) for row in rows]
    cells = pandas().DataFrame(rows, dtype=object)
    return find_table(cells, np.array(ends), widths, decimal, name)


def _decoded(name: str, data: bytes) -> str:
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # spreadsheets: “Unicode text”
        return data.decode("utf-16", errors="replace")
    if b"\0" in data[:65536]:
        raise InputError(name, "a file that is not text", "a .csv file or an .xlsx workbook")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _separator(lines: Sequence[str]) -> str:
    """Separator of most lines, which one of the first lines with words has as often."""
    stated = [match[1] for line in lines if (match := _SEPARATOR_LINE.fullmatch(line))]
    rows = [line for line in lines if line and not _SEPARATOR_LINE.fullmatch(line)]
    wordy = [row for row in rows if re.search(r"[^\W\d_eE]", row)][:_TITLES]
    for mark in (*stated, "\t", ";", ","):
        counts = [row.count(mark) for row in rows]
        usual = max(set(counts), key=counts.count, default=0)
        if usual and any(row.count(mark) >= max(usual - 1, 1) for row in wordy or rows):
            return mark
    return " " if sum(" " in row for row in rows) > len(rows) / 2 else ","


def read_sheets(file: str, data: bytes, chosen: Sequence[str] = ()) -> dict[str, Region]:
    """Table of every sheet of a workbook that is visible, or chosen."""
    calamine = optional_module("python_calamine", "Reading a workbook", "voi")
    hides = check_table(f"workbook ({file})", data)
    as_written: dict[str, Any] = {"header": None, "keep_default_na": False, "na_values": [""]}
    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        sheets = pandas().read_excel(
            io.BytesIO(data), sheet_name=None, engine="calamine", **as_written
        )
    except MemoryError:
        raise
    except Exception as error:  # calamine has no common base class of errors
        given = f"a file that cannot be read as a workbook ({error})"
        advice = "Older .xls files: save as .xlsx."
        raise InputError(file, given, "an .xlsx workbook", advice) from None
    visible = calamine.SheetVisibleEnum.Visible
    hidden = {s.name for s in book.sheets_metadata if s.visible != visible and sheets[s.name].size}
    used = [sheet for sheet in sheets if sheet in chosen or sheet not in hidden] or list(sheets)
    regions = {sheet: _on_sheet(data, sheet, sheets[sheet], hides) for sheet in used}
    if left := [sheet for sheet in sheets if sheet not in used]:
        largest = max(regions, key=lambda sheet: regions[sheet].frame.size)
        note = f"hidden sheet {', '.join(map(repr, left))} not used"
        regions[largest] = replace(regions[largest], notes=(note, *regions[largest].notes))
    return regions


def _on_sheet(data: bytes, sheet: str, cells: pd.DataFrame, hides: bool) -> Region:
    """Largest table of a sheet with a header; where cells are empty, with errors and formulas."""
    if cells.empty:
        return Region(cells, np.arange(0))
    region = find_table(cells, np.arange(len(cells)) + 1)
    is_full = region.frame.size and not region.frame.isna().any(axis=None)
    if is_full and not hides:
        return region
    openpyxl = optional_module("openpyxl", "Reading a workbook", "voi")
    written = openpyxl.load_workbook(io.BytesIO(data))[sheet]
    if not is_full:
        values = openpyxl.load_workbook(io.BytesIO(data), data_only=True)[sheet]
        values, formulas = (pandas().DataFrame(x.values, dtype=object) for x in (values, written))
        formulas = formulas.map(lambda cell: cell if str(cell)[:1] == "=" else None)
        cells = values.where(values.notna(), formulas)
        region = find_table(cells, np.arange(len(cells)) + 1)
    frame, notes = region.frame, [*region.notes]
    is_empty = frame.isna().all().to_numpy() & bool(len(frame))
    notes += [f"the column {name!r} is empty and left out" for name in frame.columns[is_empty]]
    columns = [d for d in written.column_dimensions.values() if d.hidden]
    folded = {column_letter(j - 1) for d in columns for j in range(d.min, d.max + 1)}
    names = tuple(name for name, letter in region.letters.items() if letter in folded)
    n = sum(bool(written.row_dimensions[int(line)].hidden) for line in region.lines)
    notes += [f"{n:,} hidden row{'s' * (n > 1)} read, as filters hide draws"] if n else []
    return replace(region, frame=frame.loc[:, ~is_empty], notes=tuple(notes), hidden=names)
