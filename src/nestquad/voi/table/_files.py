"""Tables from files, text of any separator and workbooks, and a preview of their reading."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nestquad._checks import choice, shown
from nestquad._files import check_size as check_file
from nestquad._notebook import pairs
from nestquad.errors import InputError
from nestquad.voi.table._cells import is_workbook, read_sheets, read_text
from nestquad.voi.table._layout import Region
from nestquad.voi.table._limits import check_size
from nestquad.voi.table._names import check_names, check_unit, kind_of_name, one_line
from nestquad.voi.table._numbers import pandas
from nestquad.voi.table._outputs import Outputs
from nestquad.voi.table._roles import assign_roles, check_roles, columns_by_kind, other_results
from nestquad.voi.table._tables import SAME_ROWS, Problem, aligned, as_region, clean, numbers_rows

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("parameters", "costs", "effects")
Source: TypeAlias = "str | Path | tuple[str, bytes]"
"""Path, or a file in memory: its name and its bytes."""

# Names of sheets: the first pattern that exactly one sheet matches decides.
_SHEETS = {
    "parameters": (r"param\w*|psa[ _]?(inputs?|param\w*)|inputs?", r".*(param|input).*", r"psa.*"),
    "costs": (r"costs?", r".*cost.*"),
    "effects": (r"effects?|qalys?", r".*(effect|qaly|outcome|daly|utilit).*", r".*benefit.*"),
}


def read_csv(path: Source, kind: str) -> pd.DataFrame:
    """Read a table of numbers from a file with one header line.

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
    choice("kind", kind, KINDS)
    table = _clean(kind, _opened(path), problems := list[Problem]())
    _raise_first(problems)
    return table


def read_workbook(path: Source) -> dict[str, pd.DataFrame]:
    """Read parameters, costs and effects from an .xlsx workbook.

    Sheets are found by names that people use (parameters, PSA inputs, costs, effects, QALYs, in
    any case); a workbook of exactly three sheets without such names has them in that order. Of one
    sheet with all columns, names and values say which are inputs, costs and effects.
    """
    tables, _, _ = _clean_together(_opened(path), {}, (), problems := list[Problem]())
    _raise_first(problems)
    return tables


def _raise_first(problems: Sequence[Problem]) -> None:
    for problem in problems[:1]:
        raise problem.error


@dataclass(frozen=True)
class Column:
    """Column of one table with inputs, costs and effects: its role, and its range."""

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
        Descriptions of everything that was recognized, left out or converted.
    problems
        Obstacles to an analysis, each with its table, and the column, row (from 1), line of the
        file and text of the cell where it is one cell; ``str()`` of it gives advice.
    files
        From file names to SHA-256 checksums.
    columns
        Roles of the columns, where one table has inputs, costs and effects.
    sheets
        Names of the sheets of the workbook.
    """

    parameters: pd.DataFrame
    costs: pd.DataFrame
    effects: pd.DataFrame
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    columns: tuple[Column, ...] = ()
    sheets: tuple[str, ...] = ()
    as_given: bool = False

    def outputs(self, wtp: Any) -> Outputs:
        """Costs and effects at a willingness to pay; raises the first problem, if there is one."""
        _raise_first(self.problems)
        return Outputs(self.costs, self.effects, wtp, as_given=self.as_given)

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for a page: the range of every column, and the rest."""
        given = {kind: getattr(self, kind) for kind in KINDS}
        tables = {
            kind: {"rows": len(t), "columns": [*map(str, t.columns)], "ranges": _ranges(t)}
            for kind, t in given.items()
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
            "sheets": list(self.sheets),
        }

    def __str__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self._summary().items() if text]
        lines += [f"column {column.name!r}: {column.role}" for column in self.columns]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *(f"problem: {p}" for p in self.problems)])

    def _repr_html_(self) -> str:
        messages = {"notes": "; ".join(self.notes), "problems": " ".join(map(str, self.problems))}
        return pairs("Tables", {**self._summary(), **messages})

    def _summary(self) -> dict[str, str]:
        sizes = {
            kind: f"{len(table):,} draws of {', '.join(map(str, table.columns))}"
            for kind in KINDS
            if (table := getattr(self, kind)).size
        }
        return {**sizes, "options": ", ".join(self.options)}


def preview(
    parameters: Any,
    costs: Any = None,
    effects: Any = None,
    *,
    wtp: Any = None,
    columns: Mapping[str, str] | None = None,
    sheets: Sequence[str] = (),
    as_given: bool = False,
) -> Preview:
    """Read three tables and describe the reading; bad cells are listed, not raised.

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
    sheets
        Sheets of the workbook to use: one with all columns, or three in the order parameters, costs
        and effects. Others are found by names.
    as_given
        Accept costs and effects that look swapped.
    """
    given: dict[str, Any] = dict(zip(KINDS, (parameters, costs, effects), strict=True))
    files: list[tuple[str, str]] = []
    for kind, source in given.items():
        if isinstance(source, str | Path | tuple):
            given[kind] = name, data = _opened(source)
            files.append((one_line(name), hashlib.sha256(data).hexdigest()))
    problems: list[Problem] = []
    roles: tuple[Column, ...] = ()
    available: tuple[str, ...] = ()
    if costs is None and effects is None:
        frames, roles, available = _clean_together(
            given["parameters"], columns or {}, tuple(sheets), problems
        )
    else:
        frames = {kind: _clean(kind, source, problems) for kind, source in given.items()}
    # Parts of one table share its notes.
    prefix = {kind: "" if roles else f"{kind}: " for kind in KINDS}
    told = {kind: frames[kind].attrs.get("notes", ()) for kind in KINDS}
    notes = list(dict.fromkeys(prefix[kind] + note for kind in KINDS for note in told[kind]))
    options: tuple[str, ...] = ()
    try:
        if all(frames[kind].size for kind in KINDS):  # names of rows may be in a missing table
            moved, rows_moved, _ = aligned(frames)
            frames |= moved
            notes += rows_moved
        if frames["costs"].size and frames["effects"].size:
            for kind in ("costs", "effects"):  # noted already
                frames[kind].attrs = {**frames[kind].attrs, "notes": ()}
            # At a willingness to pay of 0 names alone can show that tables are swapped.
            k = 0.0 if wtp is None else wtp
            outputs = Outputs(frames["costs"], frames["effects"], k, as_given=as_given)
            options, notes = outputs.options, [*notes, *outputs.notes]
    except InputError as error:
        problems = problems or [Problem(error.argument, error)]
    return Preview(
        **frames,
        options=options,
        notes=tuple(notes),
        problems=tuple(problems),
        files=tuple(files),
        columns=roles,
        sheets=available,
        as_given=as_given or wtp is not None,
    )


def _opened(source: Source) -> tuple[str, bytes]:
    """Name and bytes of a file."""
    match source:
        case (str(), bytes()):
            return source
        case str() | Path():
            path = Path(source)
            check_file(path, "file")
            check_size(path.name, path.stat().st_size)
            return path.name, path.read_bytes()
    raise InputError("file", shown(source), "a path, or a name and bytes")


def _clean(kind: str, source: Any, problems: list[Problem]) -> pd.DataFrame:
    """Table of one kind."""
    name = f"{kind} ({source[0]})" if isinstance(source, tuple) else kind
    try:
        if source is None:
            advice = "Parameters, costs and effects are needed."
            raise InputError(kind, "nothing", "a table", advice)
        if isinstance(source, tuple) and is_workbook(*source):
            source = _only_sheet(name, kind, read_sheets(*source))
        elif isinstance(source, tuple):
            source = read_text(name, source[1], kind)
        return clean(name, source, kind, problems)
    except InputError as error:
        problems.append(Problem(name, error))
        return pandas().DataFrame()


def _only_sheet(name: str, kind: str, sheets: Mapping[str, Region]) -> Region:
    """Table of the only sheet of a workbook with any, or of the sheet with the name of its kind."""
    used = [sheet for sheet, region in sheets.items() if region.frame.size]
    fits = used if len(used) == 1 else _fitting_sheets(kind, used)
    if len(fits) != 1:
        given = f"a workbook with the sheets {', '.join(map(repr, sheets))}"
        advice = "A workbook with all three tables goes by itself, as the workbook."
        raise InputError(name, given, f"one sheet with the {kind}", advice)
    return sheets[fits[0]]


def _clean_together(
    source: Any, given: Mapping[str, str], chosen: tuple[str, ...], problems: list[Problem]
) -> tuple[dict[str, pd.DataFrame], tuple[Column, ...], tuple[str, ...]]:
    """Tables of a workbook with a sheet for each, or of one table with all columns."""
    name, available = "table", tuple[str, ...]()
    if isinstance(source, tuple) and is_workbook(*source):
        name, sheets = "workbook", read_sheets(source[0], source[1], chosen)
        available = tuple(sheets)
        for sheet in chosen:
            choice("sheets", sheet, available)
        sheets = {sheet: sheets[sheet] for sheet in chosen} or sheets
        by_kind = dict(zip(KINDS, chosen, strict=True)) if len(chosen) == len(KINDS) else None
        if by_kind := None if given else by_kind or _sheets_by_kind(sheets):
            if left := [s for s in sheets if s not in by_kind.values() and sheets[s].frame.size]:
                known = sheets[by_kind["parameters"]]
                note = f"sheet {', '.join(map(repr, left))} not used"
                sheets[by_kind["parameters"]] = replace(known, notes=(note, *known.notes))
            tables = {
                kind: clean(f"sheet {sheet!r}", sheets[sheet], kind, problems)
                for kind, sheet in by_kind.items()
            }
            return tables, (), available
        region = _joined(sheets)
    elif isinstance(source, tuple):
        region = read_text(f"table ({source[0]})", source[1])
    elif isinstance(source, Mapping | pandas().DataFrame):
        frame = pandas().DataFrame(source).reset_index(drop=True)
        region = as_region(name, frame.set_axis(map(one_line, frame.columns), axis=1))
    else:
        raise InputError("file", shown(source), "a path, or a name and bytes")
    frame = region.frame
    check_names(name, list(frame.columns))
    roles = assign_roles(frame, given, region.hidden)
    folded = [f"{name!r} ({roles[name]})" for name in region.hidden]
    notes = [f"hidden columns: {', '.join(folded)}"] if folded else []
    notes = [*region.notes, *notes, *other_results(roles, given)]
    region = replace(region, notes=tuple(notes), hidden=())
    tables = dict.fromkeys(KINDS, pandas().DataFrame())
    try:
        check_roles(roles, given)
        for kind, of in columns_by_kind(roles).items():
            check_unit(kind, name, list(of))
            letters = {new: region.letters.get(old, "") for old, new in of.items()}
            part = frame[list(of)].set_axis(list(of.values()), axis=1)
            part = replace(region, frame=part, letters=letters)
            tables[kind] = clean(f"{name}, {kind}", part, kind, problems)
    except InputError as error:
        if len(available) > 1 and not chosen:
            advice = f"{error.advice} Or choose among the sheets {', '.join(map(repr, available))}"
            advice = f"{advice}: --sheets NAME …, or sheets= in Python."
            error = InputError(error.argument, error.given, error.expected, advice)
        problems.append(Problem(name, error))
        tables["costs"].attrs["notes"] = region.notes
    numbers = frame.apply(pandas().to_numeric, errors="coerce")
    ranges = dict(zip(frame.columns, _ranges(numbers.where(np.isfinite(numbers))), strict=True))
    return tables, tuple(Column(c, role, *ranges[c]) for c, role in roles.items()), available


def _ranges(table: pd.DataFrame) -> list[list[float | None]]:
    """Least, mean and largest number of each column; None where it has none."""
    ends = table.agg(["min", "mean", "max"]) if table.size else table
    return [[float(x) if np.isfinite(x) else None for x in ends[c]] for c in ends.columns]


def _joined(regions: Mapping[str, Region]) -> Region:
    """Largest table of a workbook, with columns of other sheets with the same number of draws.

    Columns of one name that differ between sheets, as with a sheet for each option, get the names
    of their sheets.
    """
    if not regions:
        raise InputError("workbook", "no table", "a header and one row for each draw")
    largest = max(regions, key=lambda sheet: regions[sheet].frame.size)
    first = regions[largest]
    used = [s for s, other in regions.items() if len(other.frame) == len(first.frame) > 0]
    used = sorted(used or [largest], key=lambda sheet: sheet != largest)
    if len({regions[sheet].blanks for sheet in used}) > 1:
        given = f"blank rows at different places on the sheets {', '.join(map(repr, used))}"
        raise InputError("workbook", given, SAME_ROWS)
    columns = [(s, str(c), regions[s].frame[c]) for s in used for c in regions[s].frame.columns]
    joined, hidden = dict[str, Any](), dict[str, None]()
    for sheet, name, column in columns:
        same = [other for _, known, other in columns if known == name]
        unequal = not all(column.equals(other) for other in same)
        if unequal and numbers_rows(name, column):
            given = f"other numbers of draws, {name!r}, on the sheets {', '.join(map(repr, used))}"
            raise InputError("workbook", given, SAME_ROWS)
        joined[key := f"{sheet} {name}" if unequal else name] = column
        hidden |= {key: None} if name in regions[sheet].hidden else {}
    left = [sheet for sheet in regions if sheet not in used]
    notes = [f"sheet {' and '.join(map(repr, used))} used"] if len(regions) > 1 else []
    notes += [f"sheet {', '.join(map(repr, left))} not used"] if left else []
    if len(used) == 1:
        return replace(first, notes=(*notes, *first.notes))
    frame = pandas().DataFrame(joined)
    notes += first.notes
    return replace(first, frame=frame, letters={}, notes=tuple(notes), hidden=tuple(hidden))


def _fitting_sheets(kind: str, names: Sequence[str]) -> list[str]:
    """Sheets that may hold a kind of table, by the first pattern that exactly one matches."""
    for pattern in _SHEETS[kind]:
        fits = [n for n in names if re.fullmatch(pattern, n.strip(), re.IGNORECASE)]
        if len(fits) == 1:
            return fits
    return []


def _sheets_by_kind(regions: Mapping[str, Region]) -> dict[str, str] | None:
    """Sheet of each kind of table, by names or in their order; None where neither tells."""
    by_kind, free = dict[str, str](), list(regions)
    for kind in ("costs", "effects", "parameters"):
        for sheet in _fitting_sheets(kind, free):
            by_kind[kind] = sheet
            free.remove(sheet)
    lengths = {len(region.frame) for region in regions.values()}
    # A sheet for each option has columns of costs and of effects.
    kinds = [set(map(kind_of_name, region.frame.columns)) for region in regions.values()]
    is_mixed = any({"costs", "effects"} <= kind for kind in kinds)
    if not by_kind and len(regions) == len(KINDS) and len(lengths) == 1 and not is_mixed:
        return dict(zip(KINDS, regions, strict=True))
    return by_kind if len(by_kind) == len(KINDS) else None
