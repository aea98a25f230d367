"""Parameters that laws read as numbers, and g as arrays of a library that differentiates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import CellType, FunctionType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from nestquad._typing import Array

# Names of NumPy's functions that PyTorch spells differently.
_SPELLED = {"power": "pow", "true_divide": "divide", "mod": "remainder"}


class Traced(NDArrayOperatorsMixin):
    """A parameter with two faces: its value, and the variable that a library differentiates in.

    NumPy, and so every law, takes the value; functions of the library take the variable. Arithmetic
    and functions of NumPy that act on each element keep both.

    Attributes
    ----------
    value
        The number, or the array.
    variable
        The same as a variable of the library.
    library
        Module with the functions of the library: ``jax.numpy`` or ``torch``.
    """

    def __init__(self, value: Array, variable: Any, library: Any) -> None:
        self.value, self.variable, self.library = np.asarray(value), variable, library

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.value, dtype=dtype)

    def __jax_array__(self) -> Any:
        return self.variable

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*map(_variable, args), **(kwargs or {}))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs.get("out") is not None:
            return NotImplemented
        name = ufunc.__name__
        if not hasattr(self.library, name):
            name = _SPELLED.get(name, name)
        # PyTorch mixes no array of NumPy with a tensor.
        convert = getattr(self.library, "as_tensor", lambda value: value)
        variables = [
            convert(value) if isinstance(value, np.ndarray) else _variable(value)
            for value in inputs
        ]
        if hasattr(self.library, "as_tensor"):  # nor a number where it wants a tensor
            variables = [convert(value) for value in variables]
        result = getattr(self.library, name)(*variables)
        if all(
            isinstance(value, Traced | np.ndarray | np.generic | int | float) for value in inputs
        ):
            values = [value.value if isinstance(value, Traced) else value for value in inputs]
            return Traced(ufunc(*values), result, self.library)
        return result

    def __getitem__(self, key: Any) -> Traced:
        return Traced(self.value[key], self.variable[key], self.library)

    def __iter__(self) -> Iterator[Traced]:
        return (self[k] for k in range(len(self)))

    def __len__(self) -> int:
        return len(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def reshape(self, *shape: Any) -> Traced:
        return Traced(self.value.reshape(*shape), self.variable.reshape(*shape), self.library)

    def sum(self) -> Traced:
        return Traced(self.value.sum(), self.variable.sum(), self.library)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size


def with_face(face: str, value: Any, known: dict[int, Any] | None = None) -> Any:
    """A function, or data, with ``"variable"`` or ``"value"`` in place of traced parameters.

    Compiled functions of JAX take arrays of JAX only. Parameters are looked for in
    closures, defaults, ``functools.partial``, tuples, lists and dicts.
    """
    known = {} if known is None else known
    if isinstance(value, Traced):
        return getattr(value, face)
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, FunctionType):
        cells = tuple(CellType() for _ in value.__closure__ or ())
        same = FunctionType(value.__code__, value.__globals__, value.__name__, None, cells)
        known[id(value)] = same  # before its closure, which may have the function itself
        same.__defaults__ = with_face(face, value.__defaults__, known)
        same.__kwdefaults__ = with_face(face, value.__kwdefaults__, known)
        for cell, old in zip(cells, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # a name that has no value yet
                cell.cell_contents = with_face(face, old.cell_contents, known)
        return same
    if isinstance(value, partial):
        parts = (with_face(face, part, known) for part in (value.func, value.args, value.keywords))
        function, args, keywords = parts
        return partial(function, *args, **keywords)
    if type(value) in (tuple, list):
        return type(value)(with_face(face, part, known) for part in value)
    if type(value) is dict:
        return {key: with_face(face, part, known) for key, part in value.items()}
    return value


def _variable(value: Any) -> Any:
    return value.variable if isinstance(value, Traced) else value
