"""Arguments that commands share: options, and the problem that a target names."""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeAlias, TypeVar

from nestquad import _files, problems
from nestquad.errors import InputError, unknown_name
from nestquad.methods import METHODS
from nestquad.problem import NestedExpectation
from nestquad.repeated import RepeatedExpectation

Command: TypeAlias = Callable[
    [str, Callable[[argparse.Namespace], int], str, str], argparse.ArgumentParser
]
"""Adds a command: name, what it runs, summary and epilog."""

TARGET = """\
FILE.py:name, where name is a nestquad.NestedExpectation (or RepeatedExpectation) in that file or a
function without arguments that returns one; or the name of a shipped problem (see `nestquad
problems`)"""

Value = TypeVar("Value")


def add_options(parser: argparse.ArgumentParser, *names: str, target: str = "") -> None:
    """Add a target, if it is described, and options that commands share."""
    if target:
        parser.add_argument("target", metavar="TARGET", help=target)
    flag: dict[str, Any] = {"action": "store_true"}
    shared: dict[str, dict[str, Any]] = {
        "budget": {"type": count, "metavar": "N", "help": "at most N evaluations of g"},
        "tol": {"type": float, "metavar": "X", "help": "stop at a 95 %% half-width of X"},
        "rtol": {"type": float, "metavar": "X", "help": "stop at X times the value"},
        "method": {"metavar": "NAME", "help": f"auto (default), {', '.join(METHODS)}"},
        "max-seconds": {"type": float, "metavar": "X", "help": "start nothing new after X s"},
        "store": {"metavar": "DIR", "help": "keep values of g; the same command continues"},
        "workers": {"type": count, "metavar": "N", "help": "evaluate g in N processes"},
        "retries": {"type": int, "metavar": "N", "help": "try again where g fails (default 0)"},
        "seed": {"type": int, "metavar": "S", "help": "the same seed gives the same numbers"},
        "json": {"help": "print JSON and nothing else", **flag},
        "report": {"type": new_file, "metavar": "PAGE.html", "help": "a self-contained page"},
        "no-progress": {"help": "no progress bar (on when stderr is a terminal)", **flag},
    }
    defaults = {"method": "auto"}
    for name in names:
        parser.add_argument(f"--{name}", default=defaults.get(name), **shared[name])


GOAL = "budget", "tol", "rtol", "method"
OUTPUT = "seed", "json", "report", "no-progress"


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    WRONG_INPUT = 2
    NOT_MET = 3
    INTERRUPTED = 130


def answer(
    args: argparse.Namespace, result: Any, write: Callable[[Path], Path], text: str = ""
) -> int:
    """Print a result, write its report if asked for, and return the exit code."""
    print(result.to_json(indent=2) if args.json else text or result)
    if args.report:
        wrote(args, write(args.report))
    goals = (getattr(args, name, None) for name in ("tol", "rtol"))
    met = all(goal is None for goal in goals) or result.status == "converged"
    return Exit.DONE if met else Exit.NOT_MET


def wrote(args: argparse.Namespace, path: Path) -> None:
    """Report a written file, on stderr where stdout has JSON."""
    print(f"wrote {path}", file=sys.stderr if args.json else sys.stdout)


def progress(args: argparse.Namespace) -> bool:
    return sys.stderr.isatty() and not args.no_progress


def pool(
    args: argparse.Namespace, load: Callable[[str], object] | None = None
) -> AbstractContextManager[Executor | None]:
    """The processes that ``--workers`` asks for; `load` reads the target, a problem without it."""
    if args.workers is None:
        return nullcontext()
    # Workers load the file as well: its functions are found by name there.
    initializer = load or load_expectation
    return ProcessPoolExecutor(args.workers, initializer=initializer, initargs=(args.target,))


def count(text: str) -> int:
    """A positive whole number; 1e5 is one."""
    value = number(text)
    if not value.is_integer() or value < 1:  # which NaN and infinity are not either
        _refuse(f"{text!r} is not a positive whole number")
    return int(value)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        _refuse(f"{text!r} is not a number; for instance 10000 or 1e4")


def listed(parse: Callable[[str], Value]) -> Callable[[str], list[Value]]:
    return lambda text: [parse(part.strip()) for part in text.split(",")]


def new_file(text: str) -> Path:
    """A writable file, checked before the evaluations."""
    try:
        return _files.new_file(text)
    except InputError:
        _refuse(f"{text!r} cannot be written: it is a folder, or its folder does not exist")


def _refuse(message: str) -> NoReturn:
    raise argparse.ArgumentTypeError(message)


_KINDS = "a nq.NestedExpectation, or a function without arguments that returns one"


def load_problem(target: str) -> NestedExpectation:
    """The problem of two levels that a target stands for; see `load_expectation`."""
    problem = load_expectation(target)
    if isinstance(problem, RepeatedExpectation):
        given = f"{target!r}, which is of type RepeatedExpectation"
        advice = "Repeated expectations are for `nestquad estimate` and `nestquad plan`."
        raise InputError("TARGET", given, _KINDS, advice)
    return problem


def load_expectation(target: str) -> NestedExpectation | RepeatedExpectation:
    """The problem that ``FILE.py:name`` or the name of a shipped problem stands for.

    The file is run, as ``python FILE.py`` would run it but for its ``__name__``; ``name`` is a
    `NestedExpectation` or `RepeatedExpectation` in it, or a function without arguments that returns
    one. A problem without a name takes this one.
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
    problem = load_object(file, name, (NestedExpectation, RepeatedExpectation), _KINDS)
    assert isinstance(problem, NestedExpectation | RepeatedExpectation)
    return problem if problem.name is not None else replace(problem, name=name)


def load_function(target: str, kinds: str) -> Callable[..., Any]:
    """The function that ``FILE.py:name`` or ``module:name`` stands for."""
    file, _, name = target.rpartition(":")
    if not file or not name:
        advice = f"For instance {target.rstrip(':')}:make_problem."
        raise InputError("TARGET", f"{target!r} without a name", "FILE.py:name", advice)
    path = Path(file)
    target_object = _look_up(_module(path), name, path, NestedExpectation, kinds)
    if not callable(target_object):
        given = f"{name!r} of {path.name}, which is of type {type(target_object).__name__}"
        raise InputError("TARGET", given, kinds)
    function: Callable[..., Any] = target_object
    return function


def load_object(
    file: str, name: str, kind: type[Value] | tuple[type[Value], ...], kinds: str
) -> Value:
    """Object of that type in FILE.py or an importable module, or returned by a function there."""
    path = Path(file)
    target_object = _look_up(_module(path), name, path, kind, kinds)
    if not isinstance(target_object, kind) and callable(target_object):
        target_object = _called(target_object, name, path, kinds)
    if not isinstance(target_object, kind):
        given = f"{name!r} of {path.name}, which is of type {type(target_object).__name__}"
        raise InputError("TARGET", given, kinds)
    return target_object


def _module(path: Path) -> ModuleType:
    if path.suffix != ".py" and importlib.util.find_spec(str(path).partition(".")[0]) is not None:
        imported: ModuleType = _guarded(
            lambda: importlib.import_module(str(path)), path, "a module that can be imported"
        )
        return imported
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


def _look_up(module: ModuleType, name: str, path: Path, kind: Any, kinds: str) -> Any:
    if name in vars(module):
        return vars(module)[name]
    candidates = [
        key
        for key, value in vars(module).items()
        if (isinstance(value, kind) and not (key.startswith("__") or inspect.ismodule(value)))
        or (inspect.isfunction(value) and value.__module__ == module.__name__)
    ]
    if candidates:
        raise unknown_name(f"TARGET (a name in {path.name})", name, candidates)
    raise InputError("TARGET", f"{path.name}, which defines no such object", kinds)


def _called(function: Callable[..., Any], name: str, path: Path, kinds: str) -> Any:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        given = f"{name!r} of {path.name}, which cannot be called without arguments ({error})"
        raise InputError("TARGET", given, kinds) from error
    return _guarded(function, path, f"{name}() to return {kinds.partition(',')[0]}")


def _guarded(call: Callable[[], Any], path: Path, expected: str) -> Any:
    """Run the user's code; an exception becomes one line that says where."""
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
