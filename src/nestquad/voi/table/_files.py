"""Tables from files, text of any separator and workbooks, and a preview of their reading."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from nestquad._checks import choice, shown
from nestquad._files import check_size as check_file
from nestquad._notebook import pairs
from nestquad.errors import InputError, unknown_name
from nestquad.voi.table._cells import Region, is_workbook, one_line, pandas, read_sheets, read_text
from nestquad.voi.table._limits import check_size
from nestquad.voi.table._outputs import Outputs, plain_names
from nestquad.voi.table._tables import (
    Cleaned,
    Problem,
    aligned,
    blank_places,
    check_names,
    check_unit,
    clean,
    kind_of_name,
    numbers_rows,
    without_summaries,
)

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
# Share of draws that are copies of others, beyond which it is said.
_COPIES = 0.01


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
    return _clean(kind, _opened(path)).usable()


def read_workbook(path: Source) -> dict[str, pd.DataFrame]:
    """Read parameters, costs and effects from an .xlsx workbook.

    Sheets are found by names that people use (parameters, PSA inputs, costs, effects, QALYs, in
    any case); a workbook of exactly three sheets without such names has them in that order. Of one
    sheet with all columns, names and values say which are inputs, costs and effects.
    """
    tables, _, _ = _clean_together(_opened(path), None, ())
    return {kind: tables[kind].usable() for kind in KINDS}


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
        if self.problems:
            raise self.problems[0].error
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
    roles: tuple[Column, ...] = ()
    available: tuple[str, ...] = ()
    if costs is None and effects is None:
        tables, roles, available = _clean_together(given["parameters"], columns, tuple(sheets))
    else:
        tables = {kind: _clean(kind, source) for kind, source in given.items()}
    frames = {kind: tables[kind].frame for kind in KINDS}
    # Parts of one table share its notes.
    prefix = {kind: "" if roles else f"{kind}: " for kind in KINDS}
    notes = list(dict.fromkeys(prefix[kind] + x for kind in KINDS for x in tables[kind].notes))
    problems = [problem for kind in KINDS for problem in tables[kind].problems]
    options: tuple[str, ...] = ()
    try:
        if all(frames[kind].size for kind in KINDS):  # names of rows may be in a missing table
            moved, rows_moved, _ = aligned(frames)
            frames |= moved
            copies = int(pandas().concat(frames, axis=1).duplicated().sum())
            said = f"{copies:,} draws are copies of others: was a block pasted twice?"
            notes += [*rows_moved, *([said] if copies > _COPIES * len(moved["costs"]) else [])]
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


def _clean(kind: str, source: Any) -> Cleaned:
    """Table of one kind; of a workbook, the sheet with its name."""
    if source is None:
        advice = "Parameters, costs and effects are needed."
        return Cleaned.refused(kind, InputError(kind, "nothing", "a table", advice))
    if not isinstance(source, tuple):
        return clean(kind, source, kind)
    name = f"{kind} ({source[0]})"
    try:
        if not is_workbook(*source):
            return _clean_region(name, kind, read_text(name, source[1]))
        sheets = read_sheets(*source)
        used = [sheet for sheet, region in sheets.items() if region.frame.size]
        fits = used if len(used) == 1 else _fitting_sheets(kind, used)
        if len(fits) == 1:
            return _clean_region(name, kind, sheets[fits[0]])
        raise InputError(
            name,
            f"a workbook with the sheets {', '.join(map(repr, sheets))}",
            f"one sheet with the {kind}",
            "A workbook with all three tables goes by itself, as the workbook.",
        )
    except InputError as error:
        return Cleaned.refused(name, error)


def _clean_region(name: str, kind: str, region: Region) -> Cleaned:
    """Table of numbers of a region, with notes on the cells around it."""
    table = clean(name, region.frame, kind, region)
    if "" in table.frame.columns or any(p.column == "" and p.row for p in table.problems):
        letter = region.letters.get("", "") or list(region.frame.columns).index("") + 1
        unnamed = InputError(name, f"column {letter} without a name", "a name above each column")
        return Cleaned.refused(name, unnamed)
    if table.frame.size:
        table.frame.attrs["notes"] = (*region.notes, *table.notes)
    return table


def _clean_together(
    source: Any, columns: Mapping[str, str] | None, chosen: tuple[str, ...]
) -> tuple[dict[str, Cleaned], tuple[Column, ...], tuple[str, ...]]:
    """Tables of a workbook with a sheet for each, or of one table with all columns."""
    name, available = "table", tuple[str, ...]()
    if isinstance(source, tuple) and is_workbook(*source):
        name, sheets = "workbook", read_sheets(source[0], source[1], chosen)
        available = tuple(sheets)
        for sheet in chosen:
            choice("sheets", sheet, available)
        sheets = {sheet: sheets[sheet] for sheet in chosen} or sheets
        by_kind = dict(zip(KINDS, chosen, strict=True)) if len(chosen) == len(KINDS) else None
        if by_kind := None if columns else by_kind or _sheets_by_kind(sheets):
            parts = {k: _clean_region(f"sheet {s!r}", k, sheets[s]) for k, s in by_kind.items()}
            return parts, (), available
        region = _joined(sheets)
    elif isinstance(source, tuple):
        region = read_text(f"table ({source[0]})", source[1])
    elif isinstance(source, Mapping | pandas().DataFrame):
        frame = pandas().DataFrame(source).reset_index(drop=True)
        frame.columns = [one_line(c) for c in frame.columns]
        region = Region.of(frame)
    else:
        raise InputError("file", shown(source), "a path, or a name and bytes")
    check_names(name, region.frame)
    frame, rows, left_out = without_summaries(region.frame, region)
    frame.attrs["draws alone"] = True
    region = replace(region, lines=region.lines[rows], notes=(*region.notes, *left_out))
    roles = assign_roles(frame, columns or {})
    others = other_results(roles, columns or {})
    region = replace(region, notes=(*region.notes, *others))
    parts = dict.fromkeys(KINDS, Cleaned(pandas().DataFrame()))
    try:
        for column, role in (columns or {}).items():
            if column not in roles:
                raise unknown_name("columns", column, roles)
            if role not in (INPUT, IGNORED) and not _ROLE.fullmatch(str(role)):
                raise InputError("columns", f"{shown(role)} for {column!r}", _EXPECTED)
        for kind, of in columns_by_kind(roles).items():
            check_unit(kind, name, list(of))
            letters = {new: region.letters.get(old, "") for old, new in of.items()}
            part = frame[list(of)].set_axis(list(of.values()), axis=1)
            part_region = replace(region, frame=part, letters=letters)
            parts[kind] = _clean_region(f"{name}, {kind}", kind, part_region)
    except InputError as error:
        parts["costs"] = Cleaned.refused(name, error)
        parts["costs"].frame.attrs["notes"] = region.notes
    numbers = frame.apply(pandas().to_numeric, errors="coerce")
    ranges = dict(zip(frame.columns, _ranges(numbers.where(np.isfinite(numbers))), strict=True))
    return parts, tuple(Column(c, role, *ranges[c]) for c, role in roles.items()), available


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
    if len({blank_places(regions[s].lines, regions[s].blanks) for s in used}) > 1:
        given = f"blank rows at different places on the sheets {', '.join(map(repr, used))}"
        raise InputError("workbook", given, "row i of every table is the same draw")
    columns = [(s, str(c), regions[s].frame[c]) for s in used for c in regions[s].frame.columns]
    joined: dict[str, Any] = {}
    for sheet, name, column in columns:
        same = [other for _, known, other in columns if known == name]
        unequal = not all(column.equals(other) for other in same)
        joined[f"{sheet} {name}" if unequal else name] = column
    left = [sheet for sheet in regions if sheet not in used]
    notes = [f"sheet {' and '.join(map(repr, used))} used"] if len(regions) > 1 else []
    notes += [f"sheet {', '.join(map(repr, left))} not used"] if left else []
    if len(used) == 1:
        return replace(first, notes=(*notes, *first.notes))
    frame = pandas().DataFrame(joined)
    return replace(first, frame=frame, letters={}, notes=(*notes, *first.notes))


def _fitting_sheets(kind: str, names: Sequence[str]) -> list[str]:
    """Sheets that may hold a kind of table, by the first pattern that exactly one matches."""
    for pattern in _SHEETS[kind]:
        fits = [n for n in names if re.fullmatch(pattern, n.strip(), re.IGNORECASE)]
        if len(fits) == 1:
            return fits
    return []


def _sheets_by_kind(regions: Mapping[str, Region]) -> dict[str, str] | None:
    """Sheet of each kind of table, by names or in their order; None where neither tells."""
    by_kind: dict[str, str] = {}
    for kind in ("costs", "effects", "parameters"):
        free = [name for name in regions if name not in by_kind.values()]
        if fits := _fitting_sheets(kind, free):
            by_kind[kind] = fits[0]
    lengths = {len(region.frame) for region in regions.values()}
    # A sheet for each option has columns of costs and of effects.
    kinds = [set(map(kind_of_name, region.frame.columns)) for region in regions.values()]
    is_mixed = any({"costs", "effects"} <= kind for kind in kinds)
    if not by_kind and len(regions) == len(KINDS) and len(lengths) == 1 and not is_mixed:
        return dict(zip(KINDS, regions, strict=True))
    return by_kind if len(by_kind) == len(KINDS) else None


# Roles of the columns of one table that has inputs, costs and effects together.
INPUT, IGNORED = "input", "ignored"
_ROLE = re.compile(r"(cost|effect) of (.+)", re.DOTALL)
# Words of results that follow from costs and effects, and of what a program logs: no inputs.
_DERIVED = re.compile(
    r"i?n[mh]?b\d*|icers?|inc|incr|incremental|delta|diff|difference|net|ce|ceac?|wtp|lambda_?wtp|"
    r"(cost)?effective|preferred|optimal|winner|cum|cumulative|running|seed|date|timestamp",
    re.IGNORECASE,
)
# Words of costs and effects that are inputs although they are there for each option.
_EACH = re.compile(r"\b(units?|per|prices?|daily|weekly|monthly|annual|utilit(y|ies))\b")
_DATE = r"\s*\d{4}-\d\d-\d\d.*|\s*\d{1,2}[./]\d{1,2}[./]\d{2,4}.*"
_EXPECTED = "“input”, “cost of …”, “effect of …” or “ignored”"


def assign_roles(frame: pd.DataFrame, given: Mapping[str, str]) -> dict[str, str]:
    """Role of each column: as `given`, or else from its name and its values.

    A cost and an effect of the same option make a pair; of several with one name, QALYs, totals and
    discounted values are preferred, then the nearest. The others are ignored, and so are parts of
    costs and effects by option, columns that number the draws, constant texts, dates, names of
    options, and results such as net benefits; all others are inputs.
    """
    names = [str(name) for name in frame.columns]
    words = {name: re.split(r"[\W_]+", name) for name in names}
    free = [
        name
        for name in names
        if name and not numbers_rows(name, frame[name])
        and not any(map(_DERIVED.fullmatch, words[name]))
        and not _is_label(frame[name])
    ]  # fmt: skip
    kinds = {name: kind_of_name(name) for name in free}
    costs, effects = ([n for n in free if kinds[n] == kind] for kind in ("costs", "effects"))
    effects = [name for name in effects if "utilit" not in name.lower()] or effects
    pairs = _pairs(names, costs, effects)
    if len(pairs) < 2:  # the short names of R: c1, e1, c.SoC, e.SoC
        costs, effects = (
            [name for name in free if re.match(rf"{letter}[\d._ ]", name, re.IGNORECASE)]
            for letter in ("c", "[eq]")
        )
        pairs = _pairs(names, costs, effects)
    roles = {name: INPUT if name in free else IGNORED for name in names}
    if len(pairs) > 1:
        parts = _parts_by_option([n for n in (*costs, *effects) if kinds[n]], pairs)
        for name in names:
            kind = "costs" if name in costs else "effects" if name in effects else ""
            is_result = kind and _option(plain_names([name], kind)[0]) in pairs
            if is_result or name in parts or set(frame[name].unique()) <= {*pairs}:
                roles[name] = IGNORED
        for option, (cost, effect) in pairs.items():
            roles[cost], roles[effect] = f"cost of {option}", f"effect of {option}"
    return {name: given.get(name, role) for name, role in roles.items()}


def other_results(roles: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """Notes on columns that are ignored, or inputs, although their names say costs or effects."""
    notes = {
        IGNORED: "columns ignored as other results",
        INPUT: "inputs, since no option has a cost and an effect of that name",
    }
    kinds = {n: role for n, role in roles.items() if n not in given and kind_of_name(n)}
    names = {role: [repr(n) for n in kinds if kinds[n] == role] for role in notes}
    return [f"{notes[role]}: {', '.join(those)}" for role, those in names.items() if those]


def _is_label(column: pd.Series[Any]) -> bool:
    """Whether all cells are one text, no formula or error, or dates."""
    if column.dtype.kind in "mM":
        return True
    if column.dtype.kind in "fiub":
        return False
    text = str(column.dropna().iloc[0]) if column.notna().any() else "#"
    is_date = bool(column.astype(str).str.fullmatch(_DATE).all())
    return is_date or (column.nunique() == 1 and text[:1] not in ("#", "="))


def _parts_by_option(names: Sequence[str], options: Iterable[str]) -> set[str]:
    """Names with the name of an option in them that are there for two options or more."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        plain = re.sub(r"[\W_]+", " ", name).casefold()
        # At its end first: the cost of drugs in the arm Drug.
        for option in () if _EACH.search(plain) else options:
            before, word, after = plain.rpartition(option.casefold())
            if word and plain != word:
                found.setdefault(f"{before}|{after}", {})[option] = name
    return {name for by in found.values() if len(by) > 1 for name in by.values()}


def _pairs(
    names: Sequence[str], costs: Sequence[str], effects: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Costs and effects by option."""
    pairs: dict[str, tuple[str, str]] = {}
    short = dict(zip(costs, plain_names(costs, "costs"), strict=True))
    options = dict(zip(effects, plain_names(effects, "effects"), strict=True))
    for option in dict.fromkeys(options.values()):
        same = [c for c in costs if short[c] == option]
        same = same or [c for c in costs if short[c].casefold() == option.casefold()]
        if same:
            effect = min((e for e in effects if options[e] == option), key=_preference)
            place = names.index(effect)
            cost = min(same, key=lambda c: (_preference(c), abs(names.index(c) - place)))
            pairs[_option(option)] = (cost, effect)
    return pairs


def _preference(name: str) -> tuple[bool, bool, bool]:
    """Order of columns of one option: QALYs, discounted values, totals."""
    folded = name.casefold()
    is_other = kind_of_name(name) == "effects" and "qal" not in folded
    return is_other, "undisc" in folded, not re.search("total|disc", folded)


def _option(name: str) -> str:
    return f"option {name}" if name.isdigit() else name


def columns_by_kind(roles: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Names in the tables of parameters, costs and effects by columns, from roles of columns."""
    kinds = {"parameters": {name: name for name, role in roles.items() if role == INPUT}}
    matches = {name: _ROLE.fullmatch(role) for name, role in roles.items()}
    for kind in ("costs", "effects"):
        of = {name: match[2] for name, match in matches.items() if match and match[1] + "s" == kind}
        if len(of) < 2 or len(set(of.values())) < len(of):
            raise InputError(
                "columns",
                f"{kind} of {', '.join(map(repr, of.values())) or 'no option'}",
                f"a column of {kind} for each of at least two options",
                f"Say the role of each column: {_EXPECTED}; or have sheets named parameters, costs "
                "and effects.",
            )
        kinds[kind] = of
    if not kinds["parameters"]:
        raise InputError("columns", "no input", "at least one column that is an input")
    return kinds
