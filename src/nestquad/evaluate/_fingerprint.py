"""Fingerprints of problems without evaluating g: laws at a few points, code of g."""

from __future__ import annotations

import contextlib
import copyreg
import datetime
import dis
import enum
import functools
import gc
import hashlib
import importlib.util
import random
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from numbers import Number
from pathlib import PurePath
from typing import Any

import numpy as np

from nestquad._checks import numbers
from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.problem import NestedExpectation

_MOST_NUMBERS = 64
_SCALARS = {bool, int, float, complex, str, bytes}
_CONTAINERS = (
    dict,
    types.MappingProxyType,
    set,
    frozenset,
    list,
    tuple,
    deque,
    bytearray,
    memoryview,
)
# Immutable values whose text says all.
_VALUES = (Number, str, bytes, PurePath, datetime.date, datetime.time, datetime.timedelta)
# Members of a class that hold no value.
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
# Compiled objects that change when they are used.
_STATES = (
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    random.Random,
    Iterator,
)
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"}
# Methods that make an object, whose attributes are constants afterwards.
_MAKERS = {"__init__", "__post_init__", "__setstate__"}
# Methods by which a function changes a list or dict.
_MUTATORS = {"append", "extend", "update", "add", "insert", "pop", "setdefault", "fill"}


def fingerprint(problem: NestedExpectation) -> dict[str, Any]:
    """Determinants of the values of g, as JSON: laws at a few points, and a digest of g.

    f and `combine` do not take part: values of g serve them all. The digest covers the code of g,
    of the functions and classes it uses, and of what it takes from modules of the user; and
    constants in closures, defaults, attributes and globals: numbers, text, arrays, tensors, tables,
    parameters of models, and attributes of objects. It does not cover what g itself changes, such
    as a counter, what it looks up by text, files or compiled code: a store evaluates g again at a
    few points for those.
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
    theta = _some_points(problem.outer_law, 3)
    return theta, _some_points(problem.inner_law(theta), 2)


def _some_points(law: Law, n: int) -> Array:
    if law.has_transport:
        return law.from_uniform(_reference(n, law.base_dim))
    return law.sample(n, np.random.default_rng(20240229))


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
    try:
        _Feeder(found).feed(g)
    except RecursionError:  # nested too deeply: what is read would depend on the caller's depth
        code = getattr(getattr(g, "__code__", None), "co_code", b"")
        found = hashlib.blake2b(code, digest_size=8)
    return found.hexdigest()


class _Feeder:
    """Feeds the parts of an object to a hash, in the same order in every process."""

    def __init__(self, target: Any, seen: dict[int, tuple[int, Any]] | None = None) -> None:
        self._target = target
        # Order of appearance, and the object itself: the address of one that is gone is used again.
        self._seen = {} if seen is None else seen
        self._written: set[str] = set()

    def feed(self, value: Any) -> None:
        if value is None or type(value) in _SCALARS:
            self._say(repr(value))
        elif isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            self._say(f"{array.dtype.str}{array.shape}")
            if array.dtype.hasobject:
                self.feed(array.ravel().tolist())
            else:
                self._target.update(array.tobytes())
        elif type(value) is tuple:
            self._items(value)
        elif id(value) in self._seen:
            self._say(f"again {self._seen[id(value)][0]}")
        else:
            self._seen[id(value)] = (len(self._seen), value)
            self._object(value)

    def _items(self, values: Iterable[Any]) -> None:
        self._say(type(values).__name__)
        for value in values:
            self.feed(value)
        self._say("end")

    def _unordered(self, values: Iterable[Any]) -> list[Any]:
        """In an order that does not depend on addresses."""
        values = list(values)
        if all(map(_is_plain, values)):
            return sorted(values, key=repr)

        def own(value: Any) -> bytes:
            found = hashlib.blake2b(digest_size=8)
            _Feeder(found, dict(self._seen)).feed(value)
            return found.digest()

        return sorted(values, key=own)

    def _object(self, value: Any) -> None:
        if isinstance(value, types.CodeType):
            self._target.update(value.co_code)
            self._say(repr(value.co_names))
            self._items(value.co_consts)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._say(f"{value.__module__}.{value.__qualname__}")
            self._class(value)
        elif isinstance(value, types.ModuleType):
            self._say(value.__name__)
        elif parts := _parts(value):
            self._items(parts)
            if not is_installed(type(value).__module__):  # a decorator that is a class
                self._instance(value)
        elif isinstance(value, enum.Enum):
            self._items((f"{type(value).__qualname__}.{value.name}", value.value))
        elif isinstance(value, _VALUES):
            self._say(_text(value))
        else:
            self._contents(value)
            if not isinstance(value, _CONTAINERS) or not is_installed(type(value).__module__):
                self._instance(value)

    def _contents(self, value: Any) -> None:
        if isinstance(value, dict | types.MappingProxyType):
            for key in self._unordered(value):
                self._items((key, value[key]))
        elif isinstance(value, set | frozenset):
            self._items(self._unordered(value))
        elif isinstance(value, list | tuple | deque):
            self._items(value)
        elif isinstance(value, bytearray | memoryview):
            self.feed(bytes(value))

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
        used |= _of_modules(code, used, function.__globals__.get("__package__"))
        used |= {f".{k}": v for k, v in vars(function).items() if not k.startswith("_")}
        for name in sorted(used):
            if writes.may_change(name.rpartition(".")[2], used[name]):
                continue
            self._say(name)
            self.feed(used[name])

    def _class(self, kind: type) -> list[_Writes]:
        """The methods and constants of the user's own classes, and what the methods change."""
        own = [
            item
            for one in (type(kind), kind)  # a metaclass has methods as well
            for c in reversed(one.__mro__)
            if not is_installed(c.__module__)
            for item in sorted(vars(c).items())
        ]
        methods = [_unwrapped(member) for _, member in own]
        functions = [function for some in methods for function in some]
        for function in functions:
            self.feed(function)
        writes = [_Writes(f.__code__) for f in functions if f.__name__ not in _MAKERS]
        for (name, member), some in zip(own, methods, strict=True):
            if not some and not isinstance(member, _DESCRIPTORS):
                self._attribute(name, member, writes)
        return writes

    def _attribute(self, name: str, value: Any, writes: list[_Writes]) -> None:
        private = name.startswith("__") or (name.startswith("_") and name.endswith("_"))
        if private or name in self._written or any(w.may_change(name, value) for w in writes):
            return
        self._say(name)
        self.feed(value)

    def _instance(self, value: Any) -> None:
        kind = type(value)
        self._say(f"{kind.__module__}.{kind.__qualname__}")
        array = _as_array(value)
        if array is not None:
            labels = [getattr(value, name, ()) for name in ("columns", "index")]
            self.feed(([list(one) for one in labels if isinstance(one, Iterable)], array))
            self._say(str(getattr(value, "dtype", "")))
            return
        installed = is_installed(kind.__module__)
        writes = self._class(kind)
        attributes = attributes_of(value)
        if callable(getattr(kind, "state_dict", None)):  # a module of PyTorch
            self.feed(value.state_dict())
        elif installed and not attributes:
            self.feed(_reduced(value))
        for name, attribute in sorted(attributes.items()):
            # What packages keep for themselves, or make when it is first asked for, may be a cache.
            hidden = name.startswith("_") or hasattr(kind, name)
            hidden &= not isinstance(attribute, np.ndarray)
            cached = isinstance(getattr(kind, name, None), functools.cached_property)
            if not cached and not (installed and hidden):
                self._attribute(name, attribute, writes)

    def _say(self, text: str) -> None:
        self._target.update(f"<{text}>".encode(errors="backslashreplace"))


def _text(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return type(value).__qualname__


def _parts(value: Any) -> tuple[Any, ...]:
    """What a wrapper holds; empty for anything else."""
    if isinstance(value, functools.partial | functools.partialmethod):
        return (value.func, value.args, value.keywords)
    if isinstance(value, types.MethodType):
        return (value.__func__, value.__self__)
    if isinstance(value, types.BuiltinFunctionType):
        owner = getattr(value, "__self__", None)
        bound = () if isinstance(owner, types.ModuleType) else (owner,)
        return (str(getattr(value, "__module__", "")), value.__name__, *bound)
    if isinstance(value, np.ufunc):  # of np.frompyfunc, which has no other way to its function
        return (value.__name__, *(f for f in gc.get_referents(value) if callable(f)))
    try:  # functools.wraps, jax.jit, lru_cache
        return (value.__wrapped__,)
    except Exception:
        return ()


def _unwrapped(member: Any) -> list[types.FunctionType]:
    """The functions behind a method of any kind."""
    if isinstance(member, types.FunctionType):
        return [member]
    if isinstance(member, type | types.ModuleType):
        return []
    try:
        names = ("fget", "fset", "fdel", "func", "__func__", "__wrapped__")
        inner = [getattr(member, name, None) for name in names]
    except Exception:
        return []
    return [f for one in inner if one is not None for f in _unwrapped(one)][:3]


def _reduced(value: Any) -> Any:
    """A compiled object as pickle sees it; None for those that have a state of their own."""
    if isinstance(value, _STATES):
        return None
    with contextlib.suppress(Exception):
        registered = copyreg.dispatch_table.get(type(value))
        found = value.__reduce_ex__(2) if registered is None else registered(value)
        if not isinstance(found, str):
            return tuple(list(one) if isinstance(one, Iterator) else one for one in found)
    return None


def _is_plain(value: Any) -> bool:
    return type(value) in _SCALARS or (type(value) is tuple and all(map(_is_plain, value)))


def _is_own(value: Any) -> bool:
    return isinstance(value, types.ModuleType) and not is_installed(value.__name__)


def _of_modules(code: types.CodeType, used: dict[str, Any], package: str | None) -> dict[str, Any]:
    """What a function takes from modules of the user, as in ``helpers.cost(x)``, by dotted name.

    Modules that the function imports itself are imported, as they are by its first call.
    """
    found: dict[str, Any] = {}
    known = {name: value for name, value in used.items() if _is_own(value)}
    name, value, source = "", None, None
    steps = list(dis.get_instructions(code))
    for i, step in enumerate(steps):
        own = str(step.argval)
        if step.opname == "IMPORT_NAME":
            name, value = own, _imported(own, steps[i - 2].argval, steps[i - 1].argval, package)
            source = value
        elif step.opname == "IMPORT_FROM" and source is not None:
            name, value = f"{name}.{own}", getattr(source, own, None)
            found[name] = value
        elif step.opname.startswith("STORE_") and _is_own(value):
            known[own] = value
        elif step.opname.startswith("LOAD_FAST") or step.opname in _LOADS:
            own = step.argval[-1] if isinstance(step.argval, tuple) else own
            name, value = own, known.get(own)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and _is_own(value):
            name, value = f"{name}.{own}", vars(value).get(own)
            found[name] = value
        elif step.opname not in ("SWAP", "POP_TOP"):  # between ``import a.b`` and ``as c``
            name, value = "", None
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= _of_modules(inner, known, package)
    return found


def _imported(name: str, level: int, names: Any, package: str | None) -> Any:
    """A module of the user as an import statement sees it; None for others."""
    with contextlib.suppress(Exception, SystemExit):
        if level or not is_installed(name):
            return __import__(name, {"__package__": package}, None, names or (), level)
    return None


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
    if not hasattr(type(value), "__array__"):
        return None
    with contextlib.suppress(Exception):
        if not hasattr(value, "detach"):
            return np.asarray(value)
        dense = value.detach().cpu().to_dense()
        # NumPy has no bfloat16.
        return np.asarray(dense.double() if dense.is_floating_point() else dense)
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
    loads = (i for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return {str(i.argval) for i in loads}.union(*map(_globals_of, inner))


def is_installed(module: str | None) -> bool:
    """Whether it comes with Python or a package: those change with their versions, not by hand."""
    name = (module or "").partition(".")[0]
    if name in sys.stdlib_module_names and name != "__main__":
        return True
    loaded = sys.modules.get(module or "")
    file = getattr(loaded, "__file__", None)
    if loaded is None and name.isidentifier():
        with contextlib.suppress(ImportError, ValueError):
            file = getattr(importlib.util.find_spec(name), "origin", None)
    return "site-packages" in (file or "") or "dist-packages" in (file or "")
