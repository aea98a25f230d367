"""Values that come back from somewhere else, matched with the points that went there."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError, MissingExtraError

__all__ = ["ValueRows", "matched", "refuse_others", "value_rows"]

_POINT_COLUMNS = ("theta_", "x_")


@dataclass(frozen=True)
class ValueRows:
    """Values (n,) or (n, p) with the id of each row; without ids they are in the plan's order."""

    ids: list[str] | None
    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def only(self, wanted: Sequence[str]) -> ValueRows:
        """The rows with these ids, all of them."""
        assert self.ids is not None
        among = set(wanted)
        rows = [i for i, one in enumerate(self.ids) if one in among]
        return ValueRows([self.ids[i] for i in rows], self.values[rows])


def value_rows(values: Any) -> ValueRows:
    """Whatever holds values: a file, a frame, a series, a mapping from ids, or an array."""
    if isinstance(values, ValueRows):
        return values
    if isinstance(values, str | os.PathLike):
        return _from_file(Path(values))
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):
        return _from_frame(values)
    if isinstance(values, Mapping):
        ids = [str(key) for key in values]
        return ValueRows(ids, _numbers(list(values.values()), ids))
    index = getattr(values, "index", None)  # a pandas Series; lists have a method of that name
    if index is not None and not callable(index) and index.dtype.kind not in "iu":
        ids = [str(key) for key in index]
        return ValueRows(ids, _numbers(list(values), ids))
    return ValueRows(None, _numbers(values, None))


def matched(given: ValueRows, ids: Sequence[str], describe: Any) -> Array:
    """The values in the order of `ids`; refuses rows that are missing, double, or of another plan.

    `describe(row)` says where the point of a row is.
    """
    if given.ids is None:
        if len(given) != len(ids):
            raise InputError(
                "values",
                f"{len(given)} values without ids",
                f"{len(ids)}, one for each row of the plan, in its order",
            )
        return _finite(given.values, ids)
    place = {one: row for row, one in enumerate(ids)}
    order = np.full(len(ids), -1)
    for row, one in enumerate(given.ids):
        at = place.get(one)
        if at is None:
            _refuse_unknown(given, row, ids)
        if order[at] >= 0:
            raise InputError(
                "values",
                f"id {one!r} twice, in rows {order[at]} and {row}",
                "one value for each id",
            )
        order[at] = row
    missing = np.flatnonzero(order < 0)
    if missing.size:
        first = int(missing[0])
        more = f" and {missing.size - 1} more" if missing.size > 1 else ""
        raise InputError(
            "values",
            f"no value for id {ids[first]!r} ({describe(first)}){more}",
            f"a value for each of the {len(ids)} rows of the plan",
        )
    return _finite(given.values[order], ids)


def refuse_others(given: ValueRows, plan: str) -> None:
    """Refuse rows of another plan, by the name that begins their ids."""
    for row, one in enumerate(given.ids or ()):
        other = one.rpartition("-")[0]
        if other != plan:
            whose = f", which belongs to plan {other!r}" if other else ""
            raise InputError("values", f"id {one!r} in row {row}{whose}", f"ids of plan {plan!r}")


def _refuse_unknown(given: ValueRows, row: int, ids: Sequence[str]) -> NoReturn:
    refuse_others(given, ids[0].rpartition("-")[0])
    assert given.ids is not None
    raise InputError(
        "values",
        f"id {given.ids[row]!r} in row {row}",
        f"ids from {ids[0]!r} to {ids[-1]!r}, of this block",
    )


def _finite(values: Array, ids: Sequence[str]) -> Array:
    usable = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if not usable.all():
        row = int(np.argmin(usable))
        raise InputError(
            "values",
            f"{values[row]} for id {ids[row]!r} (row {row} of the plan)",
            "finite numbers",
            "Run the simulator again for this row.",
        )
    return values


def _numbers(raw: Any, ids: Sequence[str] | None) -> Array:
    try:
        values = np.asarray(raw, dtype=float)
    except (TypeError, ValueError):
        values = None
    if values is not None and values.ndim in (1, 2) and values.size:
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values is not None:
        raise InputError("values", f"an array of shape {values.shape}", "shape (n,) or (n, p)")
    for row, one in enumerate(raw):
        try:
            np.asarray(one, dtype=float)
        except (TypeError, ValueError):
            where = f"row {row}" if ids is None else f"row {row} (id {ids[row]!r})"
            raise InputError("values", f"{one!r} in {where}", "numbers") from None
    raise InputError("values", "rows of different lengths", "as many numbers in each row")


def _from_frame(frame: Any) -> ValueRows:
    if "id" not in frame.columns:
        if frame.index.name != "id":
            given = f"a table with columns {', '.join(map(str, frame.columns))}"
            raise InputError("values", given, "a column 'id' with the ids of the plan")
        frame = frame.reset_index()
    names = _value_columns([str(name) for name in frame.columns])
    ids = [str(one) for one in frame["id"]]
    return ValueRows(ids, _numbers(frame[names].to_numpy(), ids))


def _from_file(path: Path) -> ValueRows:
    if not path.is_file():
        raise InputError("values", f"{str(path)!r}, which is not a file", "a CSV or Parquet file")
    if path.suffix == ".parquet":
        try:
            import pandas
            import pyarrow  # noqa: F401
        except ImportError:
            raise MissingExtraError("Reading Parquet files", "parquet") from None
        return _from_frame(pandas.read_parquet(path))
    with path.open(newline="", encoding="utf-8") as lines:
        reader = csv.reader(lines)
        head = [name.strip() for name in next(reader, [])]
        if "id" not in head:
            given = f"{path.name!r} with columns {', '.join(head) or 'none'}"
            raise InputError("values", given, "a header line with a column 'id'")
        columns = [head.index(name) for name in _value_columns(head)]
        rows = [row for row in reader if row]
    place = head.index("id")
    for number, row in enumerate(rows):
        if len(row) != len(head):
            raise InputError(
                "values",
                f"{len(row)} fields in row {number} of {path.name!r}",
                f"{len(head)}, as in its header",
            )
    ids = [row[place].strip() for row in rows]
    return ValueRows(ids, _numbers([[row[c] for c in columns] for row in rows], ids))


def _value_columns(names: Sequence[str]) -> list[str]:
    """All columns that the plan did not write."""
    found = [n for n in names if n != "id" and not n.startswith(_POINT_COLUMNS)]
    if not found:
        given = f"a table with columns {', '.join(names)}"
        raise InputError("values", given, "a column of values beside 'id', such as 'value'")
    return found
