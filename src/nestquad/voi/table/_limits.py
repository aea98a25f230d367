"""Limits of tables and workbooks, checked before a parser sees a file."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO
from xml.parsers import expat

from nestquad.errors import InputError

# 100,000 draws of 100 parameters: 10 million cells, 180 MB of text with all digits of a float.
MOST_CELLS = 20_000_000
MOST_BYTES = 200_000_000
# Sheets are XML of at most some 50 bytes a cell.
MOST_UNPACKED = 1_000_000_000
# A workbook has about ten parts, and one for each sheet, chart and drawing.
_MOST_PARTS = 2_000
_CHUNK = 1 << 20
_SEPARATORS = (b",", b";", b"\t", b" ")
_REFERENCE = re.compile(r"([A-Z]{1,3})([0-9]{1,7})")
_ADVICE = "100,000 draws are plenty: keep the first rows of each table."


def check_size(name: str, size: int) -> None:
    """Refuse a file, or a part of an archive, with more bytes than any table needs."""
    if size > MOST_BYTES:
        found, most = (f"{x / 1e6:,.0f} MB" for x in (size, MOST_BYTES))
        raise InputError(name, found, f"at most {most}", _ADVICE)


def check_table(name: str, data: bytes) -> None:
    """Refuse a table or a workbook with more cells than anybody needs, without parsing it."""
    check_size(name, len(data))
    if data[:2] == b"PK":
        _check_workbook(name, data)
    else:
        _check_cells(name, max(map(data.count, _SEPARATORS)) + data.count(b"\n"))


@contextmanager
def unpacking(name: str, expected: str) -> Iterator[None]:
    """Say of an archive that is damaged that it is."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # zlib, bz2, lzma and expat have no error in common
        found = f"a file that cannot be unpacked ({type(error).__name__}: {error})"
        raise InputError(name, found, expected) from None


def check_archive(name: str, archive: zipfile.ZipFile) -> None:
    """Refuse an archive that unpacks to more than its limit.

    The sizes of its table of contents are binding: `zipfile` reads no further.
    """
    parts = archive.infolist()
    size = sum(part.file_size for part in parts)
    if len(parts) > _MOST_PARTS or size > MOST_UNPACKED:
        raise InputError(
            name,
            f"an archive of {len(parts):,} files that unpacks to {size / 1e6:,.0f} MB",
            f"at most {_MOST_PARTS:,} files and {MOST_UNPACKED / 1e6:,.0f} MB",
            _ADVICE,
        )


def _check_workbook(name: str, data: bytes) -> None:
    expected = "a .csv file or an .xlsx workbook"
    with unpacking(name, expected), zipfile.ZipFile(io.BytesIO(data)) as archive:
        check_archive(name, archive)
        rectangles = _Rectangles(name)
        for part in archive.namelist():
            if part.startswith("xl/worksheets/") and part.endswith(".xml"):
                with archive.open(part) as sheet:
                    rectangles.add(sheet)


class _Rectangles:
    """Counts the cells of the rectangles that hold all cells of a sheet, as readers allocate them.

    Rows and cells may say where they are, or follow one another.
    """

    def __init__(self, name: str) -> None:
        self.name, self.before = name, 0

    def add(self, sheet: IO[bytes]) -> None:
        """Count a sheet as it streams; too many cells are refused where they begin."""
        self.row = self.column = self.rows = self.columns = 0
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._element
        parser.StartDoctypeDeclHandler = self._doctype
        while chunk := sheet.read(_CHUNK):
            parser.Parse(chunk, False)
        parser.Parse(b"", True)
        self.before += self.rows * self.columns

    def _element(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2] if ":" in tag else tag
        if tag == "row":
            self.row, self.column = int(attributes.get("r", self.row + 1)), 0
        elif tag == "c":
            self.column += 1
            if found := _REFERENCE.fullmatch(attributes.get("r", "")):
                self.column, self.row = _column(found[1]), int(found[2])
        else:
            return
        if self.row <= self.rows and self.column <= self.columns:
            return
        self.rows, self.columns = max(self.rows, self.row), max(self.columns, self.column)
        _check_cells(self.name, self.before + self.rows * max(self.columns, 1))

    def _doctype(self, *_: object) -> None:
        raise InputError(self.name, "a document type inside a sheet", "a workbook as it was saved")


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - 64
    return number


def _check_cells(name: str, cells: int) -> None:
    if cells > MOST_CELLS:
        raise InputError(name, f"{cells:,} cells", f"at most {MOST_CELLS:,} cells", _ADVICE)
