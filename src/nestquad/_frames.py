"""Data frames of any library (pandas, polars, pyarrow, …) by narwhals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from nestquad.errors import InputError, MissingExtraError, optional_module

__all__ = ["as_given", "frame_columns", "frame_of", "in_pandas", "is_frame", "new_frame"]

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

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


def frame_of(rows: Sequence[Mapping[str, Any]], library: str = "pandas") -> Any:
    """Data frame of a library from rows; a row without a column has no value there."""
    names = dict.fromkeys(name for row in rows for name in row)
    return new_frame({name: [row.get(name) for row in rows] for name in names}, library)


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


def in_pandas(given: Any) -> Any:
    """Data frame of another library as one of pandas; anything else as it is."""
    if not is_frame(given) or type(given).__module__.partition(".")[0] == "pandas":
        return given
    columns = frame_columns(given, "table")
    return new_frame({name: column.to_numpy() for name, column in columns.items()})


def as_given(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Function of pandas data frames as one of any library: the answer is in that of the first.

    Examples
    --------
    >>> @as_given
    ... def doubled(table):
    ...     return 2 * table
    >>> type(doubled(new_frame({"x": [1.0]}, "polars"))).__module__
    'polars.dataframe.frame'
    """

    @wraps(function)
    def converted(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        own = [in_pandas(given) for given in args]
        named = {name: in_pandas(given) for name, given in kwargs.items()}
        answer: Any = function(*own, **named)
        pairs = zip((*args, *kwargs.values()), (*own, *named.values()), strict=True)
        other = next((given for given, frame in pairs if frame is not given), None)
        if other is not None and is_frame(answer):
            narwhals = optional_module("narwhals", "Reading a data frame", "frames")
            library = narwhals.from_native(other).implementation.name.lower()
            answer = new_frame({name: answer[name].tolist() for name in answer}, library)
        result: Answer = answer
        return result

    return converted
