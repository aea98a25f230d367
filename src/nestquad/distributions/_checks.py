"""Validation that several laws share."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from nestquad._typing import Array, ArrayLike
from nestquad.errors import InputError

__all__ = [
    "as_floats",
    "check_count",
    "check_parameter",
    "common_batch",
    "frozen_array",
    "parameters",
]


def as_floats(argument: str, value: Any) -> Array:
    """Convert to a float64 array, or say why that is not possible."""
    try:
        raw = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(argument, f"{type(value).__name__} ({error})", "real numbers") from error
    if raw.dtype.kind not in "biuf":
        raise InputError(argument, f"{type(value).__name__} of dtype {raw.dtype}", "real numbers")
    return raw.astype(np.float64, copy=False)


def check_count(argument: str, value: Any) -> int:
    """Return `value` as an integer of at least 1."""
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if count < 1 or isinstance(value, bool):
        raise InputError(argument, repr(value), "a whole number of at least 1")
    return count


def frozen_array(value: Array) -> Array:
    """Copy to a contiguous read-only array: a law never changes after it was made."""
    array = np.array(value, dtype=np.float64, order="C")
    array.flags.writeable = False
    return array


def parameters(dim: int | None, **named: ArrayLike) -> tuple[Array, ...]:
    """Broadcast parameters to one shape, (d,) for a single law or (T, d) for a batch.

    A scalar goes to every coordinate, a 1-d array is always coordinates and a
    2-d array always (T, d).
    """
    values = {name: as_floats(name, value) for name, value in named.items()}
    for name, value in values.items():
        check_parameter(name, value)
        if value.ndim > 2:
            raise InputError(
                name, f"shape {value.shape}", "a scalar, (d,) for one law, or (T, d) for T laws"
            )
    shapes = [value.shape for value in values.values()]
    wanted = (1,) if dim is None else (check_count("dim", dim),)
    try:
        shape = np.broadcast_shapes(wanted, *shapes)
    except ValueError:
        shape = ()
    if not shape or (dim is not None and shape[-1] != dim):
        raise InputError(
            " and ".join(values),
            "shapes "
            + " and ".join(map(str, shapes))
            + ("" if dim is None else f" with dim={dim}"),
            "shapes that broadcast to (d,) for one law or (T, d) for T laws",
            "1-d arrays are coordinates; T univariate laws have parameters of shape (T, 1).",
        )
    return tuple(frozen_array(np.broadcast_to(value, shape)) for value in values.values())


def check_parameter(name: str, value: Array) -> None:
    """Refuse an empty array, NaN and infinity."""
    if not value.size:
        raise InputError(name, f"an empty array of shape {value.shape}", "at least one number")
    if not np.isfinite(value).all():
        bad = np.argwhere(~np.isfinite(np.atleast_1d(value)))[0].tolist()
        raise InputError(name, f"a value that is not finite at index {bad}", "finite numbers")


def common_batch(argument: str, batches: list[int | None]) -> int | None:
    """Return the batch that all of `batches` broadcast to."""
    sizes = {size for size in batches if size is not None}
    if not sizes:
        return None
    if len(sizes - {1}) > 1:
        raise InputError(
            argument, f"batches of {sorted(sizes)} laws", "batches of one size T, or single laws"
        )
    return max(sizes)
