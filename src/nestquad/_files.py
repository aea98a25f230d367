"""Files of others: limits on what is read, paths that can be written, cells without formulas."""

from __future__ import annotations

import csv
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nestquad._checks import shown
from nestquad.errors import InputError

# Bytes of a table, in text or unpacked: 10⁷ rows of ten numbers, which is what fits into memory
# several times on a laptop.
MOST_BYTES = 2_000_000_000
# Factor by which an archive may grow when it is unpacked: tables of numbers reach 20.
MOST_GROWTH = 200
# Columns of a table; spreadsheets end at 16,384.
MOST_COLUMNS = 20_000


def text_rows(path: Path, argument: str) -> Iterator[list[str]]:
    """Rows of a CSV file, within the limits; errors name the file."""
    check_size(path, argument)
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            for number, row in enumerate(csv.reader(lines)):
                if len(row) > MOST_COLUMNS:
                    raise InputError(
                        argument,
                        f"{len(row)} columns in row {number} of {path.name!r}",
                        f"a table of at most {MOST_COLUMNS}",
                    )
                yield row
    except UnicodeDecodeError as error:
        raise InputError(
            argument,
            f"{path.name!r}, which is not UTF-8 text ({error.reason} at byte {error.start})",
            "a CSV file in UTF-8",
            "Save it as CSV UTF-8.",
        ) from error
    except csv.Error as error:
        raise InputError(argument, f"{path.name!r}, which is no CSV ({error})", "CSV") from error
    except OSError as error:
        given = f"{path.name!r}, which cannot be read ({error.strerror})"
        raise InputError(argument, given, "a file") from error


def check_size(path: Path, argument: str) -> None:
    """Refuse what is no file, or larger than any table that could be analysed here."""
    try:
        if not path.is_file():
            raise InputError(argument, f"{shown(str(path))}, which is not a file", "a file")
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        given = f"{shown(str(path))}, which is no path of a file"
        raise InputError(argument, given, "a file") from error
    if size > MOST_BYTES:
        raise InputError(
            argument, f"{path.name!r} with {size:,} bytes", f"at most {MOST_BYTES:,} bytes"
        )


def check_archive(path: Path, argument: str) -> None:
    """Refuse a workbook (a zip archive) that would fill memory or disk when it is unpacked."""
    check_size(path, argument)
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(item.file_size for item in archive.infolist())
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise InputError(argument, f"{path.name!r}, which is no workbook", ".xlsx") from error
    packed = max(path.stat().st_size, 1)
    if unpacked > MOST_BYTES or (unpacked > 10_000_000 and unpacked > MOST_GROWTH * packed):
        raise InputError(
            argument,
            f"{path.name!r}, whose {packed:,} bytes become {unpacked:,}",
            f"at most {MOST_BYTES:,} bytes, and {MOST_GROWTH} times the packed size",
            "Save the table alone, as CSV.",
        )


def as_cell(value: Any) -> Any:
    """A cell of a table for spreadsheets: text that they would run as a formula gets a quote."""
    risky = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if risky else value


def writable(path: str | os.PathLike[str], argument: str) -> Path:
    """A path where a file can be written, checked before the work that fills it."""
    try:
        file = Path(path)
        if file.is_dir() or not file.parent.is_dir() or "\0" in str(file):
            raise OSError(0, "it is a folder, or its folder does not exist")
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise OSError(0, "it is read-only")
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        given = f"{shown(str(path))}, which cannot be written ({reason})"
        raise InputError(argument, given, "the path of a file in a folder that exists") from error
    return file
