"""What options of the command line may look like."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn, TypeVar

__all__ = ["add_goal", "count", "listed", "new_file", "refuse"]

Value = TypeVar("Value")


def add_goal(parser: argparse.ArgumentParser, target: str, methods: Iterable[str]) -> None:
    """What is to be estimated, how well, and how: the same for an estimate and for a plan."""
    parser.add_argument("target", metavar="TARGET", help=target)
    parser.add_argument("--budget", type=count, metavar="N", help="at most N evaluations of g")
    parser.add_argument("--tol", type=float, metavar="X", help="stop at a 95 %% half-width of X")
    parser.add_argument("--rtol", type=float, metavar="X", help="stop at X times the value")
    parser.add_argument(
        "--method", default="auto", metavar="NAME", help=f"auto (default), {', '.join(methods)}"
    )


def count(text: str) -> int:
    """A positive whole number; 1e5 is one."""
    try:
        value = float(text)
    except ValueError:
        refuse(f"{text!r} is not a number; for instance 10000 or 1e4")
    if not value.is_integer() or value < 1:  # which NaN and infinity are not either
        refuse(f"{text!r} is not a positive whole number")
    return int(value)


def listed(parse: Callable[[str], Value]) -> Callable[[str], list[Value]]:
    return lambda text: [parse(part.strip()) for part in text.split(",")]


def new_file(text: str) -> Path:
    """A file that can be written, found out now rather than after the evaluations."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        refuse(f"{text!r} cannot be written: it is a folder, or its folder does not exist")
    return path


def refuse(message: str) -> NoReturn:
    raise argparse.ArgumentTypeError(message)
