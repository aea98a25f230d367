"""Tables of numbers from data frames and matrices, with names and shapes as people have them.

Every conversion is noted, ambiguity is refused, and errors name the cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import shown
from nestquad._frames import in_pandas
from nestquad._typing import Array, Indices
from nestquad.errors import InputError
from nestquad.voi.table._layout import Region, draws_alone
from nestquad.voi.table._limits import FEWEST_ROWS, LARGEST, MOST_PROBLEMS
from nestquad.voi.table._names import (
    DRAW_NAMES,
    ROW_NAMES,
    check_names,
    check_unit,
    kind_of_name,
    one_line,
)
from nestquad.voi.table._numbers import UNCLEAR, is_float, pandas, read_numbers

if TYPE_CHECKING:
    import pandas as pd

SAME_ROWS = "row i of every table is the same draw"
# 3.6m and £20k; numbers that stand for a missing value.
ABBREVIATED = r"[-+−(]*[£$€¥]?[-+−(]?[\d.,]*\d\s?(k|m|mn|mio|bn|thousand|million|billion)\.?\)?"
CODE = r"-?(9{2,6}|8{2,6}|7{2,6})(\.0)?|-[1789](\.0)?"
_CODES = [float(digit * k) for digit in "987" for k in range(2, 7)]
_SHORT_CODES = (-1.0, -7.0, -8.0, -9.0)
# Share of the range beyond which a code is outside, and of draws that may share one; larger shares
# are a part of the law, such as no costs.
_OUTSIDE, _MOST_SHARED = 0.05, 0.1
# Words of columns that are no options but follow from them.
_RESULT_WORDS = re.compile(
    r"totals?|sum|average|inc|incr|increment|incremental|diff|difference|delta|net|minus|vs|versus",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Problem:
    """Reason why a table cannot be used, and the cell if there is one; rows count from 1."""

    table: str
    error: InputError
    column: str = ""
    row: int | None = None
    line: int | None = None
    cell: str = ""
    address: str = ""

    def __str__(self) -> str:
        return str(self.error)


def clean(
    argument: str, table: Any, kind: str, problems: list[Problem] | None = None
) -> pd.DataFrame:
    """Convert a data frame, a matrix or a region of a file to floats with distinct text names.

    `kind` is ``"parameters"``, ``"costs"``, ``"effects"`` or ``"net_benefit"``. `problems` gets all
    bad cells, and an error of the whole, for which the table is empty; without it the first is
    raised. Notes, categories and what names rows and columns are in ``attrs``.
    """
    found: list[Problem] = []
    cleaned = pandas().DataFrame()
    cleaned.attrs["notes"] = ()
    try:
        if not isinstance(table, Region):
            frame = _as_frame(argument, table, "parameter " if kind == "parameters" else "option ")
            if "notes" in frame.attrs:  # cleaned before
                return frame
            table = as_region(argument, frame)
        cleaned.attrs["notes"] = table.notes
        cleaned = _cleaned(argument, table, kind, found)
    except InputError as error:
        found = [Problem(argument, error)]
    if problems is None and found:
        raise found[0].error
    if problems is not None:
        problems += found
    return cleaned


def as_region(argument: str, frame: pd.DataFrame) -> Region:
    """Draws of a data frame, without rows that summarize them."""
    check_names(argument, list(frame.columns))
    frame, rows, notes = draws_alone(frame, np.arange(len(frame)) + 1, "row")
    return Region(frame, rows + 1, notes=tuple(notes))


def _cleaned(argument: str, region: Region, kind: str, problems: list[Problem]) -> pd.DataFrame:
    unnamed = bool(region.frame.attrs.get("unnamed"))
    check_names(argument, list(region.frame.columns))
    frame, hidden = region.frame, [name for name in region.hidden if name in region.frame]
    told = [f"hidden column{'s' * (len(hidden) > 1)} read: {', '.join(map(repr, hidden))}"]
    counted = sum(bool(DRAW_NAMES.fullmatch(name)) for name in frame.columns)
    if kind != "parameters" and frame.shape[1] - len(hidden) - counted > 1:
        frame, told = frame.drop(columns=hidden), [told[0].replace("read", "left out")]
    frame, notes = _widened(argument, frame, kind)
    notes += told if hidden else []
    if len(frame) < len(region.lines):  # cells of a long table have other places
        lines = np.arange(len(frame)) + 1
        region = replace(region, lines=lines, header=0, letters={}, blanks=())
    frame = _one_kind(frame, kind, notes)
    check_unit(kind, argument, [argument, *notes, *region.titles, *frame.columns])
    if len(frame) < FEWEST_ROWS:
        expected = f"at least {FEWEST_ROWS} rows, one a draw of the probabilistic analysis"
        advice = "A thousand draws or more give useful answers."
        raise InputError(argument, f"{len(frame)} rows", expected, advice)
    frame, named = _without_row_names(argument, frame, kind, notes)
    if "" in frame.columns:
        letter = region.letters.get("") or list(frame.columns).index("") + 1
        raise InputError(argument, f"column {letter} without a name", "a name above each column")
    check_names(argument, list(frame.columns))
    numbers: dict[str, Array] = {}
    categories: dict[str, tuple[str, ...]] = {}
    for name, column in frame.items():
        levels = _levels(column) if kind == "parameters" else ()
        if len(levels) > 1:
            texts = _texts(column)
            indicators = {f"{name} = {x}": (texts == x).to_numpy(float) for x in levels[1:]}
            numbers |= indicators
            categories[str(name)] = tuple(indicators)
            notes.append(f"{name!r} is a category, as indicators against {levels[0]!r}")
            continue
        x = numbers[str(name)] = _as_floats(column, region.decimal)
        codes, far = _apart(x)
        for i in far[:1]:
            more = f" and {far.size - 1:,} more" if far.size > 1 else ""
            said = f"{'line' if region.header else 'row'} {region.lines[i]:,} ({x[i]:,.6g}){more}"
            notes.append(f"{name!r} is far from all other draws in {said}: is it a slip?")
        bad = np.union1d(np.flatnonzero(~(np.abs(x) < LARGEST)), codes)
        problems += _bad_cells(argument, column, bad, region)
    cleaned = pandas().DataFrame(numbers, index=frame.index)
    if kind != "parameters" and not problems:
        results = [name for name in cleaned.columns if _is_result(name, cleaned)]
        said = "is no option, by its name and its numbers: it is left out"
        notes += [f"the column {name!r} {said}" for name in results]
        cleaned = cleaned.drop(columns=results)
    cleaned.attrs = {
        "notes": (*region.notes, *notes),
        "categories": categories,
        "named": named,
        "blanks": region.blanks,
        "unnamed": unnamed,
    }
    return cleaned


def check_rows(counts: Mapping[str, int]) -> None:
    """Refuse tables of different lengths."""
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{count:,} rows of {name}" for name, count in counts.items())
        expected = f"the same number of rows in each: {SAME_ROWS}"
        advice = "Was a header line or the last draw lost, or are the tables from different runs?"
        raise InputError(" and ".join(counts), given, expected, advice)


def _is_count(values: Array) -> bool:
    """Whether numbers go up by one from 0 or 1."""
    return bool(values.size) and bool(np.all(np.diff(values) == 1)) and float(values[0]) in (0, 1)


def _is_permutation(values: Array) -> bool:
    """Whether numbers are 1 … n or 0 … n − 1 in any order."""
    return bool(np.isfinite(values).all()) and _is_count(np.sort(values))


def _row_names(table: pd.DataFrame) -> Any:
    """Names of rows, numbers or texts; None for a default index. Numbers from 0 count from 1."""
    if isinstance(table.index, pandas().RangeIndex) and table.index[0] == 0:
        counts = pandas().Index(np.arange(1.0, len(table) + 1))
        return counts if table.attrs["named"] == "column" else None
    try:
        names = pandas().Index(table.index, dtype=float, name=None)
    except (TypeError, ValueError):
        return pandas().Index([str(label).strip() for label in table.index])
    return names + 1.0 if _is_permutation(names.to_numpy()) and names.min() == 0 else names


def aligned(
    tables: Mapping[str, pd.DataFrame], to: Any = None
) -> tuple[dict[str, pd.DataFrame], list[str], Any]:
    """Tables whose row i is the same draw, notes on reordering, and the names of rows.

    Rows are matched by their names where two tables have them: an index of a data frame, or a
    column such as Iteration. A table without names has its draws in the order of the others, which
    is refused as unclear where these are numbers in disorder. `to` are names of rows to follow.
    """
    check_rows({name: len(table) for name, table in tables.items()})
    if len({t.attrs["blanks"] for t in tables.values() if t.attrs["named"] != "column"}) > 1:
        raise InputError(" and ".join(tables), "blank rows at different places", SAME_ROWS)
    names = {name: _row_names(table) for name, table in tables.items()}
    # Where no column names rows, a default index is the names 1 … n.
    indexed = [name for name, table in tables.items() if table.attrs["named"] == "index"]
    by_index = (to is None or to.name == "index") and all(
        name in indexed for name, labels in names.items() if labels is not None
    )
    to = to if by_index or (to is not None and to.name != "index") else None
    if by_index and (to is not None or all(x is None or _is_in_order(x) for x in names.values())):
        counts = pandas().Index(np.arange(1.0, len(next(iter(tables.values()))) + 1))
        names |= {name: counts for name in indexed if names[name] is None}
    bare = [name for name, labels in names.items() if labels is None]
    known = {name: labels for name, labels in names.items() if labels is not None}
    ordered = {name: labels for name, labels in known.items() if _is_in_order(labels)}
    first, target = (
        ("outputs", to) if to is not None else next(iter((ordered or known).items()), ("", None))
    )
    if target is None:
        return dict(tables), [], None
    moved, notes = dict(tables), []
    for name, labels in known.items():
        if labels.equals(target):
            continue
        alone = [*labels.difference(target), *target.difference(labels)]
        if alone or not target.is_unique:
            given = "rows in other orders, and several of one name"
            if alone:
                given = "names of rows that one of them has and the other has not, such as "
                given += str(alone[0])
            advice = "If row i is the same draw, remove the names (an index: reset_index)."
            raise InputError(f"{first} and {name}", given, SAME_ROWS, advice)
        moved[name] = tables[name].iloc[labels.get_indexer(target)]
        notes.append(f"rows of {name} are in the order of {first}, by their names")
    if bare and not _is_in_order(target) and target.dtype.kind == "f":
        order = ", ".join(f"{label:g}" for label in target[:3])
        given = f"no names of rows, and {first} with rows in the order {order} …"
        expected = "names of rows, such as a column Iteration, in every table, or rows in order"
        advice = f"If row i is the same draw in all tables, remove the names from {first}."
        raise InputError(" and ".join(bare), given, expected, advice)
    if bare and notes:
        notes.append(f"rows of {' and '.join(bare)}, which have no names, are taken in that order")
    return moved, notes, target.rename("index" if by_index and target.dtype.kind == "f" else None)


def _is_in_order(labels: Any) -> bool:
    return labels.dtype.kind == "f" and bool(labels.is_monotonic_increasing)


def _apart(x: Array) -> tuple[Indices, Indices]:
    """Rows of codes for missing values, such as -999, and other rows far from all others.

    A usual code, and a number that some draws share while the others are all different, are apart
    outside the range of the others. Single numbers are far beyond a gap of twice their range.
    """
    rows = np.flatnonzero(np.abs(x) < LARGEST)
    values, inverse, counts = np.unique(x[rows], return_inverse=True, return_counts=True)
    is_usual = np.isin(np.abs(values), _CODES) | np.isin(values, _SHORT_CODES)
    is_continuous = np.sum(counts > 1) <= 2
    is_shared = (counts > 1) & is_continuous & (counts <= _MOST_SHARED * rows.size)
    s = np.repeat(values, counts * ~(is_usual | is_shared))
    n, most = s.size, max(s.size // 100, 1)
    if n < FEWEST_ROWS or s[0] == s[-1]:
        return rows[:0], rows[:0]
    low, high = s[most], s[-1 - most]
    is_outside = np.maximum(s[0] - values, values - s[-1]) > _OUTSIDE * (high - low)
    is_nines = np.isin(np.abs(values), _CODES)
    # Inside the range a code is one by its repetition alone.
    is_code = is_usual & np.where(is_outside, is_nines | is_shared, is_nines & is_shared)
    gap = np.diff(s) * (high > low)
    top = next((s[k] for k in range(n - most, n) if gap[k - 1] > 2 * (s[k - 1] - low)), np.inf)
    bottom = next((s[k - 1] for k in range(most, 0, -1) if gap[k - 1] > 2 * (high - s[k])), -np.inf)
    is_far = (is_outside & (is_usual | is_shared)) | (values >= top) | (values <= bottom)
    return rows[is_code[inverse]], rows[(is_far & ~is_code)[inverse]]


def _one_kind(frame: pd.DataFrame, kind: str, notes: list[str]) -> pd.DataFrame:
    """Costs or effects alone, where a table has columns of both, such as cost_A and qaly_A."""
    kinds = {name: kind_of_name(name) for name in frame.columns}
    others = [name for name, other in kinds.items() if other not in (kind, "")]
    qalys = [name for name in kinds if "qaly" in name.casefold()]
    if kind == "effects" and len(qalys) > 1:  # next to life years
        others = [name for name, other in kinds.items() if other and name not in qalys]
    if kind not in ("costs", "effects") or not others or list(kinds.values()).count(kind) < 2:
        return frame
    notes.append(
        f"the columns {', '.join(map(repr, others))} are no {kind} of the decision: left out"
    )
    return frame.drop(columns=others)


def _is_result(name: str, frame: pd.DataFrame) -> bool:
    """Whether a column is called a total or a difference of others, and is one."""
    if frame.shape[1] < 3 or not any(map(_RESULT_WORDS.fullmatch, re.split(r"[\W_]+", name))):
        return False
    x = frame.drop(columns=name).to_numpy()
    tried = [x.sum(axis=1), x.mean(axis=1), *(a - b for a, b in permutations(x.T, 2))]
    error = 1e-6 * float(np.abs(x).max())
    return any(bool(np.all(np.abs(frame[name] - result) <= error)) for result in tried)


def _without_row_names(
    argument: str, frame: pd.DataFrame, kind: str, notes: list[str]
) -> tuple[pd.DataFrame, str]:
    """Columns that name the rows become the index; an ambiguous one is refused.

    Returns whether a ``"column"`` or the ``"index"`` names the rows; "" of a matrix.
    """
    named_by = "column" if frame.attrs.get("labelled") else "index"
    named_by = "" if frame.attrs.get("unnamed") else named_by
    labels: list[tuple[bool, Any]] = []
    floats = {name: _as_floats(frame[name]) for name in frame.columns}
    floats = {name: np.where(np.isinf(x), np.nan, x) for name, x in floats.items()}
    # Draws are no permutation of 1 … n: it numbers them, under any name. Parameters that are all
    # or several of them such may be ranks.
    numbering = [name for name, values in floats.items() if _is_permutation(values)]
    is_rank = kind not in ("costs", "effects") and (len(numbering) > 1 or frame.shape[1] == 1)
    for name, values in floats.items():
        column, counts, permuted = frame[name], _is_count(values), name in numbering
        named, numbers = (p.fullmatch(name) is not None for p in (ROW_NAMES, DRAW_NAMES))
        unnamed = name == "" or name.startswith("Unnamed")
        is_text = not np.isfinite(values).any() and bool(column.notna().all())
        # 10.5 mg and 2020-01-31 begin with a number, formulas and errors with a sign.
        is_word = is_text and not _texts(column).str.match(r"[-+−]?\d|[=#]").all()
        is_whole, rises = np.all(values == np.round(values)), np.all(np.diff(values) > 0)
        is_label = (is_text and (named or (name == frame.columns[0] and is_word))) or (
            is_whole and (numbers or (named and (rises or permuted or unnamed)))
        )
        is_label = is_label and column.astype(str).is_unique
        if (named and counts) or is_label or (permuted and not is_rank and kind != "net_benefit"):
            quoted = "without a name, as R writes row names," if unnamed else repr(name)
            verb = "counts the rows" if counts else "names the rows"
            notes.append(f"the column {quoted} {verb} and is left out")
            frame = frame.drop(columns=name)
            labels.append((counts, column))
        elif (numbers and is_whole) or (kind != "parameters" and (permuted or numbers)):
            why = "counts the rows" if permuted else "does not number the rows, as its name says"
            expected = (
                f"a column for each {'input' if kind == 'parameters' else 'option'}, no other"
            )
            advice = (
                "If it numbers the draws, call it Iteration, with each number once, or remove it."
            )
            raise InputError(argument, f"the column {name!r}, which {why}", expected, advice)
    if not labels:
        return frame, named_by
    # Of several, one that merely counts says least.
    return _named(frame, min(labels, key=lambda pair: pair[0])[1]), "column"


def _named(frame: pd.DataFrame, names: Any) -> pd.DataFrame:
    """Table with names of rows; names that count the rows leave a default index."""
    index = pandas().Index(names)
    if index.dtype.kind in "fiu" and _is_count(index.to_numpy()):
        return frame.reset_index(drop=True)
    return frame.set_axis(index, axis=0)


def _widened(argument: str, frame: pd.DataFrame, kind: str) -> tuple[pd.DataFrame, list[str]]:
    """Table in long format (draw, option, value) with a column for each option, and a note."""
    texts = [c for c in frame.columns if len(_levels(frame[c], few=len(frame))) > 1]
    numeric = [c for c in frame.columns if c not in texts]
    if len(texts) != 1 or not numeric:
        return frame, []
    names = _texts(frame[texts[0]])
    counts = names.value_counts()
    draws = [c for c in numeric if ROW_NAMES.fullmatch(c) and frame[c].nunique() < len(frame)]
    values = [c for c in numeric if c not in draws and not ROW_NAMES.fullmatch(c)]
    if counts.min() < FEWEST_ROWS or not values:
        return frame, []
    if kind in ("costs", "effects"):
        fits = [c for c in values if kind_of_name(c) == kind]
        fits = fits or [c for c in values if len(values) == 1 and not kind_of_name(c)]
        if len(fits) != 1:
            word = {"costs": "cost", "effects": "qaly"}[kind]
            given = f"a table in long format with {'several' if fits else 'no'} columns of {kind} "
            given += f"among {', '.join(map(repr, values))}"
            expected = f"one column of {kind}, with a word such as {word!r} in its name"
            advice = f"Call it {word!r}, and remove the columns that are not meant."
            raise InputError(argument, given, expected, advice)
        values = fits
    if len(values) > 1 or (kind == "parameters" and not draws):
        return frame, []
    draw = frame[draws[0]] if draws else frame.groupby(names).cumcount()
    twice = pandas().MultiIndex.from_arrays([draw, names]).has_duplicates
    if counts.nunique() > 1 or twice:
        rows = " and ".join(f"{counts.iloc[k]:,} of {counts.index[k]!r}" for k in (0, -1))
        given = f"a table in long format with rows: {rows}" + ", a draw twice" * twice
        raise InputError(argument, given, f"one row for each draw and {texts[0]}")
    wide = frame.assign(**{"": draw, texts[0]: names}).pivot(
        index="", columns=texts[0], values=values[0]
    )[list(dict.fromkeys(names))]
    wide.columns = list(wide.columns)
    order = f"by {draws[0]!r}" if draws else "in the order of rows"
    notes = [f"long format: {values[0]!r} by {texts[0]!r}, draws {order}"]
    wide = _named(wide, wide.index) if draws else wide.reset_index(drop=True)
    wide.attrs["labelled"] = bool(draws)
    return wide, notes


def _texts(column: pd.Series[Any]) -> pd.Series[str]:
    """Cells as texts in one line, for levels, indicators and options alike."""
    return column.astype(object).map(one_line)


def _levels(column: pd.Series[Any], few: int | None = None) -> tuple[str, ...]:
    """Levels of a column of texts, most frequent first; none below ten rows each on average."""
    if column.dtype.kind in "fiub" or bool(column.isna().any()):
        return ()
    levels = tuple(_texts(column).value_counts().index)
    if len(levels) > (len(column) // 10 if few is None else few // 2):
        return ()
    # Letters, and no word for a missing value: 1,234 and #DIV/0! are bad cells, not levels.
    no_level = re.compile(rf"{ABBREVIATED}|#.*|n/?a|null|none", re.IGNORECASE).fullmatch
    named = all(re.search(r"[^\W\d_]", x) and not is_float(x) and not no_level(x) for x in levels)
    return levels if named else ()


def _as_frame(argument: str, table: Any, prefix: str) -> pd.DataFrame:
    """Data frame with names as texts, from anything that pandas takes for a table."""
    pd = pandas()
    expected = "a data frame or a matrix of numbers, one row a draw"
    if isinstance(table, np.ma.MaskedArray):
        raise InputError(argument, "a masked array", expected, "Remove the draws without a value.")
    if isinstance(table, pd.Series):
        table = table.to_frame(table.name if table.name is not None else f"{prefix}1")
    table = in_pandas(table)
    try:
        given = pd.DataFrame(table) if isinstance(table, dict) else table
        matrix = None if isinstance(given, pd.DataFrame) else np.asarray(given)
    except (TypeError, ValueError) as error:
        advice = f"Rows and columns have to be of one length each ({error})."
        raise InputError(argument, f"a {type(table).__name__}", expected, advice) from None
    if matrix is None:
        frame = given.copy(deep=False)
        frame.columns = [one_line(name) for name in frame.columns]
        for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
            if dtype.kind in "cmM":
                raise InputError(argument, f"the column {name!r} of {dtype}", expected)
        return frame
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiubOU":
        kind = f"an array of {matrix.dtype} of shape {matrix.shape}"
        raise InputError(argument, "nothing" if table is None else kind, expected)
    names = [f"{prefix}{j + 1}" for j in range(matrix.shape[1])]
    frame = pd.DataFrame(matrix, columns=names)
    frame.attrs["unnamed"] = True
    return frame


def numbers_rows(name: str, column: pd.Series[Any]) -> bool:
    """Whether a column numbers the draws: by its name, or as a permutation of 1 … n."""
    if column.dtype.kind not in "fiu":
        return bool(DRAW_NAMES.fullmatch(name))
    values = column.to_numpy(dtype=float)
    whole = bool(np.all(values == np.round(values)))
    return (whole and bool(ROW_NAMES.fullmatch(name))) or _is_permutation(values)


def _as_floats(column: pd.Series[Any], decimal: str = "") -> Array:
    """Numbers (n,), NaN where a cell is no number."""
    if column.dtype.kind not in "fiub":
        if all(isinstance(cell, str) for cell in column[column.notna()]):
            return read_numbers(column.astype(object), decimal)[0]
        # Pandas takes dates for nanoseconds, and integers beyond the range of floats for texts.
        known = (str, bool, np.bool_, float, np.floating)
        cells = column.map(lambda cell: cell if isinstance(cell, known) else str(cell))
        column = pandas().to_numeric(cells, errors="coerce")
    return np.asarray(column.to_numpy(dtype=float, na_value=np.nan))


def _bad_cells(
    argument: str, column: pd.Series[Any], bad: Indices, region: Region
) -> Iterator[Problem]:
    """Problems of the `bad` cells of a column; one for all that have the same text or format."""
    told: set[str] = set()
    name = str(column.name)
    more = f" and {bad.size - 1:,} more like it in this column" if bad.size > 1 else ""
    # A number among cells of another format is not the fault.
    bad = np.array(sorted(bad, key=lambda i: str(column.iloc[i]).isdigit()), dtype=np.intp)
    for i in map(int, bad[:MOST_PROBLEMS]):
        text = "" if pandas().isna(column.iloc[i]) else str(column.iloc[i]).strip()
        line = int(region.lines[i]) if region.header else None
        row = int(region.lines[i]) - region.header
        address = f"{region.letters[name]}{line}" if region.letters.get(name) else ""
        where = f"column {name!r}, row {row:,}" + (f" (line {line:,} of the file)" if line else "")
        where = f"cell {address} (column {name!r})" if address else where
        kind, _, words, advice = next(
            rule for rule in _DIAGNOSES if re.fullmatch(rule[1], text, re.I | re.S)
        )
        if not {kind, text} & told:
            quoted = text if kind == "error" else shown(text) if text else "an empty cell"
            readings = (re.sub("[.,]", mark, text) for mark in ("", "."))
            given = f"{words.format(quoted, *readings)} in {where}{more}"
            error = InputError(argument, given, "a finite number in every cell", advice)
            yield Problem(argument, error, name, row, line, text, address)
        # Missing cells and errors have a cause each.
        if kind not in ("missing", "error"):
            told.add(text if kind == "text" else kind)


_SEPARATED = r"\W*(\d{1,3}([ ,.'’\u00a0\u202f]\d{3})+([.,]\d+)?|\d*,\d+(e[-+]?\d+)?)\W*"
_NO_VALUE = "Find out why the model has no value there, or remove the draw from all tables."
_PLAIN = "Write it in full, with a decimal point and no separators (number format “General”)."
_SAVE = "Open the workbook in Excel or LibreOffice, let it calculate, save it, try again."
# Kinds of bad cells, the first that fits: pattern of the text, description, advice.
_DIAGNOSES: tuple[tuple[str, str, str, str], ...] = (
    ("missing", r"|na|n/a|nan|null|none", "a missing value ({})", _NO_VALUE),
    ("error", r"#[a-z].*", "the error {}", _NO_VALUE),
    ("formula", r"=.*", "the formula {} without a saved value", _SAVE),
    ("letters", ABBREVIATED, "{}, a number with a letter for thousands or millions", _PLAIN),
    ("unclear", UNCLEAR.pattern, "{}, which may be {} or {},", _PLAIN),
    ("code", CODE, "{}, which stands for a missing value", _NO_VALUE),
    ("separators", _SEPARATED, "{}, a number with separators", _PLAIN),
    ("percent", r".*%", "{} beside cells without %", "Write the whole column with % or without."),
    ("infinite", r"[-+]?inf(inity)?", "an infinite number", _NO_VALUE),
    ("large", r"[-+]?(\d{100,}|[\d.]+e\+?\d{3})", "{}, too large a number", "Use another unit."),
    ("text", r".*", "the text {}", "Notes beside the numbers have to go."),
)
