"""Fingerprints of problems without evaluating g: laws at a few points, code of g."""

from __future__ import annotations

import contextlib
import datetime
import dis
import enum
import functools
import hashlib
import sys
import types
from numbers import Number
from pathlib import PurePath
from typing import Any

import numpy as np

from nestquad._checks import numbers
from nestquad._typing import Array
from nestquad.problem import NestedExpectation

_MOST_NUMBERS = 64
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, list, dict, np.ndarray)
# Immutable values whose text says all.
_VALUES = (Number, enum.Enum, PurePath, datetime.date, datetime.time, datetime.timedelta)
# Methods that make an object, whose attributes are constants afterwards.
_MAKERS = {"__init__", "__post_init__", "__setstate__"}
# Methods by which a function changes a list or dict.
_MUTATORS = {"append", "extend", "update", "add", "insert", "pop", "setdefault", "fill"}


def fingerprint(problem: NestedExpectation) -> dict[str, Any]:
    """Determinants of the values of g, as JSON: laws at a few points, and a digest of g.

    f and `combine` do not take part: values of g serve them all. The digest covers the code of g
    and of the functions it calls, and constants in closures, defaults, attributes and globals:
    numbers, text, arrays, tensors, tables, and public attributes of objects. It does not cover
    what g itself changes, such as a counter, nor files or compiled code: a store evaluates g again
    at a few points for those.
    """
    theta, x = _probe(problem)
    return {
        "outer law": _numbers(theta),
        "inner law": _numbers(x),
        "dimensions": [int(theta.shape[-1]), int(x.shape[-1])],
        "g": _digest(problem.g),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def difference(stored: dict[str, Any], given: dict[str, Any]) -> tuple[str, str, str] | None:
    """The first difference, the stored and the given value; None if there is none."""
    if stored.get("dimensions") != given["dimensions"]:
        return (
            "problem",
            f"one with dimensions (d_theta, d_x) = {tuple(given['dimensions'])}",
            f"{stored.get('dimensions')}, those of the store",
        )
    for part, what in (("outer law", "theta"), ("inner law", "x")):
        old = numbers("store", stored.get(part, ()), f"numbers for the {part} in its manifest")
        new = np.asarray(given[part])
        # Another build of NumPy or SciPy may round differently.
        if old.shape != new.shape or not np.allclose(old, new, rtol=1e-6, atol=1e-9):
            return (
                "problem",
                f"another {part} ({what} = {_short(new)} at a point of reference)",
                f"the one of the store ({what} = {_short(old)})",
            )
    # Digests of other versions of Python are not comparable.
    same_python = stored.get("python") == given["python"]
    if same_python and stored.get("g") != given["g"]:
        return (
            "problem",
            "another g: its code, or a constant that it uses, has changed",
            f"the g of the store (digest {stored.get('g')}, not {given['g']})",
        )
    return None


def _probe(problem: NestedExpectation) -> tuple[Array, Array]:
    law = problem.outer_law
    if law.has_transport:
        theta = law.from_uniform(_reference(3, law.base_dim))
    else:
        theta = law.sample(3, np.random.default_rng(20240229))
    inner = problem.inner_law(theta)
    if inner.has_transport:
        x = inner.from_uniform(_reference(2, inner.base_dim)[None])
    else:
        x = inner.sample(2, np.random.default_rng(20240229))
    return np.asarray(theta), np.asarray(x)


def _reference(n: int, dim: int) -> Array:
    """Points well inside the unit cube, all coordinates different."""
    steps = np.arange(1, n + 1)[:, None] * 0.7548776662 + np.arange(dim)[None, :] * 0.5698402909
    return np.asarray(0.05 + 0.9 * (steps % 1.0))


def _numbers(values: Array) -> list[float]:
    return [float(v) for v in values.ravel()[:_MOST_NUMBERS]]


def _short(values: Array) -> str:
    return np.array2string(values.ravel()[:3], precision=6, separator=", ")


def _digest(g: Any) -> str:
    found = hashlib.blake2b(digest_size=8)
    _Feeder(found).feed(g)
    return found.hexdigest()


class _Feeder:
    """Feeds the parts of an object to a hash, in the same order in every process."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._seen: set[int] = set()
        self._written: set[str] = set()

    def feed(self, value: Any) -> None:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            self._say(repr(value))
        elif isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            self._say(f"{array.dtype.str}{array.shape}")
            if array.dtype.hasobject:
                self.feed(array.ravel().tolist())
            else:
                self._target.update(array.tobytes())
        elif isinstance(value, tuple | list):
            self._say(type(value).__name__)
            for item in value:
                self.feed(item)
        elif isinstance(value, dict):
            for key in sorted(value, key=repr):
                self.feed(key)
                self.feed(value[key])
        elif isinstance(value, set | frozenset):
            self._say(repr(sorted(map(repr, value))))
        elif isinstance(value, _VALUES):
            self._say(repr(value))
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            self._object(value)

    def _object(self, value: Any) -> None:
        if isinstance(value, types.CodeType):
            self._target.update(value.co_code)
            self._say(repr(value.co_names))
            for constant in value.co_consts:
                self.feed(constant)
        elif isinstance(value, functools.partial):
            self.feed((value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self.feed(value.__func__)
            self.feed(value.__self__)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif hasattr(value, "__wrapped__"):  # functools.wraps, jax.jit, lru_cache
            self.feed(value.__wrapped__)
        elif isinstance(value, types.ModuleType | types.BuiltinFunctionType | np.ufunc | type):
            self._say(f"{getattr(value, '__module__', '')}.{value.__name__}")
        else:
            self._instance(value)

    def _function(self, function: types.FunctionType) -> None:
        self._say("function")
        code = function.__code__
        self.feed(code)
        if is_installed(function.__module__):
            return  # its constants are its own business
        writes = _Writes(code)
        if function.__name__ not in _MAKERS:
            self._written |= writes.attributes
        self.feed((function.__defaults__, function.__kwdefaults__))
        used = used_by(function)
        for name in sorted(used):
            if writes.may_change(name, used[name]):
                continue
            self._say(name)
            self.feed(used[name])

    def _instance(self, value: Any) -> None:
        kind = type(value)
        self._say(f"{kind.__module__}.{kind.__qualname__}")
        array = _as_array(value)
        if array is not None:
            self.feed((list(getattr(value, "columns", ())), array))
            return
        installed = is_installed(kind.__module__)
        own = [
            item
            for c in reversed(kind.__mro__)
            if not is_installed(c.__module__)
            for item in sorted(vars(c).items())
        ]
        methods = [f for _, f in own if isinstance(f, types.FunctionType)]
        for method in methods:
            self.feed(method)
        writes = [_Writes(m.__code__) for m in methods if m.__name__ not in _MAKERS]
        attributes = {k: v for k, v in own if isinstance(v, _CONSTANTS)} | attributes_of(value)
        for name, attribute in sorted(attributes.items()):
            # What packages keep for themselves, or make when it is first asked for, may be a cache.
            hidden = name.startswith("_") or hasattr(kind, name)
            hidden &= not isinstance(attribute, np.ndarray)
            if name.startswith("__") or name in self._written or (installed and hidden):
                continue
            if not any(w.may_change(name, attribute) for w in writes):
                self._say(name)
                self.feed(attribute)

    def _say(self, text: str) -> None:
        self._target.update(f"<{text}>".encode())


class _Writes:
    """What a piece of code changes: state, which is no part of its definition."""

    def __init__(self, code: types.CodeType) -> None:
        stores = [i for i in dis.get_instructions(code) if i.opname.startswith("STORE_")]
        self.attributes = {str(i.argval) for i in stores if i.opname == "STORE_ATTR"}
        self._names = {str(i.argval) for i in stores if not i.opname.startswith("STORE_FAST")}
        self._into = any(i.opname in ("STORE_SUBSCR", "STORE_SLICE") for i in stores)
        self._into |= bool(_MUTATORS & set(code.co_names))

    def may_change(self, name: str, value: Any) -> bool:
        mutable = isinstance(value, list | dict | set | np.ndarray)
        return name in self._names or (mutable and self._into)


def attributes_of(value: Any) -> dict[str, Any]:
    """Attributes of an instance, in its dictionary or in slots."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(AttributeError):
                found[name] = getattr(value, name)
    return found


def _as_array(value: Any) -> Array | None:
    """A table, tensor or other array as one of NumPy; None for anything else."""
    if not hasattr(value, "__array__"):
        return None
    with contextlib.suppress(Exception):
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    return None


def used_by(function: types.FunctionType) -> dict[str, Any]:
    """Variables of its closure, and global ones, that a function uses."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is still empty
            found[name] = cell.cell_contents
    names = _globals_of(function.__code__)
    return found | {name: function.__globals__.get(name) for name in names}


def _globals_of(code: types.CodeType) -> set[str]:
    """Names that a function and the functions inside it may look up in its module."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_globals_of, inner))


def is_installed(module: str | None) -> bool:
    """Whether it comes with Python or a package: those change with their versions, not by hand."""
    name = (module or "").partition(".")[0]
    if name in sys.stdlib_module_names and name != "__main__":
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file
