"""Files of users: limits of size for reading, checks of paths for writing."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from nestquad import limits
from nestquad._checks import shown
from nestquad.errors import InputError


def text_table(path: Path, argument: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file, empty ones left out; errors name the file."""
    check_size(path, argument)
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            table = [row for row in csv.reader(lines) if row]
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
    head, rows = (table[0], table[1:]) if table else ([], [])
    if len(head) > limits.TABLE_COLUMNS:
        given = f"{len(head)} columns in {path.name!r}"
        raise InputError(argument, given, f"a table of at most {limits.TABLE_COLUMNS}")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(head):
            given = f"{len(row)} cells in row {number} of {path.name!r}"
            raise InputError(argument, given, f"{len(head)}, as in its header")
    return head, rows


def check_size(path: Path, argument: str) -> None:
    """Refuse paths that are no file, and files too large to analyze."""
    try:
        is_file = path.is_file()
        size = path.stat().st_size if is_file else 0
    except (OSError, ValueError) as error:
        given = f"{shown(str(path))}, which is no path of a file"
        raise InputError(argument, given, "a file") from error
    if not is_file:
        raise InputError(argument, f"{shown(str(path))}, which is not a file", "a file")
    if size > limits.TABLE_BYTES:
        raise InputError(
            argument, f"{path.name!r} with {size:,} bytes", f"at most {limits.TABLE_BYTES:,} bytes"
        )


def new_file(path: Any, argument: str = "path") -> Path:
    """The path of a file that can be written; descriptors are none."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise InputError(argument, shown(path), "the path of a file")
    file = Path(path)
    try:
        wrong = file.is_dir() or not file.parent.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        wrong = True
    if wrong:
        given = f"{shown(str(path))}, which is a folder, or whose folder does not exist"
        raise InputError(argument, given, "the path of a file that can be written")
    return file
