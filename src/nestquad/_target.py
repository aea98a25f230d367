"""From what a user types on the command line to a problem."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from nestquad import problems
from nestquad.errors import InputError, unknown_name
from nestquad.problem import NestedExpectation

__all__ = ["load_problem"]

_KINDS = "a nq.NestedExpectation, or a function without arguments that returns one"


def load_problem(target: str) -> NestedExpectation:
    """The problem that ``FILE.py:name`` or the name of a shipped problem stands for.

    The file is run, as ``python FILE.py`` would run it but for its ``__name__``; ``name`` is a
    `NestedExpectation` in it, or a function without arguments that returns one. A problem without
    a name takes this one.

    Examples
    --------
    >>> load_problem("finance").exact
    3.07365140973624
    """
    file, _, name = target.rpartition(":")
    if target.endswith(".py") or (file and not name):
        advice = f"For instance {target.rstrip(':')}:problem."
        raise InputError("TARGET", f"{target!r} without a name", "FILE.py:name", advice)
    if not file:
        if target in problems.names():
            return problems.get(target)
        near = unknown_name("TARGET", target, problems.names())
        raise InputError("TARGET", near.given, f"FILE.py:name, or {near.expected}", near.advice)
    path = Path(file)
    found = _look_up(_module(path), name, path)
    if not isinstance(found, NestedExpectation) and callable(found):
        found = _called(found, name, path)
    if not isinstance(found, NestedExpectation):
        given = f"{name!r} of {path.name}, which is of type {type(found).__name__}"
        raise InputError("TARGET", given, _KINDS)
    return found if found.name is not None else replace(found, name=name)


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(
            "TARGET", f"{str(path)!r}, which is not a file", "an existing file", _nearest(path)
        )
    # A name that no import statement can mean, known to `sys.modules`: dataclasses ask for it.
    name = f"nestquad target {path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError("TARGET", repr(str(path)), "a Python file, with the suffix .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # the file may import its neighbors
        sys.path.insert(0, folder)
    loader = spec.loader
    _guarded(lambda: loader.exec_module(module), path, "a file that can be imported")
    return module


def _nearest(path: Path) -> str:
    folder = path.parent
    files = [p.name for p in folder.glob("*.py")] if folder.is_dir() else []
    near = difflib.get_close_matches(path.name, files, n=1, cutoff=0.4)
    return f"Did you mean {str(folder / near[0])!r}?" if near else ""


def _look_up(module: ModuleType, name: str, path: Path) -> Any:
    if name in vars(module):
        return vars(module)[name]
    candidates = [
        key
        for key, value in vars(module).items()
        if isinstance(value, NestedExpectation)
        or (inspect.isfunction(value) and value.__module__ == module.__name__)
    ]
    if candidates:
        raise unknown_name(f"TARGET (a name in {path.name})", name, candidates)
    raise InputError("TARGET", f"{path.name}, which defines no problem", _KINDS)


def _called(function: Callable[..., Any], name: str, path: Path) -> Any:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        given = f"{name!r} of {path.name}, which cannot be called without arguments ({error})"
        raise InputError("TARGET", given, _KINDS) from error
    return _guarded(function, path, f"{name}() to return a problem")


def _guarded(call: Callable[[], Any], path: Path, expected: str) -> Any:
    """Run the user's code; what it raises becomes one line that says where."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        last = traceback.format_exception_only(error)[-1].strip()
        given = f"{path.name}, which failed{_where(error, path)} with {last}"
        advice = f"`python {path}` may show more."
        raise InputError("TARGET", given, expected, advice) from error


def _where(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path.resolve()):
        return f" at line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(path.resolve())]
    return f" at line {own[-1].lineno} ({own[-1].line})" if own else ""
