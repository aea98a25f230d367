"""``nestquad reproduce``: what it parses and prints."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from nestquad.errors import InputError
from nestquad.reproduce import part_names, reproduce
from nestquad.reproduce._text import duration

__all__ = ["add_reproduce"]

_EPILOG = """\
examples:
  nestquad reproduce all --out results
  nestquad reproduce finance health --jobs 2
  nestquad reproduce all --full --out results-full
  nestquad reproduce bo --full --replicates 40

Every run is kept in DIR/data/runs.csv. Stop when you like: the same command goes on from there,
and a quick run is the beginning of a full one. Open DIR/index.html in a browser.
"""


def add_reproduce(
    command: Callable[
        [str, Callable[[argparse.Namespace], int], str, str], argparse.ArgumentParser
    ],
) -> None:
    """Add the command to the parser that `command` adds to."""
    parser = command(
        "reproduce", _run, "the paper's figures and tables, with verdicts on its claims", _EPILOG
    )
    parser.add_argument(
        "parts", nargs="*", default=["all"], metavar="PART", help=f"all, {', '.join(part_names())}"
    )
    parser.add_argument(
        "--out", default="results", metavar="DIR", help="where to write (default results)"
    )
    effort = parser.add_mutually_exclusive_group()
    for name, words in (
        ("quick", "fewer replicates: minutes (default)"),
        ("full", "the paper's replicates, 1000 and 100: hours"),
        ("tiny", "two or three replicates: does it run?"),
    ):
        effort.add_argument(
            f"--{name}", dest="effort", action="store_const", const=name, help=words
        )
    parser.set_defaults(effort="quick")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes, each with one BLAS thread (default: one for each CPU; 0: in this one)",
    )
    parser.add_argument(
        "--replicates", type=int, metavar="N", help="run at most so many of each cell"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default 0")
    parser.add_argument(
        "--fresh", action="store_true", help="forget the runs that are there, and start over"
    )
    parser.add_argument("--no-progress", action="store_true", help="do not tell the time left")


def _run(args: argparse.Namespace) -> int:
    if args.seed < 0:
        raise InputError("seed", str(args.seed), "a whole number of at least 0")
    tell = Teller()
    started = time.monotonic()
    try:
        page, verdicts = reproduce(
            args.parts or ["all"],
            args.out,
            effort=args.effort,
            seed=args.seed,
            replicates=args.replicates,
            jobs=args.jobs,
            fresh=args.fresh,
            command=args.line,
            tell=(lambda *_: None) if args.no_progress else tell,
        )
    except KeyboardInterrupt:
        tell.close()
        print(f"nestquad: stopped; to go on: {args.line}", file=sys.stderr)
        return 130
    tell.close()
    for name, verdict in verdicts:
        print(f"{verdict.status:14}{name:14}{verdict.claim}: {verdict.ours}")
    print(f"wrote {page} ({duration(time.monotonic() - started)})")
    return 0


@dataclass
class Teller:
    """Says how far it is: one line, rewritten, in a terminal; a line now and then elsewhere."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    _last: float = -1e9
    _width: int = 0

    def __call__(self, done: int, total: int, left: float) -> None:
        now = time.monotonic()
        if total == 0 or (now - self._last < (0.2 if self._terminal else 20.0) and done < total):
            return
        self._last = now
        line = f"{done:,} of {total:,} runs"
        line += f", about {duration(left)} left" if done < total else ""
        if self._terminal:
            self.stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def close(self) -> None:
        if self._terminal and self._width:
            self.stream.write("\n")
            self._width = 0

    @property
    def _terminal(self) -> bool:
        return self.stream.isatty()
