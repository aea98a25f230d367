"""Number formats of texts: currencies, per cent, decimal commas, groups of thousands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import optional_module

if TYPE_CHECKING:
    import pandas as pd

_UNIT = r"[£$€¥]|[A-Z]{3}"
_GROUPING = " '’\u00a0\u202f"
_NUMBER = re.compile(
    rf"(?P<minus>[-+−(]?)\s*(?P<before>{_UNIT})?\s*(?P<sign>[-+−(]?)"
    rf"(?P<body>[.,]?\d(?:[\d.,{_GROUPING}]*\d)?[.,]?)(?P<power>[eE][-+]?\d+)?\s*"
    rf"(?P<after>{_UNIT}|%)?\s*(?P<close>\)?)"
)
# One mark and three digits: thousands or thousandths.
UNCLEAR = re.compile(r"[-+−]?[1-9]\d{0,2}[.,]\d{3}")


def pandas() -> Any:
    """The pandas module, or an error that says how to get it."""
    return optional_module("pandas", "Value of information", "voi")


def is_float(text: str) -> bool:
    """Whether a text is a number as Python reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_quantity(cell: object) -> bool:
    """Whether a cell is meant as a number: in any format, or an error or formula of a workbook."""
    if isinstance(cell, str):
        return cell[:1] in ("#", "=") or _matched(cell) is not None
    return isinstance(cell, float | int) and cell == cell


def read_numbers(cells: pd.Series[Any], decimal: str = "") -> tuple[Array, str]:
    """Numbers (n,) of texts, NaN where a cell is none or empty, and a note on their format.

    `decimal` is the decimal mark of the file, where it is known. An ambiguous format is not read:
    3,610 alone, 850 next to 1.250, %, currencies or marks that differ between cells.
    """
    filled = cells.notna().to_numpy()
    values = np.array(pandas().to_numeric(cells, errors="coerce"), dtype=float)
    texts = cells[filled].tolist()
    is_unclear = any(map(UNCLEAR.fullmatch, texts))
    decimal = "" if is_unclear and _has_groups(texts) else decimal
    if np.isfinite(values[filled]).all() and (decimal == "." or not is_unclear):
        return values, ""
    matches = {i: _matched(cells.iloc[i]) for i in np.flatnonzero(filled)}
    known = {i: match for i, match in matches.items() if match is not None}
    units = {match["before"] or match["after"] or "" for match in known.values()}
    unit = "".join(units - {""})
    if not known or len(units - {""}) > 1 or (unit == "%" and "" in units):
        return values, ""
    bodies = [match["body"] for match in known.values()]
    formats = _formats(bodies)
    if len(formats) > 1:  # such as 3,610 alone
        known_mark = decimal or ("." if unit in ("£", "$", "GBP", "USD") else "")
        formats = [f for f in formats if f[0] == known_mark or (unit == "%" and not f[1])]
        values = values if formats else np.full(len(cells), np.nan)
    if not formats:  # cells that contradict others stand alone
        return values, ""
    point, group = formats[0]
    example, scale = "", 0.01 if unit == "%" else 1.0
    for i, match in known.items():
        bare = match["body"].replace(group, "") if group else match["body"]
        negative = "-" if {match["minus"], match["sign"]} & {"-", "−", "("} else ""
        text = f"{negative}{bare.replace(point, '.')}"
        values[i] = scale * float(f"{text}{match['power'] or ''}")
        if bare != match["body"] and not example:
            example = f"{cells.iloc[i].strip()!r} is {text}"
    notes = ["in %, divided by 100"] if unit == "%" else [f"in {unit}"] if unit else []
    notes += ["with decimal commas"] if point == "," and any("," in x for x in bodies) else []
    return values, "; ".join([*notes, *([example] if example else [])])


def decimal_mark(cells: Iterable[Any]) -> str:
    """Decimal mark that a text shows for certain: 0,5 and 1234,567 do, 3,610 does not."""
    for cell in cells:
        match = _matched(cell) if isinstance(cell, str) else None
        parts = match and re.fullmatch(r"(.*)([.,])(\d+)", match["body"])
        if not parts or parts[2] in parts[1]:
            continue
        if len(parts[3]) != 3 or not re.fullmatch(r"[1-9]\d{0,2}", parts[1]):
            return parts[2]
    return ""


def _has_groups(cells: Iterable[str]) -> bool:
    """Whether 850 stands next to 1.250: decimals would not be three or none in every cell."""
    kinds = set()
    for cell in cells:
        match = re.fullmatch(r"[-+]?(?!0)\d{1,3}([.,]\d{3})?|[-+]?0()", cell.strip())
        if match is None:
            return False
        kinds |= {bool(match[1])} if match[2] is None else set()
    return len(kinds) > 1


def _matched(cell: str) -> re.Match[str] | None:
    """Parts of a number; None for anything else, two signs or half a pair of parentheses."""
    match = _NUMBER.fullmatch(cell.strip())
    is_unit = match is not None and re.fullmatch("00+", match["body"]) and match["before"]  # £000
    if match is None or is_unit or (match["minus"] and match["sign"]):
        return None
    opened = "(" in (match["minus"], match["sign"])
    return match if opened == bool(match["close"]) else None


def _formats(bodies: Sequence[str]) -> list[tuple[str, str]]:
    """Formats (decimal mark, separator of thousands) of numbers, one for each way to read them.

    With separators, a format has one number of decimals in all cells, and groups in all cells.
    """
    readings: dict[tuple[str, ...], tuple[str, str]] = {}
    for point, group in product(".,", ("", ",", ".", *_GROUPING)):
        whole = rf"(\d{{1,3}}|[1-9]\d{{0,2}}([{re.escape(group)}]\d{{3}})+)" if group else r"\d*"
        pattern = re.compile(rf"{whole}([{point}](?P<decimals>\d*))?")
        matches = [pattern.fullmatch(body) for body in bodies]
        decimals = {match["decimals"] for match in matches if match is not None}
        is_even = not group or len({len(text or "") for text in decimals}) == 1
        if group != point and all(matches) and is_even:
            reading = tuple(body.replace(group or point, "" if group else point) for body in bodies)
            readings.setdefault(tuple(text.replace(point, ".") for text in reading), (point, group))
    return list(readings.values())
