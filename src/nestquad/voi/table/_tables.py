"""Tables of numbers from data frames, matrices and files; errors name the cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, optional_module

if TYPE_CHECKING:
    import pandas as pd

FEWEST_ROWS = 20
_SEPARATED = re.compile(r"[-+]?\d{1,3}([ ,.'’\u00a0\u202f]\d{3})+([.,]\d+)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")


def pandas() -> Any:
    """The pandas module, or an error that says how to get it."""
    return optional_module("pandas", "Value of information", "voi")


def number_table(
    argument: str, table: Any, *, prefix: str, first_line: int | None = None
) -> pd.DataFrame:
    """A table of floats with distinct text names, from a DataFrame or a matrix.

    Columns without names are called by the prefix and a number. Errors name the `argument` and, for
    a table from a file, the line: `first_line` is that of the first row.
    """
    frame = _as_frame(argument, table, prefix)
    _check_names(argument, frame)
    if len(frame) < FEWEST_ROWS:
        raise InputError(
            argument,
            f"{len(frame)} rows",
            f"at least {FEWEST_ROWS} rows, one a draw of the probabilistic analysis",
            "A thousand draws or more give useful answers.",
        )
    numbers = {}
    for name in frame.columns:
        column = frame[name]
        values = _as_floats(column)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise _bad_cells(argument, name, column, bad, first_line)
        numbers[name] = values
    return pandas().DataFrame(numbers)


def same_rows(tables: dict[str, Any]) -> int:
    """The number of rows that all tables have."""
    counts = {name: len(table) for name, table in tables.items()}
    if len(set(counts.values())) > 1:
        raise InputError(
            " and ".join(counts),
            ", ".join(f"{count:,} rows of {name}" for name, count in counts.items()),
            "the same number of rows in each: row i of every table is the same draw",
            "Was a header line or the last draw lost, or are the tables from different runs?",
        )
    return next(iter(counts.values()))


def _as_frame(argument: str, table: Any, prefix: str) -> pd.DataFrame:
    pd = pandas()
    if isinstance(table, pd.Series):
        table = table.to_frame(table.name if table.name is not None else f"{prefix}1")
    if isinstance(table, pd.DataFrame):
        frame = table.reset_index(drop=True)
        frame.columns = [str(name).strip() for name in frame.columns]
        return frame
    if isinstance(table, dict):
        return _as_frame(argument, pd.DataFrame(table), prefix)
    matrix = np.asarray(table)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiubOU":
        raise InputError(
            argument,
            f"an array of {matrix.dtype} of shape {matrix.shape}",
            "a data frame or a matrix of numbers, one row a draw",
        )
    names = [f"{prefix}{j + 1}" for j in range(matrix.shape[1])]
    return pd.DataFrame(matrix, columns=names)


def _check_names(argument: str, frame: pd.DataFrame) -> None:
    names = [str(name) for name in frame.columns]
    if not names:
        raise InputError(argument, "a table without columns", "at least one column")
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise InputError(
            argument,
            f"the column {twice[0]!r} {names.count(twice[0])} times",
            "a different name for each column",
            "Rename one of them in the header.",
        )
    numeric = [name for name in names if _is_number(name)]
    if names and len(numeric) == len(names) and not _enumerated(names):
        raise InputError(
            argument,
            f"numbers as column names ({', '.join(names[:3])})",
            "a header line with names",
            "Without one, the first draw is taken for the header: add a line of names on top.",
        )


def _enumerated(names: Sequence[str]) -> bool:
    """Whether names are 0, 1, 2, … or 1, 2, 3, … as data frames without names have."""
    return any(list(names) == [str(k + first) for k in range(len(names))] for first in (0, 1))


def _as_floats(column: pd.Series[Any]) -> Array:
    if column.dtype.kind not in "fiub":
        column = pandas().to_numeric(column, errors="coerce")
    values: Array = column.to_numpy(dtype=float, na_value=np.nan)
    return values


def _bad_cells(
    argument: str,
    name: str,
    column: pd.Series[Any],
    bad: np.ndarray[Any, np.dtype[np.intp]],
    first_line: int | None,
) -> InputError:
    row = int(bad[0])
    where = f"column {name!r}, row {row + 1:,}"
    if first_line is not None:
        where += f" (line {row + first_line:,} of the file)"
    cell = column.iloc[row]
    text = "" if cell is None or cell is pandas().NA or cell != cell else str(cell).strip()
    more = f" and {bad.size - 1:,} more like it in this column" if bad.size > 1 else ""
    if not text:
        kind, advice = (
            "a missing value (an empty cell, or an error such as #N/A)",
            "Remove the whole draw from all tables, or find out why the model has no value there.",
        )
    elif _SEPARATED.fullmatch(text) or _DECIMAL_COMMA.fullmatch(text):
        kind, advice = (
            f"{text!r}, a number with separators",
            "Write numbers without separators of thousands and with a decimal point, as 1234.5 "
            "(in a spreadsheet: number format “General”).",
        )
    elif text.lower().lstrip("+-") in ("inf", "infinity"):
        kind, advice = "an infinite number", "Find out why the model divides by zero there."
    else:
        kind, advice = (
            f"the text {text!r}",
            "Spreadsheet errors such as #DIV/0! and notes beside the numbers have to go.",
        )
    return InputError(argument, f"{kind} in {where}{more}", "a finite number in every cell", advice)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_SHEETS = ("parameters", "costs", "effects")
_PREFIXES = {"parameters": "parameter ", "costs": "option ", "effects": "option "}
# Cells stay as they are written, so that errors can show them.
_RAW: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}


def read_csv(path: str | Path, kind: str) -> pd.DataFrame:
    """A table of numbers from a file with one header line.

    Parameters
    ----------
    path
        Separated by commas, semicolons or tabs. With semicolons or tabs, commas may be decimal
        commas. A column of row numbers without a name, as R writes it, is left out.
    kind
        ``"parameters"``, ``"costs"`` or ``"effects"``, for messages.
    """
    pd, path = pandas(), Path(path)
    name = f"{kind} ({path.name})"
    encoding, head = _opening(name, path)
    separator = max(",;\t", key=lambda one: head[0].count(one)) if head else ","
    decimal = "," if separator != "," and any("," in line for line in head[1:]) else "."
    try:
        frame = pd.read_csv(
            path,
            sep=separator,
            decimal=decimal,
            encoding=encoding,
            header=None,
            skiprows=1,
            low_memory=False,
            **_RAW,
        )
        header = pd.read_csv(
            path, sep=separator, encoding=encoding, header=None, nrows=1, dtype=str, **_RAW
        )
    except pd.errors.EmptyDataError:
        raise InputError(name, "no rows", "a header line and one line for each draw") from None
    except pd.errors.ParserError as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise InputError(
            name,
            f"lines of different lengths ({reason}, counted after the header)",
            "as many cells in every line as in the header",
            "Is there a comma inside a name or a number? Put it in quotes, or take it out.",
        ) from None
    except UnicodeDecodeError:
        raise InputError(name, "a file that is not text", "a .csv file") from None
    except MemoryError:
        raise _too_large(name, path) from None
    return _cleaned(name, kind, header.iloc[0].tolist(), frame)


def read_workbook(path: str | Path) -> dict[str, pd.DataFrame]:
    """Parameters, costs and effects from an .xlsx workbook.

    Sheets are found by name (parameters, costs, effects, in any case, or names that begin so);
    a workbook of exactly three sheets without such names has them in that order.
    """
    pd, path = pandas(), Path(path)
    optional_module("openpyxl", "Reading a workbook", "voi")
    if not path.is_file():
        raise InputError("workbook", f"{str(path)!r}, which is not a file", "an .xlsx file")
    try:
        sheets = pd.read_excel(path, sheet_name=None, header=None, engine="openpyxl", **_RAW)
    except MemoryError:
        raise _too_large("workbook", path) from None
    except Exception as error:  # openpyxl has no common error of its own
        raise InputError(
            "workbook",
            f"{path.name}, which cannot be read ({type(error).__name__}: {error})",
            "an .xlsx workbook",
            "Older .xls files: save as .xlsx.",
        ) from None
    found = {
        kind: next((s for s in sheets if s.strip().lower().startswith(kind[:5])), None)
        for kind in _SHEETS
    }
    if None in found.values():
        if len(sheets) != len(_SHEETS) or any(found.values()):
            raise InputError(
                "workbook",
                f"the sheets {', '.join(map(repr, sheets))}",
                "sheets named parameters, costs and effects",
            )
        found = dict(zip(_SHEETS, sheets, strict=True))
    tables = {}
    for kind, sheet in found.items():
        frame = sheets[sheet]
        if len(frame) < 1:
            raise InputError(f"sheet {sheet!r}", "no rows", "a header and one row for each draw")
        tables[kind] = _cleaned(f"sheet {sheet!r}", kind, frame.iloc[0].tolist(), frame.iloc[1:])
    return tables


def _opening(name: str, path: Path) -> tuple[str, list[str]]:
    """Encoding and the first lines of a text file."""
    with open(path, "rb") as file:
        raw = file.read(65536)
    if b"\0" in raw or raw[:2] == b"PK":
        advice = "For an .xlsx workbook use --workbook." if raw[:2] == b"PK" else ""
        raise InputError(name, "a file that is not text", "a .csv file", advice)
    encoding = "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        # The end may cut a character in two; anything earlier is another encoding.
        if error.start < len(raw) - 4:
            encoding = "cp1252"
        text = raw.decode(encoding, errors="replace")
    return encoding, [line for line in text.splitlines()[:6] if line.strip()]


def _cleaned(name: str, kind: str, header: list[Any], frame: pd.DataFrame) -> pd.DataFrame:
    """Names on top, row numbers and empty margins away, and every cell a number."""
    labels = ["" if cell is None or cell != cell else str(cell).strip() for cell in header]
    width = max(len(labels), frame.shape[1])
    labels += [""] * (width - len(labels))
    frame = frame.reindex(columns=range(width)).reset_index(drop=True)
    full = np.flatnonzero(~frame.isna().all(axis=1).to_numpy())
    frame = frame.iloc[: full[-1] + 1 if full.size else 0]
    kept = [j for j in range(width) if labels[j] or not frame[j].isna().all()]
    if kept and not labels[kept[0]]:  # row numbers, as R writes them
        values = _as_floats(frame[kept[0]])
        if values.size and np.all(np.diff(values) == 1):
            kept = kept[1:]
    nameless = [j for j in kept if not labels[j]]
    if nameless:
        raise InputError(
            name, f"column {nameless[0] + 1} without a name", "a name above each column"
        )
    frame = frame[kept]
    frame.columns = [labels[j] for j in kept]
    return number_table(name, frame, prefix=_PREFIXES[kind], first_line=2)


def _too_large(name: str, path: Path) -> InputError:
    size = path.stat().st_size / 1e9
    return InputError(
        name,
        f"a file of {size:.1f} GB, more than fits into memory",
        "a smaller one",
        "100,000 draws are plenty: keep the first ones of each file.",
    )
