"""Limits of tables and workbooks, checked before a parser sees a file."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import BinaryIO

from nestquad.errors import InputError

# 100,000 draws of 100 parameters: 10 million cells, 180 MB of text with all digits of a float.
MOST_CELLS = 20_000_000
MOST_BYTES = 200_000_000
# Sheets are XML of at most some 50 bytes a cell.
MOST_UNPACKED = 1_000_000_000
# A workbook has about ten parts, and one for each sheet, chart and drawing.
_MOST_PARTS = 2_000
_CHUNK = 1 << 20
_SEPARATORS = b",;\t \n"
_CELL = re.compile(rb"""\br=["']([A-Z]{1,3})([0-9]{1,7})["']""")
_ADVICE = "100,000 draws are plenty: keep the first rows of each table."


def is_zip(file: BinaryIO) -> bool:
    """Whether a file is a zip archive, as .xlsx files are."""
    start = file.read(2)
    file.seek(0)
    return start == b"PK"


def check_table(name: str, path: Path) -> None:
    """Refuse a table or a workbook with more cells than anybody needs, without parsing it."""
    counts = dict.fromkeys(_SEPARATORS, 0)
    with open(path, "rb") as file:
        if is_zip(file):
            _check_workbook(name, path)
            return
        while chunk := file.read(_CHUNK):
            for one in counts:
                counts[one] += chunk.count(one)
    _check_cells(name, max(counts.values()) + counts[b"\n"[0]])


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


def _check_workbook(name: str, path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(name, archive)
            for part in archive.namelist():
                if part.startswith("xl/worksheets/") and part.endswith(".xml"):
                    _check_cells(name, _sheet_cells(archive, part))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise InputError(
            name,
            f"a file that cannot be unpacked ({error})",
            "a .csv file, or an .xlsx workbook with --workbook",
        ) from None


def _sheet_cells(archive: zipfile.ZipFile, part: str) -> int:
    """Cells of the rectangle that holds all cells of a sheet, which is what readers allocate."""
    rows = columns = 0
    tail = b""
    with archive.open(part) as sheet:
        while chunk := sheet.read(_CHUNK):
            text = tail + chunk
            for letters, digits in _CELL.findall(text):
                rows, columns = max(rows, int(digits)), max(columns, _column(letters))
            tail = text[-24:]  # longer than any reference
    return rows * columns


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number


def _check_cells(name: str, cells: int) -> None:
    if cells > MOST_CELLS:
        raise InputError(name, f"{cells:,} cells", f"at most {MOST_CELLS:,} cells", _ADVICE)
