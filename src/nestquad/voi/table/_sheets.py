"""Location of the table on a sheet: header, draws, and the titles, notes and totals around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import shown
from nestquad._typing import Array, Indices
from nestquad.errors import optional_module
from nestquad.voi.table._numbers import is_float, is_quantity

if TYPE_CHECKING:
    import pandas as pd

# Labels of rows that spreadsheets have beside the draws.
_SUMMARY_WORDS = re.compile(
    r"(grand |sub)?(mean|average|avg|total|sum|median|st\.? ?dev\.?|s\.?[de]\.?|min|max|count|"
    r"lower|upper)( .*)?[:=]?",
    re.IGNORECASE,
)
# Rows at either end that may be summaries: mean, standard deviation, quantiles.
_MOST_SUMMARIES = 10
# Relative difference below which a cell equals a mean or a total; formulas are exact to 1e-12.
_EQUAL = 1e-6
# Cells in a note; the sheet has the others.
_MOST_QUOTED = 4


@dataclass(frozen=True)
class Region:
    """A table as it stands in a file.

    Attributes
    ----------
    frame
        Cells below the header, named by it.
    lines
        Line of each row in the file or sheet, from 1.
    header
        Line of the header.
    letters
        Letters of the columns by name; empty for text files.
    notes
        Descriptions of the cells and rows that are left out.
    """

    frame: pd.DataFrame
    lines: Indices
    header: int
    letters: Mapping[str, str]
    notes: tuple[str, ...] = ()


def find_table(cells: pd.DataFrame, *, lettered: bool = False) -> Region:
    """Find the largest table with a header among cells, (rows × columns) from the first line on.

    The header is the row with most names above the longest run of draws. Cells outside the table,
    blank rows and repeated headers are left out and noted.
    """
    header, stop = find_header(cells)
    return table_below(cells.iloc[: header + 1], cells.iloc[header + 1 : stop], lettered=lettered)


def table_below(top: pd.DataFrame, below: pd.DataFrame, *, lettered: bool = False) -> Region:
    """Table of the cells `below` a header, which is the last row of `top`."""
    header = len(top) - 1
    filled, numeric, body, _ = _masks(below)
    named = np.zeros(below.shape[1], dtype=bool)
    named[: top.shape[1]] = top.iloc[header].notna().to_numpy()[: below.shape[1]]
    rows = np.flatnonzero(filled.any(axis=1))
    inside = np.flatnonzero(body)
    kept = _columns(named, filled[inside], numeric[inside])
    names = _names(top.reindex(columns=range(below.shape[1])).iloc[:, kept])
    repeated = np.zeros(len(rows), dtype=bool)
    for k in np.flatnonzero(~body[rows]):
        repeated[k] = [str(x).strip() for x in below.iloc[rows[k], kept]] == names
    first, last = (inside[0], inside[-1]) if inside.size else (0, -1)
    within = (rows >= first) & ((rows <= last) | numeric[rows].any(axis=1))
    draws = rows[within & ~repeated]
    blank = int(last - first + 1 - np.sum((rows >= first) & (rows <= last)))
    outside = filled.copy()
    outside[np.ix_(np.concatenate((draws, rows[repeated])), np.array(kept, dtype=int))] = False
    above = top.notna().to_numpy(copy=True)
    above[header, [j for j in kept if j < top.shape[1]]] = False
    if _is_super_header(top, header):
        above[header - 1] = False
    notes = list(_left_out(((top, above, 1), (below, outside, header + 2)), lettered))
    notes += [f"{blank:,} blank row{'s' * (blank > 1)} left out"] if blank else []
    notes += [f"{repeated.sum():,} repeated header left out"] if repeated.any() else []
    frame = below.iloc[draws, kept].reset_index(drop=True)
    frame.columns = names
    letters = {name: _letter(j) for name, j in zip(names, kept, strict=True)} if lettered else {}
    return Region(frame.infer_objects(), draws + header + 2, header + 1, letters, tuple(notes))


def _masks(cells: pd.DataFrame) -> tuple[Any, Any, Any, float]:
    """Filled cells, cells meant as numbers, rows of draws, and the fewest numbers of a draw."""
    filled = cells.notna().to_numpy(dtype=bool)
    numeric = filled & np.column_stack([is_quantity(cells[j]) for j in cells.columns])
    counts = numeric.sum(axis=1)
    fewest = max(float(np.median(counts[counts > 0])) / 2 if counts.any() else 1.0, 1.0)
    return filled, numeric, counts >= fewest, fewest


def find_header(cells: pd.DataFrame) -> tuple[int, int]:
    """Row of the header of the longest run of draws, and the row where the next table begins."""
    filled, numeric, body, typical = _masks(cells)
    texts = filled & ~numeric
    n_texts = texts.sum(axis=1)
    above = np.concatenate(([False], body[:-1]))
    heads = np.flatnonzero((n_texts >= typical) & ~body & ~above)
    if not heads.size:
        filled = np.flatnonzero(cells.notna().any(axis=1).to_numpy())
        return (int(filled[0]) if filled.size else 0), len(cells)
    ends = np.append(heads[1:], len(cells))
    sizes = np.array([body[start:end].sum() for start, end in zip(heads, ends, strict=True)])
    at = int(sizes.argmax())
    # Units may stand below the names, titles of blocks above them: most names are the header.
    group = [at]
    while group[0] > 0 and not body[heads[group[0] - 1] : heads[group[0]]].any():
        group.insert(0, group[0] - 1)
    distinct = [len(set(cells.iloc[heads[g]].dropna().astype(str))) for g in group]
    best = group[len(group) - 1 - int(np.argmax(distinct[::-1]))]
    return int(heads[best]), int(ends[at])


def _columns(named: Any, filled: Any, numeric: Any) -> list[int]:
    """Columns of the table: blocks that most draws fill, without notes in or beside them."""
    share = filled.mean(axis=0) if len(filled) else named.astype(float)
    used = named | (share > 0)
    blocks = np.cumsum(~used)
    kept = [
        j
        for j in np.flatnonzero(used)
        if share[blocks == blocks[j]].max() >= 0.5
        and (share[j] >= 0.5 or (named[j] and (share[j] == 0 or numeric[:, j].any())))
    ]
    return [int(j) for j in kept] or [int(j) for j in np.flatnonzero(used)]


def _is_super_header(cells: pd.DataFrame, header: int) -> bool:
    """Whether the row above the header has titles of blocks of columns."""
    return header > 0 and int(cells.iloc[header - 1].notna().sum()) > 1


def _names(top: pd.DataFrame) -> list[str]:
    """Names of columns; equal ones get the title of their block, which stands above them."""
    header = len(top) - 1
    names = ["" if cell != cell or cell is None else one_line(cell) for cell in top.iloc[header]]
    if len(set(names)) == len(names) or not _is_super_header(top, header):
        return names
    blocks = top.iloc[header - 1].ffill()
    return [
        f"{one_line(block)} {name}" if names.count(name) > 1 and isinstance(block, str) else name
        for block, name in zip(blocks, names, strict=True)
    ]


def _left_out(parts: Sequence[tuple[Any, Any, int]], lettered: bool) -> Iterator[str]:
    """One note that quotes cells outside the table: of each part cells, mask and first line."""
    quoted = []
    for cells, outside, line in parts:
        for i, j in np.argwhere(outside):
            where = f"{_letter(j)}{i + line}" if lettered else f"line {i + line}"
            quoted.append(f"{shown(one_line(cells.iloc[i, j])[:60])} ({where})")
    if quoted:
        left = len(quoted) - _MOST_QUOTED
        more = f" and {left:,} more" if left > 0 else ""
        yield f"outside the table: {', '.join(quoted[:_MOST_QUOTED])}{more}"


def summary_rows(frame: pd.DataFrame) -> dict[int, str]:
    """Rows of means, totals and the like at either end of the draws, and the word for each.

    They are known by a label, or by their numbers: a row whose cells are the means, sums or
    standard deviations of the rows before or after it begins a block of summaries.
    """
    n = len(frame)
    rows = {i: word for i, word in _labelled(frame) if 0 <= i < n}
    draws = np.array([i for i in range(n) if i not in rows])
    to_numeric = optional_module("pandas", "Value of information", "voi").to_numeric
    # Integers beyond the range of floats are read as texts.
    texts = frame.astype({name: str for name in frame.columns if frame[name].dtype == object})
    cells = [to_numeric(texts.iloc[:, j], errors="coerce") for j in range(frame.shape[1])]
    values = np.column_stack([np.asarray(column, dtype=float) for column in cells])[draws]
    for reverse in (False, True):
        ordered = values[::-1] if reverse else values
        for count in range(min(_MOST_SUMMARIES, len(ordered) - 3), 0, -1):
            word = _statistic(ordered[: len(ordered) - count], ordered[len(ordered) - count])
            if word:
                at = draws[:count][::-1] if reverse else draws[-count:]
                rows |= {int(i): word if k == 0 else "summary" for k, i in enumerate(at)}
                break
    return dict(sorted(rows.items()))


def _labelled(frame: pd.DataFrame) -> Iterator[tuple[int, str]]:
    ends = {*range(min(_MOST_SUMMARIES, len(frame)))}
    ends |= {*range(max(len(frame) - _MOST_SUMMARIES, 0), len(frame))}
    for j in range(frame.shape[1]):
        column = frame.iloc[:, j]
        if column.dtype.kind in "fiub" or not len(column):
            continue
        for i in sorted(ends):
            word = str(column.iloc[i]).strip()
            others = sum(is_float(str(column.iloc[k])) or column.iloc[k] is None for k in ends)
            unlabelled = column.isna().mean() > 0.5 or 2 * others > len(ends)
            if _SUMMARY_WORDS.fullmatch(word) and (unlabelled or (column == word).sum() == 1):
                yield i, word


def _statistic(draws: Array, row: Array) -> str:
    """The word for a row that holds a statistic of the draws; "" where it is a draw."""
    # Squares of larger numbers are no floats.
    known = (np.abs(row) < 1e100) & (np.abs(draws) < 1e100).all(axis=0)
    known[known] &= np.ptp(draws[:, known], axis=0) > 0
    # The mean of a continuous column is none of its draws; of a discrete one it may be.
    if not (known & ~(draws == row).any(axis=0)).any():
        return ""
    x, y = draws[:, known], row[known]
    mean, sd = x.mean(axis=0), x.std(axis=0, ddof=1)
    size = np.abs(x).mean(axis=0)
    for word, value in (("mean", mean), ("total", x.sum(axis=0)), ("standard deviation", sd)):
        if np.all(np.abs(y - value) <= _EQUAL * np.maximum(np.abs(value), 1e-3 * size)):
            return word
    return ""


def one_line(name: object) -> str:
    """A name in one line: control characters can be in no workbook and no document."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", str(name)).strip()


def _letter(column: int) -> str:
    letters, column = "", int(column) + 1
    while column:
        column, digit = divmod(column - 1, 26)
        letters = chr(65 + digit) + letters
    return letters
