"""``nestquad sensitivity``: value and derivatives of a problem in its parameters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from nestquad.cli._arguments import (
    GOAL,
    OUTPUT,
    Command,
    add_options,
    answer,
    load_function,
    pool,
    progress,
)
from nestquad.errors import InputError
from nestquad.sensitivity import sensitivity

_SUMMARY = "value and gradient in parameters of a problem"
_EPILOG = """\
examples:
  nestquad sensitivity book.py:book --parameters '{"vol": 0.2, "strike": 100}' --budget 1e4
  nestquad sensitivity book.py:book --parameters '{"vol": 0.2}' --rtol 0.02 --json
  nestquad sensitivity book.py:book --parameters '{"weights": [1, 2, 3]}' --derivative jax \\
      --budget 1e4 --report page.html

exit codes:
  0  done; where a tolerance was asked for, it was met
  2  wrong input, or a g that jumps in a parameter
  3  a tolerance was asked for and not met
"""
_KINDS = "a function of named parameters that returns a nq.NestedExpectation"


def add_sensitivity(command: Command) -> None:
    """Add ``sensitivity``."""
    parser = command("sensitivity", _run, _SUMMARY, _EPILOG)
    target = f"FILE.py:name, where name is {_KINDS}"
    add_options(parser, *GOAL, "max-seconds", "store", "workers", *OUTPUT, target=target)
    values = """values by name: '{"vol": 0.2}'"""
    parser.add_argument("--parameters", required=True, metavar="JSON", help=values)
    known = "difference (default), jax, torch"
    parser.add_argument("--derivative", default="difference", metavar="NAME", help=known)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError("--parameters", f"{twice!r} twice", "each name once")
    return dict(pairs)


def _run(args: argparse.Namespace) -> int:
    try:
        parameters = json.loads(args.parameters, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        given = f"{args.parameters!r} ({error.msg} at character {error.pos})"
        raise InputError("--parameters", given, """JSON such as '{"vol": 0.2}'""") from error
    names = *GOAL, "max_seconds", "store", "derivative"
    options: dict[str, Any] = {name: getattr(args, name) for name in names}
    options |= {"rng": args.seed, "progress": progress(args)}
    with pool(args, _load) as executor:
        slopes = sensitivity(_load(args.target), parameters, executor=executor, **options)
    return answer(args, slopes, partial(slopes.save, command=args.line))


def _load(target: str) -> Callable[..., Any]:
    """The function that makes the problem."""
    return load_function(target, _KINDS)
