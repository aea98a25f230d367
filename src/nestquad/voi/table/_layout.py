"""The table among cells: its header, its draws, totals and notes that are none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import shown
from nestquad._typing import Array, Indices
from nestquad.errors import InputError
from nestquad.voi.table._limits import LARGEST
from nestquad.voi.table._names import DRAW_NAMES, one_line
from nestquad.voi.table._numbers import decimal_mark, is_float, is_quantity, pandas, read_numbers

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LayoutSettings:
    """Numbers by which a table and its totals are recognized, chosen on workbooks of the tests."""

    # Lines of names: units and titles of blocks may stand above the header.
    name_lines: int = 3
    # Cells outside the table that a note quotes.
    quoted: int = 4
    # Rows at either end that may be summaries.
    summary_rows: int = 10
    # Relative difference below which a cell equals a mean or a total; formulas are exact to 1e-12.
    equal: float = 1e-6
    # Share of a standard deviation below which rounding leaves a mean recognizable: of two columns,
    # one draw in 4,000 is as near.
    sharp: float = 0.02


LAYOUT = LayoutSettings()
# Labels of rows that spreadsheets have above or below the draws.
_SUMMARY_WORDS = re.compile(
    r"(grand |sub)?(mean|average|avg|total|sum|median|st\.? ?dev\.?|s\.?[de]\.?|min|max|count|"
    r"lower|upper|base[- ]?case|deterministic|point estimate)( .*)?[:=]?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Region:
    """Draws as they stand in a file or on a sheet.

    Cells of the draws, the line of each from 1, the line of the header, letters of columns by name
    (of sheets), notes on what is left out or converted, numbers of draws above blank lines, texts
    above the header, the decimal mark where a cell shows it, and names of hidden columns.
    """

    frame: pd.DataFrame
    lines: Indices
    header: int = 0
    letters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    blanks: tuple[int, ...] = ()
    titles: tuple[str, ...] = ()
    decimal: str = ""
    hidden: tuple[str, ...] = ()


def find_table(
    cells: pd.DataFrame,
    lines: Indices,
    widths: Indices | None = None,
    decimal: str = "",
    name: str = "",
) -> Region:
    """Largest table among cells, None where empty, with notes on what is left out around it.

    `lines` are lines of the file. Of a text: numbers of cells in each of them, its decimal mark
    where that is known, and its name.
    """
    filled = cells.notna().to_numpy(copy=True)
    numeric = filled & cells.map(is_quantity).to_numpy(dtype=bool)
    header, end = _header(cells, filled, numeric)
    counts = numeric[header + 1 : end].sum(axis=1)
    body = np.flatnonzero(counts >= _fewest(counts)) + header + 1
    if widths is not None and body.size:
        cells = _with_row_names(name, cells, header, body, lines, widths)
    first, last = (body[0], body[-1]) if body.size else (header + 1, header)
    kept = _columns(cells.iloc[header].notna().to_numpy(), filled[body], numeric[body])
    names, used = _column_names(cells.iloc[: header + 1, kept])
    rows = np.flatnonzero(filled[:end].any(axis=1))
    rows = rows[(rows >= first) & ((rows <= last) | numeric[rows].any(axis=1))]
    again = [i for i in np.setdiff1d(rows, body) if _texts(cells.iloc[i, kept]) == names]
    draws, blank = np.setdiff1d(rows, again), np.setdiff1d(np.arange(first, last), rows)
    outside = filled[:end]
    outside[np.ix_([header, *rows], kept)] = False
    outside[header - used : header] = False
    places = [
        f"{shown(one_line(cells.iat[i, j])[:60])} "
        f"({f'line {lines[i]}' if widths is not None else f'{column_letter(j)}{lines[i]}'})"
        for i, j in np.argwhere(outside).tolist()
    ]
    more = f" and {len(places) - LAYOUT.quoted:,} more" if len(places) > LAYOUT.quoted else ""
    notes = [f"outside the table: {', '.join(places[: LAYOUT.quoted])}{more}"] if places else []
    notes += [f"{blank.size:,} blank row{'s' * (blank.size > 1)} left out"] if blank.size else []
    notes += [
        f"the header stands in line {lines[i]:,} again and is left out there: the lines below it "
        "are read as more draws"
        for i in again
    ]
    if end < len(cells):
        title = shown(one_line(cells.iloc[end].dropna().iloc[0])[:60])
        notes.append(
            f"line {lines[end]:,} and below, from {title} on, are left out as another table"
        )
    frame = cells.iloc[draws, kept].reset_index(drop=True).set_axis(names, axis=1)
    decimal = decimal or decimal_mark(frame.to_numpy().ravel())
    frame, left, converted = draws_alone(frame, lines[draws], "line", decimal)
    draws = draws[left]
    return Region(
        frame,
        lines[draws],
        int(lines[header]),
        {} if widths is not None else dict(zip(names, map(column_letter, kept), strict=True)),
        (*notes, *converted),
        tuple(k for k in np.searchsorted(draws, blank).tolist() if 0 < k < len(draws)),
        tuple(one_line(x) for x in cells.iloc[: int(first)].stack() if isinstance(x, str)),
        decimal,
    )


def _texts(cells: Iterable[Any]) -> list[str]:
    """Cells in one line each, "" where empty."""
    return ["" if cell != cell or cell is None else one_line(cell) for cell in cells]


def _fewest(counts: Any) -> float:
    """Fewest numbers of a draw: half as many as the median row with any."""
    return max(float(np.median(counts[counts > 0])) / 2 if counts.any() else 1.0, 1.0)


def _header(cells: pd.DataFrame, filled: Any, numeric: Any) -> tuple[int, int]:
    """Row of the header of the longest run of draws, and the row where the next table begins."""
    counts = numeric.sum(axis=1)
    is_draw = counts >= _fewest(counts)
    n_texts = (filled & ~numeric).sum(axis=1)
    heads: list[int] = []
    # A narrower table has numbers below all of its names.
    fits = (filled[:-1] == numeric[1:]).all(axis=1) & (n_texts[:-1] > 1)
    is_head = (n_texts >= _fewest(counts)) | np.append(fits, False)
    for i in np.flatnonzero(is_head & ~is_draw):
        if i and is_draw[i - 1]:  # a pasted table, no header again and no line of missing values
            names = [*filter(None, _texts(cells.iloc[i]))]
            above = [[*filter(None, _texts(cells.iloc[head]))] for head in heads]
            if len({*names}) < len(names) or numeric[i].any() or names in above:
                continue
        heads.append(int(i))
    if not heads:
        return int(filled.any(axis=1).argmax()), len(cells)
    ends = [*heads[1:], len(cells)]
    at = int(np.argmax([is_draw[i:j].sum() for i, j in zip(heads, ends, strict=True)]))
    # Units may stand below the names, titles of blocks above them: most names are the header.
    start = at
    while start > 0 and not is_draw[heads[start - 1] : heads[start]].any():
        start -= 1
    group = heads[start : at + 1][::-1]
    distinct = [cells.iloc[head].dropna().astype(str).nunique() for head in group]
    header = group[int(np.argmax(distinct))]
    # Names in cells that are merged with the line below leave gaps, which that line fills.
    left = np.maximum.accumulate(filled[header])
    gaps = ~filled[header] & left & np.maximum.accumulate(filled[header, ::-1])[::-1]
    return next((head for head in group if (filled[head] & gaps).any()), header), ends[at]


def _with_row_names(
    name: str, cells: pd.DataFrame, header: int, body: Indices, lines: Indices, widths: Indices
) -> pd.DataFrame:
    """Cells with an empty name above row names, which R writes; refused where rows differ."""
    used = cells.shape[1] - cells.iloc[body, ::-1].notna().to_numpy().argmax(axis=1)
    if used.max() <= widths[header]:
        return cells
    first = pandas().to_numeric(cells.iloc[body, 0], errors="coerce").to_numpy(dtype=float)
    rises = np.all(first == np.round(first)) and np.all(np.diff(first) > 0)
    if rises and (used == widths[header] + 1).all():
        cells = cells.copy()
        cells.iloc[header] = [None, *cells.iloc[header].tolist()[:-1]]
        return cells
    line = lines[body[int(np.argmax(used > widths[header]))]]
    counts = f"{widths[header]} cells in the header, {used.max()} in line {line:,}"
    expected = "as many cells in every line as in the header"
    advice = "Is there a comma inside a name or a number? Put it in quotes, or take it out."
    raise InputError(name, f"lines of different lengths ({counts})", expected, advice)


def _columns(named: Any, filled: Any, numeric: Any) -> list[int]:
    """Columns of the table: blocks that most draws fill, without notes in or next to them."""
    share = filled.mean(axis=0) if len(filled) else named.astype(float)
    used = named | (share > 0)
    blocks = np.cumsum(~used)
    kept = [
        int(j)
        for j in np.flatnonzero(used)
        if share[blocks == blocks[j]].max() >= 0.5
        and (share[j] >= 0.5 or (named[j] and (share[j] == 0 or numeric[:, j].any())))
    ]
    return kept or np.flatnonzero(used).tolist()


def _column_names(top: pd.DataFrame) -> tuple[list[str], int]:
    """Names of columns, and the lines above the header that are part of them.

    A column without a name has that of a merged cell above it; columns of equal names get the title
    of their block, in the nearest line above that tells them apart.
    """
    lines = [*map(_texts, top.to_numpy())]
    names, used = lines[-1], 0
    above = lines[-1 : -1 - LAYOUT.name_lines : -1][1:]
    if "" in names and above and sum(map(bool, above[0])) > 1:
        names, used = [name or other for name, other in zip(names, above[0], strict=True)], 1
    for depth, line in enumerate(above, 1):
        if len(set(names)) == len(names):
            break
        if sum(map(bool, line)) < 2:
            continue
        blocks = pandas().Series(line, dtype=object).replace("", None).ffill().fillna("")
        named = [
            f"{block} {name}".strip() if names.count(name) > 1 else name
            for block, name in zip(blocks, names, strict=True)
        ]
        if len(set(named)) == len(names):
            names, used = named, depth
    return names, used


def column_letter(column: int) -> str:
    """Letter of a column, counted from 0, on a sheet."""
    from openpyxl.utils import get_column_letter

    return str(get_column_letter(column + 1))


def draws_alone(
    frame: pd.DataFrame, lines: Indices, word: str, decimal: str = ""
) -> tuple[pd.DataFrame, Indices, list[str]]:
    """Draws of a table as numbers where they are, their rows, and notes on formats and totals."""
    attrs = frame.attrs
    frame, notes = _with_numbers(frame, decimal)
    summaries = _summary_rows(frame)
    rows = np.array([i for i in range(len(frame)) if i not in summaries], dtype=np.intp)
    if summaries:
        is_default = isinstance(frame.index, pandas().RangeIndex)
        frame = frame.iloc[rows].infer_objects()
        frame = frame.reset_index(drop=True) if is_default else frame
        frame, formats = _with_numbers(frame, decimal)  # of columns that had a label
        told = ", ".join(f"{word} {lines[i]:,} ({said})" for i, said in summaries.items())
        notes += [*formats, f"rows that summarize the draws are left out: {told}"]
    frame.attrs = attrs
    return frame, rows, notes


def _with_numbers(frame: pd.DataFrame, decimal: str) -> tuple[pd.DataFrame, list[str]]:
    """Columns of texts as numbers where every filled cell is one, and notes on their formats."""
    columns, noted = {}, dict[str, list[str]]()
    for j, (name, column) in enumerate(frame.items()):
        filled = column.notna().to_numpy()
        columns[j] = column
        if column.dtype.kind in "OU" and all(isinstance(cell, str) for cell in column[filled]):
            values, note = read_numbers(column, decimal)
            if filled.any() and np.isfinite(values[filled]).all():
                columns[j] = pandas().Series(values, index=column.index)
                noted.setdefault(note, []).append(str(name))
        elif column.dtype.kind == "O":
            columns[j] = column.infer_objects()
    notes = []
    for note, names in noted.items():
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        notes += [f"{', '.join(map(repr, names[:3]))}{more}: {note}"] if note else []
    joined = pandas().DataFrame(columns, index=frame.index)
    return joined.set_axis(frame.columns, axis=1), notes


def _summary_rows(frame: pd.DataFrame) -> dict[int, str]:
    """Rows of means, totals and the like, by a label or by their numbers, and the word for each."""
    rows = dict(_labelled(frame))
    draws = np.setdiff1d(np.arange(len(frame)), [*rows]).astype(np.intp)
    is_number = np.array([bool(DRAW_NAMES.fullmatch(str(name))) for name in frame], dtype=bool)
    # Integers beyond the range of floats are read as texts.
    numbers = [
        pandas().to_numeric(c.astype(str) if c.dtype == object else c, errors="coerce")
        for _, c in frame.items()
    ]
    table = np.array(numbers, dtype=float).reshape(len(numbers), len(frame)).T
    values = table[:, ~is_number]
    for step in (1, -1):
        draws, count = draws[::step], 1
        while count <= min(LAYOUT.summary_rows, len(draws) - 3):
            words = _statistics(values[draws[:-count]], values[draws[-count:]])
            if any(words):
                said = (word or "summary" for word in words)
                rows |= dict(zip(map(int, draws[-count:]), said, strict=True))
                draws, count = draws[:-count], 0
            count += 1
        draws = draws[::step]
    for _, column in frame.loc[:, is_number].items():
        counted = np.sort(pandas().to_numeric(column.astype(str), errors="coerce").dropna())
        if len(counted) > 1 and (np.diff(counted) == 1).all():
            rows = dict.fromkeys(np.flatnonzero(column.isna()).tolist(), "without a number") | rows
    return dict(sorted(rows.items()))


def _labelled(frame: pd.DataFrame) -> Iterator[tuple[int, str]]:
    """Rows with a label such as Mean, or any text in a column that numbers draws, and the label."""
    for name, column in frame.items():
        words = [] if column.dtype.kind in "fiub" else _texts(column)
        texts = [i for i, w in enumerate(words) if w and w[0] not in "#=" and not is_float(w)]
        is_numeric = 2 * len(texts) < len(words)
        is_number = is_numeric and DRAW_NAMES.fullmatch(str(name))
        for i in texts:
            is_label = _SUMMARY_WORDS.fullmatch(words[i])
            if is_number or (is_label and (is_numeric or words.count(words[i]) == 1)):
                yield i, words[i]


def _statistics(draws: Array, rows: Array) -> list[str]:
    """Statistic of the draws (n, p) that each of the rows (k, p) holds, rounded or not, or ""."""
    # Squares of larger numbers are no floats.
    usable: Any = (np.abs(draws) < LARGEST).all(axis=0)
    usable[usable] = np.ptp(draws[:, usable], axis=0) > 0
    rows, x = rows[:, usable], draws[:, usable]
    sd = x.std(axis=0, ddof=1)
    statistics = {"mean": x.mean(axis=0), "total": x.sum(axis=0), "standard deviation": sd}
    # Sums of both signs cancel.
    size = np.maximum(np.abs([*statistics.values()]), 1e-3 * np.abs(x).mean(axis=0))
    error = LAYOUT.equal ** (1.0 if x.shape[1] > 1 else 1.5) * size
    found = []
    for row in rows:
        known = np.abs(row) < LARGEST
        decimals = [len(f"{value:.12f}".rstrip("0").partition(".")[2]) for value in row[known]]
        gap, exact = np.abs(row - [*statistics.values()])[:, known], error[:, known]
        rounded = np.maximum(exact, 0.5 * 10.0 ** -np.array(decimals, dtype=float))
        is_sharp, is_rounded_sharp = (e < LAYOUT.sharp * sd[known] for e in (exact, rounded))
        fits = (gap <= exact).all(axis=1) & is_sharp.any(axis=1)
        fits |= (gap <= rounded).all(axis=1) & (is_rounded_sharp.sum(axis=1) > 1)
        # The mean of a continuous column is none of its draws; of a discrete one it may be.
        is_new = (known & ~(x == row).any(axis=0)).any()
        found.append([*statistics][int(fits.argmax())] if is_new and fits.any() else "")
    return found
