"""Number formats of texts: currencies, per cent, decimal commas, groups of thousands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_UNIT = r"[£$€¥]|[A-Z]{3}"
_GROUPING = " '’\u00a0\u202f"
_NUMBER = re.compile(
    rf"(?P<minus>[-+−(]?)\s*(?P<before>{_UNIT})?\s*(?P<sign>[-+−(]?)"
    rf"(?P<body>[.,]?\d(?:[\d.,{_GROUPING}]*\d)?[.,]?)(?P<power>[eE][-+]?\d+)?\s*"
    rf"(?P<after>{_UNIT}|%)?\s*(?P<close>\)?)"
)
# One mark and three digits: thousands or thousandths. A leading 0 tells that it is a decimal mark.
AMBIGUOUS = re.compile(r"[-+−]?[1-9]\d{0,2}[.,]\d{3}")
_THOUSANDS = re.compile(rf"\d{{1,3}}([,{_GROUPING}]\d{{3}})+(\.\d+)?|[1-9]\d{{0,2}}(\.\d{{3}})+")


@dataclass(frozen=True)
class Numbers:
    """Numbers of a column, NaN for cells that are none, and a note on how they are written."""

    values: Array
    note: str = ""


def read_numbers(cells: Sequence[str], decimal: str = "") -> Numbers:
    """Numbers from the texts of one column, which have one format.

    `decimal` is the decimal mark of the file, where it is known. What a format leaves open is not
    read: 3,610 by itself, %, currencies or marks that differ between cells.
    """
    found = [_matched(cell) for cell in cells]
    values = np.array([float(cell) if is_float(cell) else np.nan for cell in cells])
    known = [one for one in found if one is not None]
    if not known:
        return Numbers(values)
    units = {one["before"] or one["after"] or "" for one in known}
    unit = "".join(units - {""}) if len(units - {""}) == 1 else ""
    if len(units - {""}) > 1 or (unit == "%" and "" in units):
        return Numbers(values)
    bodies = [one["body"] for one in known]
    marks = _marks(bodies, decimal, english=unit in ("£", "$", "GBP", "USD"))
    if marks is None:
        # In doubt about the format no cell is read; a cell that contradicts others stands alone.
        doubt = all(AMBIGUOUS.fullmatch(body) for body in bodies if not body.isdigit())
        return Numbers(np.full(len(cells), np.nan) if doubt else values)
    point, groups = marks
    scale, example, notes = 0.01 if unit == "%" else 1.0, "", []
    for i, one in enumerate(found):
        if one is None:
            continue
        bare = "".join(c for c in one["body"] if c not in groups)
        text = bare.replace(point, ".") if point else bare
        negative = "-" if {one["minus"], one["sign"]} & {"-", "−", "("} else ""
        values[i] = scale * float(f"{negative}{text}{one['power'] or ''}")
        if groups and bare != one["body"] and not example:
            example = f"{cells[i].strip()!r} is {negative}{text}"
    notes += ["is in %, divided by 100"] if unit == "%" else [f"is in {unit}"] if unit else []
    notes += ["has decimal commas"] if point == "," else []
    notes += [example] if example else []
    return Numbers(values, "; ".join(notes))


def ungrouped(text: str) -> str:
    """What a number that a person typed may mean by its separators of thousands; "" without any."""
    found = _THOUSANDS.fullmatch(text)
    if found is None:
        return ""
    return re.sub(r"[^\d.]" if found[1] else r"\D", "", text)


def is_float(text: str) -> bool:
    """Whether a text is a number as Python reads it, which takes 1_000."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_quantity(column: pd.Series[Any]) -> Any:
    """Whether cells are meant as numbers: in any format, or errors and formulas of a workbook."""
    if column.dtype.kind in "fiub":
        return column.notna().to_numpy()
    cells = column.to_numpy(dtype=object)
    found = np.array([isinstance(x, float | int) and x == x for x in cells], dtype=bool)
    for i in np.flatnonzero([isinstance(cell, str) for cell in cells]):
        found[i] = cells[i][:1] in ("#", "=") or _matched(cells[i]) is not None
    return found


def read_sizes(text: str) -> list[int]:
    """Sizes that a person typed, with blanks or commas; 1,600 is refused, as it may be 1600."""
    found: list[int] = []
    expected = "whole numbers of at least 1, with blanks between them"
    for token in text.split():
        parts = [part for part in token.split(",") if part]
        meant = re.sub(r"\D", "", token)
        if any(map(ungrouped, parts)):  # 1.200
            raise InputError("sizes", repr(token), expected, f"Did you mean {meant}?")
        if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
            raise InputError("sizes", repr(token), expected, "As 50 100 200.")
        values = [int(part) for part in parts]
        falls = any(a >= b for a, b in pairwise(values))
        if ungrouped(token) and (len(parts[0]) == 1 or falls):
            raise InputError("sizes", repr(token), expected, f"Did you mean {meant}?")
        found += values
    if not found:
        raise InputError("sizes", repr(text), expected, "As 50 100 200.")
    return found


def _matched(cell: str) -> re.Match[str] | None:
    """Parts of a number; None for anything else, two signs or half a pair of parentheses."""
    found = _NUMBER.fullmatch(cell.strip())
    if found is None or (found["minus"] and found["sign"]):
        return None
    opened = "(" in (found["minus"], found["sign"])
    return found if opened == bool(found["close"]) else None


def _marks(bodies: Sequence[str], decimal: str, *, english: bool) -> tuple[str, set[str]] | None:
    """The decimal mark of a column, or nothing, and its separators of thousands.

    None where cells contradict each other, or leave a doubt.
    """
    points: set[str] = set()
    groups: set[str] = set()
    open_to_doubt: set[str] = set()
    ungrouped = False  # four digits and more in a row
    for body in bodies:
        marks = [c for c in body if not c.isdigit()]
        kinds = set(marks)
        ungrouped |= re.match(r"\d{4}", body) is not None
        if not marks:
            continue
        last = marks[-1]
        if last in _GROUPING or marks.count(last) > 1:
            groups |= kinds
        elif len(kinds) > 1:
            points.add(last)
            groups |= kinds - {last}
        elif AMBIGUOUS.fullmatch(body):
            open_to_doubt.add(last)
        else:
            points.add(last)
    if open_to_doubt and not points and decimal and decimal not in groups:
        points.add(decimal)
    for mark in open_to_doubt - points - groups:
        if ungrouped:
            points.add(mark)
        elif points or (english and mark == ","):  # the decimal mark is another one
            groups.add(mark)
        else:
            return None
    point = "".join(points)
    if len(points) > 1 or points & groups:
        return None
    if groups:
        # A number format has as many decimals in every cell, and groups in all cells or in none.
        decimals = {len(body.partition(point)[2]) if point else 0 for body in bodies}
        whole = [body.partition(point)[0] if point else body for body in bodies]
        grouped = re.compile(rf"\d{{1,3}}([{re.escape(''.join(groups))}]\d{{3}})*")
        if ungrouped or len(decimals) > 1 or not all(map(grouped.fullmatch, whole)):
            return None
    return point, groups
