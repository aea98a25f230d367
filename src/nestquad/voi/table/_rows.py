"""Rows of several tables, matched by their names, so that row i of each is the same draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nestquad._typing import Array
from nestquad.errors import InputError
from nestquad.voi.table._numbers import pandas

if TYPE_CHECKING:
    import pandas as pd


def check_rows(counts: Mapping[str, int]) -> None:
    """Refuse tables of different lengths."""
    if len(set(counts.values())) > 1:
        raise InputError(
            " and ".join(counts),
            ", ".join(f"{count:,} rows of {name}" for name, count in counts.items()),
            "the same number of rows in each: row i of every table is the same draw",
            "Was a header line or the last draw lost, or are the tables from different runs?",
        )


def is_count(values: Array) -> bool:
    """Whether numbers go up by one from 0 or 1."""
    return bool(values.size) and bool(np.all(np.diff(values) == 1)) and float(values[0]) in (0, 1)


def is_permutation(values: Array) -> bool:
    """Whether numbers are 1 … n or 0 … n − 1 in any order."""
    return bool(np.isfinite(values).all()) and is_count(np.sort(values))


def is_default(index: Any) -> bool:
    """Whether an index merely counts from 0."""
    return isinstance(index, pandas().RangeIndex) and (index.start, index.step) == (0, 1)


def _row_names(table: pd.DataFrame) -> Any:
    """Names of rows, numbers or texts; None for a default index. Numbers from 0 count from 1."""
    if is_default(table.index):
        counts = pandas().Index(np.arange(1.0, len(table) + 1))
        return counts if table.attrs["named"] == "column" else None
    try:
        names = pandas().Index(table.index, dtype=float, name=None)
    except (TypeError, ValueError):
        return pandas().Index([str(label).strip() for label in table.index])
    return names + 1.0 if is_permutation(names.to_numpy()) and names.min() == 0 else names


def aligned(
    tables: Mapping[str, pd.DataFrame], to: Any = None
) -> tuple[dict[str, pd.DataFrame], list[str], Any]:
    """Tables whose row i is the same draw, notes on reordering, and the names of rows.

    Rows are matched by their names where two tables have them: an index of a data frame, or a
    column such as Iteration. A table without names has its draws in the order of the others, which
    is refused as unclear where these are numbers in disorder. `to` are names of rows to follow.
    """
    check_rows({name: len(table) for name, table in tables.items()})
    blanks = {table.attrs["blanks"] for table in tables.values()}
    if to is None and len(blanks) > 1:
        raise InputError(
            " and ".join(tables),
            "blank rows at different places",
            "the same draws in every table",
            "If row i of every table is the same draw, delete them.",
        )
    names = {name: _row_names(table) for name, table in tables.items()}
    # Where no column names rows, a default index is the names 1 … n.
    indexed = [name for name, table in tables.items() if table.attrs["named"] == "index"]
    by_index = (to is None or to.name == "index") and all(
        name in indexed for name, labels in names.items() if labels is not None
    )
    to = to if by_index or (to is not None and to.name != "index") else None
    if by_index and (to is not None or all(x is None or _is_in_order(x) for x in names.values())):
        counts = pandas().Index(np.arange(1.0, len(next(iter(tables.values()))) + 1))
        names |= {name: counts for name in indexed if names[name] is None}
    bare = [name for name, labels in names.items() if labels is None]
    known = {name: labels for name, labels in names.items() if labels is not None}
    ordered = {name: labels for name, labels in known.items() if _is_in_order(labels)}
    first, target = (
        ("outputs", to) if to is not None else next(iter((ordered or known).items()), ("", None))
    )
    if target is None:
        return dict(tables), [], None
    moved, notes = dict(tables), []
    for name, labels in known.items():
        if labels.equals(target):
            continue
        alone = [*labels.difference(target), *target.difference(labels)]
        if alone or not target.is_unique:
            such = f"names of rows that one of them has and the other has not, such as {alone[:1]}"
            raise InputError(
                f"{first} and {name}",
                such if alone else "rows in a different order, and several rows of the same name",
                "the same draw in row i of every table",
                "Are they from different runs? If row i is the same draw, remove the names (an "
                "index: reset_index).",
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


def _is_in_order(labels: Any) -> bool:
    return labels.dtype.kind == "f" and bool(labels.is_monotonic_increasing)
