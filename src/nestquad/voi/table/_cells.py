"""Cells of text files and workbooks, and the table among them: header, draws, totals, notes."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._checks import shown
from nestquad._typing import Array, Indices
from nestquad.errors import InputError, optional_module
from nestquad.voi.table._limits import LARGEST, MOST_COLUMNS, check_table
from nestquad.voi.table._numbers import decimal_mark, has_groups, is_float, is_quantity

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LayoutSettings:
    """Numbers by which the table of a sheet is recognized, chosen on the workbooks of the tests."""

    # First lines of a text with its header, and lines of titles above it.
    header_lines: int = 60
    title_lines: int = 20
    # Lines of names: units and titles of blocks may stand above the header.
    name_lines: int = 3
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
    # Cells outside the table that a note quotes.
    quoted: int = 4


LAYOUT = LayoutSettings()
# Labels of rows that spreadsheets have above or below the draws.
_SUMMARY_WORDS = re.compile(
    r"(grand |sub)?(mean|average|avg|total|sum|median|st\.? ?dev\.?|s\.?[de]\.?|min|max|count|"
    r"lower|upper)( .*)?[:=]?",
    re.IGNORECASE,
)
# Names of columns that number the draws.
DRAW_NAMES = re.compile(
    r"(psa|mc|sim(ulation)?s?|iter(ation)?s?|draws?|samples?|row)s?"
    r"([ _.]?(id|no|nr|number|index|run|sample|iteration|draw|names?|#))?",
    re.IGNORECASE,
)
_SEPARATOR_LINE = re.compile(r"[\"']?sep=(.)[\"']?", re.IGNORECASE)
# Cells stay as they are written, so that errors can show them.
_RAW: dict[str, Any] = {"header": None, "keep_default_na": False, "na_values": [""]}


def pandas() -> Any:
    """The pandas module, or an error that says how to get it."""
    return optional_module("pandas", "Value of information", "voi")


@dataclass(frozen=True)
class Region:
    """A table as it stands in a file or on a sheet.

    Cells below the header, the line of each row from 1, the line of the header, letters of columns
    by name (of sheets), notes on cells and rows that are left out, the decimal mark, "" where no
    cell shows it, lines of blank rows, and texts above the header.
    """

    frame: pd.DataFrame
    lines: Indices
    header: int = 0
    letters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    decimal: str = ""
    blanks: tuple[int, ...] = ()
    titles: tuple[str, ...] = ()

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Region:
        """Region of a table without a file, whose lines count its rows."""
        return cls(frame, np.arange(len(frame)) + 1)

    def address(self, name: str, row: int) -> str:
        """Address of a cell of a sheet, such as B7; "" in a text file."""
        return f"{self.letters[name]}{self.lines[row]}" if name in self.letters else ""

    def line(self, row: int) -> str:
        """Line of a file, or row of a table without a file."""
        return f"{'line' if self.header else 'row'} {self.lines[row]:,}"


def is_workbook(name: str, data: bytes) -> bool:
    """Whether a file is a workbook, by its first bytes or its name."""
    return data[:2] == b"PK" or name.lower().endswith((".xlsx", ".xlsm", ".xls"))


def read_text(name: str, data: bytes) -> Region:
    """Table of a text file of any separator, encoding and decimal mark."""
    pd = pandas()
    check_table(name, data)
    encoding, text = _decoded(name, data)
    lines = [line.strip(" ") if line.strip() else "" for line in text.splitlines()]
    first = lines[: LAYOUT.header_lines]
    separator = _separator(first)
    first = ["" if _SEPARATOR_LINE.fullmatch(line.rstrip(separator)) else line for line in first]
    width = max((len(re.split(separator, line)) for line in first), default=1)
    if width > MOST_COLUMNS:
        raise InputError(name, f"{width:,} columns", f"at most {MOST_COLUMNS:,} columns")
    options: dict[str, Any] = {"sep": separator, "skip_blank_lines": False, **_RAW}
    try:
        lead = io.StringIO("\n".join([*first, ""]))
        top = pd.read_csv(lead, names=range(width), dtype=str, skipinitialspace=True, **options)
        top = top.astype(object).map(lambda x: x.strip() or None if isinstance(x, str) else None)
        above = find_header(top)[0] if len(top) else 0
        options |= {"encoding": encoding, "skiprows": above + 1}
        # Between commas numbers have points; elsewhere the cells tell.
        how: Any = {"low_memory": False} if separator == "," else {"dtype": str}
        frame = pd.read_csv(io.BytesIO(data), **how, **options)
        floats = frame.select_dtypes("float")
        # Floats do not show that 1.25 stands as 1.250 beside 850.
        if unclear := floats.columns[((floats % 1 == 0) & (floats != 0)).any()].tolist():
            texts = pd.read_csv(io.BytesIO(data), usecols=unclear, dtype=str, **options)
            grouped = [name for name in unclear if has_groups(texts[name].dropna())]
            frame[grouped] = texts[grouped]
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
    decimal = "" if separator == "," else decimal_mark(frame.to_numpy().ravel())
    frame = frame.apply(_with_mark, mark=decimal) if separator != "," else frame
    # Between commas, a number with a comma makes one cell too many as well.
    numbered = separator == r"\s+" or bool(np.array_equal(frame[0], np.arange(len(frame)) + 1))
    named = len(top) and (top.iloc[above].last_valid_index() or 0) + 1
    if frame.shape[1] == named + 1 and numbered:
        top.iloc[above] = [None, *top.iloc[above].tolist()][: top.shape[1]]  # as R's write.table
    region = replace(table_below(top.iloc[: above + 1], frame), decimal=decimal)
    is_read = decimal == "," and any(dtype.kind in "fiu" for dtype in region.frame.dtypes)
    notes = ("the file has decimal commas: 1,5 is 1.5",) if is_read else ()
    return replace(region, notes=(*notes, *region.notes))


def _with_mark(column: pd.Series[Any], mark: str) -> pd.Series[Any]:
    """Numbers of a column of texts with this decimal mark; as it is where one is unclear."""
    other = column.str.contains({",": r"\.", ".": ",", "": "[.,]"}[mark])
    if other.any() or has_groups(column.dropna()):
        return column
    numbers = pandas().to_numeric(column.str.replace(",", "."), errors="coerce")
    return numbers if numbers.notna().equals(column.notna()) else column


def _decoded(name: str, data: bytes) -> tuple[str, str]:
    """Encoding and text of a file."""
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # spreadsheets: “Unicode text”
        return "utf-16", data.decode("utf-16", errors="replace")
    if b"\0" in data[:65536]:
        raise InputError(name, "a file that is not text", "a .csv file or an .xlsx workbook")
    try:
        return "utf-8-sig", data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "cp1252", data.decode("cp1252", errors="replace")


def _separator(lines: Sequence[str]) -> str:
    """Separator of most lines, which one of the first lines with words has as often."""
    stated = [match[1] for line in lines if (match := _SEPARATOR_LINE.fullmatch(line))]
    rows = [line for line in lines if line and not _SEPARATOR_LINE.fullmatch(line)]
    wordy = [row for row in rows if re.search(r"[^\W\d_eE]", row)][: LAYOUT.title_lines]
    for mark in (*stated, "\t", ";", ","):
        counts = [row.count(mark) for row in rows]
        usual = max(set(counts), key=counts.count, default=0)
        if usual and any(row.count(mark) >= max(usual - 1, 1) for row in wordy or rows):
            return mark
    return r"\s+" if sum(" " in row for row in rows) > len(rows) / 2 else ","


def read_sheets(file: str, data: bytes, chosen: Sequence[str] = ()) -> dict[str, Region]:
    """Table of every sheet of a workbook that is visible, or chosen."""
    calamine = optional_module("python_calamine", "Reading a workbook", "voi")
    check_table(f"workbook ({file})", data)
    visible = calamine.SheetVisibleEnum.Visible
    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        sheets = pandas().read_excel(io.BytesIO(data), sheet_name=None, engine="calamine", **_RAW)
    except MemoryError:
        raise
    except Exception as error:  # calamine has no common base class of errors
        raise InputError(
            "workbook",
            f"{file}, which cannot be read ({type(error).__name__}: {error})",
            "an .xlsx workbook",
            "Older .xls files: save as .xlsx.",
        ) from None
    hidden = [sheet for sheet in book.sheets_metadata if sheet.visible != visible]
    hidden = [sheet.name for sheet in hidden if sheet.name in sheets and sheets[sheet.name].size]
    used = {s: cells for s, cells in sheets.items() if s in chosen or s not in hidden} or sheets
    regions = {sheet: _on_sheet(data, sheet, cells) for sheet, cells in used.items()}
    if left := [sheet for sheet in sheets if sheet not in used]:
        largest = max(regions, key=lambda sheet: regions[sheet].frame.size)
        note = f"hidden sheet {', '.join(map(repr, left))} not used"
        regions[largest] = replace(regions[largest], notes=(note, *regions[largest].notes))
    return regions


def _on_sheet(data: bytes, sheet: str, cells: pd.DataFrame) -> Region:
    """Largest table of a sheet with a header; where cells are empty, with errors and formulas."""
    if cells.empty:
        return Region(cells, np.arange(0))
    for at_last in (False, True):
        cells = _with_errors(data, sheet) if at_last else cells
        header, stop = find_header(cells)
        top, below = cells.iloc[: header + 1], cells.iloc[header + 1 : stop]
        region = table_below(top, below, lettered=True)
        if stop < len(cells):
            quoted = shown(one_line(cells.iloc[stop].dropna().iloc[0])[:60])
            left = f"line {stop + 1:,} and below, from {quoted} on, are left out as another table"
            region = replace(region, notes=(*region.notes, left))
        texts = region.frame.select_dtypes(exclude="number")
        region = replace(region, decimal=decimal_mark(texts.to_numpy().ravel()))
        if region.frame.size and not region.frame.isna().any(axis=None):
            return region
    frame = region.frame
    empty = [c for c in frame.columns if len(frame) and frame[[c]].isna().all(axis=None)]
    notes = (*region.notes, *(f"the column {name!r} is empty and left out" for name in empty))
    return replace(region, frame=frame.drop(columns=empty), notes=notes)


def _with_errors(data: bytes, sheet: str) -> pd.DataFrame:
    """Cells with the texts of errors, and formulas where no value is saved."""
    openpyxl = optional_module("openpyxl", "Reading a workbook", "voi")
    views = []
    for saved in (True, False):
        book = openpyxl.load_workbook(io.BytesIO(data), data_only=saved)
        views.append(pandas().DataFrame(book[sheet].values, dtype=object))
    values, formulas = views
    written = formulas.map(lambda cell: cell if str(cell)[:1] == "=" else None)
    return values.where(values.notna(), written)


def table_below(top: pd.DataFrame, below: pd.DataFrame, *, lettered: bool = False) -> Region:
    """Table of the cells `below` a header, the last row of `top`, with notes on cells left out."""
    header, width = len(top) - 1, below.shape[1]
    top = top.reindex(columns=range(width))
    filled, numeric, body, _ = _masks(below)
    inside, rows = np.flatnonzero(body), np.flatnonzero(filled.any(axis=1))
    named = top.iloc[header].notna().to_numpy()
    kept = _table_columns(named, filled[inside], numeric[inside])
    names, used = _column_names(top.iloc[:, kept])
    repeated = np.zeros(len(rows), dtype=bool)
    for k in np.flatnonzero(~body[rows]):
        repeated[k] = [str(cell).strip() for cell in below.iloc[rows[k], kept]] == names
    first, last = (inside[0], inside[-1]) if inside.size else (0, -1)
    within = (rows >= first) & ((rows <= last) | numeric[rows].any(axis=1))
    draws = rows[within & ~repeated]
    blanks = np.setdiff1d(np.arange(first, last + 1), rows) + header + 2
    filled[np.ix_(np.concatenate((draws, rows[repeated])), np.array(kept, dtype=int))] = False
    above = top.notna().to_numpy(copy=True)
    above[header, kept] = False
    above[header - used : header] = False
    outside = [*_quoted(top, above, 1, lettered), *_quoted(below, filled, header + 2, lettered)]
    more = len(outside) - LAYOUT.quoted
    quoted = ", ".join(outside[: LAYOUT.quoted]) + (f" and {more:,} more" if more > 0 else "")
    notes = [f"outside the table: {quoted}"] if outside else []
    left_out = f"{len(blanks):,} blank row{'s' * (len(blanks) > 1)} left out"
    notes += [left_out] if len(blanks) else []
    notes += [f"{repeated.sum():,} repeated header left out"] if repeated.any() else []
    frame = below.iloc[draws, kept].reset_index(drop=True).set_axis(names, axis=1)
    letters = {name: _letter(j) for name, j in zip(names, kept, strict=True)} if lettered else {}
    titles = tuple(one_line(x) for x in top.iloc[:header].stack() if isinstance(x, str))
    region = Region(frame.infer_objects(), draws + header + 2, header + 1, letters, tuple(notes))
    return replace(region, blanks=tuple(map(int, blanks)), titles=titles)


def _masks(cells: pd.DataFrame) -> tuple[Any, Any, Any, float]:
    """Filled cells, cells meant as numbers, rows of draws, and the fewest numbers of a draw."""
    filled = cells.notna().to_numpy(dtype=bool, copy=True)
    numeric = filled & np.column_stack([is_quantity(cells[j]) for j in cells.columns])
    counts = numeric.sum(axis=1)
    fewest = max(float(np.median(counts[counts > 0])) / 2 if counts.any() else 1.0, 1.0)
    return filled, numeric, counts >= fewest, fewest


def find_header(cells: pd.DataFrame) -> tuple[int, int]:
    """Row of the header of the longest run of draws, and the row where the next table begins."""
    filled, numeric, body, typical = _masks(cells)
    below_body = np.concatenate(([False], body[:-1]))
    heads = np.flatnonzero(((filled & ~numeric).sum(axis=1) >= typical) & ~body & ~below_body)
    if not heads.size:
        return int(filled.any(axis=1).argmax()), len(cells)
    ends = np.append(heads[1:], len(cells))
    at = int(np.argmax([body[start:end].sum() for start, end in zip(heads, ends, strict=True)]))
    # Units may stand below the names, titles of blocks above them: most names are the header.
    start = at
    while start > 0 and not body[heads[start - 1] : heads[start]].any():
        start -= 1
    group = heads[start : at + 1][::-1]
    distinct = [cells.iloc[head].dropna().astype(str).nunique() for head in group]
    header = int(group[int(np.argmax(distinct))])
    # Names in cells that are merged with the line below leave gaps, which that line fills.
    span = slice(
        int(filled[header].argmax()), len(filled[header]) - int(filled[header][::-1].argmax())
    )
    header = next((int(h) for h in group if (filled[h] & ~filled[header])[span].any()), header)
    return header, int(ends[at])


def _table_columns(named: Any, filled: Any, numeric: Any) -> list[int]:
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
    return kept or [int(j) for j in np.flatnonzero(used)]


def _column_names(top: pd.DataFrame) -> tuple[list[str], int]:
    """Names of columns, and the lines above the header that are part of them.

    A column without a name has that of a merged cell above it; columns of equal names get the title
    of their block, in the nearest line above that tells them apart.
    """
    lines = [[None if x != x or x is None else one_line(x) for x in row] for row in top.to_numpy()]
    names, used = [name or "" for name in lines[-1]], 0
    above = lines[-1 : -1 - LAYOUT.name_lines : -1][1:]
    if "" in names and above and sum(map(bool, above[0])) > 1:
        names, used = [name or one or "" for name, one in zip(names, above[0], strict=True)], 1
    for depth, line in enumerate(above, 1):
        if len(set(names)) == len(names) or sum(map(bool, line)) < 2:
            break
        blocks = pandas().Series(line, dtype=object).ffill()
        named = [
            f"{block} {name}" if names.count(name) > 1 and isinstance(block, str) else name
            for block, name in zip(blocks, names, strict=True)
        ]
        if len(set(named)) == len(names):
            names, used = named, depth
    return names, used


def _quoted(cells: pd.DataFrame, mask: Any, line: int, lettered: bool) -> Iterator[str]:
    """Texts and places of the cells of a mask, the first of which is in this line."""
    for i, j in np.argwhere(mask):
        where = f"{_letter(int(j))}{i + line}" if lettered else f"line {i + line}"
        yield f"{shown(one_line(cells.iloc[i, j])[:60])} ({where})"


def summary_rows(frame: pd.DataFrame) -> dict[int, str]:
    """Rows of means, totals and the like, by a label or by their numbers, and the word for each."""
    rows = dict(_labelled(frame))
    draws = np.array([i for i in range(len(frame)) if i not in rows])
    # Integers beyond the range of floats are read as texts.
    texts = frame.astype({name: str for name in frame.columns if frame[name].dtype == object})
    texts = texts.drop(columns=[c for c in texts.columns if DRAW_NAMES.fullmatch(str(c))])
    numbers = texts.apply(pandas().to_numeric, errors="coerce")
    values = numbers.to_numpy(dtype=float, na_value=np.nan)
    while inner := _running_statistics(values[draws]):  # once more for a total of all parts
        rows |= {int(draws[i]): word for i, word in inner.items()}
        draws = np.delete(draws, list(inner))
    for step in (1, -1):
        draws = draws[::step]
        for count in range(1, min(LAYOUT.summary_rows, len(draws) - 3) + 1):
            words = _statistics(values[draws[:-count]], values[draws[-count:]])
            if any(words):
                said = (word or "summary" for word in words)
                rows |= dict(zip(map(int, draws[-count:]), said, strict=True))
                draws = draws[:-count]
                break
        while len(draws) > 3 and (
            word := _statistics(values[draws[:-1]], values[draws[-1:]], rounded=True)[0]
        ):
            rows[int(draws[-1])] = word
            draws = draws[:-1]
        draws = draws[::step]
    return dict(sorted(rows.items()))


def _running_statistics(x: Array) -> dict[int, str]:
    """Rows of draws (n, p) that hold the total or the mean of those since the last such row."""
    with np.errstate(invalid="ignore"):
        usable = (np.abs(x) < LARGEST).all(axis=0)
    # Discrete draws may well be the total of two others.
    x = x[:, [k for k in np.flatnonzero(usable) if 2 * np.unique(x[:, k]).size > len(x)]]
    equal = LAYOUT.equal ** (1.0 if x.shape[1] > 1 else 1.5)
    spread = np.subtract(*np.quantile(x, [0.75, 0.25], axis=0)) if x.size else 0.0
    rows: dict[int, str] = {}
    start = 0
    least = LAYOUT.block
    while x.shape[1] and start < len(x) - least:
        total, part = np.cumsum(x[start:], axis=0)[least - 1 : -1], x[start + least :]
        mean = total / np.arange(least, len(total) + least)[:, None]
        # Totals far from all draws may be rounded.
        far = (np.abs(total - mean) > LAYOUT.far * spread).any(axis=1, keepdims=True)
        found = {}
        rounding = far * LAYOUT.rounded * np.abs(total)
        for word, value, error in (("total", total, rounding), ("mean", mean, 0.0)):
            near = (np.abs(part - value) <= np.maximum(equal * np.abs(value), error)).all(axis=1)
            if near.any():
                found[start + least + int(near.argmax())] = word
        if not found:
            break
        rows |= {(first := min(found)): found[first]}
        start = first + 1
    return rows


def _labelled(frame: pd.DataFrame) -> Iterator[tuple[int, str]]:
    """Rows with a label such as Mean, or any text in a column that numbers draws, and the label."""
    for j, name in enumerate(frame.columns):
        column = frame.iloc[:, j]
        if column.dtype.kind in "fiub" or not len(column):
            continue
        words = ["" if cell != cell or cell is None else str(cell).strip() for cell in column]
        is_text = [bool(word) and word[0] not in "#=" and not is_float(word) for word in words]
        is_numeric = 2 * sum(is_text) < len(words)
        for i in np.flatnonzero(is_text):
            word = words[i]
            is_summary = _SUMMARY_WORDS.fullmatch(word) is not None
            is_summary &= is_numeric or words.count(word) == 1
            if is_summary or (is_numeric and DRAW_NAMES.fullmatch(str(name))):
                yield int(i), word


def _statistics(draws: Array, rows: Array, *, rounded: bool = False) -> list[str]:
    """Statistic of the draws (n, p) that each of the rows (k, p) holds; "" for a draw."""
    # Squares of larger numbers are no floats.
    usable: Any = (np.abs(draws) < LARGEST).all(axis=0)
    usable[usable] = np.ptp(draws[:, usable], axis=0) > 0
    rows, x = rows[:, usable], draws[:, usable]
    size, sd = 1e-3 * np.abs(x).mean(axis=0), x.std(axis=0, ddof=1)
    equal = LAYOUT.equal ** (1.0 if x.shape[1] > 1 else 1.5)
    statistics = {"mean": x.mean(axis=0), "total": x.sum(axis=0), "standard deviation": sd}
    if not rounded and len(x) and x.shape[1] > 1:
        levels = {f"{100 * q:g} % quantile": q for q in LAYOUT.quantiles}
        statistics |= zip(levels, np.quantile(x, list(levels.values()), axis=0), strict=True)
    words = []
    for row in rows:
        known = np.abs(row) < LARGEST
        written = [len(f"{value:.12f}".rstrip("0").partition(".")[2]) for value in row[known]]
        unit = 0.5 * 10.0 ** -np.array(written, dtype=float) if rounded else np.zeros(known.sum())
        word = ""
        # The mean of a continuous column is none of its draws; of a discrete one it may be.
        for name, value in statistics.items() if (known & ~(x == row).any(axis=0)).any() else ():
            # Sums of both signs cancel, a quantile does not: many draws of skewed laws are near 0.
            least = np.zeros_like(size) if "quantile" in name else size
            error = np.maximum(equal * np.maximum(np.abs(value), least)[known], unit)
            near = np.abs(row - value)[known] <= error
            if near.all() and np.sum(error < LAYOUT.sharp * sd[known]) > rounded:
                word = word or name
        words.append(word)
    return words


def one_line(name: object) -> str:
    """Name in one line: control characters can be in no workbook and no document."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", str(name)).strip()


def _letter(column: int) -> str:
    from openpyxl.utils import get_column_letter

    return str(get_column_letter(column + 1))
