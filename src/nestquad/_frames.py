"""Data frames of any library (pandas, polars, pyarrow, …) by narwhals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nestquad.errors import InputError, MissingExtraError, optional_module

__all__ = ["columns_of", "frame_columns", "frame_library", "is_frame", "new_frame"]

_KNOWN = "'pandas', 'polars', 'pyarrow' or another library that narwhals knows"


def new_frame(columns: Mapping[str, Any], library: str = "pandas") -> Any:
    """Data frame of a library from columns by name; needs the extra ``frames``.

    Examples
    --------
    >>> new_frame({"id": ["a", "b"], "value": [1.0, 2.0]}, "polars").columns
    ['id', 'value']
    """
    narwhals = optional_module("narwhals", "A data frame", "frames")
    try:
        return narwhals.from_dict(dict(columns), backend=library).to_native()
    except ImportError as error:
        raise MissingExtraError(f"A data frame of {library}", "frames") from error
    except (ValueError, TypeError) as error:
        raise InputError("library", repr(library), _KNOWN) from error


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns by name from rows that all have the same keys."""
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def is_frame(given: object) -> bool:
    """Whether an object is a data frame of some library (a table with named columns)."""
    kind = type(given)  # attributes of an instance may be expensive, as in a lazy frame
    return any(hasattr(kind, name) for name in ("columns", "column_names")) and any(
        hasattr(kind, name)
        for name in ("to_numpy", "__dataframe__", "__arrow_c_stream__", "collect")
    )


def frame_columns(frame: Any, argument: str = "values") -> dict[str, Any]:
    """Columns of a data frame by name, each with ``to_numpy`` and ``to_list``.

    Lazy frames of polars are collected.
    """
    narwhals = optional_module("narwhals", "Reading a data frame", "frames")
    try:
        opened = narwhals.from_native(frame)
    except TypeError as error:
        given = f"a {type(frame).__module__}.{type(frame).__name__}"
        raise InputError(argument, given, f"a data frame of {_KNOWN}") from error
    if isinstance(opened, narwhals.LazyFrame):
        opened = opened.collect()
    # pandas writes an index without a name into Parquet files under such a one.
    names = [name for name in opened.columns if not str(name).startswith("__index_level_")]
    return {str(name): opened[name] for name in names}


def frame_library(frame: Any) -> str:
    """Name of the library of a data frame, for an answer in the same library.

    Examples
    --------
    >>> frame_library(new_frame({"value": [1.0]}, "polars"))
    'polars'
    """
    narwhals = optional_module("narwhals", "Reading a data frame", "frames")
    return str(narwhals.from_native(frame).implementation.name).lower()
