"""Tables of numbers from data frames and matrices: cells, names and shapes that people use.

What is understood beyond plain numbers is noted, what is unclear is refused, and errors name the
cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import shown
from nestquad._typing import Array, Indices
from nestquad.errors import InputError, optional_module
from nestquad.voi.table._numbers import is_float, read_numbers
from nestquad.voi.table._sheets import Region, one_line, summary_rows

if TYPE_CHECKING:
    import pandas as pd

FEWEST_ROWS = 20
# Squares of net benefits and their sums are floats.
LARGEST = 1e100
_SEPARATED = re.compile(r"[-+]?\d{1,3}([ ,.'’\u00a0\u202f]\d{3})+([.,]\d+)?")
# 3.6m and £20k: letters for thousands and millions.
_ABBREVIATED = re.compile(
    r"[-+−(]*[£$€¥]?[-+−(]?[\d.,]*\d\s?(k|m|mn|mio|bn|thousand|million|billion)\.?\)?",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
# Names that number draws and nothing else, and names that may also be those of an option.
_DRAW_NAMES = re.compile(
    r"(psa|mc|sim(ulation)?s?|iter(ation)?s?|draws?|samples?|row)s?"
    r"([ _.]?(id|no|nr|number|index|run|sample|iteration|draw|names?))?",
    re.IGNORECASE,
)
_ROW_NAMES = re.compile(rf"|x|unnamed: ?\d+|index|id|run|{_DRAW_NAMES.pattern}", re.IGNORECASE)
# Names of columns in an error; more are no help.
_MOST_LISTED = 30
# A column of nothing but bad cells needs no more examples.
_MOST_PROBLEMS = 100
# Words in the names of columns that hold costs, or effects; letters beside the names of options.
_WORDS = {
    "costs": r"costs?",
    "effects": r"effects?|effs?|qalys?|lys?|dalys?|outcomes?|utilit(?:y|ies)",
}
_LETTERS = {"costs": "c", "effects": "[euq]"}


def pandas() -> Any:
    """The pandas module, or an error that says how to get it."""
    return optional_module("pandas", "Value of information", "voi")


@dataclass(frozen=True)
class Problem:
    """Why a table cannot be used, and the cell where it is one: rows count from 1."""

    table: str
    error: InputError
    column: str = ""
    row: int | None = None
    line: int | None = None
    cell: str = ""
    address: str = ""

    def __str__(self) -> str:
        return str(self.error)


@dataclass(frozen=True)
class Cleaned:
    """A table of floats, and what prevents its use.

    Its ``attrs`` have notes on what was understood to get it, and columns by category.
    """

    frame: pd.DataFrame
    problems: tuple[Problem, ...] = ()

    @classmethod
    def refused(cls, table: str, error: InputError) -> Cleaned:
        """No table, and why."""
        return cls(pandas().DataFrame(), (Problem(table, error),))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.frame.attrs.get("notes", ()))

    def usable(self) -> pd.DataFrame:
        """The table; raises the first problem, if there is one."""
        if self.problems:
            raise self.problems[0].error
        return self.frame


def clean(
    argument: str, table: Any, kind: str, *, region: Region | None = None, decimal: str = ""
) -> Cleaned:
    """A table of floats with distinct text names, from a DataFrame or a matrix, and all bad cells.

    `kind` is ``"parameters"``, ``"costs"``, ``"effects"`` or ``"net_benefit"``. Columns without
    names get a word and a number. Errors name the `argument` and, for a table from a file, the
    cell in its `region`; `decimal` is the decimal mark of the file, where one is known.
    """
    try:
        frame = _as_frame(argument, table, "parameter " if kind == "parameters" else "option ")
        if "notes" in frame.attrs:  # it came from here
            return Cleaned(frame)
        unnamed = bool(frame.attrs.get("unnamed"))
        _check_names(argument, frame)
        notes: list[str] = []
        frame = _reshaped(argument, frame, kind, notes)
        frame = _one_kind(frame, kind, notes)
        if len(frame) < FEWEST_ROWS:
            raise InputError(
                argument,
                f"{len(frame)} rows",
                f"at least {FEWEST_ROWS} rows, one a draw of the probabilistic analysis",
                "A thousand draws or more give useful answers.",
            )
        frame, rows, left_out = without_summaries(frame, region)
        notes += left_out
        frame = _without_row_names(argument, frame, kind, notes)
        _check_names(argument, frame)
    except InputError as error:
        return Cleaned.refused(argument, error)
    numbers: dict[str, Array] = {}
    problems: list[Problem] = []
    categories: dict[str, tuple[str, ...]] = {}
    for name in frame.columns:
        column = frame[name]
        levels = _levels(column) if kind == "parameters" else ()
        if len(levels) > 1:
            shown = {f"{name} = {level}": level for level in levels[1:]}
            texts = _texts(column)
            numbers |= {label: (texts == x).to_numpy(float) for label, x in shown.items()}
            categories[name] = tuple(shown)
            notes.append(f"{name!r} is a category, as indicators against {levels[0]!r}")
            continue
        values, note = _as_floats(column, decimal)
        notes += [f"{name!r} {note}"] if note else []
        bad = np.flatnonzero(~(np.abs(values) < LARGEST))
        told: set[str] = set()
        for row in map(int, bad[:_MOST_PROBLEMS]):
            place, where = _located(name, int(rows[row]), region)
            refusal, cell, what = _bad_cell(argument, where, column.iloc[row], bad.size)
            problem = Problem(argument, refusal, name, cell=cell, **place)
            if what not in told:
                problems.append(problem)
            told |= {what} & _FORMATS
        numbers[name] = values
    cleaned = pandas().DataFrame(numbers, index=frame.index)
    cleaned.attrs = {
        "notes": tuple(notes),
        "categories": categories,
        "counted": bool(frame.attrs.get("counted")),
        "unnamed": unnamed,
        "guessed": frame.attrs.get("guessed", ()),
    }
    return Cleaned(cleaned, tuple(problems))


def aligned(
    tables: Mapping[str, pd.DataFrame], to: Any = None
) -> tuple[dict[str, pd.DataFrame], list[str], Any]:
    """Tables whose row i is the same draw, notes on what was moved, and the names of rows.

    Rows are matched by their names where two tables have them: an index of a data frame, or a
    column such as Iteration. A table without names has its draws in the order of the others, which
    is refused as unclear where these are numbers in disorder. `to` are names of rows to follow.
    """
    check_rows({name: len(table) for name, table in tables.items()})
    found = {name: _row_names(table) for name, table in tables.items()}
    names = {name: labels for name, labels in found.items() if labels is not None}
    first, target = ("outputs", to) if to is not None else next(iter(names.items()), ("", None))
    if target is None:
        return dict(tables), [], None
    for name, labels in names.items():
        if not labels.sort_values().equals(target.sort_values()):
            alone = [*labels.difference(target), *target.difference(labels)]
            shown = f", such as {alone[0]!s}" if alone else ""
            raise InputError(
                f"{first} and {name}",
                f"names of rows that one of them has and the other has not{shown}",
                "the same draws in every table",
                "Are they from different runs? If row i is the same draw, remove the names.",
            )
    if to is None and (ordered := [n for n in names if _in_order(names[n])]):
        first, target = ordered[0], names[ordered[0]]
    bare = [name for name in tables if name not in names]
    for name, table in tables.items():
        others = [one for one in bare if one in _WORDS]
        if name in _WORDS and table.attrs.get("guessed") and others:
            raise InputError(
                name,
                f"the column {table.attrs['guessed'][0]!r}, which counts the rows, in some order, "
                f"and no such column in {' and '.join(others)}",
                "a column for each option, and one that numbers the draws in both tables or none",
                "If it numbers the draws, call it Iteration, or remove it.",
            )
    if bare and not _in_order(target) and _is_numeric(target):
        raise InputError(
            " and ".join(bare),
            f"no names of rows, and {first} with rows in the order {target[0]:g}, {target[1]:g}, "
            f"{target[2]:g} …",
            "names of rows, such as a column Iteration, in every table, or rows in order",
            f"If row i is the same draw in all tables, remove the names from {first}.",
        )
    moved, notes = dict(tables), []
    for name, labels in names.items():
        if labels.equals(target):
            continue
        if not target.is_unique:
            raise InputError(
                f"{first} and {name}",
                "rows in a different order, and several rows of the same name",
                "the same draw in row i of every table",
            )
        moved[name] = tables[name].iloc[labels.get_indexer(target)]
        notes.append(f"rows of {name} are in the order of {first}, by their names")
    if bare and notes:
        notes.append(f"rows of {' and '.join(bare)}, which have no names, are taken in that order")
    return moved, notes, target


def unknown_column(argument: str, given: str, known: Iterable[str]) -> InputError:
    """Error for a name that no column has, with the nearest name as it is written."""
    names = list(known)
    plain = {re.sub(r"[\W_]+", "", name).casefold(): name for name in reversed(names)}
    near = get_close_matches(re.sub(r"[\W_]+", "", given).casefold(), plain, n=1, cutoff=0.4)
    listed = ", ".join(map(repr, names[:_MOST_LISTED])) + ", …" * (len(names) > _MOST_LISTED)
    advice = f"Did you mean {plain[near[0]]!r}?" if near else ""
    return InputError(argument, repr(given), f"one of {listed}", advice)


def check_rows(counts: Mapping[str, int]) -> None:
    """Refuse tables of different lengths."""
    if len(set(counts.values())) > 1:
        raise InputError(
            " and ".join(counts),
            ", ".join(f"{count:,} rows of {name}" for name, count in counts.items()),
            "the same number of rows in each: row i of every table is the same draw",
            "Was a header line or the last draw lost, or are the tables from different runs?",
        )


def _row_names(frame: pd.DataFrame) -> Any:
    """Names of rows: numbers, or texts; None where there are none. Numbers from 0 count from 1."""
    index = frame.index
    if _is_default(index) and not frame.attrs.get("counted"):
        return None
    try:
        names = pandas().Index(index, dtype=float, name=None)
    except (TypeError, ValueError):
        return pandas().Index([str(one).strip() for one in index])
    return names + 1.0 if _counts(np.sort(names.to_numpy()), 0) else names


def _is_default(index: Any) -> bool:
    return isinstance(index, pandas().RangeIndex) and (index.start, index.step) == (0, 1)


def _is_numeric(labels: Any) -> bool:
    return bool(labels.dtype.kind == "f")


def _in_order(labels: Any) -> bool:
    return _is_numeric(labels) and bool(labels.is_monotonic_increasing)


def _counts(values: Array, *starts: int) -> bool:
    """Whether numbers go up by one from a start: 0 or 1 unless said otherwise."""
    up = bool(values.size) and bool(np.all(np.diff(values) == 1))
    return up and float(values[0]) in (starts or (0, 1))


def _measured(column: pd.Series[Any]) -> bool:
    """Whether all texts begin with a number, as 10.5 mg and 2020-01-31 do, and names do not."""
    return bool(_texts(column).str.match(r"[-+−]?\d").all())


def _permutes(values: Array) -> bool:
    """Whether numbers are 1 … n or 0 … n − 1 in some order."""
    return bool(np.isfinite(values).all()) and _counts(np.sort(values))


def matched_options(costs: pd.DataFrame, effects: pd.DataFrame) -> tuple[list[str], list[str], str]:
    """Columns of effects in the order of costs, names of the options, and a note.

    Names are compared as they are, then without case, punctuation and words such as cost and
    effect: ``cost_A`` and ``qaly_A`` are both A. A matrix has no names: its options are in the
    order of the other table.
    """
    c, e = list(map(str, costs.columns)), list(map(str, effects.columns))
    if c == e:
        return e, c, ""
    bare = [bool(table.attrs.get("unnamed")) for table in (costs, effects)]
    if any(bare) and len(c) == len(e):
        one, other = ("costs", "effects") if bare[0] else ("effects", "costs")
        note = f"options of {one}, which have no names, are in the order of {other}"
        return e, (e if bare[0] else c), note
    if sorted(c) == sorted(e):
        return c, c, "options of effects are in the order of costs, by name"
    shown, plain_e = c, [name.casefold() for name in e]
    if sorted(name.casefold() for name in c) != sorted(plain_e):
        shown, plain_e = (
            plain_names(c, "costs"),
            [name.casefold() for name in plain_names(e, "effects")],
        )
    plain_c = [name.casefold() for name in shown]
    if sorted(plain_c) == sorted(plain_e) and len(set(plain_c)) == len(c):
        order = [e[plain_e.index(name)] for name in plain_c]
        pairs = ", ".join(f"{a} with {b}" for a, b in zip(c, order, strict=True))
        options = [f"option {name}" if name.isdigit() else name for name in shown]
        return order, options, f"options matched by name: {pairs}"
    raise InputError(
        "costs and effects",
        f"the options {', '.join(map(repr, c))} in costs and {', '.join(map(repr, e))} in effects",
        "the same names in both, in any order",
        "Rename the columns, one name for each option.",
    )


def plain_names(names: Sequence[str], kind: str) -> list[str]:
    """Names without punctuation and the word for costs or effects before or after them."""
    word = rf"(total[ _.]*)?({_WORDS[kind]}|{_LETTERS[kind]})"
    found = []
    for name in names:
        text = re.sub(r"[\s_.:/|,\-()]+", " ", name).strip()
        short = re.sub(rf"^{word}(?= |\d|$)|(?<= ){word}$", "", text, flags=re.I).strip()
        found.append(short or text)
    return found


def _one_kind(frame: pd.DataFrame, kind: str, notes: list[str]) -> pd.DataFrame:
    """Costs or effects alone, where a table has columns of both, such as cost_A and qaly_A."""
    if kind not in _WORDS:
        return frame
    others = [c for c in frame.columns if kind_of_name(c) not in (kind, "")]
    if not others or sum(kind_of_name(c) == kind for c in frame.columns) < 2:
        return frame
    notes.append(f"the columns {', '.join(map(repr, others))} are no {kind} and are left out")
    return frame[[c for c in frame.columns if c not in others]]


def kind_of_name(name: str) -> str:
    """Whether a column holds costs or effects, by words of its name; "" where it says neither."""
    words = set(re.split(r"[\W\d_]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", name).casefold()))
    found = [k for k, word in _WORDS.items() if any(re.fullmatch(word, one) for one in words)]
    return found[0] if len(found) == 1 else ""


def _value_column(argument: str, kind: str, names: Sequence[str]) -> str:
    """The column of a long table that holds its costs or effects, by its name where it says so."""
    fits = [c for c in names if kind_of_name(c) == kind]
    if not fits and len(names) == 1 and not kind_of_name(names[0]):
        fits = list(names)
    if len(fits) != 1:
        word = {"costs": "cost", "effects": "qaly"}[kind]
        raise InputError(
            argument,
            f"a table in long format with {'several' if fits else 'no'} columns of {kind} among "
            f"{', '.join(map(repr, names))}",
            f"one column of {kind}, with a word such as {word!r} in its name",
            f"Call it {word!r}, and remove the columns that are not meant.",
        )
    return fits[0]


def _without_row_names(
    argument: str, frame: pd.DataFrame, kind: str, notes: list[str]
) -> pd.DataFrame:
    """Columns that name the rows become the index; what merely may be one is refused."""
    found: list[tuple[bool, Any]] = []
    guessed: list[str] = []
    floats = {name: _as_floats(frame[name])[0] for name in frame.columns}
    # Draws are no permutation of 1 … n: it numbers them, whatever its name. Parameters that are all
    # or several of them such may be ranks.
    numbering = [name for name, values in floats.items() if _permutes(values)]
    if kind not in _WORDS and (len(numbering) > 1 or frame.shape[1] == 1):
        numbering = []
    for name, values in floats.items():
        column = frame[name]
        named, numbers = (p.fullmatch(name) is not None for p in (_ROW_NAMES, _DRAW_NAMES))
        unnamed = name == "" or name.startswith("Unnamed")
        values = np.where(np.isinf(values), np.nan, values)
        text = bool(np.isnan(values).all()) and bool(column.notna().all())
        whole, up = bool(np.all(values == np.round(values))), bool(np.all(np.diff(values) > 0))
        counts, permuted = _counts(values), _permutes(values)
        labels = (
            (text and (named or (name == frame.columns[0] and not _measured(column))))
            or (whole and (numbers or (named and (up or permuted or unnamed))))
        ) and column.astype(str).is_unique
        counter = name in numbering and kind != "net_benefit"
        if (named and counts) or labels or counter:
            shown = "without a name, as R writes row names," if unnamed else repr(name)
            what = "counts the rows" if counts else "names the rows"
            notes.append(f"the column {shown} {what} and is left out")
            frame = frame.drop(columns=name)
            found.append((counts, column))
            guessed += [] if named or labels else [name]
        elif kind != "parameters" and (permuted or numbers):
            raise InputError(
                argument,
                f"the column {name!r}, which "
                + ("counts the rows" if permuted else "does not number the rows, as its name says"),
                "a column for each option and nothing else",
                "If it numbers the draws, call it Iteration, with each number once, or remove it.",
            )
    if not found:
        return frame
    # Of several, one that merely counts says least.
    frame = _named(frame, min(found, key=lambda one: one[0])[1])
    frame.attrs = {**frame.attrs, "guessed": tuple(guessed)}
    return frame


def without_summaries(
    frame: pd.DataFrame, region: Region | None
) -> tuple[pd.DataFrame, Indices, list[str]]:
    """Draws alone, their rows, and a note on rows of means and totals."""
    summaries = summary_rows(frame)
    rows = np.array([i for i in range(len(frame)) if i not in summaries], dtype=np.intp)
    if not summaries:
        return frame, rows, []
    kept = frame.iloc[rows].copy()
    for name in kept.columns:
        values = pandas().to_numeric(kept[name], errors="coerce")
        if values.notna().all():  # its only text was the label
            kept[name] = values
    kept = kept.reset_index(drop=True) if _is_default(frame.index) else kept
    places = [
        f"row {i + 1:,}" if region is None else f"line {region.lines[i]:,}" for i in summaries
    ]
    told = ", ".join(f"{at} ({w})" for at, w in zip(places, summaries.values(), strict=True))
    return kept, rows, [f"rows that summarize the draws are left out: {told}"]


def _located(name: str, index: int, region: Region | None) -> tuple[dict[str, Any], str]:
    """Row, line and address of a cell, and words for its place."""
    if region is None:
        return {"row": index + 1}, f"column {name!r}, row {index + 1:,}"
    line = int(region.lines[index])
    row, letter = line - region.header, region.letters.get(name, "")
    where = f"column {name!r}, row {row:,} (line {line:,} of the file)"
    where = f"cell {letter}{line} (column {name!r})" if letter else where
    return {"row": row, "line": line, "address": f"{letter}{line}" if letter else ""}, where


def _named(frame: pd.DataFrame, names: Any) -> pd.DataFrame:
    """A table with names of rows; those that count them leave the index of a table without."""
    frame = frame.set_axis(pandas().Index(names), axis=0)
    if frame.index.dtype.kind in "fiu" and _counts(frame.index.to_numpy()):
        frame = frame.reset_index(drop=True)
        frame.attrs = {**frame.attrs, "counted": True}
    return frame


def _reshaped(argument: str, frame: pd.DataFrame, kind: str, notes: list[str]) -> pd.DataFrame:
    """A table in long format (draw, option, value) as one with a column for each option."""
    texts = [c for c in frame.columns if len(_levels(frame[c], few=len(frame))) > 1]
    numeric = [c for c in frame.columns if c not in texts]
    if len(texts) != 1 or not numeric:
        return frame
    names = _texts(frame[texts[0]])
    counts = names.value_counts()
    draws = [c for c in numeric if _ROW_NAMES.fullmatch(c) and frame[c].nunique() < len(frame)]
    values = [c for c in numeric if c not in draws and not _ROW_NAMES.fullmatch(c)]
    enough = counts.min() >= FEWEST_ROWS and bool(values)
    if enough and kind in _WORDS:
        values = [_value_column(argument, kind, values)]
    if not enough or len(values) > 1 or (kind == "parameters" and not draws):
        return frame
    if counts.nunique() > 1:
        raise InputError(
            argument,
            f"a table in long format with {counts.iloc[0]:,} rows of {counts.index[0]!r} and "
            f"{counts.iloc[-1]:,} of {counts.index[-1]!r}",
            f"as many rows for each {texts[0]}",
        )
    draw = frame[draws[0]] if draws else frame.groupby(names).cumcount()
    if pandas().MultiIndex.from_arrays([draw, names]).has_duplicates:
        raise InputError(
            argument,
            f"the same {draws[0]} and {texts[0]} in two rows",
            "one row for each draw and option",
        )
    named = frame.assign(**{"": draw, texts[0]: names})
    wide = named.pivot(index="", columns=texts[0], values=values[0])[list(dict.fromkeys(names))]
    wide.columns = list(wide.columns)
    notes.append(
        f"long format: {values[0]!r} by {texts[0]!r}, draws "
        + (f"by {draws[0]!r}" if draws else "in the order of rows")
    )
    return _named(wide, wide.index) if draws else wide.reset_index(drop=True)


def _texts(column: pd.Series[Any]) -> pd.Series[str]:
    """Cells as texts in one line: what levels are, and what indicators and options compare."""
    return column.astype(object).map(one_line)


def _levels(column: pd.Series[Any], few: int | None = None) -> tuple[str, ...]:
    """Levels of a column of texts, most frequent first; none where cells are numbers or missing.

    A level needs ten rows on average for its mean to be an estimate.
    """
    if column.dtype.kind in "fiub" or bool(column.isna().any()):
        return ()
    distinct = _texts(column).value_counts()
    if len(distinct) > (len(column) // 10 if few is None else few // 2):
        return ()
    levels = tuple(distinct.index)
    # Letters, and no word for a missing value: 1,234 and #DIV/0! are bad cells, not levels.
    named = all(re.search(r"[^\W\d_]", level) and level[0] != "#" for level in levels)
    named = named and not any(map(_ABBREVIATED.fullmatch, levels))
    missing = {"na", "n/a", "nan", "null", "none", "inf", "-inf"} & {x.casefold() for x in levels}
    return levels if named and not missing and not any(map(is_float, levels)) else ()


def _as_frame(argument: str, table: Any, prefix: str) -> pd.DataFrame:
    pd = pandas()
    if isinstance(table, pd.Series):
        table = table.to_frame(table.name if table.name is not None else f"{prefix}1")
    expected = "a data frame or a matrix of numbers, one row a draw"
    if isinstance(table, pd.DataFrame):
        frame = table.copy(deep=False)
        frame.columns = [one_line(name) for name in frame.columns]
        unreal = [name for name in frame.columns if frame[[name]].dtypes.iloc[0].kind in "cmM"]
        if unreal:
            what = frame[[unreal[0]]].dtypes.iloc[0]
            raise InputError(argument, f"the column {unreal[0]!r} of {what}", expected)
        return frame
    try:
        if isinstance(table, dict):
            return _as_frame(argument, pd.DataFrame(table), prefix)
        matrix = np.asarray(table)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        advice = f"Rows and columns have to be of one length each ({error})."
        raise InputError(argument, f"a {type(table).__name__}", expected, advice) from None
    if isinstance(table, np.ma.MaskedArray):
        raise InputError(argument, "a masked array", expected, "Remove the draws without a value.")
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiubOU":
        what = "nothing" if table is None else f"an array of {matrix.dtype} of shape {matrix.shape}"
        raise InputError(argument, what, expected)
    names = [f"{prefix}{j + 1}" for j in range(matrix.shape[1])]
    frame = pd.DataFrame(matrix, columns=names)
    frame.attrs["unnamed"] = True
    return frame


def numbers_rows(name: str, column: pd.Series[Any]) -> bool:
    """Whether a column numbers the draws: by its name, or as a permutation of 1 … n."""
    if column.dtype.kind not in "fiu":
        return bool(_DRAW_NAMES.fullmatch(name))
    values = column.to_numpy(dtype=float)
    whole = bool(np.all(values == np.round(values)))
    return (whole and bool(_ROW_NAMES.fullmatch(name))) or _permutes(values)


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
    numeric = [name for name in names if is_float(name)]
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


def _as_floats(column: pd.Series[Any], decimal: str = "") -> tuple[Array, str]:
    """Numbers, NaN for what is none, and a note where cells are written in another way."""
    note = ""
    if column.dtype.kind not in "fiub":
        # Pandas takes dates for nanoseconds, and integers beyond the range of floats for texts.
        known = (str, bool, np.bool_, float, np.floating)
        cells = column.map(lambda cell: cell if isinstance(cell, known) else str(cell))
        numbers = pandas().to_numeric(cells, errors="coerce")
        # A number format is one of texts; among numbers, a text is a stray.
        if bool(column.map(lambda cell: isinstance(cell, str)).all()):
            read = read_numbers(column.tolist(), decimal)
            numbers, note = pandas().Series(read.values), read.note
        column = numbers
    values: Array = column.to_numpy(dtype=float, na_value=np.nan)
    return values, note if np.isfinite(values).all() else ""


_FORMATS = {"separators", "percent", "letters", "formula"}
"""Problems of a whole column, which are told once."""


def _bad_cell(argument: str, where: str, cell: Any, count: int) -> tuple[InputError, str, str]:
    """The error of a cell, its text, and its kind."""
    text = "" if cell is None or cell is pandas().NA or cell != cell else str(cell).strip()
    more = f" and {count - 1:,} more like it in this column" if count > 1 else ""
    kind, what, advice = _diagnosis(text)
    expected = "a finite number in every cell"
    return InputError(argument, f"{what} in {where}{more}", expected, advice), text, kind


def _diagnosis(text: str) -> tuple[str, str, str]:
    """Kind of a bad cell, its description, and advice."""
    if not text:
        remove = "Remove the whole draw from all tables, or find out why the model has no value."
        return "cell", "a missing value (an empty cell)", remove
    if text[0] == "#" and text[1:2].isalpha():
        return "cell", f"the error {text}", "Find out why the model has no value there."
    if text[0] == "=":
        save = "Open the workbook in Excel or LibreOffice, let it calculate, save it, try again."
        return "formula", f"the formula {shown(text)} without a saved value", save
    for kind, (matches, words, advice) in _DIAGNOSES.items():
        if matches(text):
            return kind, words.format(shown(text)), advice
    return "cell", f"the text {shown(text)}", "Notes beside the numbers have to go."


# Kinds of bad cells: whether a text is one, its description, and advice.
_DIAGNOSES: dict[str, tuple[Callable[[str], object], str, str]] = {
    "letters": (
        _ABBREVIATED.fullmatch,
        "{}, a number with a letter for thousands or millions",
        "Write it in full, as 3600000 for 3.6m.",
    ),
    "separators": (
        lambda text: _SEPARATED.fullmatch(text.strip("()£$€¥ ")) or _DECIMAL_COMMA.fullmatch(text),
        "{}, a number with separators",
        "Write numbers without separators of thousands and with a decimal point, as 1234.5 "
        "(in a spreadsheet: number format “General”).",
    ),
    "percent": (
        lambda text: text.endswith("%"),
        "{} beside cells without %",
        "Write the whole column with % or without.",
    ),
    "infinite": (
        lambda text: text.lower().lstrip("+-") in ("inf", "infinity"),
        "an infinite number",
        "Find out why the model divides by zero there.",
    ),
    "large": (
        lambda text: is_float(text) and abs(float(text)) >= LARGEST,
        "{}, too large a number",
        "Use another unit.",
    ),
}
