"""``nestquad design``: designs of an experiment side by side."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from nestquad import design
from nestquad._files import text_table
from nestquad._typing import Array
from nestquad.cli._arguments import (
    OUTPUT,
    Command,
    add_options,
    count,
    load_object,
    progress,
    wrote,
)
from nestquad.errors import InputError

_SUMMARY = "expected information gain of designs, compared with common random numbers"
_EPILOG = """\
examples:
  nestquad design trial.py:experiment --designs designs.csv --budget 20000
  nestquad design trial.py:experiment --designs designs.csv --tol 0.01 --report design.html
  nestquad design package.module:experiment --designs designs.csv --budget 2e4 --json

designs.csv has one header line and a row for each design. Its numbers are given to the experiment's
functions as an array; a column called "name" labels the designs. An experiment without log_prob
needs no budget: it gets lower bounds.
"""
_CRITERIA = {"information": design.eig, "variance": design.variance_reduction}
_KINDS = "a nestquad.design.Experiment, or a function without arguments that returns one"


def add_design(command: Command) -> None:
    """Add ``design``."""
    parser = command("design", _run, _SUMMARY, _EPILOG)
    target = "FILE.py:name or module:name of a nestquad.design.Experiment"
    add_options(parser, "tol", "rtol", "max-seconds", *OUTPUT, target=target)
    add = parser.add_argument
    add("--designs", required=True, metavar="FILE.csv", help="a row for each design")
    add("--budget", type=count, metavar="N", help="at most N likelihoods in all")
    each = "at most N simulations for each design"
    add("--simulations", type=count, metavar="N", help=each)
    gain = "expected gain of information (default), or reduction of variance"
    add("--criterion", choices=tuple(_CRITERIA), default="information", help=gain)
    add("--title", metavar="TEXT", help="heading of the report")


def _run(args: argparse.Namespace) -> int:
    file, _, name = args.target.rpartition(":")
    if not file:
        raise InputError("TARGET", repr(args.target), "FILE.py:name or module:name")
    experiment = load_object(file, name, design.Experiment, _KINDS)
    labels, rows = _designs(args.designs)
    goals = {"tol": args.tol, "rtol": args.rtol, "max_seconds": args.max_seconds}
    settings = {name: value for name, value in goals.items() if value is not None}
    if experiment.log_prob is not None and args.budget is None and not settings:
        raise InputError(
            "design",
            "none of --budget, --tol, --rtol and --max-seconds",
            "one of them",
            "For instance --budget 2e4.",
        )
    comparison = design.compare(
        experiment,
        list(rows),
        budget=args.budget,
        simulations=args.simulations,
        criterion=_CRITERIA[args.criterion],
        rng=args.seed,
        progress=progress(args),
        labels=labels,
        **settings,
    )
    print(comparison.to_json(indent=2) if args.json else comparison)
    if args.report:
        page = design.write_design_report(
            args.report, comparison, title=args.title or experiment.name or name, command=args.line
        )
        wrote(args, page)
    return 0


def _designs(file: str) -> tuple[list[str] | None, Array]:
    """Labels, where there are any, and designs (n, k)."""
    head, lines = text_table(Path(file), "--designs")
    names = [name.strip().lower() for name in head]
    at = names.index("name") if "name" in names else None
    labels = None if at is None else [row[at] for row in lines]
    numbers = [[cell for i, cell in enumerate(row) if i != at] for row in lines]
    columns = [name for i, name in enumerate(head) if i != at]
    for i, row in enumerate(numbers, start=1):
        for column, cell in zip(columns, row, strict=False):
            if not _is_number(cell):
                given = f"{cell!r} in row {i}, column {column!r} of {file}"
                raise InputError("--designs", given, "rows of numbers under a header")
    rows = np.array(numbers, dtype=float)
    if rows.ndim != 2 or not rows.size:
        raise InputError(
            "--designs", f"{file} without designs", "a header and a row for each design"
        )
    return labels, rows


def _is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False
