"""Tables from files, text of any separator and workbooks, and what was understood of them."""

from __future__ import annotations

import codecs
import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nestquad._checks import choice, shown
from nestquad._files import check_size as check_file
from nestquad._notebook import pairs
from nestquad.errors import InputError, optional_module
from nestquad.voi.table._limits import check_size, check_table
from nestquad.voi.table._numbers import AMBIGUOUS
from nestquad.voi.table._outputs import Outputs
from nestquad.voi.table._tables import (
    Cleaned,
    Problem,
    aligned,
    clean,
    label,
    matched_options,
    pandas,
)

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("parameters", "costs", "effects")
Source: TypeAlias = "str | Path | tuple[str, bytes]"
"""A path, or a file in memory: its name and its bytes."""

# Names of sheets: the first pattern that exactly one sheet matches decides.
_SHEETS = {
    "parameters": (r"param\w*|psa[ _]?(inputs?|param\w*)|inputs?", r".*(param|input).*", r"psa.*"),
    "costs": (r"costs?", r".*cost.*"),
    "effects": (r"effects?|qalys?", r".*(effect|qaly|outcome|daly|utilit).*", r".*benefit.*"),
}
# Cells stay as they are written, so that errors can show them.
_RAW: dict[str, Any] = {"keep_default_na": False, "na_values": [""]}
_SAID = re.compile(r"[\"']?sep=(.)[\"']?", re.IGNORECASE)
# Texts that are read first, for the decimal mark: all of them are read where these do not show it.
_FIRST_ROWS = 1_000


def read_csv(path: Source, kind: str) -> pd.DataFrame:
    """A table of numbers from a file with one header line.

    Parameters
    ----------
    path
        Separated by commas, semicolons, tabs or spaces. With semicolons or tabs, commas may be
        decimal commas. Cells may have % or a sign of currency; columns of text are categories of
        a parameter. Columns that count or name the rows are left out, long format (draw, option,
        value) is made wide; ``attrs["notes"]`` says so. A file in memory is its name and bytes.
    kind
        ``"parameters"``, ``"costs"`` or ``"effects"``.
    """
    return _clean_csv(path, kind).usable()


def read_workbook(path: Source) -> dict[str, pd.DataFrame]:
    """Parameters, costs and effects from an .xlsx workbook.

    Sheets are found by names that people use (parameters, PSA inputs, costs, effects, QALYs, in
    any case); a workbook of exactly three sheets without such names has them in that order.
    """
    return {kind: found.usable() for kind, found in _clean_workbook(path).items()}


@dataclass(frozen=True)
class Preview:
    """Three tables as they were understood.

    Attributes
    ----------
    parameters, costs, effects
        Tables of floats; columns with bad cells have NaN there.
    options
        Names of the options, matched between costs and effects.
    notes
        What was recognized, left out or converted.
    problems
        What prevents an analysis, each with its table, and the column, row (from 1), line of the
        file and text of the cell where it is one cell; ``str()`` of it says what to do.
    files
        From file names to SHA-256 checksums.
    """

    parameters: pd.DataFrame
    costs: pd.DataFrame
    effects: pd.DataFrame
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    files: tuple[tuple[str, str], ...] = ()

    def outputs(self, wtp: Any) -> Outputs:
        """Costs and effects at a willingness to pay; raises the first problem, if there is one."""
        if self.problems:
            raise self.problems[0].error
        return Outputs(self.costs, self.effects, wtp)

    def to_dict(self, rows: int = 5) -> dict[str, Any]:
        """Plain objects for a page: the first rows and the range of every column, and the rest."""
        tables = {}
        for kind in KINDS:
            table = getattr(self, kind)
            first = table.head(rows)
            ends = table.agg(["min", "mean", "max"]) if table.size else table
            tables[kind] = {
                "rows": len(table),
                "columns": list(map(str, table.columns)),
                "first": first.astype(object).where(np.isfinite(first), None).values.tolist(),
                "ranges": ends.astype(object).where(np.isfinite(ends), None).T.values.tolist(),
            }
        cell = ("table", "column", "row", "line", "cell")
        return {
            "tables": tables,
            "options": list(self.options),
            "notes": list(self.notes),
            "problems": [
                {**{name: getattr(p, name) for name in cell}, "message": str(p)}
                for p in self.problems
            ],
            "files": dict(self.files),
        }

    def __str__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self._understood().items() if text]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *(f"problem: {p}" for p in self.problems)])

    def _repr_html_(self) -> str:
        said = {"notes": "; ".join(self.notes), "problems": " ".join(map(str, self.problems))}
        return pairs("Tables", {**self._understood(), **said})

    def _understood(self) -> dict[str, str]:
        tables = {kind: getattr(self, kind) for kind in KINDS}
        found = {
            kind: f"{len(table):,} draws of {', '.join(map(str, table.columns)) or 'nothing'}"
            for kind, table in tables.items()
        }
        return {**found, "options": ", ".join(self.options)}


def preview(parameters: Any, costs: Any = None, effects: Any = None) -> Preview:
    """Read three tables and say what was understood; bad cells are listed, not raised.

    Parameters
    ----------
    parameters, costs, effects
        Files (a path, or a name and bytes), data frames or matrices. A workbook with three sheets
        goes alone, as `parameters`.

    Examples
    --------
    >>> import pandas as pd
    >>> counted = {"Iteration": range(1, 21), "A": [1.0] * 20, "B": [2.0] * 20}
    >>> effects = pd.DataFrame({"B": ["1"] * 19 + ["#N/A"], "A": [3.0] * 20})
    >>> seen = preview({"p": [1.0] * 20}, pd.DataFrame(counted), effects)
    >>> seen.options, seen.notes[0]
    (('A', 'B'), "costs: the column 'Iteration' counts the rows and is left out")
    >>> [(p.column, p.row, p.cell) for p in seen.problems]
    [('B', 20, '#N/A')]
    """
    given: dict[str, Any] = dict(zip(KINDS, (parameters, costs, effects), strict=True))
    files: list[tuple[str, str]] = []
    for kind, source in given.items():
        if isinstance(source, str | Path) or (isinstance(source, tuple) and len(source) == 2):
            given[kind] = name, data = _opened(source)
            files.append((label(name), hashlib.sha256(data).hexdigest()))
    if costs is None and effects is None:
        found = _clean_workbook(given["parameters"])
    else:
        found = {kind: _clean(kind, source) for kind, source in given.items()}
    frames = {kind: found[kind].frame for kind in KINDS}
    notes = [f"{kind}: {note}" for kind in KINDS for note in found[kind].notes]
    problems = [problem for kind in KINDS for problem in found[kind].problems]
    options: tuple[str, ...] = ()
    readable = {kind: frames[kind] for kind in KINDS if frames[kind].size}
    try:
        if len(readable) == len(KINDS):  # names of rows may stand in the one that is missing
            moved, rows_moved, _ = aligned(readable)
            frames |= moved
            notes += rows_moved
        if "costs" in readable and "effects" in readable:
            _, names, note = matched_options(frames["costs"], frames["effects"])
            options = tuple(names)
            notes += [note] if note else []
            if not problems:
                _ = Outputs(frames["costs"], frames["effects"], 1.0)
    except InputError as error:
        problems.append(Problem(error.argument, error))
    return Preview(
        **frames, options=options, notes=tuple(notes), problems=tuple(problems), files=tuple(files)
    )


def _clean(kind: str, source: Any) -> Cleaned:
    if source is None:
        advice = "Parameters, costs and effects are needed."
        return Cleaned.refused(kind, InputError(kind, "nothing", "a table", advice))
    is_file = isinstance(source, tuple) and len(source) == 2
    return _clean_csv(source, kind) if is_file else clean(kind, source, kind)


def _opened(source: Source) -> tuple[str, bytes]:
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], bytes):
        return source
    if not isinstance(source, str | Path):
        raise InputError("file", shown(source), "a path, or a name and bytes")
    path = Path(source)
    check_file(path, "file")
    check_size(path.name, path.stat().st_size)
    return path.name, path.read_bytes()


def _clean_csv(source: Source, kind: str) -> Cleaned:
    """`read_csv` with all bad cells instead of an error for the first."""
    choice("kind", kind, KINDS)
    file, data = _opened(source)
    name = f"{kind} ({file})"
    check_table(name, data)
    try:
        header, frame, decimal, line = _parsed(name, data)
        found = _cleaned(name, kind, header, frame, decimal, line)
    except InputError as error:
        return Cleaned.refused(name, error)
    if decimal == "," and found.frame.size:
        notes = ("the file has decimal commas: 1,5 is 1.5", *found.notes)
        found.frame.attrs["notes"] = notes
    return found


def _parsed(name: str, data: bytes) -> tuple[list[Any], pd.DataFrame, str, int]:
    """Header and cells of a text, its decimal mark where one is shown, line of the first row."""
    pd = pandas()
    encoding, lines = _opening(name, data)
    # Above the header: empty lines, and one in which a spreadsheet says its separator, sep=;
    above = next((i for i, line in enumerate(lines) if line and not _SAID.fullmatch(line)), 0)
    said = [found[1] for line in lines[:above] if (found := _SAID.fullmatch(line))]
    head = [line for line in lines[above:] if line]
    separator = max([*said, *",;\t"], key=lambda one: head[0].count(one)) if head else ","
    if head and separator not in head[0] and len(head) > 1 and " " in head[1].strip():
        separator = r"\s+"
    decimal = "," if separator != "," and any("," in line for line in head[1:]) else "."
    options = {"sep": separator, "encoding": encoding, "header": None, **_RAW}
    try:
        frame = pd.read_csv(
            io.BytesIO(data), decimal=decimal, skiprows=above + 1, low_memory=False, **options
        )
        header = pd.read_csv(io.BytesIO(data), skiprows=above, nrows=1, dtype=str, **options)
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
        raise _too_large(name, data) from None
    labels = header.iloc[0].tolist()
    # Between commas, a number with a comma makes one cell too many as well.
    numbered = separator == r"\s+" or bool(np.array_equal(frame[0], np.arange(len(frame)) + 1))
    if frame.shape[1] == len(labels) + 1 and numbered:
        labels = [None, *labels]  # R's write.table has no name above the names of rows
    fractions = [j for j in frame.columns if frame[j].dtype.kind == "f"]
    if separator == "," or not fractions:
        return labels, frame, "", above + 2

    def texts(rows: int | None) -> list[Any]:
        read = {"skiprows": above + 1, "dtype": str, "usecols": fractions, "nrows": rows, **options}
        cells = pd.read_csv(io.BytesIO(data), **read)
        return [cells[j].dropna().str.strip() for j in fractions]

    shown = _shows_mark(name, decimal, texts(_FIRST_ROWS), above + 2)  # as a rule
    shown = shown or _shows_mark(name, decimal, texts(None), above + 2, refuse=True)
    return labels, frame, decimal if shown else "", above + 2


def _shows_mark(
    name: str, decimal: str, columns: Iterable[pd.Series[str]], line: int, *, refuse: bool = False
) -> bool:
    """Whether cells tell that a mark is the decimal one: 0,5 does, 3,610 and 1e+05 do not.

    With `refuse`, cells that may be thousands are refused where no other cell tells.
    """
    doubtful: list[tuple[str, int]] = []
    for column in columns:
        marked = column[column.str.contains(decimal, regex=False)]
        clear = ~marked.str.fullmatch(AMBIGUOUS)
        if clear.any():
            return True
        doubtful += [(marked.iloc[0], int(marked.index[0]) + line)] if len(marked) else []
    if doubtful and refuse:
        cell, at = doubtful[0]
        plain, decimals = cell.replace(decimal, ""), cell.replace(decimal, ".")
        raise InputError(
            name,
            f"{cell!r} (line {at:,} of the file), which may be {plain} or {decimals}, and no "
            "other cell tells which",
            "numbers without separators of thousands",
            f"Write {plain}; or, if it is a decimal mark, another number of decimals, as "
            f"{cell}0 (in a spreadsheet: number format “General”).",
        )
    return False


def _clean_workbook(source: Source) -> dict[str, Cleaned]:
    """`read_workbook` with all bad cells instead of an error for the first."""
    pd = pandas()
    optional_module("openpyxl", "Reading a workbook", "voi")
    file, data = _opened(source)
    check_table(f"workbook ({file})", data)
    try:
        sheets = pd.read_excel(
            io.BytesIO(data), sheet_name=None, header=None, engine="openpyxl", **_RAW
        )
    except MemoryError:
        raise _too_large("workbook", data) from None
    except Exception as error:  # openpyxl has no common error of its own
        raise InputError(
            "workbook",
            f"{file}, which cannot be read ({type(error).__name__}: {error})",
            "an .xlsx workbook",
            "Older .xls files: save as .xlsx.",
        ) from None
    tables = {}
    for kind, sheet in _found_sheets(list(sheets)).items():
        frame = sheets[sheet]
        name = f"sheet {sheet!r}"
        try:
            if frame.empty:
                raise InputError(name, "no rows", "a header and one row for each draw")
            tables[kind] = _cleaned(name, kind, frame.iloc[0].tolist(), frame.iloc[1:])
        except InputError as problem:
            tables[kind] = Cleaned.refused(name, problem)
    return tables


def _found_sheets(names: list[str]) -> dict[str, str]:
    """The sheet of each kind of table."""
    found: dict[str, str] = {}
    for kind in ("costs", "effects", "parameters"):
        for pattern in _SHEETS[kind]:
            fits = [
                n
                for n in names
                if n not in found.values() and re.fullmatch(pattern, n.strip(), re.I)
            ]
            if len(fits) == 1:
                found[kind] = fits[0]
                break
    if not found and len(names) == len(KINDS):
        return dict(zip(KINDS, names, strict=True))
    if len(found) < len(KINDS):
        missing = [kind for kind in KINDS if kind not in found]
        raise InputError(
            "workbook",
            f"the sheets {', '.join(map(repr, names))}, none or several of which look like "
            f"{' and '.join(missing)}",
            "sheets named parameters, costs and effects",
        )
    return found


def _opening(name: str, data: bytes) -> tuple[str, list[str]]:
    """Encoding and the first lines of a text file."""
    raw = data[:65536]
    if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # spreadsheets: “Unicode text”
        return "utf-16", _lines(raw.decode("utf-16", errors="replace"))
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
    return encoding, _lines(text)


def _lines(text: str) -> list[str]:
    return [line.strip(" ") if line.strip() else "" for line in text.splitlines()[:10]]


def _cleaned(
    name: str, kind: str, header: list[Any], frame: pd.DataFrame, decimal: str = "", line: int = 2
) -> Cleaned:
    """Names on top, empty margins away, and every cell a number."""
    labels = ["" if cell is None or cell != cell else label(cell) for cell in header]
    width = max(len(labels), frame.shape[1])
    labels += [""] * (width - len(labels))
    frame = frame.reindex(columns=range(width)).reset_index(drop=True)
    full = np.flatnonzero(~frame.isna().all(axis=1).to_numpy())
    frame = frame.iloc[: full[-1] + 1 if full.size else 0]
    kept = [j for j in range(width) if labels[j] or not frame[j].isna().all()]
    frame = frame[kept]
    frame.columns = [labels[j] for j in kept]
    found = clean(name, frame, kind, first_line=line, decimal=decimal)
    if "" in found.frame.columns or (
        any(p.column == "" and p.row is not None for p in found.problems)
    ):
        at = kept[[labels[j] for j in kept].index("")]
        raise InputError(name, f"column {at + 1} without a name", "a name above each column")
    return found


def _too_large(name: str, data: bytes) -> InputError:
    return InputError(
        name,
        f"a file of {len(data) / 1e9:.1f} GB, more than fits into memory",
        "a smaller one",
        "100,000 draws are plenty: keep the first ones of each file.",
    )
