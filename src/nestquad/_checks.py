"""Checks of arguments: one for each kind, with errors that name the argument."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from nestquad._typing import Array, RNGLike
from nestquad.errors import InputError, unknown_name

Kind = TypeVar("Kind")


def is_number(value: object) -> bool:
    """Whether it is a real number of Python or NumPy that a float holds; booleans are none."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def number(
    argument: str,
    value: Any,
    expected: str = "a positive number",
    *,
    above: float = 0.0,
    below: float = np.inf,
) -> float:
    """A real number strictly between two others, as a float."""
    if is_number(value) and above < float(value) < below:
        return float(value)
    raise InputError(argument, shown(value), expected)


def whole(
    argument: str,
    value: Any,
    expected: str = "a whole number of at least 1, below a million",
    *,
    least: int = 1,
    below: float = 1e6,
) -> int:
    """An integer of Python or NumPy in a half-open range; booleans and floats are none."""
    try:
        integer = operator.index(value)
    except TypeError:
        integer = least - 1
    if isinstance(value, bool) or not least <= integer < below:
        raise InputError(argument, shown(value), expected)
    return integer


def numbers(
    argument: str, value: Any, expected: str = "real numbers", *, copy: bool = True
) -> Array:
    """An array of real numbers, a new one with `copy`; masked and complex ones are refused."""
    try:
        raw = np.asarray(value)
        if isinstance(value, np.ma.MaskedArray):
            raise InputError(argument, "a masked array", expected, "Fill what is missing first.")
        if raw.dtype.kind not in "fiub":
            raise TypeError
        return raw.astype(np.float64, copy=copy)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(argument, shown(value), expected) from None


def choice(argument: str, value: Any, known: Iterable[Any]) -> None:
    """Refuse values that are not among the known ones; arrays never are."""
    names = tuple(known)
    try:
        if any(type(value) is type(name) and value == name for name in names):
            return
    except Exception:
        pass
    if isinstance(value, str) and len(value) < 120:
        raise unknown_name(argument, value, [name for name in names if isinstance(name, str)])
    raise InputError(argument, shown(value), "one of " + ", ".join(map(repr, names)))


def generator(rng: RNGLike) -> np.random.Generator:
    """A generator from anything that `numpy.random.default_rng` takes."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        expected = "None, a non-negative integer, a SeedSequence or a numpy Generator"
        advice = "An integer makes the result reproducible."
        raise InputError("rng", shown(rng), expected, advice) from error


def listed(argument: str, value: Any, expected: str) -> list[Any]:
    """Items of a sequence; text and numbers are refused."""
    if isinstance(value, str | bytes) or not np.iterable(value):
        raise InputError(argument, shown(value), expected)
    return list(value)


def instance(argument: str, value: Any, kind: type[Kind], expected: str) -> Kind:
    """A value of this class."""
    if not isinstance(value, kind):
        raise InputError(argument, shown(value), expected)
    return value


def shown(value: Any) -> str:
    """A value in a message, however long."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 120 else f"{text[:117]}…"
