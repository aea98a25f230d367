"""Tables of numbers from data frames and matrices, with names and shapes as people have them.

Every conversion is noted, ambiguity is refused, and errors name the cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import shown
from nestquad._frames import in_pandas
from nestquad._typing import Array, Indices
from nestquad.errors import InputError
from nestquad.voi.table._cells import DRAW_NAMES, Region, one_line, pandas, summary_rows
from nestquad.voi.table._limits import FEWEST_ROWS, LARGEST, MOST_PROBLEMS
from nestquad.voi.table._numbers import is_float, read_numbers

if TYPE_CHECKING:
    import pandas as pd

# One mark and three digits: thousands or thousandths.
_UNCLEAR = re.compile(r"[-+−]?[1-9]\d{0,2}[.,]\d{3}")
_SEPARATED = re.compile(r"[-+]?\d{1,3}([ ,.'’\u00a0\u202f]\d{3})+([.,]\d+)?")
# 3.6m and £20k: letters for thousands and millions.
_ABBREVIATED = re.compile(
    r"[-+−(]*[£$€¥]?[-+−(]?[\d.,]*\d\s?(k|m|mn|mio|bn|thousand|million|billion)\.?\)?",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
# Names of columns that number draws, some of which options may have as well.
_ROW_NAMES = re.compile(rf"|x|unnamed: ?\d+|index|id|run|{DRAW_NAMES.pattern}", re.IGNORECASE)
# Words in the names of columns that hold costs, or effects; letters before the names of options.
NAME_WORDS = {
    "costs": r"costs?|kosten",
    "effects": r"effects?|effs?|qalys?|lys?|life ?years?|dalys?|outcomes?|utilit(?:y|ies)",
}
# Words of columns that are no options but follow from them.
_RESULT_WORDS = re.compile(
    r"totals?|sum|average|inc|incr|increment|incremental|diff|difference|delta|net|minus|vs|versus",
    re.IGNORECASE,
)
# Units such as (£000), [k€], ('000 USD), T€, in £ millions, per 1,000 patients; effects that harm.
_UNITS = {
    "costs": (
        r"[(\[,][\s£$€]*(['’]?000['’]?s?|k|m|mn|mio|(in )?(thousand|million)s?)"
        r"[\s£$€]*([a-z]{3})?[)\]]|[£$€]\s?(k|m|mn|['’]?000['’]?s?)\b|"
        r"\b(in|usd|eur|gbp|chf) [£$€]?\s?(thousand|million)s?\b|[£$€]\s?(thousand|million)s?\b|"
        r"\b[TK](€|EUR)|\bper (1[,. ]?000|thousand)\b",
        "costs in thousands or millions",
        "costs in full, of one patient",
        "Write them in full, as 3600000 for 3.6m, with the sign of the currency alone.",
    ),
    "effects": (
        r"\bper (1[,. ]?000|thousand)\b|"
        r"^(?!.*(avert|avoid|sav|gain|prevent)).*((?<![a-z])dalys?(?![a-z])|qalys? lost|qaly loss)",
        "effects of which fewer are better, or of many patients",
        "effects of one patient, of which more are better",
        "Give DALYs averted, as differences from one number for all options, and name them so.",
    ),
}
NAME_LETTERS = {"costs": "c", "effects": "[euq]"}


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


@dataclass(frozen=True)
class Cleaned:
    """Table of floats, and problems that prevent its use.

    Its ``attrs`` have notes on conversions, and columns by category.
    """

    frame: pd.DataFrame
    problems: tuple[Problem, ...] = ()

    @classmethod
    def refused(cls, table: str, error: InputError) -> Cleaned:
        """Empty table with the problem of the whole."""
        return cls(pandas().DataFrame(), (Problem(table, error),))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.frame.attrs.get("notes", ()))

    def usable(self) -> pd.DataFrame:
        """Return the table; raise the first problem, if there is one."""
        if self.problems:
            raise self.problems[0].error
        return self.frame


def clean(argument: str, table: Any, kind: str, region: Region | None = None) -> Cleaned:
    """Convert a data frame or a matrix to floats with distinct text names, and list all bad cells.

    `kind` is ``"parameters"``, ``"costs"``, ``"effects"`` or ``"net_benefit"``. Columns without
    names get a word and a number. Errors name the `argument` and, for a table from a file, the
    cell in its `region`.
    """
    try:
        frame = _as_frame(argument, table, "parameter " if kind == "parameters" else "option ")
        if "notes" in frame.attrs:  # cleaned before
            return Cleaned(frame)
        notes: list[str] = []
        unnamed = bool(frame.attrs.get("unnamed"))
        check_names(argument, frame)
        frame = _widened(argument, frame, kind, notes)
        names = [argument, *notes, *(region.titles if region else ())]
        frame = _one_kind(frame, kind, notes)
        check_unit(kind, argument, [*names, *frame.columns])
        is_wide = region is None or len(frame) == len(region.lines)
        if len(frame) < FEWEST_ROWS:
            raise InputError(
                argument,
                f"{len(frame)} rows",
                f"at least {FEWEST_ROWS} rows, one a draw of the probabilistic analysis",
                "A thousand draws or more give useful answers.",
            )
        frame, rows, left_out = without_summaries(frame, region)
        frame = _without_row_names(argument, frame, kind, notes := [*notes, *left_out])
        check_names(argument, frame)
    except InputError as error:
        return Cleaned.refused(argument, error)
    where = region or Region.of(frame)
    numbers: dict[str, Array] = {}
    problems: list[Problem] = []
    categories: dict[str, tuple[str, ...]] = {}
    for name in frame.columns:
        column = frame[name]
        levels = _levels(column) if kind == "parameters" else ()
        if len(levels) > 1:
            texts = _texts(column)
            indicators = {f"{name} = {x}": (texts == x).to_numpy(float) for x in levels[1:]}
            numbers |= indicators
            categories[name] = tuple(indicators)
            notes.append(f"{name!r} is a category, as indicators against {levels[0]!r}")
            continue
        numbers[name], note = _as_floats(column, region.decimal if region else "")
        notes += [f"{name!r} {note}"] if note else []
        codes, far = _apart(numbers[name])
        more = f" and {far.size - 1:,} more" if far.size > 1 else ""
        notes += [f"{name!r} is far from all other draws in {where.line(rows[i])} "
                  f"({numbers[name][i]:,.6g}){more}: is it a slip?" for i in far[:1]]  # fmt: skip
        bad = np.union1d(np.flatnonzero(~(np.abs(numbers[name]) < LARGEST)), codes)
        problems += _bad_cells(argument, column, bad, rows, region)
    cleaned = pandas().DataFrame(numbers, index=frame.index)
    if kind != "parameters" and not problems:
        results = [name for name in cleaned.columns if _is_result(name, cleaned)]
        notes += [f"the column {name!r} is no option, by its name and its numbers: it is left out"
                  for name in results]  # fmt: skip
        cleaned = cleaned.drop(columns=results)
    cleaned.attrs = {"notes": tuple(notes), "categories": categories, "unnamed": unnamed}
    # Rows of a file without names keep their places, so that blank rows have to be the same.
    if region is not None and is_wide and not frame.attrs.get("labelled"):
        places = blank_places(region.lines[rows], region.blanks)
        labels = np.arange(len(rows)) + np.searchsorted(places, np.arange(len(rows)), side="right")
        cleaned.index = pandas().Index(labels + 1) if places else cleaned.index
    cleaned.attrs["counted"] = bool(frame.attrs.get("counted"))
    cleaned.attrs["indexed"] = not unnamed and not frame.attrs.get("labelled")
    return Cleaned(cleaned, tuple(problems))


def _apart(x: Array) -> tuple[Indices, Indices]:
    """Rows of codes for missing values, such as -999, and other rows far from all others.

    Far is beyond a gap of twice the range of 99 % of the others.
    """
    order = np.argsort(x)
    order = order[np.abs(x[order]) < LARGEST]
    others = order[~np.isin(np.abs(x[order]), _CODES)]
    nines = np.setdiff1d(order, others)
    if others.size < FEWEST_ROWS or np.ptp(x[others]) == 0:
        return order[:0], order[:0]
    low, high = x[others[0]], x[others[-1]]
    gaps = np.maximum(low - x[nines], x[nines] - high)
    # Nines among the others, more than once where no other number is repeated, are codes, too.
    is_code = (gaps > high - low) | (nines.size > 1 and np.unique(x[others]).size == others.size)
    s, most = x[others], max(others.size // 100, 1)
    low, high, top, bottom = s[most], s[-1 - most], s[-1 - most :], s[: most + 1]
    above = np.flatnonzero(np.diff(top) > 2 * (top[:-1] - low))
    below = np.flatnonzero(np.diff(bottom) > 2 * (high - bottom[1:]))
    far = [others[-most + above[0] :]] if above.size else []
    far += [others[: below[-1] + 1]] if below.size else []
    return nines[is_code], np.concatenate(far) if far and high > low else order[:0]


def aligned(
    tables: Mapping[str, pd.DataFrame], to: Any = None
) -> tuple[dict[str, pd.DataFrame], list[str], Any]:
    """Tables whose row i is the same draw, notes on reordering, and the names of rows.

    Rows are matched by their names where two tables have them: an index of a data frame, or a
    column such as Iteration. A table without names has its draws in the order of the others, which
    is refused as unclear where these are numbers in disorder. `to` are names of rows to follow.
    """
    check_rows({name: len(table) for name, table in tables.items()})
    every = {name: _row_names(table) for name, table in tables.items()}
    # Where no column names rows, a default index is the names 1 … n.
    indexed = {name for name, table in tables.items() if table.attrs.get("indexed")}
    by_index = all(name in indexed for name, labels in every.items() if labels is not None)
    is_index = to is None or to.name == "index"
    to = to if by_index or not is_index else None
    by_index = by_index and is_index
    if by_index and (to is not None or all(x is None or _is_in_order(x) for x in every.values())):
        counts = pandas().Index(np.arange(1.0, len(next(iter(tables.values()))) + 1))
        every |= {name: counts for name in indexed if every[name] is None}
    names = {name: labels for name, labels in every.items() if labels is not None}
    first, target = ("outputs", to) if to is not None else next(iter(names.items()), ("", None))
    if target is None:
        return dict(tables), [], None
    if to is None and (ordered := [n for n in names if _is_in_order(names[n])]):
        first, target = ordered[0], names[ordered[0]]
    bare = [name for name in tables if name not in names]
    moved, notes = dict(tables), []
    for name, labels in names.items():
        if labels.equals(target):
            continue
        if not labels.sort_values().equals(target.sort_values()):
            alone = [*labels.difference(target), *target.difference(labels)]
            such = f", such as {alone[0]!s}" if alone else ""
            raise InputError(
                f"{first} and {name}",
                f"names of rows that one of them has and the other has not{such}",
                "the same draws in every table",
                "Are they from different runs, or blank rows at different places? If row i is the "
                "same draw, remove the names (an index: reset_index).",
            )
        if not target.is_unique:
            raise InputError(
                f"{first} and {name}",
                "rows in a different order, and several rows of the same name",
                "the same draw in row i of every table",
            )
        moved[name] = tables[name].iloc[labels.get_indexer(target)]
        notes.append(f"rows of {name} are in the order of {first}, by their names")
    if bare and not _is_in_order(target) and target.dtype.kind == "f":
        raise InputError(
            " and ".join(bare),
            f"no names of rows, and {first} with rows in the order "
            f"{', '.join(f'{label:g}' for label in target[:3])} …",
            "names of rows, such as a column Iteration, in every table, or rows in order",
            f"If row i is the same draw in all tables, remove the names from {first}.",
        )
    if bare and notes:
        notes.append(f"rows of {' and '.join(bare)}, which have no names, are taken in that order")
    return moved, notes, target.rename("index" if by_index and target.dtype.kind == "f" else None)


def blank_places(lines: Indices, blanks: Sequence[int]) -> tuple[int, ...]:
    """Number of draws above each blank line that is among the lines of draws."""
    return tuple(int(np.searchsorted(lines, x)) for x in blanks if lines[0] < x < lines[-1])


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
    """Names of rows, numbers or texts; None for a default index. Numbers from 0 count from 1."""
    if _is_default(frame.index) and not frame.attrs.get("counted"):
        return None
    try:
        names = pandas().Index(frame.index, dtype=float, name=None)
    except (TypeError, ValueError):
        return pandas().Index([str(label).strip() for label in frame.index])
    return names + 1.0 if _is_count(np.sort(names.to_numpy()), 0) else names


def _is_default(index: Any) -> bool:
    return isinstance(index, pandas().RangeIndex) and (index.start, index.step) == (0, 1)


def _is_in_order(labels: Any) -> bool:
    return labels.dtype.kind == "f" and bool(labels.is_monotonic_increasing)


def _is_count(values: Array, *starts: int) -> bool:
    """Whether numbers go up by one from a start: 0 or 1 by default."""
    up = bool(values.size) and bool(np.all(np.diff(values) == 1))
    return up and float(values[0]) in (starts or (0, 1))


def _is_permutation(values: Array) -> bool:
    """Whether numbers are 1 … n or 0 … n − 1 in any order."""
    return bool(np.isfinite(values).all()) and _is_count(np.sort(values))


def _one_kind(frame: pd.DataFrame, kind: str, notes: list[str]) -> pd.DataFrame:
    """Costs or effects alone, where a table has columns of both, such as cost_A and qaly_A."""
    kinds = {name: kind_of_name(name) for name in frame.columns}
    others = [name for name, other in kinds.items() if other not in (kind, "")]
    qalys = [name for name in kinds if "qaly" in name.casefold()]
    if kind == "effects" and len(qalys) > 1:  # beside life years
        others = [name for name, other in kinds.items() if other and name not in qalys]
    if kind not in NAME_WORDS or not others or list(kinds.values()).count(kind) < 2:
        return frame
    notes.append(
        f"the columns {', '.join(map(repr, others))} are no {kind} of the decision: left out"
    )
    return frame.drop(columns=others)


def kind_of_name(name: str) -> str:
    """Whether a column holds costs or effects, by words of its name; "" where it says neither."""
    words = re.sub(r"[\W\d_]+", " ", re.sub("(?<=[a-z])(?=[A-Z])", " ", name).casefold())
    kinds = [k for k, pattern in NAME_WORDS.items() if re.search(rf"\b({pattern})\b", words)]
    is_money = not kinds and re.search("[£$€]", name)
    return "costs" if is_money else kinds[0] if len(kinds) == 1 else ""


def _is_result(name: str, frame: pd.DataFrame) -> bool:
    """Whether a column is called a total or a difference of others, and is one."""
    if frame.shape[1] < 3 or not any(map(_RESULT_WORDS.fullmatch, re.split(r"[\W_]+", name))):
        return False
    others, value = frame.drop(columns=name).to_numpy(), frame[name].to_numpy()
    error = 1e-6 * float(np.abs(others).max())
    tried = [others.sum(axis=1), others.mean(axis=1)]
    tried += [a - b for a, b in permutations(others.T, 2)]
    return any(bool(np.all(np.abs(value - result) <= error)) for result in tried)


def _without_row_names(
    argument: str, frame: pd.DataFrame, kind: str, notes: list[str]
) -> pd.DataFrame:
    """Columns that name the rows become the index; an ambiguous one is refused."""
    labels: list[tuple[bool, Any]] = []
    floats = {name: _as_floats(frame[name])[0] for name in frame.columns}
    floats = {name: np.where(np.isinf(x), np.nan, x) for name, x in floats.items()}
    # Draws are no permutation of 1 … n: it numbers them, under any name. Parameters that are all
    # or several of them such may be ranks.
    numbering = [name for name, values in floats.items() if _is_permutation(values)]
    is_rank = kind not in NAME_WORDS and (len(numbering) > 1 or frame.shape[1] == 1)
    for name, values in floats.items():
        column, counts, permuted = frame[name], _is_count(values), name in numbering
        named, numbers = (p.fullmatch(name) is not None for p in (_ROW_NAMES, DRAW_NAMES))
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
            raise InputError(
                argument,
                f"the column {name!r}, which {why}",
                f"a column for each {'input' if kind == 'parameters' else 'option'}, no other",
                "If it numbers the draws, call it Iteration, with each number once, or remove it.",
            )
    # Of several, one that merely counts says least.
    return _named(frame, min(labels, key=lambda pair: pair[0])[1]) if labels else frame


def without_summaries(
    frame: pd.DataFrame, region: Region | None
) -> tuple[pd.DataFrame, Indices, list[str]]:
    """Draws alone, their rows, and a note on rows of means and totals."""
    summaries = {} if frame.attrs.get("draws alone") else summary_rows(frame)
    rows = np.array([i for i in range(len(frame)) if i not in summaries], dtype=np.intp)
    if not summaries:
        return frame, rows, []
    kept = frame.iloc[rows].copy()
    for name in kept.columns:
        values = pandas().to_numeric(kept[name], errors="coerce")
        if values.notna().all():  # its only text was the label
            kept[name] = values
    kept = kept.reset_index(drop=True) if _is_default(frame.index) else kept
    where = region or Region.of(frame)
    told = ", ".join(f"{where.line(i)} ({word})" for i, word in summaries.items())
    return kept, rows, [f"rows that summarize the draws are left out: {told}"]


def _named(frame: pd.DataFrame, names: Any) -> pd.DataFrame:
    """Table with names of rows; names that count the rows leave a default index."""
    frame = frame.set_axis(pandas().Index(names), axis=0)
    frame.attrs = {**frame.attrs, "labelled": True}
    if frame.index.dtype.kind in "fiu" and _is_count(frame.index.to_numpy()):
        frame = frame.reset_index(drop=True)
        frame.attrs = {**frame.attrs, "counted": True}
    return frame


def _widened(argument: str, frame: pd.DataFrame, kind: str, notes: list[str]) -> pd.DataFrame:
    """Table in long format (draw, option, value) with a column for each option."""
    texts = [c for c in frame.columns if len(_levels(frame[c], few=len(frame))) > 1]
    numeric = [c for c in frame.columns if c not in texts]
    if len(texts) != 1 or not numeric:
        return frame
    names = _texts(frame[texts[0]])
    counts = names.value_counts()
    draws = [c for c in numeric if _ROW_NAMES.fullmatch(c) and frame[c].nunique() < len(frame)]
    values = [c for c in numeric if c not in draws and not _ROW_NAMES.fullmatch(c)]
    if counts.min() < FEWEST_ROWS or not values:
        return frame
    if kind in NAME_WORDS:
        fits = [c for c in values if kind_of_name(c) == kind]
        fits = fits or [c for c in values if len(values) == 1 and not kind_of_name(c)]
        if len(fits) != 1:
            word = {"costs": "cost", "effects": "qaly"}[kind]
            raise InputError(
                argument,
                f"a table in long format with {'several' if fits else 'no'} columns of {kind} "
                f"among {', '.join(map(repr, values))}",
                f"one column of {kind}, with a word such as {word!r} in its name",
                f"Call it {word!r}, and remove the columns that are not meant.",
            )
        values = fits
    if len(values) > 1 or (kind == "parameters" and not draws):
        return frame
    draw = frame[draws[0]] if draws else frame.groupby(names).cumcount()
    twice = pandas().MultiIndex.from_arrays([draw, names]).has_duplicates
    if counts.nunique() > 1 or twice:
        raise InputError(
            argument,
            f"a table in long format with {counts.iloc[0]:,} rows of {counts.index[0]!r} and "
            f"{counts.iloc[-1]:,} of {counts.index[-1]!r}" + ", a draw twice" * twice,
            f"one row for each draw and {texts[0]}",
        )
    wide = frame.assign(**{"": draw, texts[0]: names}).pivot(
        index="", columns=texts[0], values=values[0]
    )[list(dict.fromkeys(names))]
    wide.columns = list(wide.columns)
    order = f"by {draws[0]!r}" if draws else "in the order of rows"
    notes.append(f"long format: {values[0]!r} by {texts[0]!r}, draws {order}")
    return _named(wide, wide.index) if draws else wide.reset_index(drop=True)


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
    named = all(
        re.search(r"[^\W\d_]", x) and x[0] != "#" and not _ABBREVIATED.fullmatch(x)
        and not is_float(x) and x.casefold() not in _MISSING for x in levels
    )  # fmt: skip
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
    return (whole and bool(_ROW_NAMES.fullmatch(name))) or _is_permutation(values)


def check_unit(kind: str, argument: str, names: Sequence[str]) -> None:
    """Refuse costs and effects whose names or titles say another unit."""
    pattern, given, expected, advice = _UNITS.get(kind, ("$^", "", "", ""))
    says = re.compile(pattern, re.IGNORECASE).search
    # The sheet DALYs may have columns of DALYs averted.
    if says(" ".join(names)) and (unit := next(filter(says, names), "")):
        raise InputError(argument, f"{given} ({unit})", expected, advice)


def check_names(argument: str, frame: pd.DataFrame) -> None:
    """Refuse names that are missing, repeated or numbers of a first draw."""
    names = [str(name) for name in frame.columns]
    if not names:
        raise InputError(argument, "a table without columns", "at least one column")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            argument,
            f"the column {twice!r} {names.count(twice)} times",
            "a different name for each column",
            "Rename one of them in the header.",
        )
    counted = any(names == [str(k + first) for k in range(len(names))] for first in (0, 1))
    numbers = list(filter(is_float, names))
    if 2 * len(numbers) > len(names) and not counted:  # 0, 1, 2, … of a data frame without names
        raise InputError(
            argument,
            f"numbers as column names ({', '.join(numbers[:3])})",
            "a header line with names, and one row for each draw",
            "Without a header, the first draw is taken for it: add a line of names on top. If each "
            "draw is a column, transpose the table.",
        )


def _as_floats(column: pd.Series[Any], decimal: str = "") -> tuple[Array, str]:
    """Numbers (n,), NaN where a cell is no number, and a note on another number format."""
    if column.dtype.kind not in "fiub":
        # A number format is one of texts; among numbers, a text is a stray.
        if bool(column.map(lambda cell: isinstance(cell, str)).all()):
            values, note = read_numbers(column.tolist(), decimal)
            return values, note if np.isfinite(values).all() else ""
        # Pandas takes dates for nanoseconds, and integers beyond the range of floats for texts.
        known = (str, bool, np.bool_, float, np.floating)
        cells = column.map(lambda cell: cell if isinstance(cell, known) else str(cell))
        column = pandas().to_numeric(cells, errors="coerce")
    return column.to_numpy(dtype=float, na_value=np.nan), ""


def _bad_cells(
    argument: str, column: pd.Series[Any], bad: Indices, rows: Indices, region: Region | None
) -> Iterator[Problem]:
    """Problems of the `bad` cells of a column; one for all that have the same text or format."""
    told: set[str] = set()
    name = str(column.name)
    more = f" and {bad.size - 1:,} more like it in this column" if bad.size > 1 else ""
    # A number beside cells of another format is not what is wrong.
    bad = np.array(sorted(bad, key=lambda i: str(column.iloc[i]).isdigit()), dtype=np.intp)
    for i in map(int, bad[:MOST_PROBLEMS]):
        text = "" if pandas().isna(column.iloc[i]) else str(column.iloc[i]).strip()
        line = int(region.lines[rows[i]]) if region else None
        row = int(rows[i]) + 1 if region is None else int(region.lines[rows[i]]) - region.header
        address = region.address(name, rows[i]) if region else ""
        where = f"column {name!r}, row {row:,}" + f" (line {line or 0:,} of the file)" * bool(line)
        where = f"cell {address} (column {name!r})" if address else where
        kind = next(kind for kind, diagnosis in _DIAGNOSES.items() if diagnosis[0](text))
        _, words, advice = _DIAGNOSES[kind]
        if not {kind, text} & told:
            quoted = text if kind == "error" else shown(text) if text else "an empty cell"
            readings = (re.sub("[.,]", mark, text) for mark in ("", "."))
            given = f"{words.format(quoted, *readings)} in {where}{more}"
            error = InputError(argument, given, "a finite number in every cell", advice)
            yield Problem(argument, error, name, row, line, text, address)
        # Missing cells and errors have a cause each.
        if kind not in ("missing", "error"):
            told.add(text if kind == "text" else kind)


# Numbers that stand for a missing value.
_CODES = (99.0, 999.0, 9999.0, 99999.0, 999999.0)
_MISSING = ("", "na", "n/a", "nan", "null", "none")
# Kinds of bad cells, the first that fits: whether a text is one, its description, and advice.
_DIAGNOSES: dict[str, tuple[Callable[[str], object], str, str]] = {
    "missing": (
        lambda text: text.casefold() in _MISSING,
        "a missing value ({})",
        "Remove the whole draw from all tables, or find out why the model has no value.",
    ),
    "error": (
        lambda text: text[0] == "#" and text[1:2].isalpha(),
        "the error {}",
        "Find out why the model has no value there.",
    ),
    "formula": (
        lambda text: text[0] == "=",
        "the formula {} without a saved value",
        "Open the workbook in Excel or LibreOffice, let it calculate, save it, try again.",
    ),
    "letters": (
        _ABBREVIATED.fullmatch,
        "{}, a number with a letter for thousands or millions",
        "Write it in full, as 3600000 for 3.6m.",
    ),
    "unclear": (
        _UNCLEAR.fullmatch,
        "{}, which may be {} or {},",
        "Write numbers without separators of thousands, and with another number of decimals than "
        "three (in a spreadsheet: number format “General”).",
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
    "code": (
        lambda text: is_float(text) and abs(float(text)) in _CODES,
        "{}, which stands for a missing value",
        "Remove the whole draw from all tables, or find out why the model has no value.",
    ),
    "text": (lambda text: True, "the text {}", "Notes beside the numbers have to go."),
}
