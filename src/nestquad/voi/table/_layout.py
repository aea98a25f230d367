"""The table among cells: its header, its draws, totals and notes that are none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
    # Rows at either end that may be summaries, and quantiles that are known without a label.
    summary_rows: int = 10
    quantiles: tuple[float, ...] = (0.5, 0.025, 0.975)
    # Relative difference below which a cell equals a mean or a total; formulas are exact to 1e-12.
    equal: float = 1e-6
    # Share of a standard deviation below which rounding leaves a mean recognizable: of two columns,
    # one draw in 4,000 is as near.
    sharp: float = 0.02
    # Fewest rows of a subtotal: 1 + 2 is 3 in 1, 2, 3, …
    block: int = 5
    # Interquartile ranges beyond which a total is no draw, and its relative rounding error.
    far: float = 5.0
    rounded: float = 1e-3


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
    above the header, and the decimal mark where a cell shows it.
    """

    frame: pd.DataFrame
    lines: Indices
    header: int = 0
    letters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    blanks: tuple[int, ...] = ()
    titles: tuple[str, ...] = ()
    decimal: str = ""


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
    is_header = np.zeros(len(rows), dtype=bool)
    for k in np.flatnonzero(~np.isin(rows, body)):
        is_header[k] = [str(cell).strip() for cell in cells.iloc[rows[k], kept]] == names
    draws, blank = rows[~is_header], np.setdiff1d(np.arange(first, last), rows)
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
    notes += [f"{is_header.sum():,} repeated header left out"] if is_header.any() else []
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


def _fewest(counts: Any) -> float:
    """Fewest numbers of a draw: half as many as the median row with any."""
    return max(float(np.median(counts[counts > 0])) / 2 if counts.any() else 1.0, 1.0)


def _header(cells: pd.DataFrame, filled: Any, numeric: Any) -> tuple[int, int]:
    """Row of the header of the longest run of draws, and the row where the next table begins."""
    counts = numeric.sum(axis=1)
    is_draw = counts >= _fewest(counts)
    below_draw = np.concatenate(([False], is_draw[:-1]))
    n_texts = (filled & ~numeric).sum(axis=1)
    heads = np.flatnonzero((n_texts >= _fewest(counts)) & ~is_draw & ~below_draw)
    if not heads.size:
        return int(filled.any(axis=1).argmax()), len(cells)
    ends = np.append(heads[1:], len(cells))
    at = int(np.argmax([is_draw[i:j].sum() for i, j in zip(heads, ends, strict=True)]))
    # Units may stand below the names, titles of blocks above them: most names are the header.
    start = at
    while start > 0 and not is_draw[heads[start - 1] : heads[start]].any():
        start -= 1
    group = heads[start : at + 1][::-1]
    distinct = [cells.iloc[head].dropna().astype(str).nunique() for head in group]
    header = int(group[int(np.argmax(distinct))])
    # Names in cells that are merged with the line below leave gaps, which that line fills.
    left = np.maximum.accumulate(filled[header])
    gaps = ~filled[header] & left & np.maximum.accumulate(filled[header, ::-1])[::-1]
    return next((int(head) for head in group if (filled[head] & gaps).any()), header), int(ends[at])


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
    raise InputError(
        name,
        f"lines of different lengths ({widths[header]} cells in the header, {used.max()} in line "
        f"{line:,})",
        "as many cells in every line as in the header",
        "Is there a comma inside a name or a number? Put it in quotes, or take it out.",
    )


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
    lines = [["" if x != x or x is None else one_line(x) for x in row] for row in top.to_numpy()]
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
    draws = np.array([i for i in range(len(frame)) if i not in rows], dtype=np.intp)
    # Integers beyond the range of floats are read as texts.
    columns = [
        pandas().to_numeric(c.astype(str) if c.dtype == object else c, errors="coerce")
        for name, c in frame.items()
        if not DRAW_NAMES.fullmatch(str(name))
    ]
    values = np.array(columns, dtype=float).reshape(len(columns), len(frame)).T
    while inner := _running_statistics(values[draws]):  # once more for a total of all parts
        rows |= {int(draws[i]): word for i, word in inner.items()}
        draws = np.delete(draws, list(inner))
    if len(draws) > LAYOUT.block and _is_typed(values[draws]):
        rows |= {int(draws[0]): "typed by hand, unlike the draws"}
        draws = draws[1:]
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
    for name, column in frame.items():
        if not DRAW_NAMES.fullmatch(str(name)):
            continue
        numbers = pandas().to_numeric(column.astype(str), errors="coerce").dropna()
        if (np.diff(np.sort(numbers)) == 1).all():
            bare = np.flatnonzero(column.isna()).tolist() if len(numbers) > 1 else []
            rows = dict.fromkeys(bare, "without a number") | rows
    return dict(sorted(rows.items()))


def _is_typed(x: Array) -> bool:
    """Whether the first row (n, p) has a few digits in each column, and all others many."""
    rounded = np.array([[f"{value:.6g}" == f"{value:.12g}" for value in row] for row in x[:, :50]])
    return bool(rounded[0].all() and not rounded[1:].any())


def _labelled(frame: pd.DataFrame) -> Iterator[tuple[int, str]]:
    """Rows with a label such as Mean, or any text in a column that numbers draws, and the label."""
    for name, column in frame.items():
        if column.dtype.kind in "fiub":
            continue
        words = pandas().Series(["" if cell != cell or cell is None else one_line(cell)
                                 for cell in column], dtype=object)  # fmt: skip
        is_text = [bool(word) and word[0] not in "#=" and not is_float(word) for word in words]
        is_numeric = 2 * sum(is_text) < len(words)
        for i in np.flatnonzero(is_text):
            word = words.iloc[i]
            is_alone = is_numeric or (words == word).sum() == 1
            if (is_alone and _SUMMARY_WORDS.fullmatch(word)) or (
                is_numeric and DRAW_NAMES.fullmatch(str(name))
            ):
                yield int(i), word


def _running_statistics(x: Array) -> dict[int, str]:
    """Rows of draws (n, p) that hold the total or the mean of the draws since the last such row."""
    with np.errstate(invalid="ignore"):
        usable = (np.abs(x) < LARGEST).all(axis=0)
    # Discrete draws may well be the total of two others.
    x = x[:, [k for k in np.flatnonzero(usable) if 2 * np.unique(x[:, k]).size > len(x)]]
    equal = LAYOUT.equal ** (1.0 if x.shape[1] > 1 else 1.5)
    spread = np.subtract(*np.quantile(x, [0.75, 0.25], axis=0)) if x.size else 0.0
    rows: dict[int, str] = {}
    start = 0
    while x.shape[1] and start < len(x) - LAYOUT.block:
        total = np.cumsum(x[start:], axis=0)[LAYOUT.block - 1 : -1]
        part = x[start + LAYOUT.block :]
        mean = total / np.arange(LAYOUT.block, len(total) + LAYOUT.block)[:, None]
        # Totals far from all draws may be rounded.
        far = (np.abs(total - mean) > LAYOUT.far * spread).any(axis=1, keepdims=True)
        rounding = far * LAYOUT.rounded * np.abs(total)
        found = {}
        for word, value, error in (("total", total, rounding), ("mean", mean, 0.0)):
            near = (np.abs(part - value) <= np.maximum(equal * np.abs(value), error)).all(axis=1)
            if near.any():
                found[start + LAYOUT.block + int(near.argmax())] = word
        if not found:
            break
        rows |= {(first := min(found)): found[first]}
        start = first + 1
    return rows


def _statistics(draws: Array, rows: Array) -> list[str]:
    """Statistic of the draws (n, p) that each of the rows (k, p) holds; "" for a draw.

    A mean or a total may be rounded; a quantile, which is near many draws, is exact.
    """
    # Squares of larger numbers are no floats.
    usable: Any = (np.abs(draws) < LARGEST).all(axis=0)
    usable[usable] = np.ptp(draws[:, usable], axis=0) > 0
    rows, x = rows[:, usable], draws[:, usable]
    # Sums of both signs cancel.
    size, sd = 1e-3 * np.abs(x).mean(axis=0), x.std(axis=0, ddof=1)
    equal = LAYOUT.equal ** (1.0 if x.shape[1] > 1 else 1.5)
    statistics = {"mean": x.mean(axis=0), "total": x.sum(axis=0), "standard deviation": sd}
    quantiles = LAYOUT.quantiles if x.shape[1] > 1 else ()
    statistics |= {f"{100 * q:g} % quantile": np.quantile(x, q, axis=0) for q in quantiles}
    words = []
    for row in rows:
        known = np.abs(row) < LARGEST
        decimals = [len(f"{value:.12f}".rstrip("0").partition(".")[2]) for value in row[known]]
        unit = 0.5 * 10.0 ** -np.array(decimals, dtype=float)
        word = ""
        # The mean of a continuous column is none of its draws; of a discrete one it may be.
        for name, value in statistics.items() if (known & ~(x == row).any(axis=0)).any() else ():
            is_quantile = "quantile" in name
            least = np.zeros_like(size) if is_quantile else size
            error = equal * np.maximum(np.abs(value), least)[known]
            gap = np.abs(row - value)[known]
            rounded = np.maximum(error, 0.0 if is_quantile else unit)
            n_sharp = np.sum(rounded < LAYOUT.sharp * sd[known])
            is_exact = (gap <= error).all() and (error < LAYOUT.sharp * sd[known]).any()
            if is_exact or (n_sharp > 1 and (gap <= rounded).all()):
                word = word or name
        words.append(word)
    return words
