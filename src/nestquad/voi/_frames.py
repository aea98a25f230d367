"""Tables as users have them, turned into numbers; every bad cell is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["number_table", "pandas", "same_rows"]

FEWEST_ROWS = 20
_SEPARATED = re.compile(r"[-+]?\d{1,3}([ ,.'’\u00a0\u202f]\d{3})+([.,]\d+)?")
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")


def pandas() -> Any:
    """The pandas module, or an error that says how to get it."""
    try:
        import pandas as module
    except ImportError as error:
        raise MissingExtraError("Value of information", "voi") from error
    return module


def number_table(
    argument: str, table: Any, *, prefix: str, first_line: int | None = None
) -> pd.DataFrame:
    """A table of floats with distinct text names.

    Parameters
    ----------
    argument
        What errors call it.
    table
        A DataFrame, or anything that numpy makes a matrix of.
    prefix
        Names of columns that have none: the prefix and a number.
    first_line
        Line of the file that the first row stands in, where it is from a file.

    Examples
    --------
    >>> number_table("costs", [[1, 2]] * 20, prefix="option ").columns.tolist()
    ['option 1', 'option 2']
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
