"""Sending of tasks to other processes: by reference where they find it, by value where not."""

from __future__ import annotations

import functools
import pickle
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nestquad.errors import EvaluationError, InputError, MissingExtraError, optional_module
from nestquad.evaluate._fingerprint import attributes_of, is_installed, used_by

# Objects inside objects that are searched for the one that cannot travel.
_DEPTH = 6


class UnpackingError(EvaluationError):
    """A worker that got a task could not make sense of it."""


@dataclass(frozen=True)
class Parcel:
    """A task on its way to a worker, who opens it inside our own code.

    Executors that unpack their tasks themselves lose the worker if that fails, and everything
    waits. Here it is an error like any other.
    """

    payload: bytes

    def content(self) -> Any:
        return _opened(self.payload)


@functools.lru_cache(maxsize=8)
def _opened(payload: bytes) -> Any:
    try:
        return pickle.loads(payload)
    except Exception as error:
        raise UnpackingError(
            f"a worker could not unpack the problem ({type(error).__name__}: {error})",
            advice="Modules that g needs have to be installed where the workers run.",
        ) from error


def packed(content: Any, *, by_value: bool = False) -> bytes:
    """Pickled content, by cloudpickle where pickle gives up (lambdas, closures).

    What stands in ``__main__`` goes by value: the main module of a worker may be another one. If
    that fails it goes by reference, as processes that are forked know our main module. With
    `by_value` all that is not installed goes by value.
    """
    reason: Exception | None = None
    try:
        plain = pickle.dumps(content)
        if not by_value and b"__main__" not in plain:
            return plain
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        plain, reason = b"", error
    feature = "Sending this problem to another process"
    feature += f" (pickle says: {reason})" if reason else ""
    try:
        cloudpickle = optional_module("cloudpickle", feature, "parallel")
    except MissingExtraError:
        if plain:
            return plain
        raise
    try:
        with _values_of_modules(cloudpickle, by_value):
            return bytes(cloudpickle.dumps(content))
    except Exception as error:
        if plain and not by_value:
            return plain
        where = _culprit(content, cloudpickle.dumps)
        raise InputError(
            "problem",
            f"one that cannot be sent to another process: {where or error}",
            "functions and data that can be pickled",
            "Open files, locks and connections inside g, or use threads.",
        ) from error


@contextmanager
def _values_of_modules(cloudpickle: Any, wanted: bool) -> Iterator[None]:
    """Functions and classes of the user's own modules go by value inside the block."""
    ours = __name__.partition(".")[0]
    known = set(cloudpickle.list_registry_pickle_by_value())
    modules = [
        module
        for name, module in list(sys.modules.items())
        if wanted
        and isinstance(module, types.ModuleType)
        and getattr(module, "__file__", None)
        and name.partition(".")[0] != ours
        and module.__name__ == name not in known
        and not is_installed(name)
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _culprit(content: Any, dumps: Any) -> str:
    """The innermost variable that cannot be pickled, and the function or object that has it."""
    where, value, owner = "", content, "the problem"
    for _ in range(_DEPTH):
        for name, part in _parts(value).items():
            try:
                dumps(part)
            except Exception as error:
                last = str(error).splitlines()[0] if str(error) else type(error).__name__
                kind = f"{type(part).__module__}.{type(part).__qualname__}"
                where = f"{name} of {owner} is a {kind} ({last})"
                value, owner = part, _called(name, part)
                break
        else:
            break
    return where


def _parts(value: Any) -> dict[str, Any]:
    if isinstance(value, functools.partial):
        return {"function": value.func, "arguments": value.args, **value.keywords}
    if isinstance(value, types.MethodType):
        return {"function": value.__func__, "object": value.__self__}
    if isinstance(value, types.FunctionType):
        return {f"variable {name!r}": part for name, part in used_by(value).items()}
    if isinstance(value, dict):
        return {f"entry {key!r}": part for key, part in value.items()}
    if isinstance(value, tuple | list):
        return {f"element {i}": part for i, part in enumerate(value)}
    return {f"attribute {name!r}": part for name, part in attributes_of(value).items()}


def _called(name: str, value: Any) -> str:
    if isinstance(value, types.FunctionType):
        return f"function {value.__qualname__!r}"
    return f"{name} ({type(value).__name__})"
