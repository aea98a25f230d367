"""Fingerprint of a problem without evaluation of g: laws at reference points, code of g."""

from __future__ import annotations

import contextlib
import dis
import hashlib
import importlib.util
import sys
import types
from typing import Any

import numpy as np

from nestquad._checks import numbers
from nestquad._typing import Array
from nestquad.distributions import Law
from nestquad.problem import NestedExpectation

_LAW_NUMBERS = 64  # coordinates of reference points that are compared


def fingerprint(problem: NestedExpectation) -> dict[str, Any]:
    """Laws at reference points and a digest of the code of g, as JSON.

    f and `combine` do not take part: values of g serve them all. The digest covers the code of g
    and of the user's functions that it calls by name, and numbers and text in their closures,
    defaults and globals. Arrays, objects and files are left to the store, which evaluates g again
    at stored points and so notices changes of any kind.
    """
    theta = _reference_points(problem.outer_law, 3)
    x = _reference_points(problem.inner_law(theta), 2)
    return {
        "outer law": _leading_numbers(theta),
        "inner law": _leading_numbers(x),
        "dimensions": [int(theta.shape[-1]), int(x.shape[-1])],
        "code": digest_code(problem.g),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


def difference(stored: dict[str, Any], given: dict[str, Any]) -> tuple[str, str, str] | None:
    """First difference as (argument, given, stored), or None."""
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
    if same_python and stored.get("code", given["code"]) != given["code"]:
        return (
            "problem",
            "another g: its code, or a constant that it uses, has changed",
            f"the g of the store (digest {stored['code']}, not {given['code']})",
        )
    return None


def _reference_points(law: Law, n: int) -> Array:
    """Points of a law well inside its support, all coordinates different, (n, d)."""
    if not law.has_transport:
        return law.sample(n, np.random.default_rng(20240229))
    # Additive recurrence with the plastic number (Roberts 2018, R2 sequence).
    steps = np.arange(1, n + 1)[:, None] * 0.7548776662 + np.arange(law.base_dim) * 0.5698402909
    return law.from_uniform(0.05 + 0.9 * (steps % 1.0))


def _leading_numbers(values: Array) -> list[float]:
    return [float(v) for v in values.ravel()[:_LAW_NUMBERS]]


def _short(values: Array) -> str:
    return np.array2string(values.ravel()[:3], precision=6, separator=", ")


def digest_code(g: Any) -> str:
    """Digest of the bytecode of g and of its functions, with the numbers and text that they use."""
    functions = _list_functions(g, [])
    # Variables that a function assigns are state, such as a counter of calls.
    state = set().union(*(_assigned_names(function.__code__) for function in functions))
    digest = hashlib.blake2b(digest_size=8)
    for function in functions:
        variables = sorted(_used_variables(function).items())
        constants = [item for item in variables if item[0] not in state and _is_plain(item[1])]
        keywords = sorted((function.__kwdefaults__ or {}).items())
        defaults = [v for v in (*(function.__defaults__ or ()), *keywords) if _is_plain(v)]
        content = (_describe_code(function.__code__), constants, defaults)
        digest.update(repr(content).encode(errors="backslashreplace"))
    return digest.hexdigest()


def _list_functions(value: Any, known: list[types.FunctionType]) -> list[types.FunctionType]:
    """Python functions of the user that a callable consists of, and that they refer to by name."""
    value = getattr(value, "func", value)  # functools.partial
    value = getattr(value, "__func__", value)  # a bound method
    if not isinstance(value, types.FunctionType):
        value = getattr(type(value), "__call__", None)  # noqa: B004
    if (
        isinstance(value, types.FunctionType)
        and value not in known
        and not is_installed(value.__module__)
    ):
        known.append(value)
        for _, used in sorted(_used_variables(value).items()):
            if isinstance(used, types.FunctionType):
                _list_functions(used, known)
    return known


def _describe_code(code: types.CodeType) -> tuple[Any, ...]:
    constants = [
        _describe_code(constant)
        if isinstance(constant, types.CodeType)
        # The order of a set of text differs from process to process.
        else sorted(map(repr, constant))
        if isinstance(constant, frozenset)
        else constant
        for constant in code.co_consts
    ]
    return code.co_code, code.co_names, constants


def _assigned_names(code: types.CodeType) -> set[str]:
    stores = ("STORE_GLOBAL", "STORE_DEREF", "STORE_NAME")
    return {str(i.argval) for i in dis.get_instructions(code) if i.opname in stores}


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, text, or a tuple of these."""
    kinds = (bool, int, float, complex, str, bytes)
    return type(value) in kinds or (type(value) is tuple and all(map(_is_plain, value)))


def _used_variables(function: types.FunctionType) -> dict[str, Any]:
    """Variables of its closure, and global ones, that a function uses."""
    variables = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is still empty
            variables[name] = cell.cell_contents
    names = _globals_of(function.__code__)
    return variables | {name: function.__globals__.get(name) for name in names}


def _globals_of(code: types.CodeType) -> set[str]:
    """Names that a function and the functions inside it may look up in its module."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    loads = (i for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return {str(i.argval) for i in loads}.union(*map(_globals_of, inner))


def is_installed(module: str | None) -> bool:
    """Whether a module belongs to Python or an installed package, not to the user."""
    name = (module or "").partition(".")[0]
    if name in sys.stdlib_module_names and name != "__main__":
        return True
    loaded = sys.modules.get(module or "")
    file = getattr(loaded, "__file__", None)
    if loaded is None and name.isidentifier():
        with contextlib.suppress(ImportError, ValueError):
            file = getattr(importlib.util.find_spec(name), "origin", None)
    return "site-packages" in (file or "") or "dist-packages" in (file or "")
