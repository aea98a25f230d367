"""Rows of a report: as text, on pages and in notebooks, and as data frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from nestquad._frames import frame_of
from nestquad.result import NORMAL_95

Row = Mapping[str, Any]
# Names of columns where the key of a row says it in fewer words.
_HEADS = {"std_error": "±", "low": "95 % interval", "certified_low": "certified"}
_HEADS |= {"loss": "J there", "place": "P(J ≤ it)", "place_low": "95 % interval"}
_SHARES = ("share", "place", "place_low")


class Tabular(ABC):
    """Numbers that have rows."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """One for each number, by the names of columns."""

    def to_frame(self, library: str = "pandas") -> Any:
        """The rows as a data frame of pandas, polars or another; needs the extra ``frames``."""
        return frame_of(self.rows(), library)

    def __str__(self) -> str:
        return text_table(self.rows())


def cells_of(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and cells of a table: ends of an interval in one column, half-widths for errors.

    Examples
    --------
    >>> cells_of([{"measure": "VaR 99 %", "value": 2.5, "std_error": 0.1, "low": 2.3, "high": 2.7}])
    (['measure', 'value', '95 % interval'], [['VaR 99 %', '2.5', '2.3 … 2.7']])
    """
    kept = _columns(rows)
    return [_HEADS.get(key, key) for key in kept], [[_cell(row, k) for k in kept] for row in rows]


def text_table(rows: Sequence[Row]) -> str:
    """Rows as lines of text, words to the left and numbers to the right."""
    head, body = cells_of(rows)
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    sides = ["<" if isinstance(rows[0][key], str) else ">" for key in _columns(rows)]
    shape = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return "\n".join(shape.format(*line).rstrip() for line in (head, *body))


def _columns(rows: Sequence[Row]) -> list[str]:
    keys = list(rows[0]) if rows else []
    return [k for k in keys if not k.endswith("high") and (k != "std_error" or "low" not in keys)]


def _cell(row: Row, key: str) -> str:
    value, number = row[key], "{:.2%}" if key in _SHARES else "{:.5g}"
    if value is None or isinstance(value, str):
        return value or "–"
    if key.endswith("low"):
        return f"{number.format(value)} … {number.format(row[key[:-3] + 'high'])}"
    return number.format(NORMAL_95 * value if key == "std_error" else value)
