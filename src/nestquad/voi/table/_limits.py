"""Limits of tables and workbooks, checked before a parser sees a file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO
from xml.parsers import expat

from nestquad.errors import InputError

# 100,000 draws of 100 parameters: 10 million cells, 180 MB of text with all digits of a float.
MOST_CELLS = 20_000_000
MOST_BYTES = 200_000_000
# Rows of a sheet of Excel.
MOST_COLUMNS = 16_384
# Sheets are XML of at most some 50 bytes a cell.
MOST_UNPACKED = 1_000_000_000
# A workbook has about ten parts, and one for each sheet, chart and drawing.
_MOST_PARTS = 2_000
_SEPARATORS = (b",", b";", b"\t", b" ")
# Columns of a regression: two gigabytes, of which a few copies are made.
MOST_NUMBERS = 250_000_000
# Fewest draws of a table; the largest number whose square and sums of squares are floats.
FEWEST_ROWS = 20
LARGEST = 1e100
# Bad cells of a column that are described.
MOST_PROBLEMS = 100
_ADVICE = "100,000 draws are plenty: keep the first rows of each table."


def check_size(name: str, size: int) -> None:
    """Refuse a file, or a part of an archive, with more bytes than any table needs."""
    if size > MOST_BYTES:
        given, most = (f"{x / 1e6:,.0f} MB" for x in (size, MOST_BYTES))
        raise InputError(name, given, f"at most {most}", _ADVICE)


def check_table(name: str, data: bytes) -> bool:
    """Refuse a table or a workbook with more cells than anybody needs, without parsing it.

    Returns whether a sheet has hidden columns or rows.
    """
    check_size(name, len(data))
    if data[:2] != b"PK":
        check_cells(name, max(map(data.count, _SEPARATORS)) + data.count(b"\n"))
        return False
    expected = "a .csv file or an .xlsx workbook"
    with unpacking(name, expected), zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_archive(name, archive)
        cells, hides = 0, False
        for part in archive.namelist():
            if part.startswith("xl/worksheets/") and part.endswith(".xml"):
                with archive.open(part) as sheet:
                    more, hidden = _cells_of(name, sheet, cells)
                    cells, hides = cells + more, hides or hidden
    return hides


@contextmanager
def unpacking(name: str, expected: str) -> Iterator[None]:
    """Say of an archive that is damaged that it is."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # zlib, bz2, lzma and expat have no error in common
        given = f"a file that cannot be unpacked ({type(error).__name__}: {error})"
        raise InputError(name, given, expected) from None


def check_archive(name: str, archive: zipfile.ZipFile) -> None:
    """Refuse an archive that unpacks to more than its limit, by its contents, which bind."""
    parts = archive.infolist()
    size = sum(part.file_size for part in parts)
    if len(parts) > _MOST_PARTS or size > MOST_UNPACKED:
        given = f"an archive of {len(parts):,} files that unpacks to {size / 1e6:,.0f} MB"
        expected = f"at most {_MOST_PARTS:,} files and {MOST_UNPACKED / 1e6:,.0f} MB"
        raise InputError(name, given, expected, _ADVICE)


def _cells_of(name: str, sheet: IO[bytes], before: int) -> tuple[int, bool]:
    """Cells of the rectangle that holds all cells of a sheet, and whether it hides any."""
    from openpyxl.utils.cell import coordinate_to_tuple

    rows = columns = row = column = 0
    hides = False

    def element(tag: str, attributes: dict[str, str]) -> None:
        nonlocal rows, columns, row, column, hides
        hides = hides or attributes.get("hidden") in ("1", "true")
        match tag.rpartition(":")[2]:
            case "row":
                row, column = int(attributes.get("r", row + 1)), 0
            case "c":
                place = attributes.get("r")
                row, column = coordinate_to_tuple(place) if place else (row, column + 1)
        if row > rows or column > columns:
            rows, columns = max(rows, row), max(columns, column)
            check_cells(name, before + rows * max(columns, 1))

    def doctype(*_: object) -> None:  # it can define entities that grow without end
        raise InputError(name, "a document type inside a sheet", "a workbook as it was saved")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = element, doctype
    parser.ParseFile(sheet)
    return rows * columns, hides


def check_cells(name: str, cells: int) -> None:
    """Refuse more cells than anybody needs."""
    if cells > MOST_CELLS:
        raise InputError(name, f"{cells:,} cells", f"at most {MOST_CELLS:,} cells", _ADVICE)
