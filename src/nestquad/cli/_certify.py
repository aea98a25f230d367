"""``nestquad certify``: an interval and a verdict for a proxy of J."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import nestquad as nq
from nestquad.cli._arguments import (
    OUTPUT,
    TARGET,
    Command,
    add_options,
    answer,
    count,
    load_object,
    load_problem,
    pool,
    progress,
)
from nestquad.errors import InputError

_SUMMARY = "check somebody's model of J: an interval by fresh draws, and a verdict in words"
_EPILOG = """\
examples:
  nestquad certify model.py:problem model.py:proxy --budget 2000
  nestquad certify model.py:problem model.py:proxy --budget 2000 --report check.html
  nestquad certify model.py:problem package.module:fitted --budget 1e4 --json

The proxy is a function of theta (n, d) that returns J as (n,), or an object with .predict.

exit codes:
  0  done; the verdict is in the answer
  2  wrong input
"""


def add_certify(command: Command) -> None:
    """Add ``certify``."""
    parser = command("certify", _run, _SUMMARY, _EPILOG)
    add_options(parser, "store", "workers", *OUTPUT, target=TARGET)
    parser.add_argument("proxy", metavar="PROXY", help="FILE.py:name or module:name of the proxy")
    parser.add_argument("--control", metavar="FILE.py:name", help="g-hat(x, theta) of the proxy")
    most = "at most N evaluations of g"
    parser.add_argument("--budget", type=count, required=True, metavar="N", help=most)


def _run(args: argparse.Namespace) -> int:
    problem, proxy = load_problem(args.target), _loaded("PROXY", args.proxy)
    control = None if args.control is None else _loaded("--control", args.control)
    options: dict[str, Any] = {"rng": args.seed, "store": args.store, "progress": progress(args)}
    with pool(args) as executor:
        check = nq.certify(
            problem, proxy, budget=args.budget, control=control, executor=executor, **options
        )
    return answer(args, check, partial(check.save, command=args.line))


def _loaded(argument: str, target: str) -> Any:
    """The object that FILE.py:name or module:name stands for, functions as they are."""
    file, _, name = target.rpartition(":")
    if not file or not name:
        raise InputError(argument, repr(target), "FILE.py:name or module:name")
    return load_object(file, name, object, "a function of theta, or an object with .predict")
