"""Tables from files, text of any separator and workbooks, and what was understood of them."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nestquad._checks import choice, shown
from nestquad._files import check_size as check_file
from nestquad._notebook import pairs
from nestquad.errors import InputError, optional_module
from nestquad.voi.table._columns import guess_roles, ranges, with_roles
from nestquad.voi.table._limits import check_size, check_table
from nestquad.voi.table._numbers import AMBIGUOUS
from nestquad.voi.table._outputs import Outputs, swapped_names
from nestquad.voi.table._sheets import Region, find_header, find_table, one_line, table_below
from nestquad.voi.table._tables import (
    Cleaned,
    Problem,
    aligned,
    clean,
    matched_options,
    pandas,
    without_summaries,
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
# Lines in which the header is looked for, and titles that may stand above it.
_MOST_LINES, _MOST_TITLES = 60, 20


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
    return _clean_file(path, kind).usable()


def read_workbook(path: Source) -> dict[str, pd.DataFrame]:
    """Parameters, costs and effects from an .xlsx workbook.

    Sheets are found by names that people use (parameters, PSA inputs, costs, effects, QALYs, in
    any case); a workbook of exactly three sheets without such names has them in that order. Of one
    sheet with all columns, names and values say which are inputs, costs and effects.
    """
    found, _ = _clean_together(_opened(path), None)
    return {kind: found[kind].usable() for kind in KINDS}


@dataclass(frozen=True)
class Column:
    """A column of one table with inputs, costs and effects: its role, and its range."""

    name: str
    role: str
    least: float | None = None
    mean: float | None = None
    most: float | None = None


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
    columns
        Roles of the columns, where one table has inputs, costs and effects.
    """

    parameters: pd.DataFrame
    costs: pd.DataFrame
    effects: pd.DataFrame
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    columns: tuple[Column, ...] = ()
    as_given: bool = False

    def outputs(self, wtp: Any) -> Outputs:
        """Costs and effects at a willingness to pay; raises the first problem, if there is one."""
        if self.problems:
            raise self.problems[0].error
        return Outputs(self.costs, self.effects, wtp, as_given=self.as_given)

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
        cell = ("table", "column", "row", "line", "cell", "address")
        return {
            "tables": tables,
            "options": list(self.options),
            "notes": list(self.notes),
            "problems": [
                {**{name: getattr(p, name) for name in cell}, "message": str(p)}
                for p in self.problems
            ],
            "files": dict(self.files),
            "columns": [asdict(column) for column in self.columns],
        }

    def __str__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self._understood().items() if text]
        lines += [f"column {column.name!r}: {column.role}" for column in self.columns]
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
            if table.size
        }
        return {**found, "options": ", ".join(self.options)}


def preview(
    parameters: Any,
    costs: Any = None,
    effects: Any = None,
    *,
    wtp: Any = None,
    columns: Mapping[str, str] | None = None,
    as_given: bool = False,
) -> Preview:
    """Read three tables and say what was understood; bad cells are listed, not raised.

    Parameters
    ----------
    parameters, costs, effects
        Files (a path, or a name and bytes), data frames or matrices. A workbook, or one table with
        inputs, costs and effects together, goes alone, as `parameters`.
    wtp
        Willingness to pay, where it is known: sizes of costs and effects are compared with it.
    columns
        Roles of columns of one table: “input”, “cost of …”, “effect of …” or “ignored”. Others are
        guessed from names and values.
    as_given
        Accept costs and effects that look swapped.
    """
    given: dict[str, Any] = dict(zip(KINDS, (parameters, costs, effects), strict=True))
    files: list[tuple[str, str]] = []
    for kind, source in given.items():
        if isinstance(source, str | Path) or (isinstance(source, tuple) and len(source) == 2):
            given[kind] = name, data = _opened(source)
            files.append((one_line(name), hashlib.sha256(data).hexdigest()))
    roles: tuple[Column, ...] = ()
    if costs is None and effects is None:
        found, roles = _clean_together(given["parameters"], columns)
    else:
        found = {kind: _clean(kind, source) for kind, source in given.items()}
    frames = {kind: found[kind].frame for kind in KINDS}
    # Parts of one table share its notes.
    told = [(f"{kind}: " if not roles else "") + x for kind in KINDS for x in found[kind].notes]
    notes = list(dict.fromkeys(told))
    problems = [problem for kind in KINDS for problem in found[kind].problems]
    options: tuple[str, ...] = ()
    readable = {kind: frames[kind] for kind in KINDS if frames[kind].size}
    try:
        if len(readable) == len(KINDS):  # names of rows may stand in the one that is missing
            moved, rows_moved, _ = aligned(readable)
            frames |= moved
            notes += rows_moved
        if "costs" in readable and "effects" in readable:
            both = (list(map(str, frames[kind].columns)) for kind in ("costs", "effects"))
            if not as_given and (doubt := swapped_names(*both)):
                raise doubt
            _, names, note = matched_options(frames["costs"], frames["effects"])
            options = tuple(names)
            notes += [note] if note else []
            if not problems:
                k = 1.0 if wtp is None else wtp
                asked = as_given or wtp is None
                _ = Outputs(frames["costs"], frames["effects"], k, as_given=asked)
    except InputError as error:
        problems.append(Problem(error.argument, error))
    return Preview(
        **frames,
        options=options,
        notes=tuple(notes),
        problems=tuple(problems),
        files=tuple(files),
        columns=roles,
        as_given=as_given or wtp is not None,
    )


def _clean(kind: str, source: Any) -> Cleaned:
    if source is None:
        advice = "Parameters, costs and effects are needed."
        return Cleaned.refused(kind, InputError(kind, "nothing", "a table", advice))
    is_file = isinstance(source, tuple) and len(source) == 2
    return _clean_file(source, kind) if is_file else clean(kind, source, kind)


def _clean_together(
    source: Any, columns: Mapping[str, str] | None
) -> tuple[dict[str, Cleaned], tuple[Column, ...]]:
    """Tables of a workbook with a sheet for each, or of one table with all columns."""
    if isinstance(source, tuple) and _is_workbook(*source):
        name, sheets = "workbook", _sheets(*source)
        regions = {s: _on_sheet(source[1], s, cells) for s, cells in sheets.items()}
        if by_kind := None if columns else _sheets_by_kind(regions):
            return {
                kind: _cleaned(f"sheet {sheet!r}", kind, regions[sheet])
                for kind, sheet in by_kind.items()
            }, ()
        region = _joined(regions)
    elif isinstance(source, tuple):
        name = f"table ({source[0]})"
        check_table(name, source[1])
        region, _ = _parsed(name, source[1])
    else:
        if not isinstance(source, Mapping | pandas().DataFrame):
            raise InputError("file", shown(source), "a path, or a name and bytes")
        name, frame = "table", pandas().DataFrame(source).reset_index(drop=True)
        frame.columns = [one_line(c) for c in frame.columns]
        region = Region(frame, np.arange(len(frame)) + 1, 0, {})
    frame, rows, left_out = without_summaries(region.frame, region)
    lines, notes = region.lines[rows], (*region.notes, *left_out)
    region = replace(region, frame=frame, lines=lines, notes=notes)
    guessed = guess_roles(frame)
    try:
        roles, tables = with_roles(region.frame, columns)
    except InputError as error:
        roles = {**guessed, **{k: v for k, v in (columns or {}).items() if k in guessed}}
        refused = Cleaned.refused(name, error)
        nothing = Cleaned(pandas().DataFrame())
        parts = {kind: refused if kind == "costs" else nothing for kind in KINDS}
    else:
        parts = {}
        for kind, table in tables.items():
            names = dict(zip(table.columns, _sources(roles, kind, table), strict=True))
            letters = {new: region.letters.get(old, "") for new, old in names.items()}
            part = replace(region, frame=table, letters=letters)
            parts[kind] = _cleaned(f"{name}, {kind}", kind, part)
    ends = dict(zip(region.frame.columns, ranges(region.frame), strict=True))
    shown_roles = tuple(Column(c, role, *ends[c]) for c, role in roles.items())
    return parts, shown_roles


def _is_workbook(name: str, data: bytes) -> bool:
    return data[:2] == b"PK" or name.lower().endswith((".xlsx", ".xlsm", ".xls"))


def _sources(roles: Mapping[str, str], kind: str, table: pd.DataFrame) -> list[str]:
    """Columns of the file behind those of a table."""
    if kind == "parameters":
        return list(map(str, table.columns))
    word = kind.removesuffix("s")
    return [c for c, role in roles.items() if role.startswith(f"{word} of ")]


def _joined(regions: Mapping[str, Region]) -> Region:
    """The largest table of a workbook, with columns of other sheets that have as many draws."""
    if not regions:
        raise InputError("workbook", "no table", "a header and one row for each draw")
    largest = max(regions, key=lambda sheet: regions[sheet].frame.size)
    first = regions[largest]
    frame, used = first.frame, [largest]
    for sheet, other in regions.items():
        if sheet == largest or len(other.frame) != len(frame) or not len(frame):
            continue
        same = [c for c in other.frame.columns if c in frame.columns]
        if all(other.frame[c].equals(frame[c]) for c in same):
            frame = pandas().concat([frame, other.frame.drop(columns=same)], axis=1)
            used.append(sheet)
    left = [sheet for sheet in regions if sheet not in used]
    notes = [f"sheet {' and '.join(map(repr, used))} used"] if len(regions) > 1 else []
    notes += [f"sheet {', '.join(map(repr, left))} not used"] if left else []
    letters = first.letters if len(used) == 1 else {}
    return replace(first, frame=frame, letters=letters, notes=(*notes, *first.notes))


def _opened(source: Source) -> tuple[str, bytes]:
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], bytes):
        return source
    if not isinstance(source, str | Path):
        raise InputError("file", shown(source), "a path, or a name and bytes")
    path = Path(source)
    check_file(path, "file")
    check_size(path.name, path.stat().st_size)
    return path.name, path.read_bytes()


def _clean_file(source: Source, kind: str) -> Cleaned:
    """`read_csv` with all bad cells instead of an error for the first."""
    choice("kind", kind, KINDS)
    file, data = _opened(source)
    name = f"{kind} ({file})"
    check_table(name, data)
    try:
        if _is_workbook(file, data):
            sheets, decimal = _sheets(file, data), ""
            region = _on_sheet(data, *_sheet_of(name, kind, sheets))
        else:
            region, decimal = _parsed(name, data)
        found = _cleaned(name, kind, region, decimal)
    except InputError as error:
        return Cleaned.refused(name, error)
    if decimal == "," and found.frame.size:
        notes = ("the file has decimal commas: 1,5 is 1.5", *found.notes)
        found.frame.attrs["notes"] = notes
    return found


def _parsed(name: str, data: bytes) -> tuple[Region, str]:
    """The table of a text, and its decimal mark where one is shown."""
    pd = pandas()
    encoding, lines = _opening(name, data)
    separator = _separator(lines)
    split = list(_cells(lines, separator))
    width = max(map(len, split), default=0)
    top = pd.DataFrame([[*row, *[None] * (width - len(row))] for row in split], dtype=object)
    above = find_header(top)[0] if width else 0
    decimal = "," if separator != "," and any("," in line for line in lines[above + 1 :]) else "."
    options = {"sep": separator, "encoding": encoding, "header": None, "skip_blank_lines": False}
    options |= _RAW
    try:
        frame = pd.read_csv(
            io.BytesIO(data), decimal=decimal, skiprows=above + 1, low_memory=False, **options
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
    # Between commas, a number with a comma makes one cell too many as well.
    numbered = separator == r"\s+" or bool(np.array_equal(frame[0], np.arange(len(frame)) + 1))
    if frame.shape[1] == len(split[above]) + 1 and numbered:
        top.iloc[above] = [None, *top.iloc[above].tolist()][: top.shape[1]]  # as R's write.table
    region = table_below(top.iloc[: above + 1], frame)
    fractions = [j for j in frame.columns if frame[j].dtype.kind == "f"]
    if separator == "," or not fractions:
        return region, ""

    def texts(rows: int | None) -> list[Any]:
        read = {"skiprows": above + 1, "dtype": str, "usecols": fractions, "nrows": rows, **options}
        cells = pd.read_csv(io.BytesIO(data), **read)
        return [cells[j].dropna().str.strip() for j in fractions]

    shown = _shows_mark(name, decimal, texts(_FIRST_ROWS), above + 2)  # as a rule
    shown = shown or _shows_mark(name, decimal, texts(None), above + 2, refuse=True)
    return region, decimal if shown else ""


def _separator(lines: Sequence[str]) -> str:
    """The separator of most lines, which one of the first lines with words has as often."""
    said = [found[1] for line in lines if (found := _SAID.fullmatch(line))]
    rows = [line for line in lines if line and not _SAID.fullmatch(line)]
    wordy = [row for row in rows if re.search(r"[^\W\d_eE]", row)][:_MOST_TITLES]
    for mark in (*said, "\t", ";", ","):
        counts = [row.count(mark) for row in rows]
        usual = max(set(counts), key=counts.count, default=0)
        if usual and any(row.count(mark) >= max(usual - 1, 1) for row in wordy or rows):
            return mark
    return r"\s+" if sum(" " in row for row in rows) > len(rows) / 2 else ","


def _cells(lines: Sequence[str], separator: str) -> Iterator[list[str | None]]:
    """Cells of the first lines; quoted names may have several lines, and blanks."""
    if separator == r"\s+":
        lines, separator = [re.sub(r"\s+", " ", line).strip() for line in lines], " "
    ended = (f"{line}\n" for line in lines)
    for row in csv.reader(ended, delimiter=separator):
        said = len(row) <= 2 and _SAID.fullmatch(separator.join(row))
        yield [] if said else [cell.strip() or None for cell in row]


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


def _sheets(file: str, data: bytes) -> dict[str, pd.DataFrame]:
    """Cells of every sheet of a workbook."""
    optional_module("python_calamine", "Reading a workbook", "voi")
    check_table(f"workbook ({file})", data)
    try:
        sheets: dict[str, pd.DataFrame] = pandas().read_excel(
            io.BytesIO(data), sheet_name=None, header=None, engine="calamine", **_RAW
        )
    except MemoryError:
        raise
    except Exception as error:  # calamine has no common error of its own
        raise InputError(
            "workbook",
            f"{file}, which cannot be read ({type(error).__name__}: {error})",
            "an .xlsx workbook",
            "Older .xls files: save as .xlsx.",
        ) from None
    return sheets


def _on_sheet(data: bytes, sheet: str, cells: pd.DataFrame) -> Region:
    """The table of a sheet; where cells are empty, errors and formulas in them are read as well."""
    if cells.empty:
        return Region(cells, np.arange(0), 0, {})
    region = find_table(cells, lettered=True)
    if region.frame.size and not region.frame.isna().any(axis=None):
        return region
    region = find_table(_with_errors(data, sheet), lettered=True)
    frame = region.frame
    empty = [c for c in frame.columns if len(frame) and frame[[c]].isna().all(axis=None)]
    notes = (*region.notes, *(f"the column {name!r} is empty and left out" for name in empty))
    return replace(region, frame=frame.drop(columns=empty), notes=notes)


def _with_errors(data: bytes, sheet: str) -> pd.DataFrame:
    """Cells with the texts of errors, and formulas where no value is saved."""
    openpyxl = optional_module("openpyxl", "Reading a workbook", "voi")
    views = []
    for saved in (True, False):
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=saved)
        views.append(pandas().DataFrame(_padded(book[sheet].iter_rows(values_only=True))))
        book.close()
    values, formulas = views
    written = formulas.map(lambda cell: cell if str(cell)[:1] == "=" else None)
    return values.astype(object).where(values.notna(), written)


def _padded(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    listed = [list(row) for row in rows]
    width = max(map(len, listed), default=0)
    return [[*row, *[None] * (width - len(row))] for row in listed]


def _sheet_of(name: str, kind: str, sheets: Mapping[str, pd.DataFrame]) -> tuple[str, pd.DataFrame]:
    """The sheet with a kind of table, where a workbook is given for it alone."""
    used = {sheet: cells for sheet, cells in sheets.items() if cells.size}
    fits = list(used) if len(used) == 1 else _fitting(kind, list(used))
    if len(fits) != 1:
        raise InputError(
            name,
            f"a workbook with the sheets {', '.join(map(repr, sheets))}",
            f"one sheet with the {kind}",
            "A workbook with all three tables goes by itself, as the workbook.",
        )
    return fits[0], used[fits[0]]


def _fitting(kind: str, names: Sequence[str]) -> list[str]:
    """Sheets that may hold a kind of table, by the first pattern that exactly one matches."""
    for pattern in _SHEETS[kind]:
        fits = [n for n in names if re.fullmatch(pattern, n.strip(), re.IGNORECASE)]
        if len(fits) == 1:
            return fits
    return []


def _sheets_by_kind(regions: Mapping[str, Region]) -> dict[str, str] | None:
    """The sheet of each kind of table, by names or in their order; None where neither tells."""
    names, found = list(regions), dict[str, str]()
    for kind in ("costs", "effects", "parameters"):
        free = [name for name in names if name not in found.values()]
        for sheet in _fitting(kind, free):
            found[kind] = sheet
    counts = {len(region.frame) for region in regions.values()}
    if not found and len(names) == len(KINDS) and len(counts) == 1:
        return dict(zip(KINDS, names, strict=True))
    return found if len(found) == len(KINDS) else None


def _opening(name: str, data: bytes) -> tuple[str, list[str]]:
    """Encoding and the first lines of a text file."""
    raw = data[:65536]
    if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # spreadsheets: “Unicode text”
        return "utf-16", _lines(raw.decode("utf-16", errors="replace"))
    if b"\0" in raw:
        raise InputError(name, "a file that is not text", "a .csv file or an .xlsx workbook")
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
    return [line.strip(" ") if line.strip() else "" for line in text.splitlines()[:_MOST_LINES]]


def _cleaned(name: str, kind: str, region: Region, decimal: str = "") -> Cleaned:
    """A region as a table of numbers, with notes on the cells around it."""
    found = clean(name, region.frame, kind, region=region, decimal=decimal)
    unnamed = [c for c in found.frame.columns if c == ""]
    if unnamed or any(p.column == "" and p.row is not None for p in found.problems):
        letter = region.letters.get("", "") or list(region.frame.columns).index("") + 1
        error = InputError(name, f"column {letter} without a name", "a name above each column")
        return Cleaned.refused(name, error)
    if found.frame.size:
        found.frame.attrs["notes"] = (*region.notes, *found.notes)
    return found
