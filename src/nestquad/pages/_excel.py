"""Excel workbooks from data frames: words as headers, number formats, widths of columns."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nestquad.errors import optional_module

if TYPE_CHECKING:
    import pandas as pd


def workbook(sheets: Mapping[str, pd.DataFrame], heads: Mapping[str, str]) -> bytes:
    """A workbook with a sheet for each table; `heads` are the words for names of columns."""
    pandas = optional_module("pandas", "Writing a workbook", "voi")
    optional_module("openpyxl", "Writing a workbook", "voi")
    buffer = io.BytesIO()
    with pandas.ExcelWriter(buffer, engine="openpyxl") as writer:
        for name, table in sheets.items():
            shown = table.rename(columns=dict(heads))
            shown.to_excel(writer, sheet_name=name, index=False, freeze_panes=(1, 0))
            sheet = writer.sheets[name]
            for cell in (entry for row in sheet for entry in row):
                if cell.data_type == "f":  # a name such as =A1 is a name
                    cell.data_type = "s"
            for j, column in enumerate(table.columns):
                form = _number_format(str(column), table[column])
                letter = sheet.cell(1, j + 1).column_letter
                for cell in sheet[letter][1:]:
                    cell.number_format = form
                longest = max([len(str(shown.columns[j])), *(len(_text(x)) for x in table[column])])
                sheet.column_dimensions[letter].width = min(longest, _WIDEST) + 2
    return buffer.getvalue()


# Characters of the widest column; longer texts go on beyond it.
_WIDEST = 60


def _text(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _number_format(name: str, column: Any) -> str:
    """Excel’s format of a column: shares in per cent, money without pence, small numbers whole."""
    if column.dtype.kind not in "fiu":
        return "General"
    if "/" in name or name in ("probability", "relative"):
        return "0.0%"
    largest = float(column.abs().max())
    return "#,##0" if largest >= 100 or column.dtype.kind in "iu" else "0.0000"
