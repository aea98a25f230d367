"""Files as they come out of spreadsheets, R and SAVI, read into tables."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad.errors import InputError, MissingExtraError
from nestquad.voi._frames import number_table, pandas

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_csv", "read_workbook"]

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
    if find_spec("openpyxl") is None:
        raise MissingExtraError("Reading a workbook", "voi")
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
    if kept and not labels[kept[0]] and _counts_rows(frame[kept[0]]):
        kept = kept[1:]
    nameless = [j for j in kept if not labels[j]]
    if nameless:
        raise InputError(
            name, f"column {nameless[0] + 1} without a name", "a name above each column"
        )
    frame = frame[kept]
    frame.columns = [labels[j] for j in kept]
    return number_table(name, frame, prefix=_PREFIXES[kind], first_line=2)


def _counts_rows(column: pd.Series[Any]) -> bool:
    values = pandas().to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return bool(len(values)) and bool(np.all(np.diff(values) == 1))


def _too_large(name: str, path: Path) -> InputError:
    size = path.stat().st_size / 1e9
    return InputError(
        name,
        f"a file of {size:.1f} GB, more than fits into memory",
        "a smaller one",
        "100,000 draws are plenty: keep the first ones of each file.",
    )
